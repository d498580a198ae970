"""Sizes of a partition's subpartitions, packed for the way from a task to the driver and for the driver's scratch files.

Written inside Spark tasks, folded in the control plane: numpy only, imports nothing of Firesteel.

A row is a header, one code of fixed width per subpartition, and the exceptions: subpartitions whose size no code can
hold. ``size = base + (code << shift)``, and of an exception ``size = base + delta``, its code being 0. So many rows are
added up by adding their codes in blocks, and all that is left are few exceptions and one base per row. A row of equal
sizes, or nearly all zero, has codes of width 0: none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MAX_PACKED_BYTES = 25_000
"""Bytes that a report over 10,000 subpartitions may take."""
ALWAYS_BYTES = 4_096
"""Bytes that a row may take however few subpartitions it speaks of: 1,000 of them are exact whatever their sizes below 4 GiB."""
MANY_PRODUCERS = 10_000
FEW_SUBPARTITIONS = 4_096
"""Above so many producers a result has at most so many subpartitions, unless its consumer's parallelism is known."""

_HEADER = np.dtype([("count", "<u4"), ("width", "u1"), ("shift", "u1"), ("exceptions", "<u2"), ("base", "<i8")])
_ONE_HEADER = struct.Struct("<IBBHq")
_EXCEPTION = np.dtype([("place", "<u4"), ("delta", "<i8")])
_CODES = {0: np.dtype("u1"), 1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
_IS_WIDTH = np.isin(np.arange(256), list(_CODES))
_ROUNDED = 2
"""Width of the codes of rows that are rounded."""
_BLOCK = 1 << 19
"""Bytes of codes added at a time: they should stay in the processor's cache."""
_MOST_ROWS = 1 << 16
"""So many codes of 16 bits are added in 32 bits without overflow."""


def is_measured(producers: int, subpartitions: int) -> bool:
    """Returns whether producers report sizes by subpartition at all. Both ends ask this."""
    return producers <= MANY_PRODUCERS or subpartitions <= FEW_SUBPARTITIONS


def budget(subpartitions: int) -> int:
    """The most bytes a packed row of so many subpartitions takes."""
    return max(ALWAYS_BYTES, MAX_PACKED_BYTES * subpartitions // 10_000)


def pack(sizes: Ints) -> bytes:
    """Plain bytes per subpartition (int64, not negative), in the fewest bytes that this format has for them.

    Exact wherever the budget allows: always below 65,536 bytes of difference, or up to 1,000 subpartitions below 4 GiB,
    leaving out one outlier in sixteen. Else every size but the outliers is rounded to the nearest multiple, counted from
    the smallest, of a power of two ``2**s``, the smallest that fits: an error of at most ``2**s / 2``, less than
    ``(largest - smallest) / 65,535``.
    """
    sizes = np.ascontiguousarray(sizes, np.int64)
    n = len(sizes)
    if n == 0:
        return _assemble(sizes, 0, 0, 0, 0)
    ordered = np.sort(sizes)
    most = _most_exceptions(n)
    exact = [(width, *_window(ordered, width)) for width in _CODES]
    fitting = [
        (_HEADER.itemsize + width * n + left * _EXCEPTION.itemsize, width, base, end)
        for width, base, end, left in exact
        if left <= (most if width < 8 else 0)
    ]
    cost, width, base, end = min(fitting)
    if cost <= budget(n):
        return _assemble(sizes, width, 0, base, end)
    return _rounded(sizes, ordered, most)


def unpack(row: bytes) -> Ints:
    """Plain bytes per subpartition. Raises ValueError for what is not a packed row."""
    if counts_of([row])[0] < 0:
        raise ValueError(f"{len(row)} bytes that are not a packed row of sizes")
    into = np.zeros(int(_headers([row])["count"][0]), np.int64)
    fold([row], into)
    return into


def fold(rows: Sequence[bytes], into: Ints, sign: int = 1) -> None:
    """Add many packed rows, each of ``len(into)`` subpartitions, to a sum of plain bytes by subpartition."""
    n = len(into)
    if n == 0 or not len(rows):
        return
    if len(rows) == 1:
        _fold_one(rows[0], into, sign)
        return
    headers = _headers(rows)
    into += sign * int(headers["base"].sum())
    kinds = headers["width"].astype(np.int64) << 8 | headers["shift"]
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        width, shift = kind >> 8, kind & 255
        if width:
            alike = [rows[k] for k in np.flatnonzero(kinds == kind).tolist()]
            for total in _code_sums(alike, n, width):
                into += sign * (total << shift)
    exceptional = np.flatnonzero(headers["exceptions"])
    if len(exceptional):
        starts = (_HEADER.itemsize + headers["width"][exceptional].astype(np.int64) * n).tolist()
        tails = [rows[k][start:] for k, start in zip(exceptional.tolist(), starts, strict=True)]
        exceptions = np.frombuffer(b"".join(tails), _EXCEPTION)
        np.add.at(into, exceptions["place"].astype(np.int64), sign * exceptions["delta"].astype(np.int64))


def unfold(rows: Sequence[bytes], out_of: Ints) -> None:
    """Take rows back that were folded before: afterwards the sum is as if they had never been added."""
    fold(rows, out_of, sign=-1)


def counts_of(rows: Sequence[bytes]) -> Ints:
    """Returns the number of subpartitions that each packed row speaks of; -1: these bytes are not a packed row."""
    if len(rows) == 1:
        return np.array([_count_of(rows[0])], np.int64)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    counts = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero(lengths >= _HEADER.itemsize)
    headers = _headers(rows if len(whole) == len(rows) else [rows[k] for k in whole.tolist()])
    said = headers["count"].astype(np.int64)
    told = _HEADER.itemsize + said * headers["width"] + headers["exceptions"].astype(np.int64) * _EXCEPTION.itemsize
    right = (told == lengths[whole]) & _IS_WIDTH[headers["width"]]
    counts[whole[right]] = said[right]
    return counts


def _count_of(row: bytes) -> int:
    if len(row) < _HEADER.itemsize:
        return -1
    count, width, _, exceptions, _ = _ONE_HEADER.unpack_from(row)
    whole = len(row) == _HEADER.itemsize + count * width + exceptions * _EXCEPTION.itemsize
    return count if whole and width in _CODES else -1


def _fold_one(row: bytes, into: Ints, sign: int) -> None:
    """Not gathering anything takes a quarter of the time."""
    count, width, shift, exceptions, base = _ONE_HEADER.unpack_from(row)
    into += sign * base
    if width:
        codes = np.frombuffer(row, _CODES[width], count, _HEADER.itemsize)
        if shift or width == 8:
            codes = codes.astype(np.int64) << shift
        (np.add if sign > 0 else np.subtract)(into, codes, out=into)
    if exceptions:
        found = np.frombuffer(row, _EXCEPTION, exceptions, _HEADER.itemsize + count * width)
        into[found["place"]] += sign * found["delta"]


def _headers(rows: Sequence[bytes]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.frombuffer(b"".join([row[: _HEADER.itemsize] for row in rows]), _HEADER)


def _code_sums(rows: Sequence[bytes], n: int, width: int) -> Iterator[Ints]:
    """Codes of equally wide rows, added up: several sums, each over so many rows that it does not overflow."""
    start, end = _HEADER.itemsize, _HEADER.itemsize + n * width
    step = min(_MOST_ROWS, max(1, _BLOCK // (n * width)))
    wide = np.uint32 if width <= 2 else np.uint64
    for first in range(0, len(rows), _MOST_ROWS):
        total = np.zeros(n, wide)
        for chunk in range(first, min(first + _MOST_ROWS, len(rows)), step):
            block = b"".join([row[start:end] for row in rows[chunk : min(chunk + step, first + _MOST_ROWS)]])
            total += np.frombuffer(block, _CODES[width]).reshape(-1, n).sum(axis=0, dtype=wide)
        yield total.astype(np.int64)


def _most_exceptions(n: int) -> int:
    """Few, since adding exceptions up costs more than adding codes."""
    return min(n // 16 + 1, np.iinfo(np.uint16).max)


def _window(ordered: Ints, width: int) -> tuple[int, int, int]:
    """The values that most sizes lie within and codes of this width can tell apart: (first, last, how many lie outside)."""
    span = min((1 << 8 * width) - 1, np.iinfo(np.int64).max - max(0, int(ordered[-1])))
    ends = np.searchsorted(ordered, ordered + span, "right")
    best = int(np.argmax(ends - np.arange(len(ordered))))
    end = int(ends[best])
    return int(ordered[best]), int(ordered[end - 1]), len(ordered) - (end - best)


def _rounded(sizes: Ints, ordered: Ints, most: int) -> bytes:
    n = len(sizes)
    most = min(most, (budget(n) - _HEADER.itemsize - _ROUNDED * n) // _EXCEPTION.itemsize)
    spans = ordered[n - most - 1 :] - ordered[: most + 1]
    best = int(np.argmin(spans))
    span, largest = int(spans[best]), (1 << 8 * _ROUNDED) - 1
    shift = max(0, span.bit_length() - 8 * _ROUNDED)
    shift += _rounding(span, shift) > largest
    base = int(ordered[best])
    return _assemble(sizes, _ROUNDED, shift, base, base + span)


def _rounding(value: int, shift: int) -> int:
    return (value + (1 << shift >> 1)) >> shift


def _assemble(sizes: Ints, width: int, shift: int, base: int, last: int) -> bytes:
    """``base`` ... ``last``: the sizes that have codes; the others are exceptions."""
    outside = (sizes < base) | (sizes > last)
    exceptions = np.zeros(int(outside.sum()), _EXCEPTION)
    exceptions["place"] = np.flatnonzero(outside)
    exceptions["delta"] = sizes[outside] - base
    header = np.array([(len(sizes), width, shift, len(exceptions), base)], _HEADER)
    codes = b""
    if width:
        deltas = np.where(outside, 0, sizes - base)
        codes = ((deltas + (1 << shift >> 1)) >> shift).astype(_CODES[width]).tobytes()
    return header.tobytes() + codes + exceptions.tobytes()
