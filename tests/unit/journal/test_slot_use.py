"""The share of its slots' time that a step used, as the journal tells it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.journal_samples import planned

from firesteel.report.executions import BusySlots, Executions
from firesteel.report.explain import explain, slot_use, uses
from firesteel.report.fold import JobFold
from firesteel.scheduler.kernel.records import Decision, JobStatusRecord, StateChange


def finished(vertex, began, ended):
    n = len(began)
    return StateChange(
        at=max(ended),
        vertex=vertex,
        state="FINISHED",
        subtasks=[*range(n)],
        attempts=[0] * n,
        deployed=began,
        times=ended,
    )


def job(*records, slots=2):
    inputs = {"slots": slots}
    return [
        planned(),
        JobStatusRecord(at=100.0, status="RUNNING"),
        Decision(at=100.0, what="source parallelism", vertex=0, result=3, inputs=inputs, reason="3 subtasks"),
        *records,
        JobStatusRecord(at=110.0, status="FINISHED"),
    ]


RECORDS = job(finished(0, [100.0, 101.0, 104.0], [104.0, 106.0, 108.0]))
"""On two slots for 8 s: 13 s used; 1 s idle until both began, and 2 at the end."""


def test_explain_says_how_much_was_used_and_where_the_rest_went():
    assert (
        "used         81 % of the time of 2 slots used in 8 s; idle: 6 % until all had begun, 12 % at the end"
        in explain(RECORDS)
    )


def test_a_page_says_the_same():
    fold = JobFold()
    for record in RECORDS:
        fold.apply(record)
    use = uses(fold)[0]
    assert use.used == pytest.approx(13 / 16)
    assert use.used + use.others + use.begin + use.between + use.end == pytest.approx(1)
    assert use.words() in explain(RECORDS)


def test_other_steps_have_their_share():
    other = finished(1, [101.0, 107.0], [104.0, 120.0])
    text = explain(job(*RECORDS[3:-1], other, slots=4))
    assert "[0]" in text and "41 % of the time of 4 slots used in 8 s, and 12 % by other steps" in text


def test_attempts_that_failed_used_their_slots():
    lost = [
        StateChange(at=100.0, vertex=0, state="DEPLOYING", subtasks=[0, 1], attempts=[0, 0], times=[100.0, 100.5]),
        StateChange(at=102.0, vertex=0, state="FAILED", subtasks=[1], attempts=[0]),
    ]
    done = StateChange(
        at=108.0,
        vertex=0,
        state="FINISHED",
        subtasks=[0, 1, 2],
        attempts=[0, 1, 0],
        deployed=[100.0, 102.0, 104.0],
        times=[104.0, 106.0, 108.0],
    )
    began, ended = executions_of(*lost, done).spans()
    assert sorted(zip(began.tolist(), ended.tolist(), strict=True)) == [
        (100, 104),
        (100.5, 102),
        (102, 106),
        (104, 108),
    ]


def executions_of(*records) -> Executions:
    found = Executions()
    for record in records:
        found.apply(record)
    return found


def test_nothing_is_told_where_the_journal_does_not_know():
    older = StateChange(at=106.0, vertex=0, state="FINISHED", subtasks=[0, 1, 2], attempts=[0, 0, 0])
    known = StateChange(at=100.0, vertex=0, state="RUNNING", subtasks=[0, 1], attempts=[0, 0])
    assert [len(column) for column in executions_of(known, older).spans()] == [0, 0]
    assert "used  " not in explain(job(older))
    pipelined = job(*RECORDS[3:-1])
    pipelined[0].datasets[0]["type"] = "pipelined"
    assert "used  " not in explain(pipelined)


def test_more_were_busy_than_were_known_of():
    spans = np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 2.0])
    use = slot_use(spans, BusySlots([spans]), 0)
    assert use is not None and (use.slots, use.used) == (3, pytest.approx(4 / 6))
    assert slot_use((np.zeros(0), np.zeros(0)), BusySlots([]), 4) is None
