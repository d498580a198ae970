"""What vertices wait for: inputs, slots, executions that run or are being cancelled. A job must never hang without saying so."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.deployment.readiness import deployable_regions
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.states import IS_DEPLOYED, ExecutionState
from firesteel.scheduler.kernel.waits import (
    MOST_NAMED,
    Attempt,
    ForCancelled,
    ForDecision,
    ForExecutions,
    ForNeighbour,
    ForProducers,
    ForSizes,
    ForSlot,
    Race,
    Running,
    Subtasks,
    Wait,
)
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.groups import Mask

S = ExecutionState


def vertex_waits(job: Job) -> list[Wait]:
    no_executor = job.nodes.is_told and not job.nodes
    vertices = [vertex for vertex in job.graph.vertices if not vertex.is_absorbed]
    return [wait for vertex in vertices for wait in _vertex(job.graph, vertex, job.recorder.at, no_executor)]


def _vertex(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, now: float, no_executor: bool) -> Iterator[Wait]:
    """``no_executor``: Spark has none. False: it has some, or that is not known."""
    if not vertex.is_initialized:
        yield from _inputs(graph, vertex, now)
        return
    states, table = vertex.states, graph.executions
    queued = np.flatnonzero(states == S.SCHEDULED)
    running = np.flatnonzero((states == S.DEPLOYING) | (states == S.RUNNING))
    canceling = np.flatnonzero(states == S.CANCELING)
    ending = np.flatnonzero((table.vertex[: table.size] == vertex.id) & (table.state[: table.size] == S.CANCELING))
    earlier = np.unique(table.index[np.setdiff1d(ending, vertex.chosen)]).astype(np.int64)
    if len(queued):
        yield ForExecutions(vertex.id, _running(graph, vertex, queued, now), queued=True, no_executor=no_executor)
    if len(running):
        yield ForExecutions(vertex.id, _running(graph, vertex, running, now))
    if len(canceling):
        yield ForCancelled(vertex.id, Subtasks.of(canceling))
    if len(earlier):
        yield ForCancelled(vertex.id, Subtasks.of(earlier), earlier=True)
    yield from _races(vertex, now)
    created = np.flatnonzero(states == S.CREATED)
    ready = created[_ready(graph, vertex, created)]
    if len(ready):
        yield ForSlot(vertex.id, Subtasks.of(ready))
    if len(created):
        yield from _inputs(graph, vertex, now, created)


def _ready(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, subtasks: Ints) -> Mask:
    """Returns a mask of these subtasks: True where only a slot is missing, for all of their region can run."""
    block = graph.regions.block(vertex.id)
    regions = block.of(vertex.id, subtasks)
    return np.isin(regions, deployable_regions(graph, block, np.unique(regions)))


def _inputs(
    graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, now: float, subtasks: Ints | None = None
) -> Iterator[Wait]:
    """``subtasks``: of an initialised vertex, those that wait."""
    who = None if subtasks is None else Subtasks.of(subtasks)
    for index, edge in enumerate(vertex.job.inputs):
        producer = graph.vertices[graph.job_graph.datasets[edge.dataset].producer]
        result = graph.results[edge.dataset]
        if result is None:
            yield ForDecision(vertex.id, who, producer.id)
            continue
        if graph.regions.are_joined(producer.id, vertex.id):
            yield ForNeighbour(vertex.id, who, producer.id)
            continue
        missing = ~result.available
        if subtasks is not None:
            groups = vertex.inputs[index]
            read = np.zeros(result.num_partitions, np.bool_)
            read[groups.partitions(groups.groups_of_consumers(subtasks))] = True
            missing &= read
        if missing.any():
            active = np.flatnonzero(missing & IS_DEPLOYED[producer.states])
            running = _running(graph, producer, active, now) if len(active) else None
            count, total = int(missing.sum()), result.num_partitions
            yield ForProducers(vertex.id, who, producer.id, edge.dataset, count, total, running)
        elif vertex.ranges is None and result.info.num_awaited:
            yield ForSizes(vertex.id, who, producer.id, edge.dataset, result.info.num_awaited)


def _running(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, subtasks: Ints, now: float) -> Running:
    rows = vertex.chosen[subtasks]
    table = graph.executions
    launched = table.times(S.DEPLOYING, rows)
    # Waiting in Spark's queue is not running; where nobody told us of the launch, the queue is all we know.
    begun = np.where(np.isnan(launched), table.times(S.SCHEDULED, rows), launched)
    oldest = int(subtasks[int(np.argmin(begun))])
    seconds = max(0.0, now - float(begun.min()))
    return Running(Subtasks.of(subtasks), seconds, oldest, vertex[oldest].current_execution.node)


def _races(vertex: ExecutionJobVertex, now: float) -> Iterator[Wait]:
    """Of subtasks with several executions under way, where each of them runs."""
    if not vertex.has_several:
        return
    several = np.flatnonzero(vertex.num_current(np.arange(vertex.parallelism)) > 1)
    for subtask in several[:MOST_NAMED].tolist():
        current = [(each, each.entered(S.DEPLOYING)) for each in vertex[subtask].current_executions]
        attempts = [
            Attempt(each.attempt, each.node, None if at is None else max(0.0, now - at), each.is_mirror)
            for each, at in current
        ]
        yield Race(vertex.id, subtask, tuple(attempts))
