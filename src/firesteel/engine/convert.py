"""Arrow's values on their way into the engine and out of it.

The engine takes some types as they are (``carrier`` returns these as they are), some in the place of others, and some not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

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
        return _nested(kind, carrier)
    if _t.is_timestamp(kind):
        return pa.timestamp("ns" if kind.unit == "ns" else "us", kind.tz and "UTC")
    if _t.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return next((to for is_such, to in _OTHERS if is_such(kind)), kind)


def _nested(kind: pa.DataType, to: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    parts = [kind.field(i).with_type(to(kind.field(i).type)) for i in range(kind.num_fields)]
    if _t.is_struct(kind):
        return pa.struct(parts)
    if _t.is_map(kind):
        return pa.map_(to(kind.key_type), to(kind.item_type))
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


@cache
def opaque(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - one line per kind
    """The type in which the engine hands on values of a type without any change, and compares them.

    Of times, units, zones, letters and their ends it knows nothing there. Raises EngineStop for types of which it takes no values.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return opaque(kind.storage_type)
    if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind):
        return opaque(kind.value_type)
    if _t.is_nested(kind):
        inside = [kind.field(i).type for i in range(kind.num_fields)]
        if any(is_such(kind) for is_such in _NONE) or any(map(_stands_alone, inside)):
            raise EngineStop(Stop.INPUT, f"The engine takes no values of type {kind}.")
        return _nested(kind, opaque)
    if _t.is_decimal(kind):
        return pa.string() if _t.is_decimal256(kind) else pa.decimal128(kind.precision, kind.scale)
    if _t.is_float16(kind):
        return pa.float32()
    if _t.is_null(kind):
        return pa.bool_()
    if _t.is_temporal(kind) and not _t.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind if _t.is_primitive(kind) and not _t.is_interval(kind) else pa.binary()


def _stands_alone(kind: pa.DataType) -> bool:
    """Is not turned into other types inside of a nested one."""
    return isinstance(kind, pa.BaseExtensionType) or _t.is_run_end_encoded(kind) or _t.is_interval(kind)


def not_taken(schema: pa.Schema, to: Callable[[pa.DataType], pa.DataType]) -> pa.Field | None:
    """The first column of a type that the engine does not take. ``to``: :func:`carrier` or :func:`opaque`. None: it takes all."""
    for field in schema:
        try:
            to(field.type)
        except EngineStop:
            return field
    return None


def is_plain(kind: pa.DataType) -> bool:
    """The engine computes with values of the type as they are."""
    if _t.is_nested(kind):
        return carrier(kind) == kind and all(is_plain(kind.field(i).type) for i in range(kind.num_fields))
    if _t.is_timestamp(kind):
        return kind.unit == "us" and kind.tz in (None, "UTC")
    plain = (_t.is_boolean, _t.is_integer, _t.is_float32, _t.is_float64, _t.is_string, _t.is_binary, _t.is_date32)
    return _t.is_decimal128(kind) or any(is_such(kind) for is_such in plain)


def carried(schema: pa.Schema) -> pa.Schema:
    """The schema in which the engine takes rows of a schema."""
    return pa.schema([field.with_type(carrier(field.type)) for field in schema])


def has_endless(batch: pa.RecordBatch | pa.Table) -> bool:
    """Days or timestamps at the ends of their type, which the engine takes for infinity, and which are days like others in Spark."""
    return any(map(_is_endless, batch.columns))


def known(rows: Rows, to: pa.Schema) -> Rows:
    """The rows in types that the engine computes with. Raises EngineStop for a time that it would take for infinity."""
    rows = conformed(rows, to)
    if has_endless(rows):
        raise EngineStop(Stop.VALUE, "The engine has no date or time at the end of its type: there it means infinity.")
    return rows


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


def _cast(values: Any, to: pa.DataType) -> Any:  # noqa: PLR0911 - one line per kind
    """Into the type of a carrier, or back."""
    kind = values.type
    if kind == to:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, to) for chunk in values.chunks], to)
    if isinstance(kind, pa.BaseExtensionType):
        return _cast(values.storage, to)
    if isinstance(to, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(to, _cast(values, to.storage_type))
    if _t.is_run_end_encoded(kind):
        return _cast(pc.run_end_decode(values), to)
    if _t.is_run_end_encoded(to):
        return pc.run_end_encode(_cast(values, to.value_type), run_end_type=to.run_end_type)
    if _t.is_dictionary(kind):
        return _cast(values.dictionary_decode(), to)
    if _t.is_dictionary(to):
        coded = _cast(values, to.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(to.index_type), coded.dictionary, ordered=to.ordered)
    if _t.is_null(to):
        return pa.nulls(len(values))
    if _t.is_struct(to):  # a field that is never null is null where the struct is
        fields = [_cast(values.field(i), to.field(i).type) for i in range(to.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(to), mask=values.is_null() if values.null_count else None)
    if _t.is_binary(to):
        return _as_bytes(values)
    if _t.is_binary(kind):
        return _of_bytes(values, to)
    return values.cast(to)


_INTERVAL = pa.binary(16)


def _as_bytes(values: Any) -> Any:
    kind = values.type
    if _t.is_interval(kind):
        return values.view(_INTERVAL).cast(pa.binary())
    if _t.is_string_view(kind):
        values = values.cast(pa.string())
    return values.view(pa.binary()) if _t.is_string(values.type) else values.cast(pa.binary())


def _of_bytes(values: Any, to: pa.DataType) -> Any:
    if _t.is_interval(to):
        return values.cast(_INTERVAL).view(to)
    if _t.is_large_string(to) or _t.is_string_view(to):
        return values.view(pa.string()).cast(to)
    return values.view(to) if _t.is_string(to) else values.cast(to)
