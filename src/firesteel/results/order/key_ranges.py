"""Cuts a range of keys into parts of about equal bytes, by the keys in the producers' indexes: without reading a row.

The keys at which messages begin are a grid; since no two regions cut their messages at the same places of their data, it
is about as fine as there are messages. A message's bytes are spread evenly over the grid's cells from its first key to
the next message's.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.sketches import shortened
from firesteel.results.layout import Damaged


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


_CUT = 1 << 31
_CHECK_BYTES = 8


@dataclass(frozen=True, slots=True)
class RegionKeys:
    """Of one region with M messages."""

    keys: list[bytes]
    """M + 1: the first key of each message, and the last key of all."""
    plain: NDArray[np.int64]
    """int64[M + 1]: plain bytes before each message."""
    cut: NDArray[np.bool_]
    """Mask of the keys that are beginnings of longer ones."""

    @classmethod
    def of(cls, keys: list[bytes], plain: NDArray[np.int64]) -> RegionKeys:
        """Whole keys, of which long ones are cut."""
        short = shortened(keys)
        cut = [len(one) < len(whole) for one, whole in zip(short, keys, strict=True)]
        return cls(short, plain, np.array(cut, np.bool_))

    def between(self, low: bytes | None, high: bytes | None) -> tuple[int, int]:
        """[first, end): the messages that may hold keys from ``low`` on and before ``high``."""
        first = 0 if low is None else self.surely_before(low)
        end = len(self.keys) - 1 if high is None else bisect_left(self.keys, high, 0, len(self.keys) - 1)
        return first, max(end, first)

    def surely_from(self, key: bytes | None) -> int:
        """The first message of those that hold no key before this one."""
        return 0 if key is None else bisect_left(self.keys, key, 0, len(self.keys) - 1)

    def surely_before(self, key: bytes | None) -> int:
        """Returns the number of leading messages that hold only keys before this one: each ends at or before the next one's first."""
        if key is None:
            return len(self.keys) - 1
        place = bisect_left(self.keys, key, 1)
        while place > 1 and self.cut[place - 1] and key.startswith(self.keys[place - 1]):
            place -= 1  # what it is the beginning of may come behind
        return place - 1

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.keys)) + 64 * len(self.keys)


def encode_keys_of(regions: Sequence[RegionKeys], name: int) -> bytes:
    """``name``: the print of the object's name. Nothing of an object without rows."""
    if not regions:
        return b""
    keys = [key for region in regions for key in region.keys]
    lengths = np.fromiter(map(len, keys), np.uint32, len(keys))
    lengths |= np.concatenate([region.cut for region in regions]).astype(np.uint32) * np.uint32(_CUT)
    plain = b"".join(region.plain.astype("<u8").tobytes() for region in regions)
    data = b"".join((plain, lengths.astype("<u4").tobytes(), *keys))
    return data + _check(data, name).to_bytes(_CHECK_BYTES, "little")


def decode_keys_of(data: memoryview, entries: Sequence[int], name: int) -> list[RegionKeys]:
    """``entries``: M + 1 of each region. Raises Damaged."""
    if not entries:
        return []
    total = sum(entries)
    content, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if len(content) < 12 * total or _check(content, name) != int.from_bytes(check, "little"):
        raise Damaged("has a damaged index of keys (checksum differs)")
    plain = np.frombuffer(content, "<u8", total).astype(np.int64)
    lengths = np.frombuffer(content, "<u4", total, 8 * total)
    cut = lengths >= _CUT
    ends = 12 * total + np.cumsum((lengths & np.uint32(_CUT - 1)).astype(np.int64))
    if int(ends[-1]) != len(content):
        raise Damaged("has an index of keys of another length than it says")
    begins = np.append(12 * total, ends[:-1]).tolist()
    keys = [bytes(content[begin:end]) for begin, end in zip(begins, ends.tolist(), strict=False)]
    places = np.cumsum(entries)
    bounds = zip((places - np.asarray(entries, np.int64)).tolist(), places.tolist(), strict=True)
    return [RegionKeys(keys[begin:end], plain[begin:end], cut[begin:end]) for begin, end in bounds]


def _check(data: bytes | memoryview, name: int) -> int:
    return zlib.crc32(data, (name + 0x27D4EB2F) & 0xFFFFFFFF)
