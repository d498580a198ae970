"""Joins decided again from their records: with other options as a run with these decided them, with none as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scheduler_kit import GraphBuilder, Plane
from tests.unit.scheduler.test_adaptive_joins import EITHER, HASH, MIB, choices, end, finish, job, star, started

from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.report.decisions import with_reason
from firesteel.scheduler.joins.replay import JoinOptions, replay_joins
from firesteel.scheduler.kernel.records import Decision, JobPlanned, JournalRecord
from firesteel.scheduler.topology.planned import planned
from firesteel.simulation.what_if import compare, what_if

AS_IT_WAS = JoinOptions()


def records_of(p: Plane, compiled: JobPlanned) -> list[JournalRecord]:
    return [compiled, *p.records]


def ran(dims: tuple[int, ...], **options) -> list[JournalRecord]:
    """A star whose dimensions finish in this order."""
    p = star(**options)
    for dim in dims:
        finish(p, dim)
    end(p)
    compiled = planned(star().scheduler.job_graph, "job", Options())
    for vertex in compiled.vertices:
        vertex["inputs"] = {4: [0, 1], 5: [4, 2], 6: [5, 3], 7: [6]}.get(vertex["id"], [])
    return records_of(p, compiled)


def told(records: list[JournalRecord], options: JoinOptions = AS_IT_WAS) -> list[tuple[int, Decision]]:
    return [(one.join, with_reason(one.would_be)) for one in replay_joins(records, options).joins]


def decided(records: list[JournalRecord], memory: int | None = None) -> list[tuple[int, str, str]]:
    """Without the reasons, in which what is estimated of a probe side depends on how it was made."""
    return [(join, choice.result, choice.rule) for join, choice in told(records, JoinOptions(memory=memory))]


def test_sizes_of_older_journals_had_no_type():
    records = ran((1, 2, 3))
    for record in records:
        if isinstance(record, Decision) and record.what == "join":
            del record.inputs["type"]
            record.inputs["held"] = list(record.inputs["held"])
    (first, *_) = replay_joins(records, JoinOptions(memory=MIB)).joins
    assert (first.was.result, first.would_be.result, first.would_be.rule) == ("broadcast right", "hash", "memory")


@pytest.mark.parametrize("dims", [(1, 2, 3), (2, 3, 1), (3, 2, 1)])
@pytest.mark.parametrize("memory", [160 * MIB, 1024 * MIB])
def test_as_a_run_with_that_memory_decides(dims, memory):
    """12 MiB each: how many of them fit beside each other follows from all that were decided before."""
    written = dict.fromkeys((1, 2, 3), 12 * MIB)
    small = ran(dims, written=written, task_memory=40 * MIB)
    other = ran(dims, written=written, task_memory=memory)
    assert told(small) == [(one.join, one.was) for one in replay_joins(small, AS_IT_WAS).joins]
    assert decided(small, memory) == decided(other) and decided(other, 40 * MIB) == decided(small)
    assert {join for join, _ in told(small)} == {4, 5, 6}


def test_a_side_that_is_joined_through_local_disk_leaves_the_memory_to_others():
    """It was asked for, and is too large; the next one fits, as nothing else is held. With memory for both it is counted."""
    builder = GraphBuilder()
    builder.source([50 * MIB] * 4), builder.source([MIB]), builder.source([MIB])
    first = builder.step((0, HASH), (1, HASH), join=replace(EITHER, hint=1))
    builder.step((first, HASH), (2, HASH), join=EITHER)
    p = started(builder, {1: 100 * MIB, 2: 12 * MIB}, slots=3, task_memory=40 * MIB)
    finish(p, 1), finish(p, 2)
    assert choices(p) == [("broadcast right", "hint"), ("broadcast right", "bytes")]
    records = records_of(p, planned(builder.graph, "job", Options()))
    assert told(records) == [(one.join, one.was) for one in replay_joins(records, AS_IT_WAS).joins]
    (_, second) = told(records, JoinOptions(memory=210 * MIB))
    assert second[1].rule == "memory" and "beside 1 other build side" in second[1].reason


def test_as_a_run_with_that_volume_decides():
    """4 tasks would read 20 MiB for 200, or 40 of them."""
    p, finer = (job(written=20 * MIB, slots=64, data_volume_per_task=volume) for volume in ("50 mb", "5 mb"))
    compiled = planned(job().scheduler.job_graph, "job", Options())
    for ran_with in (p, finer):
        finish(ran_with, 1)
    assert choices(p) == [("broadcast right", "bytes")] and choices(finer) == [("hash", "bytes")]
    (again,) = told(records_of(p, compiled), JoinOptions(volume=5 * MIB))
    assert again[1] == told(records_of(finer, compiled))[0][1]


def test_what_was_too_late_stays_so_and_what_is_switched_off_is_hash():
    late = job(slots=6)
    late.fire("join-order-0")
    finish(late, 1)
    records = records_of(late, planned(job().scheduler.job_graph, "job", Options()))
    (one,) = replay_joins(records, JoinOptions(memory=1)).joins
    assert one.was == one.would_be and one.was.rule == "too late"
    (one,) = replay_joins(records, JoinOptions(is_adaptive=False)).joins
    assert one.would_be.result == "hash" and "firesteel.join.adaptive is false" in with_reason(one.would_be).reason


def test_who_would_do_other_work():
    records = ran((1, 2, 3), written=dict.fromkeys((1, 2, 3), 12 * MIB), task_memory=160 * MIB)
    as_it_was = replay_joins(records, AS_IT_WAS)
    assert as_it_was.was[0] == frozenset({0, 1, 2, 3, 4, 5, 6}) - {1, 2, 3}
    assert not any(map(as_it_was.has_moved, range(8)))
    less = replay_joins(records, JoinOptions(memory=40 * MIB))
    assert [v for v in range(8) if less.has_moved(v)] == [0, 4, 5, 6] and less.would_be[0] == {0, 4}
    off = replay_joins(records, JoinOptions(is_adaptive=False))
    assert off.would_be == {} and off.has_moved(0)


# --- as it is told -------------------------------------------------------------------------------------------


def test_both_ways_side_by_side():
    records = ran((2, 1, 3), written=dict.fromkeys((1, 2, 3), 12 * MIB), task_memory=160 * MIB)
    text = what_if(records, {"firesteel.memory.per-task": "40 MiB"})
    assert "join of [4]  broadcast right                   hash" in text
    assert (
        "join of [5]" not in text
        and "    join         broadcast right                   broadcast right (the same)" in text
    )
    assert "that a task can hold beside" in text
    assert "was          in the tasks of [6].\n    what if      in others, or in tasks of its own" in text
    same = what_if(records, {"memory.per-task": "160 MiB"}, 0)
    assert same.endswith("[0] step 0\n    was          in the tasks of [6].\n    what if      the same.")


def test_a_vertex_whose_join_would_be_done_otherwise_is_not_decided_again():
    p = job(written=140 * MIB)
    finish(p, 1)
    end(p)
    records = records_of(p, planned(job().scheduler.job_graph, "job", Options()))
    for vertex in records[0].vertices:
        vertex["inputs"] = {2: [0, 1], 3: [2]}.get(vertex["id"], [])
    join, behind = compare(records, {"firesteel.memory.per-task": "1 GiB", "data-volume-per-task": "200 MiB"})
    assert join.would_be is None and "a join is done otherwise" in join.why_not
    assert behind.would_be is not None, "what it reads is the same"
    assert all(one.would_be is not None for one in compare(records, {"firesteel.join.adaptive": "false"}))
    with pytest.raises(UsageError, match=r"Did you mean 'firesteel.join.adaptive'"):
        compare(records, {"firesteel.join.adaptiv": "false"})


def test_a_hint_holds_whatever_the_options():
    p = job(join=replace(EITHER, hint=1), written=100 * MIB)
    finish(p, 1)
    records = records_of(p, planned(job().scheduler.job_graph, "job", Options()))
    ((_, again),) = told(records, JoinOptions(memory=MIB, volume=1))
    assert again.result == "broadcast right" and again.rule == "hint"
