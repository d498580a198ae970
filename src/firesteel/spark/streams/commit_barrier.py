"""The commit barrier of a streaming query: it waits there after a commit, before anything of the next batch is planned.

It sits in Spark's engine (see :mod:`firesteel.spark.streams.engine`), so that it works alike for every source and sink.
While armed, a thread of our own owns the engine's progress lock, which hinders no task; whenever the engine queues for it, it is
let through, one place at a time, up to the checkpoint. There the driver is told, and answers: go on, or stop. A query that is
stopped at the barrier ends without a batch begun.

No answer, a driver that is gone, a query that failed: after a bound at the latest the lock is free again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from firesteel.spark.streams.engine import Engine, Found, Place

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
