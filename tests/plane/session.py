"""The session that a test gives to its environment, and its context: PySpark's names, without a JVM behind them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyspark
from pyspark import cloudpickle
from pyspark.accumulators import Accumulator, _accumulatorRegistry

from firesteel.spark.session.own_workers import DAEMON, UNIX_SOCKETS
from plane.java import JavaSparkContext, jvm
from plane.jobs import Jobs

_ids = count(-1, -1)
"""Of accumulators: a real SparkContext's in the same process count upwards."""
_applications = count()


class Session:
    """A SparkSession as far as batch jobs need one. ``slots``: tasks that run at once, each in a process of its own."""

    def __init__(self, slots: int = 2, conf: Mapping[str, str] | None = None) -> None:
        self.sparkContext = Context(slots, conf or {})
        self.version = pyspark.__version__

    def stop(self) -> None:
        self.sparkContext.stop()


Session.__module__ = "pyspark.sql.session"  # by which Firesteel tells a session from other objects


class Rdd(list[list[Any]]):
    """The rows of each partition."""

    def __init__(self, context: Context, parts: Iterable[list[Any]]) -> None:
        super().__init__(parts)
        self._context = context

    def mapPartitions(self, function: Callable[..., Any]) -> Mapped:
        return Mapped(self._context, self, function)


class Mapped:
    """An RDD of a function's results, and the JVM's one behind it."""

    def __init__(self, context: Context, parts: Rdd, function: Callable[..., Any]) -> None:
        self._context, self._parts, self._function, self._jrdd = context, parts, function, self

    def glom(self) -> Mapped:
        """Its partitions as rows; nobody counts them but to have them computed."""
        return self

    def count(self) -> int:
        return len(self._context.runJob(self._parts, self._function))


class Conf:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._values.get(key, default)

    def getAll(self) -> list[tuple[str, str]]:
        return list(self._values.items())


class Context:
    """A SparkContext on a local master. Tags and properties are each thread's own, as PySpark pins them."""

    def __init__(self, slots: int, conf: Mapping[str, str]) -> None:
        self.master, self.defaultParallelism = f"local[{slots},4]", slots
        self.version, self.pythonExec = pyspark.__version__, sys.executable
        self.applicationId = f"plane-{next(_applications)}"
        self.environment: dict[str, str] = {}
        self._conf = Conf({UNIX_SOCKETS: "true", DAEMON: "firesteel.task.executor.daemon", **conf})  # as in ours
        self._jobs = Jobs(slots, _accumulate)
        self._java = JavaSparkContext(self._jobs, slots)
        self._jsc = SimpleNamespace(sc=lambda: self._java)
        self._jvm = jvm()
        self._gateway = None
        self._thread = threading.local()

    def getConf(self) -> Conf:
        return self._conf

    def accumulator(self, value: Any, param: Any) -> Accumulator[Any]:
        return Accumulator(next(_ids), value, param)

    def parallelize(self, rows: Iterable[Any], slices: int) -> Rdd:
        rows = list(rows)
        return Rdd(self, (rows[len(rows) * k // slices : len(rows) * (k + 1) // slices] for k in range(slices)))

    def runJob(
        self, rdd: Sequence[list[Any]], function: Callable[..., Any], partitions: Sequence[int] | None = None
    ) -> list[Any]:
        chosen = rdd if partitions is None else [rdd[k] for k in partitions]
        given = cloudpickle.dumps(function), chosen, self.getJobTags(), self._properties()
        return [row for rows in self._jobs.run(*given) for row in rows]

    def _properties(self) -> dict[str, str]:
        return {key: value for key, value in self._thread.__dict__.items() if isinstance(value, str)}

    def _tags(self) -> set[str]:
        return self._thread.__dict__.setdefault("tags", set())

    def addJobTag(self, tag: str) -> None:
        self._tags().add(tag)

    def removeJobTag(self, tag: str) -> None:
        self._tags().discard(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        self._jobs.cancel(tag)

    def cancelAllJobs(self) -> None:
        self._jobs.cancel()

    def getJobTags(self) -> set[str]:
        return set(self._tags())

    def statusTracker(self) -> Any:
        """As far as it tells of the executor."""
        running = SimpleNamespace(numRunningTasks=self._java.executorList(active=True)[0]["activeTasks"])
        return SimpleNamespace(getExecutorInfos=lambda: [running])

    def setJobDescription(self, text: str | None) -> None:
        self.setLocalProperty("spark.job.description", text)

    def setLocalProperty(self, key: str, value: str | None) -> None:
        self._thread.__dict__[key] = value

    def getLocalProperty(self, key: str) -> str | None:
        return self._thread.__dict__.get(key)

    def stop(self) -> None:
        self._java.stopped = True
        self._jobs.stop()


def _accumulate(updates: Mapping[int, Any]) -> None:
    for number, update in updates.items():
        if number in _accumulatorRegistry:
            _accumulatorRegistry[number] += update
