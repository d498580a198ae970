"""Slots over time: what the steps tell against a count of the executions one by one, slots that are shared, groups, few steps for many."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import journal_samples
from tests.ui_journals import write
from tests.ui_pages_kit import Checked, render, source_of

from firesteel.report.fold import JobFold
from firesteel.scheduler.kernel.records import Decision, JobPlanned, JobStatusRecord, SlotUsage, StateChange
from firesteel.ui.views.timeline import MOST_STEPS_EACH, slots_over_time

ZERO = 100.0
PLAN = {"job_id": "1", "job_name": "a job", "options": {}}


def fold_of(plan: JobPlanned, *records) -> JobFold:
    fold = JobFold()
    for record in (plan, JobStatusRecord(at=ZERO, status="RUNNING"), *records):
        fold.apply(record)
    return fold


def lives(vertex: int, spans) -> list[StateChange]:
    """``spans``: of each subtask, when it was queued, launched and over, in seconds since the job began; None: not yet."""
    found = []
    for subtask, times in enumerate(spans):
        for state, at in zip(("SCHEDULED", "DEPLOYING", "FINISHED"), times, strict=True):
            if at is not None:
                found.append(StateChange(at=ZERO + at, vertex=vertex, state=state, subtasks=[subtask], attempts=[0]))
    return sorted(found, key=lambda record: record.at)


def one_vertex(**more) -> JobPlanned:
    return JobPlanned(at=ZERO, vertices=[{"id": 0, "name": "step", "inputs": []}], datasets=[], **{**PLAN, **more})


TIMES = st.lists(st.integers(0, 40), min_size=3, max_size=3).map(sorted)


@given(st.lists(st.tuples(TIMES, st.integers(0, 2)), min_size=1, max_size=30))
def test_at_each_time_as_many_are_told_as_there_are(drawn):
    spans = [tuple(at if k <= known else None for k, at in enumerate(times)) for times, known in drawn]
    fold = fold_of(one_vertex(), *lives(0, spans))
    (use,) = slots_over_time(fold)
    far = math.inf
    for told, begin, end in ((use.running, 1, 2), (use.waiting, 0, 1)):
        pairs = [(span[begin], span[end]) for span in spans if span[begin] is not None]
        for at in range(41):
            if at >= use.end:
                break  # it runs no longer than its last record
            there = sum(a <= at < (far if b is None else b) for a, b in pairs)
            assert next((one.count for one in reversed(told) if one.at <= at), 0) == there, (at, told)


def test_very_many_are_told_in_few_steps_that_lose_no_peak():
    spans = [(k / 10, k / 10, k / 10 + 1.0) for k in range(5000)] + [(7.05, 7.05, 7.06)] * 40
    (use,) = slots_over_time(fold_of(one_vertex(), *lives(0, spans)))
    assert len(use.running) <= MOST_STEPS_EACH + 1
    assert use.most_running == max(one.count for one in use.running) == 50


def test_vertices_that_stream_to_each_other_share_slots():
    vertices = [{"id": k, "name": f"step {k}", "inputs": [k - 1] if k else [], "datasets": [k - 1] if k else []} for k in range(3)]  # fmt: skip
    datasets = [{"id": k, "producer": k, "ship": "forward", "type": "pipelined" if k == 0 else "blocking"} for k in range(2)]  # fmt: skip
    plan = JobPlanned(at=ZERO, vertices=vertices, datasets=datasets, **PLAN)
    streamed = [(0.0, 1.0, 5.0)] * 4
    (use,) = slots_over_time(fold_of(plan, *lives(0, streamed), *lives(1, streamed), *lives(2, [(5.0, 6.0, 9.0)] * 2)))
    assert [(one.at, one.count) for one in use.running] == [(1.0, 4), (5.0, 0), (6.0, 2), (9.0, 0)]


def decided(vertex: int, slots: int) -> Decision:
    inputs = {"allowed": {"slots": slots}}
    return Decision(at=ZERO, what="parallelism", vertex=vertex, result={"parallelism": 2}, inputs=inputs)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_use_is_told_against_the_clusters_slots_unless_it_has_grown(slots):
    one_after_another = lives(0, [(0.0, 0.0, 5.0), (0.0, 5.0, 10.0)])
    (use,) = slots_over_time(fold_of(one_vertex(), decided(0, slots), *one_after_another))
    assert (use.most_running, use.total, use.share) == (1, slots, 1 / slots)
    (grown,) = slots_over_time(fold_of(one_vertex(), decided(0, slots), *lives(0, [(0.0, 0.0, 5.0)] * 9)))
    assert (grown.most_running, grown.total, grown.share) == (9, None, None)


def test_groups_are_told_apart_with_what_waits_for_the_pool(tmp_path):
    vertices = [{"id": k, "name": f"step {k}", "inputs": [], "slot_sharing_group": name} for k, name in enumerate(("light", "heavy"))]  # fmt: skip
    groups = {"light": {"cpu_cores": 1.0}, "heavy": {"cpu_cores": 2.0}}
    plan = JobPlanned(at=ZERO, vertices=vertices, datasets=[], slot_sharing_groups=groups, **PLAN)
    usage = [
        SlotUsage(at=ZERO + at, group="heavy", asked=asked, held=held) for at, asked, held in ((1.0, 7, 1), (3.0, 0, 1))
    ]
    records = [*lives(0, [(0.0, 1.0, 2.0)] * 3), *usage, *lives(1, [(1.0, 1.0, 4.0)])]
    heavy, light = slots_over_time(fold_of(plan, *records))
    assert (heavy.group, heavy.most_running, heavy.most_waiting) == ("heavy", 1, 7)
    assert [(one.at, one.count) for one in heavy.waiting] == [(1.0, 7), (3.0, 0)]
    assert (light.group, light.most_running, light.most_waiting) == ("light", 3, 3)
    write(tmp_path, "1", [plan, JobStatusRecord(at=ZERO, status="RUNNING"), *records])
    page = Checked(render(source_of(tmp_path), "/jobs/1/slots"))
    assert {"used-0", "used-1", "waiting-0", "waiting-1"} <= page.ids
    assert "At most 3 slots in use." in page.text


def test_a_job_without_groups_has_one_picture_and_one_that_has_not_begun_none(tmp_path):
    write(tmp_path, "1", journal_samples.word_count())
    write(tmp_path, "2", [journal_samples.planned()])
    source = source_of(tmp_path)
    assert "used-0" in Checked(render(source, "/jobs/1/slots")).ids
    assert "Nothing was launched yet" in Checked(render(source, "/jobs/2/slots")).text
