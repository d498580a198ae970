"""Decides how parallel a vertex is and which parts of its inputs each subtask reads (FLIP-187).

Two ways to cut, by option. *By count* is the seed's formula. *By bytes* lays everything that may be cut in one line
(keyed inputs as their shared subpartitions, pointwise and rebalanced inputs as (producer, subpartition) cells,
input after input) and takes the fewest contiguous runs that stay within the limit; for that number, the runs
whose largest is as small as can be. Inputs of different kinds thus share one line: a subtask may read the end of
one and the beginning of the next, or nothing of one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.humanize import format_bytes, format_count, plural
from firesteel.scheduler.commands import InputRanges
from firesteel.scheduler.parallelism.line import Line
from firesteel.scheduler.parallelism.model import (
    Bounds,
    ConsumedResult,
    Longs,
    VertexPlan,
    closest_power_of_two,
)
from firesteel.scheduler.parallelism.ranges import (
    bytes_read,
    cell_runs,
    even_cuts,
    one_partition_each,
    pointwise_by_count,
    slices_read,
    subpartition_ranges,
    whole,
)


@dataclass(frozen=True, slots=True)
class _Volume:
    """The bytes of all inputs and what a subtask may have of them. ``limit`` is V', the volume less the discount."""

    non_broadcast: int
    broadcast: int
    volume: int

    @property
    def discount(self) -> float:
        return min(self.broadcast, self.volume * 0.5)

    @property
    def limit(self) -> int:
        return max(1, (2 * self.volume - min(2 * self.broadcast, self.volume)) // 2)

    def needed(self) -> int:
        """ceil(non-broadcast / (V - min(broadcast, V * 0.5))), in exact integers."""
        return -(-2 * self.non_broadcast // (2 * self.volume - min(2 * self.broadcast, self.volume)))

    def words(self) -> str:
        if not self.broadcast:
            return f"{format_bytes(self.non_broadcast)} over {format_bytes(self.limit)} each"
        return (
            f"{format_bytes(self.non_broadcast)} over {format_bytes(self.limit)} each "
            f"({format_bytes(self.volume)} less {format_bytes(self.discount)} for {format_bytes(self.broadcast)} broadcast)"
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """A parallelism that is not ours to choose, its rule, and the rule in words."""

    parallelism: int
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one vertex came out: its parallelism, the ranges, and why."""

    parallelism: int
    ranges: tuple[InputRanges, ...]
    rule: str
    bounds: list[str]
    account: str
    """The reason's middle: what was divided by what."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs that are cut at the same places: the keyed ones that belong together, or one other input."""

    members: tuple[int, ...]
    by_cell: bool
    weights: Longs
    slices: Longs


def decide_vertex(inputs: Sequence[ConsumedResult], bounds: Bounds) -> VertexPlan:
    """Parallelism and input ranges of a vertex whose consumed results are all finished.

    ``max_slices`` makes more subtasks where that helps; where the maximum parallelism (or a fixed one) does not
    allow it, the bound is left out and the decision says so. A vertex whose cuttable inputs are all GLOBAL is one subtask,
    whatever the minimum. Raises UsageError when the request cannot be met (bounds that exclude each other, keyed
    inputs with different numbers of subpartitions, forward inputs that disagree).
    """
    if not inputs:
        raise UsageError("A step without inputs has nothing to be decided from.", hint="Give at least one input.")
    _check(inputs)
    volume = _Volume(
        non_broadcast=sum(_bytes_of(r) for r in inputs if not r.is_broadcast),
        broadcast=sum(_bytes_of(r) for r in inputs if r.is_broadcast),
        volume=bounds.data_volume,
    )
    cut = _cut(inputs, bounds, volume)
    return _plan(inputs, bounds, volume, cut)


def _cut(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> _Cut:
    given = _given_parallelism(inputs, bounds)
    if given is not None:
        return _cut_given(inputs, bounds, volume, given)
    low, _high = bounds.interval()
    if all(r.is_broadcast for r in inputs):
        account = f"all inputs are broadcast ({format_bytes(volume.broadcast)})"
        return _Cut(low, tuple(whole(r, low) for r in inputs), bounds.cut, bounds.bound_hit(1), account)
    if bounds.cut == "by-count":
        wanted = closest_power_of_two(volume.needed())
        n = min(max(wanted, low), bounds.interval()[1])
        account = f"{volume.words()} makes {format_count(volume.needed())}, closest power of two {format_count(wanted)}"
        return _Cut(n, _by_count(inputs, n), bounds.cut, bounds.bound_hit(wanted), account)
    return _cut_by_bytes(inputs, bounds, volume)


def _given_parallelism(inputs: Sequence[ConsumedResult], bounds: Bounds) -> _Given | None:
    """A parallelism that is not ours to choose; None if it is."""
    forward = {r.num_partitions for r in inputs if r.is_forward}
    if len(forward) > 1 or (forward and bounds.fixed is not None and bounds.fixed not in forward):
        counts = ", ".join(str(n) for n in sorted(forward))
        wanted = "" if bounds.fixed is None else f", but its parallelism is fixed to {bounds.fixed}"
        raise UsageError(
            f"The step's forward inputs have {counts} partitions{wanted}.",
            hint="Forward needs equal parallelism on both sides: use rescale or rebalance instead.",
        )
    if bounds.fixed is not None:
        why = "as its forward group" if bounds.fixed_rule == "forward group" else "as set"
        return _Given(bounds.fixed, bounds.fixed_rule, why)
    if forward:
        return _Given(forward.pop(), "forward group", "as the producers of its forward input")
    if all(r.ship is ShipStrategy.GLOBAL or r.is_broadcast for r in inputs) and not all(r.is_broadcast for r in inputs):
        return _Given(1, "global", "as a global input is never split")
    return None


def _cut_given(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, given: _Given) -> _Cut:
    n = given.parallelism
    if n < 1:
        raise UsageError(f"The parallelism {n} is below 1.", hint="Set a parallelism of at least 1.")
    words: list[str] = []
    if bounds.cut == "by-count":
        ranges = _by_count(inputs, n)
    else:
        line, groups = _line_of(inputs)
        max_slices = _slice_bound(inputs, line, bounds)
        if max_slices is not None and not _slices_fit(line, max_slices, n):
            words.append(_slices_left_out(bounds, f"with parallelism {n}"))
            max_slices = None
        ranges = _by_bytes(inputs, groups, line.cut(n, max_slices), n)
    account = f"{given.why}; {format_bytes(volume.non_broadcast)} cut {bounds.cut}"
    return _Cut(n, ranges, given.rule, words, account)


def _cut_by_bytes(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> _Cut:
    line, groups = _line_of(inputs)
    low, high = bounds.interval()
    limit = max(volume.limit, line.largest)
    by_volume = line.ranges_needed(limit, None, high) if line.total else 1
    wanted, max_slices, words = _with_slices(inputs, line, bounds, limit, by_volume)
    n = min(max(wanted, low), high)
    if limit > volume.limit:
        what = "slice" if any(g.by_cell for g in groups) else "subpartition"
        words.insert(0, f"largest {what} {format_bytes(limit)}")
    words += bounds.bound_hit(wanted)
    if n > max(by_volume, low) and max_slices is not None:
        words.append(f"max-slices-per-subtask {bounds.max_slices}")
    cuts = line.cut(n, max_slices)
    return _Cut(n, _by_bytes(inputs, groups, cuts, n), bounds.cut, words, volume.words())


def _with_slices(
    inputs: Sequence[ConsumedResult], line: Line, bounds: Bounds, limit: int, by_volume: int
) -> tuple[int, int | None, list[str]]:
    """Parallelism wanted under the slice bound, the bound to cut with (None: it does not bind), and words.

    A bound below what one unit has cannot be met by any parallelism and is left out; one that would need more than
    the maximum parallelism takes the maximum and is left out of the cut, so that bytes decide it.
    """
    max_slices = _slice_bound(inputs, line, bounds)
    if max_slices is None or not line.total:
        return by_volume, None, []
    high = bounds.interval()[1]
    if max_slices < line.largest_slices:
        return by_volume, None, [_slices_left_out(bounds, "by any parallelism")]
    if not _slices_fit(line, max_slices, high):
        return max(high, by_volume), None, [_slices_left_out(bounds, f"within parallelism {high}")]
    wanted = line.ranges_needed(limit, max_slices, high)
    return wanted, max_slices, []


def _slice_bound(inputs: Sequence[ConsumedResult], line: Line, bounds: Bounds) -> int | None:
    """Slices one range may have beside what every subtask reads anyway; None if even one subtask may read all."""
    room = bounds.max_slices - sum(r.num_partitions * r.num_subpartitions for r in inputs if r.is_broadcast)
    return None if line.total_slices <= room else room


def _slices_fit(line: Line, max_slices: int, n: int) -> bool:
    return max_slices >= line.largest_slices and line.ranges_needed(line.total, max_slices, n) <= n


def _slices_left_out(bounds: Bounds, where: str) -> str:
    return f"max-slices-per-subtask {bounds.max_slices} cannot be met {where} and was left out"


def _line_of(inputs: Sequence[ConsumedResult]) -> tuple[Line, list[_Group]]:
    groups: list[_Group] = []
    together = tuple(i for i, r in enumerate(inputs) if r.is_keyed and r.co_partitioned)
    for i, result in enumerate(inputs):
        if result.is_broadcast or result.is_forward or (i in together and i != together[0]):
            continue
        groups.append(
            _keyed_group(inputs, together if i in together else (i,)) if result.is_keyed else _cells(i, result)
        )
    empty = np.zeros(0, dtype=np.int64)
    weights = np.concatenate([empty, *(g.weights for g in groups)])
    return Line(weights, np.concatenate([empty, *(g.slices for g in groups)])), groups


def _keyed_group(inputs: Sequence[ConsumedResult], members: tuple[int, ...]) -> _Group:
    width = inputs[members[0]].num_subpartitions
    weights = np.zeros(width, dtype=np.int64)
    for i in members:
        folded = inputs[i].folded()
        if folded is None:
            raise ValueError(f"The sizes of keyed input {i} are not known.")
        weights += folded
    slices = np.full(width, sum(inputs[i].num_partitions for i in members), dtype=np.int64)
    return _Group(members, by_cell=False, weights=weights, slices=slices)


def _cells(index: int, result: ConsumedResult) -> _Group:
    if result.cells is None:
        raise ValueError(f"The sizes of the cells of input {index} are not known.")
    weights = np.asarray(result.cells, dtype=np.int64).ravel()
    return _Group((index,), by_cell=True, weights=weights, slices=np.ones(len(weights), dtype=np.int64))


def _by_bytes(
    inputs: Sequence[ConsumedResult], groups: Sequence[_Group], cuts: Longs, n: int
) -> tuple[InputRanges, ...]:
    ranges: dict[int, InputRanges] = {}
    begin = 0
    for group in groups:
        own = np.clip(cuts - begin, 0, len(group.weights))
        begin += len(group.weights)
        for i in group.members:
            ranges[i] = cell_runs(inputs[i], own) if group.by_cell else subpartition_ranges(inputs[i], own)
    return tuple(ranges[i] if i in ranges else _uncut(r, n) for i, r in enumerate(inputs))


def _by_count(inputs: Sequence[ConsumedResult], n: int) -> tuple[InputRanges, ...]:
    return tuple(_count_ranges(r, n) for r in inputs)


def _count_ranges(result: ConsumedResult, n: int) -> InputRanges:
    if result.is_broadcast or result.is_forward:
        return _uncut(result, n)
    if result.is_pointwise:
        return pointwise_by_count(result, n)
    return subpartition_ranges(result, even_cuts(result.num_subpartitions, n))


def _uncut(result: ConsumedResult, n: int) -> InputRanges:
    return whole(result, n) if result.is_broadcast else one_partition_each(result)


def _check(inputs: Sequence[ConsumedResult]) -> None:
    together = [(i, r) for i, r in enumerate(inputs) if r.is_keyed and r.co_partitioned]
    widths = {r.num_subpartitions for _, r in together}
    if len(widths) > 1:
        each = ", ".join(f"input {i} has {r.num_subpartitions}" for i, r in together)
        raise UsageError(
            f"Inputs that are keyed together need equally many subpartitions: {each}.",
            hint="Partition them alike.",
        )
    for i, result in enumerate(inputs):
        if result.num_subpartitions < 1:
            raise UsageError(f"Input {i} has no subpartitions.", hint="A result has at least one.")
        for given, shape in (
            (result.subpartition_bytes, (result.num_subpartitions,)),
            (result.cells, (result.num_partitions, result.num_subpartitions)),
        ):
            if given is not None and np.shape(given) != shape:
                raise UsageError(f"Input {i}: sizes of shape {np.shape(given)} were given where {shape} was due.")


def _bytes_of(result: ConsumedResult) -> int:
    for given in (result.subpartition_bytes, result.cells):
        if given is not None:
            return int(np.sum(given, dtype=np.int64))
    return int(result.total_bytes)


def _plan(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume, cut: _Cut) -> VertexPlan:
    parts = [bytes_read(r, ranges) for r, ranges in zip(inputs, cut.ranges, strict=True)]
    own = [p for p, r in zip(parts, inputs, strict=True) if not r.is_broadcast]
    known = [p for p in own if p is not None]
    per_subtask: Longs | None = None
    result: dict[str, Any] = {"parallelism": cut.parallelism}
    spread = ""
    if len(known) == len(own):
        sums = np.zeros(cut.parallelism, dtype=np.int64)
        for part in known:
            sums += part
        per_subtask = sums + np.int64(volume.broadcast)
        result |= {"largest": int(sums.max()), "smallest": int(sums.min())}
        if known:
            spread = f"; largest range {format_bytes(result['largest'])}, smallest {format_bytes(result['smallest'])}"
    result["slices"] = int(slices_read(list(cut.ranges)).max())
    comma = "," if cut.account.startswith("as ") else ":"
    bounded = ", bounded by " + (" and ".join(cut.bounds) or "nothing")
    reason = f"{plural(cut.parallelism, 'subtask')}{comma} {cut.account}{bounded}{spread}"
    decision = {
        "inputs": _inputs_of(inputs, bounds, volume),
        "rule": cut.rule,
        "bounds": cut.bounds,
        "result": result,
        "reason": reason,
    }
    return VertexPlan(cut.parallelism, cut.ranges, decision, per_subtask)


def _inputs_of(inputs: Sequence[ConsumedResult], bounds: Bounds, volume: _Volume) -> dict[str, Any]:
    return {
        "bytes": {str(r.dataset): _bytes_of(r) for r in inputs},
        "partitions": [r.num_partitions for r in inputs],
        "subpartitions": [r.num_subpartitions for r in inputs],
        "ship": [r.ship.value for r in inputs],
        "non_broadcast": volume.non_broadcast,
        "broadcast": volume.broadcast,
        "data_volume": volume.volume,
        "limit": volume.limit,
        "cut": bounds.cut,
    }
