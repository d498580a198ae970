"""Estimates of what a join's sides will have: from what is there, what is read, and what came out of the same steps before."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane

from firesteel.model.absorbing import Absorbing, absorb
from firesteel.model.costs import NO_COSTS, StepCost, StepCosts
from firesteel.model.job_graph import JobGraph, JoinInfo, ShipStrategy
from firesteel.scheduler.joins.estimates import MOST_BYTES, Estimate, Estimates
from firesteel.scheduler.scheduler import Scheduler

MIB = 1 << 20
HASH, BROADCAST = ShipStrategy.HASH, ShipStrategy.BROADCAST


def costs(**came_out: tuple[float, int]) -> StepCosts:
    """By step (``s0`` is vertex 0): the part that came out, in so many runs."""
    return StepCosts({step: StepCost(1e-9, runs, part) for step, (part, runs) in came_out.items()})


def named(graph: JobGraph) -> JobGraph:
    for vertex in graph.vertices:
        vertex.step = f"s{vertex.id}"
    return graph


def estimates(graph: JobGraph, known: StepCosts = NO_COSTS) -> Estimates:
    return Estimates(plane(named(graph)).scheduler.graph, known)


def chain() -> JobGraph:
    """A source of 100 MiB, and two steps behind it; data set k is of vertex k."""
    builder = GraphBuilder()
    builder.source([60 * MIB, 40 * MIB])
    builder.step((0, HASH)), builder.step((1, HASH)), builder.step((2, HASH))
    return builder.graph


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (costs(), Estimate(100 * MIB, 100 * MIB, 0, False)),
        (costs(s0=(0.5, 3), s1=(0.1, 2), s2=(2.0, 1)), Estimate(10 * MIB, 100 * MIB, 1, True)),
        (costs(s0=(0.5, 3), s2=(0.5, 2)), Estimate(25 * MIB, 100 * MIB, 2, False)),
        (costs(s1=(0.25, 2)), Estimate(25 * MIB, 100 * MIB, 2, False)),
        (costs(s0=(0.0, 2), s1=(0.0, 2), s2=(0.0, 2)), Estimate(0, 100 * MIB, 2, True)),
    ],
)
def test_each_step_on_the_way_leaves_its_part(known, wanted):
    assert estimates(chain(), known).of(2) == wanted


def test_what_is_there_counts_with_its_real_bytes():
    p = plane(named(chain()), slots=4, sizes=lambda _v, _s, _d, n: np.full(n, 7 * MIB // n)).start()
    n = p.scheduler.graph.result(0).num_subpartitions
    found = Estimates(p.scheduler.graph, costs(s0=(0.5, 3), s1=(0.5, 3), s2=(0.5, 3)))
    assert found.of(0).bytes == 50 * MIB
    p.finish(p.keys(0)[0])
    assert found.of(0).bytes == 50 * MIB, "one of its producers is missing"
    assert Estimates(p.scheduler.graph, costs(s0=(0.001, 3))).of(0).bytes == found.written(0) == 7 * MIB // n * n
    p.run(0)
    there = 7 * MIB // n * n * p.parallelism(0)
    assert found.of(0) == Estimate(there, there)
    assert found.of(2) == Estimate(there // 4, there, 3)
    assert found.read_by(1) == Estimate(there, there)


def test_inputs_add_up_but_for_what_is_read_whole():
    builder = GraphBuilder()
    builder.source([80 * MIB]), builder.source([20 * MIB]), builder.source([500 * MIB])
    builder.step((0, HASH), (1, HASH), (2, BROADCAST))
    builder.step((3, HASH))
    graph = builder.graph
    known = costs(s0=(0.25, 2), s1=(1.0, 3), s2=(1.0, 1), s3=(0.5, 4))
    assert estimates(graph, known).read_by(3) == Estimate(40 * MIB, 100 * MIB, 2)
    assert estimates(graph, known).of(graph.vertices[3].outputs[0]) == Estimate(20 * MIB, 100 * MIB, 2)


def test_data_sets_of_one_step_share_what_came_out_of_it():
    builder = GraphBuilder()
    builder.source([90 * MIB])
    builder.dataset(0, HASH), builder.dataset(0, BROADCAST, persistent=True)
    assert estimates(builder.graph, costs(s0=(0.5, 1))).of(0).bytes == round(22.5 * MIB)
    assert estimates(builder.graph).of(0).bytes == 90 * MIB, "at most all"


def test_a_step_that_has_absorbed_another_leaves_the_part_of_both():
    builder = GraphBuilder()
    builder.source([100 * MIB]), builder.source([MIB])
    builder.step((0, HASH), (1, HASH), join=JoinInfo("inner", ("", "")))
    builder.step((2, HASH))
    graph = named(builder.graph)
    absorb(graph, Absorbing(2, 1))
    (joined,) = graph.vertices[2].outputs
    scheduler: Scheduler = plane(graph).scheduler
    both = Estimates(scheduler.graph, costs(s0=(0.1, 3), s2=(0.5, 2)))
    assert both.read_by(2) == Estimate(100 * MIB, 100 * MIB)
    assert both.of(joined) == Estimate(5 * MIB, 100 * MIB, 2)
    one = Estimates(scheduler.graph, costs(s0=(0.1, 3)))
    assert one.of(joined) == Estimate(100 * MIB, 100 * MIB, 0, False)


def test_a_job_of_many_diamonds_is_estimated_as_fast_as_a_chain():
    """Each step reads the one before it twice. Looked at are data sets, not ways."""
    builder = GraphBuilder()
    last = builder.source([MIB])
    for _ in range(400):
        last = builder.step((last, HASH), (last, ShipStrategy.REBALANCE))
    builder.dataset(last, HASH)
    graph = builder.graph
    (dataset,) = graph.vertices[last].outputs
    known = {f"s{v.id}": StepCost(1e-9, 1, 1.0) for v in graph.vertices}
    assert estimates(graph, StepCosts(known)).of(dataset).bytes == MIB
    assert estimates(graph).of(dataset).bytes == MOST_BYTES
