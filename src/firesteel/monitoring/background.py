"""An instrument that hands records on to exporters on a thread of its own, so that no exporter costs the job's thread more than an append."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from firesteel.scheduler.kernel.records import JobPlanned, JobStatusRecord, JournalRecord
from firesteel.scheduler.streaming.records import StreamEnded, StreamPlanned

MOST_WAITING = 1 << 16
"""Records that wait at most; further ones are dropped and counted, but for those that tell of beginnings and ends."""
GATHER_SECONDS = 1.0
"""Records are taken together so often: a thread that woke for each would take the interpreter from the job's thread."""
EXIT_SECONDS = 5.0
"""The time that a process waits at its end for what is still to be told, all jobs and receivers together."""

_FRAME = (JobPlanned, JobStatusRecord, StreamPlanned, StreamEnded)
_log = logging.getLogger("firesteel.monitoring")


class Exporter(Protocol):
    """Makes something of the records of one job or stream. Called by one thread."""

    def apply(self, record: JournalRecord, arrived: float) -> None:
        """``arrived``: when the record was told, in seconds of the epoch."""
        ...

    def close(self, dropped: int) -> None:
        """The job is over. ``dropped``: records that nobody was told of."""
        ...


class Background:
    """The instrument. ``close`` returns at once; the thread goes on until all that was told has been handed on."""

    def __init__(self, exporters: Sequence[Exporter], *, most: int = MOST_WAITING) -> None:
        self.dropped = 0
        self._active = list(exporters)
        self._most = most
        self._waiting: deque[tuple[JournalRecord, float]] = deque()
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="firesteel-monitoring", daemon=True)
        self._thread.start()
        _running.add(self)

    def record(self, record: JournalRecord) -> None:
        if len(self._waiting) >= self._most and not isinstance(record, _FRAME):
            self.dropped += 1
            return
        self._waiting.append((record, time.time()))
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        self._closed.set()
        self._news.set()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the thread, after :meth:`close`. True: all has been handed on."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # --- in the thread ---

    def _work(self) -> None:
        over = False
        while not over:
            self._news.wait()
            self._closed.wait(GATHER_SECONDS)
            self._news.clear()
            over = self._closed.is_set()  # after that: news of a close is never cleared unseen
            told = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self._each(lambda exporter, told=told: _hand_on(exporter, told))
        if self.dropped:
            _log.warning("Monitoring could not keep up with a job, and left out %d of its records.", self.dropped)
        self._each(lambda exporter: exporter.close(self.dropped))

    def _each(self, call: Callable[[Exporter], None]) -> None:
        for exporter in tuple(self._active):
            try:
                call(exporter)
            except Exception:
                self._active.remove(exporter)
                _log.exception("%s failed and takes no further part in this job.", type(exporter).__name__)


def _hand_on(exporter: Exporter, told: Sequence[tuple[JournalRecord, float]]) -> None:
    for record, arrived in told:
        exporter.apply(record, arrived)


_running: weakref.WeakSet[Background] = weakref.WeakSet()
_flushes: list[Callable[[float], object]] = []


def at_exit(flush: Callable[[float], object]) -> None:
    """When the process ends, after the jobs' last records, ``flush`` is called with the seconds that it may take."""
    _flushes.append(flush)


def finish(seconds: float = EXIT_SECONDS) -> None:
    """Ends all instruments, and waits until what they told has been sent, at most so long."""
    until = time.monotonic() + seconds
    for background in list(_running):
        background.close()
    told = [background.join(max(0.0, until - time.monotonic())) for background in list(_running)]
    threads = [threading.Thread(target=flush, args=(seconds,), daemon=True) for flush in _flushes]
    for thread in threads:  # side by side: one that hangs takes no time from the others
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if not all(told) or any(thread.is_alive() for thread in threads):
        _log.warning(
            "Not all metrics, traces and lineage could be sent within %g s of the end, and the rest is dropped: a receiver is slow or gone.",
            seconds,
        )


atexit.register(finish)
"""Registered before the jobs' own end of the process, so that it comes after: what they tell at their end is told, too."""
