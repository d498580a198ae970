"""Logic, comparisons, choices, strings and dates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.sql.expressions.texts import left_to_spark, literal
from firesteel.sql.expressions.types import checked, is_text, said
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.expressions.translator import Expressions

# --- leaves ---------------------------------------------------------------------------------------------------------


def _literal(x: Expressions, n: Node) -> str:
    return literal(n["value"], n.type)


# --- logic and comparisons --------------------------------------------------------------------------------------------

_COMPARED = {
    "EqualTo": "=",
    "LessThan": "<",
    "GreaterThan": ">",
    "LessThanOrEqual": "<=",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
}


def _same_types(n: Node, nodes: list[Node]) -> None:
    kinds = {checked(node.type) for node in nodes}
    if len(kinds) > 1:
        raise Unsupported(f"{n.cls} of {' and '.join(sorted(map(said, kinds)))} is not taken over")


def _comparison(x: Expressions, n: Node) -> str:
    a, b = n["left"], n["right"]
    _same_types(n, [a, b])
    return f"({x.text(a)} {_COMPARED[n.cls]} {x.text(b)})"


def _in(x: Expressions, n: Node) -> str:
    items = n["list"]
    _same_types(n, [n["value"], *items])
    if not items:
        raise Unsupported("an empty IN is not taken over")
    return f"({x.text(n['value'])} IN ({', '.join(x.texts(items))}))"


def _in_set(x: Expressions, n: Node) -> str:
    kind, values = n["child"].type, n["hset"]
    if not isinstance(values, list) or not values or not all(v is None or isinstance(v, str | int) for v in values):
        raise Unsupported("IN of these values is not taken over")
    texts = sorted(literal(value, kind) for value in values)
    return f"({x.text(n['child'])} IN ({', '.join(texts)}))"


def _both(word: str) -> Callable[[Expressions, Node], str]:
    return lambda x, n: f"({x.text(n['left'])} {word} {x.text(n['right'])})"


def _if(x: Expressions, n: Node) -> str:
    return f"(CASE WHEN {x.text(n['predicate'])} THEN {x.text(n['trueValue'])} ELSE {x.text(n['falseValue'])} END)"


def _case(x: Expressions, n: Node) -> str:
    whens = " ".join(f"WHEN {x.text(b['_1'])} THEN {x.text(b['_2'])}" for b in n["branches"])
    other = n["elseValue"]
    values = [b["_2"] for b in n["branches"]] + ([other] if other else [])
    _same_types(n, values)
    return f"(CASE {whens}{f' ELSE {x.text(other)}' if other else ''} END)"


def _coalesce(x: Expressions, n: Node) -> str:
    _same_types(n, n["children"])
    return f"coalesce({', '.join(x.texts(n['children']))})"


# --- strings ------------------------------------------------------------------------------------------------------------


def _strings(*nodes: Node) -> None:
    for node in nodes:
        if not is_text(node.type):
            raise Unsupported(f"strings of type {said(node.type)} are not taken over")


def _of_two_strings(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        _strings(n["left"], n["right"])
        return f"{function}({x.text(n['left'])}, {x.text(n['right'])})"

    return rule


def _like(x: Expressions, n: Node) -> str:
    pattern = n["right"]
    _strings(n["left"], pattern)
    escape = n["escapeChar"]
    if pattern.cls != "Literal" or pattern["value"] is None or not isinstance(escape, dict | str):
        raise Unsupported("LIKE with a pattern that is no constant is not taken over")
    if "\\" in pattern["value"] or (isinstance(escape, str) and escape in pattern["value"]):
        raise Unsupported("LIKE with an escape in its pattern is not taken over")
    return f"({x.text(n['left'])} LIKE {x.text(pattern)})"


def _concat(x: Expressions, n: Node) -> str:
    _strings(*n["children"])
    return "(" + " || ".join(x.texts(n["children"])) + ")"


def _substring(x: Expressions, n: Node) -> str:
    at, size = n["pos"], n["len"]
    _strings(n["str"])
    if at.cls != "Literal" or size.cls != "Literal" or at["value"] is None or size["value"] is None:
        raise Unsupported("substring with places that are no constants is not taken over")
    if at["value"] < 1 or size["value"] < 0:
        raise Unsupported("substring from the end is not taken over")
    return f"substr({x.text(n['str'])}, {at['value']}, {min(size['value'], 1 << 30)})"


def _letters(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        _strings(n["child"])
        text = x.text(n["child"])
        other = left_to_spark("the case of letters beyond ASCII", "string")
        return f"(CASE WHEN {text} IS NULL OR strlen({text}) = length({text}) THEN {function}({text}) ELSE {other} END)"

    return rule


def _length(x: Expressions, n: Node) -> str:
    _strings(n["child"])
    return f"CAST(length({x.text(n['child'])}) AS INTEGER)"


def _trim(x: Expressions, n: Node) -> str:
    if n["trimStr"] is not None:
        raise Unsupported("trim of given characters is not taken over")
    _strings(n["srcStr"])
    function = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}[n.cls]
    return f"{function}({x.text(n['srcStr'])}, ' ')"


# --- dates ----------------------------------------------------------------------------------------------------------------


def _date_part(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        if n["child"].type != "date":
            raise Unsupported(f"{n.cls} of {said(n['child'].type)} is not taken over")
        return f"CAST({function}({x.text(n['child'])}) AS INTEGER)"

    return rule


def _date_add(sign: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        days = n["days"]
        if n["startDate"].type != "date" or days.type not in ("integer", "short", "byte"):
            raise Unsupported(f"{n.cls} of {said(n['startDate'].type)} is not taken over")
        return f"({x.text(n['startDate'])} {sign} CAST({x.text(days)} AS INTEGER))"

    return rule


def _date_diff(x: Expressions, n: Node) -> str:
    return f"CAST({x.text(n['endDate'])} - {x.text(n['startDate'])} AS INTEGER)"


# --- subqueries -------------------------------------------------------------------------------------------------------------


def _struct_field(x: Expressions, n: Node) -> str:
    """Of subqueries that Spark has merged: one gives all their values, as a struct."""
    if n["child"].cls != "ScalarSubquery":
        raise Unsupported("a field of a struct is not taken over")
    return x.subquery(n["child"], n["ordinal"])


def _child(x: Expressions, n: Node) -> str:
    return x.text(n["child"])


RULES: dict[str, Callable[[Expressions, Node], str]] = {
    "AttributeReference": lambda x, n: n.id,
    "Alias": _child,
    "Literal": _literal,
    "ScalarSubquery": lambda x, n: x.subquery(n),
    "GetStructField": _struct_field,
    "KnownNotNull": _child,
    "KnownNullable": _child,
    "KnownFloatingPointNormalized": _child,
    "NormalizeNaNAndZero": lambda x, n: f"({x.text(n['child'])} + 0)",  # -0.0 as 0.0
    "And": _both("AND"),
    "Or": _both("OR"),
    "Not": lambda x, n: f"(NOT {x.text(n['child'])})",
    "IsNull": lambda x, n: f"({x.text(n['child'])} IS NULL)",
    "IsNotNull": lambda x, n: f"({x.text(n['child'])} IS NOT NULL)",
    "In": _in,
    "InSet": _in_set,
    "If": _if,
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    **dict.fromkeys(_COMPARED, _comparison),
    "StartsWith": _of_two_strings("starts_with"),
    "EndsWith": _of_two_strings("ends_with"),
    "Contains": _of_two_strings("contains"),
    "Like": _like,
    "Concat": _concat,
    "Substring": _substring,
    "Upper": _letters("upper"),
    "Lower": _letters("lower"),
    "Length": _length,
    **dict.fromkeys(("StringTrim", "StringTrimLeft", "StringTrimRight"), _trim),
    "Year": _date_part("year"),
    "Month": _date_part("month"),
    "DayOfMonth": _date_part("day"),
    "Quarter": _date_part("quarter"),
    "DateAdd": _date_add("+"),
    "DateSub": _date_add("-"),
    "DateDiff": _date_diff,
}
