"""VertexwiseSchedulingStrategy (FLIP-187): deploys single executions whose inputs are all there, in topological order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from firesteel.scheduler.events import Ints
from firesteel.scheduler.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.gathering import Gathering
from firesteel.scheduler.groups import EdgeGroups, Mask
from firesteel.scheduler.slots import ExecutionDeploymentOption
from firesteel.scheduler.states import ExecutionState


class VertexwiseSchedulingStrategy:
    """Candidates are the consumers of what finished and everything newly added to the topology.

    The newly added must be candidates too: when A1 finishes before B1 exists, nothing else would ever look at B1.
    """

    def __init__(
        self,
        graph: DefaultExecutionGraph,
        deploy: Callable[[list[ExecutionDeploymentOption]], None],
        gathering: Gathering,
    ) -> None:
        """``deploy`` gives what got no slot back to :meth:`restart_tasks`."""
        self._graph = graph
        self._deploy = deploy
        self._gathering = gathering
        self._candidates: dict[int, Mask] = {}
        graph.add_listener(self)

    def notify_scheduling_topology_updated(self, graph: DefaultExecutionGraph, new_vertices: Sequence[int]) -> None:
        for vertex in new_vertices:
            self._candidates[vertex] = np.ones(graph.vertices[vertex].parallelism, np.bool_)

    def on_partitions_available(self, complete: Iterable[tuple[EdgeGroups, Ints]]) -> None:
        """These consumer groups have all their partitions now."""
        for edge, groups in complete:
            if len(groups):
                self._add(edge.vertex, edge.consumers(groups))

    def restart_tasks(self, tasks: Mapping[int, Ints]) -> None:
        """Subtasks that were reset, whose delay is over, or whose earlier attempt is gone."""
        for vertex, subtasks in tasks.items():
            self._add(vertex, subtasks)

    def schedule(self) -> None:
        """Deploy every candidate that can run. One that cannot becomes a candidate again with its last input.

        Those that are gathered, or got no slot, stay candidates: every event looks at them again.
        """
        candidates, self._candidates = self._candidates, {}
        options: list[ExecutionDeploymentOption] = []
        for vertex in sorted(candidates):
            if self._gathering.holds(vertex):
                self._candidates[vertex] = candidates[vertex]
                continue
            subtasks = self._deployable(vertex, np.flatnonzero(candidates[vertex]))
            if len(subtasks):
                self._gathering.deployed(vertex)
                options.append(
                    ExecutionDeploymentOption(vertex, subtasks, self._graph.vertices[vertex].newest[subtasks])
                )
        if options:
            self._deploy(options)

    @property
    def has_candidates(self) -> bool:
        """Whether :meth:`schedule` has anything to look at."""
        return bool(self._candidates)

    def candidates(self, vertex: int) -> Mask:
        """Which subtasks are looked at again with the next event."""
        none = np.zeros(self._graph.vertices[vertex].parallelism, np.bool_)
        return self._candidates.get(vertex, none)

    def _deployable(self, vertex_id: int, subtasks: Ints) -> Ints:
        vertex = self._graph.vertices[vertex_id]
        able = (vertex.states[subtasks] == ExecutionState.CREATED) & ~vertex.held[subtasks]
        for edge in vertex.inputs:
            able &= edge.ready(subtasks)
        if not vertex.job.supports_concurrent_attempts:
            able &= ~vertex.has_pending_prior(subtasks)
        return subtasks[able]

    def _add(self, vertex: int, subtasks: Ints) -> None:
        if vertex not in self._candidates:
            self._candidates[vertex] = np.zeros(self._graph.vertices[vertex].parallelism, np.bool_)
        self._candidates[vertex][subtasks] = True
