"""The change of a job graph by which an exchange is left out that turns out to be needless (Flink: the adaptive stream graph).

A join vertex *absorbs* the producer of its probe side: it takes over the producer's inputs and source, runs the producer's
program before its own, and reads the build side whole. The producer has no subtasks then, and its data set is never made.
A producer that is a join itself, not decided yet, is decided as the join that absorbed it.
The second of two steps that could be one absorbs the first: it reads what the first would have read, and does the work of both.
Vertices and data sets keep their numbers. The scheduler and the data plane make the same change, each to its own graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from firesteel.model.costs import fused
from firesteel.model.job_graph import PARALLELISM_DEFAULT, JobEdge, JobGraph, JobVertex, ShipStrategy

SIDES = ("left", "right")
ONE_STEP = "that would cost more than it saves"
"""Why no subpartition of a step is divided that could have been two."""


@dataclass(frozen=True, slots=True)
class Absorbing:
    """``join``: the vertex that absorbs. ``build``: its input (0 or 1) that is read whole; the other one's producer is absorbed. None:
    the vertex is no join, but the second of two steps (``JobVertex.first_step``)."""

    join: int
    build: int | None

    def producer(self, graph: JobGraph) -> int:
        """The vertex that is absorbed."""
        return graph.datasets[self.dropped(graph)].producer

    def dropped(self, graph: JobGraph) -> int:
        """The data set that is never made."""
        return graph.vertices[self.join].inputs[0 if self.build is None else 1 - self.build].dataset

    def gates(self, graph: JobGraph) -> tuple[int, ...]:
        """Returns the place that each input of the vertex has behind the change, -1 for what is not made.

        The producer's inputs keep their places; the build side follows, then what else the vertex reads.
        """
        taken, own = len(graph.vertices[self.producer(graph)].inputs), len(graph.vertices[self.join].inputs)
        if self.build is None:
            return (-1, *range(taken, taken + own - 1))
        rest = range(taken + 1, taken + own - 1)
        return (taken, -1, *rest) if self.build == 0 else (-1, taken, *rest)


def obstacle(graph: JobGraph, change: Absorbing) -> str:
    """Why the graph does not allow the change, as the end of a sentence; "": it does."""
    return next(_obstacles(graph, change), "")


def _obstacles(graph: JobGraph, change: Absorbing) -> Iterator[str]:
    assert change.build is not None
    join, producer = graph.vertices[change.join], graph.vertices[change.producer(graph)]
    dataset = graph.datasets[change.dropped(graph)]
    probe = f"the {SIDES[1 - change.build]} side"
    if join.inputs[0].dataset == join.inputs[1].dataset:
        yield "both sides are one stream"
    if dataset.persistent or len(producer.outputs) > 1 or producer.has_sink or _num_readers(graph, dataset.id) > 1:
        yield f"{probe} is read by others too"
    if dataset.ship is not ShipStrategy.HASH:
        yield f"{probe} is not hash partitioned"
    beside = [*(edge.dataset for vertex in (producer, join) for edge in vertex.inputs), *join.outputs]
    if any(graph.datasets[number].ship is ShipStrategy.FORWARD for number in beside):
        yield "a step beside it is bound to its parallelism by forward"
    if producer.slot_sharing_group != join.slot_sharing_group:
        yield f"{probe} is in another slot sharing group"
    if (producer.parallelism, producer.max_parallelism) != (join.parallelism, join.max_parallelism):
        yield f"{probe} has another parallelism set than the join"


def worker_of(graph: JobGraph, vertex: int) -> int:
    """The vertex whose tasks do the work of this one: itself, or the last of those that absorbed it."""
    while (absorber := graph.vertices[vertex].absorbed_by) is not None:
        vertex = absorber
    return vertex


def _num_readers(graph: JobGraph, dataset: int) -> int:
    return sum(edge.dataset == dataset for vertex in graph.vertices for edge in vertex.inputs)


def absorb(graph: JobGraph, change: Absorbing) -> None:
    """Changes ``graph``. Both vertices are replaced, so that whoever holds the old ones sees them as they were."""
    join, producer = graph.vertices[change.join], graph.vertices[change.producer(graph)]
    gates = change.gates(graph)
    graph.vertices[join.id] = (
        _in_one_step(join, producer, gates) if change.build is None else _joined(join, producer, gates)
    )
    graph.vertices[producer.id] = replace(
        producer,
        inputs=[],
        outputs=[],
        source=None,
        join=None,
        filters=(),
        absorbed_by=join.id,
        parallelism=PARALLELISM_DEFAULT,
    )


def _in_one_step(second: JobVertex, first: JobVertex, gates: tuple[int, ...]) -> JobVertex:
    """The second step as the only one: nothing that it reads is divided any more, and it is no join that could be broadcast."""
    read = [_undivided(edge, edge.index) for edge in first.inputs]
    own = [_undivided(edge, place) for place, edge in zip(gates, second.inputs, strict=True) if place >= 0]
    return replace(
        second,
        name=second.name if second.is_whole else f"{first.name} -> {second.name}",
        step=second.step if second.is_whole else fused(first.step, second.step),
        inputs=[*read, *own],
        join=None,
        first_step=None,
        **_attempts(first, second),
    )


def _undivided(edge: JobEdge, place: int) -> JobEdge:
    return replace(edge, index=place, divisible=False, indivisible=ONE_STEP if edge.divisible else edge.indivisible)


def _attempts(first: JobVertex, second: JobVertex) -> dict[str, Any]:
    """The rules for attempts at both in one task, and whether the engine makes the rows of both."""
    return {
        "by_engine": first.by_engine and second.by_engine,
        "supports_concurrent_attempts": first.supports_concurrent_attempts and second.supports_concurrent_attempts,
        "speculative": first.speculative and second.speculative,
        "not_mirrored": first.not_mirrored or second.not_mirrored,
        "waits": first.waits or second.waits,
        "deterministic": first.deterministic and second.deterministic,
        "other_rows": first.other_rows or second.other_rows,
    }


def _joined(join: JobVertex, producer: JobVertex, gates: tuple[int, ...]) -> JobVertex:
    own = [(place, edge) for place, edge in zip(gates, join.inputs, strict=True) if place >= 0]
    inputs = [*producer.inputs, *(_moved(edge, place, whole=edge.index < 2) for place, edge in own)]
    return replace(
        join,
        name=f"{producer.name} -> {join.name}",
        step=fused(producer.step, join.step),
        inputs=inputs,
        parallelism=producer.parallelism,
        max_parallelism=producer.max_parallelism,
        source=producer.source,
        join=producer.join,  # its inputs keep their places
        filters=producer.filters,
        first_step=None,  # its rows do not lie by the key
        **_attempts(producer, join),
    )


def _moved(edge: JobEdge, place: int, whole: bool) -> JobEdge:
    return replace(edge, index=place, co_partitioned=False, divisible=False, indivisible="", whole=whole or edge.whole)
