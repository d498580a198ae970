"""A vertex: its line in the job's tables, and its own page."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.humanize import format_count
from firesteel.options import FRAMEWORK_MEMORY
from firesteel.report.history import Failure as FailureHistory
from firesteel.report.history import VertexHistory
from firesteel.report.slot_sharing import MIB, peaks_text, worker_limit
from firesteel.report.slot_use import uses
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.ui.folds.fold import JobFold
from firesteel.ui.views.decisions import decision_view, reason_of
from firesteel.ui.views.ranges import decided, histogram, ranges, skew
from firesteel.ui.views.structs import Edge, Failure, JobSummary, RowError, Step, Vertex, VertexSummary
from firesteel.ui.views.subtasks import Subtasks
from firesteel.view.watched import state_of

MOST_FAILURES = 20
MOST_DECISIONS = 100
MOST_ROW_ERRORS = 20


def vertex_summary(fold: JobFold, vertex: VertexHistory) -> VertexSummary:
    decision = decided(vertex)
    waiting, running, finished = vertex.counts()
    is_open = vertex.parallelism is None
    return VertexSummary(
        id=vertex.id,
        name=vertex.name,
        state=state_of(fold.history, vertex),
        parallelism=vertex.parallelism,
        bound=fold.watched.bound(vertex) if is_open else None,
        absorbed_by=vertex.absorbed_by,
        rule=decision.rule if decision else "",
        reason=reason_of(decision) if decision else "",
        waiting=0 if is_open else waiting,
        running=running,
        finished=finished,
        failures=sum(len(failure.subtasks) for failure in vertex.failures),
        mirrors=len(vertex.mirrors),
        mirrors_won=vertex.effective,
        rows_in=_number(vertex, "numRecordsIn"),
        rows_out=_number(vertex, "numRecordsOut"),
        bytes_in=_number(vertex, "numBytesIn"),
        bytes_out=_number(vertex, "numBytesProduced"),
        bytes_stored=_number(vertex, "numBytesStored"),
        skew=skew(decision),
        began=None if vertex.first_at is None else vertex.first_at - fold.zero,
        ended=vertex.last_at - fold.zero if vertex.is_done and vertex.last_at is not None else None,
        seconds=_seconds(fold, vertex),
        seconds_left=fold.watched.seconds_left(vertex),
        is_sink=bool(_planned(fold, vertex.id).get("sink")),
        slot_sharing_group=vertex.slot_sharing_group,
    )


def _number(vertex: VertexHistory, name: str) -> int | None:
    found = vertex.metrics.get(name)
    return None if found is None else int(found)


def _seconds(fold: JobFold, vertex: VertexHistory) -> float | None:
    """Of one that runs until now."""
    if vertex.first_at is None or vertex.is_done or fold.is_over:
        return vertex.seconds
    return max(0.0, fold.now - vertex.first_at)


def _planned(fold: JobFold, vertex: int) -> dict[str, object]:
    plan = fold.history.plan
    described = plan.vertices if plan else []
    return next((each for number, each in enumerate(described) if int(each.get("id", number)) == vertex), {})


def vertex_view(fold: JobFold, summary: JobSummary, vertex: VertexHistory, edges: list[Edge]) -> Vertex:
    """``edges``: of the job."""
    subtasks = Subtasks(fold, vertex.id)
    latest = vertex.failures[: -MOST_FAILURES - 1 : -1]
    group = fold.history.group_of(vertex)
    use = uses(fold.history, fold.executions).get(vertex.id) if vertex.is_done else None
    return Vertex(
        job=summary,
        summary=vertex_summary(fold, vertex),
        inputs=[edge for edge in edges if edge.consumer == vertex.id],
        outputs=[edge for edge in edges if edge.producer == vertex.id],
        decisions=[decision_view(decision, fold.zero) for decision in vertex.decisions[-MOST_DECISIONS:]],
        decisions_total=len(vertex.decisions),
        ranges=ranges(decided(vertex)),
        durations=histogram(*subtasks.durations()),
        stragglers=subtasks.stragglers(),
        nodes=subtasks.nodes(),
        failures=[failure_view(fold, vertex, failure) for failure in latest],
        steps=[Step(name=name, counts=counts) for name, counts in vertex.steps.items()],
        row_errors=list(_row_errors(vertex))[:MOST_ROW_ERRORS],
        slot=f"of {group.name}: {group.needs}" if group is not None and group.profile.is_specified else "",
        memory=_memory(fold, vertex),
        slots_used=None if use is None else use.used,
        slots_text="" if use is None else use.words(),
        not_mirrored=vertex.not_mirrored if fold.history.is_speculative else "",
    )


def _row_errors(vertex: VertexHistory) -> Iterator[RowError]:
    for record in vertex.row_errors:
        for row, error in zip(record.rows, record.errors, strict=False):
            yield RowError(step=record.step, subtask=record.subtask, row=row, error=error)


def _memory(fold: JobFold, vertex: VertexHistory) -> str:
    if not vertex.peaks.by_subtask:
        return ""
    group = fold.history.group_of(vertex)
    return peaks_text(vertex.peaks, ResourceProfile.UNKNOWN if group is None else group.profile, framework_memory(fold))


def framework_memory(fold: JobFold) -> int | None:
    """Bytes that a worker may hold beside what its slot has; None: the plan is not known."""
    plan = fold.history.plan
    return None if plan is None else int(plan.options.get(FRAMEWORK_MEMORY.key, FRAMEWORK_MEMORY.default))


def limit_bytes(fold: JobFold, profile: ResourceProfile) -> int | None:
    return worker_limit(profile, framework_memory(fold))


def peak_bytes(vertices: list[VertexHistory]) -> int | None:
    """Most resident bytes of a worker of any of them; None: not watched."""
    peaks = [vertex.peaks.largest[1] for vertex in vertices if vertex.peaks.by_subtask]
    return max(peaks) * MIB if peaks else None


def failure_view(fold: JobFold, vertex: VertexHistory, failure: FailureHistory) -> Failure:
    executions = fold.executions.get(vertex.id)
    nodes: list[str] = []
    if executions is not None:
        pairs = zip(failure.subtasks, failure.attempts, strict=False)
        nodes = [executions.node_of(subtask, attempt) for subtask, attempt in pairs]
    headline = failure.cause.strip().split("\n", 1)[0]
    several = f"{format_count(len(failure.subtasks))} attempts failed" if len(failure.subtasks) > 1 else "it failed"
    return Failure(
        at=failure.at - fold.zero,
        vertex=vertex.id,
        name=vertex.name,
        subtasks=failure.subtasks,
        attempts=failure.attempts,
        nodes=nodes,
        headline=headline or f"{several}; the cause was not recorded",
        text=failure.cause.strip(),
    )
