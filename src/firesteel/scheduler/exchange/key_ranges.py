"""The ranges of a RANGE result: decided once, from the sketches of all its producers, and then kept for good.

There is no sampling pass: every producer told, as it finished, a summary of the keys that it wrote and how many bytes lie
between them (``firesteel.model.sketches``). Merged they give keys that part the result into as many ranges of about equal bytes
as it has subpartitions; from there on it is as any keyed result whose sizes are known. Whoever has read by these ranges
has left the other rows to others, so they stay as they are when producers run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import IntermediateDataSet
from firesteel.model.order import PRODUCER_BYTES
from firesteel.model.sketches import (
    LONG_KEY,
    Boundaries,
    Sketch,
    bytes_between,
    decode_sketch,
    error_bound,
    merge_sketches,
    together,
)
from firesteel.scheduler.kernel.decisions import Sketched


@dataclass(frozen=True, slots=True, eq=False)
class KeyRanges:
    """``sizes``: plain bytes of each range over all producers (int64), as far as the sketches tell. ``error``: how many
    bytes each of them may be off at most."""

    boundaries: Boundaries
    sizes: Ints
    sketches: int
    error: int


def decide_ranges(rows: Sequence[bytes], n: int, file_volume: int | None = None) -> KeyRanges:
    """``rows``: encoded sketches. Where nothing was written all ranges but the last are empty. ``file_volume``: plain bytes of the files that the
    ranges are for, one or some of them each; None: they are for none, and should be of about equal bytes."""
    sketches = [decode_sketch(row) for row in rows]
    boundaries = merge_sketches(sketches, n) if file_volume is None else file_boundaries(sketches, n, file_volume)
    return KeyRanges(boundaries, bytes_in(sketches, boundaries, n), len(sketches), error_bound(sketches))


def bytes_in(sketches: Sequence[Sketch], boundaries: Boundaries, n: int) -> Ints:
    """Plain bytes of each of ``n`` ranges, over all these producers."""
    total = np.zeros(n, np.int64)
    for sketch in sketches:
        total += bytes_between(sketch, boundaries)
    return total


def explain(dataset: IntermediateDataSet, ranges: KeyRanges) -> dict[str, Any]:
    """The decision's record: fields of ``records.Decision`` without what, vertex and name."""
    order, n, total = dataset.order, len(ranges.sizes), int(ranges.sizes.sum())
    facts = Sketched(
        dataset=dataset.id,
        columns=[] if order is None else [(c.name, c.ascending) for c in order.columns],
        split_equal=order is not None and order.split_equal,
        sketches=ranges.sketches,
        bytes=total,
    )
    result = {
        "ranges": n,
        "largest": int(ranges.sizes.max(initial=0)),
        "mean": round(total / n),
        "empty": int((ranges.sizes == 0).sum()),
        "error": ranges.error,
    }
    return {"inputs": facts, "rule": "merged sketches", "result": result}


_LEAST_PART = 0.7
"""Of a file."""


class _Partition(NamedTuple):
    """``value``: what its keys begin with; ``keys``: ascending; ``weights``: the plain bytes that each stands for."""

    value: bytes
    keys: list[bytes]
    weights: list[int]


def file_boundaries(sketches: Sequence[Sketch], n: int, volume: int) -> Boundaries:
    """``n`` ranges, of which those that hold nothing come first. ``volume``: plain bytes that make a file; more where ``n`` ranges are too few."""
    partitions = _partitions(together(sketches))
    found = _boundaries(partitions, volume)
    while len(found) >= n:
        volume *= 2
        found = _boundaries(partitions, volume)
    return Boundaries((b"",) * (n - 1 - len(found)) + tuple(found))


def _partitions(sketch: Sketch) -> list[_Partition]:
    found: list[_Partition] = []
    for key, weight in zip(sketch.keys, sketch.weights.tolist(), strict=True):
        value = _value(key)
        if not found or found[-1].value != value:
            found.append(_Partition(value, [], []))
        found[-1].keys.append(key)
        found[-1].weights.append(weight)
    return found


def _value(key: bytes) -> bytes:
    """Without the producer. A key as long as this may have been cut, so that nobody knows what its end is."""
    return key if len(key) > LONG_KEY else key[:-PRODUCER_BYTES]


def _boundaries(partitions: Sequence[_Partition], volume: int) -> list[bytes]:
    """The first key of each range but the first."""
    found: list[bytes] = []
    room = volume
    for number, (value, keys, weights) in enumerate(partitions):
        nbytes = sum(weights)
        files = max(1, round(nbytes / volume))
        if number and (files > 1 or nbytes > room):
            found.append(value)
            room = volume
        room -= nbytes
        if files > 1:
            found += _within(keys, weights, files)
            room = 0
    return found


def _within(keys: Sequence[bytes], weights: Sequence[int], files: int) -> Iterator[bytes]:
    """The first keys of all parts but the first one: of as many parts as files, as even as the keys let them be, or of fewer. Parts that would be
    much less than a file stay with others: who writes them divides what is more than one."""
    below = np.cumsum(weights) - weights
    wanted = np.array([sum(weights) * number / files for number in range(1, files)])
    after = np.minimum(np.searchsorted(below, wanted), len(below) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(below[after] - wanted < wanted - below[before], after, before)
    least, total, begun = _LEAST_PART * sum(weights) / files, sum(weights), 0
    for place in np.unique(nearest).tolist():
        if below[place] - begun >= least and total - below[place] >= least:
            begun = below[place]
            yield keys[place]
