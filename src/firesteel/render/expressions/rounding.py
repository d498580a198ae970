"""Numbers to fewer places: exact for integers and decimals, by their shortest digits for doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, decimal_of, engine_type, said
from firesteel.render.expressions.texts import constant, digits_of, scaled, shared, unscaled

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _whole(function: str) -> Callable[[Expressions, Expr], str]:
    def rule(x: Expressions, n: Expr) -> str:
        kind = n["child"].type
        if kind == "long":  # the engine would take its double
            return x.text(n["child"])
        if kind != "double" and not decimal_of(kind):
            raise Unsupported(f"{n.cls} of {said(kind)} is not taken over")
        return f"CAST({function}({x.text(n['child'])}) AS {engine_type(n.type)})"

    return rule


def _rounded(quotient: str) -> Callable[[Expressions, Expr], str]:
    """``quotient``: the engine's function of two integers, whose divisor is positive."""

    def rule(x: Expressions, n: Expr) -> str:
        kind, to = n["child"].type, int(constant(n["scale"], "round to places"))
        text = x.text(n["child"])
        found, result = decimal_of(kind), decimal_of(n.type)
        if kind == "double" and quotient == "fs_half_up" and 0 <= to <= 10:
            return _round_double(text, to)
        if kind in INTEGERS and n.type == kind:
            return _of_digits(f"CAST({text} AS HUGEINT)", 0, to, quotient, engine_type(kind))
        if found and result and result[1] == max(min(to, found[1]), 0):
            digits = _of_digits(unscaled(text, found[1]), found[1], to, quotient, "HUGEINT")
            return scaled(digits, *result)
        raise Unsupported(f"{n.cls} of {said(kind)} is not taken over")

    return rule


def _of_digits(digits: str, scale: int, to: int, quotient: str, kind: str) -> str:
    """Of an integer of ``scale`` places those that are left: at least none."""
    if scale <= to:
        return f"CAST({digits} AS {kind})"
    if scale - to > 38:
        raise Unsupported("round to these places is not taken over")
    rest = f" * {10**-to}::HUGEINT" if to < 0 else ""
    return shared(digits, lambda digits: f"CAST({quotient}({digits}, {10 ** (scale - to)}::HUGEINT){rest} AS {kind})")


def _round_double(text: str, scale: int) -> str:
    """By the shortest digits, half up, as BigDecimal.valueOf."""
    digits = f"CAST(CAST({digits_of(text, scale)} AS DECIMAL({15 + scale},{scale})) AS VARCHAR)"
    return f"(CASE WHEN isfinite({text}) THEN CAST({digits} AS DOUBLE) ELSE {text} END)"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "Ceil": _whole("ceil"),
    "Floor": _whole("floor"),
    "Round": _rounded("fs_half_up"),
    "BRound": _rounded("fs_half_even"),
    "RoundCeil": _rounded("fs_ceiling"),
    "RoundFloor": _rounded("fs_floor"),
    "Rint": lambda x, n: f"round_even({x.text(n['child'])}, 0)",
}
