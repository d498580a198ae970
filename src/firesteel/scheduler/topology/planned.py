"""The first line of a journal: the job graph as plain data, and the options that the user set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firesteel.model.external import External, ExternalDataset, Origin
from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.options import Options
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.slots.resource_profile import ResourceProfile


def planned(
    graph: JobGraph,
    job_id: str,
    options: Options,
    external: External | None = None,
    *,
    at: float = 0.0,
    after: str = "",
    uses: Iterable[str] = (),
) -> JobPlanned:
    """``external``: what it reads and writes, if that is known. ``after``: the job that this one goes on from; ``uses``: those whose results it
    uses; ``at``: where their clock stood."""
    external = external or External()
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
        at=at,
        job_id=job_id,
        job_name=graph.name,
        vertices=vertices,
        datasets=datasets,
        options={key: options[key] for key in options},
        slot_sharing_groups=groups,
        origins={key: options.origin(key).where for key in options},
        inputs=list(map(_dataset, external.inputs)),
        outputs=list(map(_dataset, external.outputs)),
        after=after,
        uses=list(uses),
    )


def planned_vertex(graph: JobGraph, vertex: JobVertex) -> dict[str, Any]:
    """The vertex as plain data."""
    return {
        "id": vertex.id,
        "name": vertex.name,
        "uid": vertex.uid,
        "inputs": [graph.datasets[edge.dataset].producer for edge in vertex.inputs],
        "datasets": [edge.dataset for edge in vertex.inputs],
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "splits": None if vertex.source is None else len(vertex.source.split_bytes),
        "sink": vertex.has_sink,
        **({"step": vertex.step} if vertex.step else {}),
        **({"not_mirrored": vertex.not_mirrored} if vertex.not_mirrored else {}),
        **({"other_rows": vertex.other_rows} if vertex.other_rows else {}),
    }


def _dataset(dataset: ExternalDataset) -> dict[str, Any]:
    found: dict[str, Any] = {"vertex": dataset.vertex, "namespace": dataset.namespace, "name": dataset.name}
    if not dataset.counted:
        found["counted"] = False
    if dataset.columns:
        found["columns"] = [list(column) for column in dataset.columns]
    if dataset.origins:
        found["origins"] = {column: _origins(origins) for column, origins in dataset.origins.items()}
    if dataset.decided_by:
        found["decided_by"] = _origins(dataset.decided_by)
    return found


def _origins(origins: Iterable[Origin]) -> list[list[Any]]:
    return [[origin.source, origin.column, origin.how] for origin in origins]


def _slot_sharing_groups(graph: JobGraph) -> dict[str, dict[str, float]]:
    """Returns the groups that have vertices; none of them where none has resources."""
    groups = {group.name: group for group in map(graph.group_of, range(len(graph.vertices)))}
    if not any(group.has_resources for group in groups.values()):
        return {}
    return {name: ResourceProfile.of(group).numbers() for name, group in groups.items()}
