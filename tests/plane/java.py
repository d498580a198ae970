"""What Firesteel reaches through py4j: of ``org.apache.spark.SparkContext`` and of Java's lists, the calls that a batch job makes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from plane.jobs import Attempt, Job, Jobs

HOST = "127.0.0.1"


class Option:
    """Scala's."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> Any:
        return self._value


class JavaSparkContext:
    """``SparkContext``, its status tracker and its status store in one."""

    def __init__(self, jobs: Jobs, slots: int) -> None:
        self._jobs, self._slots = jobs, slots
        self.stopped = False

    def isStopped(self) -> bool:
        return self.stopped

    def getSchedulingMode(self) -> Any:
        return SimpleNamespace(toString=lambda: "FAIR")

    def getPoolForName(self, name: str) -> Option:
        return Option()

    def listenerBus(self) -> Any:
        return SimpleNamespace(waitUntilEmpty=lambda milliseconds: None)

    def killTaskAttempt(self, task: int, interrupt: bool, reason: str) -> None:
        self._jobs.kill(task)

    # --- the status tracker ---

    def statusTracker(self) -> JavaSparkContext:
        return self

    def getJobIdsForTag(self, tag: str) -> list[int]:
        return [job.number for job in list(self._jobs.all) if tag in job.tags]

    def getJobInfo(self, job: int) -> Option:
        return Option(SimpleNamespace(stageIds=lambda: [job]))

    def getStageInfo(self, stage: int) -> Option:
        job = self._job(stage)
        counts = {
            "numActiveTasks": len(job.in_state("RUNNING")),
            "numCompletedTasks": len(job.in_state("SUCCESS")),
            "numFailedTasks": len(job.in_state("FAILED")),
        }
        return Option(
            SimpleNamespace(**{name: lambda n=n: n for name, n in counts.items()}, currentAttemptId=lambda: 0)
        )

    # --- the status store ---

    def statusStore(self) -> JavaSparkContext:
        return self

    def executorList(self, active: bool) -> list[dict[str, Any]]:
        running = sum(len(job.in_state("RUNNING")) for job in list(self._jobs.all))
        return [
            {
                "id": "driver",
                "hostPort": f"{HOST}:0",
                "maxTasks": self._slots,
                "totalCores": self._slots,
                "resources": {},
                "resourceProfileId": 0,
                "activeTasks": running,
            }
        ]

    def taskList(
        self, stage: int, attempt: int, offset: int, length: int, order: Any, states: Any
    ) -> list[dict[str, Any]]:
        if attempt:
            return []
        return [_task(one) for one in list(self._job(stage).attempts) if not states or one.state in states]

    def _job(self, number: int) -> Job:
        return next(job for job in list(self._jobs.all) if job.number == number)


def _task(attempt: Attempt) -> dict[str, Any]:
    launched = datetime.fromtimestamp(attempt.launched, UTC).isoformat(timespec="milliseconds")
    return {
        "taskId": attempt.id,
        "index": attempt.partition,
        "partitionId": attempt.partition,
        "attempt": attempt.number,
        "launchTime": launched.replace("+00:00", "GMT"),
        "executorId": "driver",
        "host": HOST,
        "errorMessage": attempt.error,
    }


def jvm() -> Any:
    """Java's classes by name."""
    integers = SimpleNamespace(
        range=lambda start, end: SimpleNamespace(boxed=lambda: SimpleNamespace(toList=lambda: list(range(start, end))))
    )
    util = SimpleNamespace(
        ArrayList=list, List=SimpleNamespace(of=lambda *values: values), stream=SimpleNamespace(IntStream=integers)
    )
    api = SimpleNamespace(
        TaskStatus=SimpleNamespace(RUNNING="RUNNING", FAILED="FAILED", KILLED="KILLED"),
        TaskSorting=SimpleNamespace(ID="ID"),
        JacksonMessageWriter=lambda: SimpleNamespace(mapper=lambda: SimpleNamespace(writeValueAsString=json.dumps)),
    )
    status = SimpleNamespace(api=SimpleNamespace(v1=api))
    spark = SimpleNamespace(status=status)
    return SimpleNamespace(java=SimpleNamespace(util=util), org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
