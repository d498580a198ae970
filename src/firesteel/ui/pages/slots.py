"""Slots of a job, group by group: in use and waited for over time, and what they came to; and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.humanize import format_count, plural
from firesteel.ui.drawing.canvas import Caption, Span
from firesteel.ui.drawing.lines import Line, Points, lines
from firesteel.ui.pages.job import job_of
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render
from firesteel.ui.views.structs import Count, SlotUse

PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Charts:
    """Of a group. ``used``, ``waiting``: SVG; empty: none was. ``told``: a sentence on what was used."""

    used: str
    told: str
    waiting: str


def slots_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    charts = {use.group: _charts(number, use) for number, use in enumerate(source.slots(asked.id))}
    nodes = source.nodes(asked.id, offset=asked.integer("offset", 0) or 0, limit=PER_PAGE)
    return render("slots.html", asked, job=job, summary=job.summary, tab="slots", charts=charts, nodes=nodes)


def _charts(number: int, use: SlotUse) -> Charts:
    span, whose = Span(0.0, max(use.end, 1e-3)), f" of {use.group}" if use.group else ""
    told, total = _told(use), [] if use.total is None else [Line("all slots", [(0.0, float(use.total))], "wanted")]
    used = lines(
        Caption(f"used-{number}", f"Slots{whose} in use over time", told),
        [Line("in use", _points(use.running), "area"), *total],
        span,
        plural(use.total or use.most_running, "slot"),
    )
    most = f"at most {plural(use.most_waiting, 'execution')}"
    waiting = lines(
        Caption(f"waiting-{number}", f"Executions{whose} that waited for a slot over time", f"{most.capitalize()}."),
        [Line("waiting", _points(use.waiting), "area")],
        span,
        plural(use.most_waiting, "execution"),
    )
    return Charts(used if use.most_running else "", told, waiting if use.most_waiting else "")


def _told(use: SlotUse) -> str:
    """``At most 38 of 40 slots were in use, 73 % of all on average.``"""
    if use.total is None or use.share is None:
        return f"At most {plural(use.most_running, 'slot')} in use."
    slots = f"{format_count(use.most_running)} of {plural(use.total, 'slot')}"
    return f"At most {slots} in use, {100 * use.share:.0f} % of all on average."


def _points(counts: Sequence[Count]) -> Points:
    return [(each.at, float(each.count)) for each in counts]
