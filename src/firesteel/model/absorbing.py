"""The change of a job graph by which a join is done without an exchange of its larger side (Flink: the adaptive stream graph).

A join vertex *absorbs* the producer of its probe side: it takes over the producer's inputs and source, runs the producer's
program before its own, and reads the build side whole. The producer has no subtasks then, and its data set is never made.
A producer that is a join itself, not decided yet, is decided as the join that absorbed it.
Vertices and data sets keep their numbers. The scheduler and the data plane make the same change, each to its own graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firesteel.model.job_graph import PARALLELISM_DEFAULT, JobEdge, JobGraph, JobVertex


@dataclass(frozen=True, slots=True)
class Absorbing:
    """``join``: the vertex that absorbs. ``build``: its input (0 or 1) that is read whole; the other one's producer is absorbed."""

    join: int
    build: int

    def producer(self, graph: JobGraph) -> int:
        """The vertex that is absorbed."""
        probe = graph.vertices[self.join].inputs[1 - self.build]
        return graph.datasets[probe.dataset].producer

    def gates(self, graph: JobGraph) -> tuple[int, ...]:
        """Returns the place that each input of the join has behind the change, -1 for the probe side.

        The producer's inputs keep their places; the build side follows, then what else the join reads.
        """
        taken = len(graph.vertices[self.producer(graph)].inputs)
        rest = range(taken + 1, taken + len(graph.vertices[self.join].inputs) - 1)
        return (taken, -1, *rest) if self.build == 0 else (-1, taken, *rest)


def absorb(graph: JobGraph, change: Absorbing) -> None:
    """Changes ``graph``. Both vertices are replaced, so that whoever holds the old ones sees them as they were."""
    join, producer = graph.vertices[change.join], graph.vertices[change.producer(graph)]
    graph.vertices[join.id] = _joined(join, producer, change.gates(graph))
    graph.vertices[producer.id] = replace(
        producer, inputs=[], outputs=[], source=None, join=None, absorbed_by=join.id, parallelism=PARALLELISM_DEFAULT
    )


def _joined(join: JobVertex, producer: JobVertex, gates: tuple[int, ...]) -> JobVertex:
    own = [(place, edge) for place, edge in zip(gates, join.inputs, strict=True) if place >= 0]
    inputs = [*producer.inputs, *(_moved(edge, place, whole=edge.index < 2) for place, edge in own)]
    return replace(
        join,
        name=f"{producer.name} -> {join.name}",
        inputs=inputs,
        parallelism=producer.parallelism,
        max_parallelism=producer.max_parallelism,
        source=producer.source,
        supports_concurrent_attempts=join.supports_concurrent_attempts and producer.supports_concurrent_attempts,
        speculative=join.speculative and producer.speculative,
        not_mirrored=producer.not_mirrored or join.not_mirrored,
        deterministic=join.deterministic and producer.deterministic,
        other_rows=producer.other_rows or join.other_rows,
        join=producer.join,  # its inputs keep their places
    )


def _moved(edge: JobEdge, place: int, whole: bool) -> JobEdge:
    return replace(edge, index=place, co_partitioned=False, whole=whole or edge.whole)
