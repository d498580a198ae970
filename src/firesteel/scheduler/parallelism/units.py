"""The parts of a vertex' inputs that may be cut, laid in one line of units, and the ranges that cuts of that line make.

Units of keyed inputs are the subpartitions they share; of pointwise and rebalanced inputs the (producer,
subpartition) cells, producer by producer. Input follows input, so inputs of different kinds share one line: a
subtask may read the end of one and the beginning of the next, or nothing of some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.parallelism.line import Line
from firesteel.scheduler.parallelism.model import ConsumedResult, Longs
from firesteel.scheduler.parallelism.ranges import (
    bytes_read,
    cell_runs,
    joined,
    shared_ranges,
    subpartition_ranges,
    uncut,
    undivided_ranges,
)
from firesteel.scheduler.parallelism.skew import Division


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Inputs that are cut at the same places: the keyed ones that belong together, or one other input."""

    members: tuple[int, ...]
    by_cell: bool
    weights: Longs
    slices: Longs


class Units:
    """``division``: subpartitions of the only group that are left out of the line, for subtasks of their own, before all others.

    Raises ValueError when an input's sizes are not given in the form its cut needs (see ConsumedResult).
    """

    def __init__(self, inputs: Sequence[ConsumedResult], division: Division | None = None) -> None:
        self._inputs = inputs
        self._division = division
        self._groups = _groups_of(inputs)
        if division is not None:
            self._groups = [_without(group, division) for group in self._groups]
        empty = np.zeros(0, dtype=np.int64)
        self.line = Line(
            np.concatenate([empty, *(g.weights for g in self._groups)]),
            np.concatenate([empty, *(g.slices for g in self._groups)]),
        )

    def largest_in_words(self) -> str:
        """ "subpartition" or "slice": what the largest unit is."""
        largest = max(self._groups, key=lambda g: int(g.weights.max(initial=0)))
        return "slice" if largest.by_cell else "subpartition"

    def slice_bound(self, max_slices: int) -> int | None:
        """Slices one range may have beside what every subtask reads anyway; None if one range may have all."""
        room = max_slices
        for result in self._inputs:
            if result.is_broadcast or result.is_forward:
                room -= (result.num_partitions if result.is_broadcast else 1) * result.num_subpartitions
        return None if self.line.total_slices <= room else room

    def slices_fit(self, bound: int, n: int) -> bool:
        """Can n ranges keep within ``bound`` slices each, whatever their bytes?"""
        return bound >= self.line.largest_slices and self.line.ranges_needed(self.line.total, bound, n) <= n

    def slices_bind(self, cuts: Longs, bound: int | None) -> bool:
        """Is the largest range of these cuts, made within ``bound``, larger than bytes alone would have it?"""
        if bound is None:
            return False
        return int(np.diff(self.line.prefix[cuts]).max()) > self.line.smallest_largest(len(cuts) - 1)

    def ranges(self, cuts: Longs) -> tuple[InputRanges, ...]:
        """The ranges of every input for these boundaries (n + 1 positions in the line), those of divided subpartitions first."""
        if self._division is not None:
            return self._divided_ranges(self._division, cuts)
        found: dict[int, InputRanges] = {}
        begin = 0
        for group in self._groups:
            own = np.clip(cuts - begin, 0, len(group.weights))
            begin += len(group.weights)
            for i in group.members:
                make = cell_runs if group.by_cell else subpartition_ranges
                found[i] = make(self._inputs[i], own)
        n = len(cuts) - 1
        return tuple(found[i] if i in found else uncut(r, n) for i, r in enumerate(self._inputs))

    def _divided_ranges(self, division: Division, cuts: Longs) -> tuple[InputRanges, ...]:
        place, part = division.pairs()
        subpartitions, parts = division.subpartitions[place], division.parts[place]
        n, found = len(place) + len(cuts) - 1, dict[int, InputRanges]()
        for side, i in enumerate(division.members):
            result = self._inputs[i]
            kept = np.delete(np.arange(result.num_subpartitions), division.subpartitions)
            shared = shared_ranges(result, subpartitions, part[:, side], parts[:, side])
            found[i] = joined(shared, undivided_ranges(result, kept, cuts))
        return tuple(found[i] if i in found else uncut(r, n) for i, r in enumerate(self._inputs))

    def sizes(self, cuts: Longs, ranges: Sequence[InputRanges]) -> Longs | None:
        """Plain bytes each subtask reads, broadcasts left out; None where a forward input's sizes are not known."""
        total = np.diff(self.line.prefix[cuts])
        if self._division is not None:
            total = np.concatenate((self._division.bytes_read(), total))
        for result, own in zip(self._inputs, ranges, strict=True):
            if result.is_forward:
                part = bytes_read(result, own)
                if part is None:
                    return None
                total += part
        return total


def _groups_of(inputs: Sequence[ConsumedResult]) -> list[_Group]:
    together = tuple(i for i, r in enumerate(inputs) if r.is_keyed and r.co_partitioned)
    groups: list[_Group] = []
    for i, result in enumerate(inputs):
        if result.is_broadcast or result.is_forward:
            continue
        if not result.is_keyed:
            groups.append(_cells(i, result))
        elif i not in together:
            groups.append(_keyed(inputs, (i,)))
        elif i == together[0]:
            groups.append(_keyed(inputs, together))
    return groups


def _keyed(inputs: Sequence[ConsumedResult], members: tuple[int, ...]) -> _Group:
    width = inputs[members[0]].num_subpartitions
    weights = np.zeros(width, dtype=np.int64)
    for i in members:
        folded = inputs[i].folded()
        if folded is None:
            raise ValueError(f"The sizes of keyed input {i} are not known.")
        weights += folded
    slices = np.full(width, sum(inputs[i].num_partitions for i in members), dtype=np.int64)
    return _Group(members, by_cell=False, weights=weights, slices=slices)


def _without(group: _Group, division: Division) -> _Group:
    """The group without the divided subpartitions."""
    weights, slices = (np.delete(column, division.subpartitions) for column in (group.weights, group.slices))
    return replace(group, weights=weights, slices=slices)


def _cells(index: int, result: ConsumedResult) -> _Group:
    if result.cells is None:
        raise ValueError(f"The sizes of the cells of input {index} are not known.")
    weights = np.asarray(result.cells, dtype=np.int64).ravel()
    return _Group((index,), by_cell=True, weights=weights, slices=np.ones(len(weights), dtype=np.int64))
