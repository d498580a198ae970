"""Folds a stream's records into what is known of it: what explain and history of streams share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from firesteel.journal.file import last_record
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)


@dataclass(slots=True)
class Batches:
    """Totals of the committed batches. Bytes and rows of state are those of the last one."""

    count: int = 0
    rows: int = 0
    seconds: float = 0.0
    """Spent in them."""
    last: StreamBatch | None = None
    parallelisms: list[int] = field(default_factory=list[int])
    """Numbers of partitions that batches ran with, in order, each as often as it was come to."""

    def apply(self, record: StreamBatch) -> None:
        self.count += record.batches
        self.rows += record.rows
        self.seconds += record.duration
        self.last = record
        if self.parallelisms[-1:] != [record.parallelism]:
            self.parallelisms.append(record.parallelism)


class StreamHistory:
    """``apply`` takes the records of one stream in order, live or from a journal."""

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.plan: StreamPlanned | None = None
        self.state = "Created"
        self.phase = ""
        self.batches = Batches()
        self.rescales: list[RescaleRecord] = []
        self.story: list[Decision | StreamStateChange | RescaleRecord] = []
        """Decisions and what came of them, in order."""
        self.end: StreamEnded | None = None
        self.started_at: float | None = None
        self.last_at: float | None = None
        for record in records:
            self.apply(record)

    @property
    def seconds(self) -> float:
        return 0.0 if self.started_at is None or self.last_at is None else max(0.0, self.last_at - self.started_at)

    @property
    def standing(self) -> str:
        """``FINISHED``, or ``still Executing``."""
        return f"still {self.state}" if self.end is None else self.end.status

    def apply(self, record: JournalRecord) -> None:
        self.started_at = record.at if self.started_at is None else min(self.started_at, record.at)
        self.last_at = record.at if self.last_at is None else max(self.last_at, record.at)
        match record:
            case StreamPlanned():
                self.plan = record
            case StreamBatch():
                self.batches.apply(record)
            case StreamStateChange():
                self.state, self.phase = record.state, record.phase
                self.story.append(record)
            case RescaleRecord():
                self.rescales.append(record)
                self.story.append(record)
            case Decision():
                self.story.append(record)
            case StreamEnded():
                self.end = record
            case _:
                pass


def is_stream(records: Sequence[JournalRecord]) -> bool:
    """Returns True if a journal tells of a stream, not of a job."""
    return bool(records) and isinstance(records[0], StreamPlanned)


def committed_batch(record: JournalRecord) -> StreamBatch | None:
    """The batch that a record tells of; None: it tells of something else."""
    return record if isinstance(record, StreamBatch) else None


def how_it_ended(journal: str) -> StreamEnded | None:
    """As the journal at this path says; None: it does not."""
    record = last_record(journal) if journal else None
    return record if isinstance(record, StreamEnded) else None
