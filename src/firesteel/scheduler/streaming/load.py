"""How many cores the load of a stream needs, from the numbers of its own batches. Off by default."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from firesteel.scheduler.streaming.events import BatchCommitted
from firesteel.scheduler.streaming.settings import StreamSettings

_WARM_UP = 3
"""Batches after a start that say nothing: they read what has gathered, and Spark plans and warms up."""
_LEAST_BATCHES = 3


class LoadSignal(Protocol):
    def started(self, busy: int) -> None:
        """The query was started, or started again. ``busy``: cores that it can keep busy."""
        ...

    def batch(self, event: BatchCommitted, busy: int) -> None: ...

    @property
    def cores(self) -> int | None:
        """That it needs; None: nothing to say."""
        ...

    @property
    def reason(self) -> str: ...


class NoLoadSignal:
    """The parallelism follows the slots alone."""

    cores: int | None = None
    reason = ""

    def started(self, busy: int) -> None: ...

    def batch(self, event: BatchCommitted, busy: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Batch:
    at: float
    busy: float
    """Seconds."""
    rows: int
    backlog: int | None


class BusyLoad:
    """Utilisation over a window = part of the time that batches took x rows that came per row that was processed.

    The second factor is known where the source tells its backlog, and is 1 elsewhere. Above ``high`` or below ``low`` as
    many cores are needed as bring it to the target, of those that the query can keep busy now: no more than it has
    partitions. In between it needs those. While it catches up (the backlog is more than a batch and shrinks) a stream is
    busier than its load: nothing new is said then.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._batches: deque[_Batch] = deque()
        self._skip = _WARM_UP
        self.cores: int | None = None
        self.reason = ""

    def started(self, busy: int) -> None:
        self._batches.clear()
        self._skip = _WARM_UP
        self.cores, self.reason = max(1, busy), "the query has only just been started"

    def batch(self, event: BatchCommitted, busy: int) -> None:
        if self._skip > 0:
            self._skip -= 1
            return
        self._batches.append(_Batch(event.at, event.duration, event.rows, event.backlog))
        while self._batches[-1].at - self._batches[0].at > self._settings.load_window:
            self._batches.popleft()
        self._judge(max(1, busy))

    def _judge(self, cores: int) -> None:
        settings, batches = self._settings, self._batches
        span = batches[-1].at - batches[0].at
        # The first one is the mark from which the others are counted.
        if len(batches) <= _LEAST_BATCHES or span < settings.load_window / 2:
            return
        later = list(batches)[1:]
        rows = sum(batch.rows for batch in later)
        grown = _difference(batches[0].backlog, batches[-1].backlog)
        if self._catches_up(rows / len(later), grown):
            self.cores, self.reason = cores, "it catches up with what has gathered"
            return
        busy = min(sum(batch.busy for batch in later) / span, 1.0)
        utilization = busy * max(0.0, 1 + grown / rows) if rows else busy
        self.reason = f"batches take {busy:.0%} of the time" + (f", {grown:+,} rows of backlog" if grown else "")
        fits = settings.load_low <= utilization <= settings.load_high
        self.cores = cores if fits else max(1, math.ceil(cores * utilization / settings.load_target))

    def _catches_up(self, rows_per_batch: float, grown: int) -> bool:
        backlog = self._batches[-1].backlog
        return backlog is not None and grown < 0 and backlog > rows_per_batch


def _difference(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def load_signal(settings: StreamSettings) -> LoadSignal:
    return BusyLoad(settings) if settings.by_load else NoLoadSignal()
