"""Strings, by code points. A value for which Java and the engine differ ends the fragment: case beyond the letters known to
be alike, lines in regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.sql.expressions.texts import left_to_spark, literal
from firesteel.sql.expressions.types import is_text, said
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.expressions.translator import Expressions


def _strings(*nodes: Node) -> None:
    for node in nodes:
        if not is_text(node.type):
            raise Unsupported(f"strings of type {said(node.type)} are not taken over")


def _constant(node: Node, what: str) -> str | int:
    """Raises Unsupported where it is none, or null."""
    if node.cls != "Literal" or node["value"] is None or not isinstance(node["value"], str | int):
        raise Unsupported(f"{what} that is no constant is not taken over")
    return node["value"]


def _of_two_strings(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        _strings(n["left"], n["right"])
        return f"{function}({x.text(n['left'])}, {x.text(n['right'])})"

    return rule


def _like(x: Expressions, n: Node) -> str:
    _strings(n["left"], n["right"])
    pattern, escape = str(_constant(n["right"], "LIKE with a pattern")), n["escapeChar"]
    if not isinstance(escape, str) or re.sub(f"{re.escape(escape)}[%_{re.escape(escape)}]", "", pattern).count(escape):
        raise Unsupported("LIKE with this escape is not taken over")
    ending = f" ESCAPE {literal(escape, 'string')}" if escape in pattern else ""
    return f"({x.text(n['left'])} LIKE {literal(pattern, 'string')}{ending})"


def _concat(x: Expressions, n: Node) -> str:
    _strings(*n["children"])
    return "(" + " || ".join(x.texts(n["children"])) + ")"


def _joined(x: Expressions, n: Node) -> str:
    _strings(*n["children"])
    return f"concat_ws({', '.join(x.texts(n['children']))})"


def _substring(x: Expressions, n: Node) -> str:
    """Spark counts from 1, or from the end; 0 is 1. A place before the text's begin takes from the length."""
    _strings(n["str"])
    at, size = (int(_constant(n[field], "substring with a place")) for field in ("pos", "len"))
    text, size = x.text(n["str"]), min(max(size, 0), 1 << 30)
    if at >= 0:
        return f"substr({text}, {max(at, 1)}, {size})"
    begin = f"length({text}) - {-at}"
    return f"substr({text}, greatest({begin}, 0) + 1, greatest({size} + least({begin}, 0), 0))"


_ALIKE = {
    "upper": r"[\x{0}-\x{DE}\x{E0}-\x{148}\x{14A}-\x{19A}\x{19C}-\x{1EF}\x{1F1}-\x{263}\x{265}-\x{344}\x{370}-\x{38F}\x{391}-\x{3AF}\x{3B1}-\x{500}]*",
    "lower": r"[\x{0}-\x{12F}\x{131}-\x{3A2}\x{3A4}-\x{500}]*",
}
"""Texts whose case Java and the engine change alike: no ß, İ or final sigma, no letters that become two."""


def _letters(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        _strings(n["child"])
        text = x.text(n["child"])
        known = f"{text} IS NULL OR strlen({text}) = length({text}) OR regexp_full_match({text}, '{_ALIKE[function]}')"
        return f"(CASE WHEN {known} THEN {function}({text}) ELSE {left_to_spark('the case of these letters', 'string')} END)"

    return rule


def _length(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        _strings(n["child"])
        return f"CAST({function}({x.text(n['child'])}) AS INTEGER)"

    return rule


def _trim(x: Expressions, n: Node) -> str:
    if n["trimStr"] is not None:
        raise Unsupported("trim of given characters is not taken over")
    _strings(n["srcStr"])
    function = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}[n.cls]
    return f"{function}({x.text(n['srcStr'])}, ' ')"


def _place(x: Expressions, n: Node) -> str:
    """1 for the first code point, 0 where there is none."""
    if n.cls == "StringLocate" and _constant(n["start"], "locate with a start") != 1:
        raise Unsupported("locate from this place is not taken over")
    _strings(n["str"], n["substr"])
    text, part = x.text(n["str"]), x.text(n["substr"])
    return f"CAST(CASE WHEN {part} = '' AND {text} IS NOT NULL THEN 1 ELSE instr({text}, {part}) END AS INTEGER)"


def _replace(x: Expressions, n: Node) -> str:
    _strings(n["srcExpr"], n["searchExpr"], n["replaceExpr"])
    if _constant(n["searchExpr"], "replace of a text") == "":
        raise Unsupported("replace of an empty text is not taken over")
    return f"replace({x.text(n['srcExpr'])}, {x.text(n['searchExpr'])}, {x.text(n['replaceExpr'])})"


def _pad(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        size, pad = int(_constant(n["len"], "a padded length")), str(_constant(n["pad"], "padding"))
        _strings(n["str"])
        if not 0 <= size <= 10_000 or not pad:
            raise Unsupported("padding of this length is not taken over")
        return f"{function}({x.text(n['str'])}, {size}, {literal(pad, 'string')})"

    return rule


def _repeat(x: Expressions, n: Node) -> str:
    _strings(n["str"])
    times = int(_constant(n["times"], "repeat with a number"))
    if not 0 <= times <= 1000:
        raise Unsupported("this many repetitions are not taken over")
    return f"repeat({x.text(n['str'])}, {times})"


# --- regular expressions -----------------------------------------------------------------------------------------------

_CLASS = r"\[\^?(?:[\w .,:;@#%&=<>~'\"/+*?()|$-]|\\[dw.\\/-])+\]"
_PIECE = rf"(?:[\w ,:;@#%&=<>~'\"!/.-]|\\[dwDW.+*?()|\\/-]|{_CLASS}|\((?:\?:)?|\)|\|)(?:[*+?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})?\??"
_PLAIN = re.compile(rf"\^?(?:{_PIECE})*\$?", re.ASCII)
"""Patterns in which Java and the engine agree on texts of one line in ASCII: letters, classes, groups, greedy and lazy repetition."""


def _regex(pattern: str) -> str:
    if (
        not _PLAIN.fullmatch(pattern)
        or "[[" in pattern
        or "&&" in pattern
        or "--" in pattern
        or "(*" in pattern
        or "|*" in pattern
    ):
        raise Unsupported("this regular expression is not taken over")
    return literal(pattern, "string")


def _on_plain_lines(text: str, found: str, kind: str) -> str:
    other = left_to_spark("a regular expression on lines or beyond ASCII", kind)
    plain = f"{text} IS NULL OR (strlen({text}) = length({text}) AND NOT regexp_matches({text}, '[\\n\\r\\x0b\\f]'))"
    return f"(CASE WHEN {plain} THEN {found} ELSE {other} END)"


def _matches(x: Expressions, n: Node) -> str:
    _strings(n["left"])
    text, pattern = x.text(n["left"]), _regex(str(_constant(n["right"], "a regular expression")))
    return _on_plain_lines(text, f"regexp_matches({text}, {pattern})", "boolean")


def _extract(x: Expressions, n: Node) -> str:
    _strings(n["subject"])
    text, pattern, group = (
        x.text(n["subject"]),
        str(_constant(n["regexp"], "a regular expression")),
        _constant(n["idx"], "a group"),
    )
    if not isinstance(group, int) or not 0 <= group <= pattern.count("("):
        raise Unsupported("this group of a regular expression is not taken over")
    return _on_plain_lines(text, f"regexp_extract({text}, {_regex(pattern)}, {group})", "string")


RULES = {
    "StartsWith": _of_two_strings("starts_with"),
    "EndsWith": _of_two_strings("ends_with"),
    "Contains": _of_two_strings("contains"),
    "Like": _like,
    "Concat": _concat,
    "ConcatWs": _joined,
    "Substring": _substring,
    "Upper": _letters("upper"),
    "Lower": _letters("lower"),
    "Length": _length("length"),
    "OctetLength": _length("strlen"),
    "StringInstr": _place,
    "StringLocate": _place,
    "StringReplace": _replace,
    "StringLPad": _pad("lpad"),
    "StringRPad": _pad("rpad"),
    "StringRepeat": _repeat,
    "RLike": _matches,
    "RegExpExtract": _extract,
    **dict.fromkeys(("StringTrim", "StringTrimLeft", "StringTrimRight"), _trim),
}
