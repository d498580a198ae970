"""Groups, regions, scheduling, failover and release against a naive model over single edges (``tests.naive_model``)."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.naive_model import PIPELINED, RESCALE, Naive, components, naive, random_dag
from tests.scheduler_kit import FaultInjection, GraphBuilder, drive, plane, random_sizes

from firesteel.model.pipelined_region import logical_pipelined_regions
from firesteel.model.tarjan import strongly_connected_components
from firesteel.scheduler.deployment import deployment
from firesteel.scheduler.failover import failover
from firesteel.scheduler.failover.regions import tasks_needing_restart
from firesteel.scheduler.kernel import commands as c

FAULTS = FaultInjection(
    user=0.03, uncounted=0.05, worker=0.02, storage=0.02, lose=0.05, double=0.05, other_token=0.03, foreign_cancel=0.02
)
SEEDS = st.integers(0, 1 << 32)


@pytest.fixture(autouse=True)
def nothing_is_gathered(monkeypatch):
    """So that whatever can run is deployed by the same event."""
    monkeypatch.setattr(deployment, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(
        failover, "tasks_needing_restart", tasks_needing_restart
    )  # ``watch`` puts another one in its place


def job(graph, rng, scheduler="Default", **options):
    return plane(
        graph,
        sizes=random_sizes(rng),
        jobmanager__scheduler=scheduler,
        restart_strategy__fixed_delay__attempts=10_000,
        restart_strategy__fixed_delay__delay=rng.choice(["0 s", "1 s"]),
        **options,
    )


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 30), SEEDS)
def test_components_are_those_of_the_textbook_in_topological_order(n, seed):
    rng = random.Random(seed)
    edges = [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, 2 * n))]
    columns = np.array(edges, np.int64).reshape(-1, 2)
    found = strongly_connected_components(n, columns[:, 0], columns[:, 1])
    parts = {frozenset(np.flatnonzero(found == k).tolist()) for k in found.tolist()}
    assert parts == {frozenset(part) for part in components(range(n), edges)}
    assert all(found[a] <= found[b] for a, b in edges)


@settings(max_examples=examples(50), deadline=None)
@given(SEEDS)
def test_logical_regions_are_components_of_the_job_graph(seed):
    graph = random_dag(random.Random(seed))
    edges = [
        (graph.datasets[e.dataset].producer, v.id, graph.datasets[e.dataset]) for v in graph.vertices for e in v.inputs
    ]
    both = [(a, b) for a, b, _ in edges] + [(b, a) for a, b, d in edges if d.type is PIPELINED]
    regions = logical_pipelined_regions(graph)
    assert {frozenset(r.vertices) for r in regions} == {
        frozenset(part) for part in components(range(len(graph.vertices)), both)
    }
    place = {v: k for k, region in enumerate(regions) for v in region.vertices}
    assert all(place[a] <= place[b] for a, b, _ in edges)
    assert all(list(r.vertices) == sorted(r.vertices) for r in regions)


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.2, 0.5, 0.9]), st.sampled_from([0.3, 0.8, 1.0]))
def test_regions_and_groups_are_what_single_edges_say(seed, pipelined, pointwise):
    rng = random.Random(seed)
    p = job(random_dag(rng, pipelined=pipelined, pointwise=pointwise), rng).start()
    graph, regions = p.scheduler.graph, p.scheduler.graph.regions
    model = Naive(graph)
    for vertex in graph.vertices:
        for edge, groups in zip(vertex.job.inputs, vertex.inputs, strict=True):
            held = {
                (p, c)
                for g in (groups[k] for k in range(len(groups)))
                for p in range(g.first, g.end)
                for c in range(g.consumers.first, g.consumers.end)
            }
            assert held == model.pairs(groups, edge.index)
    by_number = {}
    for vertex in graph.vertices:
        for k, region in enumerate(regions.of(vertex.id, np.arange(vertex.parallelism)).tolist()):
            by_number.setdefault(region, set()).add((vertex.id, k))
    assert set(map(frozenset, by_number.values())) == set(model.region_of.values())
    assert sorted(by_number) == list(range(regions.count))
    for number, tasks in by_number.items():
        members = regions[number].subtasks
        assert {(v, k) for v, subtasks in members.items() for k in subtasks.tolist()} == tasks
        assert list(members) == sorted(members) and all((np.diff(s) > 0).all() for s in members.values())
    some = sorted(rng.sample(sorted(by_number), rng.randint(0, len(by_number))))
    chosen = {(v, k) for v, subtasks in regions.members(np.array(some, np.int64)).items() for k in subtasks.tolist()}
    assert chosen == {task for number in some for task in by_number[number]}
    for vertex in graph.vertices:
        alone = all(len(model.region_of[vertex.id, k]) == 1 for k in range(vertex.parallelism))
        assert not regions.is_trivial(vertex.id) or alone
    assert regions.elements <= 12 * len(model.tasks)


def watch(p):
    """Compares every decision with the naive model; returns what was seen."""
    handle, cache, seen = p.scheduler.handle, {}, set()

    def restart(graph, failed):
        found = tasks_needing_restart(graph, failed)
        if graph is not p.scheduler.graph:
            return found
        first = [(v, int(k)) for chosen in (failed, found.invalidated) for v, ks in chosen.items() for k in ks]
        model = naive(p.scheduler, cache)
        expected = model.restart_set(first)
        assert {(v, k) for v, ks in found.tasks.items() for k in ks.tolist()} == expected
        seen.add("failover of a region" if any(len(model.region_of[t]) > 1 for t in expected) else "failover")
        return found

    def watched(event):
        commands = handle(event)
        model = naive(p.scheduler, cache)
        check_deployed(model, [x for x in commands if isinstance(x, c.Deploy | c.DeployRegions)])
        if p.scheduler.job.is_active and not p.commit:
            assert not model.deployable_regions(), "what could run was not deployed"
        check_released(p.scheduler, model, [x for x in commands if isinstance(x, c.ReleasePartitions)])
        seen.update(type(x).__name__ for x in commands)
        return commands

    failover.tasks_needing_restart = restart
    p.scheduler.handle = watched
    return seen


def check_deployed(model, commands):
    """Whole regions, all they read from outside is there, producers before consumers."""
    order = {}
    for place, command in enumerate(commands):
        parts = command.parts if isinstance(command, c.DeployRegions) else (command,)
        assert (len(parts) > 1) == isinstance(command, c.DeployRegions)
        tasks = {(part.vertex, k) for part in parts for k in part.subtasks.tolist()}
        regions = {model.region_of[task] for task in tasks}
        assert {member for region in regions for member in region} == tasks
        assert len({frozenset(vertex for vertex, _ in region) for region in regions}) == 1
        assert all(map(model.is_readable, tasks))
        assert [part.vertex for part in parts] == sorted(part.vertex for part in parts)
        for part in parts:
            assert len(set(part.subtasks.tolist())) == len(part.subtasks)  # in whatever order they are best begun
            order[part.vertex] = max(order.get(part.vertex, 0), place)
    for task, readers in model.outputs.items():
        if task[0] in order:
            assert all(order[task[0]] <= order[reader[0]] for reader, _ in readers if reader[0] in order)


def check_released(scheduler, model, commands):
    assert len({x.dataset for x in commands}) == len(commands), "two releases of a data set where one would do"
    for command in commands:
        for partition in command.partitions.tolist():
            assert model.is_done(command.dataset, partition), "released before its last reader has finished"
    for result in scheduler.graph.results:
        if result is None or result.is_pipelined or result.dataset.persistent:
            continue
        for partition in np.flatnonzero(result.available).tolist():
            assert not model.is_done(result.dataset.id, partition), "kept although its last reader has finished"


@settings(max_examples=examples(10), deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.3, 0.8]))
def test_every_decision_of_an_undisturbed_job_is_the_naive_one(seed, pipelined):
    rng = random.Random(seed)
    p = job(random_dag(rng, most=60, pipelined=pipelined), rng)
    watch(p)
    assert drive(p, rng, FaultInjection(race=0.0)).status == "FINISHED"
    assert not p.decisions("failover")


@settings(max_examples=examples(16), deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.3, 0.8]))
def test_every_decision_of_a_disturbed_job_is_the_naive_one(seed, pipelined):
    rng = random.Random(seed)
    p = job(random_dag(rng, most=30, pipelined=pipelined), rng)
    watch(p)
    assert drive(p, rng, FAULTS).status == "FINISHED"


@settings(max_examples=examples(14), deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), SEEDS)
def test_every_decision_around_a_circle_is_the_naive_one(first, middle, last, seed):
    """Vertices that wait for each other; some of their subtasks do not, and are regions of their own in between."""
    rng, builder = random.Random(seed), GraphBuilder()
    a = builder.source([100] * first, parallelism=first)
    b = builder.step((a, RESCALE), parallelism=middle)
    builder.step((a, RESCALE, PIPELINED), (b, RESCALE), parallelism=last)
    p = job(builder.graph, rng)
    watch(p)
    assert drive(p, rng, FAULTS).status == "FINISHED"


@settings(max_examples=examples(14), deadline=None)
@given(SEEDS)
def test_every_decision_in_a_dynamic_graph_is_the_naive_one(seed):
    rng = random.Random(seed)
    p = job(random_dag(rng, most=30, pipelined=0.0), rng, "AdaptiveBatch")
    watch(p)
    assert drive(p, rng, FAULTS).status == "FINISHED"
