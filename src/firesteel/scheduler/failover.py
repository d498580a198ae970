"""Which subtasks run again after a failure (Flink: RestartPipelinedRegionFailoverStrategy, all exchanges blocking).

Every region is a single subtask. Besides the failed ones there must run again: producers of partitions they read that
are lost or were released already, their producers in turn, and unfinished consumers of whatever is produced anew.
Finished consumers stay finished. Each consumed group is visited once, so the cost is O(subtasks), not O(edges).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from firesteel.scheduler.events import Ints
from firesteel.scheduler.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.groups import EdgeGroups, Mask
from firesteel.scheduler.states import IS_DEPLOYED, ExecutionState


class RestartPipelinedRegionFailoverStrategy:
    def __init__(self, graph: DefaultExecutionGraph) -> None:
        self._graph = graph

    def tasks_needing_restart(self, vertex: int, subtasks: Ints) -> dict[int, Ints]:
        """Vertex to subtasks, ascending. Lost partitions must have been withdrawn from their result before.

        Subtasks that wait in CREATED need no restart and are left out, as are running producers.
        """
        return _Closure(self._graph).of(vertex, subtasks)


class _Closure:
    def __init__(self, graph: DefaultExecutionGraph) -> None:
        self._graph = graph
        self._tasks: dict[int, Mask] = {}
        self._seen: dict[tuple[str, int], Mask] = {}
        self._queue: deque[tuple[int, Ints]] = deque()

    def of(self, vertex: int, subtasks: Ints) -> dict[int, Ints]:
        self._add(vertex, subtasks)
        while self._queue:
            at, new = self._queue.popleft()
            self._add_producers(self._graph.vertices[at], new)
            self._add_consumers(self._graph.vertices[at], new)
        return {v: np.flatnonzero(self._tasks[v]) for v in sorted(self._tasks)}

    def _add(self, vertex: int, subtasks: Ints) -> None:
        mask = self._tasks.setdefault(vertex, np.zeros(self._graph.vertices[vertex].parallelism, np.bool_))
        new = subtasks[~mask[subtasks]]
        if len(new):
            mask[new] = True
            self._queue.append((vertex, new))

    def _add_producers(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        for edge in vertex.inputs:
            groups = self._unseen("produced", edge, edge.groups_of_consumers(subtasks))
            if not len(groups):
                continue
            result = self._graph.result(edge.dataset)
            partitions = edge.partitions(groups)
            missing = partitions[~result.available[partitions]]
            producer = self._graph.vertices[result.dataset.producer]
            gone = missing[producer.states[missing] == ExecutionState.FINISHED]
            if len(gone):
                self._add(producer.id, gone)

    def _add_consumers(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        for result in self._graph.outputs(vertex):
            for edge in result.consumers:
                groups = self._unseen("consumed", edge, edge.groups_of_partitions(subtasks))
                if not len(groups):
                    continue
                consumers = edge.consumers(groups)
                states = self._graph.vertices[edge.vertex].states[consumers]
                active = consumers[IS_DEPLOYED[states]]
                if len(active):
                    self._add(edge.vertex, active)

    def _unseen(self, side: str, edge: EdgeGroups, groups: Ints) -> Ints:
        seen = self._seen.setdefault((side, id(edge)), np.zeros(len(edge), np.bool_))
        new = groups[~seen[groups]]
        seen[new] = True
        return new
