"""Shows a job while it runs, to stderr: a live table on a terminal, one line per thing that happened elsewhere, or JSON lines.

Nothing here raises or waits for anything: a progress view that cannot draw says nothing.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from firesteel.humanize import format_seconds
from firesteel.journal.file import Instrument, Instruments
from firesteel.report.fold import JobHistory, is_parallelism, produced, vertex_count
from firesteel.scheduler.kernel.records import Decision, JobPlanned, JobStatusRecord, JournalRecord, StateChange
from firesteel.view.json_events import JsonView
from firesteel.view.live_table import MAX_ROWS, SHORT_SECONDS, closing_line, table_of
from firesteel.view.news import Finished, News, first_line
from firesteel.view.screen import is_live, screen_of

if TYPE_CHECKING:
    from rich.console import RenderableType


class _View(Protocol):
    def update(self, history: JobHistory, record: JournalRecord) -> None: ...
    def close(self, history: JobHistory) -> None: ...


MakeView = Callable[[TextIO, threading.RLock], _View]
"""Takes where it is to write, and the lock that is held while records are folded."""


class Progress:
    """An instrument that folds the records and shows them in a view."""

    def __init__(self, stream: TextIO, make: MakeView | None = None) -> None:
        self._history = JobHistory(runs=True)
        self._lock = threading.RLock()
        self._closed = False
        chosen = make or (LiveView if is_live(stream) else PlainView)
        self._view: _View = chosen(stream, self._lock)

    def record(self, record: JournalRecord) -> None:
        if self._closed:
            return
        with suppress(Exception):
            with self._lock:
                self._history.apply(record)
            self._view.update(self._history, record)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(Exception):
                self._view.close(self._history)


_json: list[tuple[TextIO, bool]] = []
"""The stream on which every job of this process is told of as JSON lines, and whether it is told of nowhere else; empty: none."""


def tell_as_json(stream: TextIO, *, alone: bool) -> None:
    """From now on, for all jobs of this process, whatever their options say; ``alone``: instead of any other view."""
    _json[:] = [(stream, alone)]


def is_json() -> bool:
    """Return whether the jobs of this process are shown as JSON lines."""
    return bool(_json)


def create(enabled: bool, stream: TextIO | None = None, make: MakeView | None = None) -> Instrument:
    """The progress view, or nothing (``firesteel.progress`` = false, ``--quiet``). ``stream``: stderr unless given;
    ``make``: another view than those of a stream, if it can be made (a notebook's)."""
    chosen = sys.stderr if stream is None else stream
    view: Instrument = Instruments()
    if enabled and chosen is not None:
        try:
            view = Progress(chosen, make)
        except Exception:
            view = Progress(chosen)
    return as_json(lambda file: Progress(file, JsonView), view) if stream is None else view


def as_json(make: Callable[[TextIO], Instrument], view: Instrument) -> Instrument:
    """``view``, or what ``make`` gives instead of it or beside it, as was said to ``tell_as_json``."""
    for file, alone in _json:
        return make(file) if alone else Instruments([make(file), view])
    return view


_plain: weakref.WeakSet[PlainView] = weakref.WeakSet()
"""The views that are open: where there are several, each line says whose it is."""


class PlainView:
    """One line per decision (it names the vertex, later lines only its id), finished vertex, failure and restart."""

    def __init__(self, stream: TextIO, _lock: threading.RLock | None = None) -> None:
        self._stream = stream
        self._finished = Finished()
        self._news = News()

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        _plain.add(self)
        match record:
            case JobPlanned():
                size = vertex_count(len(history.vertices))
                self._say(history, f"{record.job_name} (job {record.job_id}): {size}", whose=False)
            case Decision():
                self._decided(history, record)
            case StateChange():
                self._tell(history, self._news.of(record))
            case JobStatusRecord() if record.status == "CANCELLING":
                self._say(history, f"cancelling: {first_line(record.cause)}".rstrip(": "))
            case _:
                pass
        self._say_finished(history)

    def close(self, history: JobHistory) -> None:
        try:
            self._say_finished(history)
            if history.is_over:
                self._say(history, closing_line(history), whose=False)
        finally:
            _plain.discard(self)

    def _decided(self, history: JobHistory, record: Decision) -> None:
        if record.vertex is not None and is_parallelism(record):
            vertex = history.vertex(record.vertex)
            self._say(history, f"[{vertex.id}] {vertex.name}: {record.reason or vertex.subtasks_in_words()}")
        else:
            self._tell(history, self._news.of(record))

    def _tell(self, history: JobHistory, text: str) -> None:
        if text:
            self._say(history, text)

    def _say_finished(self, history: JobHistory) -> None:
        for vertex in self._finished.news(history):
            took = f" in {format_seconds(vertex.seconds)}" if vertex.seconds is not None else ""
            self._say(history, f"[{vertex.id}] finished{took}, {produced(vertex)}")

    def _say(self, history: JobHistory, text: str, *, whose: bool = True) -> None:
        name = f"{history.name} {history.id[:4]}: " if whose and len(_plain) > 1 else ""
        self._stream.write(f"firesteel {history.seconds:7.1f} s  {name}{text}\n")
        self._stream.flush()


class LiveView:
    """Its part of what a terminal redraws; what is worth a line goes above it and stays."""

    def __init__(self, stream: TextIO, lock: threading.RLock) -> None:
        self._screen = screen_of(stream)
        self._lock = lock
        self._history: JobHistory | None = None
        self._news = News()

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        if self._history is None:
            self._history = history
            self._screen.add(self)
        if isinstance(record, Decision | StateChange) and (text := self._news.of(record)):
            self._screen.note(f"{history.name}: {text}")

    def draw(self, width: int, height: int) -> RenderableType:
        with self._lock:
            return "" if self._history is None else table_of(self._history, width, height)

    def close(self, history: JobHistory) -> None:
        """A table stays; of a short job that went well, a line."""
        from rich.text import Text

        if history.status == "FINISHED" and history.seconds < SHORT_SECONDS:
            self._screen.remove(self, Text(closing_line(history)))
        else:
            with self._lock:
                table = table_of(history, self._screen.width, MAX_ROWS + 2)
            self._screen.remove(self, table)
