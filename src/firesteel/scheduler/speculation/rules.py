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
from firesteel.model.arrays import Floats
from firesteel.options import BASELINE_LOWER_BOUND, BASELINE_MULTIPLIER, BASELINE_RATIO, Options
from firesteel.scheduler.speculation.detector import SlowTasks
from firesteel.scheduler.speculation.execution_times import FinishedTimes, RunningTimes, Usual, finished_times, usual
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
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
