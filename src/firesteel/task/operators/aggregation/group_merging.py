"""Merging rows of equal keys: Acero's group-by, brought to the right answers for every type, and a shortcut without a hash table.

The shortcut serves what partial aggregation meets most: one integer key whose values lie close together (a file
ordered by it), sums and counts. Then key minus smallest key is the group's number and numpy adds up directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import FiresteelError
from firesteel.task.batches import nullable, one_chunk, take_rows
from firesteel.task.operators.grouping import integer_codes, normalised

_types = pa.types

EXACT = 1 << 53
"""Integers below this are exact as doubles."""


@dataclass(frozen=True, slots=True)
class Part:
    """A column of partial rows. ``kind``: sum, min, max, count, rows (merged by their kind or as sums) or distinct (a value)."""

    name: str
    kind: str
    column: str
    type: pa.DataType
    where: str = ""
    """A column: only rows where it is true."""

    @property
    def merge_by(self) -> str:
        return self.kind if self.kind in ("min", "max") else "sum"


def grouped(table: pa.Table, keys: Sequence[str], values: Sequence[str], measures: Sequence[Part]) -> pa.Table:
    """``table`` with one row per (keys, values); measures merged. Columns: keys, measures, values, under their names."""
    prepared = [_Measure(part, table.column(part.name)) for part in measures]
    schema = nullable(table.select([*keys, *(part.name for part in measures), *values]).schema)
    if len(keys) == 1 and not values:
        dense = _dense(table.column(keys[0]), prepared)
        if dense is not None:
            return pa.Table.from_arrays(dense, schema=schema)
    originals = [table.column(key) for key in keys]
    columns, by = {}, []
    for i, column in enumerate(_normalised(originals)):
        columns[f"k{i}"] = column
        by.append(f"k{i}")
    for i, value in enumerate(values):
        columns[f"v{i}"] = table.column(value)
        by.append(f"v{i}")
    for i, measure in enumerate(prepared):
        columns[f"m{i}"] = measure.column
    restored = [_restorable(column.type, columns[f"k{i}"].type) for i, column in enumerate(originals)]
    aggs = [(f"m{i}", measure.part.merge_by) for i, measure in enumerate(prepared)]
    if not all(restored):
        columns["row"] = pa.array(np.arange(table.num_rows))
        aggs.append(("row", "min"))
    groups = _group_by(columns, by, aggs)
    if all(restored):
        out = [groups.column(f"k{i}").cast(column.type) for i, column in enumerate(originals)]
    else:
        out = list(take_rows(table.select(list(keys)), one_chunk(groups.column("row_min"))).columns)
    out += [measure.result(groups.column(f"m{i}_{measure.part.merge_by}")) for i, measure in enumerate(prepared)]
    out += [groups.column(f"v{i}") for i in range(len(values))]
    return pa.Table.from_arrays(out, schema=schema)


def _dense(key: Any, measures: Sequence[_Measure]) -> list[pa.Array] | None:
    """The key and measures of every group in the order of the key; None when the shortcut does not serve."""
    if not all(measure.adds_exactly for measure in measures) or not (
        _types.is_integer(key.type) or _types.is_date32(key.type)
    ):
        return None
    found = integer_codes(one_chunk(key), nulls_match=True)
    if found is None:
        return None
    codes, n, low = found
    present = np.flatnonzero(np.bincount(codes, minlength=n))
    keys = pa.array(present + low, mask=present == n - 1 if key.null_count else None)
    if _types.is_date32(key.type):
        keys = keys.cast(pa.int32())
    return [keys.cast(key.type), *(measure.summed(codes, n, present) for measure in measures)]


def _group_by(columns: dict[str, Any], by: list[str], aggs: list[tuple[str, str]]) -> pa.Table:
    if not by and not aggs:
        return pa.table({"_": pa.nulls(1)})
    return pa.table(columns).group_by(by, use_threads=False).aggregate(aggs)


def _normalised(columns: Sequence[Any]) -> list[Any]:
    return [column if _is_canonical(column.type) else normalised(column) for column in columns]


def _is_canonical(type_: pa.DataType) -> bool:
    """Types whose equal values are equal bytes: they group rightly as they are, in as many chunks as they come."""
    return any(is_(type_) for is_ in _CANONICAL)


_CANONICAL = (
    _types.is_integer, _types.is_boolean, _types.is_string, _types.is_large_string, _types.is_binary, _types.is_large_binary,
    _types.is_date32, _types.is_time, _types.is_timestamp, _types.is_duration, _types.is_decimal128, _types.is_decimal256,
)  # fmt: skip


def _restorable(type_: pa.DataType, normal: pa.DataType) -> bool:
    """The normalised key says everything about the original; else the group's first row is taken."""
    return type_ == normal or (_types.is_floating(type_) and _types.is_floating(normal))


class _Measure:
    """One part on its way through the group-by kernel, in a type in which the kernel is right."""

    def __init__(self, part: Part, column: Any) -> None:
        self.part = part
        self.column = column
        self._ordered = self._widened = False
        self.adds_exactly = part.merge_by == "sum" and (_types.is_floating(part.type) or part.kind != "sum")
        if part.kind in ("min", "max"):
            self._order_nan()
        elif part.kind == "sum":
            self._widen()

    def _order_nan(self) -> None:
        """The kernels skip NaN (and give infinity for nothing but NaN): compare order-preserving integers instead."""
        if not _types.is_floating(self.part.type) or not pc.any(pc.is_nan(self.column)).as_py():
            return
        self._ordered = True
        array = one_chunk(self.column)
        values = np.asarray(array.fill_null(0).cast(pa.float64())).copy()
        values[np.isnan(values)] = np.nan  # one NaN, the largest
        self.column = pa.array(_flipped(values.view(np.int64)), mask=np.asarray(array.is_null()))

    def _widen(self) -> None:
        """A sum that might leave its type is taken in a wider one; whether it did is seen when it is cast back."""
        if len(self.column) == 0 or _types.is_floating(self.part.type):
            return
        bounds = pc.min_max(self.column).as_py()
        if bounds["max"] is None:
            return
        largest = max(abs(Decimal(bounds["min"])), abs(Decimal(bounds["max"]))) * len(self.column)
        wider: pa.DataType = pa.decimal128(38, 0)
        limit = Decimal(2) ** (64 if _types.is_unsigned_integer(self.part.type) else 63)
        if _types.is_decimal(self.part.type):
            wider = pa.decimal256(76, self.part.type.scale)
            limit = Decimal(10) ** (self.part.type.precision - self.part.type.scale)
        self.adds_exactly = largest < EXACT and _types.is_integer(self.part.type)
        if largest >= limit:
            if _types.is_decimal256(self.part.type):  # there is nothing wider to see an overflow in
                raise self._overflow("may not")
            self._widened = True
            self.column = self.column.cast(wider)

    def _overflow(self, does: str) -> FiresteelError:
        return FiresteelError(
            f"A sum of column '{self.part.column}' {does} fit {self.part.type}.",
            hint="Cast the column to a wider decimal or to double before.",
        )

    def summed(self, codes: Any, n: int, present: Any) -> pa.Array:
        """The sum of each group of ``present``, null where there is nothing but nulls."""
        array = one_chunk(self.column)
        values = np.asarray(array.fill_null(0) if array.null_count else array)
        sums = np.bincount(codes, weights=values, minlength=n)[present]
        nothing = None
        if array.null_count:
            nothing = np.bincount(codes[np.asarray(array.is_valid())], minlength=n)[present] == 0
        return pa.array(sums.astype(values.dtype), self.part.type, mask=nothing, from_pandas=False)

    def result(self, column: Any) -> Any:
        if self._ordered:
            array = one_chunk(column)
            bits = np.ascontiguousarray(_flipped(np.asarray(array.fill_null(0)).astype(np.int64)))
            return pa.array(bits.view(np.float64), mask=np.asarray(array.is_null())).cast(self.part.type)
        if self._widened:
            try:
                return column.cast(self.part.type)
            except pa.ArrowInvalid:
                raise self._overflow("does not") from None
        return column


def _flipped(bits: Any) -> Any:
    """Doubles' bits to integers of the same order, and back."""
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
