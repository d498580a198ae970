"""Looks at Spark's status store now and then: which tasks have been launched, which executors there are; and kills single tasks.

The channel speaks only when a task ends; this tells a queued execution from one that runs, since when and where, and
knows the Spark task of each, by which it can be killed. No answer depends on it: an execution that ends between two
looks is stamped from its own message.

A look costs a handful of calls per batch, and one more that lists its running tasks where something has moved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firesteel.scheduler.kernel.events import Event, ExecutionsDeploying, ExecutorChanged, WorkersOccupied
from firesteel.spark.driver.batch import Batch
from firesteel.spark.placement.node_names import ExecutorInfo, NodeNames
from firesteel.spark.placement.status_store import SparkStatus, SparkTask
from firesteel.spark.slots.provisioning import SlotProvisioning

LOOK_SECONDS = 1.0
SHARE = 50
"""A look that took a second is followed by none for so many, so that looking costs next to nothing; but see LONGEST."""
LONGEST = 3
"""Times the wanted pause (and a second): a first look, or one on a busy machine, says little of what the next will take."""
KILLING_SECONDS, KILLING_SHARE = 0.25, 10
"""The same for some seconds after something is to be killed."""


_log = logging.getLogger("firesteel.spark")


@dataclass(slots=True)
class _Watched:
    """State of a batch as of earlier looks. ``counts``: while they are the same, nothing has moved."""

    stage: int | None = None
    counts: tuple[int, ...] = ()
    tasks: Sequence[SparkTask] = ()


@dataclass(frozen=True, slots=True)
class TasksLost:
    """They ran on an executor that is gone. Spark will start them again, but only when it has a slot for them."""

    batch: Batch
    subtasks: tuple[int, ...]
    node: str


class Watcher:
    """``batches``: those that run as Spark jobs, called in this thread; ``launches``: executions of others that run, each once;
    ``gone`` is told of executors that went, by name, and of their nodes. ``report`` takes the events; ``of_wall``: epoch to job time."""

    def __init__(
        self,
        status: SparkStatus,
        nodes: NodeNames,
        batches: Callable[[], Sequence[Batch]],
        report: Callable[[Event | TasksLost], None],
        *,
        of_wall: Callable[[float], float],
        seconds: float = LOOK_SECONDS,
        killer: Killer,
        slot_provisioning: SlotProvisioning | None = None,
        slots_of_others: Callable[[], Mapping[str, int]] = dict[str, int],
        launches: Callable[[], Sequence[tuple[Batch, Sequence[SparkTask]]]] = tuple,
        gone: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        self._status = status
        self._nodes = nodes
        self._batches = batches
        self._report = report
        self._of_wall = of_wall
        self._seconds = seconds
        self._killer = killer
        self._slot_provisioning = slot_provisioning or SlotProvisioning()
        self._slots_of_others = slots_of_others
        self._launches = launches
        self._gone = gone
        self._occupied: dict[str, int] = {}
        self._seen_occupied: dict[str, int] | None = None
        killer.wake = self.wake
        self._stopped = False
        self._due = threading.Event()
        self._watched: dict[int, _Watched] = {}
        self._executors: dict[str, ExecutorInfo] = {}
        self._thread = threading.Thread(target=self._run, name="firesteel-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._due.set()

    def wake(self) -> None:
        """Looks as soon as it can; called from any thread."""
        self._due.set()

    def _run(self) -> None:
        pause = 0.0
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self._stopped:
                return
            begun = time.monotonic()
            try:
                self.look()
            except Exception:  # Spark may be stopping; the job's end does not wait for us
                _log.debug("a look at Spark's status store failed", exc_info=True)
            wanted, share = (KILLING_SECONDS, KILLING_SHARE) if self._killer.is_urgent else (self._seconds, SHARE)
            wanted = min(wanted, self._seconds)
            pause = max(wanted, min(share * (time.monotonic() - begun), max(LONGEST * wanted, LOOK_SECONDS)))

    def look(self) -> None:
        self.look_at_executors()
        batches = {batch.id: batch for batch in (*self._batches(), *self._killer.batches())}
        for gone in self._watched.keys() - batches.keys():
            del self._watched[gone]
        for batch in batches.values():
            self.look_at(batch)
        for batch, tasks in self._launches():
            self._tell_launched(batch, tasks)
        if self._slot_provisioning.mode is not None:
            self.look_at_occupied()

    def look_at(self, batch: Batch) -> None:
        """Tells of the batch's tasks that have been launched since the last look."""
        watched = self._watched.setdefault(batch.id, _Watched())
        kills = self._killer.concerns(batch)
        if watched.stage is None:
            watched.stage = self._status.stage_of(batch.own_tag)
        counts = () if watched.stage is None else self._status.counts(watched.stage)
        if counts == watched.counts and not kills:
            return
        tasks = self._status.running(watched.stage, counts[0]) if watched.stage is not None and counts else []
        if kills:
            self._killer.look(batch, tasks)
        # Spark does not count what was killed: one more that begins in its slot leaves the counts as they were
        watched.counts = () if kills else counts
        told = {task.id for task in watched.tasks}
        self._tell_launched(batch, [task for task in tasks if task.id not in told and not task.again])
        watched.tasks = tasks

    def look_at_executors(self) -> None:
        """Tells of those that came or went. Which there are is asked each time, the rest only when that has changed."""
        ids = self._status.executor_ids()
        if ids != self._executors.keys():
            listed = self._status.executors().items()  # one that is just coming has no host and no slots yet
            self._executors = {e: info for e, info in listed if e in ids and info.host and info.slots}
        elif not self._nodes.by_label and self._slot_provisioning.mode is None:
            return
        changes = self._nodes.update(self._slot_provisioning.described(self._executors))
        for change in changes:
            self._report(
                ExecutorChanged(
                    at=self._now(),
                    executor=change.executor,
                    host=change.info.host,
                    slots=change.info.slots,
                    added=change.added,
                    node=change.node,
                    resources=change.info.resources,
                    profile=change.info.profile,
                )
            )

        gone = {change.executor: change.node for change in changes if not change.added}
        for batch in self._batches() if gone else ():
            watched = self._watched.get(batch.id, _Watched())
            lost = [task for task in watched.tasks if task.executor in gone and not task.again]
            if lost:
                subtasks = tuple(batch.subtask_of(task.partition) for task in lost)
                self._report(TasksLost(batch, subtasks, gone[lost[0].executor]))
        if gone:
            self._gone(gone)

    def look_at_occupied(self) -> None:
        """Tells of executors where tasks run that are not of open executions, when that has changed. It takes two looks in a row
        to believe it, but for the first: a task that has just ended may still be counted. Slots of other jobs, in each of which a
        task runs, or is about to, are on the slot manager's account, with what they really take.
        """
        active = self._status.active_tasks()
        for executor, slots in self._slots_of_others().items():
            if executor in active:
                active[executor] -= slots
        for watched, batch in ((self._watched.get(b.id), b) for b in self._batches()):
            for task in watched.tasks if watched is not None else ():
                if task.executor in active and batch.first_open(batch.subtask_of(task.partition)) is not None:
                    active[task.executor] -= 1
        seen = {executor: count for executor, count in active.items() if count > 0}
        before = seen if self._seen_occupied is None else self._seen_occupied
        self._seen_occupied = seen
        occupied = {e: min(count, before[e]) for e, count in sorted(seen.items()) if e in before}
        if occupied != self._occupied:
            self._occupied = occupied
            cores = np.array([*occupied.values()], np.float64)
            self._report(WorkersOccupied(at=self._now(), executors=tuple(occupied), cores=cores))

    def _tell_launched(self, batch: Batch, tasks: Sequence[SparkTask]) -> None:
        if not tasks:
            return
        places = [(batch.subtask_of(task.partition), task) for task in tasks]
        open_ = batch.open.copy()  # the job's thread takes executions out of it meanwhile
        for vertex in batch.vertices:
            known = [(subtask, task) for subtask, task in places if (vertex, subtask) in open_]
            if known:
                self._report(
                    ExecutionsDeploying(
                        at=self._now(),
                        vertex=vertex,
                        subtasks=np.array([subtask for subtask, _ in known], dtype=np.int64),
                        attempts=np.array([open_[vertex, subtask] for subtask, _ in known], dtype=np.int64),
                        nodes=[self._nodes.of(task.executor, task.host) for _, task in known],
                        times=np.array([self._of_wall(task.launched) for _, task in known]),
                        executors=[task.executor for _, task in known],
                    )
                )

    def _now(self) -> float:
        return self._of_wall(time.time())


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
