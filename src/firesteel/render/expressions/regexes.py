"""Regular expressions in which Java and the engine agree, on texts of one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.render.expressions.strings import strings
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_CLASS = r"\[\^?(?:[\w .,:;@#%&=<>~'\"/+*?()|$-]|\\[dws.\\/-])+\]"
_PIECE = rf"(?:[\w ,:;@#%&=<>~'\"!/.-]|\\[dwsDWS.+*?()|\\/-]|{_CLASS}|\((?:\?:)?|\)|\|)(?:[*+?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})?\??"
_PLAIN = re.compile(rf"\^?(?:{_PIECE})*\$?", re.ASCII)
"""Patterns in which Java and the engine agree on texts of one line: letters, classes, groups, greedy and lazy repetition."""


def plain_regex(node: Expr) -> tuple[str, re.Pattern[str]]:
    """The text of a constant pattern, and what Python makes of it."""
    pattern = str(constant(node, "a regular expression"))
    if not is_plain(pattern):
        raise Unsupported("this regular expression is not taken over")
    return literal(pattern, "string"), re.compile(pattern, re.ASCII)


def is_plain(pattern: str) -> bool:
    """True if Java, the engine and Arrow (RE2 both) find the same in texts of one line."""
    try:
        known = re.compile(pattern, re.ASCII) if _PLAIN.fullmatch(pattern) else None
    except re.error:
        known = None
    return (
        known is not None
        and re.search(r"(?<!\\)\(\?(?!:)", pattern) is None
        and not any(odd in pattern for odd in ("[[", "&&", "--", "(*", "|*"))
        and not _repeats_nothing(pattern)
    )


def _repeats_nothing(pattern: str) -> bool:
    """Of a group that matches the empty text several times, engines keep different ones."""
    begins: list[int] = []
    for part in re.finditer(rf"\\.|{_CLASS}|[()]", pattern):
        if part[0] == "(":
            begins.append(part.start())
        elif part[0] == ")":
            group = pattern[begins.pop() : part.end()]
            if pattern[part.end() : part.end() + 1] in ("*", "+", "{") and re.fullmatch(group, "", re.ASCII):
                return True
    return False


def on_one_line(text: str, found: Callable[[str], str], kind: Any) -> str:
    """Lines, with the ends that Java knows, are left to Spark."""
    other = left_to_spark("a regular expression on lines", kind)
    plain = r"NOT regexp_matches({0}, '[\n\r\x0b\f\x{{85}}\x{{2028}}\x{{2029}}]')"
    return once(text, lambda t: f"(CASE WHEN {t} IS NULL OR {plain.format(t)} THEN {found(t)} ELSE {other} END)")


def _matches(x: Expressions, n: Expr) -> str:
    strings(n["left"])
    pattern, _ = plain_regex(n["right"])
    return on_one_line(x.text(n["left"]), lambda t: f"regexp_matches({t}, {pattern})", "boolean")


def _extract(x: Expressions, n: Expr) -> str:
    strings(n["subject"])
    (pattern, known), group = plain_regex(n["regexp"]), constant(n["idx"], "a group")
    if not isinstance(group, int) or not 0 <= group <= known.groups:
        raise Unsupported("this group of a regular expression is not taken over")
    return on_one_line(x.text(n["subject"]), lambda t: f"regexp_extract({t}, {pattern}, {group})", "string")


def _replace(x: Expressions, n: Expr) -> str:
    """Each place. A pattern that matches an empty text would find other places in Java."""
    strings(n["subject"])
    (pattern, known), new = plain_regex(n["regexp"]), str(constant(n["rep"], "a replacement"))
    if constant(n["pos"], "a place to begin") != 1 or known.search(""):
        raise Unsupported("a regular expression of this kind is not taken over")
    groups = [int(group) for group in re.findall(r"\$(\d)", new)]
    if re.search(r"\\|\$(?!\d)|\$\d\d", new) or any(group > known.groups for group in groups):
        raise Unsupported("this replacement is not taken over")
    by = literal(re.sub(r"\$(\d)", r"\\\1", new), "string")
    return on_one_line(x.text(n["subject"]), lambda t: f"regexp_replace({t}, {pattern}, {by}, 'g')", "string")


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "RLike": _matches,
    "RegExpExtract": _extract,
    "RegExpReplace": _replace,
}
