"""The parts of Spark's micro-batch engine that can be reached: its progress lock, its thread, its counters.

The engine takes one fair lock at three places: where it plans the next batch and writes its offsets, where it commits a
batch, and where it tells that a batch is over, after the commit and its progress and before anything of the next one. Who
holds that lock while the engine waits for it at the third place has the query at its checkpoint.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from firesteel.spark.streams.progress import Progress
from firesteel.spark.streams.stopping import execution_of

_log = logging.getLogger("firesteel.spark")
MICRO_BATCH = "MicroBatchExecution"
_LOCKED = ".withProgressLocked("
AWAKE_PAUSE = 0.0005
"""Between looks at an engine that is about to wake up."""


class Place(Enum):
    """The place of the engine's thread."""

    PLANNING = "constructNextBatch"
    RUNNING = "runBatch"
    """Inside a batch; queued for the lock there: about to commit it."""
    CHECKPOINT = "executeOneBatch"
    """Queued for the lock after a commit, or after it found nothing to do."""
    GAP = "waitTillTime"
    """Asleep until the trigger's next time."""
    ELSEWHERE = ""


def place_of(trace: str, *, queued: bool) -> Place:
    """``trace``: the thread's frames, innermost first, one a line. ``queued``: it waits for the lock."""
    if queued:
        _, found, below = trace.partition(_LOCKED)
        caller = below.partition("\n")[2].partition("\n")[0] if found else ""
        places = (Place.PLANNING, Place.RUNNING, Place.CHECKPOINT)
        return next((place for place in places if f".{place.value}(" in caller), Place.ELSEWHERE)
    if f"{MICRO_BATCH}.{Place.RUNNING.value}(" in trace:
        return Place.RUNNING
    return Place.GAP if f".{Place.GAP.value}(" in trace else Place.ELSEWHERE


@dataclass(frozen=True, slots=True)
class Found:
    """At a checkpoint. ``batch``: the last committed one, -1: none. ``idle``: none was committed since the last trigger."""

    batch: int
    idle: bool
    progress: dict[str, Any] | None

    def of_batch(self) -> Progress | None:
        """Returns Spark's progress of the batch; None: it has not spoken of it yet, or spoke of a trigger that did nothing."""
        if self.progress is None or self.progress.get("batchId") != self.batch:
            return None
        return Progress.of(self.progress)


class _Uncaught:
    """Takes the exception that Spark's batch thread dies of: a query that failed has told so already; one that was stopped in the middle of a
    ``foreachBatch`` dies in Spark's own look at the interruption, which is nobody's concern."""

    def uncaughtException(self, thread: Any, error: Any) -> None:  # noqa: N802
        _log.debug("a stream's thread ended with %s", error)

    class Java:
        implements: ClassVar = ["java.lang.Thread$UncaughtExceptionHandler"]


_UNCAUGHT = _Uncaught()
"""Each one that is given to Java stays there."""


class Engine:
    """Of one started query. Each call goes to the JVM; any may raise when Spark is stopping.

    The lock's calls must come from one and the same Python thread: it has a thread of its own in the JVM.
    """

    def __init__(self, gateway: Any, execution: Any) -> None:
        self._text_of = gateway.jvm.org.apache.spark.util.Utils.exceptionString
        self._carrier = gateway.jvm.java.lang.Throwable()
        """Of a stack: the JVM has no call that gives one as text to Python."""
        self._millis = gateway.jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._execution = execution
        self._lock = execution.awaitProgressLock()
        self._thread = execution.queryExecutionThread()
        package = execution.getClass().getPackage().getName()
        self._active, self._ended = (
            getattr(getattr(gateway.jvm, f"{package}.{state}$"), "MODULE$") for state in ("ACTIVE", "TERMINATED")
        )

    @classmethod
    def of(cls, query: Any, context: Any) -> Engine | None:
        """None where this Spark, or this kind of query, offers no commit barrier."""
        from py4j.clientserver import ClientServer
        from py4j.protocol import Py4JError

        gateway = context._gateway
        if not isinstance(gateway, ClientServer):  # all Python threads are one to the JVM: nobody would own the lock
            return None
        try:
            execution = execution_of(query)
            if execution.getClass().getSimpleName() != MICRO_BATCH:
                return None
            engine = cls(gateway, execution)
            engine._lock.hasQueuedThread(engine._thread)
            engine._thread.setUncaughtExceptionHandler(_UNCAUGHT)
            return engine if engine._lock.isFair() else None
        except (Py4JError, AttributeError, TypeError):
            return None

    def is_active(self) -> bool:
        return bool(self._execution.isActive())

    def acquire(self, seconds: float) -> bool:
        """In turn: after whoever waits already."""
        return bool(self._lock.tryLock(int(seconds * 1000), self._millis))

    def release(self) -> None:
        self._lock.unlock()

    def is_queued(self) -> bool:
        """Returns whether the engine's thread waits for the lock."""
        return bool(self._lock.hasQueuedThread(self._thread))

    def end_asleep(self) -> bool:
        """Marks the query as ended while its engine sleeps, so that it plans nothing when it wakes up. The lock is held.

        False: it had woken up before and is about to plan a batch; the mark is taken back.
        """
        self._execution.state().set(self._ended)
        while self._thread.isAlive():
            if self.is_queued():
                if self.place(queued=True) is Place.PLANNING:
                    self._execution.state().set(self._active)
                    return False
                return True
            if self.place(queued=False) is Place.GAP:
                return True
            time.sleep(AWAKE_PAUSE)
        return True

    def place(self, *, queued: bool) -> Place:
        self._carrier.setStackTrace(self._thread.getStackTrace())
        return place_of(self._text_of(self._carrier), queued=queued)

    def checkpoint(self) -> tuple[int, bool]:
        """Last committed batch (-1: none), and whether the last trigger found nothing to do.

        To be asked while the lock is held and the engine is at a checkpoint or in a gap.
        """
        context = self._execution.getLatestExecutionContext()
        batch, built = int(context.batchId()), bool(context.isCurrentBatchConstructed())
        return (batch, False) if built else (batch - 1, True)

    def is_due(self) -> bool:
        """Returns whether Spark runs a batch next even if nothing is to be read: the last one moved the watermark past some state.

        Only the run that saw this knows of it; the next start waits for rows. To be asked as :meth:`checkpoint` is.
        """
        context = self._execution.getLatestExecutionContext()
        plan, metadata = context.executionPlan(), context.offsetSeqMetadata()
        watermark = self._execution.watermarkTracker().currentWatermark()
        if plan is None or not context.isCurrentBatchConstructed() or watermark <= metadata.batchWatermarkMs():
            return False
        rest = [getattr(metadata, f"copy$default${at}")() for at in range(3, metadata.productArity() + 1)]
        return bool(plan.shouldRunAnotherBatch(metadata.copy(watermark, metadata.batchTimestampMs(), *rest)))

    def running(self) -> int | None:
        """The batch that was planned last, also when it is committed; None: none since the last trigger. Needs no lock."""
        context = self._execution.getLatestExecutionContext()
        return int(context.batchId()) if context.isCurrentBatchConstructed() else None

    def progress(self) -> dict[str, Any] | None:
        """Of the last trigger that did something, as Spark's listeners get it."""
        last = self._execution.lastProgress()
        return None if last is None else json.loads(last.json())
