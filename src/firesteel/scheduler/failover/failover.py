"""Handles failed executions: nothing while another one of its subtask can still finish, a restart of the tasks it
takes, at once or after a delay, or the end of the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from firesteel.model.arrays import Ints, distinct
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.failover.failure_accounting import Failure, FailureAccounting
from firesteel.scheduler.failover.partition_loss import PartitionLoss
from firesteel.scheduler.failover.regions import Restart, tasks_needing_restart
from firesteel.scheduler.failover.restart_strategies import Verdict, restart_strategy
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.decisions import Failed, Outcome
from firesteel.scheduler.kernel.events import Event, OutputsLost, PartitionsLost
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.kernel.waits import ForRestart, Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW


class Failover(Policy):
    answers: ClassVar[Mapping[type[Event], str]] = {PartitionsLost: "partitions_lost", OutputsLost: "outputs_lost"}

    def __init__(self, job: Job, merging: Merging) -> None:
        self._job = job
        self._graph = job.graph
        self._recorder = job.recorder
        strategy = restart_strategy(job.options, job.graph.job_graph.name)
        self._accounting = FailureAccounting(strategy, job.executions, job.nodes, job.recorder)
        self._losses = PartitionLoss(job.graph, merging, job.recorder)
        self._pending: dict[str, dict[int, Ints]] = {}
        self._delays = 0

    def failed(self, failure: Failure) -> None:
        """Deployed executions of the subtasks failed, or ended through no fault of theirs: mark them, and see what must run
        again (FLIP-168's three cases)."""
        vertex, cause = failure.vertex, failure.cause
        state = ExecutionState.FAILED if failure.counted else ExecutionState.CANCELED
        self._job.move(vertex.id, failure.rows, state, cause=cause.message)
        if not self._job.is_active:
            return
        loss = self._losses.told_by(failure)
        verdict = self._accounting.verdict(failure, stale_input=loss.is_stale, newly_lost=loss.is_new)
        subtasks = distinct(failure.subtasks)
        able = vertex.can_finish(subtasks)
        if verdict.delay is not None and loss.result is None and able.all():
            self._stays_local(failure, verdict)
            return
        # Not only as an input of what failed: whoever reads a lost partition, nobody else would produce it anew.
        tasks = {vertex.id: subtasks[~able] if loss.result is None else subtasks, **loss.tasks}
        self._follow(failure, verdict, tasks)
        if self._job.is_active:
            self._losses.verify_others(loss)

    def partitions_lost(self, event: PartitionsLost) -> None:
        """More objects are gone, which no reader has missed yet: produce them anew together."""
        failure = self._losses.confirmed(event) if self._job.goes_on else None
        if failure is not None:
            verdict = self._accounting.uncounted("it is gone, and no execution is to blame for that")
            if event.excused:
                verdict = Verdict(0.0, "not counted as a restart: it was gone before this job began", is_restart=False)
            self._follow(failure, verdict, {failure.vertex.id: failure.subtasks})

    def outputs_lost(self, event: OutputsLost) -> None:
        """All that these executions made is void, if they are the admitted ones: others are to make it."""
        failure = self._losses.void(event) if self._job.goes_on else None
        if failure is not None:
            verdict = self._accounting.uncounted("it is gone, and no execution is to blame for that")
            self._follow(failure, verdict, {failure.vertex.id: failure.subtasks})

    def _delay_over(self, timer: str) -> None:
        tasks = self._pending.pop(timer)
        for vertex, subtasks in tasks.items():
            self._graph.vertices[vertex].held[subtasks] = False
        self._job.may_run(tasks)
        if not self._pending:
            self._job.go(JobStatus.RUNNING, "the delay of the restart is over")

    def waiting_for(self) -> list[Wait]:
        held = sum(len(subtasks) for tasks in self._pending.values() for subtasks in tasks.values())
        return [ForRestart(held)] if held and not self._job.is_ending else []

    def _stays_local(self, failure: Failure, verdict: Verdict) -> None:
        """Each of the subtasks has an execution left that may finish: the failed ones only make room."""
        self._decide(failure, "another current execution can finish", Restart({}), Outcome.ANOTHER_RUNS, verdict)

    def _follow(self, failure: Failure, verdict: Verdict, tasks: dict[int, Ints]) -> None:
        if verdict.delay is None:
            self._give_up(failure, verdict)
        else:
            self._restart_tasks(failure, verdict, verdict.delay, tasks)

    def _give_up(self, failure: Failure, verdict: Verdict) -> None:
        vertex, subtask = failure.vertex, int(failure.subtasks[0])
        self._decide(failure, self._accounting.strategy, Restart({}), Outcome.JOB_FAILS, verdict)
        self._job.fail(failure.cause, vertex.id, subtask)

    def _restart_tasks(self, failure: Failure, verdict: Verdict, delay: float, failed: dict[int, Ints]) -> None:
        restart = tasks_needing_restart(self._graph, failed)
        tasks = restart.tasks
        self._decide_restart(failure, verdict, restart)
        for restarting in self._job.hooks.restarting:
            restarting(tasks)
        for vertex, subtasks in tasks.items():
            self._reset(self._graph.vertices[vertex], subtasks, failure)
        self._job.metrics.restarted(tasks, counts=verdict.is_restart)
        if delay <= 0:
            self._job.may_run(tasks)
            return
        self._delays += 1
        timer = f"restart-{self._delays}"
        self._pending[timer] = tasks
        for vertex, subtasks in tasks.items():
            self._graph.vertices[vertex].held[subtasks] = True
        self._job.timers.set(timer, self._recorder.at + delay, lambda: self._delay_over(timer))
        self._job.go(JobStatus.RESTARTING, verdict.reason)

    def _reset(self, vertex: ExecutionJobVertex, subtasks: Ints, failure: Failure) -> None:
        self._discard(vertex, subtasks[vertex.winner[subtasks] != NO_ROW])
        running = vertex.deployed_rows(subtasks)
        self._job.cancel(
            vertex, running, f"its region, or what it reads, runs again after a failure in vertex {failure.vertex.id}"
        )
        if vertex.has_several:
            self._job.drop(vertex, vertex.created_rows(subtasks), "its subtask starts anew")
        self._graph.reset(vertex, subtasks, self._recorder.at)
        self._job.created(vertex, vertex.newest[subtasks], "restart")

    def _discard(self, vertex: ExecutionJobVertex, subtasks: Ints) -> None:
        """Withdraws and discards all that these finished executions produced: the next attempt produces all of it anew."""
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

    def _decide_restart(self, failure: Failure, verdict: Verdict, restart: Restart) -> None:
        rule = f"{self._accounting.strategy}, failed region with its lost inputs, unfinished and invalidated consumers"
        self._decide(failure, rule, restart, Outcome.RESTART, verdict)

    def _decide(self, failure: Failure, rule: str, restart: Restart, outcome: Outcome, verdict: Verdict) -> None:
        vertex, cause = failure.vertex, failure.cause
        facts = Failed(
            subtasks=failure.subtasks.tolist(),
            attempts=self._graph.executions.attempt[failure.rows].tolist(),
            kind=cause.kind.value,
            cause=cause.message,
            counted=failure.counted,
            invalidated={str(v): len(subtasks) for v, subtasks in restart.invalidated.items()},
            outcome=outcome,
            verdict=verdict.reason,
            dataset=cause.dataset,
            partition=cause.partition,
        )
        self._recorder.decision(
            "failover",
            vertex=vertex.id,
            name=vertex.job.name,
            inputs=facts,
            rule=rule,
            result={str(v): len(subtasks) for v, subtasks in restart.tasks.items()},
        )
