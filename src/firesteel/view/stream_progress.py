"""Tells of a stream while it runs: a line for each thing that happened, none for each batch; a live table where one can be."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from firesteel.humanize import plural
from firesteel.journal.file import Instrument, Instruments
from firesteel.report.fold import Batches
from firesteel.report.stream_report import rescale_sentence
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
    StreamStatus,
)
from firesteel.view.json_events import write_event
from firesteel.view.news import first_line
from firesteel.view.progress import as_json
from firesteel.view.stream_view import status_table

if TYPE_CHECKING:
    from rich.live import Live

_TOLD = ("restart", "failover", "warning", "recovery", "refusal")
"""Decisions that are told at once; others are for explain."""
_QUIET_STATES = ("Created", "CreatingExecutionGraph", "Restarting", "Finished")


def create_stream_progress(enabled: bool, stream: TextIO | None = None) -> Instrument:
    """The view, or nothing (``firesteel.progress`` = false, ``--quiet``). ``stream``: stderr unless given."""
    chosen = sys.stderr if stream is None else stream
    view = StreamProgress(chosen) if enabled and chosen is not None else Instruments()
    return as_json(JsonStream, view) if stream is None else view


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
            self._say(f"firesteel {max(0.0, record.at - self._began):7.1f} s  {text}")

    def close(self) -> None:
        pass

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

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
        before = self._batches.last
        self._batches.apply(record)
        if before is not None and before.parallelism == record.parallelism:
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


class JsonStream:
    """Tells of one stream as JSON lines (docs/command-line.md)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._id = ""
        self._batches = Batches()

    def record(self, record: JournalRecord) -> None:
        match record:
            case StreamPlanned():
                self._id = record.stream_id
                self._say(record, "stream", name=record.name, checkpoint=record.checkpoint)
            case StreamBatch():
                self._batches.apply(record)
            case StreamStateChange():
                self._say(record, "stream_state", state=record.state, phase=record.phase, cause=record.cause)
            case RescaleRecord():
                told = {
                    name: getattr(record, name) for name in ("cause", "before", "granted", "downtime", "end", "reason")
                }
                self._say(record, "rescale", **told)
            case StreamEnded():
                done = {"batches": self._batches.count, "rows": self._batches.rows}
                self._say(record, "stream_result", status=record.status, cause=record.cause, **done)
            case _:
                pass

    def close(self) -> None:
        pass

    def _say(self, record: JournalRecord, event: str, **fields: Any) -> None:
        with suppress(OSError, ValueError):
            write_event(self._stream, event, stream=self._id, at=round(record.at, 3), **fields)


class LiveStreamProgress(StreamProgress):
    """The same lines above a table that a terminal redraws, from :meth:`show` to the stream's end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._over = False

    def show(self, status: Callable[[], StreamStatus]) -> None:
        """``status`` is asked twice a second from a thread of rich's."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream)
        with self._lock:
            if self._over:
                return
            self._live = Live(
                console=console,
                get_renderable=lambda: status_table(status(), console.width),
                refresh_per_second=2,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        atexit.register(self.close)

    def close(self) -> None:
        with self._lock:
            live, self._live, self._over = self._live, None, True
        if live is not None:
            with suppress(Exception):
                live.stop()  # shows the cursor again

    def _say(self, line: str) -> None:
        live = self._live
        if live is None:
            super()._say(line)
            return
        with suppress(Exception):
            live.console.print(line, markup=False, highlight=False, soft_wrap=True)


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
