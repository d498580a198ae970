"""A vertex: its decision, its ranges, its subtasks; and the attempts of one of them."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_seconds
from firesteel.ui.drawing.histogram import described, histogram
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render
from firesteel.ui.views.structs import Histogram, Job

PER_PAGE = 100
SORTS = ("index", "state", "node", "attempts", "began", "seconds", "bytes", "peak_bytes", "slowness")
STATES = ("CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED")


def vertex_page(source: Source, asked: Asked) -> str:
    number = asked.number("vertex")
    sort, state = asked.text("sort") or "index", asked.text("state")
    if sort.removeprefix("-") not in SORTS:
        raise UsageError(f"'sort={sort[:40]}' makes no sense: it is one of {', '.join(SORTS)}.")
    if state and state not in STATES:
        raise UsageError(f"'state={state[:40]}' makes no sense: it is one of {', '.join(STATES)}.")
    vertex = source.vertex(asked.id, number)
    page = source.subtasks(
        asked.id, number, state=state, sort=sort, offset=asked.integer("offset", 0) or 0, limit=PER_PAGE
    )
    ranges, durations = vertex.ranges, vertex.durations
    return render(
        "vertex.html", asked, vertex=vertex, summary=vertex.job, own=vertex.summary, page=page, sort=sort, state=state, states=STATES,
        ranges=_drawn("ranges", "Bytes that its subtasks read", ranges, format_bytes, "subtask"),
        durations=_drawn("durations", "How long its attempts ran", durations, format_seconds, "attempt"),
        ranges_text=described(ranges, format_bytes, "subtask") if ranges else "",
        durations_text=described(durations, format_seconds, "attempt") if durations else "",
    )  # fmt: skip


def _drawn(name: str, title: str, shown: Histogram | None, write: Callable[[float], str], noun: str) -> str:
    return histogram(name, title, shown, write, noun) if shown else ""


def subtask_page(source: Source, asked: Asked) -> str:
    number, subtask = asked.number("vertex"), asked.number("subtask")
    attempts = source.attempts(asked.id, number, subtask)
    job = source.job(asked.id)
    name = next((one.name for one in job.vertices if one.id == number), "") if isinstance(job, Job) else ""
    return render(
        "subtask.html", asked, summary=job.summary, number=number, name=name, subtask=subtask, attempts=attempts
    )
