"""A job as a notebook shows it, from its records: its graph, its vertices, when attempts ran, what was decided and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.report.executions import Attempt, Lives, sentences
from firesteel.report.fold import JobFold
from firesteel.report.history import JobHistory, VertexHistory, vertex_count
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.view.notebook.graph import Edge, Node, graph_svg
from firesteel.view.notebook.markup import details, link, note, table
from firesteel.view.notebook.timeline import timeline_svg

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
