"""What an aggregation computes: the columns of its partial rows, how they are made, merged and finished.

Everything is done on *partial rows*: the group keys, one column per part (a running sum, count, minimum or maximum) and one per
distinct value counted. Raw rows are turned into partial rows of one row each, partial rows of equal keys are merged,
and merged rows are finished. So pass-through, spilling and merging again are all the same thing.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import FiresteelError, UsageError
from firesteel.operators.batches import filter_rows, nullable, one_chunk, take_rows
from firesteel.operators.grouping import normalised
from firesteel.operators.relational import check_columns
from firesteel.results.keys import normal_type

_types = pa.types

AGGREGATES = ("sum", "min", "max", "count", "mean", "count_distinct")
ROWS = "*"
"""``count`` of this (or of None) counts rows."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``function`` over ``column`` as column ``output``.

    SQL's nulls: they are not counted, summed or compared; a sum, mean, min or max of none is null. Of floats NaN is the
    largest value and one distinct value, as in Spark. Sums: int64, uint64, float64, decimal(38, scale); one that does
    not fit raises. Means are float64, also of decimals. Minimum and maximum keep the type (a dictionary's value type).
    """

    column: str | None
    function: str
    output: str


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    kind: str  # sum, min, max, count, rows, distinct
    column: str
    type: pa.DataType

    @property
    def merge_by(self) -> str:
        return self.kind if self.kind in ("min", "max") else "sum"


def check_aggregations(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
    """Raises UsageError for unknown columns and functions, functions that do not fit a type, output names given twice."""
    check_columns(schema, keys, "the group keys")
    names = [*keys, *(agg.output for agg in aggs)]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"The output column '{name}' of an aggregation occurs twice.", hint="Give one of them another name."
            )
    for agg in aggs:
        if agg.function not in AGGREGATES:
            close = difflib.get_close_matches(agg.function, AGGREGATES, n=1)
            guess = f"Did you mean '{close[0]}'? " if close else ""
            raise UsageError(
                f"There is no aggregate function '{agg.function}'.", hint=f"{guess}There are {', '.join(AGGREGATES)}."
            )
        if agg.column in (None, ROWS):
            if agg.function != "count":
                raise UsageError(f"Only count can be of all rows, not {agg.function}.", hint="Name a column.")
            continue
        check_columns(schema, [str(agg.column)], f"{agg.function}")
        output_type(agg, schema)


def output_type(agg: Aggregation, schema: pa.Schema) -> pa.DataType:
    """Type of the aggregate. Raises UsageError when the function does not fit the column's type."""
    if agg.function in ("count", "count_distinct"):
        return pa.int64()
    type_ = _plain(schema.field(agg.column).type)
    number = _types.is_integer(type_) or _types.is_floating(type_) or _types.is_decimal(type_) or _types.is_null(type_)
    if agg.function == "mean" and number:
        return pa.float64()
    if agg.function == "sum" and _types.is_duration(type_):
        return type_
    if agg.function == "sum" and number:
        return _sum_type(type_)
    if agg.function in ("min", "max") and not (_types.is_nested(type_) or _types.is_interval(type_)):
        return type_
    raise UsageError(
        f"{agg.function} does not work on column '{agg.column}' of type {type_}.",
        hint="Cast the column, or choose another function.",
    )


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if _types.is_dictionary(type_) else type_


def _sum_type(type_: pa.DataType) -> pa.DataType:
    if _types.is_decimal(type_):
        return pa.decimal256(76, type_.scale) if _types.is_decimal256(type_) else pa.decimal128(38, type_.scale)
    if _types.is_floating(type_):
        return pa.float64()
    return pa.uint64() if _types.is_unsigned_integer(type_) else pa.int64()


def _order_type(type_: pa.DataType) -> pa.DataType:
    """A type of the same order that the min and max kernels take."""
    if _types.is_string_view(type_):
        return pa.string()
    if _types.is_binary_view(type_):
        return pa.binary()
    if _types.is_float16(type_):
        return pa.float32()
    if _types.is_duration(type_):
        return pa.int64()
    if _types.is_decimal32(type_) or _types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_


class Plan:
    """The partial rows of an aggregation over rows of ``schema``."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
        check_aggregations(schema, keys, aggs)
        self.schema, self.keys, self.aggs = schema, tuple(keys), tuple(aggs)
        self._parts: dict[tuple[str, str, pa.DataType], _Part] = {}
        self._of = [self._parts_of(agg) for agg in aggs]
        parts = self._parts.values()
        self.measures = [part for part in parts if part.kind != "distinct"]
        self.distincts = [part for part in parts if part.kind == "distinct"]
        fields = [schema.field(key).with_nullable(True) for key in keys]
        self.partial_schema = pa.schema(fields + [pa.field(p.name, p.type) for p in (*self.measures, *self.distincts)])
        self.output_schema = pa.schema(fields + [pa.field(agg.output, output_type(agg, schema)) for agg in aggs])

    def _parts_of(self, agg: Aggregation) -> list[_Part]:
        if agg.column in (None, ROWS):
            return [self._part("rows", "", pa.int64())]
        column = str(agg.column)
        type_ = _plain(self.schema.field(column).type)
        if agg.function == "count":
            return [self._part("count", column, pa.int64())]
        if agg.function == "count_distinct":
            return [self._part("distinct", column, normal_type(type_))]
        if agg.function == "sum":
            return [self._part("sum", column, pa.int64() if _types.is_duration(type_) else _sum_type(type_))]
        if agg.function == "mean":
            total = _sum_type(type_) if _types.is_decimal(type_) else pa.float64()
            return [self._part("sum", column, total), self._part("count", column, pa.int64())]
        return [self._part(agg.function, column, _order_type(type_))]

    def _part(self, kind: str, column: str, type_: pa.DataType) -> _Part:
        found = self._parts.get((kind, column, type_))
        if found is None:
            found = self._parts[kind, column, type_] = _Part(f"__{len(self._parts)}_{kind}", kind, column, type_)
        return found

    # --- the three steps ------------------------------------------------------------------------------------------

    def to_partial(self, table: pa.Table) -> pa.Table:
        """One partial row per raw row."""
        columns = [table.column(key) for key in self.keys]
        columns += [_raw(part, table) for part in (*self.measures, *self.distincts)]
        return pa.Table.from_arrays(columns, schema=self.partial_schema)

    def merge(self, table: pa.Table) -> pa.Table:
        """Partial rows of equal keys (and, with count_distinct, of equal values) become one."""
        if len(self.distincts) <= 1:
            return self._grouped(table, self.distincts)
        pieces = [self._grouped(table.drop_columns([d.name for d in self.distincts]), [])]
        for distinct in self.distincts:
            values = table.select([*self.keys, distinct.name])
            values = filter_rows(values, pc.is_valid(values.column(distinct.name)))
            pieces.append(_grouped(values, self.keys, [distinct.name], []))
        return pa.concat_tables([_padded(piece, self.partial_schema) for piece in pieces])

    def _grouped(self, table: pa.Table, distincts: Sequence[_Part]) -> pa.Table:
        return _grouped(table, self.keys, [d.name for d in distincts], self.measures)

    def count_values(self, merged: pa.Table) -> pa.Table:
        """Merged rows with each distinct value replaced by 1 (0 for none): what can be summed over disjoint sets of values."""
        for distinct in self.distincts:
            position = merged.schema.get_field_index(distinct.name)
            ones = pc.is_valid(merged.column(position)).cast(pa.int64())
            merged = merged.set_column(position, distinct.name, ones)
        return merged

    def merge_counts(self, counted: pa.Table) -> pa.Table:
        """What :meth:`count_values` gave, one row per group."""
        counts = [_Part(d.name, "count", d.column, pa.int64()) for d in self.distincts]
        return _grouped(counted, self.keys, [], [*self.measures, *counts])

    def finish(self, merged: pa.Table) -> pa.Table:
        """Output rows of merged partial rows."""
        return self.outputs(self.merge_counts(self.count_values(merged)) if self.distincts else merged)

    def outputs(self, groups: pa.Table) -> pa.Table:
        columns = [groups.column(key) for key in self.keys]
        for agg, parts, field in zip(self.aggs, self._of, list(self.output_schema)[len(self.keys) :], strict=True):
            columns.append(_output(agg, [groups.column(part.name) for part in parts], field.type))
        return pa.Table.from_arrays(columns, schema=self.output_schema)


def _raw(part: _Part, table: pa.Table) -> Any:
    if part.kind == "rows":
        return pa.array(np.ones(table.num_rows, dtype=np.int64))
    column = table.column(part.column)
    if part.kind == "count":
        if column.null_count == 0 and not _types.is_null(column.type):
            return pa.array(np.ones(table.num_rows, dtype=np.int64))
        return pc.is_valid(column).cast(pa.int64())
    if part.kind == "distinct":
        return normalised(column)
    if _types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column if column.type == part.type else column.cast(part.type)


def _padded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(f.name) if f.name in table.schema.names else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _output(agg: Aggregation, columns: list[Any], type_: pa.DataType) -> Any:
    if agg.function in ("count", "count_distinct"):
        return columns[0].fill_null(0)
    if agg.function == "mean":
        total, count = columns[0].cast(pa.float64()), columns[1].cast(pa.float64())
        return pc.divide(total, pc.if_else(pc.greater(count, 0.0), count, pa.scalar(None, pa.float64())))
    return columns[0] if columns[0].type == type_ else columns[0].cast(type_)


# --- grouping with Acero --------------------------------------------------------------------------------------------


def _grouped(table: pa.Table, keys: Sequence[str], values: Sequence[str], measures: Sequence[_Part]) -> pa.Table:
    """``table`` with one row per (keys, values); measures merged. Columns: keys, measures, values, under their names."""
    originals = [table.column(key) for key in keys]
    columns, by = {}, []
    for i, column in enumerate(_normalised(originals)):
        columns[f"k{i}"] = column
        by.append(f"k{i}")
    for i, value in enumerate(values):
        columns[f"v{i}"] = table.column(value)
        by.append(f"v{i}")
    prepared = [_Measure(part, table.column(part.name)) for part in measures]
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
    schema = nullable(table.select([*keys, *(m.name for m in measures), *values]).schema)
    return pa.Table.from_arrays(out, schema=schema)


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

    def __init__(self, part: _Part, column: Any) -> None:
        self.part = part
        self.column = column
        self._ordered = self._widened = False
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
        if largest >= limit:
            self._widened = True
            self.column = self.column.cast(wider)

    def result(self, column: Any) -> Any:
        if self._ordered:
            array = one_chunk(column)
            bits = np.ascontiguousarray(_flipped(np.asarray(array.fill_null(0)).astype(np.int64)))
            return pa.array(bits.view(np.float64), mask=np.asarray(array.is_null())).cast(self.part.type)
        if self._widened:
            try:
                return column.cast(self.part.type)
            except pa.ArrowInvalid:
                raise FiresteelError(
                    f"A sum of column '{self.part.column}' does not fit {self.part.type}.",
                    hint="Cast the column to a wider decimal or to double before.",
                ) from None
        return column


def _flipped(bits: Any) -> Any:
    """Doubles' bits to integers of the same order, and back."""
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
