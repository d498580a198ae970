"""What the compiler decided about exchanges, as decisions of the journal."""

from __future__ import annotations

from firesteel.graph.compiled import CompiledJob
from firesteel.graph.job_graph import JobGraph, ResultPartitionType
from firesteel.scheduler.records import Decision


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
