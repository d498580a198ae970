"""The Arrow tables of a job as a notebook shows them. They are plain ``pyarrow.Table``s; IPython is told how to show those
that have the columns of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.report.executions import Attempt, Lives
from firesteel.report.fold import JobHistory
from firesteel.report.tables import SCHEMAS
from firesteel.view.notebook.job import MOST_ROWS, attempts_of
from firesteel.view.notebook.markup import note, table

_LEFT_OUT = {"decisions": {"event", "inputs", "result"}, "attempts": {"created"}}
"""Columns for programs."""
_SECONDS = {"at", "begin", "end", "seconds", "created", "deployed", "ended"}


def install(formatter: Any) -> None:
    """``formatter``: IPython's for HTML. What the user has said about Arrow tables is left alone."""
    try:
        formatter.lookup_by_type(pa.Table)
    except KeyError:
        formatter.for_type(pa.Table, table_html)


def table_html(shown: pa.Table) -> str | None:
    """Of ``result.decisions``, ``.vertices``, ``.attempts`` and ``.timings``; None of any other table."""
    name = next((name for name, schema in SCHEMAS.items() if shown.schema.equals(schema)), None)
    if name is None:
        own: Callable[[], str] | None = getattr(shown, "_repr_html_", None)
        return None if own is None else own()
    title = f"pyarrow.Table: {name}, {plural(shown.num_rows, 'row')}, {plural(shown.num_columns, 'column')}"
    if name == "attempts":
        return f"<div>{note(title)}{attempts_of(*_lives(shown))}</div>"
    more = shown.num_rows - MOST_ROWS
    rest = note(f"and {format_count(more)} more") if more > 0 else ""
    return f"<div>{note(title)}{_plain(shown.slice(0, MOST_ROWS), name)}{rest}</div>"


def _plain(shown: pa.Table, name: str) -> str:
    """A column that is empty in all rows is left out."""
    left_out = _LEFT_OUT.get(name, set[str]())
    columns = [
        field.name
        for field, column in zip(shown.schema, shown.columns, strict=True)
        if field.name not in left_out and not all(value is None or value == [] for value in column.to_pylist())
    ]
    right = [column for column in columns if not _is_text(shown.schema.field(column).type)]
    cells = [[_text(column, value) for value in shown[column].to_pylist()] for column in columns]
    return table(columns, zip(*cells, strict=True), right=right)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_list(kind)


def _text(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if column in _SECONDS:
        return format_seconds(value)
    if "bytes" in column:
        return format_bytes(value)
    return format_count(value) if column.startswith("rows_") else str(value)


def _lives(shown: pa.Table) -> tuple[JobHistory, Lives]:
    """Returns the history and lives for the timeline, from the rows themselves: they may have been filtered."""
    history, found = JobHistory(), Lives()
    rows: Sequence[dict[str, Any]] = shown.to_pylist()
    for row in rows:
        history.vertex(row["vertex"]).name = row["name"] or ""
        attempt = Attempt(
            row["attempt"], row["state"], row["node"] or "", row["mirror"],
            opens=not row["mirror"], created=row["created"], deployed=row["deployed"], ended=row["ended"],
            cause=row["cause"] or "", peak=(row["peak_bytes"] or 0) >> 20, is_void=bool(row["void"]),
        )  # fmt: skip
        found.setdefault((row["vertex"], row["subtask"]), []).append(attempt)
    history.started_at = 0.0
    times = [row[name] for row in rows for name in ("created", "deployed", "ended") if row[name] is not None]
    history.last_at = max(times, default=0.0)
    history.status = "FINISHED" if all(row["ended"] is not None for row in rows) else "RUNNING"
    return history, found
