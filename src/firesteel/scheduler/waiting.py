"""The reasons for which a job waits, in sentences: a job must never hang without saying so."""

from __future__ import annotations

import numpy as np

from firesteel.humanize import plural
from firesteel.model.arrays import Ints
from firesteel.scheduler.deployment.readiness import deployable_regions
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.records import UNDECIDED
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.groups import Mask

_MOST_NAMED = 5
S = ExecutionState


def waiting_for(job: Job) -> list[str]:
    """What vertices wait for: inputs, slots, executions that run or are being cancelled."""
    graph, has_slots = job.graph, bool(job.nodes) if job.nodes.is_told else None
    vertices = [vertex for vertex in graph.vertices if not vertex.is_absorbed]
    return [line for vertex in vertices for line in _vertex(graph, vertex, has_slots, job.recorder.at)]


def _vertex(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, has_slots: bool | None, now: float) -> list[str]:
    """``has_slots``: Spark has executors; None: nobody told."""
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
    ready = created[_ready(graph, vertex, created)]
    if len(ready):
        lines.append(f"{name} has {subtasks_named(ready)} waiting for a slot.")
    if len(created):
        lines += _inputs(graph, vertex, f"{name} has {subtasks_named(created)} waiting for", now, created)
    return lines


def _ready(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, subtasks: Ints) -> Mask:
    """Returns a mask of these subtasks: True where only a slot is missing, for all of their region can run."""
    block = graph.regions.block(vertex.id)
    regions = block.of(vertex.id, subtasks)
    return np.isin(regions, deployable_regions(graph, block, np.unique(regions)))


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
