"""The cores that the load of a stream needs, from the numbers of its own batches. Off by default."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from firesteel.scheduler.streaming.events import BatchCommitted
from firesteel.scheduler.streaming.settings import StreamSettings

_WARM_UP = 3
"""Batches after a start that say nothing: they read what has gathered, and Spark plans and warms up."""
_LEAST_BATCHES = 3
_JUDGED = 4
"""Times in a window."""
_FITS = 0.75
"""A number of cores that was named stays while no more and not less than this part of it are needed."""


_UNKNOWN = (
    "the load is not known: the source reports no backlog, and the trigger has no gap, so that batches follow each other "
    "whatever the load; the parallelism follows the slots alone"
)


class LoadSignal:
    """None: the parallelism follows the slots alone."""

    cores: int | None = None
    """That the load needs; None: not known."""
    reason = ""

    def started(self, busy: int, gap: float | None = None) -> None:
        """The query was started, or started again. ``busy``: cores that it can keep busy. ``gap``: of its trigger."""

    def batch(self, event: BatchCommitted, busy: int) -> None: ...

    def idle(self, at: float, busy: int) -> None:
        """No batch runs, and none is to be made."""

    def is_due(self, at: float) -> bool:
        """Returns whether a batch that ends at ``at`` may change the wanted cores."""
        return False


@dataclass(frozen=True, slots=True)
class _Batch:
    at: float
    busy: float
    """Seconds."""
    rows: int
    backlog: int | None


class BusyLoad(LoadSignal):
    """Utilisation over a window = part of the time that batches took x rows that came per row that was processed.

    The second factor is known where the source tells its backlog, and is 1 elsewhere. Above ``high`` or below ``low`` as
    many cores are needed as bring it to the target, of those that the query can keep busy now: no more than it has
    partitions. In between it needs those. While it catches up (the backlog is more than a batch and shrinks) a stream is
    busier than its load: nothing new is said then. Nothing at all is said of a source that tells no backlog where the
    trigger has no gap: batches follow each other then whatever the load.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._batches: deque[_Batch] = deque()
        self._skip = _WARM_UP
        self._gap: float | None = None
        self._judged = float("-inf")

    def started(self, busy: int, gap: float | None = None) -> None:
        self._batches.clear()
        self._skip, self._gap, self._judged = _WARM_UP, gap, float("-inf")
        self.cores, self.reason = max(1, busy), "the query has only just been started"

    def batch(self, event: BatchCommitted, busy: int) -> None:
        if event.backlog is None and not self._gap:
            self.cores, self.reason = None, _UNKNOWN
            return
        if self._skip > 0:
            self._skip -= 1
            return
        self._add(_Batch(event.at, event.duration, event.rows, event.backlog), max(1, busy))

    def idle(self, at: float, busy: int) -> None:
        if self.cores is None or not self._batches:
            return
        self._add(_Batch(at, 0.0, 0, None if self._batches[-1].backlog is None else 0), max(1, busy))

    def is_due(self, at: float) -> bool:
        batches, window = self._batches, self._settings.load_window
        is_enough = len(batches) >= _LEAST_BATCHES and at - batches[0].at >= window / 2
        return is_enough and at - self._judged >= window / _JUDGED

    def _add(self, batch: _Batch, busy: int) -> None:
        self._batches.append(batch)
        while self._batches[-1].at - self._batches[0].at > self._settings.load_window:
            self._batches.popleft()
        if batch.at - self._judged >= self._settings.load_window / _JUDGED:
            self._judge(busy)

    def _judge(self, cores: int) -> None:
        settings, batches = self._settings, self._batches
        span = batches[-1].at - batches[0].at
        # The first one is the mark from which the others are counted.
        if len(batches) <= _LEAST_BATCHES or span < settings.load_window / 2:
            return
        self._judged = batches[-1].at
        later = list(batches)[1:]
        rows = sum(batch.rows for batch in later)
        grown = _difference(batches[0].backlog, batches[-1].backlog)
        if self._catches_up(rows / len(later), grown):
            self.cores, self.reason = cores, "it catches up with what has gathered"
            return
        busy = min(sum(batch.busy for batch in later) / span, 1.0)
        utilization = busy * max(0.0, 1 + grown / rows) if rows else busy
        self.reason = f"batches take {busy:.0%} of the time" + (f", {grown:+,} rows of backlog" if grown else "")
        self.cores = self._needed(cores, utilization)

    def _needed(self, cores: int, utilization: float) -> int:
        """Returns the cores that the load needs. The last number stays until it is clearly wrong, or each batch would give a new one."""
        settings, last = self._settings, self.cores or cores
        low, high, target = settings.load_low, settings.load_high, settings.load_target
        if last > cores:
            high = (high + target) / 2
        elif last < cores:
            low = (low + target) / 2
        if low <= utilization <= high:
            return cores
        needed = cores * utilization / target
        if (last > cores) == (needed > cores) and last != cores and _FITS * last <= needed <= last:
            return last
        return max(1, math.ceil(needed))

    def _catches_up(self, rows_per_batch: float, grown: int) -> bool:
        backlog = self._batches[-1].backlog
        return backlog is not None and grown < 0 and backlog > rows_per_batch


def _difference(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def load_signal(settings: StreamSettings) -> LoadSignal:
    return BusyLoad(settings) if settings.by_load else LoadSignal()
