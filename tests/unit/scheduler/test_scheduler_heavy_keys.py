"""Heavy keys from producers' reports to the record that names them: whose count, and what they are a share of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import to_builtins
from tests.scheduler_kit import GraphBuilder, plane

from firesteel.journal.file import masked
from firesteel.masking import Masker
from firesteel.model.heavy_keys import MOST_KEYS, HeavyKey
from firesteel.model.job_graph import ShipStrategy
from firesteel.report.explain import explain
from firesteel.scheduler.kernel.decisions import HeavyKeys
from firesteel.scheduler.kernel.events import ExecutionsFinished
from firesteel.scheduler.kernel.records import Decision

HASH = ShipStrategy.HASH
N = 16
EVEN, HEAVY = 10, 850


def sizes(_vertex, _subtask, _dataset, n):
    """85 % are in one subpartition, nearly."""
    row = np.full(n, EVEN)
    row[3] = HEAVY
    return row


TOTAL = 15 * EVEN + HEAVY
SMITH = HeavyKey(3, 800, ("'Smith'",))


def two_steps(heavy_keys, parallelism=3, **options):
    """Vertex 1 reads vertex 0, and vertex 2 reads both by the same key."""
    builder = GraphBuilder()
    builder.source([1] * parallelism, parallelism=parallelism)
    builder.step((0, HASH), parallelism=N), builder.step((0, HASH), (1, HASH), parallelism=N)
    made = plane(builder.graph, sizes=sizes, max_parallelism=N, restart_strategy__fixed_delay__delay="0 s", **options)
    made.heavy_keys = heavy_keys
    return made.start()


def shares(p, vertex):
    return [{one["key"]["k"]: one["share"] for one in record.result} for record in p.decisions("heavy keys", vertex)]


@pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
def test_whoever_reads_a_heavy_key_is_told_before_it_is_decided(scheduler):
    p = two_steps(lambda dataset, _: [SMITH] if dataset == 0 else [], jobmanager__scheduler=scheduler).run()
    for vertex in (1, 2):
        (record,) = p.decisions("heavy keys", vertex)
        facts = HeavyKeys(dataset=0, columns=["k"], bytes=3 * TOTAL, producer="step 0")
        assert record.inputs == to_builtins(facts)
        assert record.result == [{"key": {"k": "'Smith'"}, "subpartition": 3, "share": 0.8}]
        assert record.reason == "of the 2.93 KiB of 'step 0', k = 'Smith' has 80 % (subpartition 3)"
        told = [record.what for record in p.records if isinstance(record, Decision) and record.vertex == vertex]
        assert told.index("heavy keys") < told.index("parallelism")
    assert "    heavy keys   Of the 2.93 KiB of 'step 0', k = 'Smith' has 80 % (subpartition 3)." in explain(p.records)


def test_nothing_is_recorded_where_no_key_is_heavy():
    assert not two_steps(lambda *_: []).run().decisions("heavy keys")


def test_producers_add_up_and_what_is_heavy_for_one_alone_is_not_named():
    def heavy_keys(dataset, subtask):
        return [SMITH] if subtask else [HeavyKey(3, 100, ("'Smith'",)), HeavyKey(9, 600, ("'Jones'",))]

    p = two_steps(heavy_keys, parallelism=20).run()
    assert shares(p, 1) == [{"'Smith'": round((19 * 800 + 100) / (20 * TOTAL), 4)}]


def test_the_heaviest_are_in_the_sentence_and_of_the_others_their_number():
    keys = [HeavyKey(n, 130 + n, (str(n),)) for n in range(6)]
    p = two_steps(lambda *_: keys).run()
    record = p.decisions("heavy keys", 1)[0]
    assert [one["key"]["k"] for one in record.result] == ["5", "4", "3", "2", "1", "0"]
    assert "k = 3 has 13.3 % (subpartition 3) and 3 other keys have 13 % or more" in record.reason


def test_an_execution_that_is_not_admitted_does_not_count():
    """One comes twice, and one came too late: another attempt had finished."""
    p = two_steps(lambda _, subtask: [SMITH] if subtask < 2 else [])
    p.finish((0, 0, 0), keep=True)
    p.finish((0, 0, 0), token=77)
    p.heavy_keys = lambda *_: []
    assert shares(p.run(), 1) == [{"'Smith'": round(800 / (3 * TOTAL), 4)}] == shares(p, 2)[:1]


def test_an_execution_that_runs_again_leaves_the_share_as_it_is():
    p = two_steps(lambda *_: [SMITH]).run(0)
    p.lost.add((0, 0, *p.admitted[0, 0]))
    p.run()
    assert p.decisions("failover") and shares(p, 2)[0] == {"'Smith'": 0.8}


def test_a_report_that_cannot_be_read_names_nothing_and_costs_nothing():
    p = two_steps(lambda *_: [SMITH])
    keys = p.keys(0)
    reports = p.reports([p.tasks[key] for key in keys])
    damaged = replace(reports.partitions[0], heavy_keys=[b"damaged", b"", b"\x01"])
    event = ExecutionsFinished(
        at=p.tick(),
        vertex=0,
        subtasks=np.arange(3),
        attempts=np.zeros(3, np.int64),
        reports=replace(reports, partitions=(damaged,)),
    )
    p.scheduler.handle(event)
    assert p.scheduler.graph.result(0).is_available
    assert p.scheduler.graph.result(0).info.heavy_keys() == []


def test_reports_are_selected_with_the_rest():
    p = two_steps(lambda _, subtask: [SMITH] if subtask == 1 else [])
    reports = p.reports([p.tasks[key] for key in p.keys(0)])
    chosen = reports.select(np.array([1, 2])).partitions[0].heavy_keys
    assert [bool(report) for report in chosen] == [True, False]


def test_many_producers_leave_no_more_than_a_record():
    """Each has keys of its own, and one that all have."""

    def heavy_keys(_, subtask):
        return [HeavyKey(3, 400, ("'Smith'",)), *(HeavyKey(n, 45, (f"{subtask}/{n}",)) for n in range(9))]

    p = two_steps(heavy_keys, parallelism=300, check=False).run()
    (record,) = p.decisions("heavy keys", 1)
    held = p.scheduler.graph.result(0).info._heavy_keys
    assert len(held._weights) <= 64 and len(record.result) == 1 <= MOST_KEYS
    assert 0.4 - held.lost / (300 * TOTAL) <= record.result[0]["share"] <= 0.4 and held.lost / (300 * TOTAL) < 1 / 65


def test_keys_of_a_column_that_looks_secret_are_masked_in_the_journal():
    p = two_steps(lambda *_: [HeavyKey(3, 800, ("'c0ffee-4711'",))])
    p.scheduler.job_graph.datasets[0] = replace(p.scheduler.job_graph.datasets[0], keys=("api_token",))
    p.scheduler.graph.result(0).dataset = p.scheduler.job_graph.datasets[0]
    record = p.run().decisions("heavy keys", 1)[0]
    assert "c0ffee" in str(record)
    hidden = masked(record, Masker({}, home=""))
    assert "c0ffee" not in str(hidden) and "api_token = *** has 80 %" in hidden.reason
    assert hidden.result == [{"key": {"api_token": "***"}, "subpartition": 3, "share": 0.8}]
