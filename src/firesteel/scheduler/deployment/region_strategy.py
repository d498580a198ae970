"""PipelinedRegionSchedulingStrategy: deploys whole regions whose inputs from outside are all there (the default scheduler)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from firesteel.model.arrays import Ints, distinct, union
from firesteel.scheduler.deployment.gathering import Gathering
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.deployment.vertexwise_strategy import Deploy
from firesteel.scheduler.slots.allocators import DeploymentOption, ExecutionDeploymentOption, RegionDeploymentOption
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.groups import EdgeGroups, Mask
from firesteel.scheduler.topology.regions import RegionBlock


class PipelinedRegionSchedulingStrategy:
    """Candidates are regions: all at the start, then those that read what has become available, or were restarted.

    Regions are deployed in topological order; like ones, of the same vertices, by one command.
    """

    def __init__(
        self, graph: DefaultExecutionGraph, readiness: Readiness, deploy: Deploy, gathering: Gathering
    ) -> None:
        self._graph = graph
        self._readiness = readiness
        self._deploy = deploy
        self._gathering = gathering
        self._candidates: dict[int, list[Ints]] = {}
        """By number of the block, which is its place in topological order."""
        graph.add_listener(self)

    def notify_scheduling_topology_updated(self, graph: DefaultExecutionGraph, new_vertices: Sequence[int]) -> None:
        for vertex in new_vertices:
            block = graph.regions.block(vertex)
            self._candidates[block.number] = [np.arange(block.count)]

    def on_partitions_available(self, complete: Iterable[tuple[EdgeGroups, Ints]]) -> None:
        for edge, groups in complete:
            # What the only region of a block makes for itself is not news to it, and it is large.
            waits = not edge.inside or self._graph.regions.block(edge.vertex).count > 1
            if len(groups) and waits:
                self.restart_tasks({edge.vertex: edge.consumers(groups)})

    def restart_tasks(self, tasks: Mapping[int, Ints]) -> None:
        for vertex, subtasks in tasks.items():
            block = self._graph.regions.block(vertex)
            regions = block.of(vertex, subtasks)
            self._candidates.setdefault(block.number, []).append(regions if block.is_trivial else distinct(regions))

    def schedule(self) -> None:
        """Deploy every candidate whose members can all run. One that cannot becomes a candidate again with its last input.

        Those that are gathered, or got no slots, stay candidates: every event looks at them again.
        """
        candidates, self._candidates = self._candidates, {}
        options: list[DeploymentOption] = []
        for number in sorted(candidates):
            block = self._graph.regions.blocks[number]
            if self._gathering.holds(block.vertices):
                self._candidates[number] = candidates[number]
                continue
            regions = self._readiness.deployable_regions(block, union(candidates[number]))
            if len(regions):
                self._gathering.deployed(block.vertices)
                options += self._options(block, regions)
        for vertex, subtasks in self._deploy(options) if options else ():
            self.restart_tasks({vertex: subtasks})

    @property
    def has_candidates(self) -> bool:
        return bool(self._candidates)

    def candidates(self, vertex: int) -> Mask:
        block = self._graph.regions.block(vertex)
        chosen = np.zeros(block.count, np.bool_)
        for regions in self._candidates.get(block.number, []):
            chosen[regions] = True
        return chosen[block.of(vertex, np.arange(block.parallelism[vertex]))]

    def _options(self, block: RegionBlock, regions: Ints) -> list[DeploymentOption]:
        kinds = np.zeros(len(regions), np.int64) if block.kinds is None else block.kinds[regions]
        return [self._option(block, regions[kinds == kind]) for kind in distinct(kinds).tolist()]

    def _option(self, block: RegionBlock, regions: Ints) -> DeploymentOption:
        """Of regions in which the same vertices take part."""
        parts = tuple(
            ExecutionDeploymentOption(vertex, subtasks, self._graph.vertices[vertex].newest[subtasks])
            for vertex, subtasks in block.members(regions).items()
        )
        if len(parts) == 1:
            return parts[0]
        return RegionDeploymentOption(parts, tuple(block.of(part.vertex, part.subtasks) for part in parts))
