"""Filters and projections behind a union moved into its branches, where they need no exchange and can go on into the sources.

Moved is a step that only evaluates expressions, that nobody has set anything on, and that every branch can take into the
task that makes its rows. Each row still meets the very same expressions once, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firesteel.compile.stream_graph import (
    ChainedStep,
    Chaining,
    StepConfig,
    StreamEdge,
    StreamNode,
    UnionStep,
    reachable,
)
from firesteel.model.job_graph import ShipStrategy

Readers = Mapping[StreamNode, list[tuple[StreamNode, StreamEdge]]]
_POINTWISE = (ShipStrategy.FORWARD, ShipStrategy.RESCALE)
_MOST_BRANCHES = 16
"""A union of more streams keeps what is behind it: every branch would get a copy of its own."""


def below_unions(ends: Sequence[StreamNode], group_of: Mapping[StreamNode, str]) -> list[StreamNode]:
    """The ends of the same job in which expressions behind unions are evaluated before them. ``group_of``: the slot sharing
    group of each step."""
    nodes = reachable(ends)
    readers: dict[StreamNode, list[tuple[StreamNode, StreamEdge]]] = {}
    for node in nodes:
        for edge in (*node.inputs, *(e for _, e in node.sides)):
            readers.setdefault(edge.source, []).append((node, edge))
    moved: dict[StreamNode, StreamNode] = {}
    branches: dict[StreamNode, list[StreamEdge]] = {}
    """Of unions whose branches take expressions in: those branches, of unions of unions all of them."""
    for node in nodes:
        copy = moved[node] = _over(node, moved)
        if isinstance(node.work, UnionStep):
            found = _branches(node, moved, branches, readers, group_of)
            if found is not None:
                branches[node] = found
        elif _only_expressions(node) and _read_freely(node, readers):
            union = node.inputs[0].source
            if union in branches and len(readers[union]) == 1:
                edges = branches[node] = [StreamEdge(_on(edge, copy)) for edge in branches[union]]
                moved[node] = StreamNode("union", UnionStep(), node.schema, tuple(edges), place=union.place)
    return [moved[end] for end in ends]


def _over(node: StreamNode, moved: Mapping[StreamNode, StreamNode]) -> StreamNode:
    """The step itself, or a copy that reads what its inputs have become."""
    if all(moved[e.source] is e.source for e in (*node.inputs, *(e for _, e in node.sides))):
        return node
    inputs = tuple(replace(edge, source=moved[edge.source]) for edge in node.inputs)
    sides = tuple((name, replace(edge, source=moved[edge.source])) for name, edge in node.sides)
    return replace(node, inputs=inputs, sides=sides)


def _only_expressions(node: StreamNode) -> bool:
    return only_expressions(node) and node.config == StepConfig() and not node.sides and node.inputs[0].ship is None


def only_expressions(node: StreamNode) -> bool:
    """The step computes columns or chooses rows by expressions alone."""
    work = node.work
    return isinstance(work, ChainedStep) and any(
        one is not None for one in (work.projection, work.filter, work.selection)
    )


def _read_freely(node: StreamNode, readers: Readers) -> bool:
    """True if no reader is tied to the subtasks of the step, as forward() ties it."""
    return all(edge.ship not in _POINTWISE for _, edge in readers.get(node, ()))


def _branches(
    union: StreamNode,
    moved: Mapping[StreamNode, StreamNode],
    branches: Mapping[StreamNode, list[StreamEdge]],
    readers: Readers,
    group_of: Mapping[StreamNode, str],
) -> list[StreamEdge] | None:
    """None where one of them would need a task of its own for the step, or there are too many."""
    found: list[StreamEdge] = []
    for edge in union.inputs:
        source = edge.source
        if edge.ship is not None or len(readers[source]) != 1 or len(found) >= _MOST_BRANCHES:
            return None
        if source in branches:
            found += branches[source]
        elif isinstance(source.work, UnionStep) or not _takes_in(source):
            return None
        else:
            found.append(StreamEdge(moved[source]))
    alike = len({group_of[edge.source] for edge in union.inputs}) == 1
    return found if alike and len(found) <= _MOST_BRANCHES else None


def _takes_in(source: StreamNode) -> bool:
    """True if a step that nothing is set on is chained to this one."""
    return source.config.chaining is not Chaining.NEVER and source.config.cache is None


def _on(edge: StreamEdge, node: StreamNode) -> StreamNode:
    """The step on one of the branches; in as many subtasks, for it is chained there."""
    return replace(node, inputs=(edge,), config=StepConfig(parallelism=edge.source.config.parallelism))
