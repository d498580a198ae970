"""Functions whose last digit may be another one than Java's: a query takes them only where its user allows that."""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_NAN = "'NaN'::DOUBLE"
_TEXTS = {
    "Exp": "exp({child})",
    "Log": "CASE WHEN {child} <= 0 THEN NULL ELSE ln({child}) END",
    "Log2": "CASE WHEN {child} <= 0 THEN NULL ELSE ln({child}) / ln(2::DOUBLE) END",
    "Log10": "CASE WHEN {child} <= 0 THEN NULL ELSE log10({child}) END",
    "Logarithm": "CASE WHEN {left} <= 0 OR {right} <= 0 THEN NULL ELSE ln({right}) / ln({left}) END",
    "Pow": "CASE WHEN {left} IS NOT NULL AND (isnan({right}) OR abs({left}) = 1 AND isinf({right})) THEN " + _NAN + " ELSE pow({left}, {right}) END",
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
    "Atanh": "atanh({child})",
    "Log1p": "CASE WHEN {child} <= -1 THEN NULL WHEN 1 + {child} = 1 OR isinf({child}) THEN {child} ELSE ln(1 + {child}) * ({child} / (1 + {child} - 1)) END",
    "Expm1": "CASE WHEN exp({child}) = 1 THEN {child} WHEN exp({child}) - 1 = -1 OR isinf(exp({child})) THEN exp({child}) - 1 ELSE (exp({child}) - 1) * ({child} / ln(exp({child}))) END",
}  # fmt: skip
_EXACT = {
    0.0: "CASE WHEN {left} IS NOT NULL THEN 1::DOUBLE END",
    1.0: "{left}",
    2.0: "{left} * {left}",
    -1.0: "1 / {left}",
}
"""Powers of which Java has a rule of their own, by the exponent."""


def is_near(node: Expr) -> bool:
    return node.cls in _TEXTS and _exact(node) is None


def _exact(node: Expr) -> str | None:
    right = node["right"] if node.cls == "Pow" else None
    if right is None or right.cls != "Literal" or right["value"] is None:
        return None
    return _EXACT.get(float(right["value"]))


def _rule(text: str, x: Expressions, n: Expr) -> str:
    known = _exact(n) or text
    fields = {name for _, name, _, _ in string.Formatter().parse(known) if name}
    return f"({known.format(**{name: x.text(n[name]) for name in fields})})"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {name: partial(_rule, text) for name, text in _TEXTS.items()}
