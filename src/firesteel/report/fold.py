"""Everything known so far of one job, stream or script: folds that take its records one by one, live or from a journal.

The fold of a job keeps numbers in columns and decisions as they are, so its size grows with the job, not with the time it runs. The fold of
a stream keeps the latest changes, and its batches thinned out.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from firesteel.errors import UsageError
from firesteel.journal.file import last_record
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.report.executions import BusySlots, Executions, Lives
from firesteel.report.history import JobHistory, RecordFold
from firesteel.scheduler.kernel.records import (
    Decision,
    GraphChanged,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    OutputGone,
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

MOST_POINTS = 500
"""Batches, and levels of parallelism, that a stream's charts have."""
MOST_RESCALES = 1000
MOST_STORY = 1000


class JobFold(JobHistory):
    """A job, with all of its executions and decisions."""

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False) -> None:
        self.executions: defaultdict[int, Executions] = defaultdict(Executions)
        self.all_decisions: list[Decision] = []
        """All decisions in order, also those about vertices and nodes."""
        self.kept: list[JournalRecord] = []
        """The records that decisions can be made from again: the plan, changes of it, decisions."""
        self.statuses: list[JobStatusRecord] = []
        self.waiting: dict[str, list[tuple[float, int]]] = {}
        """Of groups with resources: (time, executions that wait for a slot from then on). Its length goes with the logarithm of the job's time."""
        self._reads: dict[int, list[int]] = {}
        super().__init__(records, runs=runs)

    def reads(self, vertex: int) -> list[int]:
        """Data sets that the vertex reads; empty: none, or the journal does not tell."""
        return self._reads.get(vertex, [])

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case StateChange():
                self.executions[record.vertex].apply(record)
            case OutputGone():
                if record.reason.startswith("discarded"):
                    self.executions[record.vertex].lost(record)
            case Decision():
                self.all_decisions.append(record)
                self.kept.append(record)
            case JobPlanned():
                self.kept.append(record)
                self._reads |= {number: each.get("datasets") or [] for number, each in self.described.items()}
            case GraphChanged():
                self.kept.append(record)
                self._reads[record.into] = record.vertex.get("datasets") or []
            case JobStatusRecord():
                self.statuses.append(record)
            case SlotUsage():
                self.waiting.setdefault(record.group, []).append((record.at, record.asked))
            case _:
                pass

    def most_at_once(self, vertices: Iterable[int]) -> int:
        """Returns the most executions of these vertices that ran at the same time; only those that finished count.

        Counting as records arrive would find fewer: launches are often recorded only when all is over.
        """
        columns = [self.executions[vertex] for vertex in vertices if vertex in self.executions]
        done = [(each, each.won() & ~np.isnan(each.began)) for each in columns]
        return BusySlots((each.began[rows], each.ended[rows]) for each, rows in done).most(-math.inf, math.inf)

    def lives(self, vertex: int | None = None, *, all_of_them: bool = False) -> Lives:
        """Of the subtasks (of one vertex, or of the job) that had several attempts; ``all_of_them``: of those with one too."""
        chosen = sorted(self.executions) if vertex is None else [vertex] if vertex in self.executions else []
        return {
            (number, subtask): lives
            for number in chosen
            for subtask, lives in self.executions[number].lives(all_of_them=all_of_them).items()
        }


@dataclass(slots=True)
class Batches:
    """Totals of the committed batches. Bytes and rows of state are those of the last one."""

    count: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Spent in them."""
    last: StreamBatch | None = None

    def apply(self, record: StreamBatch) -> None:
        self.count += record.batches
        self.rows += record.rows
        self.seconds += record.duration
        self.last = record


class StreamFold(RecordFold):
    """A stream."""

    def __init__(self, records: Iterable[JournalRecord] = (), *, runs: bool = False, whole: bool = False) -> None:
        """``whole``: keeps every rescale, change and level of parallelism, not only the latest ones."""
        self.plan: StreamPlanned | None = None
        self.state, self.phase, self.cause = "Created", "", ""
        self.totals = Batches()
        self.batches: list[StreamBatch] = []
        """Thinned: of more than twice MOST_POINTS each two neighbours become one."""
        self.levels: deque[tuple[float, int]] = deque(maxlen=None if whole else MOST_POINTS)
        """(time, parallelism from then on)."""
        self.rescales: deque[RescaleRecord] = deque(maxlen=None if whole else MOST_RESCALES)
        self.num_rescales = 0
        self.story: deque[Decision | StreamStateChange | RescaleRecord] = deque(maxlen=None if whole else MOST_STORY)
        self.num_story = 0
        self.end: StreamEnded | None = None
        super().__init__(records, runs=runs)

    @property
    def id(self) -> str:
        return self.plan.stream_id if self.plan else ""

    @property
    def is_over(self) -> bool:
        return self.end is not None

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case StreamPlanned():
                self.plan = record
            case StreamBatch():
                self._committed(record)
            case StreamStateChange():
                self.state, self.phase, self.cause = record.state, record.phase, record.cause
                self._told(record)
            case RescaleRecord():
                self.rescales.append(record)
                self.num_rescales += 1
                self._told(record)
            case Decision():
                self._told(record)
            case StreamEnded():
                self.end = record
            case _:
                pass

    def _told(self, record: Decision | StreamStateChange | RescaleRecord) -> None:
        self.story.append(record)
        self.num_story += 1

    def _committed(self, record: StreamBatch) -> None:
        self.totals.apply(record)
        if not self.levels or self.levels[-1][1] != record.parallelism:
            self.levels.append((record.at, record.parallelism))
        self.batches.append(record)
        if len(self.batches) > 2 * MOST_POINTS:
            self.batches = thinned(self.batches)


def thinned(batches: list[StreamBatch]) -> list[StreamBatch]:
    """Half as many: each two neighbours together."""
    pairs = zip(batches[::2], batches[1::2], strict=False)
    odd = batches[len(batches) & ~1 :]
    return [*(_together(one, other) for one, other in pairs), *odd]


def _together(one: StreamBatch, other: StreamBatch) -> StreamBatch:
    """``other`` is the later one; what is no sum is its."""
    return replace(
        other,
        rows=one.rows + other.rows,
        duration=one.duration + other.duration,
        batches=one.batches + other.batches,
        input_rate=max(one.input_rate, other.input_rate),
    )


class ScriptFold(RecordFold):
    """An accelerated script."""

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.plan: ScriptPlanned | None = None
        self.queries: list[QueryRecord] = []
        self.end: ScriptEnded | None = None
        super().__init__(records)

    @property
    def id(self) -> str:
        return self.plan.script_id if self.plan else ""

    @property
    def is_over(self) -> bool:
        return self.end is not None

    def apply(self, record: JournalRecord) -> None:
        super().apply(record)
        match record:
            case ScriptPlanned():
                self.plan = record
            case QueryRecord():
                self.queries.append(record)
            case ScriptEnded():
                self.end = record
            case _:
                pass


Fold = JobFold | StreamFold | ScriptFold


def fold_for(first: JournalRecord, *, runs: bool = False) -> Fold:
    """Returns an empty fold for the journal that begins with this record."""
    if isinstance(first, StreamPlanned):
        return StreamFold(runs=runs)
    return ScriptFold() if isinstance(first, ScriptPlanned) else JobFold(runs=runs)


def kind_of(records: Sequence[JournalRecord]) -> str:
    """Returns ``job``, ``stream`` or ``script``: the kind of the journal."""
    first = records[0] if records else None
    return "stream" if isinstance(first, StreamPlanned) else "script" if isinstance(first, ScriptPlanned) else "job"


def check_job(records: Sequence[JournalRecord], stream: str, hint: str) -> None:
    """Raises UsageError for the journal of a script or a stream. ``stream``, ``hint``: the sentence and hint for a stream."""
    if kind_of(records) == "script":
        raise UsageError("This is a script.", hint="'firesteel explain' names the jobs of its queries.")
    if kind_of(records) == "stream":
        raise UsageError(stream, hint=hint)


def committed_batch(record: JournalRecord) -> StreamBatch | None:
    """Returns the record if it is a committed batch, else None."""
    return record if isinstance(record, StreamBatch) else None


def how_it_ended(journal: str) -> StreamEnded | None:
    """Returns the record of the stream's end from the journal at this path; None: there is no such record."""
    record = last_record(journal) if journal else None
    return record if isinstance(record, StreamEnded) else None
