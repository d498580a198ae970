"""Deploys whole regions whose inputs from outside are all there, and that get slots (Flink: PipelinedRegionSchedulingStrategy and
DefaultExecutionDeployer). Where nothing is pipelined, a region is one execution (VertexwiseSchedulingStrategy).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firesteel.model.arrays import Ints, distinct, is_ascending, union, without
from firesteel.scheduler.deployment.longest_first import LongestFirst
from firesteel.scheduler.deployment.readiness import deployable_regions
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import DeployRegions, Placement
from firesteel.scheduler.kernel.waits import Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.allocators import DeploymentOption, ExecutionDeploymentOption, RegionDeploymentOption
from firesteel.scheduler.topology.groups import EdgeGroups, Mask
from firesteel.scheduler.topology.regions import RegionBlock
from firesteel.scheduler.waiting import vertex_waits

GATHER_SECONDS = 0.1
"""A pointwise vertex is deployed at once, and then at most once in this time as long as more of it is to come: launching a Spark job
is dear, a short wait is not."""
_PREFIX = "gather-"


class Deployment(Policy):
    """Candidates (``Job.candidates``) are regions: all that are newly initialised, then those that read what has become available, or were
    restarted. The newly initialised must be candidates too: when A1 finishes before B1 exists, nothing else would ever look at B1.

    Regions are deployed in topological order; like ones, of the same vertices, by one command.
    """

    def __init__(self, job: Job, slots_at_start: Callable[[int], int]) -> None:
        """``slots_at_start``: tasks of a vertex that could run at once when the job began."""
        self._job = job
        self._graph = job.graph
        self._order = LongestFirst(job.graph, job.inputs.costs, slots_at_start).order
        self._gathered_until: dict[int, float] = {}

    def initialized(self, vertices: Sequence[int]) -> None:
        for vertex in vertices:
            block = self._graph.regions.block(vertex)
            self._job.candidates[block.number] = [np.arange(block.count)]

    def ask(self) -> None:
        """Deploy every candidate whose members can all run. One that cannot becomes a candidate again with its last input.

        Those that are gathered, or got no slots, stay candidates: every event looks at them again.
        """
        job = self._job
        candidates, job.candidates = job.candidates, {}
        options: list[DeploymentOption] = []
        for number in sorted(candidates):
            block = self._graph.regions.blocks[number]
            if self._is_gathered(block.vertices):
                job.candidates[number] = candidates[number]
                continue
            regions = deployable_regions(self._graph, block, union(candidates[number]))
            if len(regions):
                self._begin_to_gather(block.vertices)
                options += self._options(block, regions)
        for option in self._order(options) if options else ():
            self._deploy(option)

    def act(self) -> None:
        slots, again = self._job.slots, True
        while again:
            slots.begin_round()
            for ask in self._job.hooks.ask:
                ask()
            again = slots.end_round()

    def job_ends(self) -> None:
        self._job.descriptors.drop_all()

    def waiting_for(self) -> list[Wait]:
        return vertex_waits(self._job)

    def validate(self) -> None:
        for vertex in self._graph.vertices if self._job.is_active else ():
            if vertex.is_initialized and vertex.ranges is not None:
                block = self._graph.regions.block(vertex.id)
                able = deployable_regions(self._graph, block, np.arange(block.count))
                ready = np.isin(block.of(vertex.id, np.arange(vertex.parallelism)), able) & ~self._candidates(vertex.id)
                assert not ready.any(), (
                    f"vertex {vertex.id}: subtasks {np.flatnonzero(ready)} could run and are not scheduled"
                )

    def _candidates(self, vertex: int) -> Mask:
        """Returns a mask of the vertex' subtasks: True for those that are looked at again with the next event."""
        block = self._graph.regions.block(vertex)
        chosen = np.zeros(block.count, np.bool_)
        for regions in self._job.candidates.get(block.number, []):
            chosen[regions] = True
        return chosen[block.of(vertex, np.arange(block.parallelism[vertex]))]

    # --- what is asked for -------------------------------------------------------------------------------------

    def _options(self, block: RegionBlock, regions: Ints) -> list[DeploymentOption]:
        if block.kinds is None:
            return [self._option(block, regions)]
        kinds = block.kinds[regions]
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

    def _deploy(self, option: DeploymentOption) -> None:
        """What gets no slot stays as it is, a candidate."""
        if isinstance(option, RegionDeploymentOption):
            asked, granted = option.parts[0], self._deploy_regions(option)
        else:
            asked, granted = option, self._job.slots.allocate_slots_for(option)
            if len(granted.executions):
                self._job.recorder.emit(self._job.deploy(granted, self._placement(granted)))
        if len(granted.subtasks) < len(asked.subtasks):
            self._job.may_run({asked.vertex: without(_ascending(asked.subtasks), _ascending(granted.subtasks))})

    def _deploy_regions(self, option: RegionDeploymentOption) -> ExecutionDeploymentOption:
        """Returns the first part of the regions that got slots."""
        granted = self._job.slots.allocate_slots_for_regions(option)
        if len(granted.parts[0].executions):
            parts = tuple(self._job.deploy(part, self._placement(part)) for part in granted.parts)
            self._job.recorder.emit(DeployRegions(parts))
        return granted.parts[0]

    def _placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        found = [placement(option) for placement in self._job.hooks.placement]
        return found[0] if found else None

    # --- single consumers that become ready one after another are gathered ---------------------------------------

    def _is_gathered(self, vertices: tuple[int, ...]) -> bool:
        """Returns whether executions that become ready of these vertices, which are deployed together, have to wait; sets a timer then.

        O(inputs): asked at each event.
        """
        job, until = self._job, self._gathered_until.get(vertices[0])
        if until is None or job.recorder.at >= until:
            return False
        results = (self._graph.result(edge.dataset) for edge in self._edges(vertices))
        if all(self._graph.vertices[result.dataset.producer].is_finished for result in results):
            return False  # nothing more is to come
        timer = f"{_PREFIX}{vertices[0]}"
        if job.timers.when(timer) is None:
            job.timers.set(timer, until, lambda: None)  # after any event all candidates are looked at
        return True

    def _begin_to_gather(self, vertices: tuple[int, ...]) -> None:
        """Notes a deployment: executions of these vertices that become ready within the next moment are deployed together."""
        edges = self._edges(vertices)
        # Who waits for all of an input anyway has nothing that comes one by one.
        if edges and all(len(edge) > 1 for edge in edges):
            self._gathered_until[vertices[0]] = self._job.recorder.at + GATHER_SECONDS

    def _edges(self, vertices: tuple[int, ...]) -> list[EdgeGroups]:
        """Inputs that have to be there before."""
        return [edge for vertex in vertices for edge in self._graph.vertices[vertex].inputs if not edge.inside]


def _ascending(subtasks: Ints) -> Ints:
    """The same, sorted: most are already."""
    return subtasks if is_ascending(subtasks) else np.sort(subtasks)
