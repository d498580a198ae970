"""What follows a failed execution: a restart of the tasks it takes, at once or after a delay, or the end of the job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.errors import MERGED_ATTEMPT
from firesteel.humanize import plural
from firesteel.scheduler.commands import JobStatus, SetTimer, VerifyPartitions
from firesteel.scheduler.events import FailureCause, FailureKind, Ints, PartitionsLost
from firesteel.scheduler.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.executions import NO_ROW, ExecutionTable, Rows
from firesteel.scheduler.failover import Restart, RestartPipelinedRegionFailoverStrategy
from firesteel.scheduler.job import Job
from firesteel.scheduler.merging import Merging
from firesteel.scheduler.metrics import Metrics
from firesteel.scheduler.operations import ExecutionOperations
from firesteel.scheduler.recorder import Recorder
from firesteel.scheduler.release import PartitionReleaseStrategy
from firesteel.scheduler.restart import RestartStrategy, Verdict
from firesteel.scheduler.states import ExecutionState
from firesteel.scheduler.strategy import SchedulingStrategy

MAX_INNOCENT_RESTARTS = 10
"""How often in a row a subtask is sent again without a charge; then it is charged like any other."""

VERIFY_SECONDS = 1.0
"""A data set's objects are looked for at most so often: a lost disk makes thousands of readers fail one after another."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Executions (``rows``) of one vertex that failed together for one cause; ``subtasks`` runs parallel."""

    vertex: ExecutionJobVertex
    rows: Rows
    subtasks: Ints
    cause: FailureCause
    culpable: bool


class _Charge:
    """The last death of a worker, or failure of the storage, that was charged.

    What ran beside it joins it: one dead executor takes several executions along, which are reported one by one. An
    execution that was deployed after it is charged itself, so that two which kill their workers do not excuse each
    other for ever.
    """

    def __init__(self, table: ExecutionTable) -> None:
        self._table = table
        self._at = -np.inf
        self._rows = 0

    def made(self, at: float) -> None:
        self._at, self._rows = at, self._table.size

    def covers(self, rows: Rows) -> bool:
        scheduled = self._table.stamps[ExecutionState.SCHEDULED][rows]
        return bool((rows < self._rows).all() and (scheduled <= self._at).all())


class ExecutionFailureHandler:
    def __init__(
        self,
        operations: ExecutionOperations,
        job: Job,
        restart: RestartStrategy,
        scheduling: SchedulingStrategy,
        recorder: Recorder,
        *,
        release: PartitionReleaseStrategy,
        merging: Merging,
        metrics: Metrics,
    ) -> None:
        graph = self._graph = operations.graph
        self._operations = operations
        self._job = job
        self._restart = restart
        self._scheduling = scheduling
        self._recorder = recorder
        self._release = release
        self._merging = merging
        self._metrics = metrics
        self._failover = RestartPipelinedRegionFailoverStrategy(graph)
        self._pending: dict[str, dict[int, Ints]] = {}
        self._timers = 0
        self._charge = _Charge(graph.executions)
        self._lost: set[tuple[int, int]] = set()
        """(data set, partition) that was lost once already."""
        self._verified: dict[int, float] = {}
        """When each data set's objects were looked for last."""

    def failed(self, failure: Failure) -> None:
        """Deployed executions of the subtasks failed: mark them, and see what must run again."""
        vertex, cause = failure.vertex, failure.cause
        self._operations.move(vertex.id, failure.rows, ExecutionState.FAILED, cause=cause.message)
        if not self._job.is_active:
            return
        tasks = {vertex.id: failure.subtasks}
        if cause.attempt == MERGED_ATTEMPT:
            self._merging.damaged(cause.dataset, cause.partition, cause.token)
        lost = self._lost_partition(failure)
        if lost is not None:
            partition = np.array([cause.partition])
            lost.withdraw(partition, stored=True)
            # Not only as an input of what failed: whoever reads it, nobody else would produce it anew.
            tasks[lost.dataset.producer] = partition
        verdict = self._verdict(failure, lost is not None)
        self._follow(failure, verdict, tasks)
        if lost is not None and self._job.is_active:
            self._verify_others(lost)

    def _verify_others(self, lost: IntermediateResult) -> None:
        dataset, others = lost.dataset.id, np.flatnonzero(lost.available)
        if len(others) and self._recorder.at >= self._verified.get(dataset, -np.inf) + VERIFY_SECONDS:
            self._verified[dataset] = self._recorder.at
            self._recorder.emit(VerifyPartitions(dataset, others, lost.attempts[others], lost.tokens[others]))

    def partitions_lost(self, event: PartitionsLost) -> None:
        """More objects are gone, which no reader has missed yet: produce them anew together."""
        result = self._graph.results[event.dataset]
        if result is None or not self._job.is_active:
            return
        same = result.available[event.partitions]
        same &= result.attempts[event.partitions] == event.attempts
        same &= result.tokens[event.partitions] == event.tokens
        gone = np.asarray(event.partitions, np.int64)[same]
        if not len(gone):
            return
        vertex = self._graph.vertices[result.dataset.producer]
        result.withdraw(gone, stored=True)
        self._lost.update((result.dataset.id, p) for p in gone.tolist())
        message = f"{plural(len(gone), 'object')} of data set {result.dataset.id} are not in the store any more"
        cause = FailureCause(FailureKind.PARTITION, message, dataset=result.dataset.id, partition=int(gone[0]))
        failure = Failure(vertex, vertex.winner[gone], gone, cause, culpable=True)
        verdict = self._restart.uncharged("they were lost with the one that was missed")
        self._follow(failure, verdict, {vertex.id: gone})

    def _follow(self, failure: Failure, verdict: Verdict, tasks: dict[int, Ints]) -> None:
        if verdict.delay is None:
            self._give_up(failure, verdict)
        else:
            self._restart_tasks(failure, verdict, verdict.delay, tasks)

    def timer_fired(self, timer: str) -> None:
        """The delay of a restart is over. A timer that is not ours, or fired before, changes nothing."""
        tasks = self._pending.pop(timer, None)
        if tasks is None or not self._job.is_active:
            return
        for vertex, subtasks in tasks.items():
            self._graph.vertices[vertex].held[subtasks] = False
        self._scheduling.restart_tasks(tasks)
        if not self._pending:
            self._job.go(JobStatus.RUNNING, "the delay of the restart is over")

    @property
    def pending_restarts(self) -> int:
        return sum(len(subtasks) for tasks in self._pending.values() for subtasks in tasks.values())

    def _verdict(self, failure: Failure, lost: bool) -> Verdict:
        kind = failure.cause.kind
        if kind is FailureKind.FATAL:
            return Verdict(None, "trying again cannot help")
        stale_input = kind is FailureKind.PARTITION and not lost and self._names_input(failure) is not None
        if not failure.culpable or stale_input:
            innocent = failure.vertex.innocent
            innocent[failure.subtasks] += 1
            if int(innocent[failure.subtasks].max()) <= MAX_INNOCENT_RESTARTS:
                why = "it was not to blame"
                if failure.cause.attempt == MERGED_ATTEMPT:
                    why = "the partitions that were merged are there still, each by itself"
                elif stale_input:
                    why = "it read a partition that was produced anew meanwhile"
                return Verdict(0.0, f"not charged, {why}")
        if kind in (FailureKind.WORKER, FailureKind.STORAGE):
            if self._charge.covers(failure.rows):
                return self._restart.uncharged("it ran beside the failure that was charged last")
            self._charge.made(self._recorder.at)
        if lost and (failure.cause.dataset, failure.cause.partition) not in self._lost:
            # A lost disk holds many partitions, and each is found missing only when somebody reads it.
            self._lost.add((failure.cause.dataset, failure.cause.partition))
            return self._restart.uncharged("this partition was not lost before")
        return self._restart.charge(self._recorder.at)

    def _names_input(self, failure: Failure) -> IntermediateResult | None:
        """The consumed result that the cause speaks of, if it names one of its partitions."""
        cause = failure.cause
        if all(edge.dataset != cause.dataset for edge in failure.vertex.job.inputs):
            return None
        result = self._graph.result(cause.dataset)
        return result if 0 <= cause.partition < result.num_partitions else None

    def _lost_partition(self, failure: Failure) -> IntermediateResult | None:
        """The result of which the named partition is lost; None if that object is not the current one any more."""
        cause = failure.cause
        result = self._names_input(failure) if cause.kind is FailureKind.PARTITION else None
        if result is None or not result.available[cause.partition]:
            return None
        named = (cause.attempt, cause.token)
        current = (int(result.attempts[cause.partition]), int(result.tokens[cause.partition]))
        return result if named == current else None

    def _give_up(self, failure: Failure, verdict: Verdict) -> None:
        vertex, subtask = failure.vertex, int(failure.subtasks[0])
        self._decide(failure, verdict, Restart({}), f"the job fails, {verdict.reason}")
        self._job.fail(failure.cause, vertex.id, subtask)

    def _restart_tasks(self, failure: Failure, verdict: Verdict, delay: float, failed: dict[int, Ints]) -> None:
        restart = self._failover.tasks_needing_restart(failed)
        tasks = restart.tasks
        count = sum(len(subtasks) for subtasks in tasks.values())
        again = sum(len(subtasks) for subtasks in restart.rereaders.values())
        reread = (
            f" ({again} of them finished before: what they read may come in another order, or be other rows)"
            if again
            else ""
        )
        self._decide(failure, verdict, restart, f"{plural(count, 'subtask')} to run again{reread}, {verdict.reason}")
        self._release.executions_reset(tasks)
        for vertex, subtasks in tasks.items():
            self._reset(self._graph.vertices[vertex], subtasks, failure)
        self._metrics.restarted(tasks)
        if delay <= 0:
            self._scheduling.restart_tasks(tasks)
            return
        self._timers += 1
        timer = f"restart-{self._timers}"
        self._pending[timer] = tasks
        for vertex, subtasks in tasks.items():
            self._graph.vertices[vertex].held[subtasks] = True
        self._recorder.emit(SetTimer(timer, self._recorder.at + delay))
        self._job.go(JobStatus.RESTARTING, verdict.reason)

    def _reset(self, vertex: ExecutionJobVertex, subtasks: Ints, failure: Failure) -> None:
        self._discard(vertex, subtasks[vertex.winner[subtasks] != NO_ROW])
        running = vertex.deployed_rows(subtasks)
        self._operations.cancel(
            vertex, running, f"its region, or what it reads, runs again after a failure in vertex {failure.vertex.id}"
        )
        if vertex.has_several:
            self._operations.drop(vertex, vertex.created_rows(subtasks), "its subtask starts anew")
        self._graph.reset(vertex, subtasks, self._recorder.at)
        self._operations.created(vertex, vertex.newest[subtasks], "restart")

    def _discard(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """What these finished executions produced is void: all of it, since the next attempt produces all of it anew."""
        left = np.full(len(subtasks), vertex.job.has_sink)
        for result in vertex.blocking_results:
            left |= result.stored[subtasks]
            result.withdraw(subtasks, stored=False)
            result.info.erase(subtasks)
        table, rows = self._graph.executions, vertex.winner[subtasks]
        rows = rows[left]
        attempts = table.attempt[rows].astype(np.int64)
        self._recorder.discard(vertex.id, subtasks[left], attempts, table.token[rows], "it is produced anew")
        if vertex.job.has_sink:
            for subtask in subtasks.tolist():
                vertex.commits.pop(subtask, None)

    def _decide(self, failure: Failure, verdict: Verdict, restart: Restart, outcome: str) -> None:
        vertex, cause = failure.vertex, failure.cause
        who = (
            f"subtask {failure.subtasks[0]}" if len(failure.subtasks) == 1 else plural(len(failure.subtasks), "subtask")
        )
        place = "" if cause.dataset < 0 else f" at partition {cause.partition} of data set {cause.dataset}"
        self._recorder.decision(
            "failover",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs={
                "subtasks": failure.subtasks.tolist(),
                "kind": cause.kind.value,
                "cause": cause.message,
                "culpable": failure.culpable,
                "rereaders": {str(v): len(subtasks) for v, subtasks in restart.rereaders.items()},
            },
            rule=f"{self._restart.name}, failed region with its lost inputs, unfinished consumers and rereaders",
            result={str(v): len(subtasks) for v, subtasks in restart.tasks.items()},
            reason=f"{who} of '{vertex.job.name}' failed{place} ({cause.kind.value}): {outcome}",
        )
