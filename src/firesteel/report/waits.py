"""Waits that a job told of while it ran, as they are told when it is over: with what became of the vertices that were open then."""

from __future__ import annotations

import re

from firesteel.humanize import format_seconds, plural
from firesteel.report.history import JobHistory, VertexHistory, is_parallelism
from firesteel.scheduler.kernel.records import UNDECIDED, Decision

_VERTEX = re.compile(r"Vertex (\d+) '")


def waited(decision: Decision, history: JobHistory) -> str:
    """A decision "waiting", of a job that is over. Times since the job began."""
    sentences = [str(each) for each in decision.result] if isinstance(decision.result, list) else [decision.reason]
    undecided = [_VERTEX.match(each) for each in sentences if UNDECIDED in each]
    numbers = dict.fromkeys(int(found[1]) for found in undecided if found)
    began = history.started_at or 0.0
    told = " ".join(each for each in sentences if UNDECIDED not in each)
    when = f"At {format_seconds(decision.at - began)}, after a while without news"
    parts = [f"{when}: {told}" if told else f"{when}."]
    if numbers:
        outcomes = "; ".join(_outcome(history.vertex(number), began) for number in numbers)
        parts.append(f"Not decided by then: {outcomes}.")
    return " ".join(parts)


def _outcome(vertex: VertexHistory, began: float) -> str:
    """``[2], which got 11 subtasks at 5 min 52 s``."""
    if vertex.absorbed_by is not None:
        return f"[{vertex.id}], whose work was done {vertex.subtasks_in_words()}"
    if vertex.parallelism is None:
        return f"[{vertex.id}], which never was"
    at = [f" at {format_seconds(each.at - began)}" for each in vertex.decisions if is_parallelism(each)]
    return f"[{vertex.id}], which got {plural(vertex.parallelism, 'subtask')}{''.join(at[-1:])}"
