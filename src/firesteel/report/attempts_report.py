"""Text of ``firesteel history``: every attempt of the subtasks that had several, and the nodes that were blocked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firesteel.humanize import format_seconds, plural
from firesteel.report.attempts import Attempt, Lives, sentences
from firesteel.report.explain import begun, blocked_lines, find_vertex, mirrored
from firesteel.report.history import JobHistory, VertexHistory
from firesteel.scheduler.kernel.records import JournalRecord


def report(records: Iterable[JournalRecord], vertex: int | str | None = None, *, all_of_them: bool = False) -> str:
    """Of a job or one of its vertices, by id or name; ``all_of_them``: of subtasks with one attempt, too.

    Raises UsageError if there are no records, or no such vertex.
    """
    history = begun(records)
    chosen = None if vertex is None else find_vertex(history, vertex)
    found = history.lives(None if chosen is None else chosen.id, all_of_them=all_of_them)
    lines = [f"blocked  {line}" for line in blocked_lines(history)] if chosen is None else []
    for number in sorted({key[0] for key in found}):
        lines += [*([""] if lines else []), *_vertex_lines(history, history.vertices[number], found)]
    if lines:
        return "\n".join(lines)
    return "No subtask was begun." if all_of_them else "Every subtask had one attempt; --all prints them."


def _vertex_lines(history: JobHistory, vertex: VertexHistory, found: Lives) -> Iterator[str]:
    tried = f"{plural(len(vertex.attempts), 'subtask')} with several attempts" if vertex.attempts else ""
    group = history.group_of(vertex)
    slots = f"slots of {group.name} ({group.needs})" if group else ""
    parts = ", ".join(filter(None, [slots, tried, mirrored(vertex)]))
    yield f"[{vertex.id}] {vertex.name}{f': {parts}' if parts else ''}"
    began, now = history.started_at or 0.0, history.last_at or 0.0
    for (number, subtask), attempts in found.items():
        if number == vertex.id:
            for attempt, sentence in zip(attempts, sentences(attempts, now, is_over=history.is_over), strict=True):
                yield f"{_when(attempt, began):>10}  subtask {subtask}, {sentence}"


def _when(attempt: Attempt, began: float) -> str:
    """Returns the time of its launch by Spark since the job began; unknown if it ended before Spark told of its start."""
    if attempt.deployed is None:
        return "?" if attempt.state in {"FAILED", "FINISHED"} else "never"
    return format_seconds(max(0.0, attempt.deployed - began))
