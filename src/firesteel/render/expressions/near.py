"""Functions whose last digit may be another one than Java's: a query takes them only where its user allows that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr
from firesteel.render.expressions.texts import filled

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_TEXTS = {
    "Cbrt": "cbrt({child})",
    "Sin": "sin({child})",
    "Cos": "cos({child})",
    "Tan": "tan({child})",
    "Cot": "1 / tan({child})",
    "Sec": "1 / cos({child})",
    "Csc": "1 / sin({child})",
    "Asin": "asin({child})",
    "Acos": "acos({child})",
    "Atan": "atan({child})",
    "Atan2": "atan2({left} + 0, {right} + 0)",
    "Sinh": "sinh({child})",
    "Cosh": "cosh({child})",
    "Tanh": "tanh({child})",
}


def is_near(node: Expr) -> bool:
    return node.cls in _TEXTS


RULES: dict[str, Callable[[Expressions, Expr], str]] = {name: partial(filled, text) for name, text in _TEXTS.items()}
