"""Spark's types in the engine and in Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from firesteel.sql.plans.nodes import Unsupported

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHAR = re.compile(r"(?:var)?char\(\d+\)")
_ENGINE = {
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_ARROW = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
INTEGERS = ("byte", "short", "integer", "long")
FLOATS = ("float", "double")


def decimal_of(kind: Any) -> tuple[int, int] | None:
    """(precision, scale); None for other types."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(found[1]), int(found[2])) if found else None


def checked(kind: Any) -> str:
    """The type, if it is one that is taken over. Raises Unsupported."""
    if isinstance(kind, str):
        if _CHAR.fullmatch(kind):
            return "string"
        if kind in _ENGINE or decimal_of(kind):
            return kind
    raise Unsupported(f"the type {said(kind)} is not taken over")


def is_days(kind: Any) -> bool:
    """An interval of days to seconds, in microseconds."""
    return isinstance(kind, str) and kind.startswith("interval ") and not is_months(kind)


def is_months(kind: Any) -> bool:
    """An interval of years to months, in months."""
    return isinstance(kind, str) and kind.startswith("interval ") and kind.endswith(("year", "month"))


def checked_inside(kind: Any) -> str:
    """As ``checked``; inside of expressions there are intervals, too."""
    return kind if is_days(kind) or is_months(kind) else checked(kind)


def engine_type(kind: Any) -> str:
    kind = checked(kind)
    return kind.upper() if decimal_of(kind) else _ENGINE[kind]


def arrow_type(kind: Any) -> pa.DataType:
    kind = checked(kind)
    found = decimal_of(kind)
    return pa.decimal128(*found) if found else _ARROW[kind]


def said(kind: Any) -> str:
    """The type as Spark's users write it."""
    if isinstance(kind, dict):
        return str(kind.get("type", kind.get("?", "unknown")))
    return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(str(kind), str(kind))


def is_text(kind: Any) -> bool:
    return isinstance(kind, str) and (kind == "string" or _CHAR.fullmatch(kind) is not None)
