"""News of a running job: records worth a line, in any view. Attempts are counted from 0 in the records, from 1 on the screen."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.humanize import format_seconds
from firesteel.report.fold import JobHistory, VertexHistory, subtask_numbers
from firesteel.scheduler.kernel.records import Decision, StateChange

_TOLD = ("speculation", "winner", "blocklist", "placement", "slot request", "journal")
"""Decisions of which every view tells at once."""
_RESUMED = ("goes on", "goes on from")
"""Results of the decision with which a job that is resumed begins."""
_WARNED = ("restart", "failover", "warning")
"""The decisions of a vertex that are told with their kind."""
MOST_FAILURES = 5
"""Lines about failures of one vertex; the rest is for history."""


class News:
    """Of one job: lines for what happened, and no flood of them."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}

    def of(self, record: Decision | StateChange) -> str:
        """Empty: nothing that all should hear of at once."""
        if isinstance(record, StateChange):
            return self._failed(record) if record.state == "FAILED" else ""
        if record.what in _TOLD:
            return news(record)
        if says_what_is_kept(record):
            return record.reason
        if (
            record.what in _WARNED
            and record.vertex is not None
            and self._failures.get(record.vertex, 0) <= MOST_FAILURES
        ):
            return warned(record)
        return ""

    def _failed(self, record: StateChange) -> str:
        times = self._failures[record.vertex] = self._failures.get(record.vertex, 0) + 1
        if times <= MOST_FAILURES:
            return f"[{record.vertex}] {failed(record)}"
        if times == MOST_FAILURES + 1:
            return f"[{record.vertex}] more subtasks failed; 'firesteel history' lists all."
        return ""


class Finished:
    """Finds the vertices of one job that have finished."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def news(self, history: JobHistory) -> Iterator[VertexHistory]:
        """Yields each vertex once after it has finished and its counts are known; again if it had to run again."""
        for vertex in history.vertices.values():
            if not vertex.is_done:
                self._told.discard(vertex.id)
            elif (
                vertex.absorbed_by is None
                and vertex.id not in self._told
                and vertex.number("numFinishedTasks") >= (vertex.parallelism or 0)
            ):
                self._told.add(vertex.id)
                yield vertex


def says_what_is_kept(record: Decision) -> bool:
    """Returns whether a job that is resumed begins with it."""
    return record.what == "resume" and record.vertex is None and record.result in _RESUMED


def warned(record: Decision) -> str:
    return f"[{record.vertex}] {record.what}: {record.reason}"


def failed(record: StateChange) -> str:
    """``subtasks 1-3 failed: the cause's first line``."""
    several = "subtasks" if len(record.subtasks) > 1 else "subtask"
    return f"{several} {subtask_numbers(record.subtasks)} failed: {first_line(record.cause)}".rstrip(": ")


def news(record: Decision) -> str:
    """One line on a slow execution, a mirror that won, a blocked node."""
    told, where = record.inputs, "" if record.vertex is None else f"[{record.vertex}] "
    if record.what == "speculation" and record.result:
        mirrored = {int(subtask) for subtask, _ in record.result}
        columns = zip(*(told[name] for name in ("subtasks", "nodes", "elapsed", "baseline")), strict=True)
        slow = [row for row in columns if row[0] in mirrored]
        subtask, node, elapsed, baseline = slow[0]
        there = f" on {node}" if node else ""
        more = f"; and {len(mirrored) - 1} more" if len(mirrored) > 1 else ""
        took = f"{format_seconds(elapsed)}, slow from {format_seconds(baseline)}"
        return f"{where}subtask {subtask} is slow{there} ({took}): mirrored{more}"
    if record.what == "winner":
        number, node = told["subtask"], told["nodes"][0]
        return f"{where}subtask {number}: the {'mirror' if told['mirror'] else 'original'}{f' on {node}' if node else ''} won"
    return f"{where}{record.reason}"


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
