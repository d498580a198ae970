"""Rules for vertices of which ``baseline-ratio`` cannot finish: few subtasks, or a node that stands still holds many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firesteel.humanize import format_seconds, plural
from firesteel.model.arrays import distinct
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.speculation.detector import SlowTasks
from firesteel.scheduler.speculation.execution_times import (
    FinishedTimes,
    RunningTimes,
    finished_times,
    knows_bytes,
    usual,
)
from firesteel.scheduler.speculation.rules import SlowTaskRule, Thresholds, per_byte, slow_ones
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.executions import ExecutionTable

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
