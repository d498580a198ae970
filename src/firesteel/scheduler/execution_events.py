"""Events of executions, as Spark tells them: launched, finished, failed, gone, rejected."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Names, distinct
from firesteel.scheduler.admission import Admission, first_of_each
from firesteel.scheduler.deployment.vertexwise_strategy import SchedulingStrategy
from firesteel.scheduler.exchange.release import PartitionReleaseStrategy
from firesteel.scheduler.failover.failure_accounting import Failure
from firesteel.scheduler.failover.failure_handler import ExecutionFailureHandler
from firesteel.scheduler.failover.retired_workers import RetiredWorkers
from firesteel.scheduler.finishing import SingleFinish
from firesteel.scheduler.kernel.events import (
    ExecutionsCancelled,
    ExecutionsDeploying,
    ExecutionsFailed,
    ExecutionsFinished,
    ExecutionsRejected,
    FailureCause,
    FailureKind,
)
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.profiler import Profiler, SchedulingPhase
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import REJECTED
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.slots.allocators import ExecutionSlotAllocator
from firesteel.scheduler.slots.fine_grained import FineGrainedResources
from firesteel.scheduler.speculation.handler import SpeculativeExecutionHandler
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW, Rows
from firesteel.scheduler.topology.operations import ExecutionOperations

S = ExecutionState
_RELEASE = SchedulingPhase.RELEASE
ExecutionEvent = ExecutionsDeploying | ExecutionsFinished | ExecutionsFailed | ExecutionsCancelled | ExecutionsRejected


class ExecutionEvents:
    """A method for each event. All raise ValueError for a subtask or attempt that was never deployed."""

    def __init__(
        self,
        operations: ExecutionOperations,
        job: Job,
        strategy: SchedulingStrategy,
        recorder: Recorder,
        *,
        allocator: ExecutionSlotAllocator,
        release: PartitionReleaseStrategy,
        failures: ExecutionFailureHandler,
        speculation: SpeculativeExecutionHandler,
        resources: FineGrainedResources,
        metrics: Metrics,
        profiler: Profiler,
    ) -> None:
        self._operations = operations
        self._graph = operations.graph
        self._table = operations.graph.executions
        self._job = job
        self._strategy = strategy
        self._recorder = recorder
        self._release = release
        self._failures = failures
        self._speculation = speculation
        self._resources = resources
        self._metrics = metrics
        self._profiler = profiler
        self._single = SingleFinish(self._graph, allocator, recorder, strategy.on_partitions_available)
        self._admission = Admission(
            operations,
            job,
            strategy,
            recorder,
            release=release,
            metrics=metrics,
            speculation=speculation,
            profiler=profiler,
        )
        self._retired = RetiredWorkers(operations, recorder, send_again=self._send_again, failed=failures.failed)

    def deploying(self, event: ExecutionsDeploying) -> None:
        vertex, rows = self._find(event)
        states = self._table.state[rows]
        moved = (states == S.SCHEDULED) | ((states == S.DEPLOYING) & event.running)
        moved &= first_of_each(rows)
        if event.nodes:
            self._table.set_nodes(rows[moved], Names.of(event.nodes).select(np.flatnonzero(moved)))
        at = None if event.times is None else event.times[moved]
        if event.running:
            queued = states[moved] == S.SCHEDULED
            self._table.transition(rows[moved][queued], S.DEPLOYING, event.at if at is None else at[queued])
        self._operations.move(vertex.id, rows[moved], S.RUNNING if event.running else S.DEPLOYING, at=at)
        self._resources.launched(rows[moved], np.flatnonzero(moved), event)
        self._speculation.launched(vertex, rows[moved])

    def finished(self, event: ExecutionsFinished) -> bool:
        """Returns whether nothing is possible now that was not before: nothing is to be decided or deployed."""
        if len(event.subtasks) == 1 and self._job.is_active and self._single.admit(event):
            vertex = self._graph.vertices[event.vertex]
            self._metrics.progressed(vertex)
            self._profiler.entered(_RELEASE)
            try:
                self._release.executions_finished(vertex, event.subtasks)
            finally:
                self._profiler.left(_RELEASE)
            return not (vertex.is_finished or self._strategy.has_candidates or self._speculation.has_candidates)
        vertex, rows = self._find(event)
        failure = self._admission.finished(vertex, rows, event)
        if failure is not None:
            self._failures.failed(failure)
        return False

    def failed(self, event: ExecutionsFailed) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            subtasks = self._table.index[rows].astype(np.int64)
            self._failures.failed(Failure(vertex, rows, subtasks, event.cause, event.counted))

    def cancelled(self, event: ExecutionsCancelled) -> None:
        vertex, rows = self._find(event)
        rows = self._end_cancelled(vertex, rows)
        if len(rows):
            cause = FailureCause(FailureKind.WORKER, "its Spark job was cancelled from outside Firesteel")
            subtasks = self._table.index[rows].astype(np.int64)
            self._failures.failed(Failure(vertex, rows, subtasks, cause, counted=True))

    def rejected(self, event: ExecutionsRejected) -> None:
        vertex, rows = self._find(event)
        nodes = dict(zip(rows.tolist(), event.nodes, strict=False))
        rows = distinct(rows)
        states = self._table.state[rows]
        self._admission.gone(vertex, rows[states == S.CANCELING])
        rows = rows[(states == S.SCHEDULED) | (states == S.DEPLOYING)]
        if event.retired:
            self._retired.rejected(vertex, rows)
            return
        where = [nodes.get(row, "") for row in rows.tolist()]
        self._table.set_nodes(rows, Names.of(where))
        self._operations.move(vertex.id, rows, S.CANCELED, cause=REJECTED)
        if len(rows) and self._job.is_active:
            self._speculation.rejected(vertex, rows, where)

    def _find(self, event: ExecutionEvent) -> tuple[ExecutionJobVertex, Rows]:
        """The executions an event speaks of. Raises ValueError for a subtask or attempt that was never deployed."""
        vertex = self._graph.vertices[event.vertex]
        subtasks, attempts = np.asarray(event.subtasks, np.int64), np.asarray(event.attempts, np.int64)
        known = (subtasks >= 0) & (subtasks < vertex.parallelism)
        rows = self._table.find(vertex.newest[subtasks], attempts) if known.all() else np.array([NO_ROW])
        if (rows == NO_ROW).any():
            raise ValueError(
                f"{type(event).__name__} speaks of subtasks {subtasks.tolist()[:10]}, attempts {attempts.tolist()[:10]} "
                f"of vertex {vertex.id} '{vertex.job.name}', not all of which were deployed (parallelism {vertex.parallelism})."
            )
        return vertex, rows

    def _end_cancelled(self, vertex: ExecutionJobVertex, rows: Rows) -> Rows:
        """Those we cancelled are gone now; returns the (distinct) others that were still deployed."""
        rows = distinct(rows)
        states = self._table.state[rows]
        self._admission.gone(vertex, rows[states == S.CANCELING])
        return rows[IS_DEPLOYED[states]]

    def _send_again(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> None:
        """An execution in the place of each of these, which ended without having begun; not a restart."""
        if not self._job.is_active or self._speculation.replaced(vertex, rows, cause):
            return
        subtasks = self._table.index[rows].astype(np.int64)
        self._graph.reset(vertex, subtasks, self._recorder.at)
        self._operations.created(vertex, vertex.newest[subtasks], cause)
        self._strategy.restart_tasks({vertex.id: subtasks})
