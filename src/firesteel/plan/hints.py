"""Conditions of a query that statistics in files can answer. Only hints: the query itself still filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, arrow_type, decimal_of

_COMPARED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "EqualTo": (eq, eq),
    "EqualNullSafe": (eq, eq),
    "LessThan": (lt, gt),
    "LessThanOrEqual": (le, ge),
    "GreaterThan": (gt, lt),
    "GreaterThanOrEqual": (ge, le),
}
"""By the operator, and by that with its sides swapped."""
_MOST_VALUES = 64
"""Values that are held against statistics one by one; of more it is the least and the greatest."""
_NO_CHARACTERS = (0xD800, 0x110000)
"""The first numbers behind code points that are none."""
_ORDERED = (*INTEGERS, "boolean", "date", "string", "timestamp", "timestamp_ntz")
"""Types, beside decimals, whose statistics follow the order of the engine and of Spark."""


def hints(conditions: list[Expr], columns: Mapping[str, str]) -> list[pc.Expression]:
    """Of all conditions those that are understood, one by one. ``columns``: names in the files by ids."""
    found = [_hint(one, columns) for one in conditions]
    return [one for one in found if one is not None]


def _hint(node: Expr, columns: Mapping[str, str]) -> pc.Expression | None:  # noqa: PLR0911 - one for each kind
    """An expression that is true wherever the condition is; None: it is not understood."""
    if node.cls in ("And", "Or"):
        return _both(node, columns)
    if node.cls in _COMPARED:
        return _comparison(node, columns)
    if node.cls == "IsNotNull":
        column = _column(node["child"], columns)
        return None if column is None else column.is_valid()
    if node.cls == "StartsWith":
        return _begins(node, columns)
    if node.cls == "In":
        values = node["list"]
        if any(one.cls != "Literal" for one in values):
            return None
        return _among(node["value"], [one["value"] for one in values], columns)
    if node.cls == "InSet":
        return _among(node["child"], node["hset"], columns)
    return None


def _both(node: Expr, columns: Mapping[str, str]) -> pc.Expression | None:
    sides = [_hint(node[side], columns) for side in ("left", "right")]
    known = [side for side in sides if side is not None]
    if node.cls == "Or":
        return known[0] | known[1] if len(known) == 2 else None
    return reduce(and_, known) if known else None


def _comparison(node: Expr, columns: Mapping[str, str]) -> pc.Expression | None:
    straight, swapped = _COMPARED[node.cls]
    for side, other, compared in (("left", "right", straight), ("right", "left", swapped)):
        column = _column(node[side], columns)
        if column is not None and node[other].cls == "Literal" and node[other].type == node[side].type:
            value = _constant(node[other]["value"], node[side].type)
            return None if value is None else compared(column, value)
    return None


def _begins(node: Expr, columns: Mapping[str, str]) -> pc.Expression | None:
    """Texts are in the order of their code points."""
    column, prefix = _column(node["left"], columns), node["right"]
    if column is None or prefix.cls != "Literal" or prefix.type != "string" or not prefix["value"]:
        return None
    text = prefix["value"]
    last = ord(text[-1])
    if last + 1 in _NO_CHARACTERS:
        return column >= text
    return (column >= text) & (column < text[:-1] + chr(last + 1))


def _among(child: Expr, values: list[Any], columns: Mapping[str, str]) -> pc.Expression | None:
    column = _column(child, columns)
    if column is None:
        return None
    constants = [_constant(value, child.type) for value in values if value is not None]
    known = [one for one in constants if one is not None]
    if not known or len(known) < len(constants):
        return None
    if len(known) <= _MOST_VALUES:
        return reduce(or_, [column == one for one in known])
    least, most = min(one.as_py() for one in known), max(one.as_py() for one in known)
    kind = known[0].type
    return (column >= pa.scalar(least, kind)) & (column <= pa.scalar(most, kind))


def _column(node: Expr, columns: Mapping[str, str]) -> pc.Expression | None:
    """A column of the files whose values have an order that statistics follow."""
    if node.cls != "AttributeReference" or node.id not in columns:
        return None
    if node.type not in _ORDERED and decimal_of(node.type) is None:
        return None
    return pc.field(columns[node.id])


def _constant(value: Any, kind: Any) -> pa.Scalar | None:
    """A constant as plans write it; None for those that are not understood."""
    if value is None or isinstance(value, dict):
        return None
    try:
        return pa.scalar(Decimal(value) if decimal_of(kind) else value, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError, Unsupported):
        return None
