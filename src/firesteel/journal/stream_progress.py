"""Tells of a stream while it runs: one line to stderr for each thing that happened, none for each batch."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from firesteel.humanize import plural
from firesteel.journal.journal import Instrument
from firesteel.journal.progress import NoProgress, first_line
from firesteel.journal.stream_report import rescale_sentence
from firesteel.journal.streams import Batches
from firesteel.scheduler.records import Decision, JournalRecord
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

_TOLD = ("restart", "failover", "warning", "recovery", "refusal")
"""Decisions that are told at once; others are for explain."""
_QUIET_STATES = ("Created", "CreatingExecutionGraph", "Restarting", "Finished")


def create_stream_progress(enabled: bool, stream: TextIO | None = None) -> Instrument:
    """The view, or nothing (``firesteel.progress`` = false, ``--quiet``). ``stream``: stderr unless given."""
    chosen = sys.stderr if stream is None else stream
    return StreamProgress(chosen) if enabled and chosen is not None else NoProgress()


class StreamProgress:
    """An instrument that writes lines to ``stream``. It keeps a few numbers, however long the stream runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._batches = Batches()
        self._began: float | None = None
        self._state = ""

    def record(self, record: JournalRecord) -> None:
        self._began = record.at if self._began is None else self._began
        text = self._news(record)
        if text:
            with suppress(OSError, ValueError):
                self._stream.write(f"firesteel {max(0.0, record.at - self._began):7.1f} s  {text}\n")
                self._stream.flush()

    def close(self) -> None:
        pass

    def _news(self, record: JournalRecord) -> str:
        match record:
            case StreamBatch():
                return self._batch(record)
            case StreamStateChange():
                return self._changed(record)
            case StreamEnded():
                return self._ended(record)
            case _:
                return _told(record)

    def _batch(self, record: StreamBatch) -> str:
        before = self._batches.parallelisms[-1:]
        self._batches.apply(record)
        del self._batches.parallelisms[:-1]
        if before == [record.parallelism]:
            return ""
        return f"first batch with {plural(record.parallelism, 'partition')}: batch {record.batch - record.batches + 1}"

    def _changed(self, record: StreamStateChange) -> str:
        before, self._state = self._state, record.state
        if record.state == before or record.state in _QUIET_STATES:
            return ""
        return f"{record.state}: {first_line(record.cause)}".rstrip(": ")

    def _ended(self, record: StreamEnded) -> str:
        cause = f": {first_line(record.cause)}" if record.cause and record.status == "FAILED" else ""
        size = f"{plural(self._batches.count, 'batch', 'es')}, {plural(self._batches.rows, 'row')}"
        return f"{record.status.lower()} after {size}{cause}"


def _told(record: JournalRecord) -> str:
    match record:
        case StreamPlanned():
            return f"{record.name} (stream {record.stream_id}): checkpoint {record.checkpoint}"
        case RescaleRecord():
            return f"rescale {record.rescale}: {first_line(rescale_sentence(record))}"
        case Decision() if record.what in _TOLD:
            return f"{record.what}: {first_line(record.reason)}"
        case _:
            return ""
