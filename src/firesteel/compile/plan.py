"""The stream graph made ready for fusing: unions dissolved into their consumers, reads per step counted.

As in Flink a union is not an operator: whoever reads it reads its inputs, each by the partitioning asked for on the union.
Only what must be *one* result (a side input, a collect) makes it a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from firesteel.compile.stream_graph import (
    ChainedStep,
    CollectStep,
    KeyedStep,
    StreamEdge,
    StreamNode,
    UnionStep,
    Work,
    reachable,
)
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.order import Order
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP
from firesteel.task.program import Combiner

MAX_UNITED = 64
"""A union of more streams than these becomes a step of its own (unions of unions would grow beyond all bounds)."""


@dataclass(slots=True, eq=False)
class Feed:
    """One edge between planned steps. ``ship`` None: nobody asked for a partitioning."""

    source: PlannedStep
    ship: ShipStrategy | None
    keys: tuple[str, ...]
    combiner: Combiner | None
    schema: pa.Schema
    order: Order | None = None
    routed: bool = False
    """It carries the rows that the step's function could not do."""


@dataclass(slots=True, eq=False)
class PlannedStep:
    node: StreamNode
    work: Work
    schema: pa.Schema
    inputs: list[list[Feed]] = field(default_factory=list)
    """Per input its feeds; several: they were united."""
    sides: list[tuple[str, Feed]] = field(default_factory=list)
    group: str = DEFAULT_SLOT_SHARING_GROUP
    """The name of its slot sharing group."""
    reads: int = 0
    """The number of feeds that read its rows."""
    route: int | None = None
    """The number under which it hands over rows that its function could not do; None: nobody reads them."""
    hashed: tuple[str, ...] | None = None
    """Of a keyed step that has been fused: the columns by whose hash, in this order, its rows lie. None: by none known."""

    @property
    def feeds(self) -> list[Feed]:
        return [feed for feeds in self.inputs for feed in feeds]

    @property
    def is_global(self) -> bool:
        """Behind a global partitioning: parallelism 1, whatever anybody set."""
        return any(feed.ship is ShipStrategy.GLOBAL for feed in self.feeds)

    @property
    def is_ranged(self) -> bool:
        """Behind an exchange by ranges: how its rows lie in subtasks means something to who reads them."""
        return any(feed.ship is ShipStrategy.RANGE for feed in self.feeds)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The optimiser's replacement of a step: other work and schema, or (``work`` None) nothing: its input takes its place."""

    work: Work | None
    schema: pa.Schema


def plan(
    ends: Iterable[StreamNode], rewrites: Mapping[StreamNode, Rewrite], group_of: Mapping[StreamNode, str]
) -> list[PlannedStep]:
    """All steps that the ``ends`` need, every step behind its inputs. ``group_of``: the slot sharing group of each."""
    return _Planner(rewrites, group_of).plan(reachable(ends))


class _Planner:
    def __init__(self, rewrites: Mapping[StreamNode, Rewrite], group_of: Mapping[StreamNode, str]) -> None:
        self._rewrites = rewrites
        self._group_of = group_of
        self._steps: dict[StreamNode, PlannedStep] = {}
        self._order: list[PlannedStep] = []
        self._width: dict[StreamNode, int] = {}
        """Of each union: how many streams it comes down to."""
        self._routes = 0

    def plan(self, nodes: list[StreamNode]) -> list[PlannedStep]:
        for node in nodes:
            rewrite = self._rewrites.get(node)
            if rewrite is not None and rewrite.work is None:
                self._steps[node] = self._steps[node.inputs[0].source]
            elif isinstance(node.work, UnionStep):
                self._width[node] = sum(self._width.get(e.source, 1) for e in node.inputs)
                if self._width[node] > MAX_UNITED:
                    self._add_union(node)
            else:
                whole = isinstance(node.work, CollectStep)
                inputs = [[self._whole(e)] if whole else self._parts(e) for e in node.inputs]
                self._add(node, inputs, rewrite)
        return self._order

    def _add(self, node: StreamNode, inputs: list[list[Feed]], rewrite: Rewrite | None = None) -> PlannedStep:
        work, schema = (node.work, node.schema) if rewrite is None else (rewrite.work or node.work, rewrite.schema)
        sides = [(name, self._whole(edge)) for name, edge in node.sides]
        step = PlannedStep(node, work, schema, inputs, sides, self._group_of[node])
        for feed in [*step.feeds, *(feed for _, feed in step.sides)]:
            feed.source.reads += not feed.routed
            if feed.routed and feed.source.route is None:
                feed.source.route = self._routes
                self._routes += 1
        self._steps[node] = step
        self._order.append(step)
        return step

    def _parts(self, edge: StreamEdge) -> list[Feed]:
        """The feeds of an edge; those of a union's inputs, if it reads one.

        A RANGE edge takes a union as one: ranges are decided from all rows that are parted by them.
        """
        if edge.source in self._steps or edge.ship is ShipStrategy.RANGE:
            return [self._whole(edge)]
        parts: list[Feed] = []
        for inner in edge.source.inputs:
            ship = inner.ship if edge.ship is None else edge.ship
            parts += self._parts(StreamEdge(inner.source, ship, edge.keys, edge.combiner, edge.combined))
        return parts

    def _whole(self, edge: StreamEdge) -> Feed:
        """The one feed of an edge; a union is made a step."""
        if edge.source not in self._steps:
            self._add_union(edge.source)
        return self._feed(edge, self._steps[edge.source])

    def _add_union(self, node: StreamNode) -> None:
        self._add(node, [[f for e in node.inputs for f in self._parts(e)]])
        self._width[node] = 1

    @staticmethod
    def _feed(edge: StreamEdge, source: PlannedStep) -> Feed:
        schema = source.schema if edge.combined is None else edge.combined
        if edge.routed:
            _check_routed(edge.source, source)
        return Feed(source, edge.ship, edge.keys, edge.combiner, schema, edge.order, edge.routed)


def _check_routed(node: StreamNode, step: PlannedStep) -> None:
    if node.config.cache is not None or not isinstance(step.work, ChainedStep | KeyedStep):
        raise UsageError(
            f"The errors of {step.node} cannot be read while its rows are cached: they come with its rows, and are computed with them.",
            hint="cache() a step behind it, such as select(...), or the stream of errors.",
        )
