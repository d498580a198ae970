"""Chooses the results that are read while they are written, by ``execution.batch-shuffle-mode`` (Flink: the batch shuffle mode).

Spark's tasks cannot stream to each other. What can be pipelined is a forward edge: subtask k of both vertices runs in one
task, in which the consumer pulls the producer's batches. So a pipelined region is a tree of forward edges, each of its
results has one reader, and no blocking result is read within the region that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.plan import PlannedStep
from firesteel.compile.vertices import Vertex, settings
from firesteel.errors import UsageError
from firesteel.model.job_graph import JobVertex, ResultPartitionType, ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import BATCH_SHUFFLE_MODE, FINE_GRAINED_ALL_BLOCKING, Options
from firesteel.task.program import GateHead, ResultOutput, SparkHead

BLOCKING = "ALL_EXCHANGES_BLOCKING"
PIPELINED = "ALL_EXCHANGES_PIPELINED"


def asks_for_pipelined(options: Options) -> bool:
    return options[BATCH_SHUFFLE_MODE] == PIPELINED


def is_pipelined(options: Options, groups: Iterable[SlotSharingGroup]) -> bool:
    """True if the exchanges are pipelined. ``groups``: the job's slot sharing groups with resources, which forbid it
    (FLIP-169): raises UsageError."""
    group = next(iter(groups), None)
    if not asks_for_pipelined(options) or group is None:
        return asks_for_pipelined(options)
    if options[FINE_GRAINED_ALL_BLOCKING]:
        return False
    raise UsageError(
        f"Slot sharing group {group} has resources of its own, and exchanges are pipelined "
        f"({BATCH_SHUFFLE_MODE.key} = {PIPELINED}): steps that must run together could each hold slots that the other "
        "needs, and never start.",
        hint=f"Set {FINE_GRAINED_ALL_BLOCKING.key} = true, which makes all exchanges of such a job blocking.",
    )


def unasked_ship(producer: Vertex, consumer: Vertex, keeps: bool) -> ShipStrategy:
    """The default partitioning: to a neighbour; to the same subtask, where that can be, if that ``keeps``
    something: they are pipelined, or lie in ranges, perhaps in order."""
    if not keeps:
        return ShipStrategy.RESCALE
    parallelisms = {settings(vertex)[0] for vertex in (producer, consumer)} - {None}
    return ShipStrategy.RESCALE if len(parallelisms) > 1 else ShipStrategy.FORWARD


def is_ranged(vertex: Vertex, vertex_of: Mapping[PlannedStep, Vertex]) -> bool:
    """True if its rows lie in its subtasks by ranges of keys: it begins behind a RANGE exchange, or alone behind what does."""
    while not vertex.first.is_ranged:
        gates = vertex.gates
        if vertex.keyed is not None or len(gates) != 1 or gates[0].ship not in (None, ShipStrategy.FORWARD):
            return False
        vertex = vertex_of[gates[0].source]
    return True


def pipeline(job: CompiledJob) -> None:
    """Makes every forward edge that can stream a pipelined one; ``job.stored`` says why others are not.

    Raises UsageError when an edge is not a forward edge: that job cannot run as it was asked for.
    """
    graph = job.job_graph
    for dataset in graph.datasets:
        readers = [graph.vertices[v] for v in graph.consumers(dataset.id)]
        if not readers:  # it is for the driver
            continue
        producer = graph.vertices[dataset.producer]
        if dataset.ship is not ShipStrategy.FORWARD:
            raise _refusal(job, producer, readers[0], dataset.ship)
        obstacle = _routed(producer, dataset.id) or _obstacle(producer, readers, dataset.id, dataset.persistent)
        if obstacle is None:
            graph.datasets[dataset.id] = replace(dataset, type=ResultPartitionType.PIPELINED)
        else:
            job.stored[dataset.id] = obstacle


def store_all(job: CompiledJob) -> None:
    """Says in ``job.stored`` why nothing of a job that asks for pipelined exchanges is pipelined."""
    for dataset in job.job_graph.datasets:
        if job.job_graph.consumers(dataset.id):
            job.stored[dataset.id] = f"slots have resources of their own, and {FINE_GRAINED_ALL_BLOCKING.key} is set"


def _obstacle(producer: JobVertex, readers: list[JobVertex], dataset: int, persistent: bool) -> str | None:
    """Why the readers of a forward edge cannot take the rows as they are made."""
    if persistent:
        return "the driver reads it too"
    if isinstance(producer.program.head, SparkHead):
        return f"'{producer.name}' runs inside Spark's plan of its DataFrame"
    if len(readers) > 1:
        return f"it has several readers: {', '.join(dict.fromkeys(repr(reader.name) for reader in readers))}"
    (reader,) = readers
    if reader.slot_sharing_group != producer.slot_sharing_group:
        groups = f"'{producer.slot_sharing_group}' and '{reader.slot_sharing_group}'"
        return f"its ends are in the slot sharing groups {groups}, which share no slot"
    head, gate = reader.program.head, next(edge.index for edge in reader.inputs if edge.dataset == dataset)
    if not isinstance(head, GateHead) or gate not in head.gates:
        return f"'{reader.name}' must have all of it before it begins"
    return None


def _routed(producer: JobVertex, dataset: int) -> str | None:
    """The reason where it holds what a step could not do."""
    results = [output for output in producer.program.outputs if isinstance(output, ResultOutput)]
    routed = any(output.dataset == dataset and output.route is not None for output in results)
    return f"it holds what a step of '{producer.name}' could not do" if routed else None


def _refusal(job: CompiledJob, producer: JobVertex, consumer: JobVertex, ship: ShipStrategy) -> UsageError:
    return UsageError(
        f"The exchange from {_named(job, producer)} to {_named(job, consumer)} ({ship.value}) cannot be pipelined: Spark's "
        "tasks cannot stream to each other, and tasks that must run together might never all get a slot.",
        hint=f"Set {BATCH_SHUFFLE_MODE.key} = {BLOCKING} (the default); only forward() can be pipelined.",
    )


def _named(job: CompiledJob, vertex: JobVertex) -> str:
    place = job.places.get(vertex.id)
    return f"'{vertex.name}'" + (f" ({place})" if place else "")
