"""The reasons for which a job waits, in sentences: a job must never hang without saying so."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from firesteel.humanize import plural
from firesteel.model.arrays import Ints
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.records import UNDECIDED
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.groups import Mask

_MOST_NAMED = 5
S = ExecutionState


@dataclass(frozen=True, slots=True)
class Waits:
    """Reasons to wait that the graph does not tell."""

    pending_restarts: int
    has_slots: bool | None
    """True: Spark has executors; None: nobody told."""
    committing: bool
    joins: list[str] = field(default_factory=list)
    """Sentences on vertices that are put off."""
    merging: list[str] = field(default_factory=list)
    """Sentences on results that are being merged."""
    speculation: list[str] = field(default_factory=list)
    """Sentences on executions beside others that wait for a slot, and on nodes that are blocked."""


def waiting_for(readiness: Readiness, graph: DefaultExecutionGraph, job: Job, now: float, waits: Waits) -> list[str]:
    """``now``: seconds on the job's clock. Empty once the job has ended."""
    if job.status.is_terminal:
        return []
    if job.status is JobStatus.CREATED:
        return ["The job waits for its start."]
    if waits.committing:
        return ["The job waits for its sinks to be published."]
    lines = [*waits.joins, *waits.merging]
    if waits.pending_restarts and not job.is_ending:
        lines.append(f"Waiting for the delay of a restart: {plural(waits.pending_restarts, 'subtask')}.")
    for vertex in graph.vertices:
        if vertex.is_absorbed:
            continue
        lines += _vertex(readiness, graph, vertex, waits.has_slots, now)
    lines += waits.speculation
    lines = list(dict.fromkeys(lines))  # a producer of several inputs is told once
    return lines or [f"The job is {job.status.value} and waits for nothing: this is a fault of Firesteel's."]


def _vertex(
    readiness: Readiness,
    graph: DefaultExecutionGraph,
    vertex: ExecutionJobVertex,
    has_slots: bool | None,
    now: float,
) -> list[str]:
    name = f"Vertex {vertex.id} '{vertex.job.name}'"
    if not vertex.is_initialized:
        return _inputs(graph, vertex, f"{name} {UNDECIDED}", now)
    lines: list[str] = []
    states = vertex.states
    queued = np.flatnonzero(states == S.SCHEDULED)
    running = np.flatnonzero((states == S.DEPLOYING) | (states == S.RUNNING))
    canceling = np.flatnonzero(states == S.CANCELING)
    table = graph.executions
    ending = np.flatnonzero((table.vertex[: table.size] == vertex.id) & (table.state[: table.size] == S.CANCELING))
    earlier = np.unique(table.index[np.setdiff1d(ending, vertex.chosen)]).astype(np.int64)
    if len(queued):
        slot = " Spark has no executor." if has_slots is False else ""
        lines.append(f"{name} has {_running(graph, vertex, queued, now, 'with Spark for')}.{slot}")
    if len(running):
        lines.append(f"{name} has {_running(graph, vertex, running, now)}.")
    if len(canceling):
        lines.append(f"{name} has {subtasks_named(canceling)} being cancelled.")
    if len(earlier):
        lines.append(f"{name} has an earlier attempt of {subtasks_named(earlier)} being cancelled.")
    lines += [f"{name} has {attempts}." for attempts in _concurrent(vertex, now)]
    created = np.flatnonzero(states == S.CREATED)
    ready = created[_ready(readiness, graph, vertex, created)]
    if len(ready):
        lines.append(f"{name} has {subtasks_named(ready)} waiting for a slot.")
    if len(created):
        lines += _inputs(graph, vertex, f"{name} has {subtasks_named(created)} waiting for", now, created)
    return lines


def _ready(readiness: Readiness, graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, subtasks: Ints) -> Mask:
    """Returns a mask of these subtasks: True where only a slot is missing, for all of their region can run."""
    block = graph.regions.block(vertex.id)
    regions = block.of(vertex.id, subtasks)
    return np.isin(regions, readiness.deployable_regions(block, np.unique(regions)))


def _inputs(
    graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, start: str, now: float, subtasks: Ints | None = None
) -> list[str]:
    """``subtasks``: of an initialised vertex, those that wait. What they need and is not there names its producers."""
    lines: list[str] = []
    for index, edge in enumerate(vertex.job.inputs):
        dataset = graph.job_graph.datasets[edge.dataset]
        producer = graph.vertices[dataset.producer]
        result = graph.results[edge.dataset]
        if result is None:
            lines.append(f"{start} vertex {producer.id} '{producer.job.name}', which has not started.")
            continue
        if graph.regions.are_joined(producer.id, vertex.id):
            lines.append(f"{start} vertex {producer.id} '{producer.job.name}', with which it runs at the same time.")
            continue
        missing = ~result.available
        if subtasks is not None:
            groups = vertex.inputs[index]
            read = np.zeros(result.num_partitions, np.bool_)
            read[groups.partitions(groups.groups_of_consumers(subtasks))] = True
            missing &= read
        if missing.any():
            active = np.flatnonzero(missing & IS_DEPLOYED[producer.states])
            how = f": {_running(graph, producer, active, now)}" if len(active) else ""
            count = f"{int(missing.sum())} of {result.num_partitions} producers of result {dataset.id}"
            lines.append(f"{start} {count} (vertex {producer.id} '{producer.job.name}'){how}.")
        elif vertex.ranges is None and result.info.num_awaited:
            rows = plural(result.info.num_awaited, "producer")
            lines.append(f"{start} the sizes that {rows} of result {dataset.id} reported: they are being read back.")
    return lines


def _running(
    graph: DefaultExecutionGraph,
    vertex: ExecutionJobVertex,
    subtasks: Ints,
    now: float,
    how: str = "under way for",
) -> str:
    rows = vertex.chosen[subtasks]
    table = graph.executions
    launched = table.times(S.DEPLOYING, rows)
    # Waiting in Spark's queue is not running; where nobody told us of the launch, the queue is all we know.
    begun = np.where(np.isnan(launched), table.times(S.SCHEDULED, rows), launched)
    oldest = int(subtasks[int(np.argmin(begun))])
    execution = vertex[oldest].current_execution
    since = max(0.0, now - float(begun.min()))
    longest = "" if len(subtasks) == 1 else f", the longest is subtask {oldest}"
    node = f" on host {execution.node}" if execution.node else ""
    return f"{subtasks_named(subtasks)} {how} {since:.0f} s{longest}{node}"


def _concurrent(vertex: ExecutionJobVertex, now: float) -> list[str]:
    """Of subtasks with several executions under way, where each of them runs."""
    if not vertex.has_several:
        return []
    subtasks = np.arange(vertex.parallelism)
    several = subtasks[vertex.num_current(subtasks) > 1]
    return [_attempts(vertex, subtask, now) for subtask in several[:_MOST_NAMED].tolist()]


def _attempts(vertex: ExecutionJobVertex, subtask: int, now: float) -> str:
    told: list[str] = []
    for execution in vertex[subtask].current_executions:
        launched = execution.entered(S.DEPLOYING)
        since = "queued" if launched is None else f"for {max(0.0, now - launched):.0f} s"
        on = f" on {execution.node}" if execution.node else ""
        mirror = ", a mirror" if execution.is_mirror else ""
        told.append(f"attempt {execution.attempt + 1}{on} {since}{mirror}")
    return f"several attempts of subtask {subtask}: {'; '.join(told)}"


def subtasks_named(subtasks: Ints) -> str:
    named = ", ".join(map(str, subtasks[:_MOST_NAMED].tolist()))
    more = f" and {len(subtasks) - _MOST_NAMED} more" if len(subtasks) > _MOST_NAMED else ""
    return f"subtask{'s' if len(subtasks) > 1 else ''} {named}{more}"
