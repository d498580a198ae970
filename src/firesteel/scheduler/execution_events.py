"""What Spark tells of executions, and what each of these events does to them: launched, finished, failed, gone, rejected.

The first valid commit of a subtask wins: its results become readable; whatever else was made for it goes. One execution that has
finished as it should is the commonest event by far, and is taken in by scalars: numpy takes a microsecond for each look at an array of
one, so the general way costs ten times more for one execution than for a hundred. What is done is the same, and so are the
records; whatever is out of the ordinary goes the general way.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from firesteel.model.arrays import Ints, Names, distinct, is_ascending, select
from firesteel.scheduler.failover.failover import Failover
from firesteel.scheduler.failover.failure_accounting import Failure
from firesteel.scheduler.failover.retired_workers import RetiredWorkers
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.events import (
    ExecutionReports,
    ExecutionsCancelled,
    ExecutionsDeploying,
    ExecutionsFailed,
    ExecutionsFinished,
    ExecutionsRejected,
    FailureCause,
    FailureKind,
    PartitionReports,
)
from firesteel.scheduler.kernel.records import REJECTED, StateChange
from firesteel.scheduler.kernel.states import IS_DEPLOYED, SAME_SECONDS, ExecutionState, effects
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW, Rows
from firesteel.scheduler.topology.step_counts import only_counts

S = ExecutionState
_IS_DEPLOYED: list[bool] = IS_DEPLOYED.tolist()
_SCHEDULED, _DEPLOYING, _RUNNING, _FINISHED = map(int, (S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FINISHED))
_FASTER = "another attempt was faster"
ExecutionEvent = ExecutionsDeploying | ExecutionsFinished | ExecutionsFailed | ExecutionsCancelled | ExecutionsRejected


_EFFECTS = {event: effects(event) for event in get_args(ExecutionEvent)}


class ExecutionEvents:
    def __init__(self, job: Job, failover: Failover) -> None:
        self._job = job
        self._graph = job.graph
        self._table = job.executions
        self._recorder = job.recorder
        self._failover = failover
        self._retired = RetiredWorkers(job, self._send_again, failover.failed)
        self._discarded: set[tuple[int, int, int, int]] = set()

    def told(self, event: ExecutionEvent) -> bool:
        """Does what the table says (``states.EXECUTIONS``), to all executions in a state at once. Returns whether nothing is possible now that was
        not before: nothing is to be decided or deployed. Raises ValueError for a subtask or attempt that was never deployed."""
        job = self._job
        if (
            isinstance(event, ExecutionsFinished)
            and len(event.subtasks) == 1
            and job.is_active
            and self._admit_one(event)
        ):
            return not (self._graph.vertices[event.vertex].is_finished or job.candidates or job.joined)
        vertex, rows = self._find(event)
        states = self._table.state[rows]
        for does, own in _EFFECTS[type(event)].items():
            places = np.flatnonzero(own[states])
            if len(places):
                getattr(self, does)(vertex, rows[places], places, event)
        return False

    # --- effects: of executions, which stand at these places in the event -------------------------------------------

    def launch(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        states = self._table.state[rows]
        moved = ((states == S.SCHEDULED) | event.running) & first_of_each(rows)
        rows, places, queued = rows[moved], places[moved], states[moved] == S.SCHEDULED
        if event.nodes:
            self._table.set_nodes(rows, Names.of(event.nodes).select(places))
        at = None if event.times is None else event.times[places]
        if event.running:
            self._table.transition(rows[queued], S.DEPLOYING, event.at if at is None else at[queued])
        self._job.move(vertex.id, rows, S.RUNNING if event.running else S.DEPLOYING, at=at)
        for launched in self._job.hooks.launched:
            launched(vertex, rows, places, event)

    def fail(
        self, vertex: ExecutionJobVertex, rows: Rows, _places: Ints, event: ExecutionsFailed | ExecutionsCancelled
    ) -> None:
        cause, counted = FailureCause(FailureKind.WORKER, "its Spark job was cancelled from outside Firesteel"), True
        if isinstance(event, ExecutionsFailed):
            cause, counted = event.cause, event.counted
        self._have_failed(vertex, distinct(rows), cause, counted)

    def gone(self, vertex: ExecutionJobVertex, rows: Rows, _places: Ints, _event: ExecutionEvent) -> None:
        """Spark confirms that these cancelled executions do not run any more: the next attempt may."""
        rows = distinct(rows)
        self._job.move(vertex.id, rows, S.CANCELED)
        if self._job.is_active and not vertex.job.supports_concurrent_attempts:
            self._job.may_run({vertex.id: self._table.index[rows].astype(np.int64)})

    def reject(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsRejected) -> None:
        nodes = dict(zip(rows.tolist(), select(event.nodes, places), strict=False))
        rows = distinct(rows)
        if event.retired:
            self._retired.rejected(vertex, rows)
            return
        where = [nodes.get(row, "") for row in rows.tolist()]
        self._table.set_nodes(rows, Names.of(where))
        self._job.move(vertex.id, rows, S.CANCELED, cause=REJECTED)
        if self._job.is_active:
            for rejected in self._job.hooks.rejected:
                rejected(vertex, rows, where)

    def finish(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsFinished) -> None:
        """The first valid commit of each subtask is admitted; the others come late. Nothing is changed where a report does not fit."""
        subtasks = np.asarray(event.subtasks, np.int64)[places]
        able = np.flatnonzero(IS_DEPLOYED[self._table.state[rows]] & (vertex.winner[subtasks] == NO_ROW))
        admitted = able[first_of_each(subtasks[able])]
        reports = event.reports
        if len(admitted) < len(rows):
            reports = reports.select(places[admitted])
        wrong, hint = self._wrong_report(vertex, reports), "This is a fault of Firesteel's: please report it."
        if wrong is None and len(reports.steps):
            wrong = vertex.step_counts.too_many_errors(reports.steps)
            hint = "Mend the function or its input, or allow more with max_errors=."
        if wrong is not None:
            self._have_failed(vertex, rows[admitted], FailureCause(FailureKind.FATAL, wrong, hint=hint))
            return
        if len(admitted):
            self._admit(vertex, subtasks[admitted], rows[admitted], reports)
        late = np.ones(len(rows), np.bool_)
        late[admitted] = False
        self._come_late(vertex, rows[late], places[late], event)
        self._end_others(vertex, subtasks[admitted])

    def _come_late(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsFinished) -> None:
        """Late, doubled, or losers: what they wrote must go, unless it is the admitted one told of twice."""
        for row, k in zip(rows.tolist(), places.tolist(), strict=True):
            key = (vertex.id, int(event.subtasks[k]), int(event.attempts[k]), int(event.reports.tokens[k]))
            if IS_DEPLOYED[self._table.state[row]]:
                self._job.move(vertex.id, np.array([row]), S.CANCELING, cause=_FASTER)
            if self._table.state[row] == S.CANCELING:
                self.gone(vertex, np.array([row]), places, event)
            is_winner = self._table.state[row] == S.FINISHED and self._table.token.item(row) == key[3]
            if not is_winner and key not in self._discarded:
                self._discarded.add(key)
                subtask, attempt, given = (np.array([number]) for number in key[1:])
                self._recorder.discard(vertex.id, subtask, attempt, given, "it came too late")

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

    def _have_failed(self, vertex: ExecutionJobVertex, rows: Rows, cause: FailureCause, counted: bool = True) -> None:
        self._failover.failed(Failure(vertex, rows, self._table.index[rows].astype(np.int64), cause, counted))

    def _send_again(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> None:
        """An execution in the place of each of these, which ended without having begun; not a restart."""
        job = self._job
        if not job.is_active or any(replaced(vertex, rows, cause) for replaced in job.hooks.replaced):
            return
        subtasks = self._table.index[rows].astype(np.int64)
        self._graph.reset(vertex, subtasks, self._recorder.at)
        job.created(vertex, vertex.newest[subtasks], cause)
        job.may_run({vertex.id: subtasks})

    def _end_others(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """Ends the other executions of subtasks that have finished: they are of no use any more."""
        if vertex.has_several and len(subtasks):
            self._job.drop(vertex, vertex.created_rows(subtasks), _FASTER)
            self._job.cancel(vertex, vertex.deployed_rows(subtasks), _FASTER)

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
            self._job.readers_may_run(result.admit(subtasks, attempts, reports.tokens))
        for finished in self._job.hooks.finished:
            finished(vertex, subtasks, rows)

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
        self._job.move(vertex.id, rows, S.FINISHED, at=ended, peaks=reports.peaks())

    # --- finished: the only current execution of one subtask --------------------------------------------------------

    def _admit_one(self, event: ExecutionsFinished) -> bool:
        """False, and nothing is changed: this one is not so simple."""
        vertex, subtask, attempt = self._graph.vertices[event.vertex], event.subtasks.item(), event.attempts.item()
        row = self._simple(vertex, subtask, attempt)
        if row == NO_ROW:
            return False
        reports, results = event.reports, vertex.blocking_results
        steps = reports.steps
        if len(steps) and not only_counts(steps[0]):
            return False
        if len(reports.partitions) != len(results) or not all(map(_is_about, reports.partitions, results)):
            return False
        self._finish_one(vertex, row, event)
        vertex.winner[subtask] = row
        vertex.num_finished += 1
        if vertex.uncounted is not None:
            vertex.uncounted[subtask] = 0
        vertex.count_one(subtask, reports)
        if len(steps):
            vertex.step_counts.admit(event.subtasks, steps)
        if len(reports.commits):
            vertex.commits[subtask] = reports.commits[0]
        token = reports.tokens.item()
        for place, result in enumerate(results):
            result.info.record_one(subtask, attempt, reports.partitions[place])
            complete = result.admit_one(subtask, attempt, token)
            if complete:
                self._job.readers_may_run(complete)
        rows = vertex.newest[event.subtasks]
        for finished in self._job.hooks.finished:
            finished(vertex, event.subtasks, rows)
        return True

    def _simple(self, vertex: ExecutionJobVertex, subtask: int, attempt: int) -> int:
        """The row of this attempt if it is deployed, and the subtask has no other; else NO_ROW."""
        if not 0 <= subtask < vertex.parallelism or vertex.winner.item(subtask) != NO_ROW:
            return NO_ROW
        row, table = vertex.newest.item(subtask), self._table
        if table.attempt.item(row) != attempt or not table.opens.item(row):
            return NO_ROW
        return row if _IS_DEPLOYED[table.state.item(row)] else NO_ROW

    def _finish_one(self, vertex: ExecutionJobVertex, row: int, event: ExecutionsFinished) -> None:
        """To FINISHED, by way of whatever states nobody reported."""
        table, reports, now = self._table, event.reports, self._recorder.at
        if reports.nodes is not None:
            table.set_nodes(vertex.newest[event.subtasks], reports.nodes)
        source = table.state.item(row)
        deployed, running = reports.deployed_at.item(), reports.running_at.item()
        finished = reports.finished_at.item()
        stamps = table.stamps
        launched = stamps[_DEPLOYING].item(row)  # nan: nobody saw it
        if source == _SCHEDULED or 0 < deployed < launched:
            launched = deployed if deployed > 0 else now
            stamps[_DEPLOYING].put(row, launched)
        if running > 0 or source != _RUNNING:
            running = running if running > 0 else now
            stamps[_RUNNING].put(row, running)
        else:
            running = stamps[_RUNNING].item(row)
        if finished <= 0:
            finished = now
        stamps[_FINISHED].put(row, finished)
        table.token.put(row, reports.tokens.item())
        table.state[row] = _FINISHED
        table.counts[source] -= 1
        table.counts[_FINISHED] += 1
        self._record_one(vertex.id, row, event, (launched, running, finished))
        for ended in self._job.hooks.ended:
            ended(vertex.newest[event.subtasks])

    def _record_one(self, vertex: int, row: int, event: ExecutionsFinished, times: tuple[float, float, float]) -> None:
        """``times``: when it was launched, ran, and finished."""
        table, recorder = self._table, self._recorder
        launched, running, finished = times
        node = table.node_name(row)
        recorder.record(
            StateChange(
                at=recorder.at,
                event=recorder.event,
                vertex=vertex,
                state="FINISHED",
                subtasks=event.subtasks.tolist(),
                attempts=event.attempts.tolist(),
                hosts=[node] if node else [],
                nodes=[0] if node else [],
                times=[] if abs(finished - recorder.at) <= SAME_SECONDS else [_rounded(finished)],
                deployed=[_rounded(launched)],
                running=[_rounded(running)],
                tokens=event.reports.tokens.tolist(),
                peaks=event.reports.peaks(),
            )
        )
        recorder.tell(f"-> FINISHED on {node}" if node else "-> FINISHED", vertex, event.subtasks, event.attempts)


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


def _rounded(seconds: float) -> float:
    """As numpy rounds to four digits, which is faster than Python's own way."""
    return round(seconds * 1e4) / 1e4


def _is_about(partition: PartitionReports, result: IntermediateResult) -> bool:
    return partition.dataset == result.dataset.id and result.info.misreported(partition) is None
