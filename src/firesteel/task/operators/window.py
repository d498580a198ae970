"""Window functions over whole groups: numbers, neighbours, running and rolling aggregates, without Python code per row or group.

A unit's rows are sorted by key and order at once. What runs over a group is computed for all groups of one length together,
as a matrix with a row for each; there are at most about ``sqrt(2 n)`` different lengths among ``n`` rows. Rolling
aggregates use van Herk's and Gil and Werman's two passes (prefixes and suffixes of blocks as long as the window): three
operations a row however long the window is, and nothing is ever subtracted, so that one infinity or NaN spoils only the
windows it is in. Frames are of rows. Rows that are equal in the order come in the order of a hash of all their columns, so
that the answer does not depend on which came first.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.model.arrays import Ints
from firesteel.task.batches import one_chunk, table_batches, take, take_rows
from firesteel.task.functions.rows import fits
from firesteel.task.functions.user_code import complaint
from firesteel.task.operators.aggregation.folding import OUTPUT_ROWS
from firesteel.task.operators.grouping import (
    content_hashes,
    encode,
    key_columns,
    order_codes,
    plain_values,
    sorted_rows,
)
from firesteel.task.operators.relational import aggregate_type, check_columns
from firesteel.task.program import Batches, TaskContext, UnitInput

NUMBERS = ("row_number", "rank", "dense_rank", "ntile")
NEIGHBOURS = ("lag", "lead", "first", "last")
_TIES_DO_NOT_MATTER = ("rank", "dense_rank")
_DIGITS = 80
"""More than the sum of any column of decimals needs."""


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """``kind``: one of NUMBERS, NEIGHBOURS, or sum, min, max, mean, count. ``n``: tiles, or the distance of a neighbour, or the rows of a rolling frame
    (None: all from the group's first row on)."""

    kind: str
    column: str | None = None
    n: int | None = None
    default: Any = None

    def output_type(self, schema: pa.Schema, output: str) -> pa.DataType:
        """Raises UsageError for a column that is not there or that the function cannot be applied to."""
        if self.kind in NUMBERS:
            return pa.int64()
        check_columns(schema, [str(self.column)], self.kind)
        type_ = schema.field(self.column).type
        if self.kind in NEIGHBOURS:
            if self.default is not None and not fits(self.default, type_):
                raise UsageError(
                    f"The default {self.default!r} of {self.kind} is not of type {type_}, the type of column '{self.column}'."
                )
            return type_
        return pa.int64() if self.kind == "count" else aggregate_type(self.kind, str(self.column), schema)


@dataclass(frozen=True, slots=True)
class WindowFunctions:
    """Keyed operator: all columns, and behind them the outputs. ``order``: (column, ascending); nulls are the smallest
    values, NaN the largest number. Rows leave by group, in its order."""

    name: str
    group_keys: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    functions: tuple[tuple[str, WindowFunction], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        table = inputs[0].table()
        if not table.num_rows:
            return
        exact = any(function.kind not in _TIES_DO_NOT_MATTER for _, function in self.functions)
        ordered = _Ordered(table, self.group_keys, self.order, exact)
        columns = list(ordered.table.columns)
        for (output, function), field in zip(self.functions, list(self.schema)[len(columns) :], strict=True):
            try:
                columns.append(_computed(ordered, function, field.type))
            except (OverflowError, pa.ArrowInvalid):
                text = (
                    f"has a {function.kind} of '{function.column}' for column '{output}' that does not fit {field.type}"
                )
                raise complaint(self.name, text, ctx) from None
        yield from table_batches(pa.Table.from_arrays(columns, schema=self.schema), OUTPUT_ROWS)


# --- the order ------------------------------------------------------------------------------------------------------


class _Ordered:
    """A table sorted by group and order. ``starts``: each group's first row; ``first``, ``place``: per row, its group's first row
    and its own number in it; ``peers``: whether a row differs from the one before it in group or order."""

    def __init__(self, table: pa.Table, keys: Sequence[str], order: Sequence[tuple[str, bool]], exact: bool) -> None:
        groups, n = encode(key_columns(table, keys), nulls_match=True)
        codes = [(groups, n), *(order_codes(table.column(name), ascending) for name, ascending in order)]
        rows = sorted_rows(codes)
        peers = _differs(codes, rows)
        if exact and not peers.all():
            rows = _without_ties(table, rows, peers)
        self.table = take_rows(table, rows)
        self.peers = peers
        begins = _differs(codes[:1], rows)
        self.starts: Ints = np.flatnonzero(begins)
        self.lengths: Ints = np.diff(np.append(self.starts, table.num_rows))
        self.first: Ints = np.repeat(self.starts, self.lengths)
        self.place: Ints = np.arange(table.num_rows) - self.first
        self.length: Ints = np.repeat(self.lengths, self.lengths)

    def over_groups(self, values: NDArray[Any], along: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """``along``: gets a matrix with a group in each row and gives one of the same shape."""
        result = np.empty(len(values), dtype=values.dtype)
        by_length = np.argsort(self.lengths, kind="stable")
        lengths = self.lengths[by_length]
        edges = np.flatnonzero(np.concatenate(([True], lengths[1:] != lengths[:-1], [True])))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            starts, length = self.starts[by_length[low:high]], int(lengths[low])
            at = starts[:, None] + np.arange(length)
            result[at] = along(values[at])
        return result


def _without_ties(table: pa.Table, rows: Ints, peers: NDArray[np.bool_]) -> Ints:
    """``rows`` with those that are equal in group and order put into the order of their contents."""
    tied = ~peers
    tied[:-1] |= ~peers[1:]
    at = np.flatnonzero(tied)
    among = rows[at]
    hashes = content_hashes(take_rows(table, among))
    result = rows.copy()
    result[at] = among[np.lexsort((hashes, np.cumsum(peers)[at]))]
    return result


def _differs(codes: list[tuple[Ints, int]], rows: Ints) -> NDArray[np.bool_]:
    differs = np.zeros(len(rows), dtype=np.bool_)
    differs[0] = True
    for code, _ in codes:
        ordered = code[rows]
        differs[1:] |= ordered[1:] != ordered[:-1]
    return differs


# --- the functions --------------------------------------------------------------------------------------------------


def _computed(ordered: _Ordered, function: WindowFunction, type_: pa.DataType) -> pa.Array:
    if function.kind in NUMBERS:
        return pa.array(_number(ordered, function))
    column = one_chunk(ordered.table.column(function.column))
    if function.kind in NEIGHBOURS:
        return _neighbour(ordered, function, column)
    return _running(ordered, function, column, type_)


def _number(ordered: _Ordered, function: WindowFunction) -> Ints:
    if function.kind == "row_number":
        return ordered.place + 1
    if function.kind == "ntile":
        small, more = np.divmod(ordered.length, function.n or 1)
        many = more * (small + 1)  # rows in the larger tiles, which come first
        behind = more + (ordered.place - many) // np.maximum(small, 1)
        return np.where(ordered.place < many, ordered.place // (small + 1), behind) + 1
    if function.kind == "dense_rank":
        seen = np.cumsum(ordered.peers)
        return seen - seen[ordered.first] + 1
    rows = np.arange(len(ordered.peers))
    return np.maximum.accumulate(np.where(ordered.peers, rows, 0)) - ordered.first + 1


def _neighbour(ordered: _Ordered, function: WindowFunction, column: pa.Array) -> pa.Array:
    if function.kind == "first":
        return take(column, pa.array(ordered.first))
    if function.kind == "last":
        return take(column, pa.array(ordered.first + ordered.length - 1))
    distance = (function.n or 0) if function.kind == "lead" else -(function.n or 0)
    place = ordered.place + distance
    inside = (place >= 0) & (place < ordered.length)
    found = take(column, pa.array(np.where(inside, ordered.first + place, 0), mask=~inside))
    if function.default is None:
        return found
    default = pa.array([function.default], column.type)
    both = one_chunk(pa.chunked_array([column, default]))
    return take(both, pa.array(np.where(inside, ordered.first + place, len(column))))


def _running(ordered: _Ordered, function: WindowFunction, column: pa.Array, type_: pa.DataType) -> pa.Array:
    plain = plain_values(column)
    valid = np.asarray(plain.is_valid())
    count = ordered.over_groups(valid.astype(np.int64), lambda m: _along(m, np.add, 0, function.n))
    if function.kind == "count":
        return pa.array(count)
    if function.kind in ("min", "max"):
        return _extreme(ordered, function, plain, count)
    longest = min(int(ordered.lengths.max()), function.n or len(plain))
    to = pa.float64() if function.kind == "mean" else type_
    numbers, zero = _summands(plain, to, longest)
    with np.errstate(all="ignore"), decimal.localcontext(decimal.Context(prec=_DIGITS)):
        sums = ordered.over_groups(numbers, lambda m: _along(m, np.add, zero, function.n))
        if function.kind == "mean":
            return pa.array(np.divide(sums, np.maximum(count, 1)), mask=count == 0)
    if sums.dtype == object:
        return pa.array([s if c else None for s, c in zip(sums.tolist(), count.tolist(), strict=True)], to)
    made = pa.array(sums, mask=count == 0)
    return made.cast(to) if made.type != to else made


def _summands(plain: pa.Array, to: pa.DataType, longest: int) -> tuple[NDArray[Any], Any]:
    """The numbers to add, nulls as zeros, and the zero; as Python's own where 64 bits could be too few."""
    if pa.types.is_decimal(to):
        zero = decimal.Decimal(0)
        return np.array([zero if v is None else v for v in plain.to_pylist()], dtype=object), zero
    if pa.types.is_floating(to):
        filled = plain.cast(pa.float64(), safe=False).fill_null(0.0)
        return np.asarray(filled), 0.0
    if pa.types.is_null(plain.type):
        return np.zeros(len(plain), dtype=np.int64), 0
    whole = plain.cast(pa.int64()) if pa.types.is_duration(to) else plain.cast(to)
    numbers = np.asarray(whole.fill_null(0))
    largest = max(abs(int(numbers.max())), abs(int(numbers.min()))) if len(numbers) else 0
    if largest * longest < 1 << 63:
        return numbers, 0
    return numbers.astype(object), 0


def _extreme(ordered: _Ordered, function: WindowFunction, plain: pa.Array, count: Ints) -> pa.Array:
    """By the values' numbers in their order, of which one row each is looked up."""
    if pa.types.is_null(plain.type):
        return plain
    codes, n = order_codes(plain, ascending=True)
    rows = np.zeros(n + 1, dtype=np.int64)
    rows[codes] = np.arange(len(codes))
    least = function.kind == "min"
    outside = n if least else 0
    codes[np.asarray(plain.is_null())] = outside
    ufunc = np.minimum if least else np.maximum
    found = ordered.over_groups(codes, lambda m: _along(m, ufunc, outside, function.n))
    return take(plain, pa.array(rows[found], mask=count == 0))


def _along(matrix: NDArray[Any], ufunc: np.ufunc, identity: Any, rows: int | None) -> NDArray[Any]:
    """``ufunc`` over each row of the matrix: from its beginning, or over the last ``rows`` values, up to every value."""
    count, length = matrix.shape
    if rows is None or rows >= length:
        return ufunc.accumulate(matrix, axis=1)
    if rows == 1:
        return matrix
    blocks = -(-length // rows)
    padded = np.full((count, blocks * rows), identity, dtype=matrix.dtype)
    padded[:, :length] = matrix
    cut = padded.reshape(count, blocks, rows)
    prefix = ufunc.accumulate(cut, axis=2).reshape(count, -1)[:, :length]
    suffix = ufunc.accumulate(cut[:, :, ::-1], axis=2)[:, :, ::-1].reshape(count, -1)
    begins = np.arange(length - rows + 1)
    result = prefix.copy()
    joined = ufunc(suffix[:, : length - rows + 1], prefix[:, rows - 1 :])
    result[:, rows - 1 :] = np.where(begins % rows == 0, prefix[:, rows - 1 :], joined)
    return result
