"""Functions for which Spark's plans hold a call of an object of Java."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.render.expressions import json
from firesteel.render.expressions.strings import strings
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once

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
    """Of addresses in a plain form."""
    url, named, *keys = arguments
    strings(url)
    name = str(constant(named, "a part of an address"))
    key = str(constant(keys[0], "a key of an address")) if keys else ""
    if name not in _PARTS or (keys and (name != "QUERY" or not re.fullmatch(r"[A-Za-z0-9_-]+", key))):
        raise Unsupported(f"the part {name} of an address is not taken over")
    first, end = _PARTS[name]
    form = "".join((*_URL[:first], "(", *_URL[first:end], ")", *_URL[end:]))
    other = left_to_spark("an address of another form", "string")

    def of(t: str) -> str:
        part = f"regexp_extract({t}, {literal(form, 'string')}, 1)"
        if name in ("QUERY", "REF"):  # with the mark before it
            part = f"substr(nullif({part}, ''), 2)"
        if name == "USERINFO":
            part = f"nullif(rtrim({part}, '@'), '')"
        if key:
            part = once(
                part,
                lambda q: (
                    f"(CASE WHEN regexp_matches({q}, '(?:^|&){key}=') THEN regexp_extract({q}, '(?:^|&){key}=([^&]*)', 1) END)"
                ),
            )
        return f"(CASE WHEN {t} IS NULL THEN NULL WHEN regexp_full_match({t}, {literal(form, 'string')}) THEN {part} ELSE {other} END)"

    return once(x.text(url), of)


_EVALUATORS: dict[str, Callable[[Expressions, Expr, list[Expr]], str]] = {
    "StructsToJsonEvaluator": lambda x, evaluator, arguments: json.written(x, evaluator, arguments[0]),
    "ParseUrlEvaluator": _part_of_url,
}
RULES = {"Invoke": _invoked}
