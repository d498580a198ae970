"""Exponents, logarithms and powers, by ``engine.strict_math``: Spark computes them by Java's ``StrictMath``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr
from firesteel.render.expressions.texts import filled, shared

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_TEXTS = {
    "Exp": "fs_exp({child})",
    "Expm1": "fs_expm1({child})",
    "Log": "fs_log({child})",
    "Log2": "fs_log({child}) / 0.6931471805599453::DOUBLE",
    "Log10": "fs_log10({child})",
    "Log1p": "fs_log1p({child})",
    "Logarithm": "fs_log({right}) / fs_log({left})",
    "Atanh": "fs_atanh({child})",
}


def _pow(x: Expressions, n: Expr) -> str:
    right = n["right"]
    if right.cls == "Literal" and right["value"] == 2:
        return shared(x.text(n["left"]), lambda left: f"({left} * {left})")
    return filled("fs_pow({left}, {right})", x, n)


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    **{name: partial(filled, text) for name, text in _TEXTS.items()},
    "Pow": _pow,
}
