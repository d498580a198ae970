"""All that the job's loop knows of standing tasks: whom it gives batches to, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver.batch import Batch, BatchCode
from firesteel.spark.placement.status_store import SparkTask


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
