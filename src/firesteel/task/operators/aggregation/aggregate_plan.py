"""Plan of an aggregation: the columns of its partial rows, how they are made, merged and finished.

Everything is done on *partial rows*: the group keys, one column per part (a running sum, count, minimum or maximum), one per
distinct value counted, and those of states (``aggregates``). Raw rows are turned into partial rows of one row each, partial rows of equal keys are merged,
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
from firesteel.task.batches import filter_rows, one_chunk, take
from firesteel.task.operators.aggregation.aggregates.aggregate import Aggregate, State, plain_type
from firesteel.task.operators.aggregation.group_merging import Part, grouped
from firesteel.task.operators.aggregation.state_merging import Kept, merged_states
from firesteel.task.operators.grouping import normalised
from firesteel.task.operators.relational import check_columns, order_type, unknown_column

_types = pa.types

AGGREGATES = ("sum", "min", "max", "count", "mean", "count_distinct")
_OF_BOOLEANS = {"bool_and": "min", "bool_or": "max"}
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
    where: str | None = None
    """A column: only rows where it is true."""
    by: Aggregate | None = None
    """Of a function that is none of AGGREGATES: what it is. Its columns are its own, ``column`` is None."""

    def reads(self, schema: pa.Schema) -> list[str]:
        """The columns that it reads of rows of this schema."""
        own = self.by.state(schema).columns if self.by is not None else (self.column,)
        return [str(name) for name in (*own, self.where) if name not in (None, ROWS)]


def check_aggregations(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
    """Raises UsageError for unknown columns and functions, functions that do not fit a type, output names given twice."""
    check_columns(schema, keys, "the group keys")
    twice = named_twice([*keys, *(agg.output for agg in aggs)])
    if twice is not None:
        raise UsageError(
            f"The output column '{twice}' of an aggregation occurs twice.", hint="Give one of them another name."
        )
    for agg in aggs:
        if agg.by is not None:
            agg.by.state(schema)
            continue
        if agg.function not in (*AGGREGATES, *_OF_BOOLEANS):
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


def output_type(agg: Aggregation, schema: pa.Schema) -> pa.DataType:  # noqa: PLR0911 - one line per kind
    """Type of the aggregate. Raises UsageError when the function does not fit the column's type."""
    if agg.by is not None:
        return agg.by.type(schema)
    if agg.function in ("count", "count_distinct"):
        return pa.int64()
    type_ = plain_type(schema.field(agg.column).type)
    number = _types.is_integer(type_) or _types.is_floating(type_) or _types.is_decimal(type_) or _types.is_null(type_)
    if agg.function == "mean" and number:
        return pa.float64()
    if agg.function == "sum" and _types.is_duration(type_):
        return type_
    if agg.function == "sum" and number:
        return _sum_type(type_)
    if agg.function in ("min", "max") and order_type(type_) is not None:
        return type_
    if agg.function in _OF_BOOLEANS and _types.is_boolean(type_):
        return type_
    raise UsageError(
        f"{agg.function} does not work on column '{agg.column}' of type {type_}.",
        hint="Cast the column, or choose another function.",
    )


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
        self._parts: dict[tuple[str, str, pa.DataType, str], Part] = {}
        self._states: dict[tuple[State, str], Kept] = {}
        self._of = [self._names_of(agg) for agg in aggs]
        self.states = list(self._states.values())
        parts = self._parts.values()
        self.measures = [part for part in parts if part.kind != "distinct"]
        self.distincts = [part for part in parts if part.kind == "distinct"]
        fields = [schema.field(key).with_nullable(True) for key in keys]
        self.partial_schema = pa.schema(
            [*fields, *(pa.field(p.name, p.type) for p in (*self.measures, *self.distincts))]
            + [field for kept in self.states for field in kept.fields]
        )
        self.output_schema = pa.schema(fields + [pa.field(agg.output, output_type(agg, schema)) for agg in aggs])

    def _names_of(self, agg: Aggregation) -> list[str]:
        """The columns of partial rows that the aggregate is made of."""
        if agg.by is None:
            return [part.name for part in self._parts_of(agg)]
        state, where = agg.by.state(self.schema), agg.where or ""
        kept = self._states.get((state, where))
        if kept is None:
            kept = self._states[state, where] = Kept(f"__state{len(self._states)}", state, where)
        return kept.names

    def _parts_of(self, agg: Aggregation) -> list[Part]:
        where = agg.where or ""
        if agg.column in (None, ROWS):
            return [self._part("rows", "", pa.int64(), where)]
        column = str(agg.column)
        type_ = plain_type(self.schema.field(column).type)
        if agg.function == "count":
            return [self._part("count", column, pa.int64(), where)]
        if agg.function == "count_distinct":
            return [self._part("distinct", column, normal_type(type_), where)]
        if agg.function == "sum":
            return [self._part("sum", column, pa.int64() if _types.is_duration(type_) else _sum_type(type_), where)]
        if agg.function == "mean":
            total = _sum_type(type_) if _types.is_decimal(type_) else pa.float64()
            return [self._part("sum", column, total, where), self._part("count", column, pa.int64(), where)]
        return [self._part(_OF_BOOLEANS.get(agg.function, agg.function), column, order_type(type_) or type_, where)]

    def _part(self, kind: str, column: str, type_: pa.DataType, where: str) -> Part:
        key = kind, column, type_, where
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = Part(f"__{len(self._parts)}_{kind}", kind, column, type_, where)
        return found

    # --- the three steps ------------------------------------------------------------------------------------------

    def to_partial(self, table: pa.Table) -> pa.Table:
        """One partial row per raw row."""
        columns = [table.column(key) for key in self.keys]
        columns += [_raw(part, table) for part in (*self.measures, *self.distincts)]
        columns += [column for kept in self.states for column in kept.of_rows(table)]
        return pa.Table.from_arrays(columns, schema=self.partial_schema)

    def merge(self, table: pa.Table) -> pa.Table:
        """Partial rows of equal keys (and, with count_distinct, of equal values) become one."""
        if not self.distincts or (len(self.distincts) == 1 and not self.states):
            return self._grouped(table, [d.name for d in self.distincts], self.measures)
        pieces = [self._grouped(self._without_values(table), [], self.measures)]
        for distinct in self.distincts:
            pieces.append(grouped(self._values(table, distinct), self.keys, [distinct.name], []))
        return self._together(pieces)

    def spread(self, table: pa.Table) -> pa.Table:
        """The same partial rows with one distinct value in each at most, as merged ones have it."""
        if len(self.distincts) <= 1:
            return table
        return self._together([self._without_values(table), *(self._values(table, d) for d in self.distincts)])

    def _without_values(self, table: pa.Table) -> pa.Table:
        return table.drop_columns([distinct.name for distinct in self.distincts])

    def _values(self, table: pa.Table, distinct: Part) -> pa.Table:
        values = table.select([*self.keys, distinct.name])
        return filter_rows(values, pc.is_valid(values.column(distinct.name)))

    def _together(self, pieces: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([_padded(piece, self.partial_schema) for piece in pieces])

    def _grouped(self, table: pa.Table, values: Sequence[str], parts: Sequence[Part]) -> pa.Table:
        """One row per (keys, values), columns in the order of partial rows. With states there are no ``values``."""
        if not self.states:
            return grouped(table, self.keys, values, parts)
        return merged_states(table, self.keys, parts, self.states)

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
        return self._grouped(counted, [], [*self.measures, *counts])

    def finish(self, merged: pa.Table) -> pa.Table:
        """Output rows of merged partial rows."""
        return self.outputs(self.merge_counts(self.count_values(merged)) if self.distincts else merged)

    def outputs(self, groups: pa.Table) -> pa.Table:
        columns = [groups.column(key) for key in self.keys]
        for agg, names, field in zip(self.aggs, self._of, list(self.output_schema)[len(self.keys) :], strict=True):
            columns.append(_output(agg, [groups.column(name) for name in names], field.type))
        return pa.Table.from_arrays(columns, schema=self.output_schema)


def _raw(part: Part, table: pa.Table) -> Any:
    taken = table.column(part.where).fill_null(False) if part.where else None
    if part.kind == "rows":
        return pa.array(np.ones(table.num_rows, dtype=np.int64)) if taken is None else taken.cast(pa.int64())
    column = table.column(part.column)
    if taken is not None:
        column = take(one_chunk(column), pa.array(np.arange(table.num_rows), mask=~np.asarray(taken)))
        column = pa.chunked_array([column])
    return _raw_values(part, column)


def _raw_values(part: Part, column: Any) -> Any:
    if part.kind == "count":
        if _hides_nulls(column):
            column = _decoded(column)
        if column.null_count == 0 and not _types.is_null(column.type):
            return pa.array(np.ones(len(column), dtype=np.int64))
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
    if agg.by is not None:
        found = agg.by.finished([one_chunk(column) for column in columns])
        return found if found.type == type_ else found.cast(type_)
    if agg.function in ("count", "count_distinct"):
        return columns[0].fill_null(0)
    if agg.function == "mean":
        total, count = columns[0].cast(pa.float64()), columns[1].cast(pa.float64())
        return pc.divide(total, pc.if_else(pc.greater(count, 0.0), count, pa.scalar(None, pa.float64())))
    return columns[0] if columns[0].type == type_ else columns[0].cast(type_)
