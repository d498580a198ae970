"""Steps that may be one or two, decided by the bytes that the first one has to read."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, attempts_of, plane

from firesteel.model.costs import StepCost, StepCosts
from firesteel.model.job_graph import JoinInfo, ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import records as r

MIB = 1 << 20
HASH = ShipStrategy.HASH
SOURCE, FIRST, SECOND, BEHIND = range(4)


def job(heavy: int = 0, even: int = 160 * MIB, *, by_key: bool = True, slots: int = 8, costs=None, **options) -> Plane:
    """A source that gives ``even`` bytes over all subpartitions and ``heavy`` beside in one; two steps, and one behind them."""
    builder = GraphBuilder()
    builder.source([40 * MIB] * 4)
    builder.two_steps(SOURCE, by_key=by_key)
    builder.step((SECOND, HASH), has_sink=True)
    for vertex in builder.graph.vertices:
        vertex.step = "" if vertex.id == FIRST else f"step-{vertex.id}"

    def sizes(vertex: int, _subtask: int, _dataset: int, n: int) -> np.ndarray:
        row = np.full(n, (even if vertex == SOURCE else 400) // n // made.parallelism(vertex))
        if vertex == SOURCE:
            row[3] += heavy // made.parallelism(SOURCE)
        return row

    given = {"data_volume_per_task": "32 mb", "restart_strategy__fixed_delay__delay": "0 s", **options}
    made = plane(builder.graph, sizes=sizes, slots=slots, costs=StepCosts(costs or {}), **given)
    return made.start()


def end(p: Plane) -> None:
    p.run()
    p.answer_commit()
    assert p.status == "FINISHED"


def deployed(p: Plane) -> set[int]:
    return {deploy.vertex for deploy in p.deploys}


def choice(p: Plane) -> tuple[str, str]:
    (told,) = p.decisions("two steps")
    assert told.vertex == SECOND
    return told.result, told.rule


def parts(p: Plane) -> list[list[tuple[int, ...]]]:
    """What each subtask of the first step reads: (first subpartition, end, part, parts)."""
    (ranges,) = p.scheduler.graph.vertices[FIRST].ranges
    shares = np.array([[0, 1]] * len(ranges.rects)) if ranges.shares is None else ranges.shares
    rows = [tuple(row) for row in np.hstack((ranges.rects[:, 2:], shares)).tolist()]
    return [rows[ranges.offsets[k] : ranges.offsets[k + 1]] for k in range(ranges.parallelism)]


def test_one_step_where_no_subpartition_is_heavy():
    p = job()
    p.run(SOURCE)
    assert choice(p) == ("one step", "not divided") and deployed(p) == {SOURCE, SECOND}
    (told,) = [x for x in p.commands if isinstance(x, c.VertexAbsorbed)]
    assert (told.vertex, told.producer, told.build) == (SECOND, FIRST, None)
    (changed,) = [x for x in p.records if isinstance(x, r.GraphChanged)]
    assert (changed.absorbed, changed.into, changed.vertex["inputs"]) == (FIRST, SECOND, [SOURCE])
    (decided,) = p.decisions("parallelism", SECOND)
    assert decided.inputs["datasets"] == p.scheduler.job_graph.vertices[SOURCE].outputs
    end(p)
    assert attempts_of(p.deploys, FIRST) == []


def test_two_steps_where_a_subpartition_is_divided_by_value():
    p = job(heavy=160 * MIB)
    p.run(SOURCE)
    assert choice(p) == ("two steps", "divided") and deployed(p) == {SOURCE, FIRST}
    heavy = [read for (read, *more) in parts(p) if read[3] > 1 and not more]
    count = heavy[0][3]
    assert count > 2 and heavy == [(3, 4, part, count) for part in range(count)]
    others = sorted(read[:2] for reads in parts(p)[count:] for read in reads)
    n = p.scheduler.graph.results[0].num_subpartitions
    assert [s for low, high in others for s in range(low, high)] == [*range(3), *range(4, n)]
    (decided,) = p.decisions("parallelism", FIRST)
    assert f"among {count} subtasks, which keep" in decided.reason
    end(p)
    assert deployed(p) == {SOURCE, FIRST, SECOND, BEHIND}
    assert not [x for x in p.records if isinstance(x, r.GraphChanged)]


def test_a_heavy_subpartition_is_left_whole_where_there_are_no_slots_for_its_parts():
    p = job(heavy=40 * MIB, even=10 * MIB, slots=1, data_volume_per_task="16 mb")
    p.run(SOURCE)
    assert choice(p) == ("one step", "not divided")
    (decided,) = p.decisions("parallelism", SECOND)
    assert decided.reason.endswith("is not divided: that would cost more than it saves")
    end(p)


@pytest.mark.parametrize(
    ("even", "result", "rule"), [(4 * MIB, "one step", "not divided"), (160 * MIB, "two steps", "divided")]
)
def test_without_keys_several_subtasks_count_where_there_is_enough_to_count(even, result, rule):
    p = job(even=even, by_key=False)
    p.run(SOURCE)
    assert choice(p) == (result, rule)
    end(p)
    assert p.parallelism(SECOND) == 1
    assert deployed(p) == {SOURCE, SECOND, BEHIND} | ({FIRST} if result == "two steps" else set())
    if result == "two steps":
        assert p.parallelism(FIRST) > 1 and all(read[2:] == (0, 1) for reads in parts(p) for read in reads)


def test_parts_by_value_are_the_same_whoever_made_the_rows():
    """A producer that runs again, with its rows in another order, takes none of the finished readers of its parts along."""
    p = job(heavy=160 * MIB)
    p.run(SOURCE)
    first, second, *_ = p.keys(FIRST)
    p.finish(first)
    (dataset,) = p.scheduler.job_graph.vertices[SOURCE].outputs
    p.lost.add((dataset, 1, *p.admitted[SOURCE, 1]))
    p.finish(second)  # which finds it lost
    end(p)
    assert attempts_of(p.deploys, SOURCE).count((1, 1)) == 1
    assert (first[1], 1) not in attempts_of(p.deploys, FIRST)


def test_what_a_step_costs_is_known_and_told_where_it_is_one():
    known = {"step-2": StepCost(1e-9, 2)}
    p = job(costs=known, firesteel__decider__target_task_duration="1 s")
    p.run(SOURCE)
    (decided,) = p.decisions("parallelism", SECOND)
    assert decided.inputs["allowed"]["cost"] == {"seconds_per_byte": 1e-9, "runs": 2}
    end(p)
    assert "numBytesConsumed" in p.scheduler.metrics.vertices[SECOND].read()
    divided = job(heavy=160 * MIB, costs=known, firesteel__decider__target_task_duration="1 s")
    end(divided)
    told = [
        d.inputs["allowed"].get("cost") for vertex in (FIRST, SECOND) for d in divided.decisions("parallelism", vertex)
    ]
    assert told == [None, None]
    assert "numBytesConsumed" not in divided.scheduler.metrics.vertices[SECOND].read()


def test_with_fixed_parallelisms_both_run():
    builder = GraphBuilder()
    builder.source([MIB], parallelism=1)
    builder.two_steps(SOURCE, parallelism=2)
    p = plane(builder.graph, jobmanager__scheduler="Default").start()
    assert p.run().status == "FINISHED" and deployed(p) == {SOURCE, FIRST, SECOND}


@pytest.mark.parametrize("heavy", [0, 160 * MIB])
def test_a_join_waits_for_the_decision_before_it_takes_the_step_over(heavy):
    """The join's other side is there first."""
    builder = GraphBuilder()
    fact, dim = builder.source([40 * MIB] * 4), builder.source([MIB])
    second = builder.two_steps(fact)
    join = builder.step((second, HASH), (dim, HASH), join=JoinInfo("inner", ("", "")), has_sink=True)

    def sizes(vertex: int, _subtask: int, _dataset: int, n: int) -> np.ndarray:
        row = np.full(n, 160 * MIB // n // 4 if vertex == fact else 100)
        row[3] += heavy // 4 if vertex == fact else 0
        return row

    p = plane(builder.graph, sizes=sizes, slots=8, data_volume_per_task="32 mb").start()
    p.finish(*p.keys(dim))
    assert not p.decisions("join")
    p.run(fact)
    assert [d.result for d in p.decisions("two steps")] == ["two steps" if heavy else "one step"]
    assert [d.result for d in p.decisions("join")] == ["broadcast right"]
    end(p)
    assert deployed(p) == {fact, dim, join} | ({second - 1} if heavy else set())


def test_a_failure_while_values_are_counted_runs_one_part_again():
    p = job(heavy=160 * MIB)
    p.run(SOURCE)
    key = p.keys(FIRST)[1]
    p.fail(key)
    end(p)
    assert [k for k in attempts_of(p.deploys, FIRST) if k[1] == 1] == [(key[1], 1)]
