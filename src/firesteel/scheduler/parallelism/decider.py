"""Decides how parallel a vertex is and which parts of its inputs each subtask reads (FLIP-187).

Two ways to cut, by option. *By count* is the seed's formula. *By bytes* lays everything that may be cut in one line
of units (``units``) and takes the fewest contiguous runs that stay within the limit, or, where the bounds allow too few
for that, the fewest whose largest is as small as with the most; for that number, the runs whose largest is as small as can be.
Heavy subpartitions of a join are divided before (``skew``), and what is left is cut so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.decisions import Sized, Undivided, WholeBecause
from firesteel.scheduler.parallelism.bounds import decided_as_before
from firesteel.scheduler.parallelism.line import Line, check_sizes
from firesteel.scheduler.parallelism.model import (
    MOST_SUBTASKS,
    Bounds,
    ConsumedResult,
    Longs,
    VertexPlan,
    closest_power_of_two,
)
from firesteel.scheduler.parallelism.ranges import bytes_read, count_ranges, slices_read
from firesteel.scheduler.parallelism.replay import TAPERED, remembered
from firesteel.scheduler.parallelism.skew import NO_SKEW, Division, Skew, skew_of
from firesteel.scheduler.parallelism.units import Units
from firesteel.scheduler.parallelism.waves import (
    MOST_VOLUMES,
    TASK_DURATION,
    Waves,
    by_duration,
    hashed,
    whole_waves,
)

BYTES_PER_OBJECT = 16 << 10
"""Some 0.2 ms, which opening one producer's object takes, in bytes that are read and aggregated meanwhile (docs/benchmarks.md)."""
SECONDS_PER_BYTE = 0.2e-3 / BYTES_PER_OBJECT
"""By the same measure: the time to read a byte of an exchange once more."""
FILES = "files"
"""The rule where subpartitions were made to hold what makes a file, and each is a subtask."""
IDLE_SLOTS = "idle slots"
"""The rule where there are more subtasks than the volume asks for, so that no slot stands idle."""


@dataclass(frozen=True, slots=True)
class _Volume:
    """The bytes of all inputs and what a subtask may have of them. ``limit`` is V', the volume less the discount."""

    non_broadcast: int
    broadcast: int
    volume: int

    @property
    def limit(self) -> int:
        return max(1, (2 * self.volume - min(2 * self.broadcast, self.volume)) // 2)

    def needed(self) -> int:
        """ceil(non-broadcast / (V - min(broadcast, V * 0.5))), in exact integers."""
        return -(-2 * self.non_broadcast // (2 * self.volume - min(2 * self.broadcast, self.volume)))


@dataclass(frozen=True, slots=True)
class _Cut:
    """The outcome for one vertex: its parallelism, the ranges, and why."""

    parallelism: int
    ranges: tuple[InputRanges, ...]
    sizes: Longs | None
    """Plain bytes per subtask, broadcasts left out; None if unknown."""
    rule: str
    bounds: list[str]
    skew: Skew = NO_SKEW
    needed: int = 0
    rounded: int = 0
    """As in ``Sized``."""


def decide_vertex(inputs: Sequence[ConsumedResult], bounds: Bounds) -> VertexPlan:
    """Parallelism and input ranges of a vertex whose consumed results are all finished.

    ``max_slices`` makes more subtasks where that helps; where the maximum parallelism (or a fixed one) does not
    allow it, the bound is left out and the decision says so. A vertex whose cuttable inputs are all GLOBAL is one subtask,
    whatever the minimum. Raises UsageError when the request cannot be met (bounds that exclude each other, keyed
    inputs with different numbers of subpartitions, forward inputs that disagree).
    """
    if not inputs:
        raise UsageError("A step without inputs has nothing to be decided from.", hint="Give at least one input.")
    _check(inputs, bounds)
    before = decided_as_before(bounds, lambda free: decide_vertex(inputs, free))
    if before is not None:
        return before
    volume = _Volume(
        non_broadcast=sum(_bytes_of(r) for r in inputs if not r.is_broadcast),
        broadcast=sum(_bytes_of(r) for r in inputs if r.is_broadcast),
        volume=bounds.data_volume,
    )
    cut = _cut(inputs, bounds, volume)
    division = cut.skew.division
    if division is not None and cut.sizes is not None and cut.sizes.max() >= division.largest:
        # What is left of the subtasks has as much to read, as few are allowed.
        whole = _cut(inputs, replace(bounds, divides=False), volume)
        cut = replace(whole, skew=Skew(None, Undivided(why=WholeBecause.AS_MUCH)))
    return _plan(inputs, bounds, volume, cut)


def _cut(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> _Cut:
    given = _given_parallelism(inputs, bounds)
    if given is not None:
        return _cut_given(inputs, bounds, volume, *given)
    low, high = bounds.interval()
    if all(r.is_broadcast for r in inputs):
        return _by_count(inputs, low, bounds.cut, bounds.bound_hit(1))
    if bounds.cut == "by-count":
        needed = volume.needed()
        wanted = closest_power_of_two(needed)
        cut = _by_count(inputs, min(max(wanted, low), high), bounds.cut, bounds.bound_hit(wanted))
        return replace(cut, needed=needed, rounded=wanted)
    apart = _cut_apart(inputs, (low, high)) if bounds.apart else None
    return apart or _cut_by_bytes(inputs, bounds, volume)


def _cut_apart(inputs: Sequence[ConsumedResult], interval: tuple[int, int]) -> _Cut | None:
    """A subtask for each subpartition that has anything; None: these are too many or too few."""
    units = Units(inputs)
    there = np.flatnonzero(np.diff(units.line.prefix))
    if not interval[0] <= len(there) <= interval[1]:
        return None
    return _by_bytes(units, np.array([0, *there[1:], units.line.size], np.int64), FILES, [])


def _given_parallelism(inputs: Sequence[ConsumedResult], bounds: Bounds) -> tuple[int, str] | None:
    """A parallelism that is not ours to choose, and its rule; None if it is."""
    forward = {r.num_partitions for r in inputs if r.is_forward}
    if len(forward) > 1 or (forward and bounds.fixed is not None and bounds.fixed not in forward):
        counts = ", ".join(str(n) for n in sorted(forward))
        wanted = "" if bounds.fixed is None else f", but its parallelism is fixed to {bounds.fixed}"
        raise UsageError(
            f"The step's forward inputs have {counts} partitions{wanted}.",
            hint="Forward needs equal parallelism on both sides: use rescale or rebalance instead.",
        )
    if bounds.fixed is not None:
        return bounds.fixed, bounds.fixed_rule
    if forward:
        return forward.pop(), "forward group"
    if all(r.ship is ShipStrategy.GLOBAL or r.is_broadcast for r in inputs) and not all(r.is_broadcast for r in inputs):
        return 1, "global"
    return None


def _cut_given(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, n: int, rule: str) -> _Cut:
    if n < 1:
        raise UsageError(f"The parallelism {n} is below 1.", hint="Set a parallelism of at least 1.")
    _check_parallelism(n)
    if bounds.cut == "by-count":
        return _by_count(inputs, n, rule, [])
    skew = _skew(inputs, bounds, volume, n, n)
    units, words = Units(inputs, skew.division), list[str]()
    left = n - skew.num_subtasks
    max_slices = units.slice_bound(bounds.max_slices)
    if max_slices is not None and not units.slices_fit(max_slices, left):
        words.append(_slices_left_out(bounds, f"with parallelism {n}"))
        max_slices = None
    cuts = units.line.cut(left, max_slices)
    if units.slices_bind(cuts, max_slices):
        words.append(f"max-slices-per-subtask {bounds.max_slices}")
    return _by_bytes(units, cuts, rule, words, skew)


def _skew(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, n: int, high: int) -> Skew:
    """For ``n`` subtasks, that should get equal shares, but no less than makes a subtask worth its start, or its volume. A bound of
    slices that up to ``high`` subtasks could keep is kept."""
    if not bounds.divides:
        return NO_SKEW
    target = max(volume.non_broadcast // n, min(_worth(inputs, bounds, volume), volume.limit))
    skew = skew_of(inputs, n, target, bounds.slots)
    if skew.division is not None and _takes_slices_room(inputs, skew.division, bounds, high):
        return Skew(None, Undivided(why=WholeBecause.SLICES))
    return skew


def _takes_slices_room(inputs: Sequence[ConsumedResult], division: Division, bounds: Bounds, high: int) -> bool:
    """Returns True if the bound of slices could be kept within ``high`` subtasks without the division, and cannot be beside it."""
    each = sum(inputs[i].num_partitions for i in division.members)
    beside = sum(r.num_partitions * r.num_subpartitions for r in inputs if r.is_broadcast)
    together = (bounds.max_slices - beside) // each
    """Subpartitions that one subtask may have."""
    units = inputs[division.members[0]].num_subpartitions
    if together < 1 or -(-units // together) > high:
        return False
    return -(-(units - len(division.subpartitions)) // together) > high - division.num_subtasks


def _cut_by_bytes(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> _Cut:
    """As many subtasks as the volume and the slots ask for, as if bytes could be cut anywhere; and if then a subpartition of a join is
    too heavy, it is divided."""
    low, high = bounds.interval()
    needed = min(max(volume.needed(), low), high)
    most = _in_whole_waves(needed, high, bounds, volume.non_broadcast // _worth(inputs, bounds, volume))
    skew = _skew(inputs, bounds, volume, most, high)
    if skew.division is None:
        return replace(_cut_whole(inputs, bounds, volume), skew=skew)
    cut = _cut_beside(Units(inputs, skew.division), bounds, volume, skew, most)
    if most > needed:
        return replace(cut, rule=IDLE_SLOTS, needed=needed)
    if cut.parallelism > needed:
        return replace(cut, needed=needed)
    return replace(cut, bounds=bounds.bound_hit(volume.needed()) + cut.bounds)


def _cut_beside(units: Units, bounds: Bounds, volume: _Volume, skew: Skew, most: int) -> _Cut:
    """Cuts what the division leaves: into ``most`` subtasks in all, or as many more as keep the volume and the slices; into fewer where
    they would be smaller than the divided ones, and within the volume."""
    assert skew.division is not None
    low, high = bounds.interval()
    line, own, words = units.line, skew.num_subtasks, list[str]()
    if line.largest > volume.limit:
        words.append(f"largest subpartition left {format_bytes(line.largest)}")
    max_slices, slice_words = _slices_met(units, bounds, high - own)
    least = max(low - own, min(line.size, 1))
    within = max(volume.limit, line.largest)
    least = max(least, min(line.ranges_needed(within, max_slices, high - own), high - own))
    largest = line.smallest_largest(max(most - own, least), max_slices)
    largest = max(largest, min(skew.division.each, volume.limit))
    left = max(line.ranges_needed(largest, max_slices, max(most - own, least)), least)
    _check_parallelism(own + left)
    return _by_bytes(units, line.cut(left, max_slices), bounds.cut, words + slice_words, skew)


def _slices_met(units: Units, bounds: Bounds, high: int) -> tuple[int | None, list[str]]:
    """The bound of slices to cut with (None: it does not bind, or cannot be met by so many subtasks at most), and words."""
    max_slices = units.slice_bound(bounds.max_slices)
    if max_slices is None or not units.line.total or units.slices_fit(max_slices, high):
        return max_slices if units.line.total else None, []
    where = (
        "by any parallelism" if max_slices < units.line.largest_slices else f"within parallelism {bounds.interval()[1]}"
    )
    return None, [_slices_left_out(bounds, where)]


def _cut_whole(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> _Cut:
    """Cuts by bytes, and no subpartition is divided."""
    units, words = Units(inputs), list[str]()
    line = units.line
    low, high = bounds.interval()
    limit = max(volume.limit, line.largest)
    if limit > volume.limit:
        words.append(f"largest {units.largest_in_words()} {format_bytes(limit)}")
    by_volume = line.ranges_needed(limit, None, high) if line.total else 1
    wanted, max_slices, slice_words = _with_slices(units, bounds, limit, by_volume)
    n = least = most = timed = min(max(wanted, low), high)
    top = min(high, line.size)
    bound, largest = bounds.bound_hit(wanted), None
    rule = bounds.cut
    if wanted <= high:
        most = _in_whole_waves(least, top, bounds, volume.non_broadcast // _worth(inputs, bounds, volume))
        fewest = partial(_fewest_in_memory, line, MOST_VOLUMES * max(limit, bounds.rebuilt), max_slices, (low, least))
        timed = min(_by_duration(inputs, bounds, volume, (least, most), fewest), max(top, most))
        if timed != least:
            n, largest = _fewest(line, min(least, timed), timed, max_slices)
    elif not slice_words:  # where slices are too many as well, each subtask more has fewer of them
        n, largest = _fewest(line, low, high, max_slices)
        if n < high:
            bound = [f"{words}, where {format_count(n)} have as small a largest range" for words in bound]
    _check_parallelism(n)
    cuts, tapers = line.cut(n, max_slices, largest), False
    if wanted <= high and timed == most and bounds.least_volume:
        waves = Waves.of(bounds, _opened(inputs) + volume.broadcast)
        cuts, tapers = waves.best(line, cuts, (least, most), (least, top), limit if bounds.tapers else 0, max_slices)
        n = len(cuts) - 1
    if bounds.cost is not None and timed != most and (timed < least or n > most):
        rule, bound = TASK_DURATION, []
    elif tapers or n > least:
        rule, bound = TAPERED if tapers else IDLE_SLOTS, []
    words += bound + slice_words
    if units.slices_bind(cuts, max_slices) or (max_slices is not None and least > max(by_volume, low)):
        words.append(f"max-slices-per-subtask {bounds.max_slices}")
    return replace(_by_bytes(units, cuts, rule, words), needed=least if rule in (TAPERED, IDLE_SLOTS) else 0)


def _fewest(line: Line, least: int, most: int, max_slices: int | None) -> tuple[int, int]:
    """The fewest ranges, from ``least`` on, whose largest is as small as that of ``most`` ranges, and its bytes."""
    largest = line.smallest_largest(most, max_slices)
    return max(line.ranges_needed(largest, max_slices, most), least), largest


def _in_whole_waves(wanted: int, high: int, bounds: Bounds, worth: int) -> int:
    """``wanted``, or as many more, up to ``high`` and those ``worth`` their start, as leave no slot idle in the last wave."""
    return max(wanted, min(whole_waves(wanted, bounds.slots), worth, high)) if bounds.least_volume else wanted


def _worth(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> int:
    """Plain bytes that make one more subtask worth its start: what starting it costs, and opening the object of each producer
    that every subtask reads; and no fewer than the broadcasts, which it reads once more."""
    return max(1, bounds.least_volume + _opened(inputs), volume.broadcast)


def _opened(inputs: Sequence[ConsumedResult]) -> int:
    """The time to open the objects of all producers that every subtask reads, in bytes."""
    return BYTES_PER_OBJECT * sum(r.num_partitions for r in inputs if r.is_keyed)


def _by_duration(
    inputs: Sequence[ConsumedResult],
    bounds: Bounds,
    volume: _Volume,
    by_volume: tuple[int, int],
    fewest: Callable[[], int],
) -> int:
    """``by_volume``: subtasks that the volume asks for, without and with those for idle slots."""
    beside = SECONDS_PER_BYTE * max(_opened(inputs), volume.broadcast)
    least, today = by_volume
    return by_duration(bounds, volume.non_broadcast, least=least, today=today, fewest=fewest, seconds_beside=beside)


def _fewest_in_memory(line: Line, limit: int, max_slices: int | None, between: tuple[int, int]) -> int:
    """The fewest ranges of at most ``limit`` bytes each, between these numbers."""
    low, high = between
    return max(low, line.ranges_needed(limit, max_slices, high)) if line.total else low


def _with_slices(units: Units, bounds: Bounds, limit: int, by_volume: int) -> tuple[int, int | None, list[str]]:
    """Parallelism wanted under the slice bound, the bound to cut with (None: it does not bind), and words.

    A bound below what one unit has cannot be met by any parallelism and is left out; one that would need more than
    the maximum parallelism takes the maximum and is left out of the cut, so that bytes decide it.
    """
    max_slices = units.slice_bound(bounds.max_slices)
    if max_slices is None or not units.line.total:
        return by_volume, None, []
    high = bounds.interval()[1]
    if max_slices < units.line.largest_slices:
        return by_volume, None, [_slices_left_out(bounds, "by any parallelism")]
    if not units.slices_fit(max_slices, high):
        return max(high, by_volume), None, [_slices_left_out(bounds, f"within parallelism {high}")]
    return units.line.ranges_needed(limit, max_slices, high), max_slices, []


def _slices_left_out(bounds: Bounds, where: str) -> str:
    return f"max-slices-per-subtask {bounds.max_slices} (cannot be met {where}, left out)"


def _by_bytes(units: Units, cuts: Longs, rule: str, words: list[str], skew: Skew = NO_SKEW) -> _Cut:
    ranges = units.ranges(cuts)
    n = len(cuts) - 1 + skew.num_subtasks
    return _Cut(n, ranges, units.sizes(cuts, ranges), rule, words, skew)


def _by_count(inputs: Sequence[ConsumedResult], n: int, rule: str, words: list[str]) -> _Cut:
    _check_parallelism(n)
    ranges = tuple(count_ranges(r, n) for r in inputs)
    sizes = np.zeros(n, dtype=np.int64)
    for result, own in zip(inputs, ranges, strict=True):
        if result.is_broadcast:
            continue
        part = bytes_read(result, own)
        if part is None:
            return _Cut(n, ranges, None, rule, words)
        sizes += part
    return _Cut(n, ranges, sizes, rule, words)


def _check_parallelism(n: int) -> None:
    if n > MOST_SUBTASKS:
        raise UsageError(
            f"{format_count(n)} subtasks are more than one step may have, which is {format_count(MOST_SUBTASKS)}.",
            hint="Lower the parallelism or its bounds, or raise data-volume-per-task.",
        )


def _check(inputs: Sequence[ConsumedResult], bounds: Bounds) -> None:
    if bounds.data_volume < 1 or bounds.max_slices < 1:
        raise UsageError(
            f"data-volume-per-task is {bounds.data_volume} and max-slices-per-subtask is {bounds.max_slices}.",
            hint="Both must be at least 1.",
        )
    together = [(i, r) for i, r in enumerate(inputs) if r.is_keyed and r.co_partitioned]
    if len({r.num_subpartitions for _, r in together}) > 1:
        each = ", ".join(f"input {i} has {r.num_subpartitions}" for i, r in together)
        raise UsageError(
            f"Inputs that are keyed together need equally many subpartitions: {each}.",
            hint="Partition them alike.",
        )
    for i, result in enumerate(inputs):
        _check_input(i, result)
    check_sizes([_bytes_of(r) for r in inputs])


def _check_input(index: int, result: ConsumedResult) -> None:
    if result.num_subpartitions < 1:
        raise UsageError(f"Input {index} has no subpartitions.", hint="A result has at least one.")
    width = result.num_subpartitions
    for sizes, shape in (
        (result.subpartition_bytes, (width,)),
        (result.cells, (result.num_partitions, width)),
        ([result.total_bytes], (1,)),
    ):
        if sizes is None:
            continue
        if np.shape(sizes) != shape:
            raise UsageError(
                f"Input {index} gives sizes of shape {np.shape(sizes)}, but shape {shape} is expected.",
                hint="Every producer gives one size per subpartition.",
            )
        check_sizes(sizes)


def _bytes_of(result: ConsumedResult) -> int:
    for given in (result.subpartition_bytes, result.cells):
        if given is not None:
            return int(np.sum(given, dtype=np.int64))
    return int(result.total_bytes)


def _plan(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, cut: _Cut) -> VertexPlan:
    result: dict[str, Any] = {"parallelism": cut.parallelism}
    if cut.sizes is not None:
        result |= {"largest": int(cut.sizes.max()), "smallest": int(cut.sizes.min())}
    result["slices"] = int(slices_read(cut.ranges).max())
    division = cut.skew.division
    if division is not None:
        result |= {"divided": division.recorded(), "largest_subpartition": division.largest}
    return VertexPlan(
        parallelism=cut.parallelism,
        facts=_facts(inputs, bounds, volume, cut),
        rule=cut.rule,
        bounds=cut.bounds,
        result=result,
        input_bytes=None if cut.sizes is None else cut.sizes + np.int64(volume.broadcast),
        ranges=cut.ranges,
    )


def _facts(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, cut: _Cut) -> Sized:
    division = cut.skew.division
    return Sized(
        datasets=[r.dataset for r in inputs],
        bytes=[_bytes_of(r) for r in inputs],
        partitions=[r.num_partitions for r in inputs],
        subpartitions=[r.num_subpartitions for r in inputs],
        ship=[r.ship.value for r in inputs],
        non_broadcast=volume.non_broadcast,
        broadcast=volume.broadcast,
        data_volume=volume.volume,
        limit=volume.limit,
        cut=bounds.cut,
        needed=cut.needed,
        rounded=cut.rounded,
        hashed=hashed(bounds),
        divided=0 if division is None else len(division.subpartitions),
        undivided=cut.skew.undivided,
        **remembered(inputs, bounds),
    )
