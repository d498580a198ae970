"""VertexwiseSchedulingStrategy (FLIP-187): deploys single executions whose inputs are all there, in topological order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from firesteel.model.arrays import Ints, union
from firesteel.scheduler.deployment.gathering import Gathering
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.slots.allocators import DeploymentOption, ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.groups import EdgeGroups, Mask

Deploy = Callable[[list[DeploymentOption]], list[tuple[int, Ints]]]
"""Returns what got no slot: vertex and subtasks."""


class SchedulingStrategy(Protocol):
    def on_partitions_available(self, complete: Iterable[tuple[EdgeGroups, Ints]]) -> None:
        """The consumers of these groups may be able to run now."""
        ...

    def restart_tasks(self, tasks: Mapping[int, Ints]) -> None:
        """Subtasks that were reset, whose delay is over, whose earlier attempt is gone, or whose input is ready."""
        ...

    def schedule(self) -> None:
        """Deploy everything that was told of and can run."""
        ...

    @property
    def has_candidates(self) -> bool:
        """Returns whether :meth:`schedule` has anything to look at."""
        ...

    def candidates(self, vertex: int) -> Mask:
        """Returns a mask of the vertex' subtasks: True for those that are looked at again with the next event."""
        ...


class VertexwiseSchedulingStrategy:
    """Candidates are the consumers of what finished and everything newly added to the topology.

    The newly added must be candidates too: when A1 finishes before B1 exists, nothing else would ever look at B1.
    """

    def __init__(
        self, graph: DefaultExecutionGraph, readiness: Readiness, deploy: Deploy, gathering: Gathering
    ) -> None:
        self._graph = graph
        self._readiness = readiness
        self._deploy = deploy
        self._gathering = gathering
        self._candidates: dict[int, list[Ints]] = {}
        graph.add_listener(self)

    def notify_scheduling_topology_updated(self, graph: DefaultExecutionGraph, new_vertices: Sequence[int]) -> None:
        self.restart_tasks({vertex: np.arange(graph.vertices[vertex].parallelism) for vertex in new_vertices})

    def on_partitions_available(self, complete: Iterable[tuple[EdgeGroups, Ints]]) -> None:
        for edge, groups in complete:
            if len(groups):
                self.restart_tasks({edge.vertex: edge.consumers(groups)})

    def restart_tasks(self, tasks: Mapping[int, Ints]) -> None:
        for vertex, subtasks in tasks.items():
            self._candidates.setdefault(vertex, []).append(subtasks)

    def schedule(self) -> None:
        """Deploy every candidate that can run. One that cannot becomes a candidate again with its last input.

        Those that are gathered, or got no slot, stay candidates: every event looks at them again.
        """
        candidates, self._candidates = self._candidates, {}
        options: list[DeploymentOption] = []
        for vertex in sorted(candidates):
            if self._gathering.holds((vertex,)):
                self._candidates[vertex] = candidates[vertex]
                continue
            subtasks = union(candidates[vertex])
            subtasks = subtasks[self._readiness.deployable(vertex, subtasks)]
            if len(subtasks):
                self._gathering.deployed((vertex,))
                rows = self._graph.vertices[vertex].newest[subtasks]
                options.append(ExecutionDeploymentOption(vertex, subtasks, rows))
        for vertex, subtasks in self._deploy(options) if options else ():
            self.restart_tasks({vertex: subtasks})

    @property
    def has_candidates(self) -> bool:
        return bool(self._candidates)

    def candidates(self, vertex: int) -> Mask:
        chosen = np.zeros(self._graph.vertices[vertex].parallelism, np.bool_)
        for subtasks in self._candidates.get(vertex, []):
            chosen[subtasks] = True
        return chosen
