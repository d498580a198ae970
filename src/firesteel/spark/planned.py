"""The first lines of a journal: the job graph as plain data, the options that the user set, what the compiler decided."""

from __future__ import annotations

from typing import Any

from firesteel.graph.compiled import CompiledJob
from firesteel.graph.job_graph import JobGraph, ResultPartitionType
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


def exchange_decisions(compiled: CompiledJob) -> list[Decision]:
    """Of a pipelined job: which forward edges are pipelined, and why others are not."""
    graph = compiled.job_graph
    return [
        *(
            _exchange(
                graph,
                dataset.id,
                "pipelined",
                f"Streams to {_readers(graph, dataset.id)} in the same tasks: stores nothing.",
            )
            for dataset in graph.datasets
            if dataset.type is ResultPartitionType.PIPELINED
        ),
        *(
            _exchange(graph, dataset, "blocking", f"What it makes is stored before it is read, not streamed: {why}.")
            for dataset, why in compiled.stored.items()
        ),
    ]


def _exchange(graph: JobGraph, dataset: int, result: str, reason: str) -> Decision:
    producer = graph.vertices[graph.datasets[dataset].producer]
    return Decision(
        at=0.0,
        what="exchange",
        vertex=producer.id,
        name=producer.name,
        inputs={"dataset": dataset, "readers": graph.consumers(dataset)},
        rule="execution.batch-shuffle-mode",
        result=result,
        reason=reason,
    )


def _readers(graph: JobGraph, dataset: int) -> str:
    return ", ".join(f"'{graph.vertices[vertex].name}'" for vertex in graph.consumers(dataset))
