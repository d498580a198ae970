"""Rows of equal keys found without looking at a row in Python: keys become dense integer codes, codes are sorted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.keys import common_key_type, normalise_key
from firesteel.task.batches import one_chunk, stable_order, take_rows

Codes = NDArray[np.int64]

_DENSE = 2
"""Integer keys whose span is below this many times the rows serve as codes themselves."""


def normalised(column: Any, to: pa.DataType | None = None) -> pa.Array:
    """A key column in canonical form (``to``: that of a pair of columns), in one chunk."""
    return one_chunk(normalise_key(one_chunk(column), to))


def key_columns(table: pa.Table, keys: Sequence[str]) -> list[pa.Array]:
    return [normalised(table.column(key)) for key in keys]


def paired_columns(
    left: pa.Table, left_keys: Sequence[str], right: pa.Table, right_keys: Sequence[str]
) -> list[pa.Array]:
    """Per key pair the left column and behind it the right one, normalised to the same type."""
    return [
        pa.concat_arrays([normalised(a, to), normalised(b, to)])
        for a, b in zip(map(left.column, left_keys), map(right.column, right_keys), strict=True)
        for to in [common_key_type(a.type, b.type)]
    ]


def encode(columns: Sequence[pa.Array], *, nulls_match: bool) -> tuple[Codes, int]:
    """A code below ``n`` per row, equal exactly for equal rows; returns (codes, n). The columns are normalised keys.

    Nulls are a value of their own if ``nulls_match``, else rows with a null in any column get -1.
    """
    if not columns:
        raise ValueError("encode needs at least one column")
    codes, n = _encode_one(columns[0], nulls_match)
    for column in columns[1:]:
        more, m = _encode_one(column, nulls_match)
        null = (codes < 0) | (more < 0)
        codes, n = codes * m + more, n * m
        codes[null] = -1
        if n > max(_DENSE * len(codes), 1024):
            codes, n = _densify(codes)
    return codes, n


def _encode_one(column: pa.Array, nulls_match: bool) -> tuple[Codes, int]:
    dense = integer_codes(column, nulls_match=nulls_match)
    if dense is not None:
        return dense[:2]
    if pa.types.is_null(column.type):
        return np.full(len(column), 0 if nulls_match else -1, dtype=np.int64), 1
    encoded = column.dictionary_encode(null_encoding="encode" if nulls_match else "mask")
    codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
    return codes, max(len(encoded.dictionary), 1)


def integer_codes(column: pa.Array, *, nulls_match: bool) -> tuple[Codes, int, int] | None:
    """(``value - smallest`` as codes, their number, the smallest) of integer, date or timestamp columns whose values lie close together.

    The last code stands for null. None for other columns.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)):
        return None
    if len(column) == column.null_count:
        return np.full(len(column), 0 if nulls_match else -1, dtype=np.int64), 1, 0
    values = as_integers(column)
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    span = high - low + 1
    if span > max(_DENSE * len(column), 1024) or high >= 1 << 63:
        return None
    numbers = np.asarray(values.fill_null(low) if values.null_count else values)
    codes = numbers.astype(np.int64, copy=False) - low
    if column.null_count:
        codes[np.asarray(column.is_null())] = span if nulls_match else -1
    return codes, span + 1, low


def as_integers(column: pa.Array) -> pa.Array:
    """The same memory as integers: of integers, dates and timestamps."""
    if pa.types.is_integer(column.type):
        return column
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _densify(codes: Codes) -> tuple[Codes, int]:
    encoded = pa.array(codes, mask=codes < 0).dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1)).astype(np.int64), max(len(encoded.dictionary), 1)


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


def _is_sorted(order: NDArray[np.int64]) -> bool:
    return bool((order[1:] > order[:-1]).all())


def plain_values(column: Any) -> pa.Array:
    """The values in one chunk, without a dictionary or runs."""
    array = one_chunk(column)
    if pa.types.is_dictionary(array.type):
        return array.cast(array.type.value_type)
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array
