"""Rules that call an execution slow because of what others of its vertex took (FLIP-168), one class per rule.

In all of them N is the parallelism of the vertex, R ``baseline-ratio``, M ``baseline-multiplier``, B
``baseline-lower-bound``; an execution that has taken its baseline or longer is slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from firesteel.humanize import format_count, format_seconds, plural
from firesteel.model.arrays import Floats, distinct
from firesteel.options import BASELINE_LOWER_BOUND, BASELINE_MULTIPLIER, BASELINE_RATIO, Options
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.speculation.execution_times import (
    FinishedTimes,
    RunningTimes,
    SlowTasks,
    Usual,
    finished_times,
    knows_bytes,
    usual,
)
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.executions import ExecutionTable, Rows

_UNITS = ((1, "byte"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"))
"""Of a rate, the first that makes it a number that people can read."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """R, M and B (seconds) of ``slow-task-detector.execution-time.*``."""

    ratio: float
    multiplier: float
    lower_bound: float

    @classmethod
    def of(cls, options: Options) -> Thresholds:
        return cls(options[BASELINE_RATIO], options[BASELINE_MULTIPLIER], options[BASELINE_LOWER_BOUND])

    def finished_needed(self, vertex: ExecutionJobVertex) -> int:
        """N * R: the least number of subtasks that are at least this part of all of them."""
        needed = math.ceil(vertex.parallelism * self.ratio)
        # A product may be rounded to just above a whole number; the quotient decides, as in Flink.
        return needed - 1 if needed and (needed - 1) / vertex.parallelism >= self.ratio else needed


class SlowTaskRule(Protocol):
    least_seconds: float
    """No execution that has taken less is slow."""

    def find(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> SlowTasks | None:
        """Returns the slow ones among these (at least one) running executions of an initialised vertex at this time; None: none is slow."""
        ...


def slow_ones(
    vertex: ExecutionJobVertex, running: RunningTimes, baseline: Floats, rule: str, reason: str
) -> SlowTasks | None:
    """Returns the executions that have reached their ``baseline`` (parallel to ``running``)."""
    slow = running.elapsed >= baseline
    if not slow.any():
        return None
    return SlowTasks(vertex.id, running.rows[slow], rule, running.elapsed[slow], baseline[slow], reason)


class _Compared:
    """Compares with what finished executions of the same vertex took, once N*R of them have finished."""

    name: str

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self.least_seconds = thresholds.lower_bound
        self._known: dict[int, tuple[tuple[int, int], Usual]] = {}

    def find(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> SlowTasks | None:
        needed = self._thresholds.finished_needed(vertex)
        if vertex.num_finished < needed:
            return None
        found = self._usual(table, vertex, needed)
        baseline = np.maximum(found.times_for(running) * self._thresholds.multiplier, self.least_seconds)
        return slow_ones(vertex, running, baseline, self.name, self._reason(vertex, needed, found))

    def _usual(self, table: ExecutionTable, vertex: ExecutionJobVertex, needed: int) -> Usual:
        # Who has won changes with a finish, or with a restart, which makes a row.
        version = (vertex.num_finished, table.size)
        known = self._known.get(vertex.id)
        if known is None or known[0] != version:
            known = self._known[vertex.id] = (version, self._usual_now(table, vertex, needed))
        return known[1]

    def _usual_now(self, table: ExecutionTable, vertex: ExecutionJobVertex, needed: int) -> Usual:
        if not needed:
            return Usual(0.0)
        finished = finished_times(table, (vertex,))
        return self._of(finished, needed) if len(finished) else Usual(math.inf)

    def _of(self, finished: FinishedTimes, needed: int) -> Usual:
        raise NotImplementedError

    def _reason(self, vertex: ExecutionJobVertex, needed: int, found: Usual) -> str:
        multiplier, bound = self._thresholds.multiplier, format_seconds(self.least_seconds)
        if not needed:
            return f"no execution has to finish first, and slow is what has taken {bound}"
        chosen = f"{self._chosen(needed)} of {plural(vertex.parallelism, 'subtask')}"
        took = f"{format_seconds(found.seconds)}{per_byte(found)}"
        return f"{chosen} took {took} in the median; slow is {multiplier:g} times as long, from {bound} on"

    def _chosen(self, needed: int) -> str:
        raise NotImplementedError


class MedianTimeRule(_Compared):
    """``seed``, FLIP-168 word for word: T is the median execution time of the earliest N*R that finished (the
    element at count / 2), the baseline of all is max(T * M, B). R = 0 asks for nobody to finish: then it is B.
    """

    name = "seed"

    def _of(self, finished: FinishedTimes, needed: int) -> Usual:
        return usual(replace(finished.select(_least(finished.ended, needed)), input_bytes=None))

    def _chosen(self, needed: int) -> str:
        return f"the earliest {format_count(needed)} to finish"


class TimePerByteRule(_Compared):
    """``input-weighted``, in the manner of today's Flink: of the N*R finished executions that took the least time
    per input byte, V is the median time per byte and T the median time; an execution that reads b bytes has the baseline
    max(M * max(V * b, T), B).

    So one that only has more to read is not slow, and one that has hardly anything to read is not slow for the time
    that starting takes it. Executions that read nothing are not among those the medians are taken of, unless nobody
    reads anything. Where bytes are not known, plain time takes the place of time per byte.
    """

    name = "input-weighted"

    def _of(self, finished: FinishedTimes, needed: int) -> Usual:
        weights = 1.0 if finished.input_bytes is None else finished.input_bytes
        return usual(finished.select(_least(finished.seconds / weights, needed)))

    def _chosen(self, needed: int) -> str:
        return f"the fastest {format_count(needed)}"


def _least(values: Floats, count: int) -> Rows:
    """Places of the ``count`` least values, in any order."""
    return np.argpartition(values, count)[:count] if count < len(values) else np.arange(len(values))


def per_byte(found: Usual) -> str:
    """``, and 32 ms per MiB read,``; empty where bytes are not known."""
    if found.per_byte is None:
        return ""
    unit, name = next(((u, n) for u, n in _UNITS if found.per_byte * u >= 1e-3), _UNITS[-1])
    return f", and {format_seconds(found.per_byte * unit)} per {name} read,"


EXPECTED_FACTOR = 4.0
"""An execution is slow when it takes so many times as long as expected from others of its vertex; at least, for it is
never less than twice ``baseline-multiplier``."""
LIKE_FACTOR = 2.0
"""So many times that, where it is expected from executions of like vertices."""
S = ExecutionState


class ExpectedTimeRule:
    """``expected``: what an execution should take by its bytes, judged by any that have finished; with wide margins.

    It speaks only while fewer than N*R have finished and nothing of the vertex waits to be launched any more.
    Over all that finished of the vertex, V is the median time per byte and L the longest time; the baseline is
    max(F * max(V * b, L), B), F = max(4, 2 * M). It must rest on at least as many finished executions as the subtasks it
    calls slow: where most take longer than expected, the expectation is wrong.

    Where none has finished, V and L are of *like* vertices of the job: those of the same name (so of the same operators
    in the same order) that read and write the same kinds of exchanges. Then bytes must be known, F is twice as large,
    and all that are slow must be on one node.
    """

    name = "expected"

    def __init__(self, thresholds: Thresholds, graph: DefaultExecutionGraph) -> None:
        self._thresholds = thresholds
        self.least_seconds = thresholds.lower_bound
        self._factor = max(EXPECTED_FACTOR, 2 * thresholds.multiplier)
        self._graph = graph

    def find(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> SlowTasks | None:
        if vertex.num_finished >= self._thresholds.finished_needed(vertex):
            return None
        states = vertex.states
        if ((states < S.DEPLOYING) | (states > S.FINISHED)).any():
            return None
        if vertex.num_finished:
            return self._by_own(table, vertex, running)
        return self._by_like(table, vertex, running)

    def _by_own(self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes) -> SlowTasks | None:
        finished = finished_times(table, (vertex,))
        if not len(finished):
            return None
        those = f"{plural(len(finished), 'finished subtask')} of {vertex.parallelism}"
        slow = self._slow(vertex, running, finished, self._factor, those)
        return slow if slow and _subtasks(table, slow) <= len(finished) else None

    def _by_like(self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes) -> SlowTasks | None:
        kind = _kind(self._graph, vertex)  # of now: the graph may have changed
        like = [v for v in self._graph.vertices if v.num_finished and knows_bytes(v) and _kind(self._graph, v) == kind]
        if not like or running.input_bytes is None:
            return None
        finished = finished_times(table, like)
        if not len(finished):
            return None
        ids = ", ".join(str(v.id) for v in like[:5]) + (f" and {len(like) - 5} more" if len(like) > 5 else "")
        those = f"{plural(len(finished), 'finished subtask')} of like vertices ({ids})"
        slow = self._slow(vertex, running, finished, self._factor * LIKE_FACTOR, those)
        if slow is None or _subtasks(table, slow) > len(finished):
            return None
        nodes = table.node[slow.rows]
        return slow if nodes[0] and (nodes == nodes[0]).all() else None

    def _slow(
        self, vertex: ExecutionJobVertex, running: RunningTimes, finished: FinishedTimes, factor: float, those: str
    ) -> SlowTasks | None:
        found = replace(usual(finished), seconds=float(finished.seconds.max()))
        took = f"{those} took at most {format_seconds(found.seconds)}{per_byte(found)}"
        reason = f"{took}{' in the median' if found.per_byte else ''}; slow is {factor:g} times what that lets expect"
        baseline = np.maximum(found.times_for(running) * factor, self.least_seconds)
        return slow_ones(
            vertex, running, baseline, self.name, f"{reason}, from {format_seconds(self.least_seconds)} on"
        )


class AbsoluteTimeRule:
    """``absolute-time``: so many seconds are too many, whatever others take."""

    name = "absolute-time"

    def __init__(self, seconds: float) -> None:
        self.least_seconds = seconds

    def find(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> SlowTasks | None:
        baseline = np.full(len(running.rows), self.least_seconds)
        reason = f"every execution that takes {format_seconds(self.least_seconds)} is slow"
        return slow_ones(vertex, running, baseline, self.name, reason)


def fallback_rules(
    thresholds: Thresholds, graph: DefaultExecutionGraph, expected: bool, absolute: float | None
) -> list[SlowTaskRule]:
    """Returns the rules that are on, in the order in which they are asked."""
    rules: list[SlowTaskRule] = [ExpectedTimeRule(thresholds, graph)] if expected else []
    return rules if absolute is None else [*rules, AbsoluteTimeRule(absolute)]


def _subtasks(table: ExecutionTable, slow: SlowTasks) -> int:
    return len(distinct(table.index[slow.rows].astype(np.int64)))


def _kind(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex) -> object:
    """Equal for vertices that do the same with their input, as far as one can see from outside."""
    job, datasets = vertex.job, graph.job_graph.datasets
    reads = tuple((datasets[edge.dataset].ship, edge.co_partitioned) for edge in job.inputs)
    return job.name, job.source is not None, job.has_sink, reads, tuple(datasets[d].ship for d in job.outputs)
