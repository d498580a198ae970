"""What steps count: added up of the admitted attempts, or the most of one, and taken back for those that run again."""

from __future__ import annotations

from tests.scheduler_kit import ints

from firesteel.model.reports import CALLS, ERRORS, SET_UP_BYTES, SET_UP_MS, StepReport
from firesteel.scheduler.topology.step_counts import StepCounts, only_counts


def report(step: str, max_errors: int | None = None, **counts: int) -> StepReport:
    return StepReport(step, counts, max_errors)


def test_counts_are_added_up_and_of_bytes_held_the_most_of_one_is_told():
    counts = StepCounts(4)
    counts.admit(ints(2, 0), [(report("a", **{SET_UP_BYTES: 5, SET_UP_MS: 7}), report("b", **{SET_UP_MS: 1})), ()])
    counts.admit(ints(3), [(report("a", **{SET_UP_BYTES: 4, SET_UP_MS: 2, CALLS: 9}),)])
    assert counts.totals == {"a": {SET_UP_BYTES: 5, SET_UP_MS: 9, CALLS: 9}, "b": {SET_UP_MS: 1}}
    assert counts.by_subtask(SET_UP_MS).tolist() == [0, 0, 8, 2]
    assert counts.by_subtask(ERRORS) is None
    counts.forget(ints(1, 2))
    assert counts.totals == {"a": {SET_UP_BYTES: 4, SET_UP_MS: 2, CALLS: 9}, "b": {SET_UP_MS: 0}}
    counts.admit(ints(2), [(report("b", **{SET_UP_MS: 3}),)])
    assert counts.by_subtask(SET_UP_MS).tolist() == [0, 0, 3, 2]


def test_errors_of_admitted_attempts_and_of_those_that_come_are_bounded_for_each_step():
    counts = StepCounts(3)
    first = [(report("a", 4, **{ERRORS: 3}), report("b", 1))]
    assert counts.too_many_errors(first) is None
    counts.admit(ints(0), first)
    more = [(report("a", 4, **{ERRORS: 1}),), (report("b", 1, **{ERRORS: 1}),)]
    assert counts.too_many_errors(more) is None
    assert counts.too_many_errors([*more, (report("b", 1, **{ERRORS: 1}),)]) == (
        "The function of step 'b' failed for 2 rows by now; at most 1 may (max_errors)."
    )
    assert "'a' failed for 5 rows" in counts.too_many_errors([(report("a", 4, **{ERRORS: 2}),)])
    counts.forget(ints(0))
    assert counts.too_many_errors([(report("a", 4, **{ERRORS: 4}),)]) is None


def test_what_needs_more_than_to_be_counted():
    assert only_counts(())
    assert only_counts((report("a", **{CALLS: 1}),))
    assert not only_counts((report("a", **{CALLS: 1}), report("b", 3)))
    assert not only_counts((StepReport("a", samples=[("row", "error")]),))
