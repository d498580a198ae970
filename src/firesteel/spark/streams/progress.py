"""Spark's progress of a batch, in the scheduler's terms; and each commit told once, in order, whoever heard of it first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from firesteel.scheduler.streaming.events import BatchCommitted, QueryIdle

_BEHIND = ("maxOffsetsBehindLatest", "numFilesOutstanding")
"""Sources' metrics of what waits: Kafka's per partition at most, and files."""
_STORED = "rocksdbSstFileSize"


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a committed batch. Rates in rows per second, ``duration`` in seconds."""

    batch: int
    rows: int = 0
    duration: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    backlog: int | None = None
    input_rate: float = 0.0
    processed_rate: float = 0.0

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Progress:
        """From the JSON of Spark's StreamingQueryProgress. What it lacks is nought."""
        operators = told.get("stateOperators") or []
        durations = told.get("durationMs") or {}
        millis = durations.get("triggerExecution", told.get("batchDuration") or 0)
        return cls(
            batch=int(told["batchId"]),
            rows=int(told.get("numInputRows") or 0),
            duration=float(millis) / 1000,
            state_rows=sum(int(o.get("numRowsTotal") or 0) for o in operators),
            state_bytes=sum(map(_bytes, operators)),
            backlog=_backlog(told.get("sources") or []),
            input_rate=_rate(told.get("inputRowsPerSecond")),
            processed_rate=_rate(told.get("processedRowsPerSecond")),
        )

    def event(self, run: int, at: float, *, at_barrier: bool) -> BatchCommitted:
        return BatchCommitted(at=at, run=run, at_barrier=at_barrier, **asdict(self))


class Commits:
    """Of one run. Spark's listener speaks late, and may lose a word; a commit at the barrier is told by the barrier itself.

    While the barrier is set (``barrier_on``), what the listener says of a commit waits for the barrier's word on the same one.
    """

    def __init__(self, run: int, committed: int) -> None:
        self.last = committed
        """The last commit that was told."""
        self.barrier_on = False
        self._run = run
        self._early: dict[int, Progress] = {}

    def set_barrier(self, on: bool) -> None:
        """``on``: from now on the query stops at the barrier behind each commit; else it does not any more."""
        self.barrier_on = on

    def heard(self, progress: Progress, at: float) -> list[BatchCommitted]:
        """From the listener."""
        if progress.batch <= self.last:
            return []
        self._early[progress.batch] = progress
        return [] if self.barrier_on else self.release(at)

    def misses(self, batch: int) -> bool:
        """A commit before ``batch`` was neither told nor heard of."""
        return any(each not in self._early for each in range(self.last + 1, batch))

    def at_barrier(
        self, batch: int, progress: Progress | None, at: float, recent: Iterable[Progress] = ()
    ) -> list[BatchCommitted | QueryIdle]:
        """The query is at the barrier, and ``batch`` is its last commit. The last event is the one that waits for an answer.

        ``recent``: what Spark has kept, for a listener that is late.
        """
        for each in recent:
            if self.last < each.batch < batch:
                self._early.setdefault(each.batch, each)
        known = self._early.pop(batch, None)
        if progress is None or progress.batch != batch:
            progress = known or Progress(batch)
        events: list[BatchCommitted | QueryIdle] = [*self.release(at, batch - 1)]
        if batch <= self.last:
            return [*events, QueryIdle(at=at, run=self._run, batch=self.last, at_barrier=True)]
        self.last = batch
        return [*events, progress.event(self._run, at, at_barrier=True)]

    def release(self, at: float, up_to: int | None = None) -> list[BatchCommitted]:
        """Tells what waited for the barrier's word, which will not come."""
        ready = sorted(batch for batch in self._early if up_to is None or batch <= up_to)
        events = [self._early.pop(batch).event(self._run, at, at_barrier=False) for batch in ready]
        self.last = max([self.last, *ready])
        return events

    def ended(self, recent: Iterable[Progress], committed: int, at: float) -> list[BatchCommitted]:
        """The query is gone: what was committed and not heard of. Spark's list also holds a trigger that did nothing."""
        for progress in recent:
            if self.last < progress.batch <= committed:
                self._early.setdefault(progress.batch, progress)
        return self.release(at, committed)


def _bytes(operator: Mapping[str, Any]) -> int:
    """On disk where the store says so (RocksDB), else in memory."""
    stored = int((operator.get("customMetrics") or {}).get(_STORED) or 0)
    return stored or int(operator.get("memoryUsedBytes") or 0)


def _backlog(sources: Iterable[Mapping[str, Any]]) -> int | None:
    found: list[int] = []
    for source in sources:
        metrics = source.get("metrics") or {}
        said = next((metrics[name] for name in _BEHIND if name in metrics), None)
        waits = _between(source.get("endOffset"), source.get("latestOffset")) if said is None else int(float(said))
        if waits is not None:
            found.append(waits)
    return sum(found) if found else None


def _between(end: Any, latest: Any) -> int | None:
    """Of offsets that are numbers, or numbers by topic and partition."""
    if isinstance(end, int) and isinstance(latest, int):
        return max(0, latest - end)
    if isinstance(end, Mapping) and isinstance(latest, Mapping):
        parts = [_between(end.get(key, 0), value) for key, value in latest.items()]
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None
    return None


def _rate(value: Any) -> float:
    """Spark writes none, or words, where it divided by nought."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Spark's listener told of a batch."""

    run: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class HeardIdle:
    """Spark's listener says that a trigger found nothing to do."""

    run: int


class ProgressListener:
    """Of one run, from Spark's listener bus; each word is handed over as it comes, late and in Spark's own time. To be opened before the query starts, for the session it starts in."""

    def __init__(self, session: Any, run: int, report: Callable[[Heard | HeardIdle], None]) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        class Listener(StreamingQueryListener):
            """Spark calls it one event after the other; it only hands over, and never raises."""

            def onQueryStarted(self, event: Any) -> None:  # noqa: N802
                pass

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                with suppress(Exception):
                    report(Heard(run, Progress.of(json.loads(event.progress.json))))

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                report(HeardIdle(run))

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                """Does nothing; that it is there lets those who wait for the query's end hear of it sooner, and surely."""

        self._streams = session.streams
        self._listener = Listener()
        self._streams.addListener(self._listener)

    def close(self) -> None:
        with suppress(Exception):  # Spark is gone
            self._streams.removeListener(self._listener)
