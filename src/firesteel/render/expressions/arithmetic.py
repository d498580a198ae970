"""Numbers: integers and their bits, decimals exact and half up, doubles as they are. To fewer places: exact for integers and decimals, by their
shortest digits for doubles.

An overflow ends the fragment in every eval mode: Spark then runs the query, and raises, wraps or gives null as the mode says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported, eval_mode
from firesteel.plan.functions import said_function
from firesteel.plan.raising import KEPT_DIGITS
from firesteel.plan.types import FLOATS, INTEGERS, decimal_of, engine_type, is_interval, said
from firesteel.render.expressions.texts import (
    constant,
    digits_of,
    in_wider,
    left_to_spark,
    once,
    scaled,
    shared,
    unscaled,
)

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def kinds(n: Expr) -> tuple[str, Expr, Expr]:
    """The type and the operands. Raises Unsupported for operands of two types."""
    a, b = n["left"], n["right"]
    both_decimal = decimal_of(a.type) and decimal_of(b.type)
    if a.type != b.type and not both_decimal:
        raise Unsupported(f"{said_function(n)} of {said(a.type)} and {said(b.type)} is not taken over")
    return a.type, a, b


def _sum(sign: str, x: Expressions, n: Expr) -> str:
    kind, a, b = kinds(n)
    if kind in FLOATS:
        return f"({x.text(a)} {sign} {x.text(b)})"
    if decimal_of(kind):
        return _decimal_sum(x, n, sign)
    if kind in INTEGERS or is_interval(kind):
        return in_wider(kind, lambda wide: f"CAST({x.text(a)} AS {wide}) {sign} CAST({x.text(b)} AS {wide})")
    raise Unsupported(f"{said_function(n)} of {said(kind)} is not taken over")


def _decimal_sum(x: Expressions, n: Expr, sign: str) -> str:
    """Both operands in the result's scale first; where this would lose digits Spark adds."""
    (_, s1), (_, s2), (_, s) = map(decimal_of, (n["left"].type, n["right"].type, n.type))  # type: ignore[misc]
    if s < max(s1, s2):
        raise Unsupported(f"{said_function(n)} of decimals whose result loses digits is not taken over")
    kind = engine_type(n.type)
    return f"CAST(CAST({x.text(n['left'])} AS {kind}) {sign} CAST({x.text(n['right'])} AS {kind}) AS {kind})"


def _product(x: Expressions, n: Expr) -> str:
    kind, a, b = kinds(n)
    if kind in FLOATS:
        return f"({x.text(a)} * {x.text(b)})"
    if kind in INTEGERS:
        return in_wider(kind, lambda wide: f"CAST({x.text(a)} AS {wide}) * CAST({x.text(b)} AS {wide})")
    (p1, s1), (p2, s2), _ = map(decimal_of, (a.type, b.type, n.type))  # type: ignore[misc]
    if s1 + s2 > 38:
        raise Unsupported("a product of decimals with over 38 decimal places is not taken over")
    if p1 + p2 > 18:  # else the engine may multiply in 64 bits, as it does where no operand has more than 18 digits
        most = max(p1, 19) if max(p1, 19) + p2 <= 38 else 38  # with 38 it raises where 128 bits do not suffice
        return f"CAST(CAST({x.text(a)} AS DECIMAL({most},{s1})) * {x.text(b)} AS {engine_type(n.type)})"
    return f"CAST({x.text(a)} * {x.text(b)} AS {engine_type(n.type)})"


def _quotient(x: Expressions, n: Expr) -> str:
    kind, a, b = kinds(n)
    zero = left_to_spark("division by zero", b.type) if eval_mode(n) == "ANSI" else "NULL"
    by = x.text(b)
    if not (b.cls == "Literal" and b["value"] is not None and float(b["value"]) != 0):
        by = shared(by, lambda by: f"(CASE WHEN {by} = 0 THEN {zero} ELSE {by} END)")
    if kind in FLOATS:
        return f"({x.text(a)} / {by})"
    return decimal_quotient(x.text(a), a.type, by, b.type, n.type)


def decimal_quotient(a: str, a_kind: str, b: str, b_kind: str, kind: str) -> str:
    """Exact, half up. ``b`` is not zero. Values that would take more than 38 digits on the way are left to Spark."""
    (p1, s1), (_, s2), (p, s) = map(decimal_of, (a_kind, b_kind, kind))  # type: ignore[misc]
    up = s + s2 - s1
    if up < 0 or up > 37:
        raise Unsupported("a division of decimals of this many digits is not taken over")
    if p1 + up < 38:
        return shared(
            a, lambda a: f"CAST(decimal_division({_off_ties(a, p1 + up, s + s2)}, {b}, {s}) AS DECIMAL({p},{s}))"
        )
    n = unscaled(a, s1)
    if p1 + up > 38:
        n = shared(n, lambda n: f"fs_below({n}, {10 ** (38 - up)}::HUGEINT)")
    by = unscaled(b, s2)
    quotient = shared(f"{n} * {10**up}::HUGEINT", lambda n: shared(by, lambda by: f"fs_half_up({n}, {by})"))
    return scaled(quotient, p, s)


def _off_ties(dividend: str, digits: int, places: int) -> str:
    """The dividend, a tenth of a unit of ``places`` farther from zero.

    The engine divides half to even. A quotient of integers n / d that is no tie is at least 1 / (2 d) away from one. So a
    tenth more of n moves each tie to the side that Spark rounds to, and no other quotient over a tie.
    """
    tenth = f"CAST('0.{'1':0>{places + 1}}' AS DECIMAL({places + 1},{places + 1}))"
    return f"(CAST({dividend} AS DECIMAL({digits + 1},{places + 1})) + CASE WHEN {dividend} < 0 THEN -{tenth} ELSE {tenth} END)"


def unscaled_value(x: Expressions, n: Expr) -> str:
    found = decimal_of(n["child"].type)
    if found is None or found[0] > 18:
        raise Unsupported("digits of this type are not taken over")
    return f"CAST({unscaled(x.text(n['child']), found[1])} AS BIGINT)"


def _make_decimal(x: Expressions, n: Expr) -> str:
    if n["child"].type != "long":
        raise Unsupported("MakeDecimal of this type is not taken over")
    return scaled(f"CAST({x.text(n['child'])} AS HUGEINT)", n["precision"], n["scale"])


def _remainder(x: Expressions, n: Expr) -> str:
    """With the sign of the dividend."""
    kind, a, b = kinds(n)
    zero = left_to_spark("division by zero", b.type) if eval_mode(n) == "ANSI" else "NULL"
    left, by = x.text(a), f"nullif({x.text(b)}, 0)"
    if zero != "NULL":
        by = f"(CASE WHEN {x.text(b)} = 0 THEN {zero} ELSE {x.text(b)} END)"
    if decimal_of(kind):
        (p1, s1), (p2, s2) = decimal_of(a.type), decimal_of(b.type)  # type: ignore[misc]
        scale = max(s1, s2)
        if max(p1 - s1, p2 - s2) + scale > 38:
            raise Unsupported("a remainder of decimals of this many digits is not taken over")
        wide = f"DECIMAL({max(p1 - s1, p2 - s2) + scale},{scale})"
        return f"CAST(CAST({left} AS {wide}) % CAST({by} AS {wide}) AS {engine_type(n.type)})"
    return f"({left} % {by})"


def _positive_remainder(x: Expressions, n: Expr) -> str:
    """With the sign of the divisor, where that is positive."""
    kind, wide = n["left"].type, ""
    if (of_both := decimal_of(n.type)) and (by := decimal_of(n["right"].type)) and by[0] - by[1] + of_both[1] < 38:
        wide = f"DECIMAL(38,{of_both[1]})"  # has room for the sum
    elif kind not in INTEGERS and kind != "double":
        raise Unsupported(f"{said_function(n)} of {said(kind)} is not taken over")

    def of(r: str, b: str) -> str:
        one, other = (f"CAST({text} AS {wide})" if wide else text for text in (r, b))
        return f"(CASE WHEN {r} < 0 THEN ({one} + {other}) % {other} ELSE {r} END)"

    found = once(x.text(n["right"]), lambda b: once(_remainder(x, n), lambda r: of(r, b)))
    return f"CAST({found} AS {engine_type(n.type)})" if wide else found


def _factor(by: float) -> Callable[[Expressions, Expr], str]:
    return lambda x, n: f"({x.text(n['child'])} * {by!r}::DOUBLE)"


def _factorial(x: Expressions, n: Expr) -> str:
    """Null beyond 20."""
    return once(
        x.text(n["child"]), lambda a: f"(CASE WHEN {a} BETWEEN 0 AND 20 THEN CAST(factorial({a}) AS BIGINT) END)"
    )


def _integral(x: Expressions, n: Expr) -> str:
    kind, a, b = kinds(n)
    if kind != "long":
        raise Unsupported(f"div of {said(kind)} is not taken over")
    zero = left_to_spark("division by zero", b.type) if eval_mode(n) == "ANSI" else "NULL"
    return f"({x.text(a)} // (CASE WHEN {x.text(b)} = 0 THEN {zero} ELSE {x.text(b)} END))"


def _sign(x: Expressions, n: Expr) -> str:
    """Of zeros and NaN themselves."""
    text = x.text(n["child"])
    return f"(CASE WHEN isnan({text}) THEN {text} WHEN {text} > 0 THEN 1.0 WHEN {text} < 0 THEN -1.0 ELSE {text} END)"


def _absolute(x: Expressions, n: Expr) -> str:
    return _unless_rounded(x.text(n["child"]), n["child"].type, "abs({})")


def _unless_rounded(text: str, kind: Any, changed: str) -> str:
    found = decimal_of(kind)
    if not found or found[0] <= KEPT_DIGITS:
        return changed.format(text)
    least = f"CAST('{Decimal(1).scaleb(KEPT_DIGITS - found[1]):f}' AS {engine_type(kind)})"
    other = left_to_spark("a decimal that is rounded", kind)
    return once(text, lambda t: f"(CASE WHEN abs({t}) >= {least} THEN {other} ELSE {changed.format(t)} END)")


def _negative(x: Expressions, n: Expr) -> str:
    kind = n["child"].type
    if kind in FLOATS or decimal_of(kind):
        return _unless_rounded(x.text(n["child"]), kind, "(-{})")
    if kind in INTEGERS or is_interval(kind):
        return in_wider(kind, lambda wide: f"-CAST({x.text(n['child'])} AS {wide})")
    raise Unsupported(f"the negative of {said(kind)} is not taken over")


# --- bits of integers, in two's complement --------------------------------------------------------------------

_SIZES = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def _bits(text: str, x: Expressions, n: Expr) -> str:
    kind, a, b = kinds(n)
    if kind not in INTEGERS:
        raise Unsupported(f"{said_function(n)} of {said(kind)} is not taken over")
    return text.format(x.text(a), x.text(b))


def _shift(text: str, x: Expressions, n: Expr) -> str:
    """By the lowest bits of the number of places. ``text``: of a wide integer and these; what is beyond the type's bits is cut."""
    size = _SIZES.get(n["left"].type, 0)
    if size < 32 or n["right"].type != "integer":
        raise Unsupported("this shift is not taken over")
    by = f"CAST({x.text(n['right'])} & {size - 1} AS HUGEINT)"
    shifted = text.format(f"CAST({x.text(n['left'])} AS HUGEINT)", by, all=f"{2**size}::HUGEINT")
    return f"CAST(fs_wrapped({shifted}, {2 ** (size - 1)}::HUGEINT) AS {engine_type(n.type)})"


def _bit(x: Expressions, n: Expr) -> str:
    size = _SIZES[n["left"].type]
    other = left_to_spark("a bit that is not there", "integer")
    place = once(
        x.text(n["right"]),
        lambda p: f"(CASE WHEN {p} BETWEEN 0 AND {size - 1} THEN {p} WHEN {p} IS NOT NULL THEN {other} END)",
    )
    return f"CAST((CAST({x.text(n['left'])} AS BIGINT) >> {place}) & 1 AS TINYINT)"


def _count(x: Expressions, n: Expr) -> str:
    if n["child"].type not in INTEGERS:
        raise Unsupported(f"bits of {said(n['child'].type)} are not taken over")
    return f"CAST(bit_count(CAST({x.text(n['child'])} AS BIGINT)) AS INTEGER)"


# --- numbers to fewer places ----------------------------------------------------------------------------------


def _whole(function: str, x: Expressions, n: Expr) -> str:
    kind = n["child"].type
    if kind == "long":  # the engine would take its double
        return x.text(n["child"])
    if kind != "double" and not decimal_of(kind):
        raise Unsupported(f"{said_function(n)} of {said(kind)} is not taken over")
    return f"CAST({function}({x.text(n['child'])}) AS {engine_type(n.type)})"


def _rounded(quotient: str, x: Expressions, n: Expr) -> str:
    """``quotient``: the engine's function of two integers, whose divisor is positive."""
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
    raise Unsupported(f"{said_function(n)} of {said(kind)} is not taken over")


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
    "Add": partial(_sum, "+"),
    "Subtract": partial(_sum, "-"),
    "Multiply": _product,
    "Divide": _quotient,
    "Remainder": _remainder,
    "IntegralDivide": _integral,
    "Sqrt": lambda x, n: f"(CASE WHEN {x.text(n['child'])} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({x.text(n['child'])}) END)",
    "Signum": _sign,
    "UnscaledValue": unscaled_value,
    "MakeDecimal": _make_decimal,
    "Pmod": _positive_remainder,
    "ToDegrees": _factor(180 / math.pi),
    "ToRadians": _factor(math.pi / 180),
    "Factorial": _factorial,
    "Abs": _absolute,
    "UnaryMinus": _negative,
    "BitwiseAnd": partial(_bits, "({} & {})"),
    "BitwiseOr": partial(_bits, "({} | {})"),
    "BitwiseXor": partial(_bits, "xor({}, {})"),
    "BitwiseNot": lambda x, n: f"(~{x.text(n['child'])})",
    "BitwiseCount": _count,
    "BitwiseGet": _bit,
    "ShiftLeft": partial(_shift, "({0} * (1::HUGEINT << {1}))"),
    "ShiftRight": partial(_shift, "({0} >> {1})"),
    "ShiftRightUnsigned": partial(_shift, "((({0} + {all}) % {all}) >> {1})"),
    "Bin": lambda x, n: f"bin({x.text(n['child'])})",
    "Ceil": partial(_whole, "ceil"),
    "Floor": partial(_whole, "floor"),
    "Round": partial(_rounded, "fs_half_up"),
    "BRound": partial(_rounded, "fs_half_even"),
    "RoundCeil": partial(_rounded, "fs_ceiling"),
    "RoundFloor": partial(_rounded, "fs_floor"),
    "Rint": lambda x, n: f"round_even({x.text(n['child'])}, 0)",
}
