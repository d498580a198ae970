"""Files whose columns changed over time, read as one: a column that a file lacks is null in its rows, types are widened.

Only to types that hold what was written; a value that does not fit all the same (a whole number beyond 2^53 among doubles)
ends the job. After Spark's ``mergeSchema``, with the widening that pyarrow's ``unify_schemas`` calls permissive.

That function does the plain types. Alone (pyarrow 26) it loses digits of decimals and values of bigint, and bytes become text. It refuses
dates with timestamps, two time zones, and dictionaries with text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.paths import InputFiles, first_line
from firesteel.connectors.files.shaping import plain_type, rows_without_columns
from firesteel.errors import FiresteelError, UsageError

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of whole numbers, by their bits."""
_DIGITS_OF_DOUBLE, _DIGITS_OF_DECIMAL128, _DIGITS_OF_DECIMAL256 = 15, 38, 76


def check_merge_schema(given: object, kind: str) -> bool:
    """Raises UsageError for what is not a bool: the text "false" would be true."""
    if not isinstance(given, bool):
        raise UsageError(f"{kind}: merge_schema={given!r} must be True or False.")
    return given


def merged_schema(found: InputFiles, schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The plain schema that holds the columns of all of these files (path, schema), in the order they are met.

    Raises UsageError, naming the first two files that have one column in types that no type holds both of.
    """
    merged: dict[str, pa.DataType] = {}
    seen: list[tuple[str, pa.Schema]] = []
    for path, given in schemas:
        if seen and given.equals(seen[-1][1]):
            continue
        for field in given:
            mine = plain_type(field.type)
            known = merged.get(field.name, mine)
            both = common_type(known, mine)
            if both is None:
                raise _conflict(found, seen, path, field.name, mine)
            merged[field.name] = both
        seen.append((path, given))
    return pa.schema(list(merged.items()))


def _conflict(
    found: InputFiles, seen: Iterable[tuple[str, pa.Schema]], path: str, name: str, mine: pa.DataType
) -> UsageError:
    having = [(where, plain_type(other.field(name).type)) for where, other in seen if name in other.names]
    where, theirs = next((pair for pair in having if common_type(pair[1], mine) is None), having[0])
    return UsageError(
        f"The schemas of the files cannot be merged: column '{name}' is {theirs} in {found.label(where)} and {mine} in "
        f"{found.label(path)}.",
        hint="Read them as two sources, cast, and join them with union().",
    )


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The plain type that holds the values of both plain types; None where there is none."""
    if one.equals(other):
        return one
    types = pa.types
    if types.is_dictionary(one) or types.is_dictionary(other):
        return common_type(*(t.value_type if types.is_dictionary(t) else t for t in (one, other)))
    if types.is_struct(one) and types.is_struct(other):
        return _common_struct(one, other)
    if types.is_nested(one) and types.is_nested(other):
        return _common_collection(one, other)
    if types.is_decimal(one) or types.is_decimal(other):
        return _common_decimal(one, other)
    return _common_plain(one, other)


def _common_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    fields = {field.name: field.type for field in one}
    for field in other:
        both = common_type(fields.get(field.name, field.type), field.type)
        if both is None:
            return None
        fields[field.name] = both
    return pa.struct(list(fields.items()))


def _common_collection(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_map(one) and types.is_map(other):
        key, item = common_type(one.key_type, other.key_type), common_type(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if not all(types.is_list(t) or types.is_large_list(t) for t in (one, other)):
        return None
    inner = common_type(one.value_type, other.value_type)
    make = pa.list_ if types.is_list(one) and types.is_list(other) else pa.large_list
    return None if inner is None else make(inner)


def _common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A decimal with the digits of both; with a floating type double, where it holds every value of the decimal."""
    decimal, also = (one, other) if pa.types.is_decimal(one) else (other, one)
    if pa.types.is_null(also):
        return decimal
    if pa.types.is_floating(also):
        return pa.float64() if decimal.precision <= _DIGITS_OF_DOUBLE else None
    if pa.types.is_integer(also):
        whole, scale = _DIGITS[also.bit_width], decimal.scale
    elif pa.types.is_decimal(also):
        whole, scale = also.precision - also.scale, max(decimal.scale, also.scale)
    else:
        return None
    digits = max(whole, decimal.precision - decimal.scale) + scale
    if digits > _DIGITS_OF_DECIMAL256:
        return None
    wide = digits > _DIGITS_OF_DECIMAL128 or any(pa.types.is_decimal256(t) for t in (one, other))
    return pa.decimal256(digits, scale) if wide else pa.decimal128(digits, scale)


def _common_plain(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    types = pa.types
    zones = {t.tz for t in (one, other) if types.is_timestamp(t)} - {None}
    if len(zones) > 1:  # moments both
        one, other = (pa.timestamp(t.unit, "UTC") for t in (one, other))
    days = next((t for t in (one, other) if types.is_date(t)), None)
    times = next((t for t in (one, other) if types.is_timestamp(t)), None)
    if days is not None and times is not None and times.tz is None:
        return pa.timestamp("us") if times.unit == "s" else times
    if {one, other} == {pa.string(), pa.binary()}:  # pyarrow makes bytes of the text
        return None
    try:
        merged = [pa.schema([("column", type_)]) for type_ in (one, other)]
        return pa.unify_schemas(merged, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


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
    if batch.schema.get_field_index(field.name) < 0:
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
