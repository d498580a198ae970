"""The pages: what each of them shows, of jobs, streams and scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from msgspec.structs import replace

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.listing import STATUSES
from firesteel.report.fold import vertex_count
from firesteel.ui.catalog.jobs import KINDS
from firesteel.ui.catalog.source import Source
from firesteel.ui.drawing.canvas import Caption, Line, Mark, Points, Span, described, histogram, lines
from firesteel.ui.drawing.graph import Card, Flow, graph
from firesteel.ui.drawing.timeline import timeline as drawn_timeline
from firesteel.ui.pages.templates import Asked, Links, render, state_class
from firesteel.ui.views.structs import (
    Count,
    Edge,
    Job,
    Rescale,
    Script,
    SlotUse,
    Stream,
    Timeline,
    UnknownThing,
    VertexSummary,
)

# --- the list ---

JOBS_PER_PAGE = 50


def jobs_page(source: Source, asked: Asked) -> str:
    text, status, kind = (asked.text(name) for name in ("text", "status", "kind"))
    sort = asked.text("sort") or "-began"
    page = source.jobs(text=text, status=status, kind=kind, sort=sort, offset=asked.offset, limit=JOBS_PER_PAGE)
    return render("jobs.html", asked, page=page, sort=sort, status=status, kind=kind, statuses=STATUSES, kinds=KINDS)


# --- a job ---

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
            others = source.jobs(text=shown.summary.name[:200], kind="job", limit=21)
            return render(
                "job.html", asked, job=shown, summary=shown.summary, tab="", graph=job_graph(shown, Links(asked.root)),
                recent=shown.decisions[-RECENT:][::-1], others=[one for one in others.items if one.id != shown.summary.id][:20],
            )  # fmt: skip


def decisions_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    what, vertex = asked.text("what"), asked.integer("vertex")
    page = source.decisions(asked.id, what=what, vertex=vertex, offset=asked.offset, limit=PER_PAGE)
    return render(
        "decisions.html", asked, job=job, summary=job.summary, tab="decisions", page=page, what=what, vertex=vertex
    )


def failures_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    page = source.failures(asked.id, offset=asked.offset, limit=PER_PAGE)
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
        f"{vertex_count(len(job.vertices))}, from sources at the left to sinks at the right; the parallelism of {format_count(decided)} is decided. "
        "The table below says the same."
    )
    return graph(cards, flows, f"Graph of {job.summary.name}", description)


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


# --- a stream ---

MOST_BATCHES = 50
"""Rows of the table, the latest."""


def stream_page(stream: Stream, asked: Asked) -> str:
    end = max(
        stream.summary.seconds or 0.0,
        *(batch.at for batch in stream.batches),
        *(level.at for level in stream.levels),
        1e-3,
    )
    span = Span(0.0, end)
    return render(
        "stream.html", asked, job=stream, stream=stream, summary=stream.summary, tab="", parallelism=_parallelism(stream, span),
        backlog=_backlog(stream, span), durations=_durations(stream, span), batches=stream.batches[-MOST_BATCHES:][::-1],
    )  # fmt: skip


def _parallelism(stream: Stream, span: Span) -> str:
    points = _levels(stream)
    marks = [_mark(rescale) for rescale in reversed(stream.rescales) if rescale.end in ("completed", "failed")]
    most = int(max((value for _, value in points), default=0))
    said = f"{plural(stream.rescales_total, 'rescale')}; at most {plural(most, 'partition')}."
    return lines(
        Caption("parallelism", "Parallelism over time", said),
        [Line("partitions", points)],
        span,
        plural(most, "partition"),
        marks,
    )


def _levels(stream: Stream) -> list[tuple[float, float]]:
    """As batches tell it, and rescales after the last of them."""
    done = [rescale for rescale in reversed(stream.rescales) if rescale.end == "completed"]
    known = [(level.at, float(level.parallelism)) for level in stream.levels]
    known = known or [(0.0, float(rescale.before)) for rescale in done[:1]]
    last = max([batch.at for batch in stream.batches] + [at for at, _ in known], default=0.0)
    return known + [(rescale.at, float(rescale.granted)) for rescale in done if rescale.at > last]


def _mark(rescale: Rescale) -> Mark:
    """From where it was set off to its end."""
    took = sum(phase.seconds for phase in rescale.phases if phase.name != "wait")
    kind = "good" if rescale.end == "completed" else "bad"
    return Mark(
        max(0.0, rescale.at - took), f"{rescale.before}→{rescale.granted}", rescale.sentence, kind, until=rescale.at
    )


def _backlog(stream: Stream, span: Span) -> str:
    points = [(batch.at, float(batch.backlog)) for batch in stream.batches if batch.backlog is not None]
    most = int(max((value for _, value in points), default=0))
    return lines(
        Caption("backlog", "Backlog over time", f"At most {plural(most, 'row')} waited."),
        [Line("backlog", points, "area")],
        span,
        plural(most, "row"),
    )


def _durations(stream: Stream, span: Span) -> str:
    """Mean seconds of a batch."""
    points = [(batch.at, batch.seconds / max(1, batch.count)) for batch in stream.batches]
    most = max((value for _, value in points), default=0.0)
    said = f"{format_count(stream.batches_total)} batches, at most {format_seconds(most)} each."
    return lines(
        Caption("batches", "Seconds of a batch over time", said),
        [Line("seconds", points, "area")],
        span,
        format_seconds(most),
    )


# --- attempts over time ---


def timeline_page(source: Source, asked: Asked) -> str:
    begin, end, vertex = asked.seconds("from"), asked.seconds("to"), asked.integer("vertex")
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"From {begin:g} s to {end:g} s there is no time: 'from' must be less than 'to'.")
    job = job_of(source, asked)
    view = source.timeline(asked.id, vertex=vertex, begin=begin, end=end)
    links = Links(asked.root)

    def zoomed(begin: float, end: float) -> str:
        return links.job(asked.id, "timeline", from_=f"{begin:.6g}", to=f"{end:.6g}", vertex=vertex)

    return render(
        "timeline.html", asked, job=job, summary=job.summary, tab="timeline", view=view, vertex=vertex, windows=windows(view),
        moments=[one for one in view.moments if (one.kind, one.text) != ("status", "RESTARTING")],
        is_whole=begin is None and end is None, zoomed=zoomed, drawn=drawn_timeline(view, zoomed),
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


# --- a vertex and its subtasks ---

SUBTASK_STATES = ("CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED")


def vertex_page(source: Source, asked: Asked) -> str:
    number = asked.number("vertex")
    sort, state = asked.text("sort") or "index", asked.text("state")
    vertex = source.vertex(asked.id, number)
    page = source.subtasks(asked.id, number, state=state, sort=sort, offset=asked.offset, limit=PER_PAGE)
    ranges, durations = vertex.ranges, vertex.durations
    return render(
        "vertex.html", asked, vertex=vertex, summary=vertex.job, own=vertex.summary, page=page, sort=sort, state=state, states=SUBTASK_STATES,
        ranges=histogram("ranges", "Bytes that its subtasks read", ranges, format_bytes, "subtask") if ranges else "",
        durations=histogram("durations", "How long its attempts ran", durations, format_seconds, "attempt") if durations else "",
        ranges_text=described(ranges, format_bytes, "subtask") if ranges else "",
        durations_text=described(durations, format_seconds, "attempt") if durations else "",
    )  # fmt: skip


def subtask_page(source: Source, asked: Asked) -> str:
    number, subtask = asked.number("vertex"), asked.number("subtask")
    attempts = source.attempts(asked.id, number, subtask)
    job = source.job(asked.id)
    name = next((one.name for one in job.vertices if one.id == number), "") if isinstance(job, Job) else ""
    return render(
        "subtask.html", asked, summary=job.summary, number=number, name=name, subtask=subtask, attempts=attempts
    )


# --- slots and nodes ---


@dataclass(frozen=True, slots=True)
class Charts:
    """Of a group. ``used``, ``waiting``: SVG; empty: none was. ``told``: a sentence on what was used."""

    used: str
    told: str
    waiting: str


def slots_page(source: Source, asked: Asked) -> str:
    job = job_of(source, asked)
    charts = {use.group: _charts(number, use) for number, use in enumerate(source.slots(asked.id))}
    nodes = source.nodes(asked.id, offset=asked.offset, limit=PER_PAGE)
    return render("slots.html", asked, job=job, summary=job.summary, tab="slots", charts=charts, nodes=nodes)


def _charts(number: int, use: SlotUse) -> Charts:
    span, whose = Span(0.0, max(use.end, 1e-3)), f" of {use.group}" if use.group else ""
    told, total = _used(use), [] if use.total is None else [Line("all slots", [(0.0, float(use.total))], "wanted")]
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


def _used(use: SlotUse) -> str:
    """``At most 38 of 40 slots were in use, 73 % of all on average.``"""
    if use.total is None or use.share is None:
        return f"At most {plural(use.most_running, 'slot')} in use."
    slots = f"{format_count(use.most_running)} of {plural(use.total, 'slot')}"
    return f"At most {slots} in use, {100 * use.share:.0f} % of all on average."


def _points(counts: Sequence[Count]) -> Points:
    return [(each.at, float(each.count)) for each in counts]


# --- with other options ---

MOST_VALUES = 20
_CHARACTERS = 200


def what_if_page(source: Source, asked: Asked) -> str:
    values = {key: value.strip() for key, value in asked.query.items() if value.strip()}
    if len(values) > MOST_VALUES or any(len(value) > _CHARACTERS for value in values.values()):
        raise UsageError(f"That is too much to ask: at most {MOST_VALUES} options of {_CHARACTERS} characters each.")
    job = job_of(source, asked)
    error = ""
    try:
        view = source.what_if(asked.id, values)
    except UsageError as wrong:  # told below the form, which keeps what was written into it
        error, view = str(wrong), replace(source.what_if(asked.id, {}), values=values)
    return render("what_if.html", asked, job=job, summary=job.summary, tab="what-if", view=view, error=error)


# --- two jobs side by side ---

MOST_CHOICES = 200


def comparison_page(source: Source, asked: Asked) -> str:
    """Without both jobs, what to choose them from."""
    left, right = asked.text("left"), asked.text("right")
    jobs = source.jobs(kind="job", limit=MOST_CHOICES).items
    view = source.comparison(left, right) if left and right else None
    most = (
        max((abs(one.seconds_more) for one in view.vertices if one.seconds_more is not None), default=0.0)
        if view
        else 0.0
    )
    return render("comparison.html", asked, jobs=jobs, left=left, right=right, view=view, most=most)


FILES = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Under /files/, with their media types."""


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    """With parameters in braces."""
    render: Callable[[Source, Asked], str]


ROUTES = (
    Route("/", jobs_page),
    Route("/compare", comparison_page),
    Route("/jobs/{id}", job_page),
    Route("/jobs/{id}/timeline", timeline_page),
    Route("/jobs/{id}/decisions", decisions_page),
    Route("/jobs/{id}/failures", failures_page),
    Route("/jobs/{id}/slots", slots_page),
    Route("/jobs/{id}/options", options_page),
    Route("/jobs/{id}/what-if", what_if_page),
    Route("/jobs/{id}/vertices/{vertex}", vertex_page),
    Route("/jobs/{id}/vertices/{vertex}/subtasks/{subtask}", subtask_page),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One that REST answers. ``parameters``: (name, meaning)."""

    method: str
    path: str
    doc: str
    parameters: Sequence[tuple[str, str]] = ()


def rest_page(asked: Asked, requests: Sequence[Request]) -> str:
    """The table of all that REST can be asked."""
    return render("rest.html", asked, requests=requests)


def error_page(asked: Asked, status: int, message: str, hint: str = "") -> str:
    """``message``: a sentence; ``hint``: what to do about it."""
    return render("error.html", asked, status=status, message=message, hint=hint)


@cache
def file(name: str) -> bytes:
    """One of FILES."""
    return (files("firesteel.ui.pages") / "files" / name).read_bytes()
