"""How the execution graph grows: as results finish (FLIP-187: AdaptiveBatchScheduler), or all of it at the start (DefaultScheduler)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from firesteel.model.job_graph import DistributionPattern, JobGraph, JobVertex, ShipStrategy
from firesteel.model.pipelined_region import fed_while_running
from firesteel.options import DEFAULT_SOURCE_PARALLELISM, PARALLELISM_DEFAULT
from firesteel.scheduler.job import Job
from firesteel.scheduler.joins.joins import Joins
from firesteel.scheduler.kernel.decisions import PipelinedRegions
from firesteel.scheduler.kernel.events import Event, FailureCause, FailureKind, SizesLoaded
from firesteel.scheduler.parallelism.bounds import global_maximum
from firesteel.scheduler.parallelism.model import Bounds, SlotBound
from firesteel.scheduler.parallelism.planning import NO_SPLITS, Parallelisms, Planner, UndecidableVertex
from firesteel.scheduler.parallelism.source import decide_source
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.topology.execution_graph import VertexInitialization
from firesteel.scheduler.topology.regions import RegionBlock
from firesteel.scheduler.two_steps import TwoSteps


class Growth(Policy):
    """Vertices are decided and initialised."""

    answers: ClassVar[Mapping[type[Event], str]] = {SizesLoaded: "sizes_loaded"}

    def __init__(self, job: Job, usable: UsableSlots) -> None:
        self._job = job
        self._graph = job.graph
        self._parallelisms = Parallelisms(job, usable.at_start, usable.bound)
        self.planner = Planner(job, self._subpartition_counts())

    def act(self) -> None:
        job = self._job
        try:
            new = self._grow()
        except UndecidableVertex as error:
            cause = FailureCause(FailureKind.FATAL, error.message, trace=error.cause_trace, hint=error.hint)
            job.fail(cause, error.vertex)
            return
        if new:
            self._graph.make_regions(new)
            for initialized in job.hooks.initialized:
                initialized(new)
            self._record_regions(new)

    def sizes_loaded(self, event: SizesLoaded) -> None:
        self.planner.sizes_loaded(event)

    def _grow(self) -> list[int]:
        """Initialise every vertex that can be; returns their ids. Raises UndecidableVertex."""
        raise NotImplementedError

    def _subpartition_counts(self) -> SubpartitionCounts:
        """As far as the parallelism of consumers is known beforehand."""
        raise NotImplementedError

    def _record_regions(self, vertices: list[int]) -> None:
        """How many pipelined regions there are, and why. Of a vertex alone in its region there is nothing to say."""
        blocks = {block.number: block for block in map(self._graph.regions.block, vertices) if len(block.vertices) > 1}
        for _, block in sorted(blocks.items()):
            all_to_all = _has_all_to_all(self._graph.job_graph, block)
            self._job.recorder.decision(
                "pipelined regions",
                vertex=block.vertices[0],
                name=self._graph.vertices[block.vertices[0]].job.name,
                inputs=PipelinedRegions(vertices=list(block.vertices), subtasks=int(block.sizes().sum())),
                rule="an all-to-all edge inside" if all_to_all else "pointwise edges inside",
                result=block.count,
            )


class AdaptiveGrowth(Growth):
    """A vertex is decided when all results it consumes are finished, and initialised at once.

    One whose parallelism its forward group has decided and that consumes by FORWARD edges only is initialised with
    its producers: it reads one partition per subtask, so there is nothing to wait for but that partition.
    """

    def __init__(self, job: Job, usable: UsableSlots, joins: Joins | None) -> None:
        """Raises UsageError when a vertex' bounds exclude each other: better now than after hours."""
        super().__init__(job, usable)
        for vertex in job.graph.job_graph.vertices:
            self._parallelisms.bounds(vertex)
        self._joins = joins
        self._two_steps = TwoSteps(job, self.planner, self._parallelisms.bounds, self._puts_off)

    def _puts_off(self, vertex: int) -> bool:
        return self._joins is not None and self._joins.puts_off(vertex)

    def _grow(self) -> list[int]:
        new: list[int] = []
        self._two_steps.consider()
        if self._joins is not None:
            self._joins.consider()
        for vertex in self._graph.vertices:  # in topological order
            if vertex.is_initialized or vertex.is_absorbed or not self._graph.upstream_initialized(vertex):
                continue
            if self._puts_off(vertex.id):
                continue
            if self._two_steps.settles(vertex.id):
                if self._joins is not None:
                    self._joins.consider()  # those that waited for that
                continue
            plan = self._decide(vertex.job)
            if plan is not None:
                self._parallelisms.decide(vertex.id, plan.parallelism)
                self.planner.initialize(plan)
                new.append(vertex.id)
        return new

    def _decide(self, job: JobVertex) -> VertexInitialization | None:
        bounds = self._parallelisms.bounds
        if not job.inputs or job.source is not None:
            return self.planner.source(job, bounds(job))
        if self._graph.inputs_available(self._graph.vertices[job.id]):
            own = bounds(job)
            return self.planner.decided(job, own) if self.planner.knows_sizes(job, own) else None
        if self._parallelisms.known(job.id) is not None and self._reads_forward_only(job):
            return self.planner.by_count(job, replace(bounds(job), fixed_rule="forward group"))
        return None

    def _reads_forward_only(self, job: JobVertex) -> bool:
        return all(self._graph.job_graph.datasets[edge.dataset].ship is ShipStrategy.FORWARD for edge in job.inputs)

    def _subpartition_counts(self) -> SubpartitionCounts:
        known, options = self._parallelisms, self._job.options
        top, _ = global_maximum(options)

        def maximum(vertex: JobVertex) -> int:
            own = known.maximum(vertex.id)
            return top if own is None else min(top, own)

        return SubpartitionCounts(self._graph.job_graph, options, lambda vertex: known.known(vertex.id), maximum)


class StaticGrowth(Growth):
    """A parallelism is the user's (or the forward group's), else ``parallelism.default``, else what a source infers,
    else 1. Pointwise inputs are cut by count at the start, so that single blocks can go ahead; a vertex with any
    all-to-all input must wait for all of it anyway, and is cut by the chosen cut once the sizes are known. One that
    runs together with a producer of its own cannot wait: all its inputs are cut by count.
    """

    def __init__(self, job: Job, usable: UsableSlots) -> None:
        super().__init__(job, usable)
        self._fed_while_running = fed_while_running(job.graph.job_graph)

    def _grow(self) -> list[int]:
        new = [self._initialize(vertex.job) for vertex in self._graph.vertices if not vertex.is_initialized]
        for vertex in self._graph.vertices:
            if vertex.ranges is None and self._graph.inputs_available(vertex):
                bounds = self._bounds(vertex.job)
                if self.planner.knows_sizes(vertex.job, bounds):
                    plan = self.planner.ranges(vertex.job, bounds)
                    self._graph.assign_inputs(vertex, plan.ranges, plan.input_bytes)
                    # It may have been looked at while its sizes were on their way.
                    self._job.may_run({vertex.id: np.arange(vertex.parallelism)})
        return new

    def _initialize(self, job: JobVertex) -> int:
        plan = self._plan(job, self._bounds(job))
        self._parallelisms.decide(job.id, plan.parallelism)
        self.planner.initialize(plan)
        return job.id

    def _plan(self, job: JobVertex, bounds: Bounds) -> VertexInitialization:
        if not job.inputs or job.source is not None:
            return self.planner.source(job, bounds)
        patterns = {self._graph.job_graph.datasets[edge.dataset].ship.pattern for edge in job.inputs}
        if patterns == {DistributionPattern.POINTWISE} or job.id in self._fed_while_running:
            return self.planner.by_count(job, bounds)
        return self.planner.undecided_inputs(job, self._known_parallelism(job))

    def _bounds(self, job: JobVertex) -> Bounds:
        # Costs order deployments: they decide no parallelism.
        bounds = replace(self._parallelisms.bounds(job), cost=None)
        return bounds if bounds.fixed is not None else replace(bounds, fixed=self._known_parallelism(job))

    def _known_parallelism(self, vertex: JobVertex) -> int:
        known = self._parallelisms.known(vertex.id)
        if known is None:
            leader = self._parallelisms.leader(vertex.id)
            known = self._decide_beforehand(self._graph.job_graph.vertices[leader])
            self._parallelisms.decide(vertex.id, known)
        return known

    def _decide_beforehand(self, vertex: JobVertex) -> int:
        options = self._job.options
        maximum, default = self._parallelisms.maximum(vertex.id), options[PARALLELISM_DEFAULT]
        if default is not None:
            return default if maximum is None else min(default, maximum)
        if vertex.inputs and vertex.source is None:
            return 1
        bounds = replace(self._parallelisms.bounds(vertex), vertex_maximum=maximum, cost=None)
        return decide_source(vertex.source or NO_SPLITS, bounds, options[DEFAULT_SOURCE_PARALLELISM]).parallelism

    def _subpartition_counts(self) -> SubpartitionCounts:
        known = self._known_parallelism
        return SubpartitionCounts(self._graph.job_graph, self._job.options, known, known)


def _has_all_to_all(job_graph: JobGraph, block: RegionBlock) -> bool:
    inputs = [edge for vertex in block.vertices for edge in job_graph.vertices[vertex].inputs]
    inside = [d for d in (job_graph.datasets[e.dataset] for e in inputs) if d.producer in block.vertices]
    return any(dataset.ship.pattern is DistributionPattern.ALL_TO_ALL for dataset in inside)


class UsableSlots:
    def __init__(self, job: Job) -> None:
        self._job = job

    def at_start(self, vertex: int) -> int:
        """Of the cluster when the job began; where the vertex' group has resources, those that it can get now."""
        return self._of_pool(vertex) or self._job.inputs.slots

    def bound(self, vertex: int) -> SlotBound | None:
        """All that the vertex' group can get now; None: nobody knows, or there are none."""
        job, count = self._job, self._of_pool(vertex)
        if count is None and job.nodes.is_told:
            count = sum(n for node, n in job.nodes.slots.items() if node not in job.blocklist.avoided)
        count = job.inputs.slots if count is None else count
        return SlotBound(count, job.graph.job_graph.vertices[vertex].slot_sharing_group) if count else None

    def _of_pool(self, vertex: int) -> int | None:
        """None: a slot is one of Spark's own, or no worker is known."""
        pool = self._job.slots
        return pool.slots_at_once(vertex) if isinstance(pool, SlotPool) and pool.workers.is_told else None
