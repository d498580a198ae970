"""Ranges for files that are divided by partition columns: each begins and ends with a partition, or parts one into files of the size asked for.

Rows come in the order of (partition columns, producer), so a partition can be parted between its producers. Small partitions share a range,
where each has its own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from firesteel.model.order import PRODUCER_BYTES
from firesteel.model.sketches import LONG_KEY, Boundaries, Sketch, together

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
