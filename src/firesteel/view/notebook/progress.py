"""A job's progress in a notebook: a table that changes in its place below the cell, by Jupyter's own messages, without JavaScript."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TextIO

from firesteel.report.fold import JobHistory
from firesteel.scheduler.kernel.records import Decision, JournalRecord, StateChange
from firesteel.view.live_table import MAX_ROWS, closing_line, headline, rows_of
from firesteel.view.news import News
from firesteel.view.notebook.markup import STATE_COLOURS, details, note, svg, table
from firesteel.view.notebook.shell import shell
from firesteel.view.svg import cut, element

REFRESH_SECONDS = 0.5
"""Between two updates of one job's table, at the least."""
MOST_NEWS = 8
"""Lines on failures, restarts and the like that stay; the latest ones."""
_COLUMNS = ("", "step", "state", "subtasks", "done", "", "rows", "bytes", "left")
_BAR, _THICK = 90.0, 8.0
_LONGEST_NAME = 60


class Handle(Protocol):
    """One output of a cell, which can be replaced (``IPython.display.DisplayHandle``)."""

    def update(self, obj: Any, **kwargs: Any) -> Any: ...


class Html:
    """An object for IPython to display: HTML, and a line of text for frontends without it."""

    def __init__(self, html: str, text: str) -> None:
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def notebook_view() -> Callable[[TextIO, threading.RLock], NotebookView] | None:
    """Returns a factory of views of one job below the cell that runs now; None outside of notebooks."""
    if shell() is None:
        return None
    return lambda _stream, lock: NotebookView(_shown, lock)


def _shown(html: Html) -> Handle:
    ipython: Any = importlib.import_module("IPython.display")
    handle: Handle = ipython.display(html, display_id=True)
    return handle


class NotebookView:
    """``show`` puts the first state below the cell and returns its handle; it is called by the thread that makes the view,
    the user's, so that it is the right cell. From then on a thread of its own updates it, at most every REFRESH_SECONDS."""

    def __init__(
        self, show: Callable[[Html], Handle], lock: threading.RLock, refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self._lock = lock
        self._refresh_seconds = refresh_seconds
        self._history: JobHistory | None = None
        self._news = News()
        self._lines: list[str] = []
        self._sending = threading.Lock()
        self._over = threading.Event()
        self._handle = show(
            Html(note("Firesteel: the job is being prepared."), "Firesteel: the job is being prepared.")
        )

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        if isinstance(record, Decision | StateChange) and (text := self._news.of(record)):
            with self._lock:
                self._lines = [*self._lines, text][-MOST_NEWS:]
        if self._history is None:
            self._history = history
            threading.Thread(target=self._refresh, name="firesteel-notebook", daemon=True).start()

    def close(self, history: JobHistory) -> None:
        """The last state stays. Of a job that never began, nothing does."""
        self._over.set()
        with self._sending:
            self._handle.update(Html("", "") if self._history is None else self._drawn(history, is_last=True))

    def _refresh(self) -> None:
        with suppress(Exception):  # a notebook that is gone is not a reason to disturb the job
            while True:
                with self._sending:
                    if self._over.is_set() or self._history is None:
                        return
                    self._handle.update(self._drawn(self._history))
                if self._over.wait(self._refresh_seconds):
                    return

    def _drawn(self, history: JobHistory, *, is_last: bool = False) -> Html:
        with self._lock:
            said = closing_line(history) if is_last and history.is_over else headline(history)
            return Html(progress_html(history, said, self._lines), said)


def progress_html(history: JobHistory, said: str, lines: list[str]) -> str:
    """``said``: how the job stands, in a sentence; ``lines``: what happened to it. The table of a finished job is folded."""
    rows = [
        (number, cut(name, _LONGEST_NAME), *(cells.get(column, "") for column in _COLUMNS[2:5]), _bar(cells),
         *(cells.get(column, "") for column in _COLUMNS[6:]))
        for number, name, cells, _ in rows_of(history, MAX_ROWS)
    ]  # fmt: skip
    told = "".join(map(note, lines))
    content = table(_COLUMNS, rows, right=("", *_COLUMNS[3:5], *_COLUMNS[6:]))
    return f"<div>{details(said, content + told, is_open=history.status != 'FINISHED')}</div>"


class _Svg(str):
    """Goes into a cell as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def _bar(cells: dict[str, str]) -> str:
    """Returns a bar that shows how many of the subtasks are done, and how many run."""
    total, done, running = (_number(cells.get(name, "")) for name in ("subtasks", "done", "running"))
    if not total:
        return ""
    finished, now = (min(1.0, count / total) * _BAR for count in (done, running))
    drawn = [
        element("rect", width=_BAR, height=_THICK, fill=STATE_COLOURS["waiting"], fill_opacity=0.3),
        element("rect", width=finished, height=_THICK, fill=STATE_COLOURS["finished"]),
        element("rect", x=finished, width=min(now, _BAR - finished), height=_THICK, fill=STATE_COLOURS["running"]),
    ]
    return _Svg(svg(_BAR, _THICK, "".join(drawn), f"{done} of {total} subtasks done"))


def _number(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else 0
