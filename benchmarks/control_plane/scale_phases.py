"""One job of two vertices, n x n, taken through the very Scheduler: what each phase costs.

Seconds are charged to the innermost phase that is open: a decision inside an event is the decision's, not the event's.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.descriptors import encode_executions
from firesteel.options import Options
from firesteel.scheduler.failover.regions import tasks_needing_restart
from firesteel.scheduler.kernel.commands import Command, Deploy
from firesteel.scheduler.kernel.events import ExecutionReports, ExecutionsFinished, JobStarted, PartitionReports
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.topology.execution_graph import IntermediateResult
from firesteel.scheduler.topology.regions import SchedulingPipelinedRegions
from firesteel.simulation.stopwatch import DECIDE, DEPLOY, GROW, INITIALIZE, RELEASE, Stopwatch
from firesteel.simulation.workload import ChainShape, EdgeKind, Workload

EDGES = ("all-to-all", "pointwise", "pipelined")
_WORKLOAD = Workload(seed=7, mean=ChainShape().partition_bytes, variants=64)
"""Rows of sizes are made beforehand; so many different ones do not stay in the processor's caches."""


_MEASURED = (DECIDE, INITIALIZE, DEPLOY, RELEASE)
_CHUNK = 1_000
"""Single events made up at a time: more of them would be a heap for the garbage collector that no scheduler has."""


@dataclass(frozen=True)
class Shape:
    n: int
    edge: str = "all-to-all"
    dynamic: bool = False
    """The consumer is decided from what the sources produced, up to n subtasks; else all is known beforehand."""
    sizes: bool = False
    """Sources report plain bytes per subpartition."""
    bulk: bool = True
    """All subtasks of a vertex finish in one event; else each in its own."""

    @property
    def chain(self) -> ChainShape:
        kind = EdgeKind.POINTWISE if self.edge == "pointwise" else EdgeKind.ALL_TO_ALL
        pipelined = self.edge == "pipelined"
        return ChainShape(parallelism=self.n, edge=kind, adaptive=self.dynamic, pipelined=pipelined)


@dataclass(frozen=True)
class Descriptors:
    """Bytes: of one consumer's deployment (its own and the gates' or the blobs' names), and of the consumed groups."""

    consumer: int
    group_raw: int
    group: int


class _Watch(Stopwatch):
    """What the job's start makes of the graph is building; after that, the phases of the tables."""

    def name_of(self, phase: str) -> str | None:
        if self.is_under("start"):
            return "build" if phase == GROW else None
        return phase if phase in _MEASURED else None


class Drive:
    """A job under way. Each method takes it one phase further."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.watch = _Watch()
        self.now = 0.0
        graph, options = shape.chain.job_graph(), Options(shape.chain.options())
        with self.watch.measure("build"):
            self.scheduler: Scheduler = create_scheduler(graph, options)
        if shape.bulk:  # for single events the watch would take longer than what it measures
            self.watch.attach(self.scheduler)

    def start(self) -> None:
        with self.watch.measure("start"):
            self.scheduler.handle(JobStarted(at=0.0))

    def finish(self, vertex: int, subtasks: Ints, phase: str) -> list[Command]:
        """These subtasks finish, in one event or in one event each. Making up the events is not counted."""
        commands: list[Command] = []
        handle = self.scheduler.handle
        for events in self.events(vertex, subtasks):
            with self.watch.measure(phase):
                for event in events:
                    commands = handle(event)
        return commands

    def encode(self, deploy: Deploy) -> Descriptors:
        """The bytes that travel for a deployment, as the driver makes them."""
        with self.watch.measure("deploy"):
            ranges = [(part.offsets, part.rects) for part in deploy.ranges]
            own = encode_executions(deploy.subtasks, deploy.attempts, ranges)
            groups = [gate.encoded for gate in deploy.gates]
        inline = sum(
            len(group.digest) if gate.offloaded else len(group.data)
            for gate, group in zip(deploy.gates, groups, strict=True)
        )
        raw = sum(gate.attempts.nbytes + gate.tokens.nbytes for gate in deploy.gates)
        return Descriptors(max(map(len, own)) + inline, raw, sum(len(group.data) for group in groups))

    def events(self, vertex: int, subtasks: Ints) -> Iterator[list[ExecutionsFinished]]:
        self.now += 1.0
        if self.shape.bulk:
            yield [self._event(vertex, subtasks)]
            return
        for first in range(0, len(subtasks), _CHUNK):
            chunk = subtasks[first : first + _CHUNK]
            yield [self._event(vertex, chunk[k : k + 1]) for k in range(len(chunk))]

    def _event(self, vertex: int, subtasks: Ints) -> ExecutionsFinished:
        n = len(subtasks)
        partitions = tuple(
            self._reports(result, subtasks) for result in self.scheduler.graph.vertices[vertex].blocking_results
        )
        reports = ExecutionReports.of(_tokens(subtasks, self.shape.n), partitions=partitions)
        return ExecutionsFinished(
            at=self.now, vertex=vertex, subtasks=subtasks, attempts=np.zeros(n, np.int64), reports=reports
        )

    def _reports(self, result: IntermediateResult, subtasks: Ints) -> PartitionReports:
        dataset, subpartitions = result.dataset.id, result.num_subpartitions
        column = np.full(len(subtasks), 1 << 20, np.int64)
        if not self.shape.sizes:
            return PartitionReports(dataset, column, column, column, None)
        written = _WORKLOAD.totals(dataset, subtasks, subpartitions)
        rows = [_WORKLOAD.packed(dataset, subtask, subpartitions) for subtask in subtasks.tolist()]
        return PartitionReports(dataset, written, column, column, rows)


def _tokens(subtasks: Ints, n: int) -> Ints:
    """No order at all: the worst that Spark's numbers of tasks can be."""
    return _permuted(n)[subtasks] + 1


@cache
def _permuted(n: int) -> Ints:
    return np.random.default_rng(7).permutation(n)


@dataclass(frozen=True)
class Run:
    seconds: dict[str, float]
    """By phase."""
    descriptors: Descriptors | None


def run(shape: Shape) -> Run:
    """One job from its build to its end."""
    descriptors = None
    gc.collect()
    drive = Drive(shape)
    everybody = np.arange(shape.n)
    drive.start()
    if shape.edge != "pipelined":
        drive.finish(0, everybody[:-1], "finish")
        commands = drive.finish(0, everybody[-1:], "last")
        descriptors = drive.encode(next(command for command in commands if isinstance(command, Deploy)))
    else:
        drive.finish(0, everybody, "finish")
    failover(drive)
    drive.finish(1, np.arange(drive.scheduler.graph.vertices[1].parallelism), "finish consumers")
    assert drive.scheduler.status.value == "FINISHED", drive.scheduler.status
    return Run(dict(drive.watch.seconds), descriptors)


def one_by_one(shape: Shape) -> float:
    """Seconds for all sources but the last to finish, in one event each."""
    gc.collect()
    drive = Drive(replace(shape, bulk=False))
    drive.start()
    drive.finish(0, np.arange(shape.n - 1), "finish")
    return drive.watch.seconds["finish"]


def failover(drive: Drive) -> int:
    """Which tasks run again when one source fails while its consumers run. Nothing is restarted. Returns how many."""
    with drive.watch.measure("failover"):
        restart = tasks_needing_restart(drive.scheduler.graph, {0: np.array([0])})
    return sum(len(tasks) for tasks in restart.tasks.values())


def regions(shape: Shape) -> float:
    """Seconds that the pipelined regions alone take, of a graph that is there."""
    drive = Drive(shape)
    drive.start()
    graph = drive.scheduler.graph
    parallelism = {vertex.id: vertex.parallelism for vertex in graph.vertices if vertex.is_initialized}
    with drive.watch.measure("regions"):
        SchedulingPipelinedRegions(graph.job_graph).grow(parallelism, graph._inner_edges)
    return drive.watch.seconds["regions"]


def held_bytes(shape: Shape) -> int:
    """Python's and numpy's memory that a job holds: after its start, or with the sizes of all sources but one."""
    gc.collect()
    tracemalloc.start()
    drive = Drive(shape)
    drive.start()
    if shape.sizes:
        before = tracemalloc.get_traced_memory()[0]
        events = next(drive.events(0, np.arange(shape.n - 1)))
        made = tracemalloc.get_traced_memory()[0] - before
        for event in events:
            drive.scheduler.handle(event)
    else:
        made = 0
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - made
    tracemalloc.stop()
    return held
