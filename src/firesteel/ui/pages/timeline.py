"""Attempts over time, of the whole job or of a part of it."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.ui.drawing.timeline import timeline
from firesteel.ui.pages.links import Links
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render
from firesteel.ui.views.structs import Job, Timeline


def timeline_page(source: Source, asked: Asked) -> str:
    begin, end, vertex = asked.seconds("from"), asked.seconds("to"), asked.integer("vertex")
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"From {begin:g} s to {end:g} s there is no time: 'from' must be less than 'to'.")
    job = source.job(asked.id)
    if not isinstance(job, Job):
        raise UsageError(f"A {job.summary.kind} has no attempts.", hint="Go back to its own page.")
    view = source.timeline(asked.id, vertex=vertex, begin=begin, end=end)
    links = Links(asked.root)

    def zoomed(begin: float, end: float) -> str:
        return links.job(asked.id, "timeline", from_=f"{begin:.6g}", to=f"{end:.6g}", vertex=vertex)

    return render(
        "timeline.html", asked, job=job, summary=job.summary, tab="timeline", view=view, vertex=vertex, windows=windows(view),
        moments=[one for one in view.moments if (one.kind, one.text) != ("status", "RESTARTING")],
        is_whole=begin is None and end is None, zoomed=zoomed, drawn=timeline(view, zoomed),
    )  # fmt: skip


def windows(view: Timeline) -> list[tuple[str, float, float]]:
    """(what it is called, begin, end) of the windows that a reader may want next."""
    length = view.end - view.begin
    found: list[tuple[str, float, float]] = []
    if view.begin > 0:
        found.append(("Earlier", max(0.0, view.begin - length / 2), max(0.0, view.begin - length / 2) + length))
    if view.end < view.job_seconds:
        found.append(("Later", view.begin + length / 2, view.end + length / 2))
    if length < view.job_seconds:
        found.append(("Wider", max(0.0, view.begin - length / 2), min(view.job_seconds, view.end + length / 2)))
    found.append(("Closer", view.begin + length / 4, view.end - length / 4))
    return found
