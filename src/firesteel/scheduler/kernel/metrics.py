"""The metrics registry: a job's numbers by name, which the journal, the progress view and exporters read.

Names are Flink's where Flink has one (numRestarts, numRecordsIn, numBytesIn), else the seeds' (FLIP-187:
numBytesProduced, which counts a broadcast once; FLIP-168: numSlowExecutionVertices, numEffectiveSpeculativeExecutions).
A counter counts what happened, and never falls. A gauge tells how things stand: it is a function over the columns that the
scheduler holds anyway, so an event costs nothing and a snapshot reads them. What subtasks read and wrote are gauges, of the
admitted attempts (as Flink sums up the current ones): a restart takes back what is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import MetricsSnapshot
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.execution_graph import IO_COUNTERS, DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows

Number = int | float
SNAPSHOT_SECONDS = 1.0
"""A vertex that makes progress has its numbers written down at most so often ..."""
SNAPSHOT_STEPS = 64
"""... and after this part of its subtasks finished: snapshots read columns, so all of them together stay linear."""

PRODUCED = ("numBytesProduced", "numBytesStored")
"""Of the admitted attempts: plain, and as compressed on the storage."""
COST = ("numBytesConsumed", "accumulateBusyTimeMs")
"""Of a vertex that has finished: plain bytes of what it read, as its parallelism was decided from (a broadcast left out; of a source its
splits'), and milliseconds from RUNNING to FINISHED of its winners, all together, but for their set-ups. Later runs of the job read them."""
STATE_NAMES = tuple(f"num{state.name.title()}Tasks" for state in ExecutionState)
"""Subtasks by the state of the execution that stands for each: numRunningTasks, numFinishedTasks, ..."""


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, by: int = 1) -> None:
        self.value += by


class MetricGroup:
    """The numbers of one scope: the job, or a job vertex."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], Mapping[str, Number]]] = []
        self._names: set[str] = set()

    def counter(self, name: str) -> Counter:
        """Raises ValueError when the name is taken, as the other two do."""
        counter = Counter()
        self.gauge(name, lambda: counter.value)
        return counter

    def gauge(self, name: str, read: Callable[[], Number]) -> None:
        self.gauges((name,), lambda: {name: read()})

    def gauges(self, names: Iterable[str], read: Callable[[], Mapping[str, Number]]) -> None:
        """Numbers that are read from a column together; one that is left out is not known yet."""
        for name in names:
            if name in self._names:
                raise ValueError(f"The metric {name} is registered already.")
            self._names.add(name)
        self._sources.append(read)

    def read(self) -> dict[str, Number]:
        return {name: value for source in self._sources for name, value in source().items()}


@dataclass(slots=True)
class _Told:
    """Of a vertex: when its numbers were written down last, and how many subtasks had finished."""

    at: float
    finished: int


class Metrics(Policy):
    """The registry of one job. ``job`` and ``vertices[id]`` are open to whoever has a number to show."""

    def __init__(self, graph: DefaultExecutionGraph, recorder: Recorder) -> None:
        self._recorder = recorder
        self.job = MetricGroup()
        self.num_restarts = self.job.counter("numRestarts")
        self.vertices = [_vertex_group(graph, vertex) for vertex in graph.vertices]
        self._told = [_Told(-np.inf, 0) for _ in self.vertices]

    def snapshot(self, vertices: Iterable[int] | None = None) -> MetricsSnapshot:
        """Returns the numbers as they are now, as plain data: the job's, and those of ``vertices`` (None: of all)."""
        chosen = range(len(self.vertices)) if vertices is None else vertices
        numbers = {vertex: self.vertices[vertex].read() for vertex in chosen}
        return MetricsSnapshot(
            at=self._recorder.at,
            event=self._recorder.event,
            job=self.job.read(),
            vertices={vertex: read for vertex, read in numbers.items() if read},
        )

    def record(self, vertices: Iterable[int] | None = None) -> None:
        """Write a snapshot to the journal."""
        self._recorder.record(self.snapshot(vertices))

    def finished(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows) -> None:
        """O(1), but for the few times that a snapshot is due, as it is at the end."""
        told, finished, at = self._told[vertex.id], vertex.num_finished, self._recorder.at
        enough = (finished - told.finished) * SNAPSHOT_STEPS >= vertex.parallelism and at >= told.at + SNAPSHOT_SECONDS
        if enough or finished == vertex.parallelism:
            told.at, told.finished = at, finished
            self.record((vertex.id,))

    def restarted(self, vertices: Iterable[int], *, counts: bool = True) -> None:
        """Subtasks of these vertices run again. ``counts``: as a restart; not so what is only sent again."""
        self.num_restarts.inc(int(counts))
        for vertex in vertices:
            self._told[vertex].finished = 0
        self.record(vertices)


def _vertex_group(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex) -> MetricGroup:
    def tasks() -> dict[str, Number]:
        if not vertex.is_initialized:
            return {}
        counts = np.bincount(vertex.states, minlength=len(STATE_NAMES))
        return {"parallelism": vertex.parallelism, **dict(zip(STATE_NAMES, counts.tolist(), strict=True))}

    def io() -> dict[str, Number]:
        return {name: int(counted.sum()) for name, counted in zip(IO_COUNTERS, vertex.io, strict=False)}

    def produced() -> dict[str, Number]:
        if not vertex.is_initialized:
            return {}
        infos = [result.info for result in graph.outputs(vertex)]
        return dict(
            zip(PRODUCED, (sum(i.num_bytes_produced for i in infos), sum(i.stored_bytes for i in infos)), strict=True)
        )

    def cost() -> dict[str, Number]:
        """Not of a vertex that does more or less than the step that was planned."""
        if not (vertex.is_initialized and vertex.is_finished and vertex.is_as_planned):
            return {}
        return dict(zip(COST, (graph.bytes_consumed(vertex), round(1e3 * vertex.busy_seconds)), strict=True))

    def steps() -> dict[str, Number]:
        totals = vertex.step_counts.totals
        return {f"{step}.{name}": count for step, counts in totals.items() for name, count in counts.items()}

    group = MetricGroup()
    group.gauges(("parallelism", *STATE_NAMES), tasks)
    group.gauges(IO_COUNTERS, io)
    group.gauges(PRODUCED, produced)
    group.gauges(COST, cost)
    group.gauges((), steps)  # under names that the job's steps bring
    return group
