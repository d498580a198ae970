"""Random jobs with random failures: the driver in ``scheduler_kit`` checks every command, ``validate`` every event."""

import itertools
import random
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.scheduler_kit import FaultInjection, GraphBuilder, drive, plane, random_graph, random_sizes, waits_of

from firesteel.errors import UsageError
from firesteel.model.job_graph import DistributionPattern, ShipStrategy
from firesteel.scheduler.exchange import merging
from firesteel.scheduler.execution_events import ExecutionEvents
from firesteel.scheduler.failover import failover
from firesteel.scheduler.failover.regions import tasks_needing_restart
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.records import StateChange
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.topology.groups import EdgeGroups

FAULTS = FaultInjection(
    user=0.03,
    uncounted=0.05,
    worker=0.02,
    storage=0.02,
    lose=0.05,
    lose_merged=0.05,
    double=0.1,
    other_token=0.05,
    foreign_cancel=0.02,
    executors=0.02,
    publishing=0.5,
    unreadable=0.1,
    slow=0.05,
    reject=0.05,
    lost=0.02,
)
ENDING = FaultInjection(
    user=0.05,
    worker=0.02,
    uncounted=0.02,
    lose=0.02,
    double=0.05,
    fatal=0.02,
    cancel=0.02,
    publishing=0.6,
    fail_commit=0.3,
    unreadable=0.1,
)
encoder = msgspec.json.Encoder()
DEADLY = FaultInjection(user=0.02, lost=0.2, worker=0.2, storage=0.2, uncounted=0.1, lose=0.1, double=0.05)


@pytest.fixture(autouse=True, scope="module")
def merging_always_pays():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "WORTH", -1.0)
        yield


def valid_job(rng, **options):
    """None if the random job asks for what cannot be."""
    chosen = {
        "data_volume_per_task": rng.choice([50, 500, 5000]),
        "max_parallelism": rng.choice([1, 4, 8]),
        "cut": rng.choice(["by-bytes", "by-count"]),
        "jobmanager__scheduler": rng.choice(["AdaptiveBatch", "Default"]),
        "restart_strategy__fixed_delay__delay": rng.choice(["0 s", "1 s"]),
        "offload_threshold": rng.choice([1, 1 << 40]),
        "firesteel__merge__request_time": rng.choice(["0 s", "1 h", "1 h"]),
        "firesteel__merge__threshold": rng.choice([2, 1 << 30]),
        "speculative__max_concurrent_executions": rng.choice([1, 2, 3]),
        "firesteel__speculative__max_rejections": rng.choice([0, 1, 5]),
    }
    chosen["speculative__enabled"] = chosen["jobmanager__scheduler"] == "AdaptiveBatch" and rng.random() < 0.5
    graph, sizes, buffer = random_graph(rng), random_sizes(rng), rng.choice([0, 100, 1 << 20])
    try:
        return plane(graph, sizes=sizes, size_buffer_bytes=buffer, **{**chosen, **options})
    except UsageError:
        return None


def job(rng, **options):
    made = valid_job(rng, **options)
    assume(made is not None)
    return made


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_undisturbed_job_finishes_without_a_restart(seed):
    rng = random.Random(seed)
    p = drive(job(rng), rng, FaultInjection(race=0.0))
    assert p.status == "FINISHED"
    assert not p.decisions("failover") and not p.discarded
    assert all(d.attempts.max(initial=0) == 0 for d in p.deploys)


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_disturbed_job_finishes_when_restarts_are_plenty(seed):
    """One admitted winner per subtask, consumers told of winners only, each object released once: see the driver."""
    rng = random.Random(seed)
    p = drive(job(rng, restart_strategy__fixed_delay__attempts=10_000), rng, FAULTS)
    assert p.status == "FINISHED", p.ended


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_job_ends_whatever_happens(seed):
    rng = random.Random(seed)
    p = drive(job(rng), rng, ENDING)
    assert p.status in ("FINISHED", "FAILED", "CANCELED")
    assert p.commands[-1] is p.ended and waits_of(p.scheduler) == []
    last_event = p.sent[-1]
    assert p.scheduler.handle(last_event) == []


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_job_that_fails_more_often_than_not_ends_soon(seed):
    """Restarts are limited, whatever kind of failure it is and however the restarts overlap."""
    rng = random.Random(seed)
    p = drive(job(rng), rng, DEADLY, steps=2000)
    assert p.status in ("FINISHED", "FAILED")


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_same_seed_tells_the_same_story(seed):
    def run():
        rng = random.Random(seed)
        p = drive(job(rng, restart_strategy__fixed_delay__attempts=10_000), rng, FAULTS)
        return [str(r) for r in p.records], [p.scheduler.story(v.id) for v in p.scheduler.graph.vertices]

    assert run() == run()


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 1 << 32))
def test_records_alone_tell_every_state(seed):
    """Replaying the StateChange records gives the state of every execution."""
    rng = random.Random(seed)
    p = drive(job(rng), rng, ENDING)
    told = {}
    for record in p.records:
        if isinstance(record, StateChange):
            told.update(
                ((record.vertex, s, a), record.state) for s, a in zip(record.subtasks, record.attempts, strict=True)
            )
    table = p.scheduler.executions
    for vertex in p.scheduler.graph.vertices:
        for subtask in range(vertex.parallelism):
            execution = vertex[subtask].current_execution
            assert told.get((vertex.id, subtask, execution.attempt), "CREATED") == execution.state.name
    assert table.size == table.counts.sum()


def naive_restart_set(graph, failed):
    """Edge by edge: failed tasks, finished producers of what cannot be read, deployed consumers of what runs again."""

    def reads(edge, consumer):
        inputs = [e.dataset for e in graph.vertices[edge.vertex].job.inputs]
        if len(edge) == 1 or graph.result(edge.dataset).dataset.ship.pattern is DistributionPattern.ALL_TO_ALL:
            return range(edge[0].first, edge[0].end)
        rects = graph.vertices[edge.vertex].ranges[inputs.index(edge.dataset)].of(consumer)
        return range(rects[:, 0].min(), rects[:, 1].max()) if len(rects) else range(0)

    tasks, queue = set(), [(vertex, int(s)) for vertex, subtasks in failed for s in subtasks]
    while queue:
        task = queue.pop()
        if task in tasks:
            continue
        tasks.add(task)
        job_vertex = graph.vertices[task[0]]
        for edge in job_vertex.inputs:
            result = graph.result(edge.dataset)
            producer = graph.vertices[result.dataset.producer]
            gone = [p for p in reads(edge, task[1]) if not result.available[p]]
            queue += [(producer.id, p) for p in gone if producer.states[p] == ExecutionState.FINISHED]
        for result in graph.outputs(job_vertex):
            for edge in result.consumers:
                states = graph.vertices[edge.vertex].states
                active = [k for k in range(len(states)) if IS_DEPLOYED[states[k]]]
                queue += [(edge.vertex, k) for k in active if task[1] in reads(edge, k)]
    return tasks


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_failover_restarts_what_a_naive_walk_over_edges_finds(seed):
    rng = random.Random(seed)
    p = job(rng, restart_strategy__fixed_delay__attempts=10_000)

    def compared(graph, failed):
        restart = tasks_needing_restart(graph, failed)
        expected = naive_restart_set(p.scheduler.graph, [*failed.items(), *restart.invalidated.items()])
        assert {(v, int(s)) for v, chosen in restart.tasks.items() for s in chosen} == expected
        return restart

    with mock.patch.object(failover, "tasks_needing_restart", compared):
        drive(p, rng, FAULTS)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1 << 32))
def test_groups_count_like_edges_do(producers, consumers, seed):
    """Against a naive set of (producer, consumer) edges, over random availability."""
    rng = random.Random(seed)
    cuts = sorted(rng.randint(0, 2 * producers) for _ in range(consumers - 1))
    bounds = [0, *cuts, 2 * producers]  # in half producers: neighbours may share one
    spans = [(a // 2, (b + 1) // 2) if b > a else (0, 0) for a, b in itertools.pairwise(bounds)]
    rects = np.array([(a, b, 0, 1) for a, b in spans if b > a], np.int32).reshape(-1, 4)
    offsets = np.concatenate(([0], np.cumsum([b > a for a, b in spans]))).astype(np.int32)
    available = np.array([rng.random() < 0.3 for _ in range(producers)])
    edge = EdgeGroups.pointwise(0, 1, InputRanges(offsets, rects), available)
    for _ in range(10):
        off = np.flatnonzero(~available)
        on = np.flatnonzero(available)
        some = np.array(sorted(rng.sample(range(producers), rng.randint(0, producers))), np.int64)
        if rng.random() < 0.6:
            new = np.intersect1d(some, off)
            before = [available[a:b].all() for a, b in spans]
            available[new] = True
            complete = edge.became_available(new)
            now = {k for k, (a, b) in enumerate(spans) if available[a:b].all() and not before[k]}
            assert now <= set(edge.consumers(complete).tolist()) if len(complete) else not now
        else:
            gone = np.intersect1d(some, on)
            available[gone] = False
            edge.became_unavailable(gone)
        everyone = np.arange(consumers)
        assert edge.ready(everyone).tolist() == [bool(available[a:b].all()) for a, b in spans]
        for p in range(producers):
            readers = set(edge.consumers(edge.groups_of_partitions(np.array([p]))).tolist())
            assert readers == {k for k, (a, b) in enumerate(spans) if a <= p < b}


@settings(max_examples=examples(8), deadline=None)
@given(st.sampled_from([100, 400]), st.sampled_from([s for s in ShipStrategy if s is not ShipStrategy.GLOBAL]))
def test_nothing_grows_with_producers_times_consumers(n, ship):
    """Counts the numbers that a job of n x n subtasks leaves behind, in the scheduler and in all its commands."""
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n)
    if ship is not ShipStrategy.FORWARD:
        builder.step((0, ship), max_parallelism=8, parallelism=-1)
    builder.step((0, ship), parallelism=n)
    fixed = 40
    p = plane(builder.graph, check=False, sizes=lambda _v, _s, _d, k: np.ones(k, np.int64), max_parallelism=n).start()
    while p.keys(0):
        p.finish(p.keys(0)[0])
    groups = [edge for result in p.scheduler.graph.results if result is not None for edge in result.consumers]
    assert sum(edge.elements for edge in groups) <= fixed * n
    assert p.scheduler.executions.size <= 3 * n
    gates = {id(g): g for deploy in p.deploys for g in deploy.gates}.values()
    held = sum(len(g.attempts) + len(g.tokens) + len(g.boundaries or ()) for g in gates)
    held += sum(r.rects.size for deploy in p.deploys for r in deploy.ranges)
    assert held <= fixed * n
    assert p.run().status == "FINISHED"
    for result in p.scheduler.graph.results:
        assert result is not None and result.info.kept_row_bytes == 0
        if ship not in (ShipStrategy.HASH, ShipStrategy.RANGE):  # a range is nothing that a producer keeps
            assert result.num_partitions * result.num_subpartitions <= fixed * n


@pytest.mark.full
def test_the_driver_really_disturbs():
    """Guards the tests above against a driver that has gone quiet."""
    seen = set()
    for seed in range(90):
        rng = random.Random(seed)
        p = valid_job(rng, restart_strategy__fixed_delay__attempts=10_000)
        if p is None:
            continue
        drive(p, rng, FAULTS)
        seen |= {type(x).__name__ for x in (*p.commands, *p.sent)}
        seen |= {x.cause.kind.name for x in p.sent if isinstance(x, e.ExecutionsFailed)}
        seen |= {f"{len(d.result)} vertices restarted" for d in p.decisions("failover")}
        seen |= {"invalidated" for d in p.decisions("failover") if d.inputs["invalidated"]}
    for kind in (
        c.Cancel, c.DiscardExecutions, c.SetTimer, c.ReleasePartitions, c.CommitSinks, c.VerifyPartitions,
        c.MergePartitions, c.ReleaseMerged, c.StoreSizes, c.LoadSizes, c.DropSizes, c.StoreBlob, c.DropBlobs,
        e.ExecutionsCancelled, e.ExecutorChanged, e.PartitionsLost, e.SizesLoaded, e.PartitionsMerged,
    ):  # fmt: skip
        assert kind.__name__ in seen
    causes = {"USER", "WORKER", "PARTITION", "STORAGE"}
    assert {*causes, "1 vertices restarted", "3 vertices restarted", "invalidated"} <= seen


@given(st.integers(0, 2**31))
@settings(max_examples=examples(25), deadline=None)
def test_an_execution_that_finishes_alone_is_taken_in_as_by_the_general_way(seed):
    def story(short: bool):
        rng = random.Random(seed)
        p = valid_job(rng)
        assume(p is not None)
        taken = []
        single = ExecutionEvents._admit_one

        def admit(self, event):
            return short and single(self, event) and taken.append(event) is None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ExecutionEvents, "_admit_one", admit)
            drive(p, rng, FAULTS)
        return p, len(taken)

    (quick, taken), (general, _) = story(True), story(False)
    assert [encoder.encode(record) for record in quick.records] == [encoder.encode(r) for r in general.records]
    assert quick.scheduler.story(0) == general.scheduler.story(0)
    assert list(map(str, quick.commands)) == list(map(str, general.commands))
    mine, theirs = (p.scheduler.executions for p in (quick, general))
    for column in ("state", "token", "node"):
        assert np.array_equal(*(getattr(t, column)[np.arange(t.size)] for t in (mine, theirs))), column
    for state in ExecutionState:
        assert np.array_equal(*(table.times(state, np.arange(table.size)) for table in (mine, theirs)), equal_nan=True)
    event(f"{min(taken, 5)} or more in the short way")
