"""Groups in the place of edges (the blog on O(n) scheduling).

All partitions that have the same consumers form a :class:`ConsumedPartitionGroup`, all subtasks that consume them
the :class:`ConsumerVertexGroup`. An all-to-all edge has one pair, a pointwise edge one per block. Each group counts
its partitions that are not available; an event touches the groups of its partitions and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, distinct
from firesteel.scheduler.kernel.commands import InputRanges

Mask = NDArray[np.bool_]
_NONE, _FIRST, _ONE = np.zeros(0, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64)
_FIRST.flags.writeable = _ONE.flags.writeable = False


@dataclass(frozen=True, slots=True)
class ConsumerVertexGroup:
    """Subtasks ``first`` .. ``end - 1`` of ``vertex``: they consume the same partitions."""

    vertex: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ConsumedPartitionGroup:
    """Partitions ``first`` .. ``end - 1`` of ``dataset``: they have the same consumers."""

    dataset: int
    first: int
    end: int
    unavailable: int
    consumers: ConsumerVertexGroup


class EdgeGroups:
    """All groups of one job edge, as columns; a group is a number. Size O(producers + consumers)."""

    def __init__(
        self,
        dataset: int,
        vertex: int,
        partitions: tuple[Ints, Ints],
        consumers: tuple[Ints, Ints],
        available: Mask,
    ) -> None:
        """``partitions`` and ``consumers``: (first, end) of each group, int64; ``available``: the data set's."""
        self.dataset = dataset
        self.vertex = vertex
        self.inside = False
        """Both ends are of one logical pipelined region: a group may wait for partitions made beside its consumers."""
        self.touched = 0
        """Number of partitions, consumers and groups that events made it look at: for tests of complexity."""
        self.partition_first, self.partition_end = partitions
        self.consumer_first, self.consumer_end = consumers
        present = np.concatenate(([0], np.cumsum(available)))
        spans = self.partition_end - self.partition_first
        self.unavailable: Ints = spans - (present[self.partition_end] - present[self.partition_first])
        self.num_consumers = int(self.consumer_end[-1])
        self._group_of: Ints | None = None
        """Each consumer's group; None: there is one group and it holds everything."""
        if len(spans) > 1 or int(spans[0]) != len(available):
            self._group_of = np.repeat(np.arange(len(spans)), self.consumer_end - self.consumer_first)
            self._index_partitions(spans, len(available))

    @classmethod
    def all_to_all(cls, dataset: int, vertex: int, num_consumers: int, available: Mask) -> EdgeGroups:
        zero = np.zeros(1, np.int64)
        ends = np.array([len(available)], np.int64), np.array([num_consumers], np.int64)
        return cls(dataset, vertex, (zero, ends[0]), (zero, ends[1]), available)

    @classmethod
    def pointwise(cls, dataset: int, vertex: int, ranges: InputRanges, available: Mask) -> EdgeGroups:
        """A group per run of consumers that read the same partitions. One that reads nothing waits for nothing."""
        first, end = _partitions_read(ranges)
        changes = np.flatnonzero((np.diff(first) != 0) | (np.diff(end) != 0)) + 1
        starts = np.concatenate(([0], changes)).astype(np.int64)
        consumers = starts, np.append(changes, ranges.parallelism).astype(np.int64)
        return cls(dataset, vertex, (first[starts], end[starts]), consumers, available)

    def __len__(self) -> int:
        return len(self.unavailable)

    @property
    def is_all_to_all(self) -> bool:
        """One group holds all partitions and all consumers."""
        return self._group_of is None

    def __getitem__(self, group: int) -> ConsumedPartitionGroup:
        consumers = ConsumerVertexGroup(self.vertex, int(self.consumer_first[group]), int(self.consumer_end[group]))
        first, end = int(self.partition_first[group]), int(self.partition_end[group])
        return ConsumedPartitionGroup(self.dataset, first, end, int(self.unavailable[group]), consumers)

    @property
    def elements(self) -> int:
        """Returns the count of numbers held: grows with producers + consumers, never with their product."""
        held = 5 * len(self)
        if self._group_of is not None:
            held += len(self._group_of) + len(self._offsets) + len(self._groups)
        return held

    def became_available(self, partitions: Ints) -> Ints:
        """Count these (distinct) partitions in; returns the groups whose consumers may be able to run now."""
        touched = self._count(partitions, -1)
        return touched if self.inside else touched[self.unavailable[touched] == 0]

    def one_became_available(self, partition: int) -> Ints:
        """:meth:`became_available` of one partition."""
        if self.inside:
            return self.became_available(np.array([partition]))
        if self._group_of is None:
            self.unavailable[0] = missing = self.unavailable.item(0) - 1
            return _NONE if missing else _FIRST
        groups = self._groups[self._offsets.item(partition) : self._offsets.item(partition + 1)]
        if len(groups) != 1:
            return self.became_available(np.array([partition]))
        self.touched += 1
        group = groups.item()
        self.unavailable[group] = missing = self.unavailable.item(group) - 1
        return _NONE if missing else groups

    def became_unavailable(self, partitions: Ints) -> None:
        self._count(partitions, 1)

    def ready(self, subtasks: Ints) -> Mask:
        """Returns a mask of these consumers: True for those that have all they read."""
        self.touched += 1 if self._group_of is None else len(subtasks)
        if self._group_of is None:
            return np.full(len(subtasks), self.unavailable[0] == 0)
        return self.unavailable[self._group_of[subtasks]] == 0

    def group_of(self, subtasks: Ints) -> Ints:
        """The group of each of these consumers."""
        return np.zeros(len(subtasks), np.int64) if self._group_of is None else self._group_of[subtasks]

    def groups_of_consumers(self, subtasks: Ints) -> Ints:
        return self.tally_consumers(subtasks)[0]

    def tally_consumers(self, subtasks: Ints) -> tuple[Ints, Ints]:
        """The groups of these (distinct) consumers, ascending, and how many of them are in each."""
        if self._group_of is None:
            self.touched += 1
            return _FIRST, np.array([len(subtasks)])
        self.touched += len(subtasks)
        if len(subtasks) == 1:
            return self._group_of[subtasks], _ONE
        return np.unique(self._group_of[subtasks], return_counts=True)

    def groups_of_partitions(self, partitions: Ints) -> Ints:
        return self.tally_partitions(partitions)[0]

    def tally_partitions(self, partitions: Ints) -> tuple[Ints, Ints]:
        """The groups of these (distinct) partitions, ascending, and how many of them are in each."""
        if self._group_of is None:
            self.touched += 1
            return _FIRST, np.array([len(partitions)])
        if len(partitions) == 1:
            groups = self._groups[self._offsets[partitions.item()] : self._offsets[partitions.item() + 1]]
            self.touched += len(groups)
            return groups, _ONE
        memberships = self._groups[_expand_flat(self._offsets[partitions], self._offsets[partitions + 1])]
        self.touched += len(memberships)
        return np.unique(memberships, return_counts=True)

    def partitions(self, groups: Ints) -> Ints:
        return self._expanded(self.partition_first[groups], self.partition_end[groups])

    def partitions_with_repeats(self, groups: Ints) -> Ints:
        """One that is in several of these groups comes several times."""
        found = _expand_flat(self.partition_first[groups], self.partition_end[groups])
        self.touched += len(found)
        return found

    def consumers(self, groups: Ints) -> Ints:
        return self._expanded(self.consumer_first[groups], self.consumer_end[groups])

    def flat_partitions(self) -> tuple[Ints, Ints]:
        """All pairs of a partition and a group that holds it, by group: O(producers + consumers)."""
        spans = self.partition_end - self.partition_first
        return _expand_flat(self.partition_first, self.partition_end), np.repeat(np.arange(len(self)), spans)

    def flat_consumers(self) -> tuple[Ints, Ints]:
        """Every consumer, and its group."""
        return np.arange(self.num_consumers), self.group_of(np.arange(self.num_consumers))

    def groups_per_partition(self, num_partitions: int) -> Ints:
        """In how many groups each partition is."""
        return np.ones(num_partitions, np.int64) if self._group_of is None else np.diff(self._offsets)

    def _count(self, partitions: Ints, step: int) -> Ints:
        groups, counts = self.tally_partitions(partitions)
        self.unavailable[groups] += step * counts
        return groups

    def _expanded(self, first: Ints, end: Ints) -> Ints:
        """Distinct numbers of the half-open intervals."""
        found = np.arange(first[0], end[0]) if len(first) == 1 else distinct(_expand_flat(first, end))
        self.touched += len(found)
        return found

    def _index_partitions(self, spans: Ints, num_partitions: int) -> None:
        """Partition to its groups, in compressed rows: neighbouring blocks share at most their border."""
        members = _expand_flat(self.partition_first, self.partition_end)
        groups = np.repeat(np.arange(len(spans)), spans)
        self._groups = groups[np.argsort(members, kind="stable")]
        self._offsets = np.concatenate(([0], np.cumsum(np.bincount(members, minlength=num_partitions))))


def _partitions_read(ranges: InputRanges) -> tuple[Ints, Ints]:
    """(first, end) partition of each subtask's rectangles; (0, 0) for one that reads nothing."""
    first, end = np.zeros((2, ranges.parallelism), np.int64)
    busy = np.flatnonzero(np.diff(ranges.offsets))
    if len(busy):
        starts = ranges.offsets[busy]
        first[busy] = np.minimum.reduceat(ranges.rects[:, 0], starts)
        end[busy] = np.maximum.reduceat(ranges.rects[:, 1], starts)
    return first, end


def _expand_flat(first: Ints, end: Ints) -> Ints:
    spans = end - first
    total = int(spans.sum())
    return np.repeat(end - np.cumsum(spans), spans) + np.arange(total)
