"""Finds out what became of executions whose task failed, was lost, or was given up with its whole Spark job, as events for the scheduler.

Such a task says little or nothing itself; Spark's status store knows where and since when it ran, and what ended it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from firesteel.scheduler.kernel import events as ev
from firesteel.spark.driver.batch import Batch, Execution
from firesteel.spark.driver.spark_errors import WITHOUT_A_WORD, GivenUp, TaskEnd, read_error, read_task_error
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkStatus, SparkTask
from firesteel.spark.standing.work import EndedEarlyError, TurnLost, UnreachedError
from firesteel.task.executor import notes
from firesteel.task.executor.messages import FailedMessage
from firesteel.task.executor.place import Place

ENDED_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 0.02


class PostMortem:
    """``of_wall``: epoch to job time."""

    def __init__(
        self,
        status: SparkStatus,
        nodes: NodeNames,
        store: Any,
        *,
        of_wall: Callable[[float], float],
        now: Callable[[], float],
    ) -> None:
        self._status, self._nodes, self._store = status, nodes, store
        self._of_wall, self._now = of_wall, now

    def of_message(self, batch: Batch, vertex: int, message: FailedMessage) -> Iterator[ev.Event]:
        """The execution's launch, which nobody may have seen, and its failure.

        One that Spark started again knows nothing of its first run: that is looked up.
        """
        where = message.where
        place = self._nodes.of_place(where.node), Place.decode(where.node).executor
        launched: float | None = where.deployed_at
        if message.kind == ev.FailureKind.LOST.name:
            first = self._first_run(batch, where.subtask)
            launched = None
            if first is not None:
                launched, place = first.launched, (self._nodes.of(first.executor, first.host), first.executor)
                message = _explained(message, _end_of(first), by_partition=batch.by_partition)
        if launched is not None:
            yield self._launch(vertex, [(where.subtask, where.attempt)], [launched], [place])
        yield self._failed(vertex, message)

    def of_turn(self, lost: TurnLost) -> Iterator[ev.Event]:
        """The same of executions in a standing task that is gone; those of them that are still open."""
        batch, subtask = lost.batch, lost.subtask
        place = self._nodes.of_place(lost.place), Place.decode(lost.place).executor
        cause = self._cause_of_turn(lost)
        for vertex in batch.vertices:
            attempt = batch.open.get((vertex, subtask))
            if attempt is not None:
                yield self._launch(vertex, [(subtask, attempt)], [lost.launched], [place])
                subtasks, attempts = np.array([[subtask], [attempt]], dtype=np.int64)
                yield ev.ExecutionsFailed(
                    at=self._now(), vertex=vertex, subtasks=subtasks, attempts=attempts, cause=cause
                )

    def _cause_of_turn(self, lost: TurnLost) -> ev.FailureCause:
        if lost.error is not None:
            given_up = WITHOUT_A_WORD if isinstance(lost.error, EndedEarlyError) else read_error(lost.error)
            kind = ev.FailureKind.FATAL if given_up.fatal else ev.FailureKind.WORKER
            return ev.FailureCause(kind, given_up.sentence, hint=given_up.hint)
        end = self._awaited_end(lost)
        return ev.FailureCause(ev.FailureKind.LOST, end.sentence, hint=end.hint)

    def _awaited_end(self, lost: TurnLost) -> TaskEnd:
        """Spark may start a task again before it has written down what became of the first run."""
        until = time.monotonic() + ENDED_SECONDS
        while True:
            ends = (_end_of(task) for task in self._runs(lost.tag, failed=True) if task.id == lost.task)
            found = next(ends, None)
            if found is not None:
                return found
            if time.monotonic() >= until:
                return TaskEnd("The Python worker that ran the task is gone.", None, worker=True)
            time.sleep(LOOK_AGAIN_SECONDS)

    def of_batch(self, batch: Batch, error: BaseException | None) -> Iterator[ev.Event]:
        """Yields the launches of its open executions that ran, the failure of the one that is to blame, and the end of the others with it."""
        if isinstance(error, UnreachedError):
            yield from self._given_back(batch, error)
            return
        given_up = WITHOUT_A_WORD if error is None else read_error(error)
        runs = [] if given_up.fatal else self._runs(batch.own_tag, given_up.stage_attempt)
        remaining, culprit = batch.remaining(), self._culprit(batch, given_up, runs)
        cause, taken_along = self._cause(batch, given_up, culprit), _taken_along(given_up, culprit)
        for vertex, subtasks, attempts in remaining:
            yield from self._launches(batch, vertex, runs)
            counted = np.array([(vertex, subtask) == culprit for subtask in subtasks.tolist()])
            for chosen, own in ((counted, cause), (~counted, taken_along)):
                if chosen.any():
                    yield ev.ExecutionsFailed(
                        at=self._now(),
                        vertex=vertex,
                        subtasks=subtasks[chosen],
                        attempts=attempts[chosen],
                        cause=own,
                        counted=own is cause,
                    )

    def _given_back(self, batch: Batch, error: UnreachedError) -> Iterator[ev.Event]:
        """Nobody is to blame for what never ran."""
        cause = ev.FailureCause(ev.FailureKind.WORKER, str(error))
        for vertex, subtasks, attempts in batch.remaining():
            yield ev.ExecutionsFailed(
                at=self._now(), vertex=vertex, subtasks=subtasks, attempts=attempts, cause=cause, counted=False
            )

    def _culprit(self, batch: Batch, given_up: GivenUp, runs: Sequence[SparkTask]) -> Execution:
        """One execution of the task that Spark blames; of a fused task the first one."""
        if given_up.task is not None:
            subtasks = [batch.subtask_of(task.partition) for task in runs if task.index == given_up.task]
            if not subtasks and not given_up.stage_attempt and given_up.task < len(batch.subtasks):
                subtasks = [batch.position_to_subtask(given_up.task)]  # of the first attempt all are there, in order
            named = next(filter(None, map(batch.first_open, subtasks)), None)
            if named is not None:
                return named
        return next(iter(batch.open))

    def _cause(self, batch: Batch, given_up: GivenUp, culprit: Execution) -> ev.FailureCause:
        kind, told = ev.FailureKind.WORKER, (given_up.sentence, given_up.hint)
        if given_up.fatal:
            kind = ev.FailureKind.FATAL
        elif batch.by_partition and not given_up.worker:
            kind = ev.FailureKind.USER
        if given_up.worker and (words := notes.find(self._store, (*culprit, batch.open[culprit]))):
            kind, told = ev.FailureKind.USER, words
        return ev.FailureCause(kind, told[0], hint=told[1])

    def _runs(self, tag: str, stage_attempt: int = 0, *, failed: bool = False) -> list[SparkTask]:
        """The tasks that Spark launched for the job with this tag, as far as it still knows of them."""
        with suppress(Exception):  # Spark may be stopping, or has forgotten the stage
            stage = self._status.stage_of(tag)
            return [] if stage is None else self._status.launched(stage, stage_attempt, failed=failed)
        return []

    def _first_run(self, batch: Batch, subtask: int) -> SparkTask | None:
        failed = self._runs(batch.own_tag, failed=True)
        return next((task for task in failed if batch.subtask_of(task.partition) == subtask and not task.again), None)

    def _launches(self, batch: Batch, vertex: int, runs: Sequence[SparkTask]) -> Iterator[ev.ExecutionsDeploying]:
        executions: dict[tuple[int, int], SparkTask] = {}
        for task in runs:
            subtask = batch.subtask_of(task.partition)
            if not task.again and (vertex, subtask) in batch.open:
                executions[subtask, batch.open[vertex, subtask]] = task
        if executions:
            tasks = executions.values()
            places = [(self._nodes.of(task.executor, task.host), task.executor) for task in tasks]
            yield self._launch(vertex, [*executions], [task.launched for task in tasks], places)

    def _launch(
        self,
        vertex: int,
        executions: Sequence[tuple[int, int]],
        launched: Sequence[float],
        places: Sequence[tuple[str, str]],
    ) -> ev.ExecutionsDeploying:
        """``executions``: subtasks and attempts; ``launched``: since the epoch; ``places``: nodes and executors."""
        numbers = np.array(executions, dtype=np.int64)
        return ev.ExecutionsDeploying(
            at=self._now(),
            vertex=vertex,
            subtasks=numbers[:, 0],
            attempts=numbers[:, 1],
            nodes=[node for node, _ in places],
            times=np.array([self._of_wall(at) for at in launched]),
            executors=[executor for _, executor in places],
        )

    def _failed(self, vertex: int, message: FailedMessage) -> ev.ExecutionsFailed:
        where = message.where
        dataset, partition, attempt, token = message.partition
        cause = ev.FailureCause(
            ev.FailureKind[message.kind],
            message.message,
            trace=message.trace,
            dataset=dataset,
            partition=partition,
            attempt=attempt,
            token=token,
            hint=message.hint,
            stop=message.stop,
        )
        subtasks, attempts = np.array([[where.subtask], [where.attempt]], dtype=np.int64)
        return ev.ExecutionsFailed(at=self._now(), vertex=vertex, subtasks=subtasks, attempts=attempts, cause=cause)


def _end_of(task: SparkTask) -> TaskEnd:
    return read_task_error(task.error, "" if task.executor == "driver" else task.host)


def _explained(message: FailedMessage, end: TaskEnd, *, by_partition: bool) -> FailedMessage:
    """``by_partition``: Spark's own plan runs in the task, too, and may be what failed."""
    kind = ev.FailureKind.USER if by_partition and not end.worker else ev.FailureKind.LOST
    return replace(message, kind=kind.name, message=end.sentence, hint=end.hint)


def _taken_along(given_up: GivenUp, culprit: Execution) -> ev.FailureCause:
    if given_up.fatal:
        return ev.FailureCause(ev.FailureKind.FATAL, given_up.sentence, hint=given_up.hint)
    return ev.FailureCause(ev.FailureKind.WORKER, f"Spark ended its whole job when subtask {culprit[1]} failed.")
