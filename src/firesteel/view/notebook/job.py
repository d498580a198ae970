"""A job as a notebook shows it, from its records: its graph, its vertices, when attempts ran, what was decided and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.report.executions import Attempt, Lives, sentences
from firesteel.report.fold import JobFold, JobHistory, VertexHistory, vertex_count
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.view.notebook.markup import LINE, STATE_COLOURS, Edge, Node, details, graph_svg, link, note, svg, table
from firesteel.view.svg import cut, element, round_step, running

MOST_ROWS = 200
"""Rows of a table of decisions or attempts; the rest is counted."""
_VERTEX_COLUMNS = ("", "step", "subtasks", "done", "rows in", "read", "rows out", "produced", "took")


def job_html(records: Iterable[JournalRecord], page: str = "") -> str:
    """The whole job. Of one that runs, as far as it has come. ``page``: the address of its page; empty: it has none."""
    history = JobFold(records)
    found, decisions = history.lives(all_of_them=True), history.all_decisions
    timeline = timeline_svg(history, found)
    parts = [
        note(headline(history)),
        link(page, "Its page") if page else "",
        job_graph(history),
        vertices_table(history),
        details("When attempts ran", timeline, is_open=True) if timeline else "",
        details(f"What was decided, and why ({format_count(len(decisions))})", decisions_html(decisions)),
        _details_of_attempts(history, found),
    ]
    return f"<div>{''.join(filter(None, parts))}</div>"


def headline(history: JobHistory) -> str:
    """``word count (job 3f2a91c0): finished after 4.2 s, 2 vertices, 14 subtasks``."""
    name = f"{history.plan.job_name} (job {history.plan.job_id})" if history.plan else "A job without a plan"
    subtasks = sum(vertex.parallelism or 0 for vertex in history.vertices.values())
    ended = history.status.lower() if history.is_over else f"still {history.status.lower()}"
    text = f"{name}: {ended} after {format_seconds(history.seconds)}, {vertex_count(len(history.vertices))}, {plural(subtasks, 'subtask')}"
    cause = history.cause.strip().split("\n", 1)[0]
    return f"{text}. {cause}" if cause and history.status != "FINISHED" else text


def job_graph(history: JobHistory) -> str:
    """SVG of the vertices; empty where there are none, or too many."""
    numbers = sorted(history.vertices)
    place = {number: k for k, number in enumerate(numbers)}
    nodes = [_node(history.vertices[number]) for number in numbers]
    ships = _ships(history)
    edges = [
        Edge(place[producer], place[number], ships.get((producer, number), ""))
        for number in numbers
        for producer in dict.fromkeys(history.vertices[number].inputs)
        if producer in place
    ]
    return graph_svg(nodes, edges, "The job's vertices and how data travels between them")


def _ships(history: JobHistory) -> dict[tuple[int, int], str]:
    """(producer, consumer) to how rows travel, where the producer has one data set only, so that it is sure."""
    if history.plan is None:
        return {}
    ships: dict[int, set[str]] = {}
    for dataset in history.plan.datasets:
        ships.setdefault(int(dataset.get("producer", -1)), set()).add(str(dataset.get("ship", "")))
    return {
        (producer, number): next(iter(ships[producer]))
        for number, vertex in history.vertices.items()
        for producer in vertex.inputs
        if len(ships.get(producer, ())) == 1
    }


def _node(vertex: VertexHistory) -> Node:
    _, running, done = vertex.counts()
    state = "finished" if vertex.is_done else "running" if running or done else "waiting"
    if vertex.by_state["FAILED"] and not vertex.is_done:
        state = "failed"
    decided = vertex.subtasks_in_words()
    wrote = vertex.number("numBytesProduced")
    rows = vertex.number("numRecordsOut")
    told = ", ".join(filter(None, [decided, plural(rows, "row") if rows else "", format_bytes(wrote) if wrote else ""]))
    reasons = [decision.reason for decision in vertex.decisions if "parallelism" in decision.what and decision.reason]
    return Node(f"[{vertex.id}] {vertex.name}", told, "\n".join([vertex.name, *reasons]), state)


def vertices_table(history: JobHistory) -> str:
    rows = [_vertex_row(history.vertices[number]) for number in sorted(history.vertices)]
    return table(_VERTEX_COLUMNS, rows, right=_VERTEX_COLUMNS[2:])


def _vertex_row(vertex: VertexHistory) -> list[str]:
    counted = [vertex.number(name) for name in ("numRecordsIn", "numBytesIn", "numRecordsOut", "numBytesProduced")]
    texts = [write(n) if n else "" for write, n in zip((format_count, format_bytes) * 2, counted, strict=True)]
    decided = vertex.subtasks_in_words() if not vertex.parallelism else format_count(vertex.parallelism)
    took = "" if vertex.seconds is None else format_seconds(vertex.seconds)
    return [str(vertex.id), vertex.name, decided, format_count(vertex.counts()[2]), *texts, took]


def decisions_html(decisions: Sequence[Decision]) -> str:
    began = min((decision.at for decision in decisions), default=0.0)
    rows = [
        (
            format_seconds(decision.at - began),
            decision.what,
            "" if decision.vertex is None else decision.vertex,
            decision.rule,
            decision.reason or decision.result,
        )
        for decision in decisions[:MOST_ROWS]
    ]
    return table(("after", "what", "vertex", "rule", "why"), rows, right=("after", "vertex")) + _more(len(decisions))


def attempts_of(history: JobHistory, found: Lives) -> str:
    """The timeline, and a table of the attempts: those of subtasks that had several come first. Of the history only names,
    times and status are used."""
    return timeline_svg(history, found) + _attempts_table(history, found)


def _details_of_attempts(history: JobHistory, found: Lives) -> str:
    several = {key: attempts for key, attempts in found.items() if len(attempts) > 1}
    if not several:
        return ""
    return details(f"Subtasks with several attempts ({format_count(len(several))})", _attempts_table(history, several))


def _attempts_table(history: JobHistory, found: Lives) -> str:
    told = sorted(found.items(), key=lambda item: (len(item[1]) == 1, item[0]))
    began, now = history.started_at or 0.0, history.last_at or 0.0
    rows: list[Sequence[object]] = []
    for (vertex, subtask), attempts in told:
        if len(rows) >= MOST_ROWS:
            break
        ends = sentences(attempts, now, is_over=history.is_over)
        rows += [
            (f"[{vertex}] {history.vertices[vertex].name}", subtask, *_times(attempt, began), sentence)
            for attempt, sentence in zip(attempts, ends, strict=True)
        ]
    columns = ("vertex", "subtask", "begun after", "ran", "what became of it")
    total = sum(map(len, found.values()))
    return table(columns, rows[:MOST_ROWS], right=columns[1:4]) + _more(total)


def _times(attempt: Attempt, began: float) -> tuple[str, str]:
    begun = "" if attempt.deployed is None else format_seconds(max(0.0, attempt.deployed - began))
    return begun, "" if attempt.seconds is None else format_seconds(attempt.seconds)


def _more(count: int) -> str:
    return note(f"and {format_count(count - MOST_ROWS)} more") if count > MOST_ROWS else ""


MOST_BARS = 120
"""Attempts that are drawn one by one."""
MOST_STEPS = 240
"""Points of the line of one vertex with more of them."""
_LEFT, _PLOT, _RIGHT = 210.0, 620.0, 12.0
_WIDE, _NARROW = 110, 28
"""Characters of a vertex's name above its bars, and beside its line."""
_BAR, _HEAD, _AREA, _AXIS = 11.0, 18.0, 42.0, 22.0
_ENDED = {"FINISHED": "finished", "FAILED": "failed", "CANCELED": "cancelled", "CANCELING": "cancelled"}


def timeline_svg(history: JobHistory, lives: Lives) -> str:
    """Empty when nothing has run. ``lives``: of all subtasks."""
    began, now = history.started_at, history.last_at
    if began is None or now is None or not any(a.deployed is not None for attempts in lives.values() for a in attempts):
        return ""
    scale = _Scale(began, max(now, began + 1e-3))
    total = sum(a.deployed is not None for attempts in lives.values() for a in attempts)
    rows: list[str] = []
    y = 0.0
    for vertex, keys in groupby(sorted(lives), key=lambda key: key[0]):
        own = {key: lives[key] for key in keys}
        title = f"[{vertex}] {history.vertices[vertex].name}"
        few = total <= MOST_BARS
        drawn, height = _bars(history, own, scale, y, title) if few else _area(own, scale, y, title)
        rows.append(drawn)
        y += height
    content = _axis(scale, y) + "".join(rows)
    return svg(_LEFT + _PLOT + _RIGHT, y + _AXIS, content, f"{format_count(total)} attempts over time")


class _Scale:
    def __init__(self, began: float, end: float) -> None:
        self.began = began
        self.end = end

    def x(self, at: float) -> float:
        inside = min(max(at, self.began), self.end)
        return _LEFT + _PLOT * (inside - self.began) / (self.end - self.began)


def _axis(scale: _Scale, height: float) -> str:
    """Lines at round times."""
    length = scale.end - scale.began
    step = round_step(length)
    lines: list[str] = []
    for k in range(int(length / step) + 1):
        x = scale.x(scale.began + k * step)
        lines.append(element("path", d=f"M{x:.1f},0 V{height:.1f}", stroke=LINE, stroke_width=0.5))
        text = format_seconds(k * step) if k else "0"
        lines.append(_small(text, x, height + 15, "middle"))
    return "".join(lines)


def _title(text: str, y: float, most: int) -> str:
    shown = element("text", escape(cut(text, most)), x=2, y=y + 12, fill="currentColor")
    return element("g", element("title", escape(text)) + shown)


def _bars(history: JobHistory, lives: Lives, scale: _Scale, y: float, title: str) -> tuple[str, float]:
    """A bar for each attempt, subtask by subtask; and the height they take."""
    drawn, row = [_title(title, y, _WIDE)], y + _HEAD
    for (_, subtask), attempts in lives.items():
        told = sentences(attempts, scale.end, is_over=history.is_over)
        for attempt, sentence in zip(attempts, told, strict=True):
            if attempt.deployed is not None:
                label = f"{subtask}" + (f", attempt {attempt.number + 1}" if attempt.number else "")
                drawn.append(_small(label, _LEFT - 6, row + 9, "end"))
                drawn.append(_bar(attempt, scale, row, f"subtask {subtask}, {sentence}"))
                row += _BAR + 2
    return "".join(drawn), row + 6 - y


def _small(text: str, x: float, y: float, anchor: str = "start") -> str:
    return element("text", escape(text), x=x, y=y, text_anchor=anchor, font_size=10, fill="currentColor", opacity=0.7)


def _bar(attempt: Attempt, scale: _Scale, y: float, hint: str) -> str:
    begin = scale.x(attempt.deployed or scale.began)
    end = scale.x(scale.end if attempt.ended is None else attempt.ended)
    colour = STATE_COLOURS[_ENDED.get(attempt.state, "running")]
    dashes = {"stroke": "currentColor", "stroke_dasharray": "3,2"} if attempt.is_mirror else {}
    rect = element("rect", x=begin, y=y, width=max(end - begin, 1.0), height=_BAR, fill=colour, **dashes)
    return element("g", element("title", escape(hint)) + rect)


def _area(lives: Lives, scale: _Scale, y: float, title: str) -> tuple[str, float]:
    """Returns an area of how many attempts of the vertex ran at each time, with a mark for each time one failed, and its height."""
    attempts = [a for life in lives.values() for a in life if a.deployed is not None]
    drawn = [_title(title, y, _NARROW)]
    ends = [scale.end if a.ended is None else a.ended for a in attempts]
    points = running([a.deployed for a in attempts], ends, MOST_STEPS)
    if points:
        most = max(count for _, count in points)
        base, unit = y + _AREA - 6, (_AREA - 12) / most
        steps = " ".join(f"H{scale.x(at):.1f} V{base - count * unit:.1f}" for at, count in points)
        outline = f"M{scale.x(points[0][0]):.1f},{base:.1f} {steps} V{base:.1f} z"
        drawn.append(element("path", d=outline, fill=STATE_COLOURS["running"], opacity=0.7))
        drawn.append(_small(f"{plural(len(attempts), 'attempt')}, at most {format_count(most)} at once", 2, y + 27))
    for at in sorted({a.ended for a in attempts if a.state == "FAILED" and a.ended is not None})[:MOST_BARS]:
        mark = f"M{scale.x(at):.1f},{y + 4:.1f} v{_AREA - 10:.1f}"
        drawn.append(element("path", d=mark, stroke=STATE_COLOURS["failed"]))
    return "".join(drawn), _AREA
