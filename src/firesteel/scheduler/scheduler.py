"""The scheduler: ``handle(event) -> commands``. No I/O, no clock: the same events give the same commands, always.

Composition: a graph, a deployment whose strategy says what may run, a failure handler, a release strategy, coordinators and a
slot allocator. How the graph grows is the one thing that the adaptive batch and the default scheduler do differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from firesteel.errors import FiresteelError
from firesteel.humanize import plural
from firesteel.model.job_graph import JobGraph
from firesteel.model.steps.costs import NO_COSTS, StepCosts
from firesteel.options import Options
from firesteel.scheduler.deployment.deployment import SchedulingStrategyClass, deployment_of
from firesteel.scheduler.deployment.longest_first import LongestFirst
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.exchange.release import release_strategy
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.execution_events import ExecutionEvents
from firesteel.scheduler.failover.failure_handler import ExecutionFailureHandler
from firesteel.scheduler.invariants import validate
from firesteel.scheduler.joins.planning import Joins, NoJoins
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import Command, JobStatus, Placement
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.profiler import NO_PROFILER, InPhase, Profiler, SchedulingPhase
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.parallelism.planning import NOTHING_PINNED, Parallelisms, Planner, UndecidableVertex
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.recovery.side_inputs import DIRECT, DirectInputs
from firesteel.scheduler.sink_committer import SinkCommitter
from firesteel.scheduler.slots.allocators import AllocatorContext, ExecutionDeploymentOption, MakeAllocator, grant_all
from firesteel.scheduler.slots.fine_grained import fine_grained_resources
from firesteel.scheduler.slots.usable import UsableSlots
from firesteel.scheduler.speculation.blocklist import Blocklist
from firesteel.scheduler.speculation.default_handler import speculative_execution_handler
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.executions import ExecutionTable
from firesteel.scheduler.topology.nodes import Nodes
from firesteel.scheduler.topology.operations import ExecutionOperations
from firesteel.scheduler.topology.region_records import record_regions
from firesteel.scheduler.waiting import Waits, waiting_for


class Scheduler(ABC):
    """One job. Feed it every event in the order of arrival; carry out the commands in the order given.

    The first event is JobStarted, the last command a JobStatusChanged to a terminal status; what comes later is ignored.
    """

    strategy_class: ClassVar[SchedulingStrategyClass]

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
        """``allocator``: makes the slot allocator. ``detector``: tells of slow executions, which then get mirrors; None: there are
        none. ``request_seconds``: as ``Merging`` takes it. ``task_memory``: gives the bytes
        that a task may use for its data; None: not known yet. ``profiler``: told of the phases it goes
        through. ``costs``: of steps, as earlier runs measured them. ``size_buffer_bytes``: as ``DefaultExecutionGraph`` takes it.
        ``side_inputs``: through which it asks the user's functions, and for numbers that are known late. ``pinned``: vertices that are to
        be as parallel as they were before."""
        self.job_graph = job_graph = job_graph.copy()  # it may change while the job runs
        self.options = options
        self._profiler = profiler
        # The job's state.
        recorder = self.recorder = Recorder()
        timers = self.timers = Timers(recorder)
        self.executions = ExecutionTable(recorder.story, len(job_graph.vertices))
        graph = self.graph = DefaultExecutionGraph(
            job_graph, self.executions, recorder.emit, profiler=profiler, size_buffer_bytes=size_buffer_bytes
        )
        self.nodes = Nodes()
        blocklist = Blocklist(self.nodes, recorder, timers)
        self.allocator = allocator(AllocatorContext(self.executions, self.nodes, lambda: blocklist.avoided, recorder))
        operations = ExecutionOperations(graph, self.allocator, recorder)
        metrics = self.metrics = Metrics(graph, recorder)
        job = self.job = Job(recorder, operations, metrics, self._before_end)
        # What may run, and is deployed.
        deployment = self.deployment = deployment_of(
            operations,
            options,
            recorder,
            timers,
            strategy=self.strategy_class,
            allocator=self.allocator,
            placement=self._placement,
            order=LongestFirst(graph, costs, self._slots_at_start).order,
            profiler=profiler,
        )
        strategy = self.strategy = deployment.strategy
        self.merging = Merging(
            graph,
            options,
            recorder,
            timers,
            readiness=deployment.readiness,
            describe=deployment.descriptors.gate,
            resume=strategy.on_partitions_available,
            slots=slots,
            request_seconds=side_inputs.number("request seconds", request_seconds),
        )
        self.speculation = speculative_execution_handler(
            detector,
            options,
            operations,
            recorder,
            timers,
            deployer=deployment.deployer,
            readiness=deployment.readiness,
            blocklist=blocklist,
            metrics=metrics,
        )
        self.resources = fine_grained_resources(
            self.allocator, job, recorder, timers, options, graph=graph, metrics=metrics
        )
        # What follows from what executions report.
        self.release = release_strategy(options, graph, deployment.descriptors, recorder)
        self.failures = ExecutionFailureHandler(
            operations,
            job,
            strategy,
            recorder,
            timers,
            nodes=self.nodes,
            options=options,
            merging=self.merging,
            release=self.release,
            metrics=metrics,
        )
        self._execution_events = ExecutionEvents(
            operations,
            job,
            strategy,
            recorder,
            allocator=self.allocator,
            release=self.release,
            failures=self.failures,
            speculation=self.speculation,
            resources=self.resources,
            metrics=metrics,
            profiler=profiler,
        )
        self._sinks = SinkCommitter(
            operations, job, recorder, release=self.release, merging=self.merging, descriptors=deployment.descriptors
        )
        # How the graph grows.
        self._usable = UsableSlots(job_graph, slots, self.nodes, self.resources, lambda: self.speculation.avoided)
        self.parallelisms = Parallelisms(
            job_graph, options, slots=self._usable.at_start, bound_of=self._usable.bound, costs=costs, pinned=pinned
        )
        counts = self._subpartition_counts()
        self.planner = Planner(
            graph, options, counts, deployment.coordinators, recorder, profiler=profiler, side_inputs=side_inputs
        )
        self.joins = self._adaptive_joins(self._usable, side_inputs.number("task memory", task_memory), costs)
        self._handlers = self._event_handlers()

    def _event_handlers(self) -> dict[type[e.Event], Callable[[Any], bool | None]]:
        """True: nothing is possible now that was not before, so that nothing is to be decided or deployed."""
        return {
            e.JobStarted: self._started,
            e.ExecutionsDeploying: self._execution_events.deploying,
            e.ExecutionsFinished: self._execution_events.finished,
            e.ExecutionsFailed: self._execution_events.failed,
            e.ExecutionsCancelled: self._execution_events.cancelled,
            e.ExecutionsRejected: self._execution_events.rejected,
            e.PartitionsLost: self._partitions_lost,
            e.OutputsLost: self._outputs_lost,
            e.SizesLoaded: self.planner.sizes_loaded,
            e.PartitionsMerged: self.merging.merged,
            e.SourceNarrowed: self.joins.narrowed,
            e.TimerFired: self._timer,
            e.ExecutorChanged: lambda event: self._executors((event,)),
            e.ExecutorsChanged: lambda event: self._executors(event.changes),
            e.WorkersOccupied: self.resources.workers_occupied,
            e.SlotsFreed: lambda _: None,  # all that waits is asked for after each event
            e.NodeBlocked: self.speculation.node_blocked,
            e.SinksCommitted: self._sinks.committed,
            e.SinksFailed: self._sinks.failed,
            e.CancelRequested: self._sinks.cancel_requested,
        }

    def _adaptive_joins(self, usable: UsableSlots, task_memory: Callable[[], float | None], costs: StepCosts) -> Joins:
        """Joins that are decided while the job runs, where the graph grows as it runs."""
        return NoJoins()

    @property
    def status(self) -> JobStatus:
        return self.job.status

    def handle(self, event: e.Event) -> list[Command]:
        """Returns the commands to be carried out now. A late or doubled event gives nothing; nothing is ever done twice."""
        if self.job.status.is_terminal:
            return []
        self.recorder.begin(event)
        settled = self._handlers[type(event)](event)
        if not settled or self.joins.is_open:
            self._advance()
        self.resources.event_handled()
        return self.recorder.take()

    def story(self, vertex: int, subtask: int | None = None) -> list[str]:
        """Returns the lines that tell what happened to a vertex or one of its subtasks, and because of which event; oldest first."""
        return self.recorder.story(vertex, subtask)

    def waiting_for(self) -> list[str]:
        """Returns the reasons for which the job waits, in sentences; empty once it has ended."""
        waits = Waits(
            self.failures.pending_restarts,
            has_slots=bool(self.nodes) if self.nodes.is_told else None,
            committing=self._sinks.is_committing,
            joins=self.joins.waiting_for(),
            merging=self.merging.waiting_for(self.recorder.at),
            speculation=self.speculation.waiting_for() + self.resources.waiting_for(),
        )
        return waiting_for(self.deployment.readiness, self.graph, self.job, self.recorder.at, waits)

    def validate(self) -> None:
        """Raises AssertionError when an invariant of the control plane is broken. Slow: for tests."""
        validate(self)

    @abstractmethod
    def _grow(self) -> list[int]:
        """Initialise every vertex that can be; returns their ids. Raises UndecidableVertex."""

    @abstractmethod
    def _subpartition_counts(self) -> SubpartitionCounts:
        """As far as the parallelism of consumers is known beforehand."""

    # --- after an event ----------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._goes_on:
            self.resources.refuse_impossible()
        if self._goes_on:
            with InPhase(self._profiler, SchedulingPhase.GROW):
                self._grow_graph()
        if self._goes_on:
            self.merging.consider()
            self._schedule()
            if self.graph.all_finished:
                self._sinks.vertices_finished()
        if self.job.is_active:  # else nothing begins any more, and timers of what waits would be set for ever
            self.joins.event_handled()
        self.job.end_if_nothing_runs()

    @property
    def _goes_on(self) -> bool:
        return self.job.is_active and not self._sinks.is_committing

    def _grow_graph(self) -> None:
        try:
            new = self._grow()
        except UndecidableVertex as error:
            cause = e.FailureCause(e.FailureKind.FATAL, error.message, trace=error.cause_trace, hint=error.hint)
            self.job.fail(cause, error.vertex)
            return
        if new:
            self.graph.notify_execution_graph_updated(new)
            self.resources.vertices_initialized()
            record_regions(self.graph, new, self.recorder)

    def _schedule(self) -> None:
        """Ask for slots for all that can run: first for what joined a round."""
        asks = True
        while asks:
            self.resources.begin_round()
            self.speculation.schedule()
            self.strategy.schedule()
            asks = self.resources.end_round()
        self.resources.check_requests()

    def _before_end(self) -> None:
        self.speculation.stop()
        self.merging.drop_all()
        self.deployment.descriptors.drop_all()
        self.resources.job_ends()

    def _placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        return self.speculation.placement(option)

    def _slots_at_start(self, vertex: int) -> int:
        return self._usable.at_start(vertex)

    # --- events ------------------------------------------------------------------------------------------------

    def _started(self, event: e.JobStarted) -> None:
        if self.job.status is JobStatus.CREATED:
            self.job.go(JobStatus.RUNNING, f"job '{self.job_graph.name}' started")
            self.speculation.start()

    def _partitions_lost(self, event: e.PartitionsLost) -> None:
        if not self._sinks.is_committing:
            self.failures.partitions_lost(event)

    def _outputs_lost(self, event: e.OutputsLost) -> None:
        if not self._sinks.is_committing:
            self.failures.outputs_lost(event)

    def _timer(self, event: e.TimerFired) -> None:
        if not self.job.is_active:
            return
        try:
            self.timers.fired(event.timer)
        except FiresteelError as error:  # a slow task strategy of the user's
            cause = e.FailureCause(e.FailureKind.FATAL, error.message, error.cause_trace, hint=error.hint)
            self.job.fail(cause)

    def _executors(self, changes: Sequence[e.ExecutorChanged]) -> None:
        for change in changes:
            self.nodes.change(change)
            self.resources.executor_changed(change)
        self.speculation.nodes_changed()
        for change in changes:
            what = f"joined with {plural(change.slots, 'slot')}" if change.added else "is gone"
            self.recorder.tell(f"executor {change.executor} on {change.host} {what}")
