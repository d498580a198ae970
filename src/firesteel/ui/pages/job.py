"""A job's own page, and its lists: decisions, failures, options. Of a stream or script, its own page."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, plural
from firesteel.ui.drawing.graph import Card, Flow, graph
from firesteel.ui.pages.links import Links
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.stream import stream_page
from firesteel.ui.pages.templates import render, state_class
from firesteel.ui.views.structs import Edge, Job, Script, Stream, UnknownThing, VertexSummary

PER_PAGE = 100
RECENT = 12
"""Decisions on the first page; the others are on theirs."""


def job_page(source: Source, asked: Asked) -> str:
    shown = source.job(asked.id)
    match shown:
        case Stream():
            return stream_page(shown, asked)
        case Script():
            return render("script.html", asked, script=shown, summary=shown.summary, tab="")
        case Job():
            others = source.jobs(
                text=shown.summary.name[:200], status="", kind="job", sort="-began", offset=0, limit=21
            )
            return render(
                "job.html", asked, job=shown, summary=shown.summary, tab="", graph=job_graph(shown, Links(asked.root)),
                recent=shown.decisions[-RECENT:][::-1], others=[one for one in others.items if one.id != shown.summary.id][:20],
            )  # fmt: skip


def decisions_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    what, vertex = asked.text("what"), asked.integer("vertex")
    offset = asked.integer("offset", 0) or 0
    page = source.decisions(asked.id, what=what, vertex=vertex, offset=offset, limit=PER_PAGE)
    return render(
        "decisions.html", asked, job=job, summary=job.summary, tab="decisions", page=page, what=what, vertex=vertex
    )


def failures_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    page = source.failures(asked.id, offset=asked.integer("offset", 0) or 0, limit=PER_PAGE)
    return render("failures.html", asked, job=job, summary=job.summary, tab="failures", page=page)


def options_page(source: Source, asked: Asked) -> str:
    shown = source.job(asked.id)
    if isinstance(shown, Script):
        raise UnknownThing("A script has no options of its own.", hint="Look at one of the jobs of its queries.")
    return render("options.html", asked, job=shown, summary=shown.summary, tab="options")


def job_of(source: Source, asked: Asked) -> Job:
    """Raises UsageError for a stream or script."""
    shown = source.job(asked.id)
    if isinstance(shown, Job):
        return shown
    raise UsageError(
        f"'{shown.summary.name[:200]}' is a {shown.summary.kind}: only jobs have this page.",
        hint="Go back to its own page.",
    )


def job_graph(job: Job, links: Links) -> str:
    """SVG; empty where there are no vertices, or too many to be read."""
    place = {vertex.id: k for k, vertex in enumerate(job.vertices)}
    cards = [_card(vertex, links.vertex(job.summary.id, vertex.id)) for vertex in job.vertices]
    flows = [
        Flow(place[edge.producer], place[edge.consumer], _ship(edge), told(edge), edge.bytes or 0)
        for edge in job.edges
        if edge.producer in place and edge.consumer in place and place[edge.producer] < place[edge.consumer]
    ]
    decided = len(job.vertices) - job.open_vertices
    description = (
        f"{_vertices(len(job.vertices))}, from sources at the left to sinks at the right; the parallelism of {format_count(decided)} is decided. "
        "The table below says the same."
    )
    return graph(cards, flows, f"Graph of {job.summary.name}", description)


def _vertices(count: int) -> str:
    return "1 vertex" if count == 1 else f"{format_count(count)} vertices"


def _ship(edge: Edge) -> str:
    return f"{edge.ship} by {', '.join(edge.keys)}" if edge.keys and edge.ship else edge.ship


def told(edge: Edge) -> str:
    """``5,000 rows, 3 MiB``; empty: not known."""
    rows = plural(edge.rows, "row") if edge.rows else ""
    return ", ".join(filter(None, [rows, format_bytes(edge.bytes) if edge.bytes else ""]))


def _card(vertex: VertexSummary, href: str) -> Card:
    total = vertex.parallelism or 0
    failed = vertex.state == "failed"
    out = ", ".join(
        filter(
            None,
            [
                plural(vertex.rows_out, "row") if vertex.rows_out else "",
                format_bytes(vertex.bytes_out) if vertex.bytes_out else "",
            ],
        )
    )
    return Card(
        name=f"[{vertex.id}] {vertex.name}",
        subtasks=subtasks(vertex),
        rule="" if vertex.parallelism is None or vertex.absorbed_by is not None else vertex.rule,
        figures=_figures(vertex, out),
        state=_state(vertex),
        href=href,
        hint="\n".join(filter(None, [vertex.name, vertex.reason])),
        is_open=vertex.parallelism is None,
        done=vertex.finished / total if total else 0.0,
        running=vertex.running / total if total else 0.0,
        failed=max(0, total - vertex.finished - vertex.running) / total if failed and total else 0.0,
    )


def _figures(vertex: VertexSummary, out: str) -> str:
    told = (
        f"{format_count(vertex.finished)} of {format_count(vertex.parallelism)} done"
        if vertex.parallelism and vertex.state == "running"
        else ""
    )
    return " · ".join(filter(None, [told, out])) or ("" if vertex.state != "waiting" else "waits for its inputs")


def _state(vertex: VertexSummary) -> str:
    """One that the picture has a colour for."""
    found = state_class(vertex.state)
    return "running" if found == "warning" else found


def subtasks(vertex: VertexSummary) -> str:
    """``8 subtasks``; ``open, at most 64``; or in whose tasks its work is done."""
    if vertex.absorbed_by is not None:
        return f"in the tasks of [{vertex.absorbed_by}]"
    if vertex.parallelism is None:
        return "open" if vertex.bound is None else f"open, at most {format_count(vertex.bound)}"
    return plural(vertex.parallelism, "subtask")
