"""Scheduling pipelined regions: executions that must run at the same time, the unit of scheduling and of failover.

Each is derived from one logical region (``graph.pipelined_region``). Where an all-to-all edge lies inside, pipelined or
blocking, the whole logical region is one scheduling region; only where all edges inside are pointwise the subtasks are
looked at: those joined by pipelined groups belong together, and so do those that would wait for each other in a circle
(Tarjan). Columns and groups all along: a vertex on its own costs nothing at all, each of its subtasks is a region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints, distinct
from firesteel.model.job_graph import JobGraph
from firesteel.model.pipelined_region import logical_pipelined_regions
from firesteel.model.tarjan import strongly_connected_components
from firesteel.scheduler.topology.groups import EdgeGroups


@dataclass(frozen=True, slots=True)
class InnerEdge:
    """An edge between two vertices of one logical region."""

    producer: int
    groups: EdgeGroups
    pipelined: bool


class RegionBlock:
    """All scheduling regions of one logical region. Within the block they are numbered from 0, by their first subtask.

    ``first``: what to add for a number that is unique in the job.
    """

    def __init__(
        self, number: int, first: int, parallelism: Mapping[int, int], columns: Mapping[int, Ints | None], count: int
    ) -> None:
        """``parallelism``: vertex to its own, in topological order. ``columns``: vertex to the region of each of its
        subtasks; None where subtask ``k`` is of region ``k``. A block of one region needs no columns.
        """
        self.number = number
        self.first = first
        self.count = count
        self.parallelism = dict(parallelism)
        self.vertices = tuple(parallelism)
        self._columns = {vertex: column for vertex, column in columns.items() if column is not None and count > 1}
        self._orders: dict[int, tuple[Ints, Ints]] = {}
        for vertex, column in self._columns.items():
            offsets = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=count))))
            self._orders[vertex] = np.argsort(column, kind="stable"), offsets
        self.kinds = self._kinds()

    @property
    def is_trivial(self) -> bool:
        """Every region is a single subtask of the block's only vertex."""
        return len(self.vertices) == 1 and self.count == self.parallelism[self.vertices[0]]

    @property
    def elements(self) -> int:
        """Returns the count of numbers held."""
        held = sum(len(column) for column in self._columns.values())
        held += sum(len(order) + len(offsets) for order, offsets in self._orders.values())
        return held + (0 if self.kinds is None else len(self.kinds))

    def of(self, vertex: int, subtasks: Ints) -> Ints:
        """The region of each of these subtasks."""
        if self.count == 1:
            return np.zeros(len(subtasks), np.int64)
        column = self._columns.get(vertex)
        return subtasks if column is None else column[subtasks]

    def members(self, regions: Ints) -> dict[int, Ints]:
        """The subtasks (ascending) of these (distinct, ascending) regions by vertex, in topological order."""
        if not len(regions):
            return {}
        found = {vertex: self._members_of(vertex, regions) for vertex in self.vertices}
        return {vertex: subtasks for vertex, subtasks in found.items() if len(subtasks)}

    def sizes(self) -> Ints:
        """Returns the number of subtasks of each region."""
        if self.count == 1:
            return np.array([sum(self.parallelism.values())], np.int64)
        sizes = np.full(self.count, len(self.vertices) - len(self._orders), np.int64)
        for _, offsets in self._orders.values():
            sizes += np.diff(offsets)
        return sizes

    def _members_of(self, vertex: int, regions: Ints) -> Ints:
        if self.count == 1:
            return np.arange(self.parallelism[vertex])
        if vertex not in self._orders:
            return regions
        order, offsets = self._orders[vertex]
        if len(regions) == self.count:
            return np.arange(len(order))
        spans = offsets[regions + 1] - offsets[regions]
        places = np.repeat(offsets[regions] - np.concatenate(([0], np.cumsum(spans[:-1]))), spans)
        return np.sort(order[places + np.arange(len(places))])

    def _kinds(self) -> Ints | None:
        """A number per region, the same where the same vertices take part; None: all take part in every region."""
        takes_part = [np.diff(self._orders[v][1]) > 0 for v in self.vertices if v in self._orders]
        if self.count == 1 or all(part.all() for part in takes_part):
            return None
        return np.unique(np.stack(takes_part, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SchedulingPipelinedRegion:
    """A light view of one region. ``subtasks``: by vertex, in topological order, ascending."""

    number: int
    subtasks: dict[int, Ints]


class SchedulingPipelinedRegions:
    """The regions of all initialised vertices, numbered in the order of their making; a region never changes."""

    def __init__(self, job_graph: JobGraph) -> None:
        self.logical = logical_pipelined_regions(job_graph)
        """In topological order."""
        self.logical_of = [0] * len(job_graph.vertices)
        for number, region in enumerate(self.logical):
            for vertex in region.vertices:
                self.logical_of[vertex] = number
        self.count = 0
        self.blocks: dict[int, RegionBlock] = {}
        """By number of the logical region; of those whose vertices are initialised."""

    @property
    def elements(self) -> int:
        """Returns the count of numbers held: nothing for vertices without pipelined edges, else O(subtasks)."""
        return sum(block.elements for block in self.blocks.values())

    def block(self, vertex: int) -> RegionBlock:
        """The regions that the vertex is in. Raises KeyError before it is initialised."""
        return self.blocks[self.logical_of[vertex]]

    def is_trivial(self, vertex: int) -> bool:
        """Every subtask of the vertex is a region of its own."""
        return self.block(vertex).is_trivial

    def are_joined(self, vertex: int, other: int) -> bool:
        """Returns whether they are of one logical region, so that an edge between them lies inside of it."""
        return self.logical_of[vertex] == self.logical_of[other]

    def of(self, vertex: int, subtasks: Ints) -> Ints:
        """The region of each of these subtasks."""
        block = self.block(vertex)
        return block.first + block.of(vertex, subtasks)

    def members(self, regions: Ints) -> dict[int, Ints]:
        """All subtasks of these regions, ascending, by vertex."""
        found: dict[int, Ints] = {}
        for block in self.blocks.values():
            own = regions[(regions >= block.first) & (regions < block.first + block.count)]
            found |= block.members(distinct(own) - block.first)
        return found

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, region: int) -> SchedulingPipelinedRegion:
        return SchedulingPipelinedRegion(region, self.members(np.array([region])))

    def grow(self, parallelism: Mapping[int, int], inner: Callable[[int], Sequence[InnerEdge]]) -> None:
        """Make the regions of the newly initialised vertices; a logical region is initialised all at once.

        ``parallelism``: of each new vertex. ``inner``: the edges into a vertex from its own logical region.
        Raises ValueError for one of which only some vertices are there.
        """
        for number in sorted({self.logical_of[vertex] for vertex in parallelism}):
            vertices = self.logical[number].vertices
            if any(vertex not in parallelism for vertex in vertices):
                raise ValueError(
                    f"Vertices {vertices} make up a pipelined region, but not all of them are initialised."
                )
            own = {vertex: parallelism[vertex] for vertex in vertices}
            columns, count = _regions_of(own, [edge for vertex in vertices for edge in inner(vertex)])
            self.blocks[number] = RegionBlock(number, self.count, own, columns, count)
            self.count += count


def _regions_of(parallelism: Mapping[int, int], inner: Sequence[InnerEdge]) -> tuple[dict[int, Ints | None], int]:
    """Columns of a :class:`RegionBlock`, and how many regions there are. O(subtasks)."""
    if not inner:
        (n,) = parallelism.values()
        return {}, n
    if any(edge.groups.is_all_to_all for edge in inner):
        return {}, 1
    starts = dict(zip(parallelism, np.cumsum([0, *parallelism.values()]).tolist(), strict=False))
    total = sum(parallelism.values())
    labels = _joined(total, starts, [edge for edge in inner if edge.pipelined])
    labels = _without_circles(labels, starts, [edge for edge in inner if not edge.pipelined])
    columns: dict[int, Ints | None] = {}
    count = int(labels.max()) + 1
    for vertex, n in parallelism.items():
        column = labels[starts[vertex] : starts[vertex] + n]
        columns[vertex] = None if n == count and (column == np.arange(n)).all() else column
    return columns, count


def _joined(total: int, starts: Mapping[int, int], edges: Sequence[InnerEdge]) -> Ints:
    """The component of each subtask over pipelined groups, numbered by their first subtasks."""
    heads, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for edge in edges:
        # The first partition of a group stands for all of it.
        groups = edge.groups
        first = groups.partition_first + starts[edge.producer]
        members, owner = groups.flat_partitions()
        consumers, reader = groups.flat_consumers()
        reads = (groups.partition_end > groups.partition_first)[reader]
        heads += [first[owner], first[reader[reads]]]
        others += [members + starts[edge.producer], consumers[reads] + starts[groups.vertex]]
    return _numbered(_components(total, np.concatenate(heads), np.concatenate(others)))


def _components(total: int, heads: Ints, others: Ints) -> Ints:
    """Connected components, each named by its smallest node: roots hook onto smaller ones until none can."""
    labels = np.arange(total)
    while True:
        a, b = labels[heads], labels[others]
        low, high = np.minimum(a, b), np.maximum(a, b)
        apart = low != high
        if not apart.any():
            return labels
        np.minimum.at(labels, high[apart], low[apart])
        while True:
            shorter = labels[labels]
            if np.array_equal(shorter, labels):
                break
            labels = shorter


def _without_circles(labels: Ints, starts: Mapping[int, int], edges: Sequence[InnerEdge]) -> Ints:
    """Merges regions that wait for each other over blocking groups. A group is one node: no edge is looked at."""
    count = int(labels.max()) + 1
    sources, targets, nodes = list[Ints](), list[Ints](), count
    for edge in edges:
        groups = edge.groups
        members, owner = groups.flat_partitions()
        consumers, reader = groups.flat_consumers()
        producing = labels[members + starts[edge.producer]]
        reading = labels[consumers + starts[groups.vertex]]
        # What a region reads from itself alone tells nothing.
        lowest, highest = np.full(len(groups), count), np.full(len(groups), -1)
        for group, region in ((owner, producing), (reader, reading)):
            np.minimum.at(lowest, group, region)
            np.maximum.at(highest, group, region)
        between = (lowest != highest) & (groups.partition_end > groups.partition_first)
        sources += [producing[between[owner]], nodes + reader[between[reader]]]
        targets += [nodes + owner[between[owner]], reading[between[reader]]]
        nodes += len(groups)
    if not any(len(column) for column in sources):
        return labels
    components = strongly_connected_components(nodes, np.concatenate(sources), np.concatenate(targets))
    return _numbered(components[:count][labels])


def _numbered(labels: Ints) -> Ints:
    """The same partition of nodes, numbered from 0 by the first node of each part."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse.reshape(-1)]
