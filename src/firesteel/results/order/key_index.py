"""The keys in an object whose rows are in order: of each message the first one, of each region the last. By them a reader
finds the messages that may hold keys of a range, and what size they are, without reading any.

    sizes     per region and entry: plain bytes before it, u64; one entry per message, then one for the region's end
    lengths   of the keys, u32; the highest bit says that the key was cut
    keys      one after another
    check     crc32 of all that, tied to the object's name, u64

A cut key is a beginning of the whole one, and is treated as a key before it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.model.sketches import shortened
from firesteel.results.layout import Damaged

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
