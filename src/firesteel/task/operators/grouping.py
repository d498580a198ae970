"""Rows of equal keys found without looking at a row in Python: keys become dense integer codes, codes are sorted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns
from firesteel.results.keys import common_key_type, normalise_key
from firesteel.results.plain import one_chunk
from firesteel.task.batches import stable_order, take_rows

Codes = NDArray[np.int64]

_DENSE = 2
"""Integer keys whose span is below this many times the rows serve as codes themselves."""


def normalised(column: Any, to: pa.DataType | None = None) -> pa.Array:
    """A key column in canonical form (``to``: that of a pair of columns), in one chunk."""
    return one_chunk(normalise_key(one_chunk(column), to))


def key_columns(table: pa.Table, keys: Sequence[str]) -> list[pa.Array]:
    return [normalised(table.column(key)) for key in keys]


def encode(columns: Sequence[pa.Array]) -> tuple[Codes, int]:
    """A code below ``n`` per row, equal exactly for equal rows; returns (codes, n). The columns are normalised keys, nulls values of their own."""
    if not columns:
        raise ValueError("encode needs at least one column")
    codes, n = _encode_one(columns[0])
    for column in columns[1:]:
        more, m = _encode_one(column)
        codes, n = codes * m + more, n * m
        if n > max(_DENSE * len(codes), 1024):
            codes, n = _encode_one(pa.array(codes), dense=False)
    return codes, n


def _encode_one(column: pa.Array, *, dense: bool = True) -> tuple[Codes, int]:
    """``dense``: integers may be their own codes."""
    found = _integer_codes(column) if dense else None
    if found is not None:
        return found
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), max(len(encoded.dictionary), 1)


def _integer_codes(column: pa.Array) -> tuple[Codes, int] | None:
    """``value - smallest`` as codes, and their number, of integer, date or timestamp columns whose values lie close together.

    The last code stands for null. None for other columns.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)):
        return None
    if len(column) == column.null_count:
        return np.zeros(len(column), dtype=np.int64), 1
    values = column
    if not pa.types.is_integer(column.type):  # the same memory as integers
        values = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    span = high - low + 1
    if span > max(_DENSE * len(column), 1024) or high >= 1 << 63:
        return None
    numbers = np.asarray(values.fill_null(low) if values.null_count else values)
    codes = numbers.astype(np.int64, copy=False) - low
    if column.null_count:
        codes[np.asarray(column.is_null())] = span
    return codes, span + 1


class Groups:
    """A table's rows gathered by code; a group is a zero-copy slice."""

    def __init__(self, table: pa.Table, codes: Codes, n: int) -> None:
        order = stable_order(codes)
        self.table = table if _is_sorted(order) else take_rows(table, order)
        self.counts = np.bincount(codes, minlength=n)
        self.starts = np.concatenate(([0], np.cumsum(self.counts)))

    def of(self, code: int) -> pa.Table:
        return self.table.slice(self.starts[code], self.counts[code])

    def codes(self) -> list[int]:
        """Codes that have rows, ascending."""
        return np.flatnonzero(self.counts).tolist()

    def runs(self, rows: int) -> Iterator[tuple[pa.Table, list[tuple[int, int]]]]:
        """The groups in tables of about ``rows`` rows each (one larger group whole), with the bounds of the groups in each."""
        counts = self.counts[self.counts > 0]
        ends = np.cumsum(counts)
        low = 0
        while low < len(ends):
            before = int(ends[low - 1]) if low else 0
            high = max(int(np.searchsorted(ends, before + rows, side="right")), low + 1)
            within = (ends[low:high] - before).tolist()
            yield self.table.slice(before, within[-1]), list(itertools.pairwise([0, *within]))
            low = high


def grouped(table: pa.Table, keys: Sequence[str]) -> Groups:
    """The rows by their values of these columns; without any they are one group."""
    if not keys or not table.num_rows:
        return Groups(table, np.zeros(table.num_rows, dtype=np.int64), 1)
    return Groups(table, *encode(key_columns(table, keys)))


def paired(left: pa.Table, right: pa.Table, keys: Sequence[Sequence[str]]) -> tuple[Groups, Groups, list[int]]:
    """The rows of both sides by their keys, under common codes; and the codes that any side has. ``keys``: of left and right."""
    both = (
        pa.concat_arrays([normalised(a, to), normalised(b, to)])
        for a, b in zip(map(left.column, keys[0]), map(right.column, keys[1]), strict=True)
        for to in [common_key_type(a.type, b.type)]
    )
    codes, n = encode(list(both))
    lefts, rights = Groups(left, codes[: left.num_rows], n), Groups(right, codes[left.num_rows :], n)
    return lefts, rights, np.flatnonzero(lefts.counts + rights.counts).tolist()


def _is_sorted(order: NDArray[np.int64]) -> bool:
    return bool((order[1:] > order[:-1]).all())


def plain_values(column: Any) -> pa.Array:
    """The values in one chunk, without a dictionary or runs."""
    array = one_chunk(column)
    if pa.types.is_dictionary(array.type):
        return array.cast(array.type.value_type)
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array


SLICES, SLICE_ROWS = 16, 128
"""Rows looked at, in slices that lie evenly: rows that are in the order of their keys show as well."""
SHARE = 1 / 16
"""Of the sample, from which on a key is heavy: the one task that gets its rows would have twice what each of 16 should have."""


def heavy_rows(table: pa.Table, names: Sequence[str]) -> pa.Array | None:
    """A mask of the rows of heavy keys, by the hash of these columns; None where the sample has none, or the rows are too few."""
    rows = table.num_rows
    if rows < 2 * SLICES * SLICE_ROWS:
        return None
    starts = np.arange(SLICES) * (rows // SLICES)
    sample = pa.concat_tables([table.slice(start, SLICE_ROWS) for start in starts.tolist()])
    found, counts = np.unique(_hashes(sample, names), return_counts=True)
    heavy = found[counts >= SHARE * sample.num_rows]
    return pa.array(np.isin(_hashes(table, names), heavy)) if len(heavy) else None


def _hashes(table: pa.Table, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return hash_columns([table.column(name) for name in names])
