"""Cuts a range of keys into parts of about equal bytes, by the keys in the producers' indexes: without reading a row.

The keys at which messages begin are a grid; since no two regions cut their messages at the same places of their data, it
is about as fine as there are messages. A message's bytes are spread evenly over the grid's cells from its first key to
the next message's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.results.order.key_index import RegionKeys


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``low`` on and before ``high``; None: from the beginning, to the end.

    ``nbytes``: about how many plain bytes there are. ``is_one_key``: all rows are equal in order.
    """

    low: bytes | None
    high: bytes | None
    nbytes: int = 0
    is_one_key: bool = False


@dataclass(slots=True)
class _Grid:
    """Cell k has the keys from ``keys[k]`` on and before the next one; the first one begins where the range does."""

    keys: list[bytes]
    spread: NDArray[np.float64]
    """float64[cells]: plain bytes of the messages that reach over cells."""
    alike: NDArray[np.float64]
    """float64[cells]: of those that begin and end with the cell's first key."""
    whole: set[bytes]
    """Keys that are not beginnings of longer ones."""


def key_ranges(regions: Iterable[RegionKeys], low: bytes | None, high: bytes | None, limit: int) -> list[KeyRange]:
    """[low, high) in parts of at most ``limit`` bytes, as far as the known keys allow and by estimate.

    A key that has more by itself is a part of its own.
    """
    grid = _grid(list(regions), low, high)
    parts: list[KeyRange] = []
    begin, size = low, 0.0
    for key, spread, alike in zip(grid.keys, grid.spread.tolist(), grid.alike.tolist(), strict=True):
        is_heavy = alike > limit and key in grid.whole
        if (size and size + spread + alike > limit) or (is_heavy and (begin is None or begin < key)):
            parts.append(KeyRange(begin, key, round(size)))
            begin, size = key, 0.0
        after = key + b"\x00"
        if is_heavy and (high is None or after < high):
            parts.append(KeyRange(key, after, round(alike), is_one_key=True))
            begin, size = after, spread
        else:
            size += spread + alike
    return [*parts, KeyRange(begin, high, round(size))]


def _grid(regions: list[RegionKeys], low: bytes | None, high: bytes | None) -> _Grid:
    first = low or b""
    known: set[bytes] = set()
    whole: set[bytes] = set()
    messages: list[tuple[bytes, bytes, float]] = []
    for region in regions:
        begin, end = region.between(low, high)
        sizes: list[int] = np.diff(region.plain[begin : end + 1]).tolist()
        for place, size in enumerate(sizes, begin):
            key, last = region.keys[place], region.keys[place + 1]
            share = 1.0
            if key < first:  # on average half of it lies in the range
                key, share = first, share / 2
            elif not region.cut[place]:
                whole.add(key)
            if high is not None and last >= high:
                last, share = high, share / 2
            known.add(key)
            messages.append((key, last, size * share))
    keys = sorted(known | {first})
    return _Grid(keys, *_bytes_of(messages, keys), whole)


def _bytes_of(
    messages: list[tuple[bytes, bytes, float]], keys: list[bytes]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``spread`` and ``alike`` of a grid with these keys."""
    places = {key: place for place, key in enumerate(keys)}
    changes, alike = np.zeros(len(keys) + 1), np.zeros(len(keys))
    for first, last, size in messages:
        begin = places[first]
        if first == last:
            alike[begin] += size
            continue
        end = max(places.get(last) or bisect_left(keys, last), begin + 1)
        changes[begin] += size / (end - begin)
        changes[end] -= size / (end - begin)
    return np.cumsum(changes[:-1]).clip(min=0), alike
