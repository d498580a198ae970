"""Decisions by the time that subtasks take: within the bounds, growing with the cost, and made again from their records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.property.test_parallelism_properties import requests
from tests.scheduler_kit import GraphBuilder, Plane, reason_in

from firesteel.model.costs import StepCost, StepCosts
from firesteel.model.job_graph import ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.parallelism import decide_source, decide_vertex
from firesteel.scheduler.parallelism.replay import recalled
from firesteel.scheduler.parallelism.waves import MOST_VOLUMES, TASK_DURATION
from firesteel.scheduler.scheduler import create_scheduler

costs = st.floats(1e-6, 1e3, allow_nan=False)


def in_waves(subtasks, slots):
    return -(-subtasks // slots) * slots


@settings(max_examples=examples(300), deadline=None)
@given(requests(), costs, st.sampled_from([0.1, 1.0, 7.0]))
def test_all_bounds_hold_and_the_record_decides_the_same(request, cost, target):
    inputs, without = request
    bounds = replace(without, cost=StepCost(cost, 2), target_seconds=target)
    plain, timed = decide_vertex(inputs, without), decide_vertex(inputs, bounds)
    found = recalled(timed.decision["inputs"])
    if found is not None:
        again = decide_vertex(*found)
        assert again.parallelism == timed.parallelism
        assert reason_in(again.decision) == reason_in(timed.decision)
    if timed.decision["rule"] != TASK_DURATION:
        assert timed.parallelism == plain.parallelism
        assert reason_in(timed.decision) == reason_in(plain.decision)
        return
    low, high = bounds.interval()
    assert low <= timed.parallelism <= high
    volume = timed.decision["inputs"]["non_broadcast"]
    if timed.parallelism > plain.parallelism:
        assert timed.parallelism <= in_waves(plain.parallelism, bounds.slots)
        assert cost * volume / timed.parallelism >= target * (1 - 1e-9)
        assert timed.decision["result"]["largest"] <= plain.decision["result"]["largest"]
    else:
        assert timed.parallelism % bounds.slots == 0 or timed.parallelism == low
        limit = timed.decision["inputs"]["limit"]
        largest_unit = max((int(c.max(initial=0)) for c in map(units_of, inputs)), default=0)
        together = sum(int(units_of(i).max(initial=0)) for i in inputs if i.is_keyed)
        assert timed.decision["result"]["largest"] <= MOST_VOLUMES * max(limit, largest_unit, together)


def units_of(result):
    return result.folded() if result.is_keyed else np.asarray(result.cells)


@settings(max_examples=examples(300), deadline=None)
@given(requests(), costs, st.floats(1.0, 100.0))
def test_a_step_that_costs_more_never_gets_fewer_subtasks(request, cost, factor):
    inputs, without = request
    cheap, dear = (
        decide_vertex(inputs, replace(without, cost=StepCost(c), target_seconds=1.0)).parallelism
        for c in (cost, cost * factor)
    )
    assert cheap <= dear


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 1 << 22), min_size=1, max_size=60), requests(), costs, st.floats(1.0, 100.0))
def test_sources_too(splits, request, cost, factor):
    without = replace(request[1], fixed=None, data_volume=1 << 20)
    info = SourceInfo(np.array(splits, np.int64))
    plain = decide_source(info, without).parallelism
    cheap, dear = (
        decide_source(info, replace(without, cost=StepCost(c), target_seconds=1.0)) for c in (cost, cost * factor)
    )
    assert cheap.parallelism <= dear.parallelism
    most = min(len(splits), without.maximum, without.vertex_maximum or 128)
    for plan in (cheap, dear):
        assert 1 <= plan.parallelism <= max(most, 1)
        assert plan.parallelism <= max(plain, in_waves(-(-sum(splits) >> 20), without.slots), 1)
        assert plan.splits.indexes.tolist() == list(range(len(splits)))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(costs, min_size=4, max_size=4), st.integers(1, 9), st.booleans())
def test_jobs_of_steps_of_any_cost_run_to_their_end(spent, slots, known):
    """With the invariants of the control plane checked after each event."""
    builder = GraphBuilder()
    first, other = builder.source([5, 900, 30, 60] * 3), builder.source([400])
    joined = builder.step((first, ShipStrategy.HASH), (other, ShipStrategy.HASH))
    builder.step((joined, ShipStrategy.REBALANCE))
    for vertex in builder.graph.vertices:
        vertex.step = f"step-{vertex.id}"
    table = {v.step: StepCost(s) for v, s in zip(builder.graph.vertices, spent, strict=True) if known or v.id % 2}
    options = Options({"data-volume-per-task": 100, "firesteel.subpartition-factor": 4})
    p = Plane(create_scheduler(builder.graph, options, Inputs(slots=slots, costs=StepCosts(table)))).start()
    p.run()
    assert p.status == "FINISHED"
