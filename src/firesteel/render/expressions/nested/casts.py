"""Casts of arrays and structs: of each value inside, by the rules for plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import element_of, engine_type, fields_of, said
from firesteel.render.expressions.texts import struct_text

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_INSIDE = -1
"""The number of the variable that stands for a value inside."""


def nested_cast(x: Expressions, n: Expr) -> str:
    child = n["child"]
    text = x.text(child)
    if engine_type(child.type) == engine_type(n.type):
        return text
    elements = element_of(child.type), element_of(n.type)
    if None not in elements:
        return f"list_transform({text}, lambda e: {_inside(x, n, 'e', *elements)})"
    before, after = fields_of(child.type), fields_of(n.type)
    if before is None or after is None or len(before) != len(after):
        raise Unsupported(f"a cast of {said(child.type)} to {said(n.type)} is not taken over")
    items = [
        (name, _inside(x, n, f"struct_extract_at({text}, {i + 1})", kind, to))
        for i, ((_, kind), (name, to)) in enumerate(zip(before, after, strict=True))
    ]
    return f"(CASE WHEN {text} IS NOT NULL THEN {struct_text(items)} END)"


def _inside(x: Expressions, n: Expr, text: str, kind: Any, to: Any) -> str:
    value = Expr("NamedLambdaVariable", {"exprId": _INSIDE}, kind)
    if kind == to:
        return text
    return x.inside({_INSIDE: text}).text(Expr(n.cls, {**n.fields, "child": value}, to))
