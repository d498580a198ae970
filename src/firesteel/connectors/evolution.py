"""Files whose columns changed over time, read as one: a column that a file lacks is null in its rows, types are widened.

Only to types that hold what was written; a value that does not fit all the same (a whole number beyond 2^53 among doubles)
ends the job. After Spark's ``mergeSchema``, with the widening that pyarrow's ``unify_schemas`` calls permissive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from firesteel.connectors.paths import InputFiles, first_line
from firesteel.connectors.shaping import plain_schema, rows_without_columns
from firesteel.errors import FiresteelError, UsageError


def merged_schema(found: InputFiles, schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The plain schema that holds the columns of all of these files (path, schema), in the order they are met.

    Raises UsageError, naming the first two files that have one column in types that no type holds both of.
    """
    merged = pa.schema([])
    seen: list[tuple[str, pa.Schema]] = []
    for path, given in schemas:
        if seen and given.equals(seen[-1][1]):
            continue
        plain = plain_schema(given)
        try:
            merged = pa.unify_schemas([merged, plain], promote_options="permissive")
        except pa.ArrowException:
            raise _conflict(found, seen, path, plain, merged) from None
        seen.append((path, given))
    return merged


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both; None where there is none."""
    fields = [pa.schema([("column", type_)]) for type_ in (one, other)]
    try:
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _conflict(
    found: InputFiles, seen: Iterable[tuple[str, pa.Schema]], path: str, schema: pa.Schema, merged: pa.Schema
) -> UsageError:
    name = next(
        field.name
        for field in schema
        if field.name in merged.names and common_type(merged.field(field.name).type, field.type) is None
    )
    having = [(where, plain_schema(other).field(name).type) for where, other in seen if name in other.names]
    mine = schema.field(name).type
    where, theirs = next((pair for pair in having if common_type(pair[1], mine) is None), having[0])
    return UsageError(
        f"The schemas of the files cannot be merged: column '{name}' is {theirs} in {found.label(where)} and {mine} in "
        f"{found.label(path)}.",
        hint="Read them as two sources, cast, and join them with union().",
    )


def widened(batch: pa.RecordBatch, schema: pa.Schema, place: str) -> pa.RecordBatch:
    """The batch of one file with the columns of ``schema`` in its order and types, null where the file has none.

    ``place``: the file, for messages. Raises FiresteelError for a value that does not fit its wider type.
    """
    if batch.schema.equals(schema):
        return batch
    if not len(schema):
        return next(rows_without_columns(batch.num_rows))
    columns = [_column(batch, field, place) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, place: str) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise FiresteelError(
            f"{place}: column '{field.name}' is {column.type} there and {field.type} over all the files, which cannot hold "
            f"all its values ({first_line(error)}).",
            hint="Read the files as two sources, cast, and join them with union().",
        ) from error
