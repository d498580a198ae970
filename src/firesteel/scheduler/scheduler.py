"""The scheduler: ``handle(event) -> commands``. No I/O, no clock: the same events give the same commands, always.

Composition: a graph, a strategy that says what may run, a failure handler, a release strategy, coordinators and a
slot allocator. How the graph grows is the one thing that the adaptive batch and the default scheduler do differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from firesteel.graph.job_graph import DistributionPattern, JobGraph, JobVertex
from firesteel.humanize import plural
from firesteel.options import OFFLOAD_THRESHOLD, Options
from firesteel.scheduler.commands import Command, CommitSinks, Deploy, DeployRegions, JobStatus
from firesteel.scheduler.coordinators import OperatorCoordinatorHandler
from firesteel.scheduler.deployment import DeploymentDescriptorFactory
from firesteel.scheduler.events import (
    CancelRequested,
    Event,
    ExecutionReports,
    ExecutionsCancelled,
    ExecutionsDeploying,
    ExecutionsFailed,
    ExecutionsFinished,
    ExecutionsReturned,
    ExecutorChanged,
    FailureCause,
    FailureKind,
    Ints,
    JobStarted,
    Names,
    PartitionReports,
    PartitionsLost,
    PartitionsMerged,
    SinksCommitted,
    SinksFailed,
    SizesLoaded,
    TimerFired,
)
from firesteel.scheduler.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.executions import NO_ROW, ExecutionTable, Rows
from firesteel.scheduler.failure_handler import ExecutionFailureHandler, Failure
from firesteel.scheduler.finishing import SingleFinish
from firesteel.scheduler.gathering import Gathering
from firesteel.scheduler.invariants import validate
from firesteel.scheduler.job import Job
from firesteel.scheduler.merging import Merging
from firesteel.scheduler.metrics import Metrics
from firesteel.scheduler.nodes import Nodes
from firesteel.scheduler.numbers import distinct, is_ascending, without
from firesteel.scheduler.offloading import DescriptorOffloading
from firesteel.scheduler.operations import ExecutionOperations
from firesteel.scheduler.planning import Parallelisms, Planner, UndecidableVertex
from firesteel.scheduler.readiness import Readiness
from firesteel.scheduler.recorder import Recorder
from firesteel.scheduler.region_strategy import PipelinedRegionSchedulingStrategy
from firesteel.scheduler.regions import RegionBlock
from firesteel.scheduler.release import release_strategy
from firesteel.scheduler.restart import restart_strategy
from firesteel.scheduler.slots import (
    DeploymentOption,
    ExecutionDeploymentOption,
    ExecutionSlotAllocator,
    GrantAllSlotAllocator,
    RegionDeploymentOption,
    allocate_slots_for_regions,
)
from firesteel.scheduler.speculation import NoSpeculation, SpeculativeExecutionHandler
from firesteel.scheduler.states import IS_DEPLOYED, IS_PENDING, ExecutionState
from firesteel.scheduler.strategy import VertexwiseSchedulingStrategy
from firesteel.scheduler.subpartitions import SubpartitionCounts
from firesteel.scheduler.waiting import Waits, waiting_for
from firesteel.sizes import counts_of

S = ExecutionState
_FASTER = "another attempt was faster"


class Scheduler(ABC):
    """One job. Feed it every event in the order of arrival; carry out the commands in the order given.

    The first event is JobStarted, the last command a JobStatusChanged to a terminal status; what comes later is ignored.
    """

    strategy_class: ClassVar[type[VertexwiseSchedulingStrategy] | type[PipelinedRegionSchedulingStrategy]]

    def __init__(
        self, job_graph: JobGraph, options: Options, allocator: ExecutionSlotAllocator | None = None, slots: int = 1
    ) -> None:
        self.job_graph = job_graph
        self.options = options
        self.recorder = Recorder()
        self.executions = ExecutionTable(self.recorder.story)
        self.graph = DefaultExecutionGraph(job_graph, self.executions, self.recorder.emit)
        self.allocator: ExecutionSlotAllocator = allocator or GrantAllSlotAllocator()
        self.operations = ExecutionOperations(self.graph, self.allocator, self.recorder)
        self.metrics = Metrics(self.graph, self.recorder)
        self.job = Job(self.recorder, self.operations, self.metrics)
        self.coordinators = OperatorCoordinatorHandler(self.recorder)
        self.gathering = Gathering(self.graph, self.recorder)
        self.readiness = Readiness(self.graph)
        self.strategy = self.strategy_class(self.graph, self.readiness, self.allocate_slots_and_deploy, self.gathering)
        offloading = DescriptorOffloading(options[OFFLOAD_THRESHOLD], self.recorder)
        self.deployments = DeploymentDescriptorFactory(self.graph, self.coordinators, offloading)
        self.merging = Merging(
            self.graph,
            options,
            self.recorder,
            readiness=self.readiness,
            describe=self.deployments.gate,
            resume=self.strategy.on_partitions_available,
            slots=slots,
        )
        self.nodes = Nodes()
        self.speculation: SpeculativeExecutionHandler = NoSpeculation()
        self.job.before_end += [self.speculation.stop, self.merging.drop_all, self.deployments.drop_all]
        self.single = SingleFinish(self.graph, self.allocator, self.recorder, self.strategy.on_partitions_available)
        self.release = release_strategy(options, self.graph, self.deployments, self.recorder)
        self.failures = ExecutionFailureHandler(
            self.operations,
            self.job,
            restart_strategy(options, job_graph.name),
            self.strategy,
            self.recorder,
            release=self.release,
            merging=self.merging,
            metrics=self.metrics,
        )
        self.parallelisms = Parallelisms(job_graph, options, slots)
        self.planner = Planner(self.graph, options, self._subpartition_counts(), self.coordinators, self.recorder)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            JobStarted: self._started,
            ExecutionsDeploying: self._deploying,
            ExecutionsFinished: self._finished,
            ExecutionsFailed: self._failed,
            ExecutionsCancelled: self._cancelled,
            ExecutionsReturned: self._returned,
            PartitionsLost: self._partitions_lost,
            SizesLoaded: self._sizes_loaded,
            PartitionsMerged: self.merging.merged,
            TimerFired: self._timer,
            ExecutorChanged: self._executor,
            SinksCommitted: self._sinks_committed,
            SinksFailed: self._sinks_failed,
            CancelRequested: self._cancel_requested,
        }
        self._settled = False
        """The event made nothing possible that was not before: nothing is to be decided or deployed."""
        self._committing = False
        self._cancel_reason: str | None = None
        """A cancel that came while the sinks were being published."""
        self._discarded: set[tuple[int, int, int, int]] = set()

    @property
    def status(self) -> JobStatus:
        return self.job.status

    def handle(self, event: Event) -> list[Command]:
        """What is to be done now. A late or doubled event gives nothing; nothing is ever done twice."""
        if self.job.status.is_terminal:
            return []
        self.recorder.begin(event)
        self._settled = False
        self._handlers[type(event)](event)
        if not self._settled:
            self._advance()
        return self.recorder.take()

    def story(self, vertex: int, subtask: int | None = None) -> list[str]:
        """What happened to a vertex or one of its subtasks, and because of which event; oldest first."""
        return self.recorder.story(vertex, subtask)

    def waiting_for(self) -> list[str]:
        """What the job waits for, in sentences; empty once it has ended."""
        waits = Waits(
            self.failures.pending_restarts,
            has_slots=bool(self.nodes) if self.nodes.is_told else None,
            committing=self._committing,
            merging=self.merging.waiting_for(self.recorder.at),
        )
        waits_for = waiting_for(self.readiness, self.graph, self.job, self.recorder.at, waits)
        return [*waits_for, *self.speculation.waiting_for()] if waits_for else []

    def validate(self) -> None:
        """Raises AssertionError when an invariant of the control plane is broken. Slow: for tests."""
        validate(self)

    def allocate_slots_and_deploy(self, options: list[DeploymentOption]) -> None:
        """Ask for slots and deploy what got one: one command per vertex, or per set of vertices that run together.

        What got none stays as it is, and is asked for again with every event.
        """
        for option in options:
            if isinstance(option, RegionDeploymentOption):
                self._deploy_regions(option)
                continue
            granted = self.allocator.allocate_slots_for(option)
            if len(granted.executions):
                self.recorder.emit(self._deploy(granted))
            self._ask_again(option, granted)

    def _deploy_regions(self, option: RegionDeploymentOption) -> None:
        granted = allocate_slots_for_regions(self.allocator, option)
        if len(granted.parts[0].executions):
            self.recorder.emit(DeployRegions(tuple(self._deploy(part) for part in granted.parts)))
        self._ask_again(option.parts[0], granted.parts[0])

    def _deploy(self, granted: ExecutionDeploymentOption) -> Deploy:
        self.operations.move(granted.vertex, granted.executions, S.SCHEDULED)
        return self.deployments.deploy(granted, self.speculation.placement(granted))

    def _ask_again(self, option: ExecutionDeploymentOption, granted: ExecutionDeploymentOption) -> None:
        if len(granted.subtasks) < len(option.subtasks):
            self.strategy.restart_tasks({option.vertex: without(option.subtasks, granted.subtasks)})

    @abstractmethod
    def _grow(self) -> list[int]:
        """Initialise every vertex that can be; returns their ids. Raises UndecidableVertex."""

    @abstractmethod
    def _known_parallelism(self, vertex: JobVertex) -> int | None:
        """The parallelism of a vertex if it is known before the job runs."""

    @abstractmethod
    def _subpartition_counts(self) -> SubpartitionCounts: ...

    def _advance(self) -> None:
        if self.job.is_active and not self._committing:
            self._grow_graph()
        if self.job.is_active and not self._committing:
            self.merging.consider()
            self.speculation.schedule()
            self.strategy.schedule()
            if self.graph.all_finished and not self._writers_left():
                self._all_finished()
        self.job.end_if_nothing_runs()

    def _grow_graph(self) -> None:
        try:
            new = self._grow()
        except UndecidableVertex as error:
            self.job.fail(FailureCause(FailureKind.FATAL, error.message, hint=error.hint), error.vertex)
            return
        if new:
            self.graph.notify_execution_graph_updated(new)
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
        moved &= _first_of_each(rows)
        if event.nodes:
            self.executions.set_nodes(rows[moved], Names.of(event.nodes).select(np.flatnonzero(moved)))
        at = None if event.times is None else event.times[moved]
        if event.running:
            queued = states[moved] == S.SCHEDULED
            self.executions.transition(rows[moved][queued], S.DEPLOYING, event.at if at is None else at[queued])
        self.operations.move(vertex.id, rows[moved], S.RUNNING if event.running else S.DEPLOYING, at=at)
        self.speculation.launched(vertex, rows[moved])

    def _finished(self, event: ExecutionsFinished) -> None:
        if len(event.subtasks) == 1 and self.job.is_active and self.single.admit(event):
            vertex = self.graph.vertices[event.vertex]
            self.metrics.progressed(vertex)
            self.release.executions_finished(vertex, event.subtasks)
            self._settled = not (vertex.is_finished or self.strategy.has_candidates)
            return
        vertex, rows = self._find(event)
        subtasks = np.asarray(event.subtasks, np.int64)
        able = np.flatnonzero(IS_DEPLOYED[self.executions.state[rows]] & (vertex.winner[subtasks] == NO_ROW))
        admitted = able[_first_of_each(subtasks[able])]
        reports = event.reports if len(admitted) == len(rows) else event.reports.select(admitted)
        wrong = self._wrong_report(vertex, reports)
        if wrong is not None:
            cause = FailureCause(FailureKind.FATAL, wrong, hint="This is a fault of Firesteel's: please report it.")
            self.failures.failed(Failure(vertex, rows[admitted], subtasks[admitted], cause, culpable=True))
            return
        if len(admitted):
            self._admit(vertex, subtasks[admitted], rows[admitted], reports)
            self.speculation.finished(vertex, rows[admitted])
        refused = np.ones(len(rows), np.bool_)
        refused[admitted] = False
        for k in np.flatnonzero(refused).tolist():
            key = (vertex.id, int(event.subtasks[k]), int(event.attempts[k]), int(event.reports.tokens[k]))
            self._not_admitted(vertex, int(rows[k]), key)
        self._end_others(vertex, subtasks[admitted])

    def _end_others(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """These subtasks have finished: their other executions are of no use any more."""
        if vertex.has_several:
            self.operations.drop(vertex, vertex.created_rows(subtasks), _FASTER)
            self.operations.cancel(vertex, vertex.deployed_rows(subtasks), _FASTER)

    def _failed(self, event: ExecutionsFailed) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            subtasks = self.executions.index[rows].astype(np.int64)
            self.failures.failed(Failure(vertex, rows, subtasks, event.cause, event.culpable))

    def _cancelled(self, event: ExecutionsCancelled) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            cause = FailureCause(FailureKind.WORKER, "its Spark job was cancelled by somebody else")
            subtasks = self.executions.index[rows].astype(np.int64)
            self.failures.failed(Failure(vertex, rows, subtasks, cause, culpable=True))

    def _returned(self, event: ExecutionsReturned) -> None:
        vertex, rows = self._find(event)
        nodes = dict(zip(rows.tolist(), event.nodes, strict=False))
        rows = distinct(rows)
        states = self.executions.state[rows]
        self._gone(vertex, rows[states == S.CANCELING])
        rows = rows[(states == S.SCHEDULED) | (states == S.DEPLOYING)]
        self.operations.move(vertex.id, rows, S.CANCELED, cause="handed back by a blocked node")
        if len(rows) and self.job.is_active:
            self.speculation.returned(vertex, rows, [nodes.get(row, "") for row in rows.tolist()])

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
        self.gathering.timer_fired(event.timer)
        self.merging.timer_fired(event.timer)
        self.failures.timer_fired(event.timer)
        self.speculation.timer_fired(event.timer)

    def _executor(self, event: ExecutorChanged) -> None:
        self.nodes.change(event)
        what = f"joined with {plural(event.slots, 'slot')}" if event.added else "is gone"
        self.recorder.tell(None, f"executor {event.executor} on {event.host} {what}")

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
        event: ExecutionsDeploying | ExecutionsFinished | ExecutionsFailed | ExecutionsCancelled | ExecutionsReturned,
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
        self._gone(vertex, rows[states == S.CANCELING])
        return rows[IS_DEPLOYED[states]]

    def _gone(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Spark confirms that these cancelled executions do not run any more: the next attempt may."""
        self.operations.move(vertex.id, rows, S.CANCELED)
        if len(rows) and self.job.is_active and not vertex.job.supports_concurrent_attempts:
            self.strategy.restart_tasks({vertex.id: self.executions.index[rows].astype(np.int64)})

    def _wrong_report(self, vertex: ExecutionJobVertex, reports: ExecutionReports) -> str | None:
        """A sentence when one of the reports does not speak of what the execution was told to write."""
        if not len(reports):
            return None
        for index, result in enumerate(vertex.blocking_results):
            partition = _partition(reports, index, result.dataset.id)
            told, place = "nothing", 0
            if partition is not None:
                if partition.sizes is None:
                    continue
                counts = counts_of(partition.sizes)
                place = int(np.argmax(counts != result.num_subpartitions))
                if counts[place] == result.num_subpartitions:
                    continue
                told = f"{counts[place]} sizes"
            node = "" if reports.nodes is None else reports.nodes[place]
            return (
                f"A finished execution of '{vertex.job.name}' on {node or 'an unknown node'} reports "
                f"{told} on data set {result.dataset.id}, which has {result.num_subpartitions} subpartitions."
            )
        return None

    def _admit(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows, reports: ExecutionReports) -> None:
        """The first valid commit of these subtasks: their results become readable."""
        self.executions.token[rows] = reports.tokens
        vertex.winner[subtasks] = rows
        if reports.nodes is not None:
            self.executions.set_nodes(rows, reports.nodes)
        self._stamp(vertex, rows, reports)
        vertex.num_finished += len(rows)
        vertex.innocent[subtasks] = 0
        vertex.count(subtasks, reports)
        if len(reports.commits):
            vertex.commits.update(zip(subtasks.tolist(), reports.commits, strict=True))
        attempts = self.executions.attempt[rows].astype(np.int64)
        for index, result in enumerate(vertex.blocking_results):
            partition = _partition(reports, index, result.dataset.id)
            assert partition is not None
            result.info.record(subtasks, attempts, partition)
            self.strategy.on_partitions_available(result.admit(subtasks, attempts, reports.tokens))
        self.metrics.progressed(vertex)
        self.release.executions_finished(vertex, subtasks)

    def _stamp(self, vertex: ExecutionJobVertex, rows: Rows, reports: ExecutionReports) -> None:
        """To FINISHED, by way of whatever states nobody reported; the report's own times are the best there are."""
        table, at = self.executions, self.recorder.at
        states = table.state[rows]
        idle = rows[states != S.RUNNING]
        if len(idle):
            table.transition(rows[states == S.SCHEDULED], S.DEPLOYING, at)
            table.transition(idle, S.RUNNING, at)
        for state, told in ((S.DEPLOYING, reports.deployed_at), (S.RUNNING, reports.running_at)):
            known = told > 0
            table.stamp(state, rows[known], told[known])
        ended = np.where(reports.finished_at > 0, reports.finished_at, at)
        self.operations.move(vertex.id, rows, S.FINISHED, at=ended)

    def _not_admitted(self, vertex: ExecutionJobVertex, row: int, key: tuple[int, int, int, int]) -> None:
        """Late, doubled, or a loser: what it wrote must go, unless it is the admitted one told of twice."""
        state, token = S(self.executions.state[row]), int(self.executions.token[row])
        if IS_DEPLOYED[state]:
            self.operations.move(vertex.id, np.array([row]), S.CANCELING, cause=_FASTER)
            state = S.CANCELING
        if state is S.CANCELING:
            self._gone(vertex, np.array([row]))
        if (state is S.FINISHED and token == key[3]) or key in self._discarded:
            return
        self._discarded.add(key)
        subtask, attempt, given = (np.array([number]) for number in key[1:])
        self.recorder.discard(vertex.id, subtask, attempt, given, "it came too late")


def _first_of_each(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """True at the first occurrence of each number."""
    first = np.zeros(len(rows), np.bool_)
    if is_ascending(rows):
        return ~first
    first[np.unique(rows, return_index=True)[1]] = True
    return first


def _partition(reports: ExecutionReports, index: int, dataset: int) -> PartitionReports | None:
    """The reports on one data set; they come in the order of the vertex' blocking results."""
    if index < len(reports.partitions) and reports.partitions[index].dataset == dataset:
        return reports.partitions[index]
    return next((p for p in reports.partitions if p.dataset == dataset), None)
