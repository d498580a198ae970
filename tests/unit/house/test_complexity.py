"""What the control plane touches when a job is twice as wide: at most twice as much, and no Python step per subtask.

Counted are lines and calls that Python executes, elements of groups that are looked at, and bytes that arrays take at the
peak. Never seconds.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder

from firesteel.model.job_graph import JobGraph, ResultPartitionType, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.failover.regions import tasks_needing_restart
from firesteel.scheduler.kernel.events import ExecutionReports, ExecutionsFinished, JobStarted, PartitionReports
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.topology.regions import SchedulingPipelinedRegions

N = 200
TWICE = 2.2
"""How much more a job of twice the width may touch."""
A_FEW = 60
"""Steps by which two jobs may differ anyway: widths of numbers, a cache that grows."""
HASH, RESCALE, FORWARD, REBALANCE = (
    ShipStrategy.HASH,
    ShipStrategy.RESCALE,
    ShipStrategy.FORWARD,
    ShipStrategy.REBALANCE,
)


def chain(n: int, *edge: Any, consumers: int = 1, producers: int = 1) -> JobGraph:
    """``producers`` sources, all read by each of ``consumers`` steps."""
    builder = GraphBuilder()
    sources = [builder.source([1] * n, parallelism=n) for _ in range(producers)]
    for _ in range(consumers):
        builder.step(*((source, *edge) for source in sources), parallelism=n)
    return builder.graph


def circle(n: int) -> JobGraph:
    """Two steps of one pipelined region: the source feeds the second by itself, and by way of the first, which is blocking."""
    builder = GraphBuilder()
    source = builder.source([1] * n, parallelism=n)
    step = builder.step((source, HASH), parallelism=n)
    builder.step(
        (source, HASH, ResultPartitionType.PIPELINED), (step, HASH, ResultPartitionType.PIPELINED), parallelism=n
    )
    return builder.graph


SHAPES: dict[str, Callable[[int], JobGraph]] = {
    "all-to-all": lambda n: chain(n, HASH),
    "pointwise": lambda n: chain(n, RESCALE),
    "forward": lambda n: chain(n, FORWARD),
    "rebalance": lambda n: chain(n, REBALANCE),
    "one result, two consumers": lambda n: chain(n, HASH, consumers=2),
    "two results, one consumer": lambda n: chain(n, HASH, producers=2),
    "pipelined all-to-all": lambda n: chain(n, HASH, ResultPartitionType.PIPELINED),
    "pipelined forward": lambda n: chain(n, FORWARD, ResultPartitionType.PIPELINED),
    "pipelined circle": circle,
}
JOBS = [
    (kind, shape)
    for kind in ("Default", "AdaptiveBatch")
    for shape in SHAPES
    if kind == "Default" or "pipelined" not in shape
]


def scheduler_of(graph: JobGraph, kind: str) -> Scheduler:
    wide = {"jobmanager.scheduler": kind, "max-parallelism": max(v.parallelism for v in graph.vertices)}
    return create_scheduler(graph, Options(wide))


def finished(scheduler: Scheduler, vertex: int, first: int, end: int) -> ExecutionsFinished:
    """Subtasks ``first`` .. ``end - 1`` finish; their sizes are not measured, but their bytes."""
    n = end - first
    column = np.full(n, 1000, np.int64)
    results = scheduler.graph.vertices[vertex].blocking_results
    partitions = [PartitionReports(result.dataset.id, column, column, column, None) for result in results]
    return ExecutionsFinished(
        at=1.0,
        vertex=vertex,
        subtasks=np.arange(first, end),
        attempts=np.zeros(n, np.int64),
        reports=ExecutionReports.of(np.arange(first, end) + 1, partitions=partitions),
    )


def sources(scheduler: Scheduler) -> list[int]:
    return [vertex.id for vertex in scheduler.graph.vertices if not vertex.job.inputs]


def ready_to_run(graph: JobGraph, kind: str) -> Scheduler:
    """A scheduler whose sources have all finished: the consumers run."""
    scheduler = started(graph, kind)
    for vertex in sources(scheduler):
        scheduler.handle(finished(scheduler, vertex, 0, scheduler.graph.vertices[vertex].parallelism))
    return scheduler


def started(graph: JobGraph, kind: str) -> Scheduler:
    scheduler = scheduler_of(graph, kind)
    scheduler.handle(JobStarted(at=0.0))
    return scheduler


# --- counting -----------------------------------------------------------------------------------------------------


def steps(call: Callable[[], object]) -> int:
    """Lines and calls of Python that ``call`` executes."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that ``call`` takes beside what was there."""
    gc.disable()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def touched(scheduler: Scheduler) -> int:
    """Partitions, consumers and groups that events made the groups look at, and what they hold."""
    edges = [edge for vertex in scheduler.graph.vertices for edge in vertex.inputs]
    return sum(edge.touched + edge.elements for edge in edges)


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """Imports that happen in the middle of a job, caches that fill with the first."""
    for kind, shape in JOBS:
        scheduler = ready_to_run(SHAPES[shape](4), kind)
        scheduler.handle(finished(scheduler, 1, 0, scheduler.graph.vertices[1].parallelism))


# --- in bulk: the same steps, whatever the width --------------------------------------------------------------------


def build_and_start(graph: JobGraph, kind: str) -> Callable[[], object]:
    scheduler = scheduler_of(graph, kind)
    return lambda: scheduler.handle(JobStarted(at=0.0))


def producers_in_bulk(graph: JobGraph, kind: str) -> Callable[[], object]:
    """All but the last, so that nothing is decided."""
    scheduler = started(graph, kind)
    events = [finished(scheduler, v, 0, scheduler.graph.vertices[v].parallelism - 1) for v in sources(scheduler)]
    return lambda: [scheduler.handle(event) for event in events]


def consumers_in_bulk(graph: JobGraph, kind: str) -> Callable[[], object]:
    """With the release of all they read, and the job's end."""
    scheduler = ready_to_run(graph, kind)
    readers = [vertex for vertex in scheduler.graph.vertices if vertex.job.inputs]
    events = [finished(scheduler, vertex.id, 0, vertex.parallelism) for vertex in readers]

    def end() -> None:
        for event in events:
            scheduler.handle(event)
        assert scheduler.status.value == "FINISHED"

    return end


def failover(graph: JobGraph, kind: str) -> Callable[[], object]:
    """Which tasks one source takes along while all its consumers run."""
    scheduler = ready_to_run(graph, kind)

    def restart() -> None:
        assert tasks_needing_restart(scheduler.graph, {0: np.array([0])}).tasks

    return restart


def regions(graph: JobGraph, kind: str) -> Callable[[], object]:
    scheduler = ready_to_run(graph, kind)
    parallelism = {vertex.id: vertex.parallelism for vertex in scheduler.graph.vertices}
    return lambda: SchedulingPipelinedRegions(graph).grow(parallelism, scheduler.graph._inner_edges)


PHASES = (build_and_start, producers_in_bulk, consumers_in_bulk, failover, regions)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
@pytest.mark.parametrize(("kind", "shape"), JOBS)
def test_no_step_per_subtask(phase, shape, kind):
    once, twice = (steps(phase(SHAPES[shape](n), kind)) for n in (N, 2 * N))
    assert twice <= once + A_FEW, f"{once} steps for {N}, {twice} for {2 * N}"


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_memory_grows_with_the_width_and_not_with_its_square(phase, shape):
    once, twice = (peak_bytes(phase(SHAPES[shape](n), "Default")) for n in (2 * N, 4 * N))
    assert twice <= TWICE * once + 25_000, f"{once} bytes for {2 * N}, {twice} for {4 * N}"


# --- one by one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "shape"), JOBS)
def test_producers_that_finish_one_by_one(shape, kind):
    def count(n: int) -> tuple[int, int]:
        scheduler = started(SHAPES[shape](n), kind)
        events = [finished(scheduler, v, k, k + 1) for v in sources(scheduler) for k in range(n - 1)]
        return steps(lambda: [scheduler.handle(event) for event in events]), touched(scheduler)

    (once, looked), (twice, looked_twice) = count(N // 3), count(2 * (N // 3))
    assert twice <= TWICE * once
    assert looked_twice <= TWICE * looked


@pytest.mark.parametrize(("kind", "shape"), JOBS)
def test_a_job_from_its_start_to_its_end(shape, kind):
    """With the decisions, which walk along the ranges."""

    def count(n: int) -> tuple[int, int]:
        scheduler = scheduler_of(SHAPES[shape](n), kind)

        def run() -> None:
            scheduler.handle(JobStarted(at=0.0))
            for vertex in scheduler.graph.vertices:
                scheduler.handle(finished(scheduler, vertex.id, 0, vertex.parallelism))
            assert scheduler.status.value == "FINISHED"

        return steps(run), touched(scheduler)

    (once, looked), (twice, looked_twice) = count(N), count(2 * N)
    assert twice <= TWICE * once
    assert looked_twice <= TWICE * looked


def test_what_counts_would_tell_a_loop_and_a_square():
    assert steps(lambda: [k * k for k in range(2000)]) > 2000 > N + A_FEW
    square = peak_bytes(lambda: np.zeros((8 * N, 8 * N))) / peak_bytes(lambda: np.zeros((4 * N, 4 * N)))
    assert square > TWICE
