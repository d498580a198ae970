"""The scheduler: ``handle(event) -> commands``. No I/O, no clock: the same events give the same commands, always.

Composition: a graph, a strategy that says what may run, a failure handler, a release strategy, coordinators and a
slot allocator. How the graph grows is the one thing that the adaptive batch and the default scheduler do differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from firesteel.errors import FiresteelError
from firesteel.humanize import plural
from firesteel.model.arrays import Ints, Names, distinct
from firesteel.model.job_graph import DistributionPattern, JobGraph, JobVertex
from firesteel.options import OFFLOAD_THRESHOLD, Options
from firesteel.scheduler.admission import Admission, first_of_each
from firesteel.scheduler.deployment.coordinators import OperatorCoordinatorHandler
from firesteel.scheduler.deployment.deployer import ExecutionDeployer
from firesteel.scheduler.deployment.descriptors import DeploymentDescriptorFactory
from firesteel.scheduler.deployment.gathering import Gathering
from firesteel.scheduler.deployment.offloading import DescriptorOffloading
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.deployment.region_strategy import PipelinedRegionSchedulingStrategy
from firesteel.scheduler.deployment.vertexwise_strategy import VertexwiseSchedulingStrategy
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.exchange.release import release_strategy
from firesteel.scheduler.failover.failure_accounting import Failure, FailureAccounting
from firesteel.scheduler.failover.failure_handler import ExecutionFailureHandler
from firesteel.scheduler.failover.partition_loss import PartitionLoss
from firesteel.scheduler.failover.restart_strategies import restart_strategy
from firesteel.scheduler.failover.retired_workers import RetiredWorkers
from firesteel.scheduler.finishing import SingleFinish
from firesteel.scheduler.invariants import validate
from firesteel.scheduler.joins.adaptive import Joins, NoJoins
from firesteel.scheduler.kernel.commands import Command, CommitSinks, JobStatus, Placement
from firesteel.scheduler.kernel.events import (
    CancelRequested,
    Event,
    ExecutionsCancelled,
    ExecutionsDeploying,
    ExecutionsFailed,
    ExecutionsFinished,
    ExecutionsRejected,
    ExecutorChanged,
    FailureCause,
    FailureKind,
    JobStarted,
    NodeBlocked,
    PartitionsLost,
    PartitionsMerged,
    SinksCommitted,
    SinksFailed,
    SizesLoaded,
    SlotsFreed,
    TimerFired,
    WorkersOccupied,
)
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import REJECTED
from firesteel.scheduler.kernel.states import IS_DEPLOYED, IS_PENDING, ExecutionState
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.parallelism.model import SlotBound
from firesteel.scheduler.parallelism.planning import Parallelisms, Planner, UndecidableVertex
from firesteel.scheduler.parallelism.subpartitions import SubpartitionCounts
from firesteel.scheduler.slots.allocators import (
    AllocatorContext,
    ExecutionDeploymentOption,
    MakeAllocator,
    grant_all,
)
from firesteel.scheduler.slots.fine_grained import (
    DefaultFineGrainedResources,
    FineGrainedResources,
    NoFineGrainedResources,
)
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.speculation.blocklist import Blocklist
from firesteel.scheduler.speculation.default_handler import DefaultSpeculativeExecutionHandler
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.speculation.handler import NoSpeculation, SpeculativeExecutionHandler
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW, ExecutionTable, Rows
from firesteel.scheduler.topology.nodes import Nodes
from firesteel.scheduler.topology.operations import ExecutionOperations
from firesteel.scheduler.topology.regions import RegionBlock
from firesteel.scheduler.waiting import Waits, waiting_for

S = ExecutionState


class Scheduler(ABC):
    """One job. Feed it every event in the order of arrival; carry out the commands in the order given.

    The first event is JobStarted, the last command a JobStatusChanged to a terminal status; what comes later is ignored.
    """

    strategy_class: ClassVar[type[VertexwiseSchedulingStrategy] | type[PipelinedRegionSchedulingStrategy]]

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
    ) -> None:
        """``allocator``: makes the slot allocator. ``detector``: tells of slow executions, which then get mirrors; None: there are
        none. ``request_seconds``: as ``Merging`` takes it."""
        self.job_graph = job_graph = job_graph.copy()  # it may change while the job runs
        self.options = options
        self._slots = slots
        self.recorder = Recorder()
        self.timers = Timers(self.recorder)
        self.executions = ExecutionTable(self.recorder.story)
        self.nodes = Nodes()
        self.blocklist = Blocklist(self.nodes, self.recorder, self.timers)
        self.allocator = allocator(
            AllocatorContext(self.executions, self.nodes, lambda: self.blocklist.avoided, self.recorder)
        )
        self.graph = DefaultExecutionGraph(job_graph, self.executions, self.recorder.emit, self._withdrawn)
        self.operations = ExecutionOperations(self.graph, self.allocator, self.recorder)
        self.metrics = Metrics(self.graph, self.recorder)
        self.job = Job(self.recorder, self.operations, self.metrics, self._before_end)
        self.coordinators = OperatorCoordinatorHandler(self.recorder)
        self.gathering = Gathering(self.graph, self.recorder, self.timers)
        self.readiness = Readiness(self.graph)
        offloading = DescriptorOffloading(options[OFFLOAD_THRESHOLD], self.recorder)
        self.deployments = DeploymentDescriptorFactory(self.graph, self.coordinators, offloading)
        self.deployer = ExecutionDeployer(
            self.operations,
            self.deployments,
            self.allocator,
            self.recorder,
            placement=self._placement,
        )
        deploy = self.deployer.allocate_slots_and_deploy
        self.strategy = self.strategy_class(self.graph, self.readiness, deploy, self.gathering)
        self.merging = self._merging(request_seconds)
        self.speculation = self._speculation(detector)
        self.resources = self._resources()
        self.single = SingleFinish(self.graph, self.allocator, self.recorder, self.strategy.on_partitions_available)
        self.release = release_strategy(options, self.graph, self.deployments, self.recorder)
        self.admission = self._admission()
        self.failures = self._failure_handler()
        self.retired = RetiredWorkers(
            self.operations, self.recorder, send_again=self._send_again, failed=self.failures.failed
        )
        self.parallelisms = Parallelisms(
            job_graph, options, slots=lambda vertex: self.resources.slots_of(vertex) or slots, bound_of=self._slots_of
        )
        self.planner = Planner(self.graph, options, self._subpartition_counts(), self.coordinators, self.recorder)
        self.joins = self._joins(task_memory)
        self._handlers = self._event_handlers()
        self._settled = False
        """The event made nothing possible that was not before: nothing is to be decided or deployed."""
        self._committing = False
        self._cancel_reason: str | None = None
        """A cancel that came while the sinks were being published."""

    def _merging(self, request_seconds: Callable[[], float | None]) -> Merging:
        return Merging(
            self.graph,
            self.options,
            self.recorder,
            self.timers,
            readiness=self.readiness,
            describe=self.deployments.gate,
            resume=self.strategy.on_partitions_available,
            slots=self._slots,
            request_seconds=request_seconds,
        )

    def _admission(self) -> Admission:
        return Admission(
            self.operations,
            self.job,
            self.strategy,
            self.recorder,
            release=self.release,
            metrics=self.metrics,
            speculation=self.speculation,
        )

    def _failure_handler(self) -> ExecutionFailureHandler:
        return ExecutionFailureHandler(
            self.operations,
            self.job,
            self.strategy,
            self.recorder,
            self.timers,
            accounting=FailureAccounting(
                restart_strategy(self.options, self.job_graph.name), self.executions, self.recorder
            ),
            losses=PartitionLoss(self.graph, self.merging, self.recorder),
            release=self.release,
            metrics=self.metrics,
        )

    def _event_handlers(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            JobStarted: self._started,
            ExecutionsDeploying: self._deploying,
            ExecutionsFinished: self._finished,
            ExecutionsFailed: self._failed,
            ExecutionsCancelled: self._cancelled,
            ExecutionsRejected: self._rejected,
            PartitionsLost: self._partitions_lost,
            SizesLoaded: self._sizes_loaded,
            PartitionsMerged: self.merging.merged,
            TimerFired: self._timer,
            ExecutorChanged: self._executor,
            WorkersOccupied: self._occupied,
            SlotsFreed: lambda _: None,  # all that waits is asked for after each event
            NodeBlocked: self._node_blocked,
            SinksCommitted: self._sinks_committed,
            SinksFailed: self._sinks_failed,
            CancelRequested: self._cancel_requested,
        }

    def _joins(self, task_memory: Callable[[], float | None]) -> Joins:
        return NoJoins()

    def _resources(self) -> FineGrainedResources:
        """Slot sharing groups have resources where a pool gives the slots."""
        if not isinstance(self.allocator, SlotPool):
            return NoFineGrainedResources()
        return DefaultFineGrainedResources(
            self.allocator, self.job, self.recorder, self.timers, self.options, graph=self.graph, metrics=self.metrics
        )

    def _speculation(self, detector: SlowTaskDetector | None) -> SpeculativeExecutionHandler:
        if detector is None:
            return NoSpeculation()
        return DefaultSpeculativeExecutionHandler(
            self.options,
            detector,
            self.operations,
            self.recorder,
            self.timers,
            deployer=self.deployer,
            readiness=self.readiness,
            blocklist=self.blocklist,
            metrics=self.metrics,
        )

    def _withdrawn(self, result: IntermediateResult, gone: Ints) -> None:
        self.merging.withdrawn(result, gone)

    def _before_end(self) -> None:
        self.speculation.stop()
        self.merging.drop_all()
        self.deployments.drop_all()
        self.resources.job_ends()

    def _placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        return self.speculation.placement(option)

    def _slots_of(self, vertex: int) -> SlotBound | None:
        """Of the vertex' group, all that can be used now; None: nobody knows, or there are none."""
        count = self.resources.slots_of(vertex)
        if count is None and self.nodes.is_told:
            count = sum(n for node, n in self.nodes.slots.items() if node not in self.speculation.avoided)
        count = self._slots if count is None else count
        return SlotBound(count, self.job_graph.vertices[vertex].slot_sharing_group) if count else None

    def _send_again(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> None:
        """An execution in the place of each of these, which ended without having begun; not a restart."""
        if not self.job.is_active or self.speculation.replaced(vertex, rows, cause):
            return
        subtasks = self.executions.index[rows].astype(np.int64)
        self.graph.reset(vertex, subtasks, self.recorder.at)
        self.operations.created(vertex, vertex.newest[subtasks], cause)
        self.strategy.restart_tasks({vertex.id: subtasks})

    @property
    def status(self) -> JobStatus:
        return self.job.status

    def handle(self, event: Event) -> list[Command]:
        """Returns the commands to be carried out now. A late or doubled event gives nothing; nothing is ever done twice."""
        if self.job.status.is_terminal:
            return []
        self.recorder.begin(event)
        self._settled = False
        self._handlers[type(event)](event)
        if not self._settled:
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
            committing=self._committing,
            joins=self.joins.waiting_for(),
            merging=self.merging.waiting_for(self.recorder.at),
            speculation=self.speculation.waiting_for() + self.resources.waiting_for(),
        )
        return waiting_for(self.readiness, self.graph, self.job, self.recorder.at, waits)

    def validate(self) -> None:
        """Raises AssertionError when an invariant of the control plane is broken. Slow: for tests."""
        validate(self)

    @abstractmethod
    def _grow(self) -> list[int]:
        """Initialise every vertex that can be; returns their ids. Raises UndecidableVertex."""

    @abstractmethod
    def _known_parallelism(self, vertex: JobVertex) -> int | None:
        """The parallelism of a vertex if it is known before the job runs."""

    @abstractmethod
    def _subpartition_counts(self) -> SubpartitionCounts: ...

    def _advance(self) -> None:
        if self._goes_on:
            self.resources.refuse_impossible()
        if self._goes_on:
            self._grow_graph()
        if self._goes_on:
            self.merging.consider()
            self._schedule()
            if self.graph.all_finished and not self._writers_left():
                self._all_finished()
        self.joins.event_handled()
        self.job.end_if_nothing_runs()

    @property
    def _goes_on(self) -> bool:
        return self.job.is_active and not self._committing

    def _schedule(self) -> None:
        """Ask for slots for all that can run: first for what joined a round."""
        asks = True
        while asks:
            self.resources.begin_round()
            self.speculation.schedule()
            self.strategy.schedule()
            asks = self.resources.end_round()
        self.resources.check_requests()

    def _grow_graph(self) -> None:
        try:
            new = self._grow()
        except UndecidableVertex as error:
            cause = FailureCause(FailureKind.FATAL, error.message, trace=error.cause_trace, hint=error.hint)
            self.job.fail(cause, error.vertex)
            return
        if new:
            self.graph.notify_execution_graph_updated(new)
            self.resources.vertices_initialized()
            self._tell_of_regions(new)

    def _tell_of_regions(self, new: list[int]) -> None:
        blocks = {block.number: block for block in map(self.graph.regions.block, new) if len(block.vertices) > 1}
        for _, block in sorted(blocks.items()):
            tasks = int(block.sizes().sum())
            rule = "an all-to-all edge inside" if self._has_all_to_all(block) else "pointwise edges inside"
            each = "all at once" if block.count == 1 else "each all at once"
            self.recorder.decision(
                "pipelined regions",
                vertex=block.vertices[0],
                name=self.graph.vertices[block.vertices[0]].job.name,
                inputs={"vertices": list(block.vertices), "subtasks": tasks},
                rule=rule,
                result=block.count,
                reason=f"{plural(tasks, 'subtask')} of vertices {', '.join(map(str, block.vertices))} run in "
                f"{plural(block.count, 'region')}, {each}: {rule}",
            )

    def _has_all_to_all(self, block: RegionBlock) -> bool:
        inputs = [edge for vertex in block.vertices for edge in self.job_graph.vertices[vertex].inputs]
        inside = [d for d in (self.job_graph.datasets[e.dataset] for e in inputs) if d.producer in block.vertices]
        return any(dataset.ship.pattern is DistributionPattern.ALL_TO_ALL for dataset in inside)

    def _all_finished(self) -> None:
        sinks = [vertex for vertex in self.graph.vertices if vertex.job.has_sink]
        if not sinks:
            self._finish()
            return
        self._committing = True
        self.recorder.emit(CommitSinks({vertex.id: self._winners(vertex) for vertex in sinks}))

    def _writers_left(self) -> bool:
        """Cancelled attempts that nothing may be published beside: their vertices forbid concurrent attempts."""
        table = self.executions
        exclusive = [not vertex.job.supports_concurrent_attempts for vertex in self.graph.vertices]
        if not any(exclusive) or not self.operations.num_pending:
            return False
        pending = np.flatnonzero(IS_PENDING[table.state[: table.size]])
        return bool(np.array(exclusive)[table.vertex[pending]].any())

    def _winners(self, vertex: ExecutionJobVertex) -> list[tuple[int, tuple[bytes, ...]]]:
        attempts = self.executions.attempt[vertex.winner].tolist()
        return [(attempt, vertex.commits.get(subtask, ())) for subtask, attempt in enumerate(attempts)]

    def _finish(self) -> None:
        self.release.job_finished()
        self.merging.drop_all()
        persistent = [result for result in self.graph.results if result is not None and result.dataset.persistent]
        self.job.finish(tuple(self.deployments.gate(result) for result in persistent))

    # --- events ------------------------------------------------------------------------------------------------

    def _started(self, event: JobStarted) -> None:
        if self.job.status is JobStatus.CREATED:
            self.job.go(JobStatus.RUNNING, f"job '{self.job_graph.name}' started")
            self.speculation.start()

    def _deploying(self, event: ExecutionsDeploying) -> None:
        vertex, rows = self._find(event)
        states = self.executions.state[rows]
        moved = (states == S.SCHEDULED) | ((states == S.DEPLOYING) & event.running)
        moved &= first_of_each(rows)
        if event.nodes:
            self.executions.set_nodes(rows[moved], Names.of(event.nodes).select(np.flatnonzero(moved)))
        at = None if event.times is None else event.times[moved]
        if event.running:
            queued = states[moved] == S.SCHEDULED
            self.executions.transition(rows[moved][queued], S.DEPLOYING, event.at if at is None else at[queued])
        self.operations.move(vertex.id, rows[moved], S.RUNNING if event.running else S.DEPLOYING, at=at)
        self.resources.launched(rows[moved], np.flatnonzero(moved), event)
        self.speculation.launched(vertex, rows[moved])

    def _finished(self, event: ExecutionsFinished) -> None:
        if len(event.subtasks) == 1 and self.job.is_active and self.single.admit(event):
            vertex = self.graph.vertices[event.vertex]
            self.metrics.progressed(vertex)
            self.release.executions_finished(vertex, event.subtasks)
            candidates = self.strategy.has_candidates or self.speculation.has_candidates
            self._settled = not (vertex.is_finished or candidates or self.joins.is_open)
            return
        vertex, rows = self._find(event)
        failure = self.admission.finished(vertex, rows, event)
        if failure is not None:
            self.failures.failed(failure)

    def _failed(self, event: ExecutionsFailed) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            subtasks = self.executions.index[rows].astype(np.int64)
            self.failures.failed(Failure(vertex, rows, subtasks, event.cause, event.counted))

    def _cancelled(self, event: ExecutionsCancelled) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            cause = FailureCause(FailureKind.WORKER, "its Spark job was cancelled by somebody else")
            subtasks = self.executions.index[rows].astype(np.int64)
            self.failures.failed(Failure(vertex, rows, subtasks, cause, counted=True))

    def _rejected(self, event: ExecutionsRejected) -> None:
        vertex, rows = self._find(event)
        nodes = dict(zip(rows.tolist(), event.nodes, strict=False))
        rows = distinct(rows)
        states = self.executions.state[rows]
        self.admission.gone(vertex, rows[states == S.CANCELING])
        rows = rows[(states == S.SCHEDULED) | (states == S.DEPLOYING)]
        if event.retired:
            self.retired.rejected(vertex, rows)
            return
        where = [nodes.get(row, "") for row in rows.tolist()]
        self.executions.set_nodes(rows, Names.of(where))
        self.operations.move(vertex.id, rows, S.CANCELED, cause=REJECTED)
        if len(rows) and self.job.is_active:
            self.speculation.rejected(vertex, rows, where)

    def _partitions_lost(self, event: PartitionsLost) -> None:
        if not self._committing:
            self.failures.partitions_lost(event)

    def _sizes_loaded(self, event: SizesLoaded) -> None:
        result = self.graph.results[event.dataset]
        unreadable = 0 if result is None else result.info.loaded(event)
        if unreadable:
            self.recorder.decision(
                "sizes",
                inputs={"dataset": event.dataset, "rows": unreadable},
                rule="shaped like the sum",
                result=unreadable,
                reason=(
                    f"the sizes that {plural(unreadable, 'producer')} of data set {event.dataset} had reported could not "
                    "be read back from the driver's scratch files: they are taken to be shaped like the sum over all"
                ),
            )

    def _timer(self, event: TimerFired) -> None:
        if not self.job.is_active:
            return
        try:
            self.timers.fired(event.timer)
        except FiresteelError as error:  # a slow task strategy of the user's
            cause = FailureCause(FailureKind.FATAL, error.message, error.cause_trace, hint=error.hint)
            self.job.fail(cause)

    def _executor(self, event: ExecutorChanged) -> None:
        self.nodes.change(event)
        self.resources.executor_changed(event)
        self.speculation.nodes_changed()
        what = f"joined with {plural(event.slots, 'slot')}" if event.added else "is gone"
        self.recorder.tell(f"executor {event.executor} on {event.host} {what}")

    def _occupied(self, event: WorkersOccupied) -> None:
        self.resources.workers_occupied(event)

    def _node_blocked(self, event: NodeBlocked) -> None:
        self.speculation.node_blocked(event)

    def _sinks_committed(self, event: SinksCommitted) -> None:
        if self._committing:
            self._finish()

    def _sinks_failed(self, event: SinksFailed) -> None:
        if self._committing:
            self._committing = False
            if self._cancel_reason is None:
                self.job.fail(event.cause)
            else:
                self.job.cancel(f"{self._cancel_reason}; the sinks could not be published: {event.cause.message}")

    def _cancel_requested(self, event: CancelRequested) -> None:
        if self._committing:
            self._cancel_reason = event.reason
            self.recorder.decision(
                "cancel",
                inputs={"reason": event.reason},
                rule="too late",
                result="put off",
                reason="The sinks are being published, which is not broken off: the job is cancelled only if that fails.",
            )
        else:
            self.job.cancel(event.reason)

    # --- executions --------------------------------------------------------------------------------------------

    def _find(
        self,
        event: ExecutionsDeploying | ExecutionsFinished | ExecutionsFailed | ExecutionsCancelled | ExecutionsRejected,
    ) -> tuple[ExecutionJobVertex, Rows]:
        """The executions an event speaks of. Raises ValueError for a subtask or attempt that was never deployed."""
        vertex = self.graph.vertices[event.vertex]
        subtasks, attempts = np.asarray(event.subtasks, np.int64), np.asarray(event.attempts, np.int64)
        known = (subtasks >= 0) & (subtasks < vertex.parallelism)
        rows = self.executions.find(vertex.newest[subtasks], attempts) if known.all() else np.array([NO_ROW])
        if (rows == NO_ROW).any():
            raise ValueError(
                f"{type(event).__name__} speaks of subtasks {subtasks.tolist()[:10]}, attempts {attempts.tolist()[:10]} "
                f"of vertex {vertex.id} '{vertex.job.name}', not all of which were deployed (parallelism {vertex.parallelism})."
            )
        return vertex, rows

    def _end_cancelled(self, vertex: ExecutionJobVertex, rows: Rows) -> Rows:
        """Those we cancelled are gone now; returns the (distinct) others that were still deployed."""
        rows = distinct(rows)
        states = self.executions.state[rows]
        self.admission.gone(vertex, rows[states == S.CANCELING])
        return rows[IS_DEPLOYED[states]]
