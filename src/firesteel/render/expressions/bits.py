"""Bits of integers, in two's complement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, engine_type, said
from firesteel.render.expressions.arithmetic import kinds
from firesteel.render.expressions.texts import left_to_spark, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_SIZES = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def _bits(text: str) -> Callable[[Expressions, Expr], str]:
    def rule(x: Expressions, n: Expr) -> str:
        kind, a, b = kinds(n)
        if kind not in INTEGERS:
            raise Unsupported(f"{n.cls} of {said(kind)} is not taken over")
        return text.format(x.text(a), x.text(b))

    return rule


def _shift(text: str) -> Callable[[Expressions, Expr], str]:
    """By the lowest bits of the number of places. ``text``: of a wide integer and these; what is beyond the type's bits is cut."""

    def rule(x: Expressions, n: Expr) -> str:
        size = _SIZES.get(n["left"].type, 0)
        if size < 32 or n["right"].type != "integer":
            raise Unsupported("this shift is not taken over")
        by = f"CAST({x.text(n['right'])} & {size - 1} AS HUGEINT)"
        shifted = text.format(f"CAST({x.text(n['left'])} AS HUGEINT)", by, all=f"{2**size}::HUGEINT")
        return f"CAST(fs_wrapped({shifted}, {2 ** (size - 1)}::HUGEINT) AS {engine_type(n.type)})"

    return rule


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


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "BitwiseAnd": _bits("({} & {})"),
    "BitwiseOr": _bits("({} | {})"),
    "BitwiseXor": _bits("xor({}, {})"),
    "BitwiseNot": lambda x, n: f"(~{x.text(n['child'])})",
    "BitwiseCount": _count,
    "BitwiseGet": _bit,
    "ShiftLeft": _shift("({0} * (1::HUGEINT << {1}))"),
    "ShiftRight": _shift("({0} >> {1})"),
    "ShiftRightUnsigned": _shift("((({0} + {all}) % {all}) >> {1})"),
    "Bin": lambda x, n: f"bin({x.text(n['child'])})",
}
