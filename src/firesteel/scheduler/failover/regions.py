"""The regions that run again after a failure (Flink: RestartPipelinedRegionFailoverStrategy).

A region runs again as a whole, finished members too, for pipelined data cannot be read again. Besides the failed ones
there must run again: regions producing partitions that they read and that are lost or were released already, their
producers in turn, the regions of unfinished consumers of whatever is produced anew, and of finished consumers whose
share of a partition is not what it was, or whose producer is nondeterministic (``consumer_invalidation``). Each consumed group is visited once, so the cost is
O(subtasks), not O(edges); where all exchanges are blocking every region is a single subtask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from firesteel.model.arrays import Ints, distinct, union
from firesteel.scheduler.failover.consumer_invalidation import ConsumerInvalidation
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW
from firesteel.scheduler.topology.groups import EdgeGroups, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """``tasks``: vertex to subtasks, ascending. ``invalidated``: those of them that had finished and only read again."""

    tasks: dict[int, Ints]
    invalidated: dict[int, Ints] = field(default_factory=dict)


def tasks_needing_restart(graph: DefaultExecutionGraph, tasks: Mapping[int, Ints]) -> Restart:
    """``tasks``: those that failed, and producers of what is lost. Lost partitions must have been withdrawn before.

    Regions that wait in CREATED need no restart and are left out, as are running producers.
    """
    return _Closure(graph).of(tasks)


class _Closure:
    def __init__(self, graph: DefaultExecutionGraph) -> None:
        self._graph = graph
        self._tasks: dict[int, Mask] = {}
        self._invalidation = ConsumerInvalidation(graph, self._tasks)
        self._invalidated: dict[int, Ints] = {}
        self._seen: dict[tuple[str, int], Mask] = {}
        self._queue: deque[tuple[int, Ints]] = deque()

    def of(self, tasks: Mapping[int, Ints]) -> Restart:
        for vertex, subtasks in tasks.items():
            self._add(vertex, subtasks)
        self._walk()
        while True:
            found = self._invalidation.invalidated()
            if not found:
                break
            for vertex, subtasks in found.items():
                self._invalidated[vertex] = union((self._invalidated.get(vertex, subtasks), subtasks))
                self._add(vertex, subtasks)
            self._walk()
        return Restart({v: np.flatnonzero(self._tasks[v]) for v in sorted(self._tasks)}, self._invalidated)

    def _walk(self) -> None:
        while self._queue:
            at, new = self._queue.popleft()
            self._add_producers(self._graph.vertices[at], new)
            self._add_consumers(self._graph.vertices[at], new)

    def _add(self, vertex: int, subtasks: Ints) -> None:
        """Adds these subtasks, and with them all of their regions."""
        if vertex not in self._tasks:
            self._tasks[vertex] = np.zeros(self._graph.vertices[vertex].parallelism, np.bool_)
        new = subtasks[~self._tasks[vertex][subtasks]]
        if not len(new):
            return
        block = self._graph.regions.block(vertex)
        if block.is_trivial:
            self._mark(vertex, new)
            return
        for member, own in block.members(distinct(block.of(vertex, new))).items():
            self._mark(member, own)

    def _mark(self, vertex: int, subtasks: Ints) -> None:
        if vertex not in self._tasks:
            self._tasks[vertex] = np.zeros(self._graph.vertices[vertex].parallelism, np.bool_)
        self._tasks[vertex][subtasks] = True
        self._queue.append((vertex, subtasks))

    def _add_producers(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        for edge in vertex.inputs:
            result = self._graph.result(edge.dataset)
            if result.is_pipelined or result.is_available:
                continue  # its producers are of the same regions, or nothing is missing
            groups = self._unseen("produced", edge, edge.groups_of_consumers(subtasks))
            if not len(groups):
                continue
            partitions = edge.partitions(groups)
            missing = partitions[~result.available[partitions]]
            producer = self._graph.vertices[result.dataset.producer]
            gone = missing[producer.states_of(missing) == ExecutionState.FINISHED]
            if len(gone):
                self._add(producer.id, gone)

    def _add_consumers(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """Unfinished consumers of what is produced anew. Nobody was told of what was not admitted."""
        subtasks = subtasks[vertex.winner[subtasks] != NO_ROW]
        if not len(subtasks):
            return
        for result in vertex.blocking_results:
            for edge in result.consumers:
                groups = self._unseen("consumed", edge, edge.groups_of_partitions(subtasks))
                if not len(groups):
                    continue
                consumers = edge.consumers(groups)
                active = consumers[IS_DEPLOYED[self._graph.vertices[edge.vertex].states_of(consumers)]]
                if len(active):
                    self._add(edge.vertex, active)

    def _unseen(self, side: str, edge: EdgeGroups, groups: Ints) -> Ints:
        seen = self._seen.setdefault((side, id(edge)), np.zeros(len(edge), np.bool_))
        new = groups[~seen[groups]]
        seen[new] = True
        return new
