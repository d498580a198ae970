"""Batches whose executions wait for standing tasks, or run in them: who is next, and when a batch is over (under its owner's lock); and all that the job's loop knows of standing tasks."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver.batch import Batch, BatchCode, BatchEnded, descriptors_of
from firesteel.spark.placement.status_store import SparkTask
from firesteel.task.executor import standing
from firesteel.task.executor.information import VertexPart


@dataclass(eq=False)
class Work:
    """A batch. ``waiting``: positions in it; ``running``: how many executions run."""

    batch: Batch
    code: BatchCode
    since: float
    """When it came."""
    waiting: deque[int] = field(default_factory=deque)
    running: int = 0
    told: bool = False
    """Its end was reported."""
    error: BaseException | None = None

    @property
    def must_wait(self) -> bool:
        """:meth:`prepare` may take a while: blobs are being stored, or there are splits to be pickled."""
        offloaded = (gate.offloaded for deploy in self.batch.deploys for gate in deploy.gates)
        return any(offloaded) or any(map(len, self.code.splits))

    def prepare(self) -> None:
        """Waits for the blobs, and makes what is to be sent. Raises what cannot be."""
        _ = self.code_message, self._descriptors

    @cached_property
    def code_message(self) -> bytes:
        """For each task, before the first execution that it gets. Raises what cannot be sent."""
        vertices = zip(self.code.vertices, self.batch.deploys, strict=True)
        parts = tuple(
            VertexPart(vertex, tuple(map(self.code.blobs.carry, deploy.gates))) for vertex, deploy in vertices
        )
        return pickle.dumps(standing.BatchCode(self.batch.id, parts, self.code.blobs.dropped), protocol=5)

    def order(self, position: int) -> bytes:
        """The message with the execution. Raises what cannot be sent."""
        own = tuple(part[position] for part in self._descriptors)
        return pickle.dumps(standing.Order(self.batch.id, own), protocol=5)

    @cached_property
    def _descriptors(self) -> list[list[bytes]]:
        """By part and position."""
        return [descriptors_of(deploy, own) for deploy, own in zip(self.batch.deploys, self.code.splits, strict=True)]


@dataclass(eq=False)
class Turn:
    """An execution that was given to a standing task. ``launched``: seconds since the epoch."""

    work: Work
    position: int
    launched: float
    told: bool = False
    """It was told that it runs."""

    @property
    def subtask(self) -> int:
        return self.work.batch.position_to_subtask(self.position)


class Waiting:
    """All batches of the job that have something to do. They take turns."""

    def __init__(self, report: Callable[[BatchEnded], None]) -> None:
        self._report = report
        self._works: dict[int, Work] = {}
        self._turns: deque[Work] = deque()
        """Works of which something waits; each once."""

    def __len__(self) -> int:
        """Returns the number of executions that wait."""
        return sum(len(work.waiting) for work in self._turns)

    @property
    def since(self) -> float:
        """When the oldest batch of which something waits came."""
        return min(work.since for work in self._turns)

    def of(self, batch: Batch) -> Work | None:
        return self._works.get(batch.id)

    def add(self, work: Work) -> None:
        """A batch whose executions wait; none is taken before it is offered."""
        work.waiting.extend(range(len(work.batch.subtasks)))
        self._works[work.batch.id] = work

    def offer(self, work: Work) -> None:
        """From now on; no-op where it is over, or was handed back."""
        if work.waiting and self._works.get(work.batch.id) is work:
            self._turns.append(work)

    def take(self, launched: float) -> Turn:
        """The next execution, which runs from now on."""
        work = self._turns.popleft()
        turn = Turn(work, work.waiting.popleft(), launched)
        work.running += 1
        if work.waiting:
            self._turns.append(work)
        return turn

    def over(self, turn: Turn) -> None:
        """It does not run any more."""
        turn.work.running -= 1
        self.end_if_over(turn.work)

    def withdraw(self, work: Work, subtasks: Iterable[int] | None = None) -> list[int]:
        """Returns those of the subtasks (None: all) that wait; they will not run."""
        wanted = None if subtasks is None else set(subtasks)
        subtask = work.batch.position_to_subtask
        gone = [at for at in work.waiting if wanted is None or subtask(at) in wanted]
        work.waiting = deque(at for at in work.waiting if wanted is not None and subtask(at) not in wanted)
        if not work.waiting:
            self._withdraw(work)
        return list(map(subtask, gone))

    def hand_back(self) -> list[Work]:
        """Returns the batches of which nothing has begun; they are not among these any more."""
        untouched = [work for work in self._works.values() if len(work.waiting) == len(work.batch.subtasks)]
        for work in untouched:
            self._withdraw(work)
            del self._works[work.batch.id]
        return untouched

    def give_up(self, error: BaseException | None) -> None:
        """No task can be had for what waits. None: and nobody knows why."""
        for work in self.works():
            if work.waiting:
                self.fail(work, error)

    def fail(self, work: Work, error: BaseException | None) -> None:
        """No more of it can be run; it ends when nothing of it runs."""
        work.error = work.error or error
        self.withdraw(work)
        self.end_if_over(work)

    def end_if_over(self, work: Work) -> None:
        if not work.waiting and not work.running:
            self.end(work)

    def end(self, work: Work) -> None:
        """Reports the end, once."""
        if not work.told:
            work.told = True
            self._works.pop(work.batch.id, None)
            work.batch.ended.set()
            self._report(BatchEnded(work.batch, (), work.error))

    def works(self) -> list[Work]:
        return list(self._works.values())

    def _withdraw(self, work: Work) -> None:
        with suppress(ValueError):  # it was not offered yet
            self._turns.remove(work)


@dataclass(frozen=True, slots=True)
class TurnLost:
    """The standing task that ran the execution is gone. ``tag``: of its Spark job; ``error``: what that raised, None: its task was started
    again, so that Spark's status store knows why. ``launched``: seconds since the epoch; ``place``: as ``Place.encoded``."""

    batch: Batch
    subtask: int
    tag: str
    task: int
    launched: float
    place: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class NotTaken:
    """No standing task has come: the batch is to be a Spark job. Nothing of it has begun."""

    batch: Batch
    code: BatchCode
    decision: Decision


class EndedEarlyError(Exception):
    """A standing task has ended although nobody told it to, and Spark has nothing to say of it."""


class UnreachedError(Exception):
    """Executors could not connect to the driver, and nobody who could is left: the executions are to be Spark jobs."""

    def __init__(self) -> None:
        super().__init__("Executors could not connect to the driver, so it is sent again, in a Spark job.")


class StandingTasks:
    """Those of a job that has none: every batch is a Spark job. Used by the job's thread, but for ``launches`` and ``executors_gone``."""

    def takes(self, batch: Batch, code: BatchCode) -> Decision | None:
        """Starts a batch, if it is one for standing tasks, and returns the decision."""
        return None

    def make_room(self, others: int) -> None:
        """The job has so many executions in Spark's own jobs: those that are idle in slots which these need go."""

    def cancel(self, batch: Batch) -> None: ...

    def kill(self, batch: Batch, subtasks: Collection[int], reason: str) -> None:
        """As ``Killer`` does, and so are the next two."""

    def follow(self, batch: Batch, subtasks: Collection[int]) -> None: ...
    def has_ended(self, batch: Batch, subtasks: Collection[int]) -> None: ...

    def launches(self) -> list[tuple[Batch, list[SparkTask]]]:
        """Returns the executions that run and were not told before; any thread."""
        return []

    def executors_gone(self, gone: Mapping[str, str]) -> None:
        """These are, with what runs there; by name, with their nodes. Any thread."""

    def due(self) -> list[float]:
        """When :meth:`fire` has something to do, on the job's clock."""
        return []

    def fire(self) -> None: ...

    def close(self, seconds: float) -> None:
        """Ends all of them, and waits, but not longer."""


Standing = Callable[[Callable[[Any], None], Callable[[], float]], StandingTasks]
"""Makes those of one job, when that begins: of what takes all that has happened, in any thread, and the job's clock."""


def no_standing_tasks(report: Callable[[Any], None], now: Callable[[], float]) -> StandingTasks:
    return StandingTasks()
