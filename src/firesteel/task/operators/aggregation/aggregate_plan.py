"""Plan of an aggregation: the columns of its partial rows, how they are made, merged and finished.

Everything is done on *partial rows*: the group keys, one column per part (a running sum, count, minimum or maximum) and one per
distinct value counted. Raw rows are turned into partial rows of one row each, partial rows of equal keys are merged,
and merged rows are finished. So pass-through, spilling and merging again are all the same thing.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.results.keys import normal_type
from firesteel.task.batches import filter_rows
from firesteel.task.operators.aggregation.group_merging import Part, grouped
from firesteel.task.operators.grouping import normalised
from firesteel.task.operators.relational import check_columns, order_type, unknown_column

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


def check_aggregations(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
    """Raises UsageError for unknown columns and functions, functions that do not fit a type, output names given twice."""
    check_columns(schema, keys, "the group keys")
    twice = named_twice([*keys, *(agg.output for agg in aggs)])
    if twice is not None:
        raise UsageError(
            f"The output column '{twice}' of an aggregation occurs twice.", hint="Give one of them another name."
        )
    for agg in aggs:
        if agg.function not in AGGREGATES:
            close = ["mean"] if agg.function == "avg" else difflib.get_close_matches(agg.function, AGGREGATES, n=1)
            guess = f"Did you mean '{close[0]}'? " if close else ""
            raise UsageError(
                f"There is no aggregate function '{agg.function}'.", hint=f"{guess}There are {', '.join(AGGREGATES)}."
            )
        if agg.column in (None, ROWS):
            if agg.function != "count":
                raise UsageError(f"Only count can be of all rows, not {agg.function}.", hint="Name a column.")
            continue
        if schema.get_field_index(str(agg.column)) < 0:
            raise unknown_column(schema, str(agg.column), agg.function)
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
    if agg.function in ("min", "max") and order_type(type_) is not None:
        return type_
    raise UsageError(
        f"{agg.function} does not work on column '{agg.column}' of type {type_}.",
        hint="Cast the column, or choose another function.",
    )


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if _types.is_dictionary(type_) or _types.is_run_end_encoded(type_) else type_


def _sum_type(type_: pa.DataType) -> pa.DataType:
    if _types.is_decimal(type_):
        return pa.decimal256(76, type_.scale) if _types.is_decimal256(type_) else pa.decimal128(38, type_.scale)
    if _types.is_floating(type_):
        return pa.float64()
    return pa.uint64() if _types.is_unsigned_integer(type_) else pa.int64()


class Plan:
    """The partial rows of an aggregation over rows of ``schema``."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
        check_aggregations(schema, keys, aggs)
        self.schema, self.keys, self.aggs = schema, tuple(keys), tuple(aggs)
        self._parts: dict[tuple[str, str, pa.DataType], Part] = {}
        self._of = [self._parts_of(agg) for agg in aggs]
        parts = self._parts.values()
        self.measures = [part for part in parts if part.kind != "distinct"]
        self.distincts = [part for part in parts if part.kind == "distinct"]
        fields = [schema.field(key).with_nullable(True) for key in keys]
        self.partial_schema = pa.schema(fields + [pa.field(p.name, p.type) for p in (*self.measures, *self.distincts)])
        self.output_schema = pa.schema(fields + [pa.field(agg.output, output_type(agg, schema)) for agg in aggs])

    def _parts_of(self, agg: Aggregation) -> list[Part]:
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
        return [self._part(agg.function, column, order_type(type_) or type_)]

    def _part(self, kind: str, column: str, type_: pa.DataType) -> Part:
        found = self._parts.get((kind, column, type_))
        if found is None:
            found = self._parts[kind, column, type_] = Part(f"__{len(self._parts)}_{kind}", kind, column, type_)
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
            pieces.append(grouped(values, self.keys, [distinct.name], []))
        return pa.concat_tables([_padded(piece, self.partial_schema) for piece in pieces])

    def _grouped(self, table: pa.Table, distincts: Sequence[Part]) -> pa.Table:
        return grouped(table, self.keys, [d.name for d in distincts], self.measures)

    @property
    def counted_schema(self) -> pa.Schema:
        """Of what :meth:`count_values` gives."""
        names = {distinct.name for distinct in self.distincts}
        fields = list(self.partial_schema)
        return pa.schema([pa.field(f.name, pa.int64()) if f.name in names else f for f in fields])

    def count_values(self, merged: pa.Table) -> pa.Table:
        """Merged rows with each distinct value replaced by 1 (0 for none): what can be summed over disjoint sets of values."""
        for distinct in self.distincts:
            position = merged.schema.get_field_index(distinct.name)
            ones = pc.is_valid(merged.column(position)).cast(pa.int64())
            merged = merged.set_column(position, distinct.name, ones)
        return merged

    def merge_counts(self, counted: pa.Table) -> pa.Table:
        """Merges what :meth:`count_values` gave, to one row per group."""
        counts = [Part(d.name, "count", d.column, pa.int64()) for d in self.distincts]
        return grouped(counted, self.keys, [], [*self.measures, *counts])

    def finish(self, merged: pa.Table) -> pa.Table:
        """Output rows of merged partial rows."""
        return self.outputs(self.merge_counts(self.count_values(merged)) if self.distincts else merged)

    def outputs(self, groups: pa.Table) -> pa.Table:
        columns = [groups.column(key) for key in self.keys]
        for agg, parts, field in zip(self.aggs, self._of, list(self.output_schema)[len(self.keys) :], strict=True):
            columns.append(_output(agg, [groups.column(part.name) for part in parts], field.type))
        return pa.Table.from_arrays(columns, schema=self.output_schema)


def _raw(part: Part, table: pa.Table) -> Any:
    if part.kind == "rows":
        return pa.array(np.ones(table.num_rows, dtype=np.int64))
    column = table.column(part.column)
    if part.kind == "count":
        if _hides_nulls(column):
            column = _decoded(column)
        if column.null_count == 0 and not _types.is_null(column.type):
            return pa.array(np.ones(table.num_rows, dtype=np.int64))
        return pc.is_valid(column).cast(pa.int64())
    if part.kind == "distinct":
        return normalised(column)
    column = _decoded(column)
    if column.type == part.type:
        return column
    return column.cast(part.type, safe=not _types.is_floating(part.type))  # a mean takes int64 as doubles, as SQL does


def _hides_nulls(column: Any) -> bool:
    """Returns True if ``null_count`` and ``is_valid`` miss nulls: those among a dictionary's values, and in runs."""
    if _types.is_dictionary(column.type):
        return any(chunk.dictionary.null_count for chunk in column.chunks)
    return _types.is_run_end_encoded(column.type)


def _decoded(column: Any) -> Any:
    if _types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return pc.run_end_decode(column) if _types.is_run_end_encoded(column.type) else column


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
