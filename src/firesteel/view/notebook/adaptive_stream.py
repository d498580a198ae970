"""A stream that runs, or has run: how it is just now, and its rescales."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.humanize import plural
from firesteel.report.stream_report import rescale_sentence
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStatus
from firesteel.view.notebook.markup import details, link, note, table
from firesteel.view.stream_view import status_facts, status_title

_MOST_RESCALES = 50


def status_html(status: StreamStatus, rescales: Sequence[RescaleRecord], page: str = "") -> str:
    """``rescales``: all of them, the oldest first; the last fifty are told. ``page``: the address of its page; empty: it has none."""
    told = "".join(note(f"{record.rescale}: {rescale_sentence(record)}") for record in rescales[-_MOST_RESCALES:])
    parts = [
        note(status_title(status)),
        link(page, "Its page") if page else "",
        table(("", ""), status_facts(status)),
        details(plural(len(rescales), "rescale"), told) if told else "",
    ]
    return f"<div>{''.join(parts)}</div>"
