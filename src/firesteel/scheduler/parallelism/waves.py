"""Subtasks in waves: of more work than one subtask of each slot may have, cut so that all slots are busy until the end.

A slot that is done with one subtask takes the next one, so that what counts is when the last slot ends. It is reckoned
for some cuts, on slots that are a little faster or slower, as slots are, and with what it costs to start a subtask; the cut that
ends first is taken. Equal sizes in whole waves are good where slots are alike; sizes that fall from wave to wave (factoring,
Hummel 1992) leave little to wait for at the end where they are not, and cost a wave of starts more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Floats
from firesteel.scheduler.parallelism.line import Line
from firesteel.scheduler.parallelism.model import Bounds, Longs

START_SECONDS = 0.014
"""CPU time to start a subtask (docs/benchmarks.md)."""
STARTS_WORTH = 3
"""A subtask has at least so many times as much to do as it costs to start."""
_UNEVEN = 0.1
"""Slots are taken to be up to so much faster or slower than their mean."""
_CLEARLY = 0.99
"""A cut into more subtasks is taken if it ends at this share of the time, or before."""
MOST_RECKONED = 2048
"""Subtasks of a cut that is looked at: with more, the last ones are a small part of all."""
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Waves:
    """``start``: what it costs to start one more subtask; ``worth``: the least it must have to do for that. Plain bytes."""

    slots: int
    start: int
    worth: int

    @staticmethod
    def of(bounds: Bounds, opened: int = 0) -> Waves:
        """``opened``: bytes that each subtask reads once more, or that opening its inputs costs."""
        start = bounds.least_volume // STARTS_WORTH
        if bounds.cost is not None:
            start = int(START_SECONDS / bounds.cost.seconds_per_byte)
        return Waves(bounds.slots, start + opened, max(1, STARTS_WORTH * start + opened))

    def best(  # noqa: PLR0917
        self,
        line: Line,
        cut: Longs,
        others: Iterable[int],
        between: tuple[int, int],
        limit: int,
        max_slices: int | None = None,
    ) -> tuple[Longs, bool]:
        """Returns ``cut``, or another one that clearly ends before it, of two that are alike the first one; and True for one whose later waves are smaller.

        ``others``: numbers of even ranges. ``between``: ranges that the volume asks for, and that there may be. ``limit``: bytes of a
        range; 0: all waves are alike. ``cut`` too where there are so many subtasks, or a single slot (as where nobody knows of any), that it
        hardly matters.
        """
        best, tapers = cut, False
        if self.slots < 2 or len(cut) - 1 > MOST_RECKONED:
            return best, tapers
        even = [line.cut(n, max_slices) for n in others if n != len(cut) - 1]
        tapered = self.tapered(line, *between, limit) if limit and max_slices is None else []
        ends = self.end(np.diff(line.prefix[cut]))
        for candidates, falls in ((even, False), (tapered, True)):
            for other in candidates:
                end = self.end(np.diff(line.prefix[other]))
                if end <= _CLEARLY * ends:
                    best, tapers, ends = other, falls, end
        return best, tapers

    def end(self, sizes: Longs) -> float:
        """The time at which the last of these subtasks ends, the largest one taken first; in bytes that a mean slot gets done."""
        paces = 1.0 + _UNEVEN * (2.0 * (np.arange(1, self.slots + 1) * _GOLDEN % 1.0) - 1.0)
        slots = [(0.0, number, pace) for number, pace in enumerate(paces.tolist())]
        for size in np.sort(sizes)[::-1].tolist():
            at, number, pace = slots[0]
            heapq.heapreplace(slots, (at + (size + self.start) * pace, number, pace))
        return max(at for at, _, _ in slots)

    def tapered(self, line: Line, fewest: int, most: int, limit: int) -> list[Longs]:
        """A cut into whole waves of falling sizes, one wave more than ``fewest`` subtasks need: as many would make the first ones too large
        for a slow slot.

        No range has more than ``limit`` bytes, and there are at most ``most`` of them. None where units are too large for that.
        """
        if self.slots < 2:
            return []
        waves, least = whole_waves(fewest, self.slots) // self.slots + 1, max(self.worth, 2 * line.largest)
        if waves * self.slots > min(most, line.size, MOST_RECKONED):
            return []
        sizes = falling(line.total / self.slots, waves, limit - line.largest, least)
        return [_cut_at(line, np.repeat(sizes, self.slots))] if sizes else []


def whole_waves(subtasks: int, slots: int) -> int:
    """So many subtasks, or as many more as leave no slot idle in the last wave."""
    return -(-subtasks // slots) * slots


def falling(total: float, waves: int, largest: float, smallest: float) -> list[float]:
    """Sizes, one for each wave, that fall from at most ``largest`` to ``smallest``, or a little more, and add up to ``total``.

    As few as can be are ``largest``, and the others fall evenly. Empty: there are none that differ.
    """
    smallest = max(smallest, total - (waves - 1) * largest)
    if waves < 2 or smallest >= largest or waves * smallest >= total:
        return []
    for full in range(waves - 1):
        left = waves - full
        step = 2 * (total - full * largest - left * smallest) / (left * (left - 1))
        if smallest + step * (left - 1) <= largest:
            return [largest] * full + [smallest + step * place for place in range(left - 1, -1, -1)]
    return []


def _cut_at(line: Line, sizes: Floats) -> Longs:
    """Boundaries of ranges of about these sizes, each with a unit at least; no range is larger than its size and a unit."""
    n, size = len(sizes), line.size
    ends = np.searchsorted(line.prefix, np.cumsum(sizes) + 0.5, "right") - 1
    cuts = np.concatenate(([0], ends)).astype(np.int64)
    cuts[-1] = size
    places = np.arange(n + 1)
    cuts = np.maximum.accumulate(cuts - places) + places
    return np.minimum(cuts, size - (n - places))


TASK_DURATION = "task duration"
"""The rule where the time that subtasks take has decided."""
MOST_VOLUMES = 4
"""Times the data volume per task that a subtask of a cheap step may get: what it holds in memory may grow with it."""
MERGED_TARGETS = 2
"""Times the target duration that subtasks of a cheap step take once there are fewer of them: to start a statement costs 50 ms of CPU (docs/benchmarks.md)."""
BUILDS_WORTH = 64
"""Times as many bytes as it hashes again that a subtask has of its own: a byte takes some seven times as long to read and hash as to scan (docs/benchmarks.md)."""


def by_duration(
    bounds: Bounds, volume: int, *, least: int, today: int, fewest: Callable[[], int], seconds_beside: float = 0.0
) -> int:
    """Returns the number of subtasks for ``volume`` bytes; ``today`` where the step's cost is not known, or changes nothing.

    ``least``: subtasks that the volume per task asks for. ``today``: with those that fill idle slots. ``fewest``: gives the fewest
    that stay within MOST_VOLUMES times the volume per task, and all other bounds. ``seconds_beside``: what one more subtask costs to
    read, for which it must have as much to do. The result grows with the cost, and is not bounded from above. A subtask
    has BUILDS_WORTH times as many bytes of its own as it hashes again (``bounds.rebuilt``), unless a slot would stand idle.
    """
    if hashed(bounds) and bounds.target_seconds:
        few = whole_waves(max(volume // most_bytes(bounds), fewest(), 1), bounds.slots)
        if few < today:
            return few
    if bounds.cost is None or not bounds.target_seconds:
        return today
    seconds = bounds.cost.seconds_per_byte * volume
    worth = int(seconds / max(bounds.target_seconds, seconds_beside))
    if worth > today:
        return max(today, min(worth, whole_waves(least, bounds.slots)))
    enough = -int(-seconds // (MERGED_TARGETS * bounds.target_seconds))
    if enough < least:
        return min(today, whole_waves(max(enough, fewest(), 1), bounds.slots))
    return today


def most_bytes(bounds: Bounds) -> int:
    """Bytes that a subtask of a cheap source may get: so many that what it hashes again is a small part of its work."""
    return max(MOST_VOLUMES * bounds.data_volume, BUILDS_WORTH * bounds.rebuilt)


def hashed(bounds: Bounds) -> int:
    """Return the bytes of the build sides if hashing them again is much of a subtask's work; else 0."""
    return bounds.rebuilt if most_bytes(bounds) > MOST_VOLUMES * bounds.data_volume else 0
