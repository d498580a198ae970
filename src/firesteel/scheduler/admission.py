"""The first valid commit of a subtask wins: its results become readable; whatever else was made for it goes."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Ints, is_ascending
from firesteel.scheduler.deployment.vertexwise_strategy import SchedulingStrategy
from firesteel.scheduler.exchange.release import PartitionReleaseStrategy
from firesteel.scheduler.failover.failure_accounting import Failure
from firesteel.scheduler.kernel.events import (
    ExecutionReports,
    ExecutionsFinished,
    FailureCause,
    FailureKind,
    PartitionReports,
)
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.profiler import InPhase, Profiler, SchedulingPhase
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.speculation.handler import SpeculativeExecutionHandler
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW, Rows
from firesteel.scheduler.topology.operations import ExecutionOperations

S = ExecutionState
_FASTER = "another attempt was faster"


class Admission:
    """Takes in any executions that say that they have finished."""

    def __init__(
        self,
        operations: ExecutionOperations,
        job: Job,
        strategy: SchedulingStrategy,
        recorder: Recorder,
        *,
        release: PartitionReleaseStrategy,
        metrics: Metrics,
        speculation: SpeculativeExecutionHandler,
        profiler: Profiler,
    ) -> None:
        self._operations = operations
        self._table = operations.graph.executions
        self._job = job
        self._strategy = strategy
        self._recorder = recorder
        self._release = release
        self._metrics = metrics
        self._speculation = speculation
        self._profiler = profiler
        self._discarded: set[tuple[int, int, int, int]] = set()

    def finished(self, vertex: ExecutionJobVertex, rows: Rows, event: ExecutionsFinished) -> Failure | None:
        """``rows`` runs parallel to the event's subtasks. A failure, and nothing is changed: a report does not fit."""
        subtasks = np.asarray(event.subtasks, np.int64)
        able = np.flatnonzero(IS_DEPLOYED[self._table.state[rows]] & (vertex.winner[subtasks] == NO_ROW))
        admitted = able[first_of_each(subtasks[able])]
        reports = event.reports if len(admitted) == len(rows) else event.reports.select(admitted)
        wrong = self._wrong_report(vertex, reports)
        if wrong is not None:
            cause = FailureCause(FailureKind.FATAL, wrong, hint="This is a fault of Firesteel's: please report it.")
            return Failure(vertex, rows[admitted], subtasks[admitted], cause, counted=True)
        many = vertex.step_counts.too_many_errors(reports.steps) if len(reports.steps) else None
        if many is not None:
            cause = FailureCause(
                FailureKind.FATAL, many, hint="Mend the function or its input, or allow more with max_errors=."
            )
            return Failure(vertex, rows[admitted], subtasks[admitted], cause, counted=True)
        if len(admitted):
            self._admit(vertex, subtasks[admitted], rows[admitted], reports)
        refused = np.ones(len(rows), np.bool_)
        refused[admitted] = False
        for k in np.flatnonzero(refused).tolist():
            key = (vertex.id, int(event.subtasks[k]), int(event.attempts[k]), int(event.reports.tokens[k]))
            self._not_admitted(vertex, int(rows[k]), key)
        self._end_others(vertex, subtasks[admitted])
        return None

    def gone(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Spark confirms that these cancelled executions do not run any more: the next attempt may."""
        self._operations.move(vertex.id, rows, S.CANCELED)
        if len(rows) and self._job.is_active and not vertex.job.supports_concurrent_attempts:
            self._strategy.restart_tasks({vertex.id: self._table.index[rows].astype(np.int64)})

    def _end_others(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """Ends the other executions of subtasks that have finished: they are of no use any more."""
        if vertex.has_several and len(subtasks):
            self._operations.drop(vertex, vertex.created_rows(subtasks), _FASTER)
            self._operations.cancel(vertex, vertex.deployed_rows(subtasks), _FASTER)

    def _wrong_report(self, vertex: ExecutionJobVertex, reports: ExecutionReports) -> str | None:
        """A sentence when one of the reports does not speak of what the execution was told to write."""
        if not len(reports):
            return None
        for index, result in enumerate(vertex.blocking_results):
            partition = _partition(reports, index, result.dataset.id)
            told, place = "nothing", 0
            if partition is not None:
                wrong = result.info.misreported(partition)
                if wrong is None:
                    continue
                place, told = wrong
            node = "" if reports.nodes is None else reports.nodes[place]
            return (
                f"A finished execution of '{vertex.job.name}' on {node or 'an unknown node'} reports "
                f"{told} on data set {result.dataset.id}, which has {result.num_subpartitions} subpartitions."
            )
        return None

    def _admit(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows, reports: ExecutionReports) -> None:
        """The first valid commit of these subtasks: their results become readable."""
        self._table.token[rows] = reports.tokens
        vertex.winner[subtasks] = rows
        if reports.nodes is not None:
            self._table.set_nodes(rows, reports.nodes)
        self._stamp(vertex, rows, reports)
        vertex.num_finished += len(rows)
        vertex.was_counted(subtasks)
        vertex.count(subtasks, reports)
        if len(reports.commits):
            vertex.commits.update(zip(subtasks.tolist(), reports.commits, strict=True))
        if len(reports.steps):
            vertex.step_counts.admit(subtasks, reports.steps)
            at, event = self._recorder.at, self._recorder.event
            for record in vertex.step_counts.samples(vertex.id, subtasks, reports.steps, at, event):
                self._recorder.record(record)
        attempts = self._table.attempt[rows].astype(np.int64)
        for index, result in enumerate(vertex.blocking_results):
            partition = _partition(reports, index, result.dataset.id)
            assert partition is not None
            result.info.record(subtasks, attempts, partition)
            self._strategy.on_partitions_available(result.admit(subtasks, attempts, reports.tokens))
        self._speculation.finished(vertex, rows)
        self._metrics.progressed(vertex)
        with InPhase(self._profiler, SchedulingPhase.RELEASE):
            self._release.executions_finished(vertex, subtasks)

    def _stamp(self, vertex: ExecutionJobVertex, rows: Rows, reports: ExecutionReports) -> None:
        """To FINISHED, by way of whatever states nobody reported. The report's own times are the best there are, but for
        the launch: one that was seen counts the start of the task's worker too."""
        table, at = self._table, self._recorder.at
        states = table.state[rows]
        idle = rows[states != S.RUNNING]
        if len(idle):
            table.transition(rows[states == S.SCHEDULED], S.DEPLOYING, at)
            table.transition(idle, S.RUNNING, at)
        for state, told in ((S.DEPLOYING, reports.deployed_at), (S.RUNNING, reports.running_at)):
            known = told > 0
            times = told[known]
            if state is S.DEPLOYING:
                times = np.fmin(table.times(state, rows[known]), times)
            table.stamp(state, rows[known], times)
        ended = np.where(reports.finished_at > 0, reports.finished_at, at)
        self._operations.move(vertex.id, rows, S.FINISHED, at=ended, peaks=reports.peaks())

    def _not_admitted(self, vertex: ExecutionJobVertex, row: int, key: tuple[int, int, int, int]) -> None:
        """Late, doubled, or a loser: what it wrote must go, unless it is the admitted one told of twice."""
        state, token = S(self._table.state[row]), self._table.token.item(row)
        if IS_DEPLOYED[state]:
            self._operations.move(vertex.id, np.array([row]), S.CANCELING, cause=_FASTER)
            state = S.CANCELING
        if state is S.CANCELING:
            self.gone(vertex, np.array([row]))
        if (state is S.FINISHED and token == key[3]) or key in self._discarded:
            return
        self._discarded.add(key)
        subtask, attempt, given = (np.array([number]) for number in key[1:])
        self._recorder.discard(vertex.id, subtask, attempt, given, "it came too late")


def first_of_each(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
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
