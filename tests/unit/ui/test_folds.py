"""Folds and views against what reports make of the same records."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import numpy as np
import pytest
from tests import journal_samples, stream_samples, ui_journals
from tests.lives_kit import lives

from firesteel.report import fold as folds
from firesteel.report.executions import Executions
from firesteel.report.fold import Fold, JobFold, JobHistory, StreamFold, fold_for
from firesteel.scheduler.kernel.records import OutputGone, StateChange
from firesteel.scheduler.streaming.records import StreamBatch
from firesteel.ui.views.jobs import job_view
from firesteel.ui.views.ranges import histogram, range_bytes
from firesteel.ui.views.streams import stream_view
from firesteel.ui.views.structs import JobSummary
from firesteel.ui.views.subtasks import Subtasks, attempts_page
from firesteel.ui.views.timeline import MOST_LANES, MOST_MARKS, MOST_MOMENTS, MOST_NODES, nodes_page, timeline

SUMMARY = JobSummary(id="a", kind="job", name="a", status="finished", began=0.0)


@pytest.fixture(scope="module", params=[3, *(pytest.param(seed, marks=pytest.mark.full) for seed in (7, 11))])
def simulated(request, tmp_path_factory):
    """With failures, mirrors, blocked nodes and frozen ones."""
    path = tmp_path_factory.mktemp("simulated") / "1.jsonl"
    return ui_journals.simulated(path, seed=request.param, frozen_nodes=request.param % 2, fail_rate=0.1)


def fold_of(records) -> Fold:
    fold = fold_for(records[0])
    for record in records:
        fold.apply(record)
    return fold


def job_of(records) -> JobFold:
    fold = fold_of(records)
    assert isinstance(fold, JobFold)
    return fold


def attempts_of(fold: JobFold):
    return {
        (vertex, subtask): [asdict(executions.as_attempt(row)) for row in executions.rows_of(subtask)]
        for vertex, executions in fold.executions.items()
        for subtask in np.unique(executions.subtask).tolist()
    }


def expected_attempts(records):
    found = lives(records, all_of_them=True)
    return {key: [asdict(attempt) for attempt in attempts] for key, attempts in found.items()}


def test_columns_hold_what_the_report_on_attempts_tells(simulated):
    assert attempts_of(job_of(simulated)) == expected_attempts(simulated)


def test_nodes_tell_what_their_attempts_were(simulated):
    fold = job_of(simulated)
    rows = attempts_page(fold, fold.executions, 0, 1000).items
    nodes = nodes_page(fold).items
    assert {one.node for one in nodes} == {row.node for row in rows} - {""}
    for one in nodes:
        own = [row for row in rows if row.node == one.node]
        told = (one.attempts, one.finished, one.failed, one.mirrors)
        states = [row.state for row in own]
        assert told == (len(own), states.count("FINISHED"), states.count("FAILED"), sum(row.mirror for row in own))
        assert one.seconds == pytest.approx(sum(row.seconds or 0.0 for row in own))
    assert [one.attempts for one in nodes] == sorted((one.attempts for one in nodes), reverse=True)


@pytest.mark.parametrize("records", [journal_samples.word_count(), journal_samples.mirrored()])
def test_columns_of_small_jobs_too(records):
    assert attempts_of(job_of(records)) == expected_attempts(records)


def test_outputs_that_are_lost_void_their_attempts():
    records = [
        *journal_samples.word_count()[:-1],
        OutputGone(at=104.0, vertex=0, dataset=0, subtasks=[1, 7], attempts=[1, 0], tokens=[3, 4], reason="discarded: lost"),
        OutputGone(at=104.0, vertex=0, dataset=0, subtasks=[0], attempts=[0], tokens=[2], reason="released"),
    ]  # fmt: skip
    assert attempts_of(job_of(records)) == expected_attempts(records)
    assert [a["is_void"] for a in attempts_of(job_of(records))[0, 1]] == [False, True]


def test_who_stands_for_a_subtask_is_who_the_history_says(simulated):
    fold, history = job_of(simulated), JobHistory(simulated)
    for number, executions in fold.executions.items():
        standing = executions.standing()
        found = {int(executions.subtask[row]): executions.as_attempt(row).state for row in standing.tolist()}
        assert found == history.vertices[number].states


def test_every_prefix_can_be_shown(simulated):
    """As a page sees it while the job runs."""
    fold = JobFold(runs=True)
    for place, record in enumerate(simulated):
        fold.apply(record)
        if place % 7 == 0 or place > len(simulated) - 5:
            job = job_view(fold, SUMMARY)
            assert job.progress is None or 0.0 <= job.progress <= 1.0
            for vertex in job.vertices:
                if vertex.parallelism is not None:
                    assert vertex.waiting + vertex.running + vertex.finished == vertex.parallelism
            timeline(fold)
            for number in fold.vertices:
                Subtasks(fold, number).page()


def test_most_slots_at_once_is_as_the_report_counts_it(tmp_path):
    needs = {"slot-sharing-group.heavy.cpu-cores": "2", "slot-sharing-group.heavy.task-heap-memory": "2g"}
    records = ui_journals.simulated(tmp_path / "1.jsonl", memory="64 GiB", groups=("heavy",), options=needs)
    fold = job_of(records)
    (group,) = job_view(fold, SUMMARY).groups
    assert group.most_held >= fold.most_at_once(group.vertices) > 0


def test_ranges_are_those_of_the_decision(simulated):
    fold = job_of(simulated)
    for vertex in fold.vertices.values():
        decision = vertex.decided
        sizes = range_bytes(decision)
        if decision is None or decision.what != "parallelism":
            assert sizes is None
            continue
        assert sizes is not None and len(sizes) == decision.result["parallelism"]
        assert sizes.max() == decision.result["largest"] and sizes.min() == decision.result["smallest"]
        assert sizes.sum() == decision.inputs["non_broadcast"]


def test_a_histogram_counts_everything_once():
    values = np.array([1.0, 1.0, 2.0, np.nan, 10.0])
    found = histogram(values)
    assert found is not None
    assert sum(bar.count for bar in found.bars) == found.count == 4
    assert (found.smallest, found.median, found.largest, found.largest_at) == (1.0, 1.5, 10.0, 4)
    assert found.bars[0].low == 1.0 and found.bars[-1].high == 10.0
    (alone,) = histogram([5.0, 5.0]).bars
    assert alone.count == 2
    assert histogram([]) is histogram([float("nan")]) is None


# --- the timeline ---


def test_a_timeline_of_few_attempts_shows_each(simulated):
    fold = job_of(simulated)
    view = timeline(fold, begin=0.0, end=1e9)
    shown = [mark for lane in view.lanes for mark in lane.marks]
    began = sum(int((~np.isnan(each.began)).sum()) for each in fold.executions.values())
    assert view.attempts == began == sum(mark.count for mark in shown)
    assert view.mirrors == sum(int((each.mirror & ~np.isnan(each.began)).sum()) for each in fold.executions.values())


def test_bars_of_a_slot_do_not_overlap(simulated):
    for lane in timeline(job_of(simulated)).lanes:
        assert lane.slot is not None
        for one, other in itertools.pairwise(lane.marks):
            assert one.end <= other.begin + 1e-9


def test_a_window_has_what_ran_in_it(simulated):
    fold = job_of(simulated)
    half = (fold.now - fold.zero) / 2
    view = timeline(fold, begin=half, end=half * 1.1)
    assert (view.begin, view.end) == (half, half * 1.1)
    assert view.job_seconds == pytest.approx(2 * half)
    assert all(mark.end >= half and mark.begin <= half * 1.1 for lane in view.lanes for mark in lane.marks)
    for begin, end in ((5.0, 1.0), (1e9, 2e9), (float("nan"), None), (-5.0, None)):
        assert timeline(fold, begin=begin, end=end).begin == 0.0


def test_of_very_many_attempts_there_are_as_many_marks_as_a_picture_holds(tmp_path):
    records = ui_journals.simulated(
        tmp_path / "1.jsonl", parallelism=10_000, vertices=2, nodes=200, slots=20, slow_nodes=3, fail_rate=0.02
    )
    fold = job_of(records)
    view = timeline(fold)
    assert view.attempts > 10_000 and view.is_aggregated
    assert len(view.lanes) == MOST_NODES <= MOST_LANES and view.nodes_left_out == 200 - MOST_NODES
    assert sum(len(lane.marks) for lane in view.lanes) <= MOST_MARKS
    assert len(view.moments) <= MOST_MOMENTS
    assert all(mark.busy <= 20 + 1e-6 for lane in view.lanes for mark in lane.marks)
    blocked = {block.node for block in fold.blocks}
    assert blocked and blocked <= {lane.node for lane in view.lanes}, "what is looked for is there"
    shown = [int(lane.node.removeprefix("node-")) for lane in view.lanes]
    assert shown == sorted(shown), "as people count"
    node = next(lane for lane in view.lanes if lane.slot is None)
    worked = sum(mark.busy * (mark.end - mark.begin) for mark in node.marks)
    assert worked == pytest.approx(_seconds_on(fold, node.node), rel=1e-6)


def _seconds_on(fold: JobFold, node: str) -> float:
    """All that ran there, from the records."""
    return sum(
        max(0.0, (fold.now if np.isnan(executions.ended[row]) else executions.ended[row]) - executions.began[row])
        for executions in fold.executions.values()
        for row in range(executions.count)
        if executions.node_name(row) == node and not np.isnan(executions.began[row])
    )


# --- streams ---


def test_a_streams_view_is_what_its_report_says():
    fold = fold_of(stream_samples.words())
    assert isinstance(fold, StreamFold)
    view = stream_view(fold, SUMMARY)
    batches = [record for record in stream_samples.words() if isinstance(record, StreamBatch)]
    assert view.batches_total == sum(batch.batches for batch in batches) and view.rows == sum(b.rows for b in batches)
    assert [level.parallelism for level in view.levels] == [
        key for key, _ in itertools.groupby(batch.parallelism for batch in batches)
    ]
    assert view.rescales_total == len(view.rescales) > 0


def test_a_stream_of_a_month_is_kept_in_few_numbers():
    fold = fold_of([stream_samples.planned()])
    for number in range(20_000):
        fold.apply(stream_samples.batch(100.0 + number, number, 2 + number % 2))
    assert isinstance(fold, StreamFold)
    assert len(fold.batches) <= 2 * folds.MOST_POINTS and len(fold.levels) <= folds.MOST_POINTS
    view = stream_view(fold, SUMMARY)
    assert len(view.batches) <= folds.MOST_POINTS
    assert sum(batch.count for batch in view.batches) == view.batches_total == 20_000
    assert sum(batch.rows for batch in view.batches) == view.rows
    assert [batch.at for batch in view.batches] == sorted(batch.at for batch in view.batches)


def test_records_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        Executions().apply(StateChange(at=0.0, vertex=0, state="RUNNING", subtasks=[0, 1], attempts=[0]))
