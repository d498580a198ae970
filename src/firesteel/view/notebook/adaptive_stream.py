"""A stream that runs, or has run: how it is just now, and its rescales."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.humanize import plural
from firesteel.report.stream_report import rescale_sentence
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStatus
from firesteel.view.notebook.markup import details, note, table
from firesteel.view.stream_view import status_facts, status_title

_MOST_RESCALES = 50


def status_html(status: StreamStatus, rescales: Sequence[RescaleRecord]) -> str:
    """``rescales``: all of them, the oldest first; the last fifty are told."""
    facts = table(("", ""), status_facts(status))
    if not rescales:
        return f"<div>{note(status_title(status))}{facts}</div>"
    told = "".join(note(f"{record.rescale}: {rescale_sentence(record)}") for record in rescales[-_MOST_RESCALES:])
    return f"<div>{note(status_title(status))}{facts}{details(plural(len(rescales), 'rescale'), told)}</div>"
