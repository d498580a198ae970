"""Functions for which Spark's plans hold a call of an object of Java."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.render.expressions import json
from firesteel.render.expressions.strings import strings
from firesteel.render.expressions.texts import all_shared, left_to_spark, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _invoked(x: Expressions, n: Expr) -> str:
    evaluator = n["targetObject"]["value"] if n["targetObject"].cls == "Literal" else None
    rule = _EVALUATORS.get(evaluator.cls) if isinstance(evaluator, Expr) else None
    if rule is None or not isinstance(evaluator, Expr):
        raise Unsupported(f"{said_function(n)} is not taken over")
    return rule(x, evaluator, n["arguments"])


_PLAIN = r"[A-Za-z0-9_.~!*+,;:=@/-]|%[0-9A-Fa-f]{2}"
_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_USER = r"(?:[A-Za-z0-9_.-]+(?::[A-Za-z0-9_.-]*)?@)?"
_HOST = rf"(?:(?:{_LABEL.replace('[A-Za-z]', '[A-Za-z0-9]', 1)}\.)*{_LABEL}|[0-9]{{1,2}}(?:\.[0-9]{{1,2}}){{3}})"
_PORT = "(?::[0-9]{1,5})?"
_URL = (
    "[A-Za-z][A-Za-z0-9+.-]*",
    "://",
    _USER,
    _HOST,
    _PORT,
    f"(?:/(?:{_PLAIN})*)?",
    rf"(?:\?(?:{_PLAIN}|[?&])*)?",
    f"(?:#(?:{_PLAIN}|[?&])*)?",
)
_PARTS = {
    "PROTOCOL": (0, 1),
    "USERINFO": (2, 3),
    "HOST": (3, 4),
    "AUTHORITY": (2, 5),
    "PATH": (5, 6),
    "FILE": (5, 7),
    "QUERY": (6, 7),
    "REF": (7, 8),
}
"""Which pieces of an address each part is."""


def _part_of_url(x: Expressions, evaluator: Expr, arguments: list[Expr]) -> str:
    """Of addresses in a plain form; null for an unknown part."""
    strings(*arguments)
    named, *keys = arguments[1:]
    names = [str(named["value"])] if named.cls == "Literal" else ["QUERY"] if keys else list(_PARTS)
    if names[0] not in _PARTS or (keys and names[0] != "QUERY"):
        raise Unsupported(f"the part {names[0]} of an address is not taken over")
    other = left_to_spark("an address of another form", "string")

    def of(t: str, name: str, *key: str) -> str:
        null = " OR ".join(f"{one} IS NULL" for one in (t, name, *key))
        known = [f"regexp_full_match({t}, '{''.join(_URL)}')"]
        known += [f"regexp_full_match({one}, '[A-Za-z0-9_-]+')" for one in key]
        parts = " ".join(f"WHEN '{one}' THEN {_found(t, one, *key)}" for one in names)
        return f"(CASE WHEN {null} THEN NULL WHEN {' AND '.join(known)} THEN CASE {name} {parts} END ELSE {other} END)"

    return all_shared(x.texts(arguments), of)


def _found(url: str, name: str, key: str = "") -> str:
    first, end = _PARTS[name]
    form = "".join((*_URL[:first], "(", *_URL[first:end], ")", *_URL[end:]))
    part = f"regexp_extract({url}, '{form}', 1)"
    if name in ("QUERY", "REF"):  # with the mark before it
        part = f"substr(nullif({part}, ''), 2)"
    if name == "USERINFO":
        part = f"nullif(rtrim({part}, '@'), '')"
    place = f"'(?:^|&)' || {key} || '="
    value = f"(CASE WHEN regexp_matches({{0}}, {place}') THEN regexp_extract({{0}}, {place}([^&]*)', 1) END)"
    return once(part, value.format) if key else part


_EVALUATORS: dict[str, Callable[[Expressions, Expr, list[Expr]], str]] = {
    "StructsToJsonEvaluator": lambda x, evaluator, arguments: json.written(x, evaluator, arguments[0]),
    "ParseUrlEvaluator": _part_of_url,
}
RULES = {"Invoke": _invoked}
