"""DefaultScheduler: every parallelism is known beforehand, and the whole graph is there from the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from firesteel.model.job_graph import DistributionPattern, JobGraph, JobVertex
from firesteel.model.pipelined_region import fed_while_running
from firesteel.model.steps.costs import NO_COSTS, StepCosts
from firesteel.options import DEFAULT_SOURCE_PARALLELISM, PARALLELISM_DEFAULT, Options
from firesteel.scheduler.deployment.region_strategy import PipelinedRegionSchedulingStrategy
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.kernel.profiler import NO_PROFILER, Profiler
from firesteel.scheduler.parallelism.model import Bounds
from firesteel.scheduler.parallelism.planning import NO_SPLITS, NOTHING_PINNED
from firesteel.scheduler.parallelism.source import decide_source
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.recovery.side_inputs import DIRECT, DirectInputs
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.allocators import MakeAllocator, grant_all
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.topology.execution_graph import VertexInitialization


class DefaultScheduler(Scheduler):
    """A parallelism is the user's (or the forward group's), else ``parallelism.default``, else what a source infers,
    else 1. Pointwise inputs are cut by count at the start, so that single blocks can go ahead; a vertex with any
    all-to-all input must wait for all of it anyway, and is cut by the chosen cut once the sizes are known. One that
    runs together with a producer of its own cannot wait: all its inputs are cut by count.
    """

    strategy_class = PipelinedRegionSchedulingStrategy

    def __init__(
        self,
        job_graph: JobGraph,
        options: Options,
        allocator: MakeAllocator = grant_all,
        slots: int = 1,
        detector: SlowTaskDetector | None = None,
        *,
        request_seconds: Callable[[], float | None] = lambda: None,
        task_memory: Callable[[], float | None] = lambda: None,
        profiler: Profiler = NO_PROFILER,
        costs: StepCosts = NO_COSTS,
        size_buffer_bytes: int = BUFFER_BYTES,
        side_inputs: DirectInputs = DIRECT,
        pinned: Mapping[int, int] = NOTHING_PINNED,
    ) -> None:
        super().__init__(
            job_graph,
            options,
            allocator,
            slots,
            detector,
            request_seconds=request_seconds,
            task_memory=task_memory,
            profiler=profiler,
            costs=costs,
            size_buffer_bytes=size_buffer_bytes,
            side_inputs=side_inputs,
            pinned=pinned,
        )
        self._fed_while_running = fed_while_running(job_graph)

    def _grow(self) -> list[int]:
        new = [self._initialize(vertex.job) for vertex in self.graph.vertices if not vertex.is_initialized]
        for vertex in self.graph.vertices:
            if vertex.ranges is None and self.graph.inputs_available(vertex):
                bounds = self._bounds(vertex.job)
                if self.planner.knows_sizes(vertex.job, bounds):
                    plan = self.planner.ranges(vertex.job, bounds)
                    self.graph.assign_inputs(vertex, plan.ranges, plan.input_bytes)
                    # It may have been looked at while its sizes were on their way.
                    self.strategy.restart_tasks({vertex.id: np.arange(vertex.parallelism)})
        return new

    def _initialize(self, job: JobVertex) -> int:
        plan = self._plan(job, self._bounds(job))
        self.parallelisms.decide(job.id, plan.parallelism)
        self.planner.initialize(plan)
        return job.id

    def _plan(self, job: JobVertex, bounds: Bounds) -> VertexInitialization:
        if not job.inputs or job.source is not None:
            return self.planner.source(job, bounds)
        patterns = {self.job_graph.datasets[edge.dataset].ship.pattern for edge in job.inputs}
        if patterns == {DistributionPattern.POINTWISE} or job.id in self._fed_while_running:
            return self.planner.by_count(job, bounds)
        return self.planner.undecided_inputs(job, self._known_parallelism(job))

    def _bounds(self, job: JobVertex) -> Bounds:
        bounds = replace(
            self.parallelisms.bounds(job), cost=None
        )  # costs order deployments: they decide no parallelism
        return bounds if bounds.fixed is not None else replace(bounds, fixed=self._known_parallelism(job))

    def _known_parallelism(self, vertex: JobVertex) -> int:
        known = self.parallelisms.known(vertex.id)
        if known is None:
            known = self._decide_beforehand(self.job_graph.vertices[self.parallelisms.leader(vertex.id)])
            self.parallelisms.decide(vertex.id, known)
        return known

    def _decide_beforehand(self, vertex: JobVertex) -> int:
        maximum = self.parallelisms.maximum(vertex.id)
        default = self.options[PARALLELISM_DEFAULT]
        if default is not None:
            return default if maximum is None else min(default, maximum)
        if vertex.inputs and vertex.source is None:
            return 1
        bounds = replace(self.parallelisms.bounds(vertex), vertex_maximum=maximum, cost=None)
        return decide_source(vertex.source or NO_SPLITS, bounds, self.options[DEFAULT_SOURCE_PARALLELISM]).parallelism

    def _subpartition_counts(self) -> SubpartitionCounts:
        return SubpartitionCounts(self.job_graph, self.options, self._known_parallelism, self._known_parallelism)
