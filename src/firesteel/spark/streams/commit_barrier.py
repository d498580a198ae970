"""The commit barrier of a streaming query: it waits there after a commit, before anything of the next batch is planned.

It sits in Spark's engine (see :mod:`firesteel.spark.streams.commit_barrier`), so that it works alike for every source and sink.
While armed, a thread of our own owns the engine's progress lock, which hinders no task; whenever the engine queues for it, it is
let through, one place at a time, up to the checkpoint. There the driver is told, and answers: go on, or stop. A query that is
stopped at the barrier ends without a batch begun.

No answer, a driver that is gone, a query that failed: after a bound at the latest the lock is free again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from py4j.protocol import Py4JError

from firesteel.errors import UsageError
from firesteel.spark.streams.checkpoint_files import CheckpointFiles
from firesteel.spark.streams.progress import Progress

ANSWER_SECONDS = 30.0
"""A query at the barrier goes on by itself after so long without an answer."""
STOP_SECONDS = 120.0
"""So long a stop may take to be noticed by Spark."""
ACQUIRE_SECONDS = 0.5
"""So long is waited for the lock before it is asked whether it is still wanted."""
LEAST_PAUSE, MOST_PAUSE, SHARE = 0.002, 0.02, 0.01
"""Between two looks at the lock: a part of the time since the engine was last seen there, within these bounds."""
LOOK_PAUSE = 0.01
"""Before the engine's stack is looked at; twice as long each time, up to GAP_PAUSE."""
GAP_PAUSE = 0.5
DUE_SECONDS = 10.0
"""So long a batch without rows that is due is waited for in a trigger's gap."""

_log = logging.getLogger("firesteel.spark")


@dataclass(frozen=True, slots=True)
class AtBarrier:
    """The query is at a checkpoint and waits for an answer."""

    run: int
    found: Found


@dataclass(frozen=True, slots=True)
class BarrierLost:
    """Spark could not be asked any more: the query goes on, or has ended, and the barrier is gone."""

    run: int
    why: str


class _Looks:
    """When to look again: at the lock often, at the engine's stack now and then."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._every = LOOK_PAUSE
        self._due = self._seen + LOOK_PAUSE

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        self._every = min(2 * self._every, GAP_PAUSE)
        self._due = now + self._every
        return True

    def pause(self) -> float:
        return min(MOST_PAUSE, max(LEAST_PAUSE, SHARE * (time.monotonic() - self._seen)))


BarrierReport = AtBarrier | BarrierLost


class CommitBarrier:
    """Where Spark offers none: a query is stopped as it is, and what it had begun is replayed.

    ``arm`` and ``go_on`` return at once; ``stop`` blocks, until ``close`` at the latest. All may be called from any thread but the barrier's own.
    """

    def __init__(self, stop_query: Callable[[], None]) -> None:
        """``stop_query`` stops the query and waits for its end."""
        self._stop_query = stop_query

    @property
    def is_available(self) -> bool:
        return False

    def arm(self, on: bool) -> None:
        """Commits are told by Spark's listener; the driver takes the query for waiting while the barrier is set."""

    def go_on(self, batch: int) -> None:
        """It has gone on already."""

    def stop(self, begins: Callable[[], None]) -> bool:
        begins()
        self._stop_query()
        return False

    def running(self) -> int | None:
        """Not known."""

    def close(self) -> None:
        """Nothing is owned."""


class EngineCommitBarrier(CommitBarrier):
    """``report`` is called in the barrier's thread, and only hands over."""

    def __init__(
        self, run: int, engine: Engine, stop_query: Callable[[], None], report: Callable[[BarrierReport], None]
    ) -> None:
        super().__init__(stop_query)
        self._run_number = run
        self._engine = engine
        self._report = report
        self._changed = threading.Condition()
        self._armed = False
        self._stopping = False
        self._closed = False
        self._waits = False
        """The query is at the barrier, and an answer is due."""
        self._over = threading.Event()
        """The query is not active any more, or the barrier is closed."""
        self._clean = False
        self._begins: Callable[[], None] = lambda: None
        self._told: tuple[int, bool] | None = None
        self._due = (-2, 0.0)
        """The batch that was not told because another one was due, and until when that is waited for."""
        self._owned = False
        """The lock is ours; of the barrier's thread alone."""
        self._thread: threading.Thread | None = None

    # --- for the driver's threads ----------------------------------------------------------------------------

    @property
    def is_available(self) -> bool:
        """Not any more after BarrierLost."""
        return not self._closed

    def arm(self, on: bool) -> None:
        """From now on (``on``) the query waits for an answer at each checkpoint; or no more."""
        with self._changed:
            self._armed = on
            self._told = None
            self._begin()
            self._changed.notify_all()

    def go_on(self, batch: int) -> None:
        """The answer to AtBarrier: the next batch may begin."""
        with self._changed:
            self._waits = False
            self._changed.notify_all()

    def stop(self, begins: Callable[[], None]) -> bool:
        """Stops the query at its next checkpoint, now if it waits there; ``begins`` is called when the stop begins.

        True: no batch was begun. False: the query failed or ended before, or the barrier was closed: then it is stopped where it is.
        """
        self._begins = begins
        with self._changed:
            self._stopping = True
            self._begin()
            self._changed.notify_all()
        self._over.wait()
        if not self._clean:
            begins()
        self._stop_query()
        return self._clean

    def running(self) -> int | None:
        """The batch that was planned last and may run; None: none was since the last trigger."""
        return self._engine.running()

    def close(self) -> None:
        """Lets go of the query, whatever it does, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
            if thread is None:
                self._over.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(ANSWER_SECONDS)

    def _begin(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="firesteel-commit-barrier", daemon=True)
            self._thread.start()

    # --- in the barrier's thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        why = ""
        try:
            while self._wanted():
                self._follow()
                self._let_go()
        except Exception as error:
            _log.debug("the commit barrier of run %d ended", self._run_number, exc_info=error)
            why = f"{type(error).__name__}: {error}"
        finally:
            with suppress(Exception):  # the JVM is gone, and the lock with it
                self._let_go()
        with self._changed:
            self._closed = True
            self._waits = False
        self._over.set()
        if why:
            self._report(BarrierLost(self._run_number, why))

    def _wanted(self) -> bool:
        """Waits until the lock is wanted. False: it never will be again."""
        with self._changed:
            self._changed.wait_for(lambda: self._armed or self._stopping or self._closed)
            return not self._closed and not self._over.is_set()

    def _is_wanted(self) -> bool:
        return (self._armed or self._stopping) and not self._closed and not self._over.is_set()

    def _take(self) -> bool:
        """Takes the lock, however long the engine keeps it (planning asks the sources). False: wanted no more."""
        while self._is_wanted():
            if self._engine.acquire(ACQUIRE_SECONDS):
                self._owned = True
                return True
            self._end_if_over()
        return False

    def _let_go(self) -> None:
        if self._owned:
            self._owned = False
            self._engine.release()

    def _end_if_over(self) -> bool:
        if not self._engine.is_active():
            self._over.set()
        return self._over.is_set()

    def _follow(self) -> None:
        """Lets the engine through from place to place, until it is wanted no more, or all is over."""
        looks = _Looks()
        while self._owned or self._take():
            if not self._is_wanted():
                return
            if self._engine.is_queued():
                if self._engine.place(queued=True) is Place.CHECKPOINT:
                    self._reached()
                self._let_go()  # the lock is fair: the engine, which waits for it, comes before us
                looks = _Looks()
                continue
            if looks.is_due():
                if self._end_if_over():
                    return
                if self._engine.place(queued=False) is Place.GAP and not self._engine.is_queued():
                    self._reached(asleep=True)
            self._pause(looks.pause())

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._is_wanted():
                self._changed.wait(seconds)

    def _reached(self, *, asleep: bool = False) -> None:
        """The engine is at a checkpoint, and stays there while the lock is ours. ``asleep``: or until it wakes up."""
        if self._end_if_over():
            return
        if not self._stopping:
            at = self._engine.checkpoint()
            if self._told in (at, (at[0], False)) or self._is_let_pass(at[0]):
                return
            found = Found(*at, self._engine.progress())
            with self._changed:
                if not self._is_wanted():
                    return
                self._told = at
                self._waits = True
            self._report(AtBarrier(self._run_number, found))
            if not self._await_answer():
                return
        if not asleep or self._engine.end_asleep():  # else it has woken up, and waits at its next checkpoint
            self._stop_at_barrier()

    def _is_let_pass(self, batch: int) -> bool:
        """A batch without rows that is due comes first, for after a restart it would not: windows that are over would stay
        inside until there are rows again. Of batches that each make another one due, every second is told."""
        last, until = self._due
        if batch == last + 1 or not self._engine.is_due():
            return False
        if batch != last:
            self._due = batch, (until := time.monotonic() + DUE_SECONDS)
        return time.monotonic() < until

    def _await_answer(self) -> bool:
        """True: the query is to be stopped. False: it may go on."""
        with self._changed:
            answered = self._changed.wait_for(
                lambda: self._stopping or self._closed or not self._waits or not self._armed, ANSWER_SECONDS
            )
            self._waits = False
            if answered:
                return self._stopping and not self._closed
        _log.warning("A stream at its commit barrier got no answer within %.0f s, and goes on.", ANSWER_SECONDS)
        return False

    def _stop_at_barrier(self) -> None:
        """Spark marks the query as ended at once, and then waits for its thread, which waits for our lock."""
        self._begins()
        stopper = threading.Thread(target=self._stop_quietly, name="firesteel-stop", daemon=True)
        stopper.start()
        until = time.monotonic() + STOP_SECONDS
        while self._engine.is_active() and stopper.is_alive() and time.monotonic() < until:
            stopper.join(LEAST_PAUSE)
        self._clean = not self._engine.is_active()
        self._over.set()

    def _stop_quietly(self) -> None:
        with suppress(Exception):  # the driver stops it once more, and hears of it
            self._stop_query()


def commit_barrier_of(
    run: int, query: Any, context: Any, stop_query: Callable[[], None], report: Callable[[BarrierReport], None]
) -> CommitBarrier:
    """Returns the commit barrier of a started query; where Spark offers none, one that just stops the query."""
    engine = Engine.of(query, context)
    return CommitBarrier(stop_query) if engine is None else EngineCommitBarrier(run, engine, stop_query, report)


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


JOIN_MILLIS = 200
"""So long is the engine's thread waited for in one call to the JVM, which goes on for as often as it takes."""


def stop_query(query: Any) -> None:
    """Returns when the engine's thread has ended, however long its batch takes. Raises what Spark says if it is gone.

    Spark's own ``stop()`` is not believed: with ``spark.sql.streaming.stopTimeout`` it gives up while the batch still runs, and
    the next query would then work on the same checkpoint.
    """
    thread = engine_thread(query)
    try:
        query.stop()
    except Exception as error:
        if thread is None:
            raise
        _log.debug("stop() gave up; the query's thread is waited for", exc_info=error)
    while thread is not None and thread.isAlive():
        thread.join(JOIN_MILLIS)


def engine_thread(query: Any) -> Any:
    """Java's thread that runs the batches; None: this Spark does not show it."""
    try:
        return execution_of(query).queryExecutionThread()
    except (Py4JError, AttributeError, TypeError):
        return None


def execution_of(query: Any) -> Any:
    """Spark's own object of a query."""
    execution = query._jsq
    return execution.streamingQuery() if execution.getClass().getSimpleName() == "StreamingQueryWrapper" else execution


def refuse_if_taken(spark: Any, checkpoint: str) -> None:
    """Raises UsageError where a query of this process runs on the checkpoint, which Spark would stop without a word."""
    known = CheckpointFiles(spark, checkpoint).query_id()
    if not known:
        return
    name = None
    with suppress(Py4JError, AttributeError, TypeError):  # a Spark that does not show its queries
        running = list(spark._jsparkSession.sharedState().activeStreamingQueries().values())
        found = next((query for query in running if query.id().toString() == known), None)
        if found is None:
            return
        name = found.name() or str(found.runId().toString())
    if name is not None:
        raise UsageError(
            f"A query of this process, '{name}', runs on the checkpoint at {checkpoint} already.",
            hint="Stop it first and wait for its end, or name another checkpoint.",
        )
