"""Casts. A value that does not fit ends the fragment in every eval mode; Spark then does as the mode says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.sql.expressions.dates import between_years, in_utc
from firesteel.sql.expressions.texts import digits_of, eval_mode, left_to_spark
from firesteel.sql.expressions.types import FLOATS, INTEGERS, checked, decimal_of, engine_type, is_text, said
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.expressions.translator import Expressions


def _cast(x: Expressions, n: Node) -> str:
    child, to = n["child"], checked(n.type)
    kind = checked(child.type)
    text = x.text(child)
    if kind == to:
        return text
    found = _TO[_family(to)](text, n)
    if found is None:
        raise Unsupported(f"a cast of {said(kind)} to {said(to)} is not taken over")
    return found


def _family(kind: str) -> str:
    """Of integers and decimals one."""
    return "integer" if kind in INTEGERS else "decimal" if decimal_of(kind) else kind


def _to_integer(text: str, n: Node) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    found = decimal_of(kind)
    if kind == "boolean":
        return f"CAST({text} AS {name})"
    if kind in INTEGERS:
        return f"CAST({text} AS {name})"
    if kind in FLOATS:
        return f"CAST(trunc({text}) AS {name})"
    if found and found[0] > 18 and n.type != "long" and eval_mode(n) != "LEGACY":  # by way of a double, in Spark
        return f"CAST(trunc(CAST(CAST({text} AS VARCHAR) AS DOUBLE)) AS {name})"
    if found:
        return f"CAST(trunc({text}) AS {name})"
    return _of_text(text, n, "[+-]?[0-9]{1,18}") if is_text(kind) else None


def _to_decimal(text: str, n: Node) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    if kind in INTEGERS or decimal_of(kind) or kind == "boolean":
        return f"CAST({f'CAST({text} AS INTEGER)' if kind == 'boolean' else text} AS {name})"
    if kind == "double":  # by the shortest digits, half up, as BigDecimal.valueOf
        return f"CAST({digits_of(text, decimal_of(n.type)[1])} AS {name})"  # type: ignore[index]
    return _of_text(text, n, r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?") if is_text(kind) else None


def _to_floating(text: str, n: Node) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    if kind in INTEGERS or kind in FLOATS or kind == "boolean":
        return f"CAST({text} AS {name})"
    if decimal_of(kind) and n.type == "double":  # the nearest, by its digits; the engine divides two doubles
        return f"CAST(CAST({text} AS VARCHAR) AS {name})"
    return _of_text(text, n, r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?") if is_text(kind) and n.type == "double" else None


def _to_boolean(text: str, n: Node) -> str | None:
    kind = checked(n["child"].type)
    is_number = kind in INTEGERS or kind in FLOATS or decimal_of(kind)
    return f"({text} <> 0)" if is_number else None


def _to_text(text: str, n: Node) -> str | None:
    kind = checked(n["child"].type)
    found = decimal_of(kind)
    if kind in INTEGERS or kind == "boolean" or is_text(kind) or (found and found[1] <= 6):  # else 0E-10, in Java
        return f"CAST({text} AS VARCHAR)"
    if kind == "date":
        return between_years(text, f"strftime({text}, '%Y-%m-%d')")
    if kind in ("timestamp", "timestamp_ntz"):
        time = in_utc(text, n["child"], n["timeZoneId"])
        return between_years(time, f"CAST({time} AS VARCHAR)")
    return None


def _to_date(text: str, n: Node) -> str | None:
    if n["child"].type in ("timestamp", "timestamp_ntz"):
        return f"CAST({in_utc(text, n['child'], n['timeZoneId'])} AS DATE)"
    return _of_text(text, n, "[0-9]{4}-[0-9]{2}-[0-9]{2}") if is_text(n["child"].type) else None


_CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,6})?"


def _to_timestamp(text: str, n: Node) -> str | None:
    """With or without a zone, which must be UTC."""
    kind, to_local = n["child"].type, n.type == "timestamp_ntz"
    if not to_local or kind == "timestamp":
        in_utc("", Node("", {}, "timestamp"), n["timeZoneId"])
    if kind == "timestamp":
        return f"make_timestamp(epoch_us({text}))"
    if kind == "timestamp_ntz":
        return f"make_timestamptz(epoch_us({text}))"
    local = (
        f"CAST({text} AS TIMESTAMP)"
        if kind == "date"
        else _of_text(text, n, _CLOCK, "timestamp_ntz")
        if is_text(kind)
        else None
    )
    return local if local is None or to_local else f"make_timestamptz(epoch_us({local}))"


def _of_text(text: str, n: Node, form: str, kind: str | None = None) -> str:
    """Texts of a plain form; of others Spark knows."""
    kind = kind or checked(n.type)
    other = left_to_spark("a text of another form", kind)
    return f"(CASE WHEN {text} IS NULL OR regexp_full_match({text}, '{form}') THEN CAST({text} AS {engine_type(kind)}) ELSE {other} END)"


_TO: dict[str, Callable[[str, Node], str | None]] = {
    "integer": _to_integer,
    "decimal": _to_decimal,
    "float": _to_floating,
    "double": _to_floating,
    "boolean": _to_boolean,
    "string": _to_text,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp,
    "binary": lambda text, n: None,
}
RULES = {"Cast": _cast}
