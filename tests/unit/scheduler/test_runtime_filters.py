"""Sources that wait for the finished side of their joins, and read only what can match it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from tests.scheduler_kit import GraphBuilder, Plane, plane, waits_of

from firesteel.model.job_graph import JoinInfo, RuntimeFilter, ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e

MIB = 1 << 20
HASH = ShipStrategy.HASH
FACT, DIM, JOIN, SINK = range(4)
BUDGET = 0.5
"""Slot-seconds that may be idle for the exchange of a fact of 200 MiB."""
OPTION = "firesteel.join.runtime-filter."


def job(
    *,
    fact: int = 200 * MIB,
    dim: int = 2 * MIB,
    selective: bool = True,
    join: JoinInfo | None = None,
    deterministic: bool = True,
    slots: int = 4,
    started: bool = True,
    **options,
) -> Plane:
    """A fact of eight splits joined with a dimension, the fact on the left; a step by key behind it. ``join``: None: one that is
    fused with other steps by key, so that nothing is broadcast."""
    builder = GraphBuilder()
    builder.source([fact // 8] * 8), builder.source([dim], deterministic=deterministic)
    builder.step((FACT, HASH), (DIM, HASH), join=join)
    builder.step((JOIN, HASH), has_sink=True)
    filters = RuntimeFilter(JOIN, 1, builder.dataset(DIM, HASH), ("k",), ("k",), selective)
    builder.graph.vertices[FACT] = replace(builder.graph.vertices[FACT], filters=(filters,))
    given = {"data_volume_per_task": "50 mb", "restart_strategy__fixed_delay__delay": "0 s", **options}
    made = plane(builder.graph, sizes=lambda *_: np.full(_[-1], 100, np.int64), slots=slots, **given)
    return made.start() if started else made


def finish(p: Plane, vertex: int) -> None:
    p.finish(*p.keys(vertex))


def deployed(p: Plane) -> set[int]:
    return {deploy.vertex for deploy in p.deploys}


def end(p: Plane) -> None:
    p.run()
    p.answer_commit()
    assert p.status == "FINISHED"


def test_the_source_waits_then_reads_the_splits_that_are_left():
    p = job()
    assert deployed(p) == {DIM} and not p.narrow
    (put_off,) = p.decisions("join order")
    assert (put_off.vertex, put_off.rule, put_off.result) == (FACT, "runtime filter", "put off")
    assert "put off until the right side" in " ".join(waits_of(p.scheduler))
    finish(p, DIM)
    assert deployed(p) == {DIM}
    (asked,) = p.narrow
    assert asked.vertex == FACT and [gate.dataset for gate in asked.gates] == [f.dataset for f in asked.filters]
    assert "are being read" in " ".join(waits_of(p.scheduler))
    p.answer_narrow([1, 2, 5])
    (decided,) = p.decisions("source parallelism", FACT)
    assert decided.inputs["splits"] == 3 and decided.inputs["bytes"] == 75 * MIB
    splits = [s for d in p.deploys if d.vertex == FACT for k in range(len(d.subtasks)) for s in d.splits.of(k)]
    assert sorted(splits) == [0, 1, 2], "the driver's list is as short"
    (told,) = p.decisions("runtime filter")
    assert told.result == {"bytes": 75 * MIB, "splits": 3} and told.inputs["bytes"] == 200 * MIB
    assert told.reason.startswith("reads 75 MiB of 200 MiB in 8 splits: ")
    end(p)


def test_slots_are_not_idle_for_others_while_a_source_is_being_narrowed():
    """A larger source is put off until the join of both is there."""
    builder = GraphBuilder()
    builder.source([25 * MIB] * 8), builder.source([2 * MIB]), builder.source([100 * MIB] * 8)
    builder.step((FACT, HASH), (DIM, HASH)), builder.step((3, HASH), (2, HASH), join=JoinInfo("inner", ("", "")))
    builder.step((4, HASH), has_sink=True)
    filters = RuntimeFilter(3, 1, builder.dataset(DIM, HASH), ("k",), ("k",), True)
    builder.graph.vertices[FACT] = replace(builder.graph.vertices[FACT], filters=(filters,))
    p = plane(
        builder.graph, sizes=lambda *_: np.full(_[-1], 100, np.int64), slots=4, data_volume_per_task="50 mb"
    ).start()
    assert deployed(p) == {DIM} and "join-order-2" in p.timers
    finish(p, DIM)
    assert p.narrow and "join-order-2" not in p.timers
    p.answer_narrow([0])
    assert deployed(p) == {DIM, FACT} and "join-order-2" in p.timers
    end(p)


def test_a_source_of_which_nothing_is_left_has_one_subtask_that_reads_nothing():
    p = job()
    finish(p, DIM)
    p.answer_narrow([])
    assert p.parallelism(FACT) == 1
    end(p)


def test_no_answer_but_a_word_leaves_all_splits():
    p = job()
    finish(p, DIM)
    p.answer_narrow(None)
    (decided,) = p.decisions("source parallelism", FACT)
    assert decided.inputs["splits"] == 8
    assert p.decisions("runtime filter")[0].reason == "reads all of 200 MiB: made up"
    end(p)


def test_a_word_that_comes_twice_changes_nothing():
    p = job()
    finish(p, DIM)
    event = p.answer_narrow([0])
    before = len(p.commands)
    assert p.send(structs.replace(event, at=p.tick(), split_bytes=np.array([], np.int64))) == []
    assert len(p.commands) == before and len(p.scheduler.job_graph.vertices[FACT].source.split_bytes) == 1
    end(p)


@pytest.mark.parametrize(
    "given",
    [
        {"fact": 8 * MIB, "dim": 1000},
        {"dim": 60 * MIB},
        {"selective": False},
        {"deterministic": False},
        {OPTION + "enabled": False},
        {OPTION + "max-build-data-size": "1 mb"},
        {OPTION + "min-probe-data-size": "1 gb"},
    ],
    ids=lambda given: "-".join(map(str, given)),
)
def test_a_source_does_not_wait_where_a_filter_does_not_pay_or_is_not_wanted(given):
    p = job(**given)
    assert deployed(p) == {FACT, DIM}
    end(p)
    assert not [x for x in p.commands if isinstance(x, c.NarrowSource)] and not p.decisions("join order")


def test_a_small_side_is_tried_even_if_no_step_drops_its_rows():
    assert deployed(job(selective=False, dim=MIB)) == {DIM}


def test_slots_stand_idle_for_so_long_only_then_the_source_begins_and_is_not_asked_about():
    p = job()
    (timer,) = p.timers
    assert p.timers[timer] == pytest.approx(p.now + BUDGET / 3)
    p.fire(timer)
    assert deployed(p) == {FACT, DIM}
    assert [(d.result, d.rule) for d in p.decisions("join order")][1:] == [("begins", "idle slots")]
    end(p)
    assert not [x for x in p.commands if isinstance(x, c.NarrowSource)]


def test_an_idle_slot_costs_nothing_while_the_first_workers_start():
    p = job(cold_start=3.0)
    (timer,) = p.timers
    assert p.timers[timer] == pytest.approx(3.0 + BUDGET / 3)
    p.now = 2.0
    finish(p, DIM)
    assert p.narrow


def test_where_nobody_knows_the_slots_a_source_takes_what_is_there_but_does_not_wait():
    assert deployed(job(slots=0)) == {FACT, DIM}


def test_a_join_that_absorbed_the_source_is_narrowed_in_its_place():
    p = job(join=JoinInfo("inner", ("", "")))
    finish(p, DIM)
    (asked,) = p.narrow
    assert asked.vertex == JOIN and p.scheduler.job_graph.vertices[FACT].absorbed_by == JOIN
    p.answer_narrow([3])
    (decided,) = p.decisions("source parallelism", JOIN)
    assert decided.inputs["splits"] == 1
    end(p)
    assert deployed(p) == {DIM, JOIN, SINK}


def test_a_source_that_is_absorbed_while_the_driver_looks_hears_of_it_under_its_old_number():
    """The join's other side is there only when the filter of another join is being made."""
    builder = GraphBuilder()
    fact, dim, other = builder.source([25 * MIB] * 8), builder.source([2 * MIB]), builder.source([MIB] * 2)
    join = builder.step((fact, HASH), (other, HASH), join=JoinInfo("inner", ("", "")))
    last = builder.step((join, HASH), (dim, HASH), has_sink=True)
    found = RuntimeFilter(last, 1, builder.dataset(dim, HASH), ("k",), ("k",))
    builder.graph.vertices[fact] = replace(builder.graph.vertices[fact], filters=(found,))
    p = plane(
        builder.graph, sizes=lambda *_: np.full(_[-1], 100, np.int64), slots=8, data_volume_per_task="50 mb"
    ).start()
    finish(p, dim)
    assert deployed(p) == {dim, other}
    p.fire(next(iter(p.timers)))  # the first join's other side takes too long
    assert p.narrow[0].vertex == fact and deployed(p) == {dim, other}
    finish(p, other)
    assert p.scheduler.job_graph.vertices[fact].absorbed_by == join and deployed(p) == {dim, other}
    p.answer_narrow([0, 7])
    assert p.decisions("source parallelism", join)[0].inputs["splits"] == 2
    end(p)


def test_several_sides_are_waited_for_and_asked_about_at_once():
    builder = GraphBuilder()
    fact, one, two = builder.source([25 * MIB] * 8), builder.source([2 * MIB]), builder.source([MIB])
    first = builder.step((fact, HASH), (one, HASH))
    last = builder.step((first, HASH), (two, HASH), has_sink=True)
    filters = tuple(
        RuntimeFilter(join, 1, builder.dataset(side, HASH), ("k",), (column,))
        for join, side, column in ((first, one, "a"), (last, two, "b"))
    )
    builder.graph.vertices[fact] = replace(builder.graph.vertices[fact], filters=filters)
    p = plane(builder.graph, sizes=lambda *_: np.full(_[-1], 100, np.int64), slots=4, data_volume_per_task="50 mb")
    p.start()
    finish(p, two)
    assert deployed(p) == {one, two} and not p.narrow
    finish(p, one)
    (asked,) = p.narrow
    assert [found.columns for found in asked.filters] == [("a",), ("b",)]
    p.answer_narrow([0, 1])
    end(p)


def test_a_side_that_is_lost_while_its_keys_are_read_is_made_again():
    p = job()
    finish(p, DIM)
    (asked,) = p.narrow
    (gate,) = asked.gates
    lost = e.PartitionsLost(
        at=p.tick(), dataset=gate.dataset, partitions=np.array([0]), attempts=gate.attempts, tokens=gate.tokens
    )
    p.send(lost)
    assert len(p.keys(DIM)) == 1, "it runs again"
    p.answer_narrow(None)
    end(p)


@pytest.mark.parametrize("large", [0, 1])
def test_a_source_does_not_wait_for_the_keys_of_one_that_waits_for_it(large):
    """The user wants the larger side broadcast, so the smaller one's source waits for that; or, asked before it, for its keys."""
    builder = GraphBuilder()
    for side in (0, 1):
        builder.source([25 * MIB] * 8 if side == large else [MIB])
    builder.step((0, HASH), (1, HASH), join=JoinInfo("inner", ("", ""), hint=large), has_sink=True)
    found = RuntimeFilter(2, 1 - large, builder.dataset(1 - large, HASH), ("k",), ("k",))
    builder.graph.vertices[large] = replace(builder.graph.vertices[large], filters=(found,))
    p = plane(builder.graph, sizes=lambda *_: np.full(_[-1], 100, np.int64), slots=4).start()
    for timer in [timer for timer, at in p.timers.items() if at <= p.now]:
        p.fire(timer)
    assert deployed(p) == {large}
    end(p)
    assert p.scheduler.job_graph.vertices[1 - large].absorbed_by == 2
