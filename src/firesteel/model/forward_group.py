"""Forward groups (FLIP-187): vertices joined by FORWARD edges share one parallelism.

Flink: JobVertexForwardGroup, ForwardGroupComputeUtil. At most one distinct parallelism may be set in a group; its max
parallelism is the smallest set one and must not be below the parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.errors import UsageError
from firesteel.model.job_graph import PARALLELISM_DEFAULT, JobGraph, JobVertex, ShipStrategy


@dataclass(frozen=True, slots=True)
class ForwardGroup:
    """``vertices``: ids, ascending. The two parallelisms are PARALLELISM_DEFAULT where no member sets one."""

    vertices: tuple[int, ...]
    parallelism: int = PARALLELISM_DEFAULT
    max_parallelism: int = PARALLELISM_DEFAULT


def set_parallelism_of(vertex: JobVertex) -> int:
    """The parallelism that is known before the job runs: the user's, else the one a source has by its nature."""
    if vertex.parallelism != PARALLELISM_DEFAULT:
        return vertex.parallelism
    fixed = None if vertex.source is None else vertex.source.fixed_parallelism
    return PARALLELISM_DEFAULT if fixed is None else fixed


def forward_groups(job_graph: JobGraph) -> list[ForwardGroup]:
    """Every vertex in exactly one group (most are alone), by ascending first vertex. Raises UsageError on a conflict."""
    leader = list(range(len(job_graph.vertices)))

    def find(vertex: int) -> int:
        while leader[vertex] != vertex:
            leader[vertex] = leader[leader[vertex]]
            vertex = leader[vertex]
        return vertex

    for vertex in job_graph.vertices:
        for edge in vertex.inputs:
            dataset = job_graph.datasets[edge.dataset]
            if dataset.ship is ShipStrategy.FORWARD:
                a, b = find(vertex.id), find(dataset.producer)
                leader[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for vertex in range(len(leader)):
        members.setdefault(find(vertex), []).append(vertex)
    return [_group([job_graph.vertices[v] for v in ids]) for ids in members.values()]


def _group(vertices: list[JobVertex]) -> ForwardGroup:
    set_ones = {set_parallelism_of(v): v for v in reversed(vertices) if set_parallelism_of(v) != PARALLELISM_DEFAULT}
    if len(set_ones) > 1:
        (p, a), (q, b) = sorted(set_ones.items())[:2]
        raise UsageError(
            f"'{a.name}' has parallelism {p} and '{b.name}' has {q}, but a forward() between them wants one parallelism.",
            hint="Set the same parallelism on both, or use rescale() instead of forward().",
        )
    parallelism = next(iter(set_ones), PARALLELISM_DEFAULT)
    maxima = [v for v in vertices if v.max_parallelism != PARALLELISM_DEFAULT]
    smallest = min(maxima, key=lambda v: v.max_parallelism, default=None)
    if smallest is not None and parallelism > smallest.max_parallelism:
        who = set_ones[parallelism]
        between = "" if who is smallest else f", to which forward() joins '{who.name}'"
        raise UsageError(
            f"'{who.name}' has parallelism {parallelism}, above the max parallelism {smallest.max_parallelism} "
            f"of '{smallest.name}'{between}.",
            hint="Raise set_max_parallelism or lower set_parallelism.",
        )
    return ForwardGroup(
        tuple(v.id for v in vertices),
        parallelism,
        PARALLELISM_DEFAULT if smallest is None else smallest.max_parallelism,
    )
