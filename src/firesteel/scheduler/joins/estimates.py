"""Bytes of data sets that are not there yet, as far as anybody knows."""

from __future__ import annotations

from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph


def bytes_of(graph: DefaultExecutionGraph, dataset: int) -> int:
    """Plain bytes of a data set: what it has, or at most what its producer reads."""
    total, seen, ask = 0, set[int](), [dataset]
    while ask:
        current = ask.pop()
        if current in seen:
            continue
        seen.add(current)
        result = graph.results[current]
        if result is not None and result.is_available:
            total += result.info.num_bytes_produced
            continue
        producer = graph.job_graph.vertices[graph.job_graph.datasets[current].producer]
        if producer.source is not None:
            total += int(producer.source.split_bytes.sum())
        ask += [edge.dataset for edge in producer.inputs if not edge.whole]
    return total
