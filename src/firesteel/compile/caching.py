"""Steps whose rows are kept: in a job's graph each is a source of its rows where they are there, else a step to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firesteel.compile.stream_graph import CollectStep, SourceStep, StepConfig, StreamEdge, StreamNode, reachable

FIRST_HANDLE = 1
"""Number 0 is the driver's."""


@dataclass(frozen=True, slots=True)
class Kept:
    """``ends``: of the job, those that keep rows among them; ``fills``: number of such an end to the step's cache."""

    ends: list[StreamNode]
    fills: dict[int, Any]


def with_caches(
    ends: Sequence[StreamNode], source_of: Callable[[StreamNode], Any], fill: Callable[[StreamNode], bool]
) -> Kept:
    """The graph that these ends need, what is cached being read and not computed.

    ``source_of``: of a step with a cache, the source of its rows (None: it is not filled), asked once;
    ``fill``: whether this job should keep the rows of a step that is not.
    """
    sources: dict[StreamNode, Any] = {}
    copies: dict[StreamNode, StreamNode] = {}
    fills: dict[int, Any] = {}
    keeping: list[StreamNode] = []
    for node in _needed(ends, sources, source_of):
        source = sources.get(node)
        if source is not None:
            copies[node] = _reading(node, source)
            continue
        copy = copies[node] = over(node, copies)
        if node.config.cache is not None and fill(node):
            handle = FIRST_HANDLE + len(fills)
            fills[handle] = node.config.cache
            work = CollectStep(handle, keep=True)
            keeping.append(StreamNode("cache", work, node.schema, (StreamEdge(copy),), place=node.place))
    return Kept([*(copies[end] for end in ends), *keeping], fills)


def _needed(
    ends: Sequence[StreamNode], sources: dict[StreamNode, Any], source_of: Callable[[StreamNode], Any]
) -> list[StreamNode]:
    """Every step behind its inputs; nothing of what lies before a step that is filled, whose source is put into ``sources``."""

    def needs_inputs(node: StreamNode) -> bool:
        if node.config.cache is not None:
            sources[node] = source_of(node)
        return sources.get(node) is None

    return reachable(ends, needs_inputs)


def _reading(node: StreamNode, source: Any) -> StreamNode:
    config = StepConfig(slot_sharing_group=node.config.slot_sharing_group, group_place=node.config.group_place)
    return StreamNode(f"cached {node.name}", SourceStep(source), node.schema, place=node.place, config=config)


def over(node: StreamNode, copies: dict[StreamNode, StreamNode]) -> StreamNode:
    """The step itself, or a copy that reads the copies of its inputs."""
    edges = [*node.inputs, *(edge for _, edge in node.sides)]
    if all(copies[edge.source] is edge.source for edge in edges):
        return node
    inputs = tuple(replace(edge, source=copies[edge.source]) for edge in node.inputs)
    sides = tuple((name, replace(edge, source=copies[edge.source])) for name, edge in node.sides)
    return replace(node, inputs=inputs, sides=sides)


def by_spark(ends: Sequence[StreamNode]) -> list[StreamNode] | None:
    """The same ends over the nodes that stand ``instead``. None: no node has one."""
    copies: dict[StreamNode, StreamNode] = {}
    for node in reachable(ends, lambda node: node.instead is None):
        copies[node] = over(node, copies) if node.instead is None else node.instead
    found = [copies[end] for end in ends]
    return None if all(copy is end for copy, end in zip(found, ends, strict=True)) else found
