"""Logical pipelined regions: job vertices that must run at the same time (the blog on scheduling, part two).

Vertices joined by pipelined data sets form a region. Two regions that wait for each other over blocking data sets
would never start, so regions on a cycle are merged into one (the blog's figure 5).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.model.tarjan import strongly_connected_components


@dataclass(frozen=True, slots=True)
class LogicalPipelinedRegion:
    """``vertices``: ids in topological order."""

    vertices: tuple[int, ...]


def logical_pipelined_regions(job_graph: JobGraph) -> list[LogicalPipelinedRegion]:
    """Every vertex in exactly one region, regions in topological order, the one with the smallest vertex first.

    O(vertices + edges of the job graph): nothing here knows a parallelism.
    """
    edges = [
        (job_graph.datasets[edge.dataset].producer, vertex.id)
        for vertex in job_graph.vertices
        for edge in vertex.inputs
    ]
    # A pipelined edge counts both ways: whoever it joins starts together.
    back = [
        (vertex.id, job_graph.datasets[edge.dataset].producer)
        for vertex in job_graph.vertices
        for edge in vertex.inputs
        if job_graph.datasets[edge.dataset].type is ResultPartitionType.PIPELINED
    ]
    columns = np.array(edges + back, np.int64).reshape(-1, 2)
    components = strongly_connected_components(len(job_graph.vertices), columns[:, 0], columns[:, 1]).tolist()
    members: dict[int, list[int]] = {}
    for vertex, component in enumerate(components):
        members.setdefault(component, []).append(vertex)
    order = _topological({c: m[0] for c, m in members.items()}, {(components[a], components[b]) for a, b in edges})
    return [LogicalPipelinedRegion(tuple(members[component])) for component in order]


def fed_while_running(job_graph: JobGraph) -> set[int]:
    """Vertices with an input from their own region: it cannot be cut by bytes, for it is not there beforehand."""
    region_of = {
        v: number for number, region in enumerate(logical_pipelined_regions(job_graph)) for v in region.vertices
    }
    return {
        vertex.id
        for vertex in job_graph.vertices
        for edge in vertex.inputs
        if region_of[job_graph.datasets[edge.dataset].producer] == region_of[vertex.id]
    }


def _topological(keys: dict[int, int], edges: set[tuple[int, int]]) -> list[int]:
    """Nodes in topological order; of several that may come next, the one with the smallest key."""
    after: dict[int, list[int]] = {node: [] for node in keys}
    waits = dict.fromkeys(keys, 0)
    for source, target in edges:
        if source != target:
            after[source].append(target)
            waits[target] += 1
    free = [(keys[node], node) for node, count in waits.items() if not count]
    heapq.heapify(free)
    order: list[int] = []
    while free:
        _, node = heapq.heappop(free)
        order.append(node)
        for target in after[node]:
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(free, (keys[target], target))
    return order
