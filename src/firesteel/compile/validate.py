"""Checks before any Spark job starts: of the options that concern the graph, and of the finished job graph."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from firesteel.compile.stream_graph import StreamNode
from firesteel.connectors.files.paths import Location
from firesteel.connectors.files.reading.source import FileSource
from firesteel.errors import UsageError
from firesteel.model.forward_group import forward_groups
from firesteel.model.job_graph import PARALLELISM_DEFAULT, JobGraph, ResultPartitionType, ShipStrategy


def check_job_graph(graph: JobGraph) -> None:
    """Raises UsageError for what a user can do wrong, AssertionError for what only we can."""
    for vertex in graph.vertices:
        for what, value in (("parallelism", vertex.parallelism), ("max parallelism", vertex.max_parallelism)):
            if value != PARALLELISM_DEFAULT and value < 1:
                raise UsageError(f"'{vertex.name}' has {what} {value}; it must be at least 1.")
    forward_groups(graph)
    _check_shape(graph)


def check_outputs(sinks: Iterable[tuple[StreamNode, Any]]) -> None:
    """Raises UsageError when one output of the job is, or lies in, the directory that another step makes."""
    seen: list[tuple[PurePosixPath, Any, StreamNode]] = []
    for node, sink in sinks:
        target = getattr(sink, "target", None)
        if not isinstance(target, Location):
            continue
        path = PurePosixPath(target.path)
        for other, filesystem, writer in seen:
            if filesystem == target.filesystem and (path.is_relative_to(other) or other.is_relative_to(path)):
                how = "are the same" if path == other else "lie in one another"
                raise UsageError(
                    f"The outputs of {writer} and {node} {how}: {other} and {path}.",
                    hint="Give each a directory of its own, beside the other.",
                )
        seen.append((path, target.filesystem, node))


def check_inputs(sources: Iterable[tuple[StreamNode, Any]], sinks: Iterable[tuple[StreamNode, Any]]) -> None:
    """Raises UsageError when an output would become part of what the job reads, or take its place unasked."""
    outputs = [(node, sink) for node, sink in sinks if isinstance(getattr(sink, "target", None), Location)]
    for reader, source in sources:
        if not isinstance(source, FileSource):
            continue
        folders, roots = source.inputs
        for node, sink in outputs:
            for folder in folders:
                if _inside(sink.target, folder):
                    raise UsageError(
                        f"{node} writes to {sink.target.label}, which lies in {folder.label}, which {reader} reads: it would "
                        "read its own output the next time.",
                        hint="Write to a directory beside it.",
                    )
            for root in roots:
                if getattr(sink, "mode", "") == "overwrite" and _inside(root, sink.target):
                    raise UsageError(
                        f"{node} would replace all of {sink.target.label}, in which {root.label} lies, which {reader} reads.",
                        hint="Write to another directory.",
                    )


def _inside(inner: Location, outer: Location) -> bool:
    one, other = PurePosixPath(inner.path), PurePosixPath(outer.path)
    return one != other and one.is_relative_to(other) and inner.filesystem.equals(outer.filesystem)


def check_uids(nodes: Iterable[StreamNode]) -> None:
    """Raises UsageError when two steps have the same uid."""
    seen: dict[str, StreamNode] = {}
    for node in nodes:
        uid = node.config.uid
        if uid is None:
            continue
        if uid in seen:
            raise UsageError(f"The {seen[uid]} and the {node} have the same uid '{uid}'.", hint="Give each its own.")
        seen[uid] = node


def _check_shape(graph: JobGraph) -> None:
    for index, dataset in enumerate(graph.datasets):
        assert dataset.id == index, dataset
        assert dataset.id in graph.vertices[dataset.producer].outputs, dataset
        consumers = graph.consumers(index)
        assert dataset.persistent or consumers, f"nobody reads {dataset}"
        if dataset.type is ResultPartitionType.PIPELINED:
            assert dataset.ship is ShipStrategy.FORWARD and len(consumers) == 1 and not dataset.persistent, dataset
        assert (dataset.order is not None) == (dataset.ship is ShipStrategy.RANGE), dataset
    for index, vertex in enumerate(graph.vertices):
        assert vertex.id == index, vertex.name
        if vertex.source is None:
            assert vertex.inputs, f"{vertex.name} has neither inputs nor a source"
        else:  # beside a source only side inputs
            ships = {graph.datasets[edge.dataset].ship for edge in vertex.inputs}
            assert ships <= {ShipStrategy.BROADCAST}, f"{vertex.name}: inputs and a source"
        for number, edge in enumerate(vertex.inputs):
            assert edge.index == number, vertex.name
            assert graph.datasets[edge.dataset].producer < index, f"{vertex.name} comes before its input"
