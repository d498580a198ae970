"""Arrow's values on their way into the engine and out of it.

The engine takes some types as they are (``carrier`` returns these as they are), some in the place of others, and some not at all.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import EngineStop, Stop

_t = pa.types
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@cache
def carrier(kind: pa.DataType) -> pa.DataType:
    """The type in which the engine takes values of a type and gives them back.

    Dictionaries and run ends become plain values. Raises EngineStop for types of which the engine takes no values, or changes them.
    """
    if isinstance(kind, pa.BaseExtensionType) or any(is_such(kind) for is_such in _NONE):
        raise EngineStop(Stop.INPUT, f"The engine takes no values of type {kind}.")
    if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind):
        return carrier(kind.value_type)
    if _t.is_nested(kind):
        return _nested(kind)
    if _t.is_timestamp(kind):
        return pa.timestamp("ns" if kind.unit == "ns" else "us", kind.tz and "UTC")
    if _t.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return next((to for is_such, to in _OTHERS if is_such(kind)), kind)


def _nested(kind: pa.DataType) -> pa.DataType:
    parts = [kind.field(i).with_type(carrier(kind.field(i).type)) for i in range(kind.num_fields)]
    if _t.is_struct(kind):
        return pa.struct(parts)
    if _t.is_map(kind):
        return pa.map_(carrier(kind.key_type), carrier(kind.item_type))
    return pa.list_(parts[0], kind.list_size if _t.is_fixed_size_list(kind) else -1)


_NONE = (_t.is_float16, _t.is_decimal256, _t.is_union, _t.is_list_view, _t.is_large_list_view)
"""Of list views, Arrow 26 makes lists that are not valid."""
_OTHERS = (
    (_t.is_duration, pa.int64()),
    (_t.is_time32, pa.time64("us")),
    (_t.is_date64, pa.date32()),
    (_t.is_large_string, pa.string()),
    (_t.is_string_view, pa.string()),
    (_t.is_large_binary, pa.binary()),
    (_t.is_binary_view, pa.binary()),
    (_t.is_fixed_size_binary, pa.binary()),
)


def carried(schema: pa.Schema) -> pa.Schema:
    """The schema in which the engine takes rows of a schema."""
    return pa.schema([field.with_type(carrier(field.type)) for field in schema])


def has_endless(batch: pa.RecordBatch | pa.Table) -> bool:
    """Days or timestamps at the ends of their type, which the engine takes for infinity, and which are days like others in Spark."""
    return any(map(_is_endless, batch.columns))


def _is_endless(values: pa.Array | pa.ChunkedArray) -> bool:
    kind = values.type
    if not _has_times(kind):
        return False
    if isinstance(values, pa.ChunkedArray) and _t.is_nested(kind):
        return any(map(_is_endless, values.chunks))
    if _t.is_struct(kind):
        return any(map(_is_endless, values.flatten()))
    if _t.is_map(kind):
        return _is_endless(values.keys) or _is_endless(values.items)
    if _t.is_nested(kind):
        return _is_endless(pc.list_flatten(values))
    most = 2**31 - 1 if _t.is_date32(kind) else 2**63 - 1
    ends = pc.min_max(values.cast(pa.int32() if _t.is_date32(kind) else pa.int64())).as_py()
    return ends["max"] is not None and (ends["max"] == most or ends["min"] <= -most)


@cache
def _has_times(kind: pa.DataType) -> bool:
    if _t.is_nested(kind):
        return any(_has_times(kind.field(i).type) for i in range(kind.num_fields))
    return _t.is_date32(kind) or _t.is_timestamp(kind)


def conformed(rows: Rows, schema: pa.Schema) -> Rows:
    """The columns, by position, under the names and types of ``schema``."""
    if rows.schema.equals(schema):
        return rows
    columns = [_cast(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _cast(values: pa.Array | pa.ChunkedArray, to: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if values.type == to:
        return values
    return (pc.run_end_decode(values) if _t.is_run_end_encoded(values.type) else values).cast(to)
