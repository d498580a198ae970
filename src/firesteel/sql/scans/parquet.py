"""Parquet relations: columns that the files have in Spark's types, or in narrower ones that Spark widens in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.shaping import plain_type
from firesteel.connectors.formats.parquet import Footer
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import arrow_type, decimal_of, said
from firesteel.sql.plans.versions import Version
from firesteel.sql.scans.columns import DataColumn

_UNSIGNED = {"short": (pa.uint8(),), "integer": (pa.uint16(),), "long": (pa.uint32(),)}
"""Types of files that one stands for as well."""
_NARROWER = {
    "short": (pa.int8(),),
    "integer": (pa.int16(), pa.int8(), pa.uint8()),
    "long": (pa.int32(), pa.int16(), pa.int8(), pa.uint16(), pa.uint8()),
    "double": (pa.float32(), pa.int32(), pa.int16(), pa.int8()),
}
"""Types that hold no value that the wider one does not."""
OPTIONS = {"serialization.format", "mergeschema"}
_EXCEPTION = "EXCEPTION"
_CALENDARS = ("CORRECTED", _EXCEPTION)
_REBASED = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark.sql.parquet.int96TimestampConversion": ("false",),
    "spark.sql.parquet.fieldId.read.enabled": ("false",),
    **dict.fromkeys(_REBASED, _CALENDARS),
}
"""Settings of the session, and their values with which the files mean the same to both readers."""


@dataclass(frozen=True, slots=True)
class Reading:
    """``widens``: columns of the files may have narrower types. ``raises``: Spark does, for what may be of the old calendar."""

    widens: bool
    raises: bool

    @classmethod
    def by(cls, version: Version, setting: Callable[[str], str]) -> Reading:
        return cls(version.widens, any(setting(name).upper() == _EXCEPTION for name in _REBASED))


def agreed(footers: list[Footer], columns: list[DataColumn], reading: Reading) -> pa.Schema:
    """The columns as a source is to give them, under the names that the files write. Raises Unsupported."""
    if any(footer.times.hybrid for footer in footers):
        raise Unsupported("files of the old calendar are read by Spark")
    different: dict[Any, Footer] = {}
    for footer in footers:
        different.setdefault((footer.schema.remove_metadata(), footer.times.int96, footer.times.early), footer)
    return pa.schema([_field(list(different.values()), column, reading) for column in columns])


def _field(footers: list[Footer], column: DataColumn, reading: Reading) -> pa.Field:
    names: set[str] = set()
    nested: set[pa.DataType] = set()
    for footer in footers:
        found = [name for name in footer.schema.names if column.is_called(name)]
        if len(found) > 1:
            raise Unsupported(f"columns that differ from {column.name} by case alone are read by Spark")
        if not found and column.default:
            raise Unsupported(f"the default of the column {column.name}, which a file lacks, is Spark's")
        if reading.raises and set(found) & footer.times.early:
            raise Unsupported(f"days before 1582, or times before 1900, may be in {column.name}: Spark judges them")
        there = plain_type(footer.schema.field(found[0]).type) if found else None
        if there is not None and isinstance(column.kind, dict):
            _check_nested(footer, found[0], column.kind)
            nested.add(there)
        elif there is not None:
            _check(there, found[0] in footer.times.int96, column, reading.widens)
        names.update(found)
    if len(names) > 1:
        raise Unsupported(f"the column {column.name} is written in several ways")
    if len(nested) > 1:
        raise Unsupported(f"the nested column {column.name} has several types in the files")
    return pa.field(names.pop() if names else column.name, nested.pop() if nested else arrow_type(column.kind))


def _check_nested(footer: Footer, name: str, kind: Any) -> None:
    """Raises Unsupported where Spark takes a time inside for one without a zone, which 96 bits are not."""
    if "timestamp_ntz" in repr(kind) and any(path.startswith(f"{name}.") for path in footer.times.int96):
        raise Unsupported(f"the times in the nested column {name} are read by Spark")


def _check(there: pa.DataType, int96: bool, column: DataColumn, widens: bool) -> None:
    """Raises Unsupported where casting to Spark's type might give another value than Spark, or none."""
    kind, wanted = column.kind, arrow_type(column.kind)
    if pa.types.is_dictionary(there):
        there = there.value_type
    fits = there in (wanted, *_UNSIGNED.get(str(kind), ())) or (widens and there in _NARROWER.get(str(kind), ()))
    if kind == "timestamp":  # without a zone it is UTC
        fits = pa.types.is_timestamp(there) and there.unit in ("us", "ms")
    elif kind == "timestamp_ntz":
        fits = pa.types.is_timestamp(there) and there.tz is None and there.unit in ("us", "ms") and not int96
    elif kind == "string":
        fits = pa.types.is_string(there) or pa.types.is_large_string(there)
    elif kind == "binary":
        fits = any(known(there) for known in (pa.types.is_binary, pa.types.is_large_binary))
    elif widens and decimal_of(kind) and pa.types.is_decimal(there):
        whole, also = there.precision - there.scale, wanted.precision - wanted.scale
        fits = there.scale <= wanted.scale and whole <= also
    if not fits:
        raise Unsupported(f"the column {column.name} is {there} in a file, not {said(kind)}")
