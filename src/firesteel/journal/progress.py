"""Shows a job while it runs: a live table on a terminal, one line per thing that happened elsewhere. To stderr.

Attempt numbers start at 0 in the records and at 1 on the screen. Nothing here raises or waits for anything: a progress
view that cannot draw says nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.groups import waiting_text
from firesteel.journal.history import JobHistory, VertexHistory, is_parallelism, produced, subtask_numbers, vertex_count
from firesteel.journal.journal import Instrument
from firesteel.scheduler.records import Decision, JobPlanned, JobStatusRecord, JournalRecord, StateChange

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

REFRESH_PER_SECOND = 8
MAX_ROWS = 24
"""Vertices shown at once; a job with more shows those around the ones that run."""


class NoProgress:
    """The switched-off view."""

    def record(self, record: JournalRecord) -> None:
        pass

    def close(self) -> None:
        pass


class _View(Protocol):
    def update(self, history: JobHistory, record: JournalRecord) -> None: ...
    def close(self, history: JobHistory) -> None: ...


class Progress:
    """An instrument that folds the records and shows them on ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._history = JobHistory()
        self._lock = threading.Lock()
        self._closed = False
        self._view: _View = LiveView(stream, self._lock) if is_live(stream) else PlainView(stream)

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


def create(enabled: bool, stream: TextIO | None = None) -> Instrument:
    """The progress view, or nothing (``firesteel.progress`` = false, ``--quiet``). ``stream``: stderr unless given."""
    chosen = sys.stderr if stream is None else stream
    return Progress(chosen) if enabled and chosen is not None else NoProgress()


def is_live(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that can redraw."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb" and "NO_LIVE_PROGRESS" not in os.environ
    except (ValueError, AttributeError):
        return False


class PlainView:
    """One line per decision (it names the vertex, later lines only its id), finished vertex, failure and restart."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said_done: set[int] = set()

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        match record:
            case JobPlanned():
                self._say(history, f"{record.job_name} (job {record.job_id}): {vertex_count(len(history.vertices))}")
            case Decision():
                self._decided(history, record)
            case StateChange():
                self._changed(history, record)
            case JobStatusRecord() if record.status == "CANCELLING":
                self._say(history, f"cancelling: {first_line(record.cause)}".rstrip(": "))
            case _:
                pass
        self._say_finished(history)

    def close(self, history: JobHistory) -> None:
        self._say_finished(history)
        if history.is_over:
            self._say(history, closing_line(history))

    def _decided(self, history: JobHistory, record: Decision) -> None:
        if record.what in _TOLD:
            self._say(history, news(history, record))
        if record.vertex is None:
            return
        vertex = history.vertex(record.vertex)
        if is_parallelism(record):
            self._say(history, f"[{vertex.id}] {vertex.name}: {record.reason or decided(vertex)}")
        elif record.what in _WARNED:
            self._say(history, warned(record))

    def _changed(self, history: JobHistory, record: StateChange) -> None:
        if record.state == "FAILED":
            vertex = history.vertex(record.vertex)
            self._say(history, f"[{vertex.id}] {failed(record)}")

    def _say_finished(self, history: JobHistory) -> None:
        for vertex in history.vertices.values():
            if not vertex.is_done:
                self._said_done.discard(vertex.id)
            elif vertex.id not in self._said_done and vertex.number("numFinishedTasks") >= (vertex.parallelism or 0):
                self._said_done.add(vertex.id)
                took = f" in {format_seconds(vertex.seconds)}" if vertex.seconds is not None else ""
                self._say(history, f"[{vertex.id}] finished{took}, {produced(vertex)}")

    def _say(self, history: JobHistory, text: str) -> None:
        self._stream.write(f"firesteel {history.seconds:7.1f} s  {text}\n")
        self._stream.flush()


_TOLD = ("speculation", "winner", "blocklist", "placement", "slot request")
"""Decisions of which every view tells at once."""
_WARNED = ("restart", "failover", "warning")
"""Those of a vertex that are told with their kind."""


def warned(record: Decision) -> str:
    return f"[{record.vertex}] {record.what}: {record.reason}"


def failed(record: StateChange) -> str:
    """``subtasks 1-3 failed: the cause's first line``."""
    several = "subtasks" if len(record.subtasks) > 1 else "subtask"
    return f"{several} {subtask_numbers(record.subtasks)} failed: {first_line(record.cause)}".rstrip(": ")


def news(history: JobHistory, record: Decision) -> str:
    """One line on a slow execution, a mirror that won, a blocked node."""
    told, where = record.inputs, "" if record.vertex is None else f"[{record.vertex}] "
    if record.what == "speculation" and record.result:
        mirrored = {int(subtask) for subtask, _ in record.result}
        columns = zip(*(told[name] for name in ("subtasks", "nodes", "elapsed", "baseline")), strict=True)
        slow = [row for row in columns if row[0] in mirrored]
        subtask, node, elapsed, baseline = slow[0]
        there = f" on {node}" if node else ""
        more = f"; and {len(mirrored) - 1} more" if len(mirrored) > 1 else ""
        took = f"{format_seconds(elapsed)}, slow from {format_seconds(baseline)}"
        return f"{where}subtask {subtask} is slow{there} ({took}): mirrored{more}"
    if record.what == "winner":
        number, node = told["subtask"], told["nodes"][0]
        return f"{where}subtask {number}: the {'mirror' if told['mirror'] else 'original'}{f' on {node}' if node else ''} won"
    return f"{where}{record.reason}"


class LiveView:
    """A table that is redrawn by a thread of rich's; restored to a plain terminal whatever ends the job."""

    def __init__(self, stream: TextIO, lock: threading.Lock) -> None:
        self._stream = stream
        self._lock = lock
        self._live: Live | None = None
        self._began = time.monotonic()

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        if self._live is None:
            self._live = self._start(history)
        if isinstance(record, Decision) and record.what in _TOLD:
            self._note(news(history, record))
        elif isinstance(record, Decision) and record.what in _WARNED and record.vertex is not None:
            self._note(warned(record))
        elif isinstance(record, StateChange) and record.state == "FAILED":
            vertex = history.vertex(record.vertex)
            self._note(f"[{vertex.id}] {vertex.name}: {failed(record)}")

    def close(self, history: JobHistory) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()  # draws a last time, shows the cursor again

    def _start(self, history: JobHistory) -> Live:
        import atexit

        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream)

        def draw() -> Table:
            with self._lock:
                return render(history, time.monotonic() - self._began, console.width)

        live = Live(
            console=console,
            get_renderable=draw,
            refresh_per_second=REFRESH_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        atexit.register(_quietly(live.stop))
        return live

    def _note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)


def render(history: JobHistory, seconds: float, width: int = 100) -> Table:
    """The live view's table after so many seconds: one row per vertex, ``width`` characters wide at most."""
    from rich.table import Table
    from rich.text import Text

    title = history.plan.job_name if history.plan else "job"
    blocked = ", ".join(sorted(block.node for block in history.blocked))
    waiting = waiting_text(history.groups) if history.status in {"RUNNING", "RESTARTING"} else ""
    asides = f"{f'; blocked: {blocked}' if blocked else ''}{f'; waiting for slots: {waiting}' if waiting else ''}"
    table = Table(
        title=Text(f"{title}: {history.status.lower()}, {format_seconds(seconds)}{asides}"),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("", justify="right", min_width=3)
    numbers = dict(_NUMBERS) if width >= 80 else {name: _NUMBERS[name] for name in ("subtasks", "running", "done")}
    if not any(vertex.mirrors for vertex in history.vertices.values()):
        numbers.pop("mirrors", None)
    taken = 3 + sum(numbers.values()) + 2 * (1 + len(numbers))
    table.add_column("step", overflow="ellipsis", no_wrap=True, max_width=max(12, width - taken))
    for name, least in numbers.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    shown = visible(list(history.vertices.values()))
    for vertex in shown:
        running = vertex.counts()[1]
        style = "green" if vertex.is_done else "bold" if running else "dim" if vertex.parallelism is None else ""
        table.add_row(str(vertex.id), Text(vertex.name), *(_numbers(vertex)[name] for name in numbers), style=style)
    if len(shown) < len(history.vertices):
        table.caption = f"{len(shown)} of {len(history.vertices)} steps shown"
    return table


_NUMBERS = {"subtasks": 8, "waiting": 7, "running": 7, "mirrors": 7, "done": 5, "rows": 11, "bytes": 8}
"""The live table's columns of numbers and their least widths. Mirrors are shown where there are any: those that run."""


def _numbers(vertex: VertexHistory) -> dict[str, str]:
    if vertex.parallelism is None:
        return {**dict.fromkeys(_NUMBERS, ""), "subtasks": "open"}
    waiting, running, done = (str(count) if count else "·" for count in vertex.counts())
    rows, written = vertex.number("numRecordsOut"), vertex.number("numBytesProduced")
    return {
        "subtasks": str(vertex.parallelism),
        "waiting": waiting,
        "running": running,
        "mirrors": str(vertex.running_mirrors or "·"),
        "done": done,
        "rows": format_count(rows) if rows else "",
        "bytes": format_bytes(written) if written else "",
    }


def visible(vertices: list[VertexHistory], limit: int = MAX_ROWS) -> list[VertexHistory]:
    """At most ``limit`` vertices, beginning a little before the first that is not done."""
    first = next((i for i, v in enumerate(vertices) if not v.is_done), len(vertices))
    start = max(0, min(first - limit // 4, len(vertices) - limit))
    return vertices[start : start + limit]


def decided(vertex: VertexHistory) -> str:
    return "open" if vertex.parallelism is None else plural(vertex.parallelism, "subtask")


def closing_line(history: JobHistory) -> str:
    name = history.plan.job_name if history.plan else "job"
    return f"{name}: {_ended(history)} after {format_seconds(history.seconds)}"


def _ended(history: JobHistory) -> str:
    return "cancelled" if history.status == "CANCELED" else history.status.lower()


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _quietly(call: Callable[[], Any]) -> Callable[[], None]:
    def quiet() -> None:
        with suppress(Exception):
            call()

    return quiet
