"""Strings, by code points. A value for which Java and the engine differ ends the fragment: case beyond the letters known to
be alike, and what the engine takes for one letter of several code points."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, element_of, is_text, said
from firesteel.render.expressions.texts import all_shared, constant, counted, joined, left_to_spark, literal, once

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
    if n.type != "binary":
        strings(*n["children"])
    return "(" + " || ".join(x.texts(n["children"])) + ")"


def _joined(x: Expressions, n: Expr) -> str:
    """Texts, and the texts of arrays, without nulls."""
    by, *parts = n["children"]
    if not any(element_of(one.type) for one in parts):
        strings(*n["children"])
        return f"concat_ws({', '.join(x.texts(n['children']))})"
    strings(by, *(one for one in parts if not is_text(element_of(one.type))))
    lists = [
        f"[{x.text(one)}]" if is_text(one.type) else f"coalesce({x.text(one)}, CAST([] AS VARCHAR[]))" for one in parts
    ]
    between = x.text(by)
    return f"(CASE WHEN {between} IS NOT NULL THEN {joined(' || '.join(lists), between)} END)"


def _substring(x: Expressions, n: Expr) -> str:
    """Spark counts from 1, or from the end; 0 is 1."""
    at, size = n["pos"], n["len"]
    if n["str"].type == "binary":
        return all_shared(x.texts([n["str"], at, size]), partial(_part_of, _bytes))
    strings(n["str"])
    if at.cls == "Literal" and size.cls == "Literal" and int(constant(at, "a place")) >= 0:
        return f"substr({x.text(n['str'])}, {max(at['value'], 1)}, {max(int(constant(size, 'a length')), 0)})"
    return all_shared(x.texts([n["str"], at, size]), partial(_part_of, _characters))


def _characters(t: str, begin: str, size: str) -> str:
    return f"substr({t}, {begin} + 1, {size})"


def _bytes(t: str, begin: str, size: str) -> str:
    return f"{t}[{begin} + 1 : {begin} + {size}]"


_LENGTHS: dict[Callable[[str, str, str], str], str] = {_characters: "length", _bytes: "octet_length"}


def _part_of(part: Callable[[str, str, str], str], t: str, p: str, s: str) -> str:
    """A place before the begin takes from the length."""
    p, s = f"CAST({p} AS BIGINT)", f"CAST({s} AS BIGINT)"
    begin = f"(CASE WHEN {p} > 0 THEN {p} - 1 WHEN {p} < 0 THEN {_LENGTHS[part]}({t}) + {p} ELSE 0 END)"
    found = once(begin, lambda b: part(t, f"greatest({b}, 0)", f"least(greatest({s} + least({b}, 0), 0), {1 << 31})"))
    return f"(CASE WHEN {t} IS NULL OR {p} IS NULL OR {s} IS NULL THEN NULL ELSE {found} END)"


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
    if n["child"].type == "binary":
        function = {"length": "octet_length"}.get(function, function.replace("strlen", "octet_length"))
    else:
        strings(n["child"])
    return f"CAST({function}({x.text(n['child'])}) AS INTEGER)"


def _trim(x: Expressions, n: Expr) -> str:
    """Of blanks, or of the characters of a text."""
    strings(n["srcStr"])
    function = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}[n.cls]
    return f"{function}({x.text(n['srcStr'])}, {x.text(n['trimStr']) if n['trimStr'] else literal(' ', 'string')})"


def _place(x: Expressions, n: Expr) -> str:
    """1 for the first code point, 0 where there is none."""
    strings(n["str"], n["substr"])
    start = n.get("start")
    if start is None or (start.cls == "Literal" and start["value"] == 1):
        text, part = x.text(n["str"]), x.text(n["substr"])
        return f"CAST(CASE WHEN {part} = '' AND {text} IS NOT NULL THEN 1 ELSE instr({text}, {part}) END AS INTEGER)"

    def of(t: str, p: str, s: str) -> str:
        found = once(f"instr(substr({t}, {s}), {p})", lambda i: f"CASE WHEN {i} > 0 THEN {i} + {s} - 1 ELSE 0 END")
        none = f"WHEN {s} IS NULL THEN 0 WHEN {t} IS NULL OR {p} IS NULL THEN NULL WHEN {s} < 1 THEN 0"
        return f"CAST(CASE {none} WHEN {p} = '' THEN 1 ELSE {found} END AS INTEGER)"

    return all_shared(x.texts([n["str"], n["substr"], start]), of)


def _translated(x: Expressions, n: Expr) -> str:
    strings(n["srcExpr"])
    these, others = (str(constant(n[name], "translate")) for name in ("matchingExpr", "replaceExpr"))
    if len(set(these)) < len(these) or not (these + others).isascii():
        raise Unsupported("translate of these characters is not taken over")
    return f"translate({x.text(n['srcExpr'])}, {literal(these, 'string')}, {literal(others, 'string')})"


def _overlay(x: Expressions, n: Expr) -> str:
    part = _bytes if n["input"].type == "binary" else _characters
    if part is _characters:
        strings(n["input"], n["replace"])
    other = left_to_spark("overlay at this place", n.type)

    def of(t: str, r: str, p: str, s: str) -> str:
        far = f"{p} NOT BETWEEN -{_FAR} AND {_FAR} OR {s} > {_FAR}"
        rest = f"{p} + CASE WHEN {s} < 0 THEN {_LENGTHS[part]}({r}) ELSE {s} END"
        text = f"{_part_of(part, t, '1', f'({p} - 1)')} || {r} || {_part_of(part, t, f'({rest})', str(1 << 31))}"
        return f"(CASE WHEN {far} THEN {other} ELSE {text} END)"

    return all_shared(x.texts(n[name] for name in ("input", "replace", "pos", "len")), of)


_FAR = 1_000_000_000


# --- parts ----------------------------------------------------------------------------------------------------------------


def _up_to(x: Expressions, n: Expr) -> str:
    """The parts before a separator's n-th place, or after it, from the end. Java also finds places that overlap."""
    strings(n["strExpr"], by := n["delimExpr"])
    known = by["value"] if by.cls == "Literal" else None
    if known and any(known[:i] == known[-i:] for i in range(1, len(known))):
        raise Unsupported("this separator is not taken over")
    other = left_to_spark("a separator that overlaps itself", "string")

    def of(t: str, d: str, c: str) -> str:
        parts = f"string_split({t}, {d})"
        kept = f"CASE WHEN {c} > 0 THEN {parts}[1:{c}] ELSE {parts}[{c}:] END"
        overlaps = "false" if known else f"contains(substr({d}, 2), substr({d}, 1, 1))"
        none = f"WHEN {t} IS NULL OR {d} IS NULL OR {c} IS NULL THEN NULL WHEN {d} = '' OR {c} = 0 THEN ''"
        return f"(CASE {none} WHEN {overlaps} OR {c} < -{_FAR} THEN {other} ELSE {joined(kept, d)} END)"

    return all_shared(x.texts(n[name] for name in ("strExpr", "delimExpr", "countExpr")), of)


def part(x: Expressions, n: Expr) -> str:
    """One of the parts of a text; behind the last an empty one."""
    whole, other = n["left"], n["defaultValueOutOfBound"]
    is_empty = isinstance(other, Expr) and other.cls == "Literal" and other["value"] == ""
    if whole.cls != "StringSplitSQL" or not is_empty:
        raise Unsupported("this part of a text is not taken over")
    strings(whole["str"], whole["delimiter"])
    zero = left_to_spark("the part 0 of a text", "string")

    def of(t: str, d: str, i: str) -> str:
        found = f"WHEN {d} <> '' THEN split_part({t}, {d}, {i}) WHEN abs({i}) = 1 THEN {t}"
        known = f"{t} IS NOT NULL AND {d} IS NOT NULL AND {i} IS NOT NULL"
        return f"(CASE WHEN {known} THEN CASE WHEN {i} = 0 THEN {zero} {found} ELSE '' END END)"

    return all_shared(x.texts([whole["str"], whole["delimiter"], n["right"]]), of)


# --- texts of numbers -----------------------------------------------------------------------------------------------------


def _replace(x: Expressions, n: Expr) -> str:
    strings(n["srcExpr"], n["searchExpr"], n["replaceExpr"])
    return f"replace({x.text(n['srcExpr'])}, {x.text(n['searchExpr'])}, {x.text(n['replaceExpr'])})"


def _pad(function: str, x: Expressions, n: Expr) -> str:
    strings(n["str"], n["pad"])
    return padded(function, *x.texts(n[name] for name in ("str", "len", "pad")))


def padded(function: str, text: str, size: str, pad: str) -> str:
    def of(t: str, s: str, p: str) -> str:
        return f"(CASE WHEN {p} = '' THEN substr({t}, 1, {s}) ELSE {function}({t}, {s}, {p}) END)"

    return all_shared([text, counted(size, 10_000, "padding of this length"), pad], of)


def _repeat(x: Expressions, n: Expr) -> str:
    strings(n["str"])
    return f"repeat({x.text(n['str'])}, {counted(x.text(n['times']), 1000, 'this many repetitions')})"


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
    return f"repeat(' ', {counted(x.text(n['child']), 10_000, 'this many blanks')})"


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
        return x.text(n["input"])
    known = f"{_ASCII} AND NOT contains({{0}}, chr(0))"
    by = f"{literal(these, 'string')}, {literal(others, 'string')}"
    return _where(x.text(n["input"]), known, lambda t: f"translate({t}, {by})", "letters beyond ASCII")


def _character(node: Expr | None) -> str | None:
    value = None if node is None else node["value"] if node.cls == "Literal" else ""
    if value is not None and (not isinstance(value, str) or len(value) != 1):
        raise Unsupported("a mask by other than single characters is not taken over")
    return value


def _in_base(x: Expressions, n: Expr) -> str:
    """The digits of a number in another base. Spark computes texts that are not numbers of up to 63 bits."""
    strings(n["numExpr"])
    base, to = (int(constant(n[name], "a base")) for name in ("fromBaseExpr", "toBaseExpr"))
    if not (2 <= base <= 36 and 2 <= to <= 36):
        raise Unsupported("numbers in this base are not taken over")
    digits = (_DIGITS + _UPPER)[:base]
    most = next(i for i in range(64) if base ** (i + 1) > 1 << 63)
    other = left_to_spark("a number of another form", "string")

    def of(t: str) -> str:
        values = f"list_transform(string_split(upper({t}), ''), lambda c: CAST(instr('{digits}', c) - 1 AS BIGINT))"
        number = f"list_reduce({values}, lambda p, q: p * {base} + q)"
        known = f"regexp_full_match({t}, '[{digits}{digits.lower()}]{{1,{most}}}')"
        return f"(CASE WHEN {t} IS NULL THEN NULL WHEN {known} THEN to_base({number}, {to}) ELSE {other} END)"

    return once(x.text(n["numExpr"]), of)


def _formatted(x: Expressions, n: Expr) -> str:
    """With commas between thousands; null of less than no places. Java rounds halves by rules of its own."""
    places, kind = n["d"], n["x"].type
    if kind not in ("double", *INTEGERS) or places.type != "integer":
        raise Unsupported("format_number of these values is not taken over")
    other = left_to_spark("a number beyond its digits", "string")

    def of(v: str, d: str) -> str:
        if kind == "double":
            half = f"regexp_matches(CAST({v} AS VARCHAR), 'e|[.][0-9]{{' || {d} || '}}5$')"
            known, text = (
                f"{d} < 16 AND abs({v}) < pow(10, 15 - {d}) AND NOT {half}",
                f"format('{{:,.' || {d} || 'f}}', {v})",
            )
        else:
            known = f"{d} < 16"
            text = f"format('{{:,d}}', CAST({v} AS BIGINT)) || rpad(CASE WHEN {d} > 0 THEN '.' ELSE '' END, {d} + sign({d}), '0')"
        return f"(CASE WHEN {v} IS NULL OR NOT {d} >= 0 THEN NULL WHEN {known} THEN {text} ELSE {other} END)"

    return all_shared(x.texts([n["x"], places]), of)


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
    other = left_to_spark("a separator that is no plain text", n.type)

    def of(pairs: str, between: str, t: str) -> str:
        place = f"instr(e, {between})"
        keys = f"CASE WHEN {place} > 0 THEN substr(e, 1, {place} - 1) ELSE e END"
        values = f"CASE WHEN {place} > 0 THEN substr(e, {place} + length({between})) END"
        parts = f"string_split({t}, {pairs})"
        made = f"MAP(list_transform({parts}, lambda e: {keys}), list_transform({parts}, lambda e: {values}))"
        known = " AND ".join(["true", *(plain_text(one) for one in (pairs, between) if not one.startswith("'"))])
        nulls = " OR ".join(f"{one} IS NULL" for one in (t, pairs, between))
        return f"(CASE WHEN {nulls} THEN NULL WHEN {known} THEN CAST({made} AS MAP(VARCHAR, VARCHAR)) ELSE {other} END)"

    separators = [_separator(x, n[name]) for name in ("pairDelim", "keyValueDelim")]
    return all_shared([*separators, x.text(n["text"])], of)


def _separator(x: Expressions, node: Expr) -> str:
    return literal(plain_separator(node), "string") if node.cls == "Literal" else x.text(node)


_META = r".*+?()[]{}^$|\\"


def plain_text(pattern: str) -> str:
    """Whether a regular expression in a column is a text that it alone matches."""
    return f"regexp_full_match({pattern}, '[^{re.escape(_META)}]+')"


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
    "Conv": _in_base,
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
