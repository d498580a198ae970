"""A join and the step by its key that follows: apart where a side is broadcast or a key divided, else in one step."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, plane

from firesteel.model.job_graph import JoinInfo, ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.parallelism import subpartitions

MIB = 1 << 20
HASH = ShipStrategy.HASH
LEFT, RIGHT, OTHER, JOIN, NEXT = range(5)
EITHER = JoinInfo("inner", ("", ""))


def job(
    *,
    left: int = 200 * MIB,
    right: int = 150 * MIB,
    other: int | None = None,
    other_splits: int = 4,
    heavy: int = 0,
    memory: int = 64 * MIB,
    **options,
) -> Plane:
    """Two sources joined, and a step by the key: an aggregation, or (``other``: bytes of a third source) a second join. ``heavy``: bytes of
    the left side in one subpartition, beside the others."""
    builder = GraphBuilder()
    for size, splits in ((left, 4), (right, 4), (other or 4, other_splits)):
        builder.source([size // splits] * splits)
    builder.step((LEFT, HASH), (RIGHT, HASH), join=EITHER, divisible_inputs=(True, True))
    if other is None:
        builder.step((JOIN, HASH), first_step=JOIN, has_sink=True)
    else:
        builder.step(
            (JOIN, HASH), (OTHER, HASH), first_step=JOIN, join=EITHER, divisible_inputs=(True, True), has_sink=True
        )
    written = {LEFT: left, RIGHT: right, OTHER: other or 4}

    def sizes(vertex: int, _subtask: int, _dataset: int, n: int) -> np.ndarray:
        row = np.full(n, written.get(vertex, 400) // n // made.parallelism(vertex), np.int64)
        if vertex == LEFT:
            row[3] += heavy // made.parallelism(LEFT)
        return row

    given = {"data_volume_per_task": "32 mb", "restart_strategy__fixed_delay__delay": "0 s", **options}
    made = plane(builder.graph, sizes=sizes, slots=8, task_memory=memory, **given)
    return made.start()


HASHED = {"firesteel__join__adaptive": False}


def steps(p: Plane) -> list[tuple[int, str, str]]:
    return [(d.vertex, d.result, d.rule) for d in p.decisions("two steps")]


def joins(p: Plane) -> list[tuple[int, str, str]]:
    return [(d.vertex, d.result, d.rule) for d in p.decisions("join")]


def absorbed(p: Plane) -> list[tuple[int, int, int | None]]:
    return [(x.vertex, x.producer, x.build) for x in p.commands if isinstance(x, c.VertexAbsorbed)]


def end(p: Plane) -> set[int]:
    """The vertices that were deployed."""
    p.run()
    p.answer_commit()
    assert p.status == "FINISHED"
    return {deploy.vertex for deploy in p.deploys}


def test_one_step_where_both_sides_are_exchanged():
    p = job(**HASHED)
    assert end(p) == {LEFT, RIGHT, OTHER, NEXT}
    assert steps(p) == [(NEXT, "one step", "not divided")] and absorbed(p) == [(NEXT, JOIN, None)]
    (changed,) = [x for x in p.records if isinstance(x, r.GraphChanged)]
    assert (changed.into, changed.vertex["inputs"]) == (NEXT, [0, 1])
    assert p.scheduler.job_graph.vertices[NEXT].join is None


def test_two_where_a_side_is_broadcast():
    p = job(right=MIB)
    assert end(p) == {RIGHT, OTHER, JOIN, NEXT}
    assert joins(p) == [(JOIN, "broadcast right", "bytes")] and steps(p) == []
    assert absorbed(p) == [(JOIN, LEFT, 1)] and p.scheduler.job_graph.vertices[NEXT].first_step is None


def test_two_where_a_heavy_key_is_divided():
    p = job(heavy=400 * MIB, **HASHED)
    assert end(p) == {LEFT, RIGHT, OTHER, JOIN, NEXT}
    assert steps(p) == [(NEXT, "two steps", "divided")] and absorbed(p) == []
    (told,) = p.decisions("two steps")
    assert "what comes out is exchanged for the next step" in told.reason


@pytest.mark.parametrize(("heavy", "result"), [(60 * MIB, "one step"), (800 * MIB, "two steps")])
def test_of_two_joins_only_where_that_saves_more_than_an_exchange(heavy, result):
    p = job(other=100 * MIB, heavy=heavy, **HASHED)
    end(p)
    (told,) = p.decisions("two steps")
    assert told.result == result
    assert result == "two steps" or "in the exchange that would follow" in told.reason


def test_the_first_of_two_joins_is_hashed_where_the_second_one_will_be():
    p = job(right=MIB, other=300 * MIB)
    end(p)
    assert joins(p)[0] == (JOIN, "hash", "next step")
    assert steps(p) == [(NEXT, "one step", "not divided")]


def test_both_of_two_joins_are_broadcast_where_both_sides_are_small():
    p = job(right=MIB, other=MIB)
    assert end(p) == {RIGHT, OTHER, NEXT}
    assert [result for _, result, _ in joins(p)] == ["broadcast right"] * 2
    assert absorbed(p) in ([(JOIN, LEFT, 1), (NEXT, JOIN, 1)], [(NEXT, JOIN, 1), (NEXT, LEFT, 1)]) and steps(p) == []


def test_all_that_may_be_read_together_has_equally_many_subpartitions(monkeypatch):
    monkeypatch.setattr(subpartitions, "MANY_PRODUCERS", 4)
    monkeypatch.setattr(subpartitions, "FEW_SUBPARTITIONS", 16)
    p = job(other=100 * MIB, other_splits=5, **HASHED)
    end(p)
    graph = p.scheduler.graph
    read = [graph.results[edge.dataset] for edge in p.scheduler.job_graph.vertices[NEXT].inputs]
    assert len(read) == 3 and len({result.num_subpartitions for result in read}) == 1
