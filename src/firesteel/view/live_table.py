"""The table that is redrawn while a job runs: a row per vertex, what is over folded where there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.report.fold import JobHistory, VertexHistory, waiting_text

if TYPE_CHECKING:
    from rich.table import Table

MAX_ROWS = 24
"""Vertices shown at once, on a terminal that has room for them."""
SHORT_SECONDS = 2.0
"""A job that was over within them leaves one line instead of a table."""

_COLUMNS = {
    "state": 10,
    "subtasks": 8,
    "waiting": 7,
    "running": 7,
    "mirrors": 7,
    "done": 5,
    "rows": 11,
    "bytes": 8,
    "left": 8,
}
"""The columns of numbers and their least widths. Mirrors are shown where there are any: those that run."""
_BY_WIDTH = {
    110: tuple(_COLUMNS),
    80: ("subtasks", "running", "mirrors", "done", "rows", "bytes", "left"),
    56: ("subtasks", "running", "done", "left"),
    0: ("subtasks", "done"),
}
"""Columns by the least width of the terminal in characters; subtasks wait that neither run nor are done."""
_STYLES = {"done": "green", "running": "bold", "waiting": "dim", "failed": "red", "restarting": "yellow"}
Cells = dict[str, str]


def table_of(history: JobHistory, width: int, height: int = MAX_ROWS + 2) -> Table:
    """At most ``width`` characters wide and ``height`` lines high."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(headline(history), overflow="ellipsis", no_wrap=True),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("", justify="right", min_width=3)
    columns = _columns(history, width)
    taken = 3 + sum(columns.values()) + 2 * (1 + len(columns))
    table.add_column("step", overflow="ellipsis", no_wrap=True, max_width=max(12, width - taken))
    for name, least in columns.items():
        side = "left" if name == "state" else "right"
        table.add_column(name, justify=side, no_wrap=True, min_width=least)
    for number, name, cells, style in rows_of(history, max(1, min(MAX_ROWS, height - 2))):
        table.add_row(number, Text(name), *(cells.get(column, "") for column in columns), style=style)
    return table


def headline(history: JobHistory) -> str:
    """``word count: running, 12 s; 3 of 14 subtasks done``, and which nodes are blocked, who waits for slots."""
    parts = [f"{history.name}: {standing(history)}, {format_seconds(history.elapsed)}"]
    total = sum(vertex.parallelism or 0 for vertex in history.vertices.values())
    if total and not history.is_over:
        done = sum(vertex.counts()[2] for vertex in history.vertices.values())
        more = "" if all(v.parallelism is not None for v in history.vertices.values()) else " so far"
        parts.append(f"{format_count(done)} of {plural(total, 'subtask')} done{more}")
    if blocked := sorted(block.node for block in history.blocked):
        parts.append(f"blocked: {', '.join(blocked)}")
    if history.status in {"RUNNING", "RESTARTING"} and (waiting := waiting_text(history.groups)):
        parts.append(f"waiting for slots: {waiting}")
    return "; ".join(parts)


def standing(history: JobHistory) -> str:
    """``running``, ``finished``, ``cancelled``, ..."""
    return "cancelled" if history.status == "CANCELED" else history.status.lower()


def closing_line(history: JobHistory) -> str:
    """``word count: finished after 4.2 s, 2 steps, 14 subtasks``."""
    total = sum(vertex.parallelism or 0 for vertex in history.vertices.values())
    size = f", {plural(len(history.vertices), 'step')}, {plural(total, 'subtask')}" if total else ""
    return f"{history.name}: {standing(history)} after {format_seconds(history.seconds)}{size}"


def _columns(history: JobHistory, width: int) -> dict[str, int]:
    names = next(names for least, names in _BY_WIDTH.items() if width >= least)
    columns = {name: _COLUMNS[name] for name in names}
    if not any(vertex.mirrors for vertex in history.vertices.values()):
        columns.pop("mirrors", None)
    elif width < 110:
        columns.pop("bytes", None)
    if history.is_over:
        columns.pop("left", None)
    return columns


def rows_of(history: JobHistory, limit: int) -> list[tuple[str, str, Cells, str]]:
    """(id, name, cells, style) of each row."""
    shown, before, after = folded(list(history.vertices.values()), limit)
    rows = [_row(history, vertex) for vertex in shown]
    if before:
        rows.insert(0, _folded_row(before, "done", "green"))
    if after:
        rows.append(_folded_row(after, "to come", "dim"))
    return rows


def folded(
    vertices: Sequence[VertexHistory], limit: int
) -> tuple[list[VertexHistory], list[VertexHistory], list[VertexHistory]]:
    """(shown in order, finished and folded, not begun and folded): at most ``limit`` rows with those that stand for the folded.

    What runs is shown before what waits, what waits before what has finished long ago.
    """
    if len(vertices) <= limit:
        return list(vertices), [], []
    room = max(1, limit - 2)
    alive = [v for v in vertices if not v.is_done]
    alive.sort(key=lambda v: (v.counts()[1] == 0, v.parallelism is None, v.id))
    finished = sorted((v for v in vertices if v.is_done), key=lambda v: -(v.last_at or 0.0))
    chosen = {v.id for v in (alive + finished)[:room]}
    shown = [v for v in vertices if v.id in chosen]
    left = [v for v in vertices if v.id not in chosen]
    return shown, [v for v in left if v.is_done], [v for v in left if not v.is_done]


def _folded_row(vertices: list[VertexHistory], state: str, style: str) -> tuple[str, str, Cells, str]:
    counts = [vertex.counts() for vertex in vertices]
    rows, written = (sum(v.number(name) for v in vertices) for name in ("numRecordsOut", "numBytesProduced"))
    cells = {
        "state": state,
        "subtasks": format_count(sum(v.parallelism or 0 for v in vertices)) if state == "done" else "",
        "done": format_count(sum(done for _, _, done in counts)) if state == "done" else "",
        "rows": format_count(rows) if rows else "",
        "bytes": format_bytes(written) if written else "",
    }
    return "", f"{plural(len(vertices), 'more step')} {state}", cells, style


def _row(history: JobHistory, vertex: VertexHistory) -> tuple[str, str, Cells, str]:
    state = history.state_of(vertex)
    return str(vertex.id), vertex.name, _cells(history, vertex, state), _STYLES.get(state, "")


def _cells(history: JobHistory, vertex: VertexHistory, state: str) -> Cells:
    if vertex.absorbed_by is not None:
        return {"state": state, "subtasks": f"in [{vertex.absorbed_by}]"}
    if vertex.parallelism is None:
        bound = history.bound(vertex)
        return {"state": state, "subtasks": "open" if bound is None else f"≤{bound}"}
    waiting, running, done = (str(count) if count else "·" for count in vertex.counts())
    rows, written = vertex.number("numRecordsOut"), vertex.number("numBytesProduced")
    left = history.seconds_left(vertex)
    return {
        "state": state,
        "subtasks": str(vertex.parallelism),
        "waiting": waiting,
        "running": running,
        "mirrors": str(vertex.running_mirrors or "·"),
        "done": done,
        "rows": format_count(rows) if rows else "",
        "bytes": format_bytes(written) if written else "",
        "left": "" if left is None else f"~{coarse(left)}",
    }


def coarse(seconds: float) -> str:
    """No more exact than it is known."""
    return "1 s" if seconds < 1 else format_seconds(round(seconds) if seconds < 60 else round(seconds / 10) * 10)
