"""Rectangles of (partition, subpartition) that each subtask reads, built as columns without a loop over subtasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.parallelism.line import prefix_sums
from firesteel.scheduler.parallelism.model import ConsumedResult, Longs


def pack(rects: NDArray[np.int64]) -> InputRanges:
    """InputRanges of up to r candidate rectangles per subtask, shape (n, r, 4); empty rectangles are left out."""
    keep = (rects[:, :, 0] < rects[:, :, 1]) & (rects[:, :, 2] < rects[:, :, 3])
    offsets = np.zeros(len(rects) + 1, dtype=np.int32)
    np.cumsum(keep.sum(axis=1), out=offsets[1:])
    return InputRanges(offsets, rects[keep].astype(np.int32))


def whole(result: ConsumedResult, n: int) -> InputRanges:
    """Every subtask reads everything (broadcast)."""
    rect = np.array([[0, result.num_partitions, 0, result.num_subpartitions]], dtype=np.int64)
    return pack(np.broadcast_to(rect, (n, 1, 4)))


def one_partition_each(result: ConsumedResult) -> InputRanges:
    """Subtask k reads partition k wholly (forward)."""
    k = np.arange(result.num_partitions, dtype=np.int64)
    return pack(_columns(k, k + 1, 0, result.num_subpartitions)[:, np.newaxis])


def uncut(result: ConsumedResult, n: int) -> InputRanges:
    """Ranges of a broadcast or a forward input, which are given."""
    return whole(result, n) if result.is_broadcast else one_partition_each(result)


def subpartition_ranges(result: ConsumedResult, cuts: Longs) -> InputRanges:
    """Subtask k reads subpartitions cuts[k] .. cuts[k + 1] of all partitions."""
    return pack(_columns(0, result.num_partitions, cuts[:-1], cuts[1:])[:, np.newaxis])


def undivided_ranges(result: ConsumedResult, kept: Longs, cuts: Longs) -> InputRanges:
    """Subtask k reads those subpartitions (``kept``, ascending) whose places are cuts[k] .. cuts[k + 1], of all partitions."""
    gaps = np.flatnonzero(np.diff(kept) != 1) + 1
    begins = np.union1d(cuts[:-1], gaps)
    begins = begins[begins < len(kept)]
    ends = np.append(begins[1:], len(kept))[: len(begins)]
    owners = np.searchsorted(cuts, begins, side="right") - 1
    offsets = np.searchsorted(owners, np.arange(len(cuts))).astype(np.int32)
    rects = _columns(0, result.num_partitions, kept[begins], kept[ends - 1] + 1)
    return InputRanges(offsets, rects.astype(np.int32))


def shared_ranges(result: ConsumedResult, subpartitions: Longs, part: Longs, parts: Longs) -> InputRanges:
    """Subtask k reads a part of one subpartition of all partitions."""
    rects = _columns(0, result.num_partitions, subpartitions, subpartitions + 1).astype(np.int32)
    shares = None if (parts == 1).all() else np.stack([part, parts], axis=1).astype(np.int32)
    return InputRanges(np.arange(len(rects) + 1, dtype=np.int32), rects, shares)


def joined(first: InputRanges, second: InputRanges) -> InputRanges:
    """The ranges of the first subtasks, and of those behind them."""
    offsets = np.concatenate((first.offsets, second.offsets[1:] + first.offsets[-1]))
    shares = None
    if first.shares is not None or second.shares is not None:
        shares = np.concatenate([_shares(first), _shares(second)])
    return InputRanges(offsets, np.concatenate((first.rects, second.rects)), shares)


def _shares(ranges: InputRanges) -> NDArray[np.int32]:
    whole = np.array([[0, 1]], np.int32)
    return np.repeat(whole, len(ranges.rects), axis=0) if ranges.shares is None else ranges.shares


def cell_runs(result: ConsumedResult, cuts: Longs) -> InputRanges:
    """Subtask k reads the cells cuts[k] .. cuts[k + 1], counted producer by producer.

    A run is the tail of its first producer, whole producers, and the head of its last one.
    """
    width = result.num_subpartitions
    first, first_sub = np.divmod(cuts[:-1], width)
    last, last_sub = np.divmod(cuts[1:], width)
    inside = first == last
    begun = np.where(first_sub > 0, first + 1, first)
    tail = _columns(first, begun, first_sub, np.where(inside, last_sub, width))
    middle = _columns(begun, last, 0, width)
    head = _columns(last, np.where(inside & (first_sub > 0), last, last + 1), 0, last_sub)
    return pack(np.stack([tail, middle, head], axis=1))


def even_cuts(size: int, n: int) -> Longs:
    """FLIP-187: the k-th of n consumers begins at floor(k * size / n)."""
    return np.arange(n + 1, dtype=np.int64) * size // n


def pointwise_by_count(result: ConsumedResult, n: int) -> InputRanges:
    """Contiguous producers per subtask, or, with fewer producers than subtasks, a producer's subpartitions split
    evenly among the subtasks ceil(p * n / producers) .. that it serves (Flink: VertexInputInfoComputationUtils)."""
    producers, width = result.num_partitions, result.num_subpartitions
    if producers >= n or not producers:
        cuts = even_cuts(producers, n)
        return pack(_columns(cuts[:-1], cuts[1:], 0, width)[:, np.newaxis])
    begins = -(-np.arange(producers + 1, dtype=np.int64) * n // producers)
    served = np.diff(begins)
    producer = np.repeat(np.arange(producers, dtype=np.int64), served)
    rank = np.arange(n, dtype=np.int64) - begins[producer]
    share = served[producer]
    rects = _columns(producer, producer + 1, rank * width // share, (rank + 1) * width // share)
    return pack(rects[:, np.newaxis])


def count_ranges(result: ConsumedResult, n: int) -> InputRanges:
    """Ranges by count for n subtasks, whatever the bytes."""
    if result.is_broadcast or result.is_forward:
        return uncut(result, n)
    if result.is_pointwise:
        return pointwise_by_count(result, n)
    return subpartition_ranges(result, even_cuts(result.num_subpartitions, n))


def bytes_read(result: ConsumedResult, ranges: InputRanges) -> Longs | None:
    """Plain bytes each subtask reads of this input (not a broadcast, nor divided), int64; None where the sizes given do not tell."""
    rects = ranges.rects.astype(np.int64)
    all_producers = bool(np.all((rects[:, 0] == 0) & (rects[:, 1] == result.num_partitions)))
    if all_producers and (folded := result.folded()) is not None:
        sums = prefix_sums(folded)
        sizes = sums[rects[:, 3]] - sums[rects[:, 2]]
    elif result.cells is not None:
        area = np.zeros((result.num_partitions + 1, result.num_subpartitions + 1), dtype=np.int64)
        np.cumsum(np.cumsum(result.cells, axis=0, dtype=np.int64), axis=1, out=area[1:, 1:])
        p0, p1, s0, s1 = rects.T
        sizes = area[p1, s1] - area[p0, s1] - area[p1, s0] + area[p0, s0]
    else:
        return None
    sums = prefix_sums(sizes)
    return np.diff(sums[ranges.offsets])


def slices_read(inputs: Sequence[InputRanges]) -> Longs:
    """(producer, subpartition) slices each subtask reads over all its inputs, int64."""
    total = np.zeros(inputs[0].parallelism, dtype=np.int64)
    for ranges in inputs:
        p0, p1, s0, s1 = ranges.rects.astype(np.int64).T
        total += np.diff(prefix_sums((p1 - p0) * (s1 - s0))[ranges.offsets])
    return total


def _columns(*columns: Longs | int) -> Longs:
    return np.stack(np.broadcast_arrays(*columns), axis=-1)
