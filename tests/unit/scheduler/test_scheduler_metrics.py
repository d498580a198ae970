"""The metrics registry: numbers by name, and when they are written down."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane

from firesteel.journal.file import Journal, read
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.kernel.metrics import SNAPSHOT_SECONDS, SNAPSHOT_STEPS, MetricGroup
from firesteel.scheduler.kernel.records import MetricsSnapshot
from firesteel.scheduler.scheduler import create_scheduler


def plane(subtasks: int) -> Plane:
    builder = GraphBuilder()
    builder.source([1] * subtasks, parallelism=subtasks)
    builder.step((0, ShipStrategy.HASH))
    return Plane(create_scheduler(builder.graph, Options()), check=False)


def snapshots(p: Plane) -> list[MetricsSnapshot]:
    return [record for record in p.records if isinstance(record, MetricsSnapshot)]


def test_a_job_ends_with_the_numbers_of_all_vertices(tmp_path):
    p = plane(3).start()
    p.launch((0, 1, 0))
    p.fail((0, 1, 0))
    p.run()
    last = snapshots(p)[-1]
    assert last.job == {"numRestarts": 1}
    assert set(last.vertices) == {0, 1}
    assert last.vertices[0]["numFinishedTasks"] == last.vertices[0]["parallelism"] == 3
    assert last.vertices[0]["numRecordsIn"] == 9, "what the admitted attempts read, three rows each"
    assert last.vertices[0]["numBytesProduced"] == 10 * 3 * p.scheduler.graph.result(0).num_subpartitions
    journal = Journal(tmp_path / "job.jsonl")
    journal.record(last)
    journal.close()
    assert read(journal.path) == [last]


def test_a_snapshot_counts_tasks_by_state():
    p = plane(4)
    assert p.scheduler.metrics.snapshot().vertices == {}
    p.start()
    p.launch((0, 0, 0))
    p.finish((0, 1, 0))
    now = p.scheduler.metrics.snapshot((0,)).vertices[0]
    assert [now[f"num{state}Tasks"] for state in ("Scheduled", "Running", "Finished", "Failed")] == [2, 1, 1, 0]


def test_a_restart_is_counted_and_written_down_at_once():
    p = plane(2).start()
    before = len(snapshots(p))
    p.fail((0, 0, 0))
    assert len(snapshots(p)) == before + 1 and snapshots(p)[-1].job["numRestarts"] == 1


def test_snapshots_of_a_large_vertex_are_few_however_long_it_runs():
    n = 20 * SNAPSHOT_STEPS
    p = plane(n).start()
    for subtask in range(n - 1):
        p.now += 10 * SNAPSHOT_SECONDS
        p.finish((0, subtask, 0))
    assert len(snapshots(p)) == SNAPSHOT_STEPS - 1
    p.finish((0, n - 1, 0))
    assert snapshots(p)[-1].vertices[0]["numFinishedTasks"] == n, "its end is written down"


def test_snapshots_of_a_quick_vertex_are_seldom():
    p = plane(50).start()
    for subtask in range(49):
        p.finish((0, subtask, 0))
    assert len(snapshots(p)) == 1 + int(49 * 0.01 / SNAPSHOT_SECONDS)


def test_what_later_features_register_is_read_with_the_rest():
    group = MetricGroup()
    effective = group.counter("numEffectiveSpeculativeExecutions")
    slow = np.array([False, True, True])
    group.gauge("numSlowExecutionVertices", lambda: int(slow.sum()))
    effective.inc(3)
    assert group.read() == {"numEffectiveSpeculativeExecutions": 3, "numSlowExecutionVertices": 2}
    slow[1] = False
    assert group.read()["numSlowExecutionVertices"] == 1
    with pytest.raises(ValueError, match="numSlowExecutionVertices is registered already"):
        group.counter("numSlowExecutionVertices")
