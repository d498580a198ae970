"""Kills single Spark tasks whose executions were cancelled, and tells when they, or those of a cancelled job, are gone.

The job's thread says what is doomed; the watcher, which sees tasks run, does the rest in its own. A task that was not
launched yet is killed as soon as it is seen. Spark starts a killed task again, whose second run ends at once. However
busy its Python worker is (in Python, in C, waiting for input), Spark ends the process 2 to 4 s after, by a signal that
nothing can hold: it looks every 2 s, and waits for spark.python.task.killTimeout (2 s; less in sessions that we make).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from firesteel.spark.driver.batch import Batch
from firesteel.spark.placement.status_store import SparkTask

NO_TASK = -1
URGENT_SECONDS = 5.0
"""So long after something was doomed it is looked for more often."""


@dataclass(frozen=True, slots=True)
class TaskGone:
    """A task of Spark's ran cancelled executions of the subtask, and runs no more: what it wrote can be deleted. ``task``: NO_TASK where
    they had not begun, and will not."""

    batch: Batch
    subtask: int
    task: int

    @property
    def has_begun(self) -> bool:
        return self.task != NO_TASK


@dataclass(slots=True)
class _Doomed:
    """``wanted``: subtasks whose tasks are to be killed when seen; ``followed``: Spark kills these by itself."""

    batch: Batch
    reason: str = ""
    wanted: set[int] = field(default_factory=set)
    followed: set[int] = field(default_factory=set)
    dying: dict[int, int] = field(default_factory=dict)
    """Task to subtask."""


class Killer:
    """``kill_task``: asks Spark, returns at once. ``report`` takes TaskGone, ``wake`` makes the watcher look."""

    def __init__(self, kill_task: Callable[[int, str], None], report: Callable[[TaskGone], None]) -> None:
        self._kill_task = kill_task
        self._report = report
        self._lock = threading.Lock()
        self._doomed: dict[int, _Doomed] = {}
        self._urgent_until = 0.0
        self.wake: Callable[[], None] = lambda: None

    # --- for the job's thread --------------------------------------------------------------------------------

    def kill(self, batch: Batch, subtasks: Collection[int], reason: str) -> None:
        """Kill the tasks of these, the rest of the batch goes on."""
        self._doom(batch, subtasks, reason, whole=False)

    def follow(self, batch: Batch, subtasks: Collection[int]) -> None:
        """The whole batch is being cancelled in Spark; say when the tasks of these are gone."""
        self._doom(batch, subtasks, "", whole=True)

    def has_ended(self, batch: Batch, subtasks: Collection[int]) -> None:
        """They have spoken: nothing is left to kill."""
        with self._lock:
            entry = self._doomed.get(batch.id)
            if entry is not None:
                entry.wanted.difference_update(subtasks)

    def _doom(self, batch: Batch, subtasks: Collection[int], reason: str, *, whole: bool) -> None:
        if not subtasks:
            return
        with self._lock:
            entry = self._doomed.setdefault(batch.id, _Doomed(batch))
            if whole:
                entry.followed.update(subtasks)
                entry.wanted.clear()
            else:
                entry.wanted.update(subtasks)
                entry.reason = reason
            self._urgent_until = time.monotonic() + URGENT_SECONDS
        self.wake()

    # --- for the watcher -------------------------------------------------------------------------------------

    @property
    def is_urgent(self) -> bool:
        return bool(self._doomed) and time.monotonic() < self._urgent_until

    def batches(self) -> list[Batch]:
        """Returns the batches to look at, whether the job still waits for them or not."""
        with self._lock:
            return [entry.batch for entry in self._doomed.values()]

    def concerns(self, batch: Batch) -> bool:
        """Returns whether :meth:`look` wants to hear of it."""
        return batch.id in self._doomed

    def look(self, batch: Batch, tasks: Sequence[SparkTask]) -> None:
        """Looks at the tasks of a batch that run now."""
        over = batch.ended.is_set()
        with self._lock:
            entry = self._doomed.get(batch.id)
            if entry is None:
                return
            found = [(task.id, batch.subtask_of(task.partition)) for task in tasks if not task.again]
            kill = [task for task, subtask in found if subtask in entry.wanted]
            entry.dying.update({t: s for t, s in found if s in entry.wanted or s in entry.followed})
            entry.wanted.difference_update([subtask for _, subtask in found])
            running = {task.id for task in tasks}
            gone = {task: subtask for task, subtask in entry.dying.items() if task not in running}
            for task in gone:
                del entry.dying[task]
            if not entry.dying and (over or not (entry.wanted or entry.followed)):
                del self._doomed[batch.id]
        for task in kill:
            self._kill_task(task, entry.reason)
        for task, subtask in gone.items():
            self._report(TaskGone(batch, subtask, task))
