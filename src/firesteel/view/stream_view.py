"""Status of a stream, in lines for a pipe and as a table that a terminal redraws: same facts, same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from firesteel.humanize import format_bytes, format_count, plural
from firesteel.report.explain import labelled
from firesteel.report.stream_report import rescale_sentence
from firesteel.scheduler.streaming.records import StreamStatus

if TYPE_CHECKING:
    from rich.table import Table

OVER = "Finished"


def status_text(status: StreamStatus) -> str:
    """Of several lines: a title, then one line per fact."""
    return "\n".join([status_title(status), *(labelled(name, text) for name, text in status_facts(status))])


def status_line(status: StreamStatus) -> str:
    """One line, for a log: ``Executing, Idling; 8 partitions; 132 batches; 1,000 rows/s``."""
    parts = [_where(status), _parallelism(status), _batches(status), f"{rate(status.input_rate)} in"]
    return "; ".join([*parts, *([f"waits for {status.waits_for.rstrip('.')}"] if status.waits_for else [])])


def status_table(status: StreamStatus, width: int = 100) -> Table:
    """The same for a terminal, ``width`` characters wide at most."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(status_title(status)), title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold", max_width=max(20, width - 14))
    for name, text in status_facts(status):
        style = "bold" if name == "waits for" else "red" if name == "cause" else ""
        table.add_row(name, Text(text, style=style))
    return table


def status_title(status: StreamStatus) -> str:
    """Name, state and checkpoint."""
    return f"{status.name}: {_where(status)} (checkpoint {status.checkpoint})"


def _where(status: StreamStatus) -> str:
    return f"{status.state}, {status.phase}" if status.phase else status.state


def status_facts(status: StreamStatus) -> Iterator[tuple[str, str]]:
    """(name, text), as in status_text's lines."""
    cores = f"{plural(status.cores, 'core')} on {plural(status.executors, 'executor')}"
    yield "partitions", f"{_parallelism(status)}; {status.lower} to {status.upper} allowed, {cores}"
    if status.slot_sharing_group:
        yield "slots", f"{format_count(status.slots)} of {status.slot_sharing_group}"
    if status.waits_for:
        yield "waits for", status.waits_for
    yield "batches", _batches(status)
    if status.batches:
        waiting = "" if status.backlog is None else f"; {format_count(status.backlog)} wait to be read"
        yield "rate", f"{rate(status.input_rate)} in, {rate(status.processed_rate)} processed{waiting}"
    if status.state_rows or status.state_bytes:
        yield "state", f"{plural(status.state_rows, 'row')}, {format_bytes(status.state_bytes)}"
    last = f"; the last: {rescale_sentence(status.last_rescale)}" if status.last_rescale else ""
    yield "rescales", f"{format_count(status.rescales)}{last}"
    if status.cause:
        yield "cause", status.cause


def _parallelism(status: StreamStatus) -> str:
    if not status.parallelism:
        return f"{format_count(status.wanted)} wanted" if status.wanted else "not known yet"
    wanted = f", {format_count(status.wanted)} wanted" if status.wanted not in (0, status.parallelism) else ""
    return f"{plural(status.parallelism, 'partition')}{wanted}"


def _batches(status: StreamStatus) -> str:
    last = f", the last is {status.batch}" if status.batch >= 0 else ""
    return f"{format_count(status.batches)} committed{last}; run {status.run}"


def rate(rows: float) -> str:
    return f"{format_count(round(rows))} rows/s" if rows >= 10 or rows == int(rows) else f"{rows:.1f} rows/s"
