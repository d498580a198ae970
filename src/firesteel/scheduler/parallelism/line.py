"""Units in a row, cut into contiguous ranges: the optimisation behind every by-bytes decision.

A unit is what no range may split: a subpartition of keyed inputs, a (producer, subpartition) cell, a source's split.
All sums are exact integers. Walks jump from range to range by bisection, so a cut costs
O(ranges x log(units) x tries), not O(units) per try; where ranges have few units each, all jumps are looked up at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from firesteel.errors import UsageError
from firesteel.scheduler.parallelism.model import Longs

_MOST = 1 << 62
_DENSE = 16
"""Units per range up to which looking up all jumps beats bisecting for each range."""


def check_sizes(sizes: ArrayLike) -> None:
    """Raises UsageError for negative sizes and for sums of 4 EiB and more, which int64 arithmetic could not carry."""
    values = np.asarray(sizes)
    if values.size and values.min() < 0:
        raise UsageError(f"A size of {values.min()} bytes is negative.", hint="Sizes are whole numbers from 0.")
    if float(values.sum(dtype=np.float64)) >= _MOST:
        raise UsageError(
            "The inputs are said to hold 4 EiB or more, which cannot be added up.", hint="Check the sizes."
        )


def prefix_sums(weights: ArrayLike) -> Longs:
    """Sums of the first 0, 1, 2, ... weights: int64, one more than the weights."""
    values = np.asarray(weights, dtype=np.int64).ravel()
    sums = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


class Line:
    """``weights``: bytes per unit. ``slices``: slices a reader opens for each unit (None: nobody counts them).

    Where ``max_slices`` is given below, no range has more slices than that; it must be at least ``largest_slices``.
    """

    def __init__(self, weights: ArrayLike, slices: ArrayLike | None = None) -> None:
        self.prefix = prefix_sums(weights)
        self.slice_prefix = None if slices is None else prefix_sums(slices)
        self.size = len(self.prefix) - 1
        self.total = int(self.prefix[-1])
        self.largest = int(np.diff(self.prefix).max()) if self.size else 0
        self._sums: list[int] = self.prefix.tolist()
        self._slices: list[int] = [] if self.slice_prefix is None else self.slice_prefix.tolist()

    @property
    def total_slices(self) -> int:
        return self._slices[-1] if self._slices else 0

    @property
    def largest_slices(self) -> int:
        return 0 if self.slice_prefix is None or not self.size else int(np.diff(self.slice_prefix).max())

    def ranges_needed(self, limit: int, max_slices: int | None, at_most: int) -> int:
        """Fewest contiguous ranges of at most ``limit`` bytes (at least ``largest``); ``at_most + 1`` if more."""
        ends = self._cover(limit, max_slices, at_most)
        return len(ends) if not self.size or ends[-1] == self.size else at_most + 1

    def cut(self, n: int, max_slices: int | None = None, largest: int | None = None) -> Longs:
        """Boundaries (int64, n + 1) of n contiguous ranges whose largest is as small as can be.

        Among those, every range has a unit (the last ones are empty if there are fewer units than ranges), each is
        near the mean of what is left, and runs of empty units are shared out by number. ``max_slices`` must be
        attainable with n ranges. ``largest``: ``smallest_largest`` of the same arguments, where it is known.
        """
        if self.size <= n:
            return np.minimum(np.arange(n + 1, dtype=np.int64), self.size)
        return self._spread(n, self.smallest_largest(n, max_slices) if largest is None else largest, max_slices)

    def smallest_largest(self, n: int, max_slices: int | None = None) -> int:
        """Bytes of the largest range of the best cut into n ranges; same conditions as ``cut``."""
        if self.size <= n:
            return self.largest
        # Bisection over sums that ranges really have.
        mean = -(-self.total // n)
        low = max(mean, self.largest)
        # A greedy range is closed only above limit - largest, so mean + largest always suffices.
        high = self.total if max_slices is not None else min(self.total, mean + self.largest)
        while low < high:
            limit = (low + high) // 2
            ends = np.array(self._cover(limit, max_slices, n), dtype=np.int64)
            starts = np.concatenate(([0], ends[:-1]))
            if ends[-1] == self.size:
                high = int((self.prefix[ends] - self.prefix[starts]).max())
            else:
                # Below the next sum at which some range would have taken one unit more, the walk stays the same.
                next_sums = self.prefix[ends + 1] - self.prefix[starts]
                low = int(next_sums[next_sums > limit].min())
        return low

    def _cover(self, limit: int, max_slices: int | None, at_most: int) -> list[int]:
        """Ends of the ranges of a greedy walk, which uses the fewest ranges; stops after ``at_most``."""
        reach, size = self._reach(limit, max_slices, at_most), self.size
        ends: list[int] = []
        position = 0
        while position < size and len(ends) < at_most:
            position = reach(position)
            ends.append(position)
        return ends

    def _reach(self, limit: int, max_slices: int | None, ranges: int) -> Callable[[int], int]:
        """Returns a function from the position at which a range begins to the one at which the largest such range ends.

        With many ranges it is cheaper to look all positions up at once than each one in its turn.
        """
        sums, slices = self._sums, self._slices
        if self.size <= _DENSE * ranges:
            ends = np.searchsorted(self.prefix, self.prefix + min(limit, self.total), "right") - 1
            if max_slices is not None and self.slice_prefix is not None:
                bounded = self.slice_prefix + min(max_slices, self.total_slices)
                ends = np.minimum(ends, np.searchsorted(self.slice_prefix, bounded, "right") - 1)
            return ends.tolist().__getitem__

        def end(position: int) -> int:
            found = bisect_right(sums, sums[position] + limit, position + 1) - 1
            if max_slices is None:
                return found
            return min(found, bisect_right(slices, slices[position] + max_slices, position + 1) - 1)

        return end

    def _reach_back(self, limit: int, max_slices: int | None, ranges: int) -> Callable[[int], int]:
        """Returns a function from the position at which a range ends to the one at which the largest such range begins."""
        sums, slices = self._sums, self._slices
        if self.size <= _DENSE * ranges:
            starts = np.searchsorted(self.prefix, self.prefix - min(limit, self.total), "left")
            if max_slices is not None and self.slice_prefix is not None:
                bounded = self.slice_prefix - min(max_slices, self.total_slices)
                starts = np.maximum(starts, np.searchsorted(self.slice_prefix, bounded, "left"))
            return starts.tolist().__getitem__

        def start(position: int) -> int:
            found = bisect_left(sums, sums[position] - limit, 0, position)
            if max_slices is None:
                return found
            return max(found, bisect_left(slices, slices[position] - max_slices, 0, position))

        return start

    def _earliest(self, n: int, limit: int, max_slices: int | None) -> list[int]:
        """Earliest position of each boundary from which the ranges after it still reach the end."""
        earliest = [0] * n + [self.size]
        position, reach_back = self.size, self._reach_back(limit, max_slices, n)
        for k in range(n - 1, 0, -1):
            earliest[k] = position = reach_back(position)
            if not position:
                break
        return earliest

    def _spread(self, n: int, limit: int, max_slices: int | None) -> Longs:
        size, reach = self.size, self._reach(limit, max_slices, n)
        earliest = self._earliest(n, limit, max_slices)
        cuts = [0]
        at = 0
        for k in range(1, n):
            low, high = max(earliest[k], at + 1), min(reach(at), size - (n - k))
            at = self._nearest(at, n - k + 1, low, high)
            cuts.append(at)
        cuts.append(size)
        return np.array(cuts, dtype=np.int64)

    def _nearest(self, start: int, ranges_left: int, low: int, high: int) -> int:
        """The end in [low, high] whose range is nearest to the mean of what is left from ``start``."""
        sums = self._sums
        target = sums[start] + (self.total - sums[start]) // ranges_left
        end = min(bisect_left(sums, target, low, high + 1), high)
        if end > low and target - sums[end - 1] < sums[end] - target:
            end -= 1
        first = bisect_left(sums, sums[end], low, end + 1)
        last = bisect_right(sums, sums[end], end, high + 1) - 1
        return min(max(start + (self.size - start) // ranges_left, first), last)
