"""Exponents, logarithms and powers, by ``engine.strict_math``: Spark computes them by Java's ``StrictMath``."""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr

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
    "Pow": "fs_pow({left}, {right})",
}
_PLAIN_POWERS = {
    0.0: "CASE WHEN {left} IS NOT NULL THEN 1::DOUBLE END",
    1.0: "{left}",
    2.0: "{left} * {left}",
    -1.0: "1 / {left}",
}
"""Powers of which Java has a rule of their own, by the exponent."""


def filled(text: str, x: Expressions, n: Expr) -> str:
    """A text with the names of the node's fields in braces."""
    names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    return f"({text.format(**{name: x.text(n[name]) for name in names})})"


def _pow(x: Expressions, n: Expr) -> str:
    right = n["right"]
    known = right["value"] if right.cls == "Literal" else None
    return filled(_TEXTS["Pow"] if known is None else _PLAIN_POWERS.get(float(known), _TEXTS["Pow"]), x, n)


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    **{name: partial(filled, text) for name, text in _TEXTS.items()},
    "Pow": _pow,
}
