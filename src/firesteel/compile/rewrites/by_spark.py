"""A graph in which Spark computes what the engine in our tasks gave up on."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.compile.caching import over
from firesteel.compile.stream_graph import StreamNode, reachable


def by_spark(ends: Sequence[StreamNode]) -> list[StreamNode] | None:
    """The same ends over the nodes that stand ``instead``; None: there are none."""
    copies: dict[StreamNode, StreamNode] = {}
    for node in reachable(ends, lambda node: node.instead is None):
        copies[node] = over(node, copies) if node.instead is None else node.instead
    found = [copies[end] for end in ends]
    return None if all(copy is end for copy, end in zip(found, ends, strict=True)) else found
