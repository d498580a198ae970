"""Looks at Spark's status store now and then: which tasks have been launched, which executors there are.

The channel speaks only when a task ends; this tells a queued execution from one that runs. Nothing depends on it: an
execution that ends between two looks is stamped from its own message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from firesteel.scheduler.events import Event, ExecutionsDeploying, ExecutorChanged
from firesteel.spark.batch import Batch

LOOK_SECONDS = 1.0
EXECUTORS_EVERY = 5
"""Looks between two listings of the executors."""


class Watcher:
    """``batches``: those that run, called in this thread; ``report`` takes the events; ``of_wall``: epoch to job time."""

    def __init__(
        self,
        context: Any,
        batches: Callable[[], Sequence[Batch]],
        report: Callable[[Event], None],
        of_wall: Callable[[float], float],
    ) -> None:
        self._sc = context._jsc.sc()
        self._jvm = context._jvm
        self._batches = batches
        self._report = report
        self._of_wall = of_wall
        self._stopped = threading.Event()
        self._told: set[int] = set()
        self._executors: dict[str, tuple[str, int]] = {}
        self._thread = threading.Thread(target=self._run, name="firesteel-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        looks = 0
        while not self._stopped.wait(LOOK_SECONDS):
            with suppress(Exception):  # Spark may be stopping; the job's end does not wait for us
                if looks % EXECUTORS_EVERY == 0:
                    self.look_at_executors()
                looks += 1
                for batch in self._batches():
                    self.look_at(batch)

    def look_at(self, batch: Batch) -> None:
        """Tells of the batch's tasks that have been launched since the last look."""
        launched: list[tuple[int, float, str]] = []
        for job in self._sc.statusTracker().getJobIdsForTag(batch.tag):
            info = self._sc.statusTracker().getJobInfo(job)
            stages = list(info.get().stageIds()) if info.isDefined() else []
            for stage in stages[-1:]:  # ours is the last one: a DataFrame's plan may have others before it
                launched += self._running(stage)
        places = [(self._subtask(batch, partition), at, host) for partition, at, host in launched]
        open_ = batch.open.copy()  # the job's thread takes executions out of it meanwhile
        for vertex in batch.vertices:
            known = [(subtask, at, host) for subtask, at, host in places if (vertex, subtask) in open_]
            if known:
                self._report(
                    ExecutionsDeploying(
                        at=self._of_wall(max(at for _, at, _ in known)),
                        vertex=vertex,
                        subtasks=np.array([s for s, _, _ in known], dtype=np.int64),
                        attempts=np.array([open_[vertex, s] for s, _, _ in known], dtype=np.int64),
                        nodes=[host for _, _, host in known],
                    )
                )

    def look_at_executors(self) -> None:
        found = self._sc.statusStore().executorList(True)
        now = {}
        for i in range(found.size()):
            summary = found.apply(i)
            if summary.totalCores() > 0:  # the driver of a cluster has none
                now[str(summary.id())] = (str(summary.hostPort()).rpartition(":")[0], int(summary.totalCores()))
        before, self._executors = self._executors, now
        for added, changed in ((False, before.keys() - now.keys()), (True, now.keys() - before.keys())):
            for executor in sorted(changed):
                host, slots = (now if added else before)[executor]
                self._report(ExecutorChanged(at=self._now(), executor=executor, host=host, slots=slots, added=added))

    def _running(self, stage: int) -> list[tuple[int, float, str]]:
        """(partition, launch time in epoch seconds, host) of running tasks that were not told of yet."""
        api = self._jvm.org.apache.spark.status.api.v1
        wanted = self._jvm.java.util.List.of(api.TaskStatus.RUNNING)
        tasks = self._sc.statusStore().taskList(stage, 0, 0, 1 << 20, api.TaskSorting.ID, wanted)
        found: list[tuple[int, float, str]] = []
        for i in range(tasks.size()):
            task = tasks.apply(i)
            if task.taskId() not in self._told:
                self._told.add(task.taskId())
                found.append((int(task.partitionId()), task.launchTime().getTime() / 1000, str(task.host())))
        return found

    @staticmethod
    def _subtask(batch: Batch, partition: int) -> int:
        if batch.by_partition:
            return partition
        return batch.position_to_subtask(partition) if partition < len(batch.subtasks) else -1

    def _now(self) -> float:
        return self._of_wall(time.time())
