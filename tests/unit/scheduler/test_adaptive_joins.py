"""Joins that are decided while the job runs, by the bytes that the build side really has; the probe side is put off meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from msgspec import structs, to_builtins
from tests.scheduler_kit import GraphBuilder, Plane, attempts_of, ints, plane, waits_of

from firesteel.model.build_memory import INDEX_ROW_BYTES, held_bytes
from firesteel.model.costs import StepCost, StepCosts
from firesteel.model.job_graph import JobEdge, JoinInfo, ShipStrategy
from firesteel.report.decisions import reason_of
from firesteel.scheduler.joins.broadcast import decide_join
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.kernel.decisions import JoinSizes

MIB = 1 << 20
HASH = ShipStrategy.HASH
FACT, DIM, JOIN, SINK = range(4)
EITHER = JoinInfo("inner", ("", ""))
BUDGET = 0.5
"""Slot-seconds that may be idle for the exchange of a fact of 200 MiB."""


def job(
    *,
    fact: int = 200 * MIB,
    dim: int = 10 * MIB,
    written: int | None = None,
    join: JoinInfo | None = EITHER,
    dims: int = 2,
    slots: int = 2,
    **options,
) -> Plane:
    """A fact joined with a dimension, the fact on the left; a step by key behind it. ``dim``, ``written``: bytes that the
    dimension's source tells of, and that it really has; ``dims``: its subtasks."""
    builder = GraphBuilder()
    builder.source([fact // 4] * 4), builder.source([dim // dims] * dims)
    builder.step((FACT, HASH), (DIM, HASH), join=join)
    builder.step((JOIN, HASH), has_sink=True)
    return started(builder, {FACT: fact, DIM: dim if written is None else written}, slots, **options)


def started(
    builder: GraphBuilder, written: dict[int, int], slots: int, came_out: dict[int, float] | None = None, **options
) -> Plane:
    """``written``: bytes of all subtasks of a vertex together, a few for those not named. ``came_out``: the part of what they read
    that came out of vertices in two earlier runs."""
    for vertex in builder.graph.vertices:
        vertex.step = f"step-{vertex.id}"
    known = {f"step-{vertex}": StepCost(1e-9, 2, part) for vertex, part in (came_out or {}).items()}

    def sizes(vertex: int, subtask: int, _dataset: int, n: int) -> np.ndarray:
        row = np.zeros(n, np.int64)
        row[subtask % n] = written.get(vertex, 40) // made.parallelism(vertex)
        return row

    given = {"data_volume_per_task": "50 mb", "restart_strategy__fixed_delay__delay": "0 s", **options}
    made = plane(builder.graph, sizes=sizes, slots=slots, costs=StepCosts(known), **given)
    return made.start()


def finish(p: Plane, vertex: int) -> None:
    p.finish(*p.keys(vertex))


def absorbed(p: Plane) -> list[tuple[int, int, int]]:
    return [(x.vertex, x.producer, x.build) for x in p.commands if isinstance(x, c.VertexAbsorbed)]


def deployed(p: Plane) -> set[int]:
    return {deploy.vertex for deploy in p.deploys}


def choices(p: Plane) -> list[tuple[str, str]]:
    return [(d.result, d.rule) for d in p.decisions("join")]


def order(p: Plane) -> list[tuple[int, str, str]]:
    return [(d.vertex, d.result, d.rule) for d in p.decisions("join order")]


def end(p: Plane) -> None:
    """The rest goes well; the sinks, if there are any, are published."""
    p.run()
    if p.commit is not None:
        p.answer_commit()
    assert p.status == "FINISHED"


def is_as_compiled(p: Plane) -> bool:
    """Every vertex has run, and nothing was absorbed."""
    changed = [x for x in p.records if isinstance(x, r.GraphChanged)]
    wholes = [edge for vertex in p.scheduler.job_graph.vertices for edge in vertex.inputs if edge.whole]
    return deployed(p) == {FACT, DIM, JOIN, SINK} and not (absorbed(p) or changed or wholes)


# --- one join ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("small_left", [False, True])
def test_a_small_side_is_read_whole_and_the_other_ones_producer_never_runs(small_left):
    sizes = {"fact": 10 * MIB, "dim": 200 * MIB} if small_left else {}
    small, large, build = (FACT, DIM, 0) if small_left else (DIM, FACT, 1)
    p = job(**sizes)
    assert deployed(p) == {small}
    assert order(p) == [(large, "put off", "smaller side first")]
    while len(p.keys(small)) > 1:
        p.finish(p.keys(small)[0])
    assert deployed(p) == {small} and not absorbed(p), "one subtask of the build side is missing"
    finish(p, small)
    assert absorbed(p) == [(JOIN, large, build)] and choices(p) == [(f"broadcast {('left', 'right')[build]}", "bytes")]
    assert p.parallelism(JOIN) > 1
    end(p)
    assert deployed(p) == {small, JOIN, SINK} and attempts_of(p.deploys, large) == []
    (dataset,) = p.scheduler.job_graph.vertices[small].outputs
    (deploy,) = [d for d in p.deploys if d.vertex == JOIN]
    (gate,), (ranges,) = deploy.gates, deploy.ranges
    assert gate.dataset == dataset
    for reader in range(ranges.parallelism):
        assert ranges.of(reader).tolist() == [[0, p.parallelism(small), 0, gate.num_subpartitions]]


def test_the_join_takes_over_the_source_with_all_its_splits_and_the_journal_says_so():
    p = job()
    finish(p, DIM)
    (told,) = [x for x in p.records if isinstance(x, r.GraphChanged)]
    assert (told.absorbed, told.into, told.vertex["id"]) == (FACT, JOIN, JOIN)
    join, fact = p.scheduler.job_graph.vertices[JOIN], p.scheduler.job_graph.vertices[FACT]
    assert join.source.split_bytes.tolist() == [50 * MIB] * 4 and fact.source is None
    assert fact.absorbed_by == JOIN and fact.outputs == [] and join.join is None
    (deploy,) = [d for d in p.deploys if d.vertex == JOIN]
    splits = [split for k in range(deploy.splits.parallelism) for split in deploy.splits.of(k).tolist()]
    assert sorted(splits) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        pytest.param({"written": 130 * MIB}, "memory", id="larger than the memory of a task whose budget nobody knows"),
        pytest.param({"written": 8 * MIB, "task_memory": 15 * MIB}, "memory", id="larger than half of its budget"),
        pytest.param({"written": 60 * MIB, "slots": 4}, "bytes", id="4 tasks would wait for 240 MiB to save 200"),
    ],
)
def test_a_join_stays_as_compiled_where_a_broadcast_costs_more(fields, rule):
    p = job(**fields)
    assert deployed(p) == {DIM}
    finish(p, DIM)
    assert choices(p) == [("hash", rule)] and deployed(p) == {FACT, DIM}
    end(p)
    assert is_as_compiled(p)


def test_only_the_tasks_that_run_at_once_wait_for_the_build_side():
    """200 tasks, 2 at a time: those that follow find it read."""
    p = job(written=20 * MIB, data_volume_per_task="1 mb")
    finish(p, DIM)
    assert choices(p) == [("broadcast right", "bytes")]
    assert p.decisions("join")[0].inputs["readers"] == 2


def test_the_bytes_that_a_side_has_count_not_those_that_its_source_tells_of():
    """A filter leaves little of 60 MiB, which 4 tasks would not read for 200."""
    p = job(dim=60 * MIB, written=3 * MIB)
    finish(p, DIM)
    assert absorbed(p) == [(JOIN, FACT, 1)]
    (told,) = p.decisions("join")
    assert told.inputs["build_bytes"] == 3 * MIB and told.inputs["probe_bytes"] == 200 * MIB
    end(p)


@pytest.mark.parametrize("hint", [0, 1])
def test_a_hint_wins_over_all_sizes(hint):
    """Also where the side that is asked for is the larger one."""
    p = job(join=replace(EITHER, hint=hint), written=150 * MIB)
    build, probe = (FACT, DIM) if hint == 0 else (DIM, FACT)
    assert deployed(p) == {build} and order(p)[0][:2] == (probe, "put off")
    finish(p, build)
    assert absorbed(p) == [(JOIN, probe, hint)] and choices(p) == [(f"broadcast {('left', 'right')[hint]}", "hint")]
    end(p)


@pytest.mark.parametrize(
    "join",
    [
        pytest.param(replace(EITHER, hint=2), id="never"),
        pytest.param(JoinInfo("full", ("rows without a match", "rows without a match")), id="obstacles"),
        pytest.param(None, id="no join"),
    ],
)
def test_what_is_forbidden_is_neither_waited_for_nor_decided(join):
    p = job(join=join)
    assert deployed(p) == {FACT, DIM}
    end(p)
    assert is_as_compiled(p) and not (choices(p) or order(p))


def test_a_hint_that_cannot_be_followed_is_recorded_with_the_reason():
    p = job(join=JoinInfo("left", ("rows without a match", ""), hint=0))
    assert deployed(p) == {FACT, DIM} and choices(p) == [("hash", "hint")]
    (told,) = p.decisions("join")
    assert told.reason.endswith("cannot be broadcast, as was asked for, because rows without a match")
    end(p)
    assert is_as_compiled(p)


def test_what_is_to_be_broadcast_is_waited_for_however_long_slots_are_idle():
    p = job(join=replace(EITHER, hint=1), slots=8)
    assert deployed(p) == {DIM} and not p.scheduler.job.timers.when(f"join-order-{FACT}")
    finish(p, DIM)
    assert absorbed(p) == [(JOIN, FACT, 1)]
    end(p)


def test_nothing_waits_for_the_larger_side_where_only_that_could_be_broadcast():
    p = job(join=JoinInfo("right", ("", "rows without a match")))
    assert deployed(p) == {FACT, DIM}
    end(p)
    assert is_as_compiled(p) and choices(p) == [("hash", "too late")]


def test_a_side_that_may_be_too_large_is_waited_for_while_slots_are_busy():
    """140 MiB at most, and a task holds 32 of them. Of idle time half is allowed."""
    p = job(dim=140 * MIB, task_memory=64 * MIB)
    assert deployed(p) == {DIM} and not p.timers
    finish(p, DIM)
    assert choices(p) == [("hash", "memory")]
    end(p)
    assert is_as_compiled(p)
    idle = job(dim=140 * MIB, task_memory=64 * MIB, slots=6)
    assert list(idle.timers.values()) == [pytest.approx(BUDGET / 2 / 4)]


def test_a_result_counts_once_for_each_step_that_hands_it_on():
    builder = GraphBuilder()
    builder.source([50 * MIB] * 4)
    halves = [builder.step((FACT, HASH)) for _ in range(2)]
    both = builder.step(*((half, ShipStrategy.REBALANCE) for half in halves))
    dim = builder.source([MIB])
    builder.step((both, HASH), (dim, HASH), join=EITHER)
    p = started(builder, {dim: MIB}, slots=2)
    finish(p, dim)
    (told,) = p.decisions("join")
    assert told.inputs["probe_bytes"] == 400 * MIB
    end(p)


def test_the_option_leaves_every_join_as_compiled():
    p = job(firesteel__join__adaptive=False)
    assert deployed(p) == {FACT, DIM} and not p.scheduler.joins.is_open
    end(p)
    assert is_as_compiled(p) and not (choices(p) or order(p))


def test_a_job_with_fixed_parallelisms_waits_for_nobody():
    builder = GraphBuilder()
    builder.source([200 * MIB], parallelism=1), builder.source([MIB], parallelism=1)
    builder.step((FACT, HASH), (DIM, HASH), join=EITHER, parallelism=2)
    p = started(builder, {}, slots=2, jobmanager__scheduler="Default")
    assert deployed(p) == {FACT, DIM} and p.run().status == "FINISHED"
    assert not absorbed(p)


# --- waiting -------------------------------------------------------------------------------------------------


def test_it_is_said_what_is_put_off_and_for_what():
    p = job()
    wanted = "Vertex 0 'step 0' is put off until the right side of vertex 2 'step 2' is there."
    assert wanted in waits_of(p.scheduler)
    finish(p, DIM)
    assert not any("put off" in line for line in waits_of(p.scheduler))
    assert not [timer for timer in p.timers if timer.startswith("join-order")]
    end(p)


def test_slots_that_have_work_cost_nothing():
    """Two slots, two subtasks: no timer, however long they take. The second slot is idle from the first one's end."""
    p = job()
    assert not p.timers
    p.now = 100.0
    p.finish(p.keys(DIM)[0])
    assert p.timers == {"join-order-0": pytest.approx(p.now + BUDGET)}
    finish(p, DIM)
    assert absorbed(p) and not p.timers
    end(p)


def test_slots_that_get_work_again_cost_nothing_from_then_on():
    """One of three is idle until a step that has nothing to do with the join begins."""
    builder = GraphBuilder()
    builder.source([50 * MIB] * 4), builder.source([5 * MIB] * 2)
    builder.step((FACT, HASH), (DIM, HASH), join=EITHER)
    other = builder.source([10])
    builder.step((other, HASH), parallelism=4)
    p = started(builder, {DIM: 10 * MIB}, slots=4)
    assert list(p.timers) == ["join-order-0"]
    finish(p, other)
    assert not p.timers
    p.now += 100 * BUDGET
    finish(p, DIM)
    assert absorbed(p) == [(JOIN, FACT, 1)]
    end(p)


@pytest.mark.parametrize("late", [False, True])
def test_idle_slots_end_the_wait(late):
    """``late``: another event comes first, behind the time; the timer's own event then changes nothing."""
    p = job(slots=6)
    (timer,) = p.timers
    assert p.timers[timer] == pytest.approx(BUDGET / 4)
    if late:
        p.now = p.timers[timer] + 0.1
        p.launch(p.keys(DIM)[0])
    else:
        p.fire(timer)
    assert order(p) == [(FACT, "put off", "smaller side first"), (FACT, "begins", "idle slots")]
    assert deployed(p) == {FACT, DIM} and not p.timers
    assert not p.scheduler.joins.is_open and not any("put off" in line for line in waits_of(p.scheduler))
    p.send(e.TimerFired(at=p.tick(), timer=timer))
    assert len(order(p)) == 2
    finish(p, DIM)
    assert choices(p) == [("hash", "too late")]
    end(p)
    assert is_as_compiled(p)


def test_the_budget_is_spent_by_all_phases_of_idleness_together():
    p = job(dims=4, slots=4)
    assert not p.timers
    p.finish(p.keys(DIM)[0])  # one slot is idle
    began, (timer,) = p.now, p.timers
    p.now += BUDGET / 2
    p.finish(*p.keys(DIM)[:2])  # three are
    spent = p.now - began
    assert p.timers[timer] == pytest.approx(p.now + (BUDGET - spent) / 3)
    p.fire(timer)
    assert order(p)[-1][1:] == ("begins", "idle slots")
    end(p)


def test_the_build_side_may_finish_at_the_last_moment():
    p = job(slots=6)
    (timer,) = p.timers
    p.now = p.timers[timer] - 0.02
    finish(p, DIM)
    assert absorbed(p) == [(JOIN, FACT, 1)] and not p.timers
    end(p)


def test_nothing_waits_for_a_side_that_turns_out_to_be_the_larger_one():
    """The dimension grows in its second step. Both producers would wait for one another."""
    builder = GraphBuilder()
    fact, dim = builder.source([50 * MIB] * 4), builder.source([10 * MIB])
    grown = builder.step((dim, HASH))
    builder.step((fact, HASH), (grown, HASH), join=EITHER, has_sink=True)
    p = started(builder, {fact: 200 * MIB, dim: 500 * MIB}, slots=1)
    assert order(p) == [(fact, "put off", "smaller side first")]
    finish(p, dim)
    assert order(p)[1:] == [(fact, "begins", "smaller side first"), (grown, "put off", "smaller side first")]
    assert p.decisions("join order")[1].reason.endswith("that side is likely the larger one by now")
    assert deployed(p) == {dim, fact} and not p.timers
    end(p)


def test_first_subtasks_tell_that_a_side_is_too_large_to_be_waited_for():
    """A task can hold 64 MiB, and two of four subtasks have written 70. A hint waits for them all the same."""
    p, hinted = (
        job(dim=160 * MIB, written=140 * MIB, dims=4, join=join, task_memory=128 * MIB)
        for join in (EITHER, replace(EITHER, hint=1))
    )
    for made in (p, hinted):
        made.finish(made.keys(DIM)[0])
        assert deployed(made) == {DIM}
        made.finish(made.keys(DIM)[0])
    assert order(p)[1:] == [(FACT, "begins", "memory")] and deployed(p) == {FACT, DIM}
    reason = (
        "begins without the right side of [2]: that side has 70 MiB already, more than the 64 MiB that a task can hold"
    )
    assert p.decisions("join order")[1].reason == reason
    end(p)
    assert is_as_compiled(p) and deployed(hinted) == {DIM}


# --- what came out in earlier runs ---------------------------------------------------------------------------


def test_the_side_that_is_filtered_to_less_comes_first():
    """Of 200 MiB 1 % is left, less than the dimension has."""
    p = job(came_out={FACT: 0.01, DIM: 1.0}, written=10 * MIB)
    assert deployed(p) == {FACT} and order(p) == [(DIM, "put off", "smaller side first")]
    (told,) = p.decisions("join order")
    assert told.inputs == {
        "join": JOIN,
        "build": "left",
        "build_bytes": 2 * MIB,
        "probe_bytes": 10 * MIB,
        "build_read": 200 * MIB,
        "probe_read": 10 * MIB,
        "build_runs": 2,
        "probe_runs": 2,
        "likely": True,
        "budget": 0.025,
        "type": "DeferredFor",
    }
    assert "estimated 2 MiB: 200 MiB read, of which 1 % came out in 2 earlier runs; slots may be" in told.reason
    assert told.reason.endswith("estimated 10 MiB: 10 MiB read, of which 100 % came out in 2 earlier runs")
    end(p)


def test_what_the_plan_guesses_to_be_the_least_comes_first():
    """Of 200 MiB the plan guesses 1 MiB to be left, and 2 MiB are."""
    builder = GraphBuilder()
    builder.source([50 * MIB] * 4), builder.source([5 * MIB] * 2)
    builder.step((FACT, HASH), (DIM, HASH), join=EITHER)
    builder.step((JOIN, HASH), has_sink=True)
    builder.graph.vertices[FACT].likely_bytes = MIB
    p = started(builder, {FACT: 2 * MIB, DIM: 10 * MIB}, slots=2)
    assert deployed(p) == {FACT} and order(p) == [(DIM, "put off", "smaller side first")]
    finish(p, FACT)
    assert absorbed(p) == [(JOIN, DIM, 0)]
    end(p)


def test_what_is_known_to_be_too_large_is_not_waited_for():
    """A task can hold 128 MiB. Where nobody knows what is left of 140, it may be less."""
    assert deployed(job(dim=140 * MIB)) == {DIM}
    p = job(dim=140 * MIB, came_out={FACT: 1.0, DIM: 1.0})
    assert deployed(p) == {FACT, DIM} and not order(p)
    end(p)


def test_an_exchange_is_worth_what_comes_out_and_a_broadcast_costs_what_is_read():
    """2 tasks at once wait for the dimension's 10 MiB; an exchange of the 14 MiB that come out of the fact's 200 costs less."""
    p = job(came_out={FACT: 0.07})
    assert p.decisions("join order")[0].inputs["probe_bytes"] == 14 * MIB
    finish(p, DIM)
    (told,) = p.decisions("join")
    assert (told.result, told.rule) == ("hash", "bytes")
    assert (told.inputs["readers"], told.inputs["probe_bytes"]) == (2, 14 * MIB)
    end(p)
    assert is_as_compiled(p)


# --- several joins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", list(permutations((1, 2, 3))))
def test_a_star_becomes_one_vertex_in_whatever_order_its_dimensions_finish(dims):
    p = star()
    assert deployed(p) == {1, 2, 3}
    for dim in dims:
        assert deployed(p) == {1, 2, 3}, "the fact begins only when all is decided"
        assert any("is put off" in line for line in waits_of(p.scheduler))
        finish(p, dim)
    assert deployed(p) == {1, 2, 3, 6}
    assert [result for result, _ in choices(p)] == ["broadcast right"] * 3
    assert sorted(producer for _, producer, _ in absorbed(p)) == [0, 4, 5]
    graph = p.scheduler.job_graph
    fused = graph.vertices[6]
    assert [(graph.datasets[edge.dataset].producer, edge.index, edge.whole) for edge in fused.inputs] == [
        (1, 0, True),
        (2, 1, True),
        (3, 2, True),
    ]
    assert fused.source is not None and fused.join is None and p.parallelism(6) == 4
    end(p)
    assert not any(attempts_of(p.deploys, vertex) for vertex in (0, 4, 5))


def test_a_wait_goes_on_for_the_join_that_has_absorbed_the_one_it_was_for():
    p = star()
    finish(p, 2)
    assert absorbed(p) == [(5, 4, 1)]
    wanted = "Vertex 0 'step 0' is put off until the right side of vertex 5 'step 4 -> step 5' is there."
    assert wanted in waits_of(p.scheduler)
    finish(p, 1), finish(p, 3)
    end(p)


def test_idleness_counts_for_the_whole_star():
    """The fused vertex waits for the next dimension with what is left of its producer's budget."""
    p = star()
    finish(p, 3)  # one of three slots is idle from here on
    began = p.now
    p.now += BUDGET / 2
    finish(p, 1)  # two are
    assert absorbed(p) == [(6, 5, 1), (4, 0, 1)]
    spent = p.now - began
    assert min(p.timers.values()) == pytest.approx(p.now + (BUDGET - spent) / 2)
    finish(p, 2)
    end(p)


def test_a_fused_vertex_waits_from_when_it_could_run():
    """It has absorbed a step whose own input is not there yet: until that is, idle slots cost nothing."""
    builder = GraphBuilder()
    slow, dim, other = (builder.source([size]) for size in (200 * MIB, MIB, MIB))
    step = builder.step((slow, HASH))
    builder.step((builder.step((step, HASH), (dim, HASH), join=EITHER), HASH), (other, HASH), join=EITHER)
    p = started(builder, {slow: 200 * MIB, dim: MIB, other: MIB}, slots=3)
    finish(p, dim)
    assert absorbed(p) == [(4, step, 1)] and not order(p) and not p.timers
    p.now += 100 * BUDGET
    finish(p, slow)
    assert order(p) == [(4, "put off", "smaller side first")]
    finish(p, other)
    assert [result for result, _ in choices(p)] == ["broadcast right"] * 2
    end(p)


def star(**options) -> Plane:
    builder = GraphBuilder()
    builder.source([50 * MIB] * 4)
    for _ in range(3):
        builder.source([MIB])
    for dim in (1, 2, 3):
        builder.step((0 if dim == 1 else 2 + dim, HASH), (dim, HASH), join=EITHER)
    builder.step((6, HASH), has_sink=True)
    written = options.pop("written", {})
    return started(builder, {1: MIB, 2: MIB, 3: MIB} | written, slots=3, **options)


def test_a_dimension_that_is_too_large_keeps_its_exchange_and_those_around_it_are_broadcast():
    """All that reads the fact is one vertex; the join with the large dimension another, with the third one behind it."""
    p = star(written={2: 130 * MIB})
    for dim in (1, 2, 3):
        finish(p, dim)
    assert choices(p) == [("broadcast right", "bytes"), ("hash", "memory"), ("broadcast right", "bytes")]
    assert absorbed(p) == [(4, 0, 1), (6, 5, 1)]
    end(p)
    assert deployed(p) == {1, 2, 3, 4, 6, 7}


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_build_sides_share_the_memory_of_the_tasks_that_hold_them(first, second):
    """12 MiB fit in a task's 20 alone, not beside another; whichever of the joins is decided first."""
    p = star(written={1: 12 * MIB, 2: 12 * MIB}, task_memory=40 * MIB)
    finish(p, first)
    assert choices(p) == [("broadcast right", "bytes")]
    finish(p, second)
    assert choices(p)[1] == ("hash", "memory")
    assert p.decisions("join")[1].inputs["held"] == (held_bytes(12 * MIB, 7),)
    finish(p, 3)
    end(p)


# --- probe sides with side inputs ----------------------------------------------------------------------------


def with_side_input(join: JoinInfo = EITHER) -> tuple[Plane, int]:
    """A fact whose source has a side input; and that input's vertex."""
    builder = GraphBuilder()
    side_input = builder.dataset(builder.source([10]), ShipStrategy.BROADCAST)
    builder.source([50 * MIB] * 4, inputs=[JobEdge(side_input, 0)]), builder.source([5 * MIB] * 2)
    builder.step((1, HASH), (2, HASH), join=join)
    builder.step((3, HASH), has_sink=True)
    return started(builder, {1: 200 * MIB, 2: 10 * MIB}, slots=3), 0


@pytest.mark.parametrize("build_first", [True, False])
def test_a_source_with_a_side_input_waits_too(build_first):
    """It could not run yet when the job begins; the wait begins when it could."""
    p, side = with_side_input()
    assert deployed(p) == {side, 2} and not order(p)
    if build_first:
        finish(p, 2), finish(p, side)
        assert not order(p)
    else:
        finish(p, side)
        assert order(p) == [(1, "put off", "smaller side first")]
        finish(p, 2)
    assert absorbed(p) == [(3, 1, 1)]
    end(p)
    assert deployed(p) == {side, 2, 3, 4}


def test_a_hint_waits_for_its_side_where_the_other_one_has_a_side_input():
    p, side = with_side_input(replace(EITHER, hint=1))
    finish(p, side)
    assert deployed(p) == {side, 2}
    finish(p, 2)
    assert choices(p) == [("broadcast right", "hint")] and absorbed(p) == [(3, 1, 1)]
    end(p)


def test_idleness_before_a_side_input_is_there_costs_nothing():
    p, side = with_side_input()
    p.finish(p.keys(2)[0])
    p.now += 100 * BUDGET
    finish(p, side)
    assert order(p) == [(1, "put off", "smaller side first")]
    finish(p, 2)
    assert absorbed(p)
    end(p)


# --- failures ------------------------------------------------------------------------------------------------


def test_a_build_side_that_is_lost_is_made_again_and_its_readers_are_restarted():
    p = job(fact=200 * MIB)
    finish(p, DIM)
    (dataset,) = p.scheduler.job_graph.vertices[DIM].outputs
    first, *readers = p.keys(JOIN)
    p.finish(first)
    p.lost.add((dataset, 1, *p.admitted[DIM, 1]))
    p.finish(readers[0])  # which finds it lost
    assert p.decisions("failover")
    end(p)
    assert attempts_of(p.deploys, DIM) == [(0, 0), (1, 0), (1, 1)]
    again = {subtask for subtask, attempt in attempts_of(p.deploys, JOIN) if attempt == 1}
    assert {key[1] for key in readers} <= again
    assert attempts_of(p.deploys, FACT) == [] and len(absorbed(p)) == 1


def test_a_build_side_that_fails_while_it_is_waited_for_is_waited_for_again():
    p = job()
    p.fail(p.keys(DIM)[0])
    assert deployed(p) == {DIM} and p.scheduler.joins.is_open
    finish(p, DIM)
    assert absorbed(p) == [(JOIN, FACT, 1)] and attempts_of(p.deploys, DIM) == [(0, 0), (1, 0), (0, 1)]
    end(p)


def test_sizes_by_subpartition_that_are_on_their_way_hold_up_nothing():
    """Of a side that is read whole only its bytes count."""
    p = job(dims=3, slots=3, size_buffer_bytes=0)
    p.finish(*p.keys(DIM)[:2])
    (dataset,) = p.scheduler.job_graph.vertices[DIM].outputs
    attempt, token = p.admitted[DIM, 0]
    columns = {"partitions": ints(0), "attempts": ints(attempt), "tokens": ints(token)}
    p.send(e.PartitionsLost(at=p.tick(), dataset=dataset, **columns))
    finish(p, DIM)
    assert p.load, "the row of what is lost is to be taken from the sums, and is in the scratch files"
    assert absorbed(p) == [(JOIN, FACT, 1)] and JOIN in deployed(p)
    end(p)


def test_a_task_of_the_fused_vertex_runs_again_alone():
    p = job()
    finish(p, DIM)
    failed = p.keys(JOIN)[0]
    p.fail(failed)
    end(p)
    assert attempts_of(p.deploys, DIM) == [(0, 0), (1, 0)]
    assert [key for key in attempts_of(p.deploys, JOIN) if key[1] == 1] == [(failed[1], 1)]


def test_a_job_can_be_cancelled_while_something_is_put_off():
    p = job()
    p.send(e.CancelRequested(at=p.tick()))
    assert p.run().status == "CANCELED"
    assert deployed(p) == {DIM}


# --- the decision --------------------------------------------------------------------------------------------

SIZES = JoinSizes(
    how="inner", build="right", build_bytes=MIB, build_rows=0, probe_bytes=100 * MIB, readers=10, memory=256 * MIB
)


def in_words(sizes: JoinSizes) -> str:
    result, rule = decide_join(sizes)
    return reason_of(r.Decision(at=0.0, what="join", inputs=to_builtins(sizes), rule=rule, result=result))


@pytest.mark.parametrize(
    ("changed", "is_broadcast", "rule"),
    [
        ({}, True, "bytes"),
        ({"build_bytes": 0}, True, "bytes"),
        ({"build_bytes": 10 * MIB}, True, "bytes"),
        ({"build_bytes": 10 * MIB + 1}, False, "bytes"),
        ({"readers": 100}, True, "bytes"),
        ({"readers": 101}, False, "bytes"),
        ({"build_bytes": 128 * MIB, "probe_bytes": 200 * MIB, "readers": 1}, True, "bytes"),
        ({"build_bytes": 128 * MIB + 1, "probe_bytes": 200 * MIB, "readers": 1}, False, "memory"),
        ({"build_rows": 127 * MIB // INDEX_ROW_BYTES}, True, "bytes"),
        ({"build_rows": 127 * MIB // INDEX_ROW_BYTES + 1}, False, "memory"),
        ({"held": (100 * MIB, 27 * MIB)}, True, "bytes"),
        ({"held": (100 * MIB, 27 * MIB + 1)}, False, "memory"),
        ({"held": (1000 * MIB,), "build_bytes": 0, "build_rows": 1}, False, "memory"),
        ({"memory": 2 * MIB}, True, "bytes"),
        ({"memory": 2 * MIB - 1}, False, "memory"),
        ({"build_bytes": 1000 * MIB, "readers": 1000, "hint": True}, True, "hint"),
        ({"probe_bytes": 0, "readers": 128}, True, "bytes"),
        ({"probe_bytes": 0, "readers": 129}, False, "bytes"),
        ({"probe_bytes": 9 * MIB}, False, "bytes"),
    ],
)
def test_the_decision(changed, is_broadcast, rule):
    result, by = decide_join(structs.replace(SIZES, **changed))
    assert (result != "hash", by) == (is_broadcast, rule)
    assert in_words(structs.replace(SIZES, **changed)).startswith("broadcast" if is_broadcast else "hash")


def test_the_reason_names_what_was_compared():
    assert in_words(SIZES) == (
        "broadcast: 1 MiB of the right side are read once per executor, while 10 tasks wait, in place of an exchange of about 100 MiB"
    )
    held = in_words(structs.replace(SIZES, build="left", build_bytes=64 * MIB, build_rows=MIB, held=(MIB,)))
    assert held == (
        "hash: the left side has 64 MiB, with the index of its keys 128 MiB, more than the 127 MiB that a task can hold "
        "beside 1 other build side"
    )
    waits = in_words(structs.replace(SIZES, readers=101))
    assert waits == (
        "hash: 101 tasks at once would wait for 1 MiB of the right side, 101 MiB in all, more than the 100 MiB whose exchange that saves"
    )


def test_a_side_that_was_asked_for_and_cannot_be_held_takes_no_memory_of_others():
    assert structs.replace(SIZES, build_bytes=1000 * MIB, held=(5,), hint=True).held_with_it == (5,)
    assert structs.replace(SIZES, held=(5,), hint=True).held_with_it == (5, MIB)
