"""Parquet relations: columns that the files have in Spark's types, or in narrower ones that Spark widens in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.shaping import plain_type
from firesteel.connectors.formats.parquet import Footer
from firesteel.sql.expressions.types import arrow_type, decimal_of, said
from firesteel.sql.plans.nodes import Unsupported
from firesteel.sql.scans.columns import DataColumn

_INTEGERS = {
    "byte": (pa.int8(),),
    "short": (pa.int16(), pa.int8(), pa.uint8()),
    "integer": (pa.int32(), pa.int16(), pa.int8(), pa.uint16(), pa.uint8()),
    "long": (pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint32(), pa.uint16(), pa.uint8()),
    "double": (pa.float64(), pa.float32(), pa.int32(), pa.int16(), pa.int8()),
}
"""Types that hold no value that the wider one does not."""
OPTIONS = {"serialization.format", "mergeschema"}
SETTINGS: Mapping[str, str] = {
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
"""Settings of the session, and their values with which the files mean the same to both readers."""


def agreed(footers: list[Footer], columns: list[DataColumn]) -> pa.Schema:
    """The columns as a source is to give them, under the names that the files write. Raises Unsupported."""
    if any(footer.hybrid for footer in footers):
        raise Unsupported("files of the old calendar are read by Spark")
    different: dict[Any, Footer] = {}
    for footer in footers:
        different.setdefault((footer.schema.remove_metadata(), footer.int96), footer)
    return pa.schema([_field(list(different.values()), column) for column in columns])


def _field(footers: list[Footer], column: DataColumn) -> pa.Field:
    names: set[str] = set()
    nested: set[pa.DataType] = set()
    for footer in footers:
        found = [name for name in footer.schema.names if column.is_called(name)]
        if len(found) > 1:
            raise Unsupported(f"columns that differ from {column.name} by case alone are read by Spark")
        if not found and column.default:
            raise Unsupported(f"the default of the column {column.name}, which a file lacks, is Spark's")
        there = plain_type(footer.schema.field(found[0]).type) if found else None
        if there is not None and isinstance(column.kind, dict):
            _check_nested(footer, found[0])
            nested.add(there)
        elif there is not None:
            _check(there, found[0] in footer.int96, column)
        names.update(found)
    if len(names) > 1:
        raise Unsupported(f"the column {column.name} is written in several ways")
    if len(nested) > 1:
        raise Unsupported(f"the nested column {column.name} has several types in the files")
    return pa.field(names.pop() if names else column.name, nested.pop() if nested else arrow_type(column.kind))


def _check_nested(footer: Footer, name: str) -> None:
    """Raises Unsupported where a time inside might be another one."""
    if any(path.startswith(f"{name}.") for path in footer.int96):
        raise Unsupported(f"the times in the nested column {name} are read by Spark")


def _check(there: pa.DataType, int96: bool, column: DataColumn) -> None:
    """Raises Unsupported where casting to Spark's type might give another value than Spark, or none."""
    kind, wanted = column.kind, arrow_type(column.kind)
    if pa.types.is_dictionary(there):
        there = there.value_type
    fits = there == wanted or there in _INTEGERS.get(str(kind), ())
    if kind == "timestamp":  # without a zone it is UTC
        fits = pa.types.is_timestamp(there) and there.unit in ("us", "ms")
    elif kind == "timestamp_ntz":
        fits = pa.types.is_timestamp(there) and there.tz is None and there.unit in ("us", "ms") and not int96
    elif kind == "string":
        fits = pa.types.is_string(there) or pa.types.is_large_string(there)
    elif kind == "binary":
        fits = any(known(there) for known in (pa.types.is_binary, pa.types.is_large_binary))
    elif decimal_of(kind) and pa.types.is_decimal(there):
        whole, also = there.precision - there.scale, wanted.precision - wanted.scale
        fits = there.scale <= wanted.scale and whole <= also
    if not fits:
        raise Unsupported(f"the column {column.name} is {there} in a file, not {said(kind)}")
