"""The cancel path: batches are cancelled in Spark by their tag, single executions by killing their Spark tasks.

All of it belongs to the job's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Cancel, DiscardExecutions
from firesteel.spark.driver.batch import Batch, BatchEnded, Execution
from firesteel.spark.placement import pools
from firesteel.spark.placement.watch import Killer, TaskGone, TasksLost
from firesteel.spark.standing.work import StandingTasks
from firesteel.spark.storage.cleaning import ZOMBIE_SECONDS

CANCEL_PATIENCE_SECONDS = 10.0
"""Seconds that a cancelled Spark job may take to return before its executions are given up as cancelled."""


class Cancelling:
    """``active``: the job's batches by id. ``feed`` tells the scheduler now, ``put`` later; ``in_spark`` cancels a batch;
    ``token_of`` names what a task of Spark's wrote; ``killer_of``: who kills single executions of a batch."""

    def __init__(
        self,
        active: dict[int, Batch],
        killer_of: Callable[[Batch], Killer | StandingTasks],
        *,
        in_spark: Callable[[Batch], None],
        discard: Callable[[DiscardExecutions], None],
        feed: Callable[[ev.Event], None],
        put: Callable[[Any], None],
        now: Callable[[], float],
        token_of: Callable[[int], int],
    ) -> None:
        self._token_of = token_of
        self._active, self._killer_of = active, killer_of
        self._in_spark, self._discard, self._feed, self._put, self._now = in_spark, discard, feed, put, now
        self._give_up_at: dict[int, float] = {}
        self._lingering: dict[int, tuple[float, BatchEnded]] = {}
        self.had_zombies = False
        """Something was cancelled: its Python workers may write for a few seconds yet."""

    def leaves_zombies(self) -> None:
        """Spark has broken tasks off, without being asked from here."""
        self.had_zombies = True

    def cancel(self, cancel: Cancel) -> None:
        """A batch of which nothing else is left is cancelled in Spark; of others, single tasks are killed.

        An execution that is killed counts as cancelled at once; what it says later is stale to the scheduler, which has
        it discarded. Of a vertex that forbids concurrent attempts it counts when it is gone.
        """
        pairs = zip(cancel.subtasks.tolist(), cancel.attempts.tolist(), strict=True)
        wanted = {
            ((cancel.vertex, subtask), attempt): None for subtask, attempt in pairs
        }  # a slow one and its mirror, too
        for batch in [b for b in self._active.values() if cancel.vertex in b.vertices]:
            found = [pair for pair in wanted if batch.open.get(pair[0]) == pair[1]]
            meant = [execution for execution, _ in found]
            if not meant:
                continue
            whole = len(meant) == len(batch.open)
            if whole or batch.exclusive:
                for pair in found:
                    del wanted[pair]
            if whole:
                self.cancel_batch(batch)
                continue
            batch.let_go = True
            if batch.exclusive:
                batch.leaving.update(meant)
            else:
                for execution in meant:
                    del batch.open[execution]
            self._kill(batch, {subtask for _, subtask in meant}, cancel.reason)
            self.cancel_if_left(batch)
        if wanted:
            self._put(_cancelled(self._now(), cancel.vertex, wanted))

    def _kill(self, batch: Batch, subtasks: set[int], reason: str) -> None:
        """The tasks of these, unless another execution in the same task goes on."""
        goes_on = batch.open.keys() - batch.leaving
        doomed = {s for s in subtasks if not any((vertex, s) in goes_on for vertex in batch.vertices)}
        batch.doomed |= doomed
        self.had_zombies = True
        self._killer_of(batch).kill(batch, doomed, f"firesteel: {reason}")

    def cancel_if_left(self, batch: Batch) -> None:
        """Nothing runs any more but what was cancelled alone."""
        if batch.is_left and batch.id in self._active:
            self.cancel_batch(batch)

    def cancel_batch(self, batch: Batch) -> None:
        self.had_zombies = True
        if batch.open and batch.id not in self._lingering:
            self._give_up_at.setdefault(batch.id, self._now() + CANCEL_PATIENCE_SECONDS)
        if not batch.cancelled:
            self.follow(batch)
        self._in_spark(batch)

    def follow(self, batch: Batch) -> None:
        """Ends what is left of the batch without a result; its output is deleted as its tasks are gone."""
        batch.doomed |= {subtask for _, subtask in batch.open}
        self._killer_of(batch).follow(batch, batch.doomed)

    def have_spoken(self, batch: Batch, subtasks: Iterable[int]) -> None:
        """Messages of these have come: nobody needs to kill them now."""
        if batch.let_go:
            self._killer_of(batch).has_ended(batch, set(subtasks))
        self.cancel_if_left(batch)

    def task_gone(self, gone: TaskGone) -> None:
        """Deletes what the task may have written; and tells of executions whose end was waited for."""
        batch = gone.batch
        for deploy in batch.deploys:
            places = np.flatnonzero(deploy.subtasks == gone.subtask)
            attempts, execution = deploy.attempts[places], (deploy.vertex, gone.subtask)
            if gone.has_begun:
                tokens = np.array([self._token_of(gone.task)], dtype=np.int64)
                self._discard(DiscardExecutions(deploy.vertex, deploy.subtasks[places], attempts, tokens))
            if execution in batch.leaving and batch.close(execution, attempts.item()):
                self._feed(_cancelled(self._now(), deploy.vertex, [(execution, attempts.item())]))
        self.cancel_if_left(batch)

    def tasks_lost(self, lost: TasksLost) -> None:
        """Their second runs would say the same, later. Of a vertex that forbids concurrent attempts those are waited for."""
        batch = lost.batch
        if batch.exclusive or batch.cancelled or batch.id not in self._active:
            return
        by_vertex: dict[int, dict[Execution, int]] = {}
        for subtask in lost.subtasks:
            execution = batch.first_open(subtask)
            if execution is not None:
                by_vertex.setdefault(execution[0], {})[execution] = batch.open[execution]
                batch.close_task(subtask)
        cause = ev.FailureCause(ev.FailureKind.LOST, f"The executor on {lost.node} that ran the task is gone.")
        for vertex, executions in by_vertex.items():
            subtasks, attempts = _columns(executions.items())
            self._feed(
                ev.ExecutionsFailed(at=self._now(), vertex=vertex, subtasks=subtasks, attempts=attempts, cause=cause)
            )
        if (
            by_vertex and batch.by_partition
        ):  # in another attempt of its stage a second run does not know that it is one
            batch.let_go = True
            self._kill(batch, {subtask for own in by_vertex.values() for _, subtask in own}, cause.message)
            self.cancel_if_left(batch)

    # --- batches that have ended, or should have -------------------------------------------------------------

    def lingers(self, ended: BatchEnded) -> bool:
        """Workers of a cancelled job live for seconds yet: the next attempt of an exclusive vertex waits for that."""
        batch = ended.batch
        if not batch.exclusive or batch.lingered or not batch.open or batch.id not in self._active:
            return False
        batch.lingered = True
        self._give_up_at.pop(batch.id, None)
        self._lingering[batch.id] = (self._now() + ZOMBIE_SECONDS, ended)
        return True

    def has_ended(self, batch: Batch) -> None:
        """Its Spark job has returned."""
        self._give_up_at.pop(batch.id, None)

    def report_cancelled(self, batch: Batch) -> None:
        remaining = batch.remaining()
        batch.open.clear()
        for vertex, subtasks, attempts in remaining:
            self._feed(ev.ExecutionsCancelled(at=self._now(), vertex=vertex, subtasks=subtasks, attempts=attempts))

    def due(self) -> list[float]:
        """When :meth:`fire` has something to do."""
        return [*self._give_up_at.values(), *(at for at, _ in self._lingering.values())]

    def fire(self, again: Callable[[BatchEnded], None]) -> None:
        """Does whatever is due; ``again`` takes the batches that have lingered."""
        now = self._now()
        for number in [n for n, (at, _) in self._lingering.items() if at <= now]:
            again(self._lingering.pop(number)[1])
        for number in [n for n, at in self._give_up_at.items() if at <= now]:
            del self._give_up_at[number]
            batch = self._active.pop(number, None)
            if batch is not None:
                pools.give_back(batch.pool)
                self.report_cancelled(batch)


def _cancelled(at: float, vertex: int, executions: Iterable[tuple[Execution, int]]) -> ev.ExecutionsCancelled:
    subtasks, attempts = _columns(executions)
    return ev.ExecutionsCancelled(at=at, vertex=vertex, subtasks=subtasks, attempts=attempts)


def _columns(executions: Iterable[tuple[Execution, int]]) -> tuple[ev.Ints, ev.Ints]:
    pairs = [(subtask, attempt) for (_, subtask), attempt in executions]
    columns = np.array(pairs, dtype=np.int64)
    return columns[:, 0], columns[:, 1]
