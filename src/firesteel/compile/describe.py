"""The job graph in words: what ``explain()`` prints before a job runs."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.stream_graph import StreamNode, reachable
from firesteel.humanize import format_bytes, plural
from firesteel.model.job_graph import PARALLELISM_DEFAULT, IntermediateDataSet, JobGraph, JobVertex, ResultPartitionType
from firesteel.model.order import Order
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP
from firesteel.plan.dump import explain_rules


def describe(job: CompiledJob) -> str:
    """Every vertex with its inputs, in topological order; ids as in the journal."""
    return "\n".join(line for vertex in job.job_graph.vertices for line in _vertex(job, vertex))


def describe_left_to_spark(ends: Iterable[StreamNode]) -> str:
    """A line for each part of a DataFrame that Spark computes, with the reason; empty: there is none."""
    found = [(node, reason) for node in reachable(ends) for reason in node.left_to_spark]
    return "".join(f"\nSpark computes a part of {node}: {reason}" for node, reason in found)


def describe_rules(ends: Iterable[StreamNode]) -> str:
    """What rules did to the plans of DataFrames."""
    found = [f"\nRules of {node}:\n{explain_rules(node.rules)}" for node in reachable(ends) if node.rules]
    return "".join(found) or "\nNo step has a plan that rules could change."


def _vertex(job: CompiledJob, vertex: JobVertex) -> list[str]:
    graph = job.job_graph
    lines = [f"[{vertex.id}] {vertex.name}: {_parallelism(vertex)}"]
    sides = {gate: name for name, gate in vertex.program.side_inputs}
    for edge in vertex.inputs:
        dataset = graph.datasets[edge.dataset]
        by = dataset.keys if dataset.order is None else _ordered(dataset.order)
        keys = f" by {', '.join(by)}" if by else ""
        side = f", as side input '{sides[edge.index]}'" if edge.index in sides else ""
        lines.append(f"    reads [{dataset.producer}], {dataset.ship.value}{keys}{side}{_streamed(job, dataset)}")
    if vertex.first_step is not None:
        may = " or has a side broadcast" if graph.vertices[vertex.first_step].join is not None else ""
        lines.append(f"    in one step with [{vertex.first_step}], unless that divides what it reads{may}")
    if vertex.id in job.splits:
        splits = job.splits[vertex.id]
        total = sum(split.bytes for split in splits)
        lines.append(f"    reads {plural(len(splits), 'split')}, {format_bytes(total)}")
    if has_groups(graph):
        lines.append(f"    slot sharing group {graph.group_of(vertex.id)}")
    if vertex.not_mirrored:
        alone = "" if vertex.supports_concurrent_attempts else "one attempt of a subtask at a time, "
        lines.append(f"    {alone}never mirrored: {vertex.not_mirrored}")
    if vertex.other_rows:
        lines.append(f"    may give other rows when it runs again: {vertex.other_rows}")
    kept = [number for number in vertex.outputs if graph.datasets[number].persistent]
    if kept:
        lines.append("    its rows are kept for the driver")
    return lines


def _ordered(order: Order) -> list[str]:
    return [column.name if column.ascending else f"{column.name} descending" for column in order.columns]


def has_groups(graph: JobGraph) -> bool:
    """True if the job has more to show than the default slot sharing group."""
    names = {vertex.slot_sharing_group for vertex in graph.vertices}
    return bool(graph.slot_sharing_groups) or names != {DEFAULT_SLOT_SHARING_GROUP}


def _streamed(job: CompiledJob, dataset: IntermediateDataSet) -> str:
    if dataset.type is ResultPartitionType.PIPELINED:
        return ", pipelined: in the same tasks"
    why = job.stored.get(dataset.id)
    return "" if why is None else f", stored first: {why}"


def _parallelism(vertex: JobVertex) -> str:
    bound = "" if vertex.max_parallelism == PARALLELISM_DEFAULT else f", at most {vertex.max_parallelism}"
    if vertex.parallelism != PARALLELISM_DEFAULT:
        return plural(vertex.parallelism, "subtask")
    if vertex.source is not None and vertex.source.fixed_parallelism is not None:
        return f"{plural(vertex.source.fixed_parallelism, 'subtask')}, one per partition of the DataFrame"
    return f"parallelism decided when it runs{bound}"
