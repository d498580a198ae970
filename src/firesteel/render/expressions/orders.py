"""Orders of rows."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.plan.expr import Expr
from firesteel.plan.types import arrows, checked, engine_type
from firesteel.render.expressions.translator import Expressions


def order_text(order: Iterable[Expr]) -> str:
    x = Expressions()
    texts: list[str] = []
    for one in order:
        child = one["child"]
        kind, text = child.type if arrows(child.type) else checked(child.type), x.text(child)
        if child.cls == "Literal":  # the engine takes none as it is: it might be a column's number
            text = f"CAST({text} AS {engine_type(kind)})"
        direction = "ASC" if one["direction"].cls == "Ascending" else "DESC"
        nulls = "FIRST" if one["nullOrdering"].cls == "NullsFirst" else "LAST"
        texts.append(f"{text} {direction} NULLS {nulls}")
    return ", ".join(texts)
