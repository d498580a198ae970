"""Strings, by code points. A value for which Java and the engine differ ends the fragment: case beyond the letters known to
be alike, and what the engine takes for one letter of several code points."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, element_of, is_text, said
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def strings(*nodes: Expr) -> None:
    """Raises Unsupported for other types."""
    for node in nodes:
        if not is_text(node.type):
            raise Unsupported(f"strings of type {said(node.type)} are not taken over")


def _of_two_strings(function: str, x: Expressions, n: Expr) -> str:
    strings(n["left"], n["right"])
    return f"{function}({x.text(n['left'])}, {x.text(n['right'])})"


def _like(x: Expressions, n: Expr) -> str:
    strings(n["left"], n["right"])
    escape = n["escapeChar"]
    if n["right"].cls != "Literal" and isinstance(escape, str):
        other = left_to_spark("LIKE with an escape", "boolean")
        has_escape = f"contains({{0}}, {literal(escape, 'string')})"
        text = x.text(n["left"])
        return once(
            x.text(n["right"]), lambda p: f"(CASE WHEN {has_escape.format(p)} THEN {other} ELSE {text} LIKE {p} END)"
        )
    return _alike(x.text(n["left"]), str(constant(n["right"], "LIKE with a pattern")), escape)


def _alike(text: str, pattern: str | None, escape: Any = "\\") -> str:
    if pattern is None:
        return "CAST(NULL AS BOOLEAN)"
    if not isinstance(escape, str) or re.sub(f"{re.escape(escape)}[%_{re.escape(escape)}]", "", pattern).count(escape):
        raise Unsupported("LIKE with this escape is not taken over")
    ending = f" ESCAPE {literal(escape, 'string')}" if escape in pattern else ""
    return f"({text} LIKE {literal(pattern, 'string')}{ending})"


def _like_several(join: str, before: str, x: Expressions, n: Expr) -> str:
    strings(n["child"])
    return once(x.text(n["child"]), lambda t: f"({join.join(before + _alike(t, one) for one in n['patterns'])})")


def _concat(x: Expressions, n: Expr) -> str:
    strings(*n["children"])
    return "(" + " || ".join(x.texts(n["children"])) + ")"


def _joined(x: Expressions, n: Expr) -> str:
    """Texts, and the texts of arrays, without nulls."""
    by, *parts = n["children"]
    if not any(element_of(one.type) for one in parts):
        strings(*n["children"])
        return f"concat_ws({', '.join(x.texts(n['children']))})"
    strings(by, *(one for one in parts if not is_text(element_of(one.type))))
    separator = literal(constant(by, "a separator"), "string")
    lists = [
        f"[{x.text(one)}]" if is_text(one.type) else f"coalesce({x.text(one)}, CAST([] AS VARCHAR[]))" for one in parts
    ]
    return f"coalesce(array_to_string({' || '.join(lists)}, {separator}), '')"


def _substring(x: Expressions, n: Expr) -> str:
    """Spark counts from 1, or from the end; 0 is 1. A place before the text's begin takes from the length."""
    strings(n["str"])
    at, size = n["pos"], n["len"]
    if at.cls == "Literal" and size.cls == "Literal" and int(constant(at, "a place")) >= 0:
        return f"substr({x.text(n['str'])}, {max(at['value'], 1)}, {max(int(constant(size, 'a length')), 0)})"

    def of(t: str, p: str, s: str) -> str:
        begin = f"(CASE WHEN {p} > 0 THEN {p} - 1 WHEN {p} < 0 THEN length({t}) + {p} ELSE 0 END)"
        part = once(
            begin, lambda b: f"substr({t}, greatest({b}, 0) + 1, least(greatest({s} + least({b}, 0), 0), {1 << 31}))"
        )
        return f"(CASE WHEN {t} IS NULL OR {p} IS NULL OR {s} IS NULL THEN NULL ELSE {part} END)"

    text, *numbers = x.text(n["str"]), *(f"CAST({number} AS BIGINT)" for number in x.texts([at, size]))
    return once(text, lambda t: once(numbers[0], lambda p: once(numbers[1], lambda s: of(t, p, s))))


ALIKE = {
    "upper": r"[\x{0}-\x{DE}\x{E0}-\x{148}\x{14A}-\x{19A}\x{19C}-\x{1EF}\x{1F1}-\x{263}\x{265}-\x{344}\x{370}-\x{38F}\x{391}-\x{3AF}\x{3B1}-\x{500}]*",
    "lower": r"[\x{0}-\x{12F}\x{131}-\x{3A2}\x{3A4}-\x{500}]*",
}
"""Texts whose case Java and the engine change alike: no ß, İ or final sigma, no letters that become two."""


def _letters(function: str, x: Expressions, n: Expr) -> str:
    strings(n["child"])
    return _where(
        x.text(n["child"]),
        f"strlen({{0}}) = length({{0}}) OR regexp_full_match({{0}}, '{ALIKE[function].replace('{', '{{').replace('}', '}}')}')",
        lambda t: f"{function}({t})",
        "the case of these letters",
    )


def _where(text: str, known: str, found: Callable[[str], str], why: str) -> str:
    """The text that is found where the text, ``{0}``, is of a known form; others are left to Spark."""
    other = left_to_spark(why, "string")
    return once(text, lambda t: f"(CASE WHEN {t} IS NULL OR {known.format(t)} THEN {found(t)} ELSE {other} END)")


_ASCII = "strlen({0}) = length({0})"


def _capitals(x: Expressions, n: Expr) -> str:
    """Of each word between blanks the first letter."""
    strings(n["child"])
    word = "lambda w: upper(substr(w, 1, 1)) || lower(substr(w, 2))"
    return _where(
        x.text(n["child"]),
        "regexp_full_match({0}, '[A-Za-z0-9 ]*')",
        lambda t: f"array_to_string(list_transform(string_split({t}, ' '), {word}), ' ')",
        "words of other letters",
    )


def _reversed(x: Expressions, n: Expr) -> str:
    strings(n["child"])
    return _where(x.text(n["child"]), _ASCII, lambda t: f"reverse({t})", "letters beyond ASCII")


_LETTERS = literal("".join(map(chr, range(ord(" "), ord("~") + 1))), "string")


def _distance(x: Expressions, n: Expr) -> str:
    """The engine counts bytes: letters beyond ASCII become other ones, of a byte each, in both texts the same."""
    strings(n["left"], n["right"])
    limit = None if n["threshold"] is None else int(constant(n["threshold"], "a distance up to a limit"))
    many = left_to_spark("a distance of texts of more than 95 letters", "string")

    def plain(a: str, b: str) -> str:
        letters = f"list_distinct(string_split({a} || {b}, ''))"
        known = once(letters, lambda of: f"CASE WHEN len({of}) > 95 THEN {many} ELSE array_to_string({of}, '') END")
        return once(known, lambda of: f"levenshtein({', '.join(f'translate({t}, {of}, {_LETTERS})' for t in (a, b))})")

    def of(a: str, b: str) -> str:
        is_ascii = f"strlen({a}) = length({a}) AND strlen({b}) = length({b})"
        empty = f"{a} IS NULL OR {b} IS NULL"
        distance = f"CASE WHEN {empty} THEN NULL WHEN {is_ascii} THEN levenshtein({a}, {b}) ELSE {plain(a, b)} END"
        return (
            once(distance, lambda d: f"CASE WHEN {d} > {limit} THEN -1 ELSE {d} END") if limit is not None else distance
        )

    return once(x.text(n["left"]), lambda a: f"CAST({once(x.text(n['right']), lambda b: of(a, b))} AS INTEGER)")


def _length(function: str, x: Expressions, n: Expr) -> str:
    strings(n["child"])
    return f"CAST({function}({x.text(n['child'])}) AS INTEGER)"


def _trim(x: Expressions, n: Expr) -> str:
    """Of blanks, or of the characters of a text."""
    strings(n["srcStr"])
    these = " " if n["trimStr"] is None else str(constant(n["trimStr"], "trim of characters"))
    if not these.isascii():
        raise Unsupported("trim of characters beyond ASCII is not taken over")
    function = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}[n.cls]
    return f"{function}({x.text(n['srcStr'])}, {literal(these, 'string')})"


def _place(x: Expressions, n: Expr) -> str:
    """1 for the first code point, 0 where there is none."""
    strings(n["str"], n["substr"])
    start = int(constant(n["start"], "locate with a start")) if n.cls == "StringLocate" else 1
    text, part = x.text(n["str"]), x.text(n["substr"])
    if start != 1:
        if start < 1 or n["substr"].cls != "Literal" or not n["substr"]["value"]:
            raise Unsupported("locate from this place is not taken over")
        found = f"instr(substr({text}, {start}), {part})"
        return once(found, lambda i: f"CAST(CASE WHEN {i} > 0 THEN {i} + {start - 1} ELSE {i} END AS INTEGER)")
    return f"CAST(CASE WHEN {part} = '' AND {text} IS NOT NULL THEN 1 ELSE instr({text}, {part}) END AS INTEGER)"


def _translated(x: Expressions, n: Expr) -> str:
    strings(n["srcExpr"])
    these, others = (str(constant(n[name], "translate")) for name in ("matchingExpr", "replaceExpr"))
    if len(set(these)) < len(these) or not (these + others).isascii():
        raise Unsupported("translate of these characters is not taken over")
    return f"translate({x.text(n['srcExpr'])}, {literal(these, 'string')}, {literal(others, 'string')})"


def _overlay(x: Expressions, n: Expr) -> str:
    strings(n["input"], n["replace"])
    at, size = (int(constant(n[name], "overlay")) for name in ("pos", "len"))
    if at < 1:
        raise Unsupported("overlay at this place is not taken over")

    def of(t: str, r: str) -> str:
        rest = f"{at} + {size}" if size >= 0 else f"{at} + length({r})"
        return f"(substr({t}, 1, {at - 1}) || {r} || substr({t}, {rest}))"

    return once(x.text(n["input"]), lambda t: once(x.text(n["replace"]), lambda r: of(t, r)))


# --- parts ----------------------------------------------------------------------------------------------------------------


def _separator(node: Expr) -> str:
    """A constant that cannot overlap itself."""
    text = str(constant(node, "a separator"))
    if not text or any(text[:i] == text[-i:] for i in range(1, len(text))):
        raise Unsupported("this separator is not taken over")
    return text


def _up_to(x: Expressions, n: Expr) -> str:
    """The parts before a separator's n-th place, or behind it, from the end."""
    strings(n["strExpr"])
    by, count = literal(_separator(n["delimExpr"]), "string"), int(constant(n["countExpr"], "a number of parts"))
    if count == 0 or abs(count) > 1 << 30:
        raise Unsupported("this number of parts is not taken over")
    parts = f"string_split({x.text(n['strExpr'])}, {by})"
    return f"array_to_string({parts}[{f'1:{count}' if count > 0 else f'{count}:'}], {by})"


def part(x: Expressions, n: Expr) -> str:
    """One of the parts of a text; behind the last an empty one."""
    whole, place, other = n["left"], int(constant(n["right"], "a part's number")), n["defaultValueOutOfBound"]
    is_empty = isinstance(other, Expr) and other.cls == "Literal" and other["value"] == ""
    if whole.cls != "StringSplitSQL" or not is_empty or place == 0:
        raise Unsupported("this part of a text is not taken over")
    strings(whole["str"])
    return f"split_part({x.text(whole['str'])}, {literal(_separator(whole['delimiter']), 'string')}, {place})"


# --- texts of numbers -----------------------------------------------------------------------------------------------------


def _replace(x: Expressions, n: Expr) -> str:
    strings(n["srcExpr"], n["searchExpr"], n["replaceExpr"])
    if constant(n["searchExpr"], "replace of a text") == "":
        raise Unsupported("replace of an empty text is not taken over")
    return f"replace({x.text(n['srcExpr'])}, {x.text(n['searchExpr'])}, {x.text(n['replaceExpr'])})"


def _pad(function: str, x: Expressions, n: Expr) -> str:
    size, pad = int(constant(n["len"], "a padded length")), str(constant(n["pad"], "padding"))
    strings(n["str"])
    if not 0 <= size <= 10_000 or not pad:
        raise Unsupported("padding of this length is not taken over")
    return f"{function}({x.text(n['str'])}, {size}, {literal(pad, 'string')})"


def _repeat(x: Expressions, n: Expr) -> str:
    strings(n["str"])
    times = int(constant(n["times"], "repeat with a number"))
    if not 0 <= times <= 1000:
        raise Unsupported("this many repetitions are not taken over")
    return f"repeat({x.text(n['str'])}, {times})"


def _letter(x: Expressions, n: Expr) -> str:
    """Of the lowest eight bits."""
    other = left_to_spark("a NUL", "string")
    return once(
        x.text(n["child"]),
        lambda i: (
            f"(CASE WHEN {i} < 0 THEN '' WHEN {i} & 255 = 0 THEN {other} ELSE chr(CAST({i} & 255 AS INTEGER)) END)"
        ),
    )


def _spaces(x: Expressions, n: Expr) -> str:
    other = left_to_spark("this many blanks", "integer")
    return once(
        x.text(n["child"]),
        lambda i: f"repeat(' ', CASE WHEN {i} <= 0 THEN 0 WHEN {i} <= 10000 OR {i} IS NULL THEN {i} ELSE {other} END)",
    )


_UPPER, _DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
_OTHERS = "".join(chr(i) for i in range(1, 128) if not chr(i).isalnum())
_SOUNDS = "01230127022455012623017202"
"""Of the letters; 7: one that is not heard at all."""


def _sound(x: Expressions, n: Expr) -> str:
    strings(n["child"])
    codes = f"translate({{0}}, '{_UPPER}{_UPPER.lower()}', '{_SOUNDS * 2}')"
    # what is no letter, digits among them, parts equal sounds; so do vowels
    whole = "regexp_replace({0}, '[^A-Za-z]', '0', 'g')"

    def of(t: str) -> str:
        text = codes.format(whole.format(t))
        text = f"(substr({text}, 1, 1) || replace(substr({text}, 2), '7', ''))"
        for code in "123456":
            text = f"regexp_replace({text}, '{code}+', '{code}', 'g')"
        heard = f"rpad(substr(replace(substr({text}, 2), '0', ''), 1, 3), 3, '0')"
        return f"(CASE WHEN regexp_matches({t}, '^[A-Za-z]') THEN upper(substr({t}, 1, 1)) || {heard} ELSE {t} END)"

    return once(x.text(n["child"]), of)


def _masked(x: Expressions, n: Expr) -> str:
    """Each kind of characters as one."""
    strings(n["input"])
    these = others = ""
    kinds = (("upperChar", _UPPER), ("lowerChar", _UPPER.lower()), ("digitChar", _DIGITS), ("otherChar", _OTHERS))
    for name, letters in kinds:
        if (by := _character(n[name])) is not None:
            these, others = these + letters, others + by * len(letters)
    if not these:
        raise Unsupported("a mask of no character is not taken over")
    known = f"{_ASCII} AND NOT contains({{0}}, chr(0))"
    by = f"{literal(these, 'string')}, {literal(others, 'string')}"
    return _where(x.text(n["input"]), known, lambda t: f"translate({t}, {by})", "letters beyond ASCII")


def _character(node: Expr | None) -> str | None:
    value = None if node is None else node["value"] if node.cls == "Literal" else ""
    if value is not None and (not isinstance(value, str) or len(value) != 1):
        raise Unsupported("a mask by other than single characters is not taken over")
    return value


def _formatted(x: Expressions, n: Expr) -> str:
    """With commas between thousands. Java rounds halves by rules of its own."""
    places, kind = n["d"], n["x"].type
    if kind not in ("double", *INTEGERS) or places.cls != "Literal" or places["value"] not in range(16):
        raise Unsupported("format_number of these values is not taken over")
    number = x.text(n["x"])
    if kind != "double":
        zeros = f".{'0' * places['value']}" if places["value"] else ""
        return f"(format('{{:,d}}', CAST({number} AS BIGINT)) || '{zeros}')"
    other = left_to_spark("a number beyond its digits", "string")
    form, half = f"{{:,.{places['value']}f}}", f"e|\\.[0-9]{{{places['value']}}}5$"

    def of(v: str) -> str:
        known = f"abs({v}) < 1e{15 - places['value']} AND NOT regexp_matches(CAST({v} AS VARCHAR), '{half}')"
        return f"(CASE WHEN {v} IS NULL OR ({known}) THEN format('{form}', {v}) ELSE {other} END)"

    return once(number, of)


def _printed(x: Expressions, n: Expr) -> str:
    """``format_string`` by ``%s`` and ``%d`` alone."""
    form, *values = n["children"]
    pieces = re.split("(%[sd%])", str(constant(form, "a format")))
    texts: list[str] = []
    for piece in filter(None, pieces):
        if piece in ("%s", "%d") and values:
            value = values.pop(0)
            if not (value.type in INTEGERS or (piece == "%s" and (is_text(value.type) or value.type == "boolean"))):
                raise Unsupported(f"{piece} of {said(value.type)} is not taken over")
            texts.append(f"coalesce(CAST({x.text(value)} AS VARCHAR), 'null')")
        elif piece != "%%" and "%" in piece:
            raise Unsupported("this format is not taken over")
        else:
            texts.append(literal("%" if piece == "%%" else piece, "string"))
    return f"({' || '.join(texts or [literal('', 'string')])})"


def _nth(x: Expressions, n: Expr) -> str:
    """One of the texts, counted from 1."""
    at, *texts = n["children"]
    strings(*texts)
    outside = left_to_spark("a place beyond the texts", "string") if n["failOnError"] is not False else "NULL"
    whens = " ".join(f"WHEN {i} THEN {text}" for i, text in enumerate(x.texts(texts), 1))
    return once(x.text(at), lambda i: f"(CASE WHEN {i} IS NOT NULL THEN CASE {i} {whens} ELSE {outside} END END)")


def _place_in_list(x: Expressions, n: Expr) -> str:
    """Among texts between commas, counted from 1."""
    strings(n["left"], n["right"])

    def of(t: str, all: str) -> str:
        place = (
            f"CASE WHEN contains({t}, ',') THEN 0 ELSE coalesce(list_position(string_split({all}, ','), {t}), 0) END"
        )
        return f"(CASE WHEN {t} IS NOT NULL AND {all} IS NOT NULL THEN CAST({place} AS INTEGER) END)"

    return once(x.text(n["left"]), lambda t: once(x.text(n["right"]), lambda all: of(t, all)))


def _map_of_text(x: Expressions, n: Expr) -> str:
    """Keys that are there twice end the fragment."""
    strings(n["text"])
    pairs, between = (literal(plain_separator(n[name]), "string") for name in ("pairDelim", "keyValueDelim"))
    place = f"instr(e, {between})"
    keys = f"CASE WHEN {place} > 0 THEN substr(e, 1, {place} - 1) ELSE e END"
    values = f"CASE WHEN {place} > 0 THEN substr(e, {place} + length({between})) END"

    def of(t: str) -> str:
        parts = f"string_split({t}, {pairs})"
        made = f"MAP(list_transform({parts}, lambda e: {keys}), list_transform({parts}, lambda e: {values}))"
        return f"(CASE WHEN {t} IS NOT NULL THEN CAST({made} AS MAP(VARCHAR, VARCHAR)) END)"

    return once(x.text(n["text"]), of)


_META = r".*+?()[]{}^$|\\"


def plain_separator(node: Expr) -> str:
    """The text that is the only one which a constant regular expression matches. Raises Unsupported where there is none."""
    pattern = str(constant(node, "a separator"))
    plain = re.sub(rf"\\([{re.escape(_META)}])", r"\1", pattern)
    rest = re.sub(rf"\\[{re.escape(_META)}]", "", pattern)
    if not plain or re.search(rf"[{re.escape(_META)}]", rest):
        raise Unsupported("this separator is not taken over")
    return plain


RULES = {
    "SoundEx": _sound,
    "Mask": _masked,
    "FormatNumber": _formatted,
    "FormatString": _printed,
    "Elt": _nth,
    "FindInSet": _place_in_list,
    "StringToMap": _map_of_text,
    "StartsWith": partial(_of_two_strings, "starts_with"),
    "EndsWith": partial(_of_two_strings, "ends_with"),
    "Contains": partial(_of_two_strings, "contains"),
    "Like": _like,
    "LikeAny": partial(_like_several, " OR ", ""),
    "LikeAll": partial(_like_several, " AND ", ""),
    "NotLikeAny": partial(_like_several, " OR ", "NOT "),
    "NotLikeAll": partial(_like_several, " AND ", "NOT "),
    "Concat": _concat,
    "ConcatWs": _joined,
    "Substring": _substring,
    "SubstringIndex": _up_to,
    "Upper": partial(_letters, "upper"),
    "Lower": partial(_letters, "lower"),
    "InitCap": _capitals,
    "Reverse": _reversed,
    "Levenshtein": _distance,
    "Length": partial(_length, "length"),
    "OctetLength": partial(_length, "strlen"),
    "BitLength": partial(_length, "8 * strlen"),
    "Ascii": partial(_length, "ascii"),
    "Chr": _letter,
    "StringSpace": _spaces,
    "StringInstr": _place,
    "StringLocate": _place,
    "StringReplace": _replace,
    "StringTranslate": _translated,
    "Overlay": _overlay,
    "StringLPad": partial(_pad, "lpad"),
    "StringRPad": partial(_pad, "rpad"),
    "StringRepeat": _repeat,
    **dict.fromkeys(("StringTrim", "StringTrimLeft", "StringTrimRight"), _trim),
}
