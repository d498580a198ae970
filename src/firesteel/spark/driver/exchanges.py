"""Decisions made before a job begins, about its runner and its exchanges, as decisions of the journal."""

from __future__ import annotations

from firesteel.compile.compiled import CompiledJob
from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.run.choose import decision_of, decisions_of
from firesteel.scheduler.kernel.records import Decision


def decisions_before(compiled: CompiledJob) -> list[Decision]:
    """Why it runs in stages, and the rules that changed its plans. Of a pipelined job: which forward edges are pipelined, and why others are not. Of any: which edges go
    forward so that ranges of keys stay whole."""
    graph = compiled.job_graph
    return [
        *([] if compiled.runner is None else [decision_of(compiled.runner)]),
        *decisions_of(compiled.rules),
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
        *(
            _exchange(
                graph,
                dataset,
                "forward",
                f"Goes forward to {_readers(graph, dataset)}, which is as parallel as this, whatever its volume: the rows lie in "
                "ranges of keys, perhaps in order, which any other cut would part. rescale() before it gives that up.",
                rule="ranges of keys",
            )
            for dataset in sorted(compiled.in_ranges)
        ),
    ]


def _exchange(
    graph: JobGraph, dataset: int, result: str, reason: str, rule: str = "execution.batch-shuffle-mode"
) -> Decision:
    producer = graph.vertices[graph.datasets[dataset].producer]
    return Decision(
        at=0.0,
        what="exchange",
        vertex=producer.id,
        name=producer.name,
        inputs={"dataset": dataset, "readers": graph.consumers(dataset)},
        rule=rule,
        result=result,
        reason=reason,
    )


def _readers(graph: JobGraph, dataset: int) -> str:
    return ", ".join(f"'{graph.vertices[vertex].name}'" for vertex in graph.consumers(dataset))
