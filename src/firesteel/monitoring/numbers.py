"""The numbers of this process's jobs and streams as they stand, kept small: those that are over are let go after a while, and very many are not all kept."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from firesteel.journal.file import masked
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.masking import Masker
from firesteel.scheduler.kernel.records import (
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    SlotUsage,
    StateChange,
)
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

Number = int | float
KEPT_SECONDS = 300.0
"""A job that is over is shown for so long: several scrapes, whatever their interval."""
MOST_JOBS = 100
"""Jobs and streams that are shown at once; beyond, those that ended first are let go at once."""
MOST_VERTICES = 100
"""Of one job; further ones are counted."""
ENDED = ("FINISHED", "FAILED", "CANCELED")


@dataclass(slots=True)
class JobNumbers:
    """``began``, ``ended``: seconds of the epoch. ``vertices``: names by number, the first MOST_VERTICES."""

    id: str = ""
    name: str = ""
    began: float = 0.0
    ended: float | None = None
    status: str = "CREATED"
    vertices: dict[int, str] = field(default_factory=dict[int, str])
    left_out: int = 0
    """Vertices beyond the first MOST_VERTICES."""
    metrics: Mapping[str, Number] = field(default_factory=dict[str, Number])
    by_vertex: dict[int, Mapping[str, Number]] = field(default_factory=dict[int, "Mapping[str, Number]"])
    decisions: Counter[str] = field(default_factory=Counter[str])
    """By what was decided."""
    groups: dict[str, SlotUsage] = field(default_factory=dict[str, SlotUsage])
    """The last word on each slot sharing group, where any has resources."""
    dropped: int = 0


@dataclass(slots=True)
class StreamNumbers:
    """``began``, ``ended``: seconds of the epoch."""

    id: str = ""
    name: str = ""
    began: float = 0.0
    ended: float | None = None
    status: str = "RUNNING"
    """FINISHED, CANCELED or FAILED at its end."""
    state: str = ""
    """The scheduler's state."""
    lower: int = 0
    upper: int = 0
    last: StreamBatch | None = None
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Of its batches, together."""
    rescales: Counter[str] = field(default_factory=Counter[str])
    """By how they ended."""
    downtime: float = 0.0
    """Seconds of all rescales together."""
    decisions: Counter[str] = field(default_factory=Counter[str])
    dropped: int = 0


@dataclass(slots=True)
class ScriptNumbers:
    """Of an accelerated script. ``ended``: seconds of the epoch."""

    id: str = ""
    name: str = ""
    ended: float | None = None
    taken: int = 0
    """Queries that were taken over."""
    left: int = 0
    """Queries that Spark computed."""
    checks: Counter[str] = field(default_factory=Counter[str])
    """By how they ended: ``same``, ``differs``, ``skipped``."""
    dropped: int = 0


AnyNumbers = JobNumbers | StreamNumbers | ScriptNumbers


class Board:
    """All jobs, streams and scripts of the process that are shown. Written by the threads of jobs' exporters, read by whoever serves or sends them."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._shown: list[AnyNumbers] = []

    @contextmanager
    def locked(self) -> Generator[None]:
        """Nothing changes meanwhile."""
        with self._lock:
            yield

    def add(self, numbers: AnyNumbers) -> None:
        """Under the lock."""
        self._shown = [shown for shown in self._shown if shown.id != numbers.id]  # a job that goes on is one
        self._shown.append(numbers)
        self._let_go()

    def shown(self) -> list[AnyNumbers]:
        """Under the lock: oldest first."""
        self._let_go()
        return list(self._shown)

    def now(self) -> float:
        """Seconds of the epoch."""
        return self._now()

    def _let_go(self) -> None:
        past = self._now() - KEPT_SECONDS
        self._shown = [shown for shown in self._shown if shown.ended is None or shown.ended > past]
        over = sorted((shown.ended, place) for place, shown in enumerate(self._shown) if shown.ended is not None)
        surplus = {place for _, place in over[: max(0, len(self._shown) - MOST_JOBS)]}
        if surplus:
            self._shown = [shown for place, shown in enumerate(self._shown) if place not in surplus]


class NumbersExporter:
    """Folds the records of one job, stream or script into a board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._masker = Masker()
        self._numbers: AnyNumbers | None = None

    def apply(self, record: JournalRecord, arrived: float) -> None:
        if isinstance(record, StateChange):  # most of all records: snapshots tell the same
            return
        with self._board.locked():
            if isinstance(record, JobPlanned | StreamPlanned):
                plan = masked(record, self._masker)
                self._numbers = _job(plan, arrived) if isinstance(plan, JobPlanned) else _stream(plan, arrived)
                self._board.add(self._numbers)
            elif isinstance(record, ScriptPlanned):
                self._numbers = ScriptNumbers(record.script_id, self._masker.text(record.name))
                self._board.add(self._numbers)
            elif isinstance(self._numbers, JobNumbers):
                _apply_to_job(self._numbers, record, arrived, self._masker)
            elif isinstance(self._numbers, ScriptNumbers):
                _apply_to_script(self._numbers, record, arrived)
            elif self._numbers is not None:
                _apply_to_stream(self._numbers, record, arrived)

    def close(self, dropped: int) -> None:
        with self._board.locked():
            if self._numbers is not None:
                self._numbers.dropped = dropped
                self._numbers.ended = self._board.now() if self._numbers.ended is None else self._numbers.ended


def _job(plan: JobPlanned, began: float) -> JobNumbers:
    names = {int(vertex["id"]): str(vertex["name"]) for vertex in plan.vertices}
    kept = dict(list(names.items())[:MOST_VERTICES])
    return JobNumbers(plan.job_id, plan.job_name, began, vertices=kept, left_out=len(names) - len(kept))


def _stream(plan: Any, began: float) -> StreamNumbers:
    return StreamNumbers(plan.stream_id, plan.name, began, lower=plan.lower, upper=plan.upper)


def _apply_to_job(job: JobNumbers, record: JournalRecord, arrived: float, masker: Masker) -> None:
    match record:
        case MetricsSnapshot():
            told = masked(record, masker)
            assert isinstance(told, MetricsSnapshot)
            job.metrics = told.job
            job.by_vertex.update((vertex, told.vertices[vertex]) for vertex in told.vertices if vertex in job.vertices)
        case Decision():
            job.decisions[record.what] += 1
        case SlotUsage():
            job.groups[record.group] = record
        case JobStatusRecord():
            job.status = record.status
            job.ended = arrived if record.status in ENDED else None
        case GraphChanged():
            job.by_vertex.pop(record.absorbed, None)
            if record.into in job.vertices and record.vertex.get("name"):
                job.vertices[record.into] = masker.text(str(record.vertex["name"]))
        case _:
            pass


def _apply_to_stream(stream: StreamNumbers, record: JournalRecord, arrived: float) -> None:
    match record:
        case StreamBatch():
            stream.last = record
            stream.batches += record.batches
            stream.rows += record.rows
            stream.seconds += record.duration
        case StreamStateChange():
            stream.state = record.state
        case Decision():
            stream.decisions[record.what] += 1
        case RescaleRecord():
            stream.rescales[record.end] += 1
            stream.downtime += record.downtime or 0.0
        case StreamEnded():
            stream.status, stream.ended = record.status, arrived
        case _:
            pass


def _apply_to_script(script: ScriptNumbers, record: JournalRecord, arrived: float) -> None:
    match record:
        case QueryRecord():
            script.taken += not record.left
            script.left += bool(record.left)
            if record.check:
                script.checks[record.check] += 1
        case ScriptEnded():
            script.ended = arrived
        case _:
            pass
