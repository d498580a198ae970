"""The first line of a journal: the job graph as plain data, and the options that the user set."""

from __future__ import annotations

from typing import Any

from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.options import Options
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.slots.resource_profile import ResourceProfile


def planned(graph: JobGraph, job_id: str, options: Options) -> JobPlanned:
    groups = _slot_sharing_groups(graph)
    vertices = [planned_vertex(graph, vertex) for vertex in graph.vertices]
    if groups:
        for vertex, columns in zip(graph.vertices, vertices, strict=True):
            columns["slot_sharing_group"] = vertex.slot_sharing_group
    datasets: list[dict[str, Any]] = [
        {
            "id": dataset.id,
            "producer": dataset.producer,
            "ship": dataset.ship.value,
            "keys": list(dataset.keys),
            "persistent": dataset.persistent,
            "type": dataset.type.value,
        }
        for dataset in graph.datasets
    ]
    return JobPlanned(
        at=0.0,
        job_id=job_id,
        job_name=graph.name,
        vertices=vertices,
        datasets=datasets,
        options={key: options[key] for key in options},
        slot_sharing_groups=groups,
    )


def planned_vertex(graph: JobGraph, vertex: JobVertex) -> dict[str, Any]:
    """The vertex as plain data."""
    return {
        "id": vertex.id,
        "name": vertex.name,
        "uid": vertex.uid,
        "inputs": [graph.datasets[edge.dataset].producer for edge in vertex.inputs],
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "splits": None if vertex.source is None else len(vertex.source.split_bytes),
        "sink": vertex.has_sink,
        **({"step": vertex.step} if vertex.step else {}),
        **({"not_mirrored": vertex.not_mirrored} if vertex.not_mirrored else {}),
        **({"other_rows": vertex.other_rows} if vertex.other_rows else {}),
    }


def _slot_sharing_groups(graph: JobGraph) -> dict[str, dict[str, float]]:
    """Returns the groups that have vertices; none of them where none has resources."""
    groups = {group.name: group for group in map(graph.group_of, range(len(graph.vertices)))}
    if not any(group.has_resources for group in groups.values()):
        return {}
    return {name: ResourceProfile.of(group).numbers() for name, group in groups.items()}
