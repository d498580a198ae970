"""Finished consumers that must read again, since what they read is not what the others of their vertex will get.

A producer that runs again gives the same rows, but not surely in the same order. That is nothing to a keyed result: a
row's place follows from its key. Rows of RESCALE and REBALANCE results are dealt out by their order, so two subtasks that
share a partition must read the same attempt of it: else one keeps old rows that another one gets too. A subtask that read
such a share anew has other rows than its earlier attempts, hence so have its own results, whatever their partitioning.
A nondeterministic subtask has other rows whenever it runs again.

Mirrors (FLIP-168) add nothing to this. Of the attempts of one round only one is ever read, and only after it has won. What
several attempts of one subtask read may differ only if a producer ran again between their deployments; but then all that
had not finished were cancelled with their round, and of the finished one it is known when it was told what to read.

So it is with the parts of a divided subpartition of a join (``InputRanges.shares``), by subpartition: rows of a keyed result, dealt out by
their order in each producer's object. Who reads a subpartition whole beside them does not mind, nor who reads a part by value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.groups import Mask

_BY_ORDER = (ShipStrategy.RESCALE, ShipStrategy.REBALANCE)


class ConsumerInvalidation:
    """``tasks``: what is known to run again (a mask per vertex); it grows between calls."""

    def __init__(self, graph: DefaultExecutionGraph, tasks: Mapping[int, Mask]) -> None:
        self._graph = graph
        self._tasks = tasks

    def invalidated(self) -> dict[int, Ints]:
        """Finished subtasks that have to join ``tasks``, by vertex. Marks those whose rows will be ``unlike`` before."""
        found: dict[int, Ints] = {}
        for vertex in self._graph.vertices:  # in topological order: what becomes unlike is seen further down
            if not vertex.job.deterministic and vertex.id in self._tasks:
                vertex.unlike |= self._tasks[vertex.id]
            if vertex.ranges is None:
                continue
            again = np.zeros(vertex.parallelism, np.bool_)
            for edge, ranges in zip(vertex.job.inputs, vertex.ranges, strict=True):
                result = self._graph.result(edge.dataset)
                again |= self._over(result, vertex, ranges)
                if not edge.by_value:  # whose parts are the same, whatever the order
                    again |= self._over_shares(result, vertex, ranges)
            if again.any():
                found[vertex.id] = np.flatnonzero(again)
        return found

    def _over(self, result: IntermediateResult, vertex: ExecutionJobVertex, ranges: InputRanges) -> Mask:
        made_at = self._made_at(result)
        none = np.zeros(vertex.parallelism, np.bool_)
        if np.isneginf(made_at).all():
            return none
        stays = self._stays(vertex)
        if result.is_pipelined:  # who reads it runs whenever its producers do
            self._mark(result, vertex, ranges, made_at, ~stays)
            return none
        fresh = _times_read(ranges, ~stays, result.num_partitions) > 0
        latest = _latest(ranges, np.where(fresh, made_at, -np.inf))
        read_at = self._graph.executions.times(ExecutionState.SCHEDULED, vertex.chosen)
        # What its own region made began to be made no later than it was read.
        inside = self._graph.regions.are_joined(result.dataset.producer, vertex.id)
        again = stays & ((latest > read_at) if inside else (latest >= read_at))
        self._mark(result, vertex, ranges, made_at, again | ~stays)
        return again

    def _over_shares(self, result: IntermediateResult, vertex: ExecutionJobVertex, ranges: InputRanges) -> Mask:
        """As ``_over``, of those that read parts of divided subpartitions: each reads of all partitions."""
        again = np.zeros(vertex.parallelism, np.bool_)
        if ranges.shares is None:
            return again
        made_at = self._begun_at(result).max(initial=-np.inf)
        if np.isneginf(made_at):
            return again
        divided = np.flatnonzero(ranges.is_divided)
        subtasks = np.searchsorted(ranges.offsets, divided, side="right") - 1
        subpartitions = ranges.rects[divided, 2]
        stays = self._stays(vertex)[subtasks]
        fresh = np.isin(subpartitions, subpartitions[~stays])
        read_at = self._graph.executions.times(ExecutionState.SCHEDULED, vertex.chosen)[subtasks]
        repeated = stays & fresh & (made_at >= read_at)
        again[subtasks[repeated]] = True
        vertex.unlike[subtasks[repeated | ~stays]] = True
        return again

    def _mark(
        self,
        result: IntermediateResult,
        vertex: ExecutionJobVertex,
        ranges: InputRanges,
        made_at: NDArray[np.float64],
        runs: Mask,
    ) -> None:
        """Notes which consumers run, not for the first time, and get other rows than before. One alone with a partition does not."""
        producer = self._graph.vertices[result.dataset.producer]
        shared = _times_read(ranges, np.ones(vertex.parallelism, np.bool_), result.num_partitions) > 1
        differs = np.where(shared | producer.unlike, made_at, -np.inf)
        vertex.unlike |= runs & ~np.isneginf(_latest(ranges, differs))

    def _made_at(self, result: IntermediateResult) -> NDArray[np.float64]:
        """When each partition that may not be as it was began to be made; inf: from now on, -inf: it is as ever."""
        producer = self._graph.vertices[result.dataset.producer]
        if result.dataset.ship in _BY_ORDER:
            return self._begun_at(result)
        if not producer.unlike.any():
            return np.full(result.num_partitions, -np.inf)
        return np.where(producer.unlike, self._begun_at(result), -np.inf)

    def _begun_at(self, result: IntermediateResult) -> NDArray[np.float64]:
        """When each partition that was, or will be, made again began to be; inf: from now on, -inf: it was made once."""
        table, producer = self._graph.executions, self._graph.vertices[result.dataset.producer]
        chosen = producer.chosen
        again = table.attempt[chosen] > 0
        begun_at = np.where(again, table.times(ExecutionState.CREATED, chosen), -np.inf)
        if producer.id in self._tasks:
            begun_at[self._tasks[producer.id]] = np.inf
        return begun_at

    def _stays(self, vertex: ExecutionJobVertex) -> Mask:
        """Subtasks that have finished and do not run again, as far as is known."""
        stays = vertex.states == ExecutionState.FINISHED
        if vertex.id in self._tasks:
            stays &= ~self._tasks[vertex.id]
        return stays


def _times_read(ranges: InputRanges, subtasks: Mask, num_partitions: int) -> Ints:
    """Returns the number of these subtasks that read each partition (one with several rectangles in it may count twice)."""
    rects = ranges.rects[np.repeat(subtasks, np.diff(ranges.offsets))]
    steps = np.zeros(num_partitions + 1, np.int64)
    np.add.at(steps, rects[:, 0], 1)
    np.add.at(steps, rects[:, 1], -1)
    return np.cumsum(steps)[:-1]


def _latest(ranges: InputRanges, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest of ``values`` (one per partition) that each subtask reads, -inf where there is none.

    By a table of the maxima over runs of 1, 2, 4, ... partitions: no cost in producers times consumers.
    """
    first, end = ranges.rects[:, 0].astype(np.int64), ranges.rects[:, 1].astype(np.int64)
    largest = np.full(len(first), -np.inf)
    spans = end - first
    level, run = values, 1
    while run <= len(values):
        mine = (spans >= run) & (spans < 2 * run)
        largest[mine] = np.maximum(level[first[mine]], level[end[mine] - run])
        level, run = np.maximum(level[:-run], level[run:]) if run < len(level) else level, 2 * run
    latest = np.full(ranges.parallelism, -np.inf)
    np.maximum.at(latest, np.repeat(np.arange(ranges.parallelism), np.diff(ranges.offsets)), largest)
    return latest
