"""A job's summary with the latest that its records say."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from firesteel.journal.listing import BROKEN_OFF, RUNNING, UNFINISHED
from firesteel.report.fold import Fold, JobFold, ScriptFold, StreamFold
from firesteel.report.history import JobHistory, VertexHistory
from firesteel.ui.views.structs import JobSummary

_ENDS = {"FINISHED": "finished", "FAILED": "failed", "CANCELED": "cancelled"}
_OPEN = (RUNNING, BROKEN_OFF, UNFINISHED)


def with_fold(summary: JobSummary, fold: Fold) -> JobSummary:
    """``summary``: as its journal's first and last lines tell."""
    if isinstance(fold, ScriptFold):
        end, cause = fold.end.status if fold.end else "", ""
    elif isinstance(fold, StreamFold):
        end, cause = (fold.end.status, fold.end.cause) if fold.end else ("", "")
    else:
        end, cause = fold.status, fold.cause
    status = _ENDS.get(end, summary.status if summary.status in _OPEN else UNFINISHED)
    changed = replace(
        summary,
        status=status,
        seconds=fold.elapsed if status != RUNNING or not isinstance(fold, ScriptFold) else summary.seconds,
        cause=cause if status in ("failed", "cancelled") else "",
        is_live=status == RUNNING,
    )
    return replace(changed, **_numbers(fold)) if isinstance(fold, JobFold) else changed


def _numbers(history: JobHistory) -> dict[str, int | None]:
    vertices = history.vertices.values()
    read = {producer for vertex in vertices for producer in vertex.inputs}
    restarts = history.metrics.get("numRestarts")
    return {
        "vertices": len(history.vertices),
        "subtasks": sum(vertex.parallelism or 0 for vertex in vertices),
        "rows_in": _sum((vertex for vertex in vertices if not vertex.inputs), "numRecordsIn"),
        "rows_out": _sum((vertex for vertex in vertices if vertex.id not in read), "numRecordsOut"),
        "failures": sum(len(failure.subtasks) for vertex in vertices for failure in vertex.failures),
        "restarts": None if restarts is None else int(restarts),
    }


def _sum(vertices: Iterable[VertexHistory], name: str) -> int | None:
    found = [int(vertex.metrics[name]) for vertex in vertices if name in vertex.metrics]
    return sum(found) if found else None
