"""Spark's types in the engine and in Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Unsupported

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
    "void": '"NULL"',
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
    "void": pa.null(),
}
_SPARKS = {kind: name for name, kind in _ARROW.items() if name != "void"}
"""Of steps, a column of nulls is one of a type that Spark lacks."""
_MORE = {
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.timestamp("ns"): "TIMESTAMP_NS",
    pa.time64("us"): "TIME",
    pa.null(): '"NULL"',
}
"""Types that Spark lacks in the engine."""
INTEGERS = ("byte", "short", "integer", "long")
FLOATS = ("float", "double")


def decimal_of(kind: Any) -> tuple[int, int] | None:
    """(precision, scale); None for other types."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(found[1]), int(found[2])) if found else None


def checked(kind: Any) -> str:
    """The type, if it is a plain one that is taken over: no array, struct or map. Raises Unsupported."""
    if isinstance(kind, str):
        if _CHAR.fullmatch(kind):
            return "string"
        if kind in _ENGINE or decimal_of(kind):
            return kind
    raise Unsupported(f"the type {said(kind)} is not taken over")


def grouped(kind: Any, maps: bool = False) -> Any:
    """The type, if the engine finds its values equal where Spark does: a plain one or an interval, or an array or struct of such without
    floating-point numbers. ``maps``: also maps of such, whose entries are in an order. Raises Unsupported."""
    if not isinstance(kind, dict):
        return checked_inside(kind)
    if arrows(kind) is not None or (entry_of(kind) is not None and not maps):
        raise Unsupported(f"groups by the type {said(kind)} are not taken over")
    if any(grouped(part, maps) in FLOATS for _, part in parts_of(kind)):
        raise Unsupported(f"groups by the type {said(kind)} of floating-point numbers are not taken over")
    return kind


def is_days(kind: Any) -> bool:
    """An interval of days to seconds, in microseconds."""
    return isinstance(kind, str) and kind.startswith("interval ") and not is_months(kind)


def is_months(kind: Any) -> bool:
    """An interval of years to months, in months."""
    return isinstance(kind, str) and kind.startswith("interval ") and kind.endswith(("year", "month"))


def is_interval(kind: Any) -> bool:
    """An integer in the engine."""
    return is_days(kind) or is_months(kind)


def checked_inside(kind: Any) -> str:
    """As ``checked``; or an interval."""
    return kind if is_interval(kind) else checked(kind)


def carried(kind: Any) -> Any:
    """The type, if columns of it are taken over: a plain one or an interval, or an array, a struct or a map of such. Raises Unsupported."""
    if not isinstance(kind, dict):
        return checked_inside(kind)
    if arrows(kind) is None:
        for _, part in parts_of(kind):
            carried(part)
    return kind


def element_of(kind: Any) -> Any:
    """Of an array; None for other types."""
    return kind["elementType"] if isinstance(kind, dict) and kind.get("type") == "array" else None


def fields_of(kind: Any) -> list[tuple[str, Any]] | None:
    """(name, type) of each field of a struct; None for other types."""
    return parts_of(kind) if isinstance(kind, dict) and kind.get("type") == "struct" else None


def entry_of(kind: Any) -> tuple[Any, Any] | None:
    """The types of a map's keys and values; None for other types."""
    return (kind["keyType"], kind["valueType"]) if isinstance(kind, dict) and kind.get("type") == "map" else None


def type_of(kind: pa.DataType) -> Any:
    """The type of a column of Arrow's; ``{"type": "arrow", "arrow": kind}`` where Spark has none."""
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARKS.get(kind) or handed_on(kind)


def handed_on(kind: pa.DataType) -> Any:
    """A type of Arrow's for values that are never computed with."""
    return {"type": "arrow", "arrow": kind}


_WIDER = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long", pa.uint64(): "decimal(20,0)"}


def sparks_type(kind: pa.DataType) -> Any:
    """The type in which Spark computes with values of a column: of unsigned integers a wider one. Else as :func:`type_of`."""
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": sparks_type(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        parts = {"keyType": sparks_type(kind.key_type), "valueType": sparks_type(kind.item_type)}
        return {"type": "map", **parts, "valueContainsNull": True}
    if pa.types.is_struct(kind):
        fields = [{"name": f.name, "type": sparks_type(f.type), "nullable": True, "metadata": {}} for f in kind]
        return {"type": "struct", "fields": fields}
    return _WIDER.get(kind) or type_of(kind)


def arrows(kind: Any) -> pa.DataType | None:
    """A type that Spark lacks, as Arrow has it; None for other types."""
    return kind["arrow"] if isinstance(kind, dict) and kind.get("type") == "arrow" else None


def parts_of(kind: dict[str, Any]) -> list[tuple[str, Any]]:
    """The types inside of a nested one, by name. Raises Unsupported."""
    found = {
        "array": lambda: [("element", kind["elementType"])],
        "map": lambda: [("key", kind["keyType"]), ("value", kind["valueType"])],
        "struct": lambda: _fields(kind["fields"]),
    }.get(kind.get("type", ""))
    if found is None:
        raise Unsupported(f"the type {said(kind)} is not taken over")
    return found()


def _fields(fields: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The engine knows a field by its name in any case."""
    names = [field["name"] for field in fields]
    if not names or "" in names or len({name.casefold() for name in names}) < len(names):
        raise Unsupported("a struct without fields of different names is not taken over")
    if any("__COLLATIONS" in field["metadata"] for field in fields):
        raise Unsupported("texts with a collation are not taken over")
    return [(field["name"], field["type"]) for field in fields]


def _held(kind: Any) -> Any:
    """The type, or of an interval that of its microseconds or months. Raises Unsupported."""
    return "long" if is_days(kind) else "integer" if is_months(kind) else carried(kind)


def engine_type(kind: Any) -> str:
    kind = _held(kind)
    if isinstance(kind, str):
        return kind.upper() if decimal_of(kind) else _ENGINE[kind]
    if (other := arrows(kind)) is not None:
        if other not in _MORE:
            raise Unsupported(f"the type {said(kind)} has no name in the engine")
        return _MORE[other]
    parts = [(name, engine_type(part)) for name, part in parts_of(kind)]
    if kind["type"] == "array":
        return f"{parts[0][1]}[]"
    if kind["type"] == "map":
        return f"MAP({parts[0][1]}, {parts[1][1]})"
    return f"STRUCT({', '.join(f'{quoted(name)} {part}' for name, part in parts)})"


def arrow_type(kind: Any) -> pa.DataType:
    """Every value inside of a nested type may be null; what a DataFrame says of that is only for its users."""
    kind = _held(kind)
    if isinstance(kind, str):
        found = decimal_of(kind)
        return pa.decimal128(*found) if found else _ARROW[kind]
    if (other := arrows(kind)) is not None:
        return other
    parts = [(name, arrow_type(part)) for name, part in parts_of(kind)]
    if kind["type"] == "array":
        return pa.list_(pa.field(*parts[0]))
    if kind["type"] == "map":
        return pa.map_(parts[0][1], parts[1][1])
    return pa.struct([pa.field(*part) for part in parts])


def quoted(name: str) -> str:
    """A column's name as the engine's identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def said(kind: Any) -> str:
    """The type as Spark's users write it."""
    if isinstance(kind, dict):
        return str(kind.get("arrow", kind.get("type", kind.get("?", "unknown"))))
    return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(str(kind), str(kind))


def is_text(kind: Any) -> bool:
    return isinstance(kind, str) and (kind == "string" or _CHAR.fullmatch(kind) is not None)
