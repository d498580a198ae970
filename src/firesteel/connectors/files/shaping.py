"""Batches and schemas brought into the form that a source promises, and the filters that it applies itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from firesteel.connectors.files.paths import InputFiles, first_line
from firesteel.errors import UsageError
from firesteel.humanize import first_of
from firesteel.task.expressions import referenced_columns

_MOST_ROWS = 1 << 16
_ENOUGH_ROWS, _ENOUGH_BYTES = 1 << 13, 1 << 18


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's columns, in its order; types differ at most as :func:`plain_type` makes them."""
    if batch.schema.equals(schema):
        return batch
    if not len(schema):
        return next(rows_without_columns(batch.num_rows))
    columns = [batch.column(name) for name in schema.names]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of no column that have so many rows together."""
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    for start in range(0, rows, _MOST_ROWS):
        yield pa.RecordBatch.from_struct_array(empty.slice(start, _MOST_ROWS))


def gather(batches: Iterator[pa.RecordBatch], ctx: Any) -> Iterator[pa.RecordBatch]:
    """Neighbouring small batches as one: many small files would else cost every later step a call each."""
    held: list[pa.RecordBatch] = []
    first, rows, size = "", 0, 0
    for batch in batches:
        first = ctx.place if not held else first
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield _together(held, first, ctx)
            held, rows, size = [], 0, 0
    if held:
        yield _together(held, first, ctx)


def _together(held: list[pa.RecordBatch], first: str, ctx: Any) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    ctx.place = ctx.place if ctx.place == first else f"{first} to {ctx.place}"
    return pa.concat_batches(held)


def one_schema(found: InputFiles, schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The plain schema that all of these files (path, schema) have. Raises UsageError, naming the first that differs."""
    first_path, first = schemas[0]
    schema = plain_schema(first)
    for path, given in schemas[1:]:
        if given.equals(first):
            continue
        other = plain_schema(given)
        for name in [*schema.names, *(n for n in other.names if schema.get_field_index(n) < 0)]:
            mine, theirs = schema.get_field_index(name), other.get_field_index(name)
            if mine >= 0 and theirs >= 0 and schema.field(mine).type.equals(other.field(theirs).type):
                continue
            said = [
                f"is {s.field(i).type}" if i >= 0 else "does not exist" for s, i in ((schema, mine), (other, theirs))
            ]
            raise UsageError(
                f"The files do not have one schema: column '{name}' {said[0]} in {found.label(first_path)} and {said[1]} in {found.label(path)}.",
                hint="With merge_schema=True what a file lacks is null and types are widened; else read them as two sources, cast, "
                "and join them with union().",
            )
    return schema


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Its columns with :func:`plain_type`, all nullable, without metadata."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Without metadata, everything nullable, at every depth (a map's keys stay as they must be); no views.

    Views are how a writer held values in memory, noted in the file by the way. pyarrow cannot filter, take or join them.
    """
    return retyped(data_type, _without_view)


def _without_view(leaf: pa.DataType) -> pa.DataType:
    return _PLAIN.get(leaf, leaf)


def retyped(data_type: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Replaces each type that is not nested by ``leaf`` of it, at every depth. All fields become nullable and lose their metadata."""
    types = pa.types

    def field_of(field: pa.Field) -> pa.Field:
        return pa.field(field.name, retyped(field.type, leaf))

    if types.is_struct(data_type):
        return pa.struct([field_of(field) for field in data_type])
    if types.is_map(data_type):
        return pa.map_(retyped(data_type.key_type, leaf), retyped(data_type.item_type, leaf), data_type.keys_sorted)
    if types.is_fixed_size_list(data_type):
        return pa.list_(field_of(data_type.value_field), data_type.list_size)
    if types.is_large_list(data_type):
        return pa.large_list(field_of(data_type.value_field))
    return pa.list_(field_of(data_type.value_field)) if types.is_list(data_type) else leaf(data_type)


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter, the columns it looks at, and whether statistics tell the truth about it. ``rejects_null``: it looks at one column,
    and a null there does not pass."""

    expression: pc.Expression
    columns: tuple[str, ...]
    prunes: bool
    rejects_null: bool


def condition(expression: Any, schema: pa.Schema, name: str) -> Condition:
    """The filter ``expression`` of the source ``name``. Raises UsageError when it does not fit the schema."""
    if not isinstance(expression, pc.Expression):
        what = type(expression).__name__
        raise UsageError(
            f"The filter of {name} is a {what}, not an expression.",
            hint='Write one with col and lit, e.g. col("n") > 3.',
        )
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"The filter {expression} does not fit {name}: {first_line(error)}.",
            hint=f"Its columns: {first_of(schema.names)}.",
        ) from None
    reads = referenced_columns([expression], schema)
    columns = tuple(name for name in schema.names if name in reads)
    # NaNs are left out of a row group's minimum and maximum, so ~(x > 5) or x != 7 would drop row groups whose NaNs it keeps.
    prunes = not has_type([schema.field(column) for column in columns], pa.types.is_floating)
    nothing = pa.table({column: pa.nulls(1, schema.field(column).type) for column in columns})
    rejects_null = len(columns) == 1 and nothing.filter(expression).num_rows == 0
    return Condition(expression, columns, prunes, rejects_null)


def filter_batch(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> list[pa.RecordBatch]:
    """Rows for which all hold, in order. On this thread alone: the task has one core."""
    if not conditions:
        return [batch]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    steps = [acero.Declaration("filter", acero.FilterNodeOptions(part.expression)) for part in conditions]
    kept = acero.Declaration.from_sequence([source, *steps]).to_table(use_threads=False)
    return [part for part in kept.combine_chunks().to_batches() if part.num_rows]


def has_type(fields: Iterable[pa.Field], kind: Callable[[pa.DataType], bool]) -> bool:
    """True if a type of this kind is among the fields' types, or inside one."""
    for field in fields:
        data_type = field.type
        if kind(data_type):
            return True
        if pa.types.is_dictionary(data_type) and kind(data_type.value_type):
            return True
        if pa.types.is_nested(data_type) and has_type([data_type.field(i) for i in range(data_type.num_fields)], kind):
            return True
    return False
