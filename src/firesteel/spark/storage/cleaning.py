"""Deletes on a thread of its own, so that a slow storage never holds up the job; and what must go at the very end."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from firesteel.spark.driver.threads import aside

CLOSE_SECONDS = 30.0
ZOMBIE_SECONDS = 5.0
"""A cancelled Python worker is killed 2 s after (spark.python.task.killTimeout), and a little."""
_log = logging.getLogger("firesteel.spark")


class Cleaner:
    """Runs deletions one after another. None of them can fail the job: what stays goes with the job's directory."""

    def __init__(self, store: Any, job_id: str, what: str = "clean") -> None:
        self._store = store
        self._name = f"firesteel-{what}-{job_id}"
        self._queue: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self.call(lambda: self._store.delete(names))

    def call(self, action: Callable[[], Any]) -> None:
        if self._thread is None:
            self._thread = aside(self._work, self._name, lambda: quietly(action))
        if self._thread is not None:
            self._queue.put(action)

    def close(self) -> None:
        """Waits for what was asked for, but not for ever."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        while (action := self._queue.get()) is not None:
            quietly(action)


def quietly(action: Callable[[], Any]) -> None:
    """Runs it; what it raises is logged only."""
    try:
        action()
    except Exception:
        _log.debug("cleaning up failed", exc_info=True)


class _Late:
    """Actions that wait until killed workers can write no more; done early when the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._pending: dict[int, tuple[threading.Timer, Callable[[], Any]]] = {}
        self._running: set[int] = set()
        self._next = 0
        self._ending = False

    def add(self, action: Callable[[], Any], seconds: float) -> None:
        with self._lock:
            number = self._next
            self._next += 1
            timer = threading.Timer(seconds, self._run, (number,))
            timer.daemon = True
            self._pending[number] = (timer, action)
            too_late = self._ending
        try:
            timer.start()
        except RuntimeError:  # the process ends; run_all is still to come, or was just now
            if too_late:
                self._run(number)

    def at_exit(self) -> None:
        with self._lock:
            self._ending = True
        self.run_all()

    def run_all(self) -> None:
        """Returns when nothing is pending, and what a timer has begun is done, too, if that does not take for ever."""
        for number in list(self._pending):
            self._run(number)
        with self._lock:
            self._lock.wait_for(lambda: not self._running, CLOSE_SECONDS)

    def _run(self, number: int) -> None:
        with self._lock:
            entry = self._pending.pop(number, None)
            if entry is None:
                return
            self._running.add(number)
        try:
            entry[0].cancel()
            quietly(entry[1])
        finally:
            with self._lock:
                self._running.remove(number)
                self._lock.notify_all()


late = _Late()
atexit.register(late.at_exit)
