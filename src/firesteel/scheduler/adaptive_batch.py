"""AdaptiveBatchScheduler (FLIP-187): the graph starts empty and grows as results finish and vertices are decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from firesteel.model.job_graph import JobGraph, JobVertex, ShipStrategy
from firesteel.model.steps.costs import NO_COSTS, StepCosts
from firesteel.options import (
    ADAPTIVE_JOINS,
    DATA_VOLUME_PER_TASK,
    RUNTIME_FILTER,
    RUNTIME_FILTER_MAX_BUILD,
    RUNTIME_FILTER_MIN_PROBE,
    Options,
)
from firesteel.scheduler.deployment.vertexwise_strategy import VertexwiseSchedulingStrategy
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.joins.adaptive import AdaptiveJoins
from firesteel.scheduler.joins.estimates import Estimates
from firesteel.scheduler.joins.planning import JoinPlanning, Joins, NoJoins
from firesteel.scheduler.joins.runtime_filters import FilterLimits, NoFilters, RuntimeFilters
from firesteel.scheduler.joins.waits import Waits
from firesteel.scheduler.kernel.profiler import NO_PROFILER, Profiler
from firesteel.scheduler.parallelism.bounds import global_maximum
from firesteel.scheduler.parallelism.planning import NOTHING_PINNED
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.recovery.side_inputs import DIRECT, DirectInputs
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.allocators import MakeAllocator, grant_all
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.usable import UsableSlots
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.topology.execution_graph import VertexInitialization
from firesteel.scheduler.two_steps import TwoSteps


class AdaptiveBatchScheduler(Scheduler):
    """A vertex is decided when all results it consumes are finished, and initialised at once.

    One whose parallelism its forward group has decided and that consumes by FORWARD edges only is initialised with
    its producers: it reads one partition per subtask, so there is nothing to wait for but that partition.
    """

    strategy_class = VertexwiseSchedulingStrategy

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
        cold_start: float = 0.0,
        size_buffer_bytes: int = BUFFER_BYTES,
        side_inputs: DirectInputs = DIRECT,
        pinned: Mapping[int, int] = NOTHING_PINNED,
    ) -> None:
        """``cold_start``: as ``joins.waits`` takes it. Raises UsageError when a vertex' bounds exclude each other: better now than after hours."""
        self._cold_start = cold_start
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
        for vertex in job_graph.vertices:
            self.parallelisms.bounds(vertex)
        self._two_steps = TwoSteps(
            self.graph, self.planner, self.recorder, bounds=self.parallelisms.bounds, puts_off=self.joins.puts_off
        )

    def _adaptive_joins(self, usable: UsableSlots, task_memory: Callable[[], float | None], costs: StepCosts) -> Joins:
        options = self.options
        if not (options[ADAPTIVE_JOINS] or options[RUNTIME_FILTER]):
            return NoJoins()

        def slots_of(vertex: int) -> int | None:
            bound = None if isinstance(self.allocator, SlotPool) else usable.bound(vertex)
            return None if bound is None else bound.count

        graph, recorder = self.graph, self.recorder
        waits = Waits(
            graph,
            recorder,
            self.timers,
            slots_of=slots_of,
            pending=lambda: self.executions.num_pending,
            cold_start=self._cold_start,
        )
        adaptive, filters, estimates = None, NoFilters(), Estimates(graph, costs)
        if options[ADAPTIVE_JOINS]:
            volume = options[DATA_VOLUME_PER_TASK]
            adaptive = AdaptiveJoins(graph, recorder, waits, estimates, memory=task_memory, volume=volume)
        if options[RUNTIME_FILTER]:
            describe = self.deployment.descriptors.gate
            limits = FilterLimits(options[RUNTIME_FILTER_MAX_BUILD], options[RUNTIME_FILTER_MIN_PROBE])
            filters = RuntimeFilters(graph, recorder, waits, estimates, describe=describe, limits=limits)
        return JoinPlanning(waits, adaptive, filters)

    def _grow(self) -> list[int]:
        new: list[int] = []
        self._two_steps.consider()
        self.joins.consider()
        for vertex in self.graph.vertices:  # in topological order
            if vertex.is_initialized or vertex.is_absorbed or not self.graph.upstream_initialized(vertex):
                continue
            if self.joins.puts_off(vertex.id):
                continue
            if self._two_steps.settles(vertex.id):
                self.joins.consider()  # those that waited for that
                continue
            plan = self._decide(vertex.job)
            if plan is not None:
                self.parallelisms.decide(vertex.id, plan.parallelism)
                self.planner.initialize(plan)
                new.append(vertex.id)
        return new

    def _decide(self, job: JobVertex) -> VertexInitialization | None:
        if not job.inputs or job.source is not None:
            return self.planner.source(job, self.parallelisms.bounds(job))
        if self.graph.inputs_available(self.graph.vertices[job.id]):
            bounds = self.parallelisms.bounds(job)
            return self.planner.decided(job, bounds) if self.planner.knows_sizes(job, bounds) else None
        if self.parallelisms.known(job.id) is not None and self._reads_forward_only(job):
            bounds = self.parallelisms.bounds(job)
            return self.planner.by_count(job, replace(bounds, fixed_rule="forward group"))
        return None

    def _reads_forward_only(self, job: JobVertex) -> bool:
        return all(self.job_graph.datasets[edge.dataset].ship is ShipStrategy.FORWARD for edge in job.inputs)

    def _known_parallelism(self, vertex: JobVertex) -> int | None:
        return self.parallelisms.known(vertex.id)

    def _subpartition_counts(self) -> SubpartitionCounts:
        top, _ = global_maximum(self.options)

        def maximum(vertex: JobVertex) -> int:
            own = self.parallelisms.maximum(vertex.id)
            return top if own is None else min(top, own)

        return SubpartitionCounts(self.job_graph, self.options, self._known_parallelism, maximum)
