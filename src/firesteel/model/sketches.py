"""Equi-depth sketches of sorted output: how many plain bytes a producer has below any key, in some hundred entries.

Made inside Spark tasks, merged in the control plane: numpy only, imports nothing of Firesteel. Keys are bytes whose order
is the order of the rows (``results.ordering``); here they are compared and nothing else.

A producer's bytes, laid out in the order of their keys, are cut into equal steps; of each step one key is taken, at a
*phase* of it that differs from producer to producer, so that what producers of like data leave out does not add up. An
estimate of the bytes below a key is off by at most one step per cut, whatever the data: less than ``total / entries``
for a producer's only region. Regions are merged pairwise (a binary counter: merge and reduce, Manku, Rajagopalan and
Lindsay 1998; Agarwal et al. 2012), each level adding a step of its own, a quarter as long as the last one's. ``error``
holds the sum, which was true for each sketch that was made. Equal keys become one entry, so a heavy key costs no entries.
"""

from __future__ import annotations

import math
import struct
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MOST_ENTRIES = 1_024
LEAST_ENTRIES = 64
TOTAL_ENTRIES = 1 << 16
"""Of all producers together, as long as each has its least."""
FINER = 4
"""Regions are sketched with so many times the entries of what is sent in the end."""
LONG_KEY = 64
"""Longer keys are cut where they differ from their neighbours, and so many bytes behind that."""
LONGEST_KEY = 4_096
"""Whatever their neighbours."""
_VERSION = 1
_HEADER = struct.Struct("<BxxxIQ")
"""Version, entries, error."""
_SPREAD = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
"""Multiples of their roots are spread evenly over their fractions, and independently of one another's."""


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """``keys``: strictly ascending; ``weights``: int64, the plain bytes that each stands for.

    ``error``: the bytes below any key, by this sketch, are off by no more than this.
    """

    keys: tuple[bytes, ...]
    weights: Ints
    error: int = 0

    @property
    def total(self) -> int:
        """Plain bytes of all rows: exact."""
        return int(self.weights.sum())


EMPTY = Sketch((), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The keys between n ranges: range r holds the rows from ``low(r)`` on and before ``high(r)``.

    ``keys``: n - 1, ascending; equal neighbours enclose an empty range.
    """

    keys: tuple[bytes, ...]

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self.keys) + 1

    def low(self, number: int) -> bytes | None:
        """The first key that belongs to range ``number`` or a later one; None: from the beginning."""
        return None if number <= 0 else self.keys[number - 1]

    def high(self, number: int) -> bytes | None:
        """The first key beyond range ``number``; None: to the end."""
        return None if number >= len(self.keys) else self.keys[number]


def budget(producers: int) -> int:
    """The most entries of one producer's sketch, among so many."""
    return min(max(TOTAL_ENTRIES // max(producers, 1), LEAST_ENTRIES), MOST_ENTRIES)


def phase_of(producer: int, part: int, number: int = 0) -> float:
    """Returns the point of its steps, in [0, 1), at which a sketch takes its keys: evenly spread over the producers, and over the ``number``s
    of one producer; independent between parts."""
    return ((producer + 1) * math.sqrt(_SPREAD[part % len(_SPREAD)]) + number * math.sqrt(1.25)) % 1.0


def targets(total: int, count: int, phase: float) -> tuple[Ints, Ints]:
    """The positions, in bytes from the beginning, whose keys a sketch of ``total`` bytes takes; and what each stands for."""
    count = min(count, total)
    edges = np.array([total * step // count for step in range(count + 1)] if count else [0], np.int64)
    weights = np.diff(edges)
    return edges[:-1] + (weights * phase).astype(np.int64), weights


def sketch_of(keys: Sequence[bytes], weights: Ints) -> Sketch:
    """A sketch of the keys at ``targets``, in order."""
    if not len(keys):
        return EMPTY
    cut = shortened(keys)
    step = int(weights.max())
    moved = any(len(one) < len(whole) for one, whole in zip(cut, keys, strict=True))
    return _combined(cut, weights, step * (2 if moved else 1))


def shortened(keys: Sequence[bytes]) -> list[bytes]:
    """Ascending keys, long ones cut to a beginning of themselves that is still beyond the key before, if that was another."""
    if max(map(len, keys), default=0) <= LONG_KEY:
        return list(keys)
    shared = [0, *map(_shared, keys, keys[1:]), 0]
    return [
        key[: min(max(shared[place : place + 2]) + LONG_KEY, LONGEST_KEY)] if len(key) > LONG_KEY else key
        for place, key in enumerate(keys)
    ]


def _shared(one: bytes, other: bytes) -> int:
    """Returns the number of bytes at their beginning that two keys have in common."""
    length = min(len(one), len(other))
    difference = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    return length - (difference.bit_length() + 7) // 8


def _combined(keys: Sequence[bytes], weights: Ints, error: int) -> Sketch:
    """Ascending keys, equal ones as one entry."""
    first = [0, *(place for place in range(1, len(keys)) if keys[place] != keys[place - 1])]
    return Sketch(tuple(keys[place] for place in first), np.add.reduceat(weights, first), error)


def together(sketches: Sequence[Sketch]) -> Sketch:
    """All entries of all sketches: nothing is lost, errors add up."""
    filled = [sketch for sketch in sketches if sketch.keys]
    if len(filled) <= 1:
        return filled[0] if filled else EMPTY
    sums: dict[bytes, int] = {}
    for sketch in filled:
        for key, weight in zip(sketch.keys, sketch.weights.tolist(), strict=True):
            sums[key] = sums.get(key, 0) + weight
    keys = tuple(sorted(sums))
    weights = np.fromiter(map(sums.__getitem__, keys), np.int64, len(keys))
    return Sketch(keys, weights, sum(sketch.error for sketch in filled))


def reduced(sketch: Sketch, count: int, phase: float) -> Sketch:
    """At most ``count`` entries that say about the same."""
    if len(sketch.keys) <= count:
        return sketch
    places, weights = targets(sketch.total, count, phase)
    chosen = np.searchsorted(np.cumsum(sketch.weights), places, side="right").tolist()
    return _combined([sketch.keys[place] for place in chosen], weights, sketch.error + int(weights.max()))


class SketchBuilder:
    """The sketch of one producer, from the sketches of its sorted regions."""

    def __init__(self, producer: int, producers: int) -> None:
        self._producer = producer
        self._entries = budget(producers)
        self._regions = 0
        self._levels: list[Sketch | None] = []

    def targets(self, total: int) -> tuple[Ints, Ints]:
        """The positions whose keys are wanted of the next region, of ``total`` plain bytes; and what each stands for."""
        self._regions += 1
        return targets(total, FINER * self._entries, self._phase(1))

    def add(self, keys: Sequence[bytes], weights: Ints) -> None:
        """The keys at those positions."""
        merged = sketch_of(keys, weights)
        for level, held in enumerate(self._levels):
            if held is None:
                self._levels[level] = merged
                return
            merged = reduced(together([held, merged]), FINER * self._entries, self._phase(2 + level))
            self._levels[level] = None
        self._levels.append(merged)

    def finish(self) -> Sketch:
        merged = together([level for level in self._levels if level is not None])
        return reduced(merged, self._entries, self._phase(0))

    def _phase(self, part: int) -> float:
        return phase_of(self._producer, part, self._regions)


# --- on the way to the driver --------------------------------------------------------------------------------------


def encode_sketch(sketch: Sketch) -> bytes:
    """Of each key only what differs from the one before; deflated."""
    keys = sketch.keys
    shared = [0, *map(_shared, keys, keys[1:])] if keys else []
    rest = [key[same:] for key, same in zip(keys, shared, strict=True)]
    numbers = np.array([shared, list(map(len, rest))], "<u2").tobytes()
    body = b"".join((numbers, sketch.weights.astype("<i8").tobytes(), *rest))
    return _HEADER.pack(_VERSION, len(keys), sketch.error) + zlib.compress(body, 1)


def decode_sketch(data: bytes) -> Sketch:
    """Raises ValueError for bytes that are not a sketch."""
    try:
        version, count, error = _HEADER.unpack_from(data)
        body = zlib.decompress(data[_HEADER.size :])
        if version != _VERSION or len(body) < 12 * count:
            raise ValueError("no sketch of keys")
    except (struct.error, zlib.error) as damage:
        raise ValueError(f"no sketch of keys: {damage}") from damage
    shared, lengths = np.frombuffer(body, "<u2", 2 * count).reshape(2, count).astype(np.int64)
    weights = np.frombuffer(body, "<i8", count, 4 * count).astype(np.int64)
    ends = 12 * count + np.cumsum(lengths)
    if (int(ends[-1]) if count else 0) != len(body):
        raise ValueError("no sketch of keys: it is cut")
    keys: list[bytes] = []
    key = b""
    for same, begin, end in zip(shared.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True):
        key = key[:same] + body[begin:end]
        keys.append(key)
    return Sketch(tuple(keys), weights, error)


# --- ranges --------------------------------------------------------------------------------------------------------


def merge_sketches(sketches: Sequence[Sketch], n: int) -> Boundaries:
    """The keys that part all rows into ``n`` ranges of about equal plain bytes.

    No range has more bytes than ``total / n``, or the heaviest single key, and twice the sum of the sketches' errors and
    one entry's weight beyond; see ``error_bound``. Where a key is heavier than a range should be, neighbouring ranges are
    empty. Takes O(entries log entries).
    """
    merged = together(sketches)
    if not merged.keys:
        return Boundaries((b"",) * (n - 1))
    below = np.cumsum(merged.weights) - merged.weights
    wanted = np.array([merged.total * number // n for number in range(1, n)], np.int64)
    after = np.minimum(np.searchsorted(below, wanted), len(below) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(below[after] - wanted < wanted - below[before], after, before)
    return Boundaries(tuple(merged.keys[place] for place in nearest.tolist()))


def bytes_between(sketch: Sketch, boundaries: Boundaries) -> Ints:
    """int64[n]: about how many plain bytes the producer has in each range; their sum is exact.

    A range with none may still have some rows: within ``error``.
    """
    if not sketch.keys:
        return np.zeros(len(boundaries), np.int64)
    keys = boundaries.keys
    ranges = np.fromiter((bisect_right(keys, key) for key in sketch.keys), np.int64, len(sketch.keys))
    sums = np.zeros(len(boundaries), np.int64)
    np.add.at(sums, ranges, sketch.weights)
    return sums


def error_bound(sketches: Sequence[Sketch]) -> int:
    """Plain bytes: the size of any range, summed over ``bytes_between``, is off by no more than this.

    True for the worst of all data; since the producers' phases differ, by far less as a rule.
    """
    return 2 * sum(sketch.error for sketch in sketches)
