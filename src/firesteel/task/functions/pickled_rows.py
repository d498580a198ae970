"""Rows and results of PySpark's plain UDFs, which the JVM pickles: the Python values that it makes, and those that it takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from firesteel.errors import EngineStop, Stop

_PLAIN = (bool, int, float, str, bytes, bytearray, Decimal)
"""Python's types that the JVM knows: one of them where another is declared is null."""


def answers_by_rows(function: Callable[[Iterator[Any]], Iterator[Any]], inputs: Iterator[Any], gives: pa.Schema) -> Any:
    """The batches of ``gives`` that a function of rows makes: it gives one value for each row, or, for several columns, a tuple."""
    for batch in inputs:
        found = list(function(iter(_rows(batch))))
        columns = [found] if len(gives) == 1 else zip(*found, strict=True)
        arrays = [_column(values, part.type) for values, part in zip(columns, gives, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=gives)


def _rows(batch: pa.RecordBatch) -> list[Any]:
    if not batch.num_columns:
        return [()] * batch.num_rows
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: Any) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    from pyspark.sql.types import TimestampNTZType, TimestampType

    kind = TimestampType() if column.type.tz is not None else TimestampNTZType()
    return [None if value is None else kind.fromInternal(value) for value in column.cast(pa.int64()).to_pylist()]


def _column(values: Any, declared: pa.DataType) -> pa.Array:
    taken = _TAKEN[_kind(declared)]
    return pa.array([value if type(value) in taken else _other(value, declared) for value in values], declared)


def _other(value: Any, declared: pa.DataType) -> Any:
    """A value of another type, as the JVM takes it."""
    if value is None:
        return None
    if type(value) not in _PLAIN or pa.types.is_string(declared) or pa.types.is_temporal(declared):
        raise EngineStop(Stop.VALUE, f"A Python function gave a {type(value).__name__} where {declared} is declared.")
    return value.encode() if type(value) is str and pa.types.is_binary(declared) else None


def _kind(declared: pa.DataType) -> str:
    types = pa.types
    kinds = {
        "integer": types.is_integer,
        "float": types.is_floating,
        "boolean": types.is_boolean,
        "string": types.is_string,
        "binary": types.is_binary,
        "decimal": types.is_decimal,
        "temporal": types.is_temporal,  # PySpark made integers of them
    }
    return next(name for name, found in kinds.items() if found(declared))


_TAKEN: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "float": (float,),
    "boolean": (bool,),
    "string": (str,),
    "binary": (bytes, bytearray),
    "decimal": (Decimal,),
    "temporal": (int,),
}
