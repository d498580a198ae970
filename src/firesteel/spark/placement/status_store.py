"""Spark's status store on executors and tasks, read in few calls through py4j; and the call that kills a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.session.sessions import is_local

_ALL = 1 << 20
SETTLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SparkTask:
    """``id``: Spark's, the lower bits of our token. ``index``: within its stage. ``launched``: seconds since the epoch. ``again``: Spark started it
    again by itself; such a task ends at once. ``error``: why it ended, as Spark says it; empty while it runs."""

    id: int
    partition: int
    launched: float
    executor: str
    host: str
    again: bool = False
    index: int = -1
    error: str = ""

    @classmethod
    def of(cls, task: dict[str, Any]) -> SparkTask:
        """As Spark's REST interface describes a task."""
        launched = datetime.fromisoformat(task["launchTime"].replace("GMT", "+00:00")).timestamp()
        again, error = task["attempt"] > 0, task.get("errorMessage") or ""
        place = task["executorId"], task["host"]
        return cls(task["taskId"], task["partitionId"], launched, *place, again, task["index"], error)


class SparkStatus:
    """Any call may raise when Spark is stopping."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._sc = context._jsc.sc()
        self._jvm = context._jvm
        self._json: Any = None

    def executor_ids(self) -> set[str]:
        if is_local(self._context):
            return {"driver"}
        return set(self._sc.getExecutorIds().mkString(" ").split())

    def executors(self) -> dict[str, ExecutorInfo]:
        """By id, the driver among them. Lags a little behind :meth:`executor_ids`."""
        return {
            e["id"]: ExecutorInfo(
                e["hostPort"].rpartition(":")[0],
                e["maxTasks"],
                e["totalCores"],
                tuple(sorted((name, tuple(r["addresses"])) for name, r in e["resources"].items())),
                e["resourceProfileId"],
            )
            for e in self._listed_executors()
        }

    def excluded(self) -> frozenset[str]:
        """Executors that Spark gives no tasks to, after failures there (``spark.excludeOnFailure``)."""
        return frozenset(e["id"] for e in self._listed_executors() if e.get("isExcluded"))

    def active_tasks(self) -> dict[str, int]:
        """Returns the number of tasks that run on each executor, of whatever job; executors without any are left out."""
        return {e["id"]: e["activeTasks"] for e in self._listed_executors() if e["activeTasks"]}

    def stage_of(self, tag: str) -> int | None:
        """The last stage of the job with this tag, which runs its tasks; None: there is no such job yet.

        Spark lists a job's stages in no order; the last one is made last.
        """
        tracker = self._sc.statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            info = tracker.getJobInfo(job)
            if info.isDefined():
                return max(info.get().stageIds(), default=None)
        return None

    def counts(self, stage: int) -> tuple[int, ...]:
        """Of the stage's attempts, and of active, completed and failed tasks in the last of them."""
        info = self._sc.statusTracker().getStageInfo(stage)
        if not info.isDefined():
            return ()
        found = info.get()
        tasks = found.numActiveTasks(), found.numCompletedTasks(), found.numFailedTasks()
        return found.currentAttemptId() + 1, *tasks

    def running(self, stage: int, attempts: int) -> list[SparkTask]:
        """Running tasks of the stage, in all its ``attempts`` (the first of :meth:`counts`): Spark makes another when a
        task cannot fetch what an earlier stage wrote, and lets those of the first one run on."""
        return [task for attempt in range(attempts) for task in self._tasks(stage, attempt, "RUNNING")]

    def launched(self, stage: int, attempt: int = 0, *, failed: bool = False) -> list[SparkTask]:
        """Tasks of this attempt of the stage, whatever became of them; ``failed``: only those that failed or were killed.

        Waits for what Spark has yet to write down, at most ``SETTLE_SECONDS``: its listeners lag behind its tasks.
        """
        with suppress(Exception):  # it is as settled as it gets
            self._sc.listenerBus().waitUntilEmpty(int(SETTLE_SECONDS * 1000))
        return self._tasks(stage, attempt, *(("FAILED", "KILLED") if failed else ()))

    def _tasks(self, stage: int, attempt: int, *states: str) -> list[SparkTask]:
        """``states``: of Spark's; none: all."""
        api = self._jvm.org.apache.spark.status.api.v1
        wanted = self._jvm.java.util.List.of(*[getattr(api.TaskStatus, state) for state in states])
        tasks = self._sc.statusStore().taskList(stage, attempt, 0, _ALL, api.TaskSorting.ID, wanted)
        return [SparkTask.of(task) for task in self._read(tasks)]

    def kill(self, task: int, reason: str) -> None:
        """Returns at once. Interrupting the task's thread would change nothing for a Python worker."""
        self._sc.killTaskAttempt(task, False, reason)

    def _listed_executors(self) -> list[dict[str, Any]]:
        return self._read(self._sc.statusStore().executorList(True))

    def _read(self, found: Any) -> Any:
        """As Spark's REST interface tells it: one call, whatever its size."""
        if self._json is None:
            self._json = self._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        return json.loads(self._json.writeValueAsString(found))


def vertex_tag(job_id: str, vertex: int) -> str:
    """Carried by the Spark jobs that run executions of this vertex."""
    return f"firesteel-{job_id}-vertex-{vertex}"


class SparkPages:
    """Of one session. May be asked from any thread; an answer may raise where Spark is stopping."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._root: str | None = None
        with suppress(Exception):  # it is stopped just now: whoever runs something on it will say so
            self._root = context.uiWebUrl

    def root(self) -> str | None:
        """None: there is none, or Spark has been stopped."""
        return self._root if getattr(self._context, "_jsc", None) is not None else None

    def streams(self) -> str | None:
        root = self.root()
        return None if root is None else f"{root}/StreamingQuery/"

    def stage(self, job_id: str, standing: Mapping[int, str], vertex: int) -> str | None:
        """``standing``: vertex to the tag of the Spark job whose standing task was given an execution of it last. None: no Spark job has run
        the vertex yet, or Spark has forgotten it."""
        root = self.root()
        if root is None:
            return None
        tracker = self._context._jsc.sc().statusTracker()
        found = [tracker.getJobIdsForTag(tag) for tag in (vertex_tag(job_id, vertex), standing.get(vertex)) if tag]
        if not any(map(len, found)):
            return None
        newest = max(self._context._jvm.java.util.Arrays.stream(jobs).max().getAsInt() for jobs in found if len(jobs))
        latest = tracker.getJobInfo(newest)
        stage = max(latest.get().stageIds(), default=None) if latest.isDefined() else None
        info = None if stage is None else tracker.getStageInfo(stage)
        if info is None or not info.isDefined():
            return None
        return f"{root}/stages/stage/?id={stage}&attempt={info.get().currentAttemptId()}"
