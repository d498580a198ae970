"""The first lines of a journal: the job graph as plain data, the options that the user set, what the compiler decided."""

from __future__ import annotations

from typing import Any

from firesteel.graph.compiled import CompiledJob
from firesteel.graph.job_graph import JobGraph
from firesteel.options import Options
from firesteel.scheduler.records import Decision, JobPlanned


def planned(graph: JobGraph, job_id: str, options: Options) -> JobPlanned:
    producer = {dataset.id: dataset.producer for dataset in graph.datasets}
    vertices: list[dict[str, Any]] = [
        {
            "id": vertex.id,
            "name": vertex.name,
            "uid": vertex.uid,
            "inputs": [producer[edge.dataset] for edge in vertex.inputs],
            "parallelism": vertex.parallelism,
            "max_parallelism": vertex.max_parallelism,
            "splits": None if vertex.source is None else len(vertex.source.split_bytes),
            "sink": vertex.has_sink,
        }
        for vertex in graph.vertices
    ]
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
    )


def stored_exchanges(compiled: CompiledJob) -> list[Decision]:
    """Which forward edges of a pipelined job are not pipelined."""
    graph = compiled.job_graph
    return [
        Decision(
            at=0.0,
            what="exchange",
            vertex=graph.datasets[dataset].producer,
            name=graph.vertices[graph.datasets[dataset].producer].name,
            inputs={"dataset": dataset, "readers": graph.consumers(dataset)},
            rule="execution.batch-shuffle-mode",
            result="blocking",
            reason=f"What it makes is stored before it is read, not streamed: {why}.",
        )
        for dataset, why in compiled.stored.items()
    ]
