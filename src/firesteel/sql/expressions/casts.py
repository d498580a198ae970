"""Casts. A value that does not fit ends the fragment in every eval mode; Spark then does as the mode says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.sql.expressions.types import INTEGERS, checked, decimal_of, engine_type, is_text, said
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.expressions.translator import Expressions


def _cast(x: Expressions, n: Node) -> str:
    child, to = n["child"], checked(n.type)
    kind = checked(child.type)
    text = x.text(child)
    if kind == to:
        return text
    found = _text(text, kind, to)
    if found is None:
        raise Unsupported(f"a cast of {said(kind)} to {said(to)} is not taken over")
    return found


def _text(text: str, kind: str, to: str) -> str | None:  # noqa: PLR0911 - one for each pair of types
    """None: not in the list."""
    name = engine_type(to)
    exact = kind in INTEGERS or decimal_of(kind) is not None
    if to in INTEGERS:
        if kind in INTEGERS:
            return f"CAST({text} AS {name})"
        if decimal_of(kind):
            return f"CAST(trunc({text}) AS {name})"
        return None
    if decimal_of(to):
        if exact:
            return f"CAST({text} AS {name})"
        if kind == "double":  # by the shortest digits, half up, as BigDecimal.valueOf
            return f"CAST(CAST({text} AS VARCHAR) AS {name})"
        return None
    if to == "double":
        return f"CAST({text} AS DOUBLE)" if kind in INTEGERS or kind == "float" else _double_of(text, kind)
    if is_text(to) and kind in (*INTEGERS, "date"):
        return f"CAST({text} AS VARCHAR)" if kind != "date" else f"strftime({text}, '%Y-%m-%d')"
    if to == "timestamp_ntz" and kind == "date":
        return f"CAST({text} AS TIMESTAMP)"
    return None


def _double_of(text: str, kind: str) -> str | None:
    """Of a decimal the nearest double, by its digits (the engine divides two doubles)."""
    return f"CAST(CAST({text} AS VARCHAR) AS DOUBLE)" if decimal_of(kind) else None


RULES = {"Cast": _cast}
