"""Columns, constants, logic, comparisons and choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported, conjuncts
from firesteel.plan.functions import said_function
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.types import FLOATS, checked_inside, engine_type, fields_of, grouped, said
from firesteel.render.expressions.texts import left_to_spark, literal, once, undivided

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

# --- leaves ---------------------------------------------------------------------------------------------------------


def _literal(x: Expressions, n: Expr) -> str:
    return literal(n["value"], n.type)


# --- logic and comparisons --------------------------------------------------------------------------------------------

COMPARED = {
    "EqualTo": "=",
    "LessThan": "<",
    "GreaterThan": ">",
    "LessThanOrEqual": "<=",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
}


def _same_types(n: Expr, nodes: list[Expr], of: Callable[[Any], str] = checked_inside) -> None:
    """``of``: ``engine_type`` where values are only passed on, so that they may be nested."""
    kinds = {of(node.type) for node in nodes}
    if len(kinds) > 1:
        raise Unsupported(f"{said_function(n)} of {' and '.join(sorted(map(said, kinds)))} is not taken over")


def _equal(kind: Any) -> str:
    return engine_type(grouped(kind))


def _comparison(x: Expressions, n: Expr) -> str:
    a, b = n["left"], n["right"]
    _same_types(n, [a, b], _equal if n.cls in ("EqualTo", "EqualNullSafe") else checked_inside)
    return f"({x.text(a)} {COMPARED[n.cls]} {x.text(b)})"


def _in(x: Expressions, n: Expr) -> str:
    items = n["list"]
    _same_types(n, [n["value"], *items], _equal)
    if not items:
        raise Unsupported("an empty IN is not taken over")
    return f"({x.text(n['value'])} IN ({', '.join(x.texts(items))}))"


def _in_set(x: Expressions, n: Expr) -> str:
    kind, values = n["child"].type, n["hset"]
    if not isinstance(values, list) or not values or not all(v is None or isinstance(v, str | int) for v in values):
        raise Unsupported("IN of these values is not taken over")
    texts = sorted(literal(value, kind) for value in values)
    return f"({x.text(n['child'])} IN ({', '.join(texts)}))"


def _and(x: Expressions, n: Expr) -> str:
    """Spark computes the right side where the left one is null, too; the engine does not where rows are chosen by it."""
    conditions = conjuncts(n)
    if any_raises(conditions[1:]):
        return undivided(x.texts(conditions))
    return f"({x.text(n['left'])} AND {x.text(n['right'])})"


def _or(x: Expressions, n: Expr) -> str:
    """Spark does not compute the right side where the left one is true."""
    left, right = x.text(n["left"]), x.text(n["right"])
    return (
        f"(CASE WHEN {left} THEN true ELSE {left} OR {right} END)" if may_raise(n["right"]) else f"({left} OR {right})"
    )


def _if(x: Expressions, n: Expr) -> str:
    return f"(CASE WHEN {x.text(n['predicate'])} THEN {x.text(n['trueValue'])} ELSE {x.text(n['falseValue'])} END)"


def _case(x: Expressions, n: Expr) -> str:
    whens = " ".join(f"WHEN {x.text(b['_1'])} THEN {x.text(b['_2'])}" for b in n["branches"])
    other = n["elseValue"]
    values = [b["_2"] for b in n["branches"]] + ([other] if other else [])
    _same_types(n, values, engine_type)
    return f"(CASE {whens}{f' ELSE {x.text(other)}' if other else ''} END)"


def _coalesce(x: Expressions, n: Expr) -> str:
    _same_types(n, n["children"], engine_type)
    return f"coalesce({', '.join(x.texts(n['children']))})"


def _extreme(function: str) -> Callable[[Expressions, Expr], str]:
    """Of those that are not null."""

    def rule(x: Expressions, n: Expr) -> str:
        _same_types(n, n["children"])
        if n.type in FLOATS:  # of zeros of two signs the first
            return reduce(lambda a, b: once(a, lambda a: once(b, lambda b: better(a, b))), x.texts(n["children"]))
        return f"{function}({', '.join(x.texts(n['children']))})"

    def better(a: str, b: str) -> str:
        sign = ">" if function == "greatest" else "<"
        return f"(CASE WHEN {a} IS NULL OR {b} {sign} {a} THEN coalesce({b}, {a}) ELSE {a} END)"

    return rule


def _enough(x: Expressions, n: Expr) -> str:
    """At least so many that are neither null nor NaN."""
    texts = [
        f"({text} IS NOT NULL AND NOT isnan({text}))" if child.type in FLOATS else f"({text} IS NOT NULL)"
        for child, text in ((child, x.text(child)) for child in n["children"])
    ]
    return f"({' + '.join(f'CAST({text} AS INTEGER)' for text in texts)} >= {int(n['n'])})"


# --- subqueries -------------------------------------------------------------------------------------------------------------


def _subquery(x: Expressions, n: Expr) -> str:
    if fields_of(n.type) is not None:
        raise Unsupported("a subquery that gives a struct is not taken over")
    return x.subquery(n)


def _child(x: Expressions, n: Expr) -> str:
    return x.text(n["child"])


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "AttributeReference": lambda x, n: n.id,
    "Alias": _child,
    "HashOfRow": lambda x, n: f"hash({', '.join(x.texts(n['children']))})",  # of steps alone
    "Literal": _literal,
    "ScalarSubquery": _subquery,
    "KnownNotNull": _child,
    "Collate": _child,  # a type with another order than that of bytes is refused
    "TryEval": _child,
    "KnownNullable": _child,
    "KnownFloatingPointNormalized": _child,
    "NormalizeNaNAndZero": lambda x, n: f"({x.text(n['child'])} + 0)",  # -0.0 as 0.0
    "And": _and,
    "Or": _or,
    "Not": lambda x, n: f"(NOT {x.text(n['child'])})",
    "IsNull": lambda x, n: f"({x.text(n['child'])} IS NULL)",
    "IsNotNull": lambda x, n: f"({x.text(n['child'])} IS NOT NULL)",
    "In": _in,
    "InSet": _in_set,
    "If": _if,
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    "Greatest": _extreme("greatest"),
    "Least": _extreme("least"),
    "AtLeastNNonNulls": _enough,
    "RaiseError": lambda x, n: left_to_spark("raise_error", n.type),
    "IsNaN": lambda x, n: f"coalesce(isnan({x.text(n['child'])}), false)",
    "NaNvl": lambda x, n: (
        f"(CASE WHEN isnan({x.text(n['left'])}) THEN {x.text(n['right'])} ELSE {x.text(n['left'])} END)"
    ),
    **dict.fromkeys(COMPARED, _comparison),
}
