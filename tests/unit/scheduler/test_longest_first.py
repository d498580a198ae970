"""What is likely to take longest is deployed first, where there are fewer slots than executions."""

from __future__ import annotations

import pytest
from tests.scheduler_kit import GraphBuilder, Plane

from firesteel.model.costs import NO_COSTS, StepCost, StepCosts
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import SCHEDULER, SPECULATIVE_ENABLED, Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel.commands import Deploy
from firesteel.scheduler.scheduler import create_scheduler


def deployed(builder, slots, costs=NO_COSTS, **options):
    """(vertex, subtasks) of each Deploy, in order, up to the first event of a task."""
    scheduler = create_scheduler(builder.graph, Options(options), Inputs(slots=slots, in_order=True, costs=costs))
    seen = []
    handle = scheduler.handle

    def handled(event):
        commands = handle(event)
        seen.extend((c.vertex, c.subtasks.tolist()) for c in commands if isinstance(c, Deploy))
        return commands

    scheduler.handle = handled
    p = Plane(scheduler).start()
    return seen, p


def of_splits(*sizes):
    builder = GraphBuilder()
    builder.source(sizes, parallelism=len(sizes))
    return builder


@pytest.mark.parametrize(
    ("sizes", "slots", "order"),
    [
        ([10, 10, 9, 50, 10, 30, 10], 2, [3, 5, 0, 1, 2, 4, 6]),
        ([10, 11, 9, 50, 10, 30, 10], 7, [0, 1, 2, 3, 4, 5, 6]),
        ([10, 20, 10, 15, 12], 2, [1, 3, 4, 0, 2]),
        ([100, 101, 99, 100], 2, [0, 1, 2, 3]),
        ([160, 169, 165, 162], 2, [0, 1, 2, 3]),
        ([0, 0, 0], 2, [0, 1, 2]),
    ],
)
def test_the_largest_go_first_and_what_is_alike_in_its_turn(sizes, slots, order):
    seen, p = deployed(of_splits(*sizes), slots)
    assert seen == [(0, order)]
    p.run()
    assert p.status == "FINISHED"


def test_the_longest_get_the_slots_and_the_rest_its_turn():
    seen, p = deployed(of_splits(10, 10, 9, 50, 10, 30, 10), 2, **{SPECULATIVE_ENABLED.key: True})
    assert seen == [(0, [3, 5])]
    p.finish((0, 3, 0))
    assert seen[1:] == [(0, [0])]
    p.run()
    assert p.status == "FINISHED"


@pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
def test_of_several_vertices_the_one_with_the_longest_if_all_costs_are_known(scheduler):
    builder = GraphBuilder()
    first, second = builder.source([100]), builder.source([90])
    builder.step((first, ShipStrategy.HASH), (second, ShipStrategy.HASH))
    for vertex in builder.graph.vertices:
        vertex.step = f"step-{vertex.id}"
    known = {"step-0": StepCost(0.01), "step-1": StepCost(1.0)}
    chosen = {SCHEDULER.key: scheduler}
    assert deployed(builder, 1, **chosen)[0] == [(0, [0]), (1, [0])]
    assert deployed(builder, 1, StepCosts({"step-1": StepCost(1.0)}), **chosen)[0] == [(0, [0]), (1, [0])]
    assert deployed(builder, 1, StepCosts(known), **chosen)[0] == [(1, [0]), (0, [0])]


def test_costs_change_no_parallelism_under_the_default_scheduler():
    builder = GraphBuilder()
    builder.source([64 << 20] * 8)
    builder.graph.vertices[0].step = "step"
    default = {SCHEDULER.key: "Default"}

    def parallelism(costs, **options):
        return deployed(builder, 1, costs, **options)[1].scheduler.graph.vertices[0].parallelism

    cheap = StepCosts({"step": StepCost(1e-12)})
    assert (
        parallelism(cheap) < parallelism(NO_COSTS) == parallelism(NO_COSTS, **default) == parallelism(cheap, **default)
    )
