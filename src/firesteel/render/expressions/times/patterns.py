"""Times as texts, by patterns of parts in fixed places. Other texts than those in exactly this form are left to Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import is_text, said
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once
from firesteel.render.expressions.times.dates import between_years
from firesteel.render.expressions.times.timestamps import at_clock, shown
from firesteel.render.expressions.times.zones import zone_of

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_OFFSET_OF_SECONDS = left_to_spark("an offset of seconds", "string")


def _offset(form: str, zero: str) -> str:
    """Of the clocks from UTC. ``form``: of a sign, hours and minutes; ``zero``: the text of no offset."""
    parts = "CASE WHEN {o} < 0 THEN '-' ELSE '+' END, abs({o}) // 3600, abs({o}) // 60 % 60"
    return f"(CASE WHEN {{o}} = 0 THEN '{zero}' WHEN {{o}} % 60 <> 0 THEN {_OFFSET_OF_SECONDS} ELSE printf('{form}', {parts}) END)"


def _short(form: str, rest: str, zero: str) -> str:
    """An offset whose minutes are only shown where there are some."""
    whole = f"regexp_replace({_offset(form + rest, zero)}, '{rest.replace('%02d', '00')}$', '')"
    return f"(CASE WHEN {{o}} = 0 THEN '{zero}' ELSE {whole} END)"


_YEAR, _HOUR = "year({t})", "hour({t})"
_CLOCK_HOUR = f"(CASE {_HOUR} WHEN 0 THEN 24 ELSE {_HOUR} END)"
_MONTHS = {1: "%-m", 2: "%m", 3: "%b", 4: "%B"}
_DAYS = {1: "%a", 2: "%a", 3: "%a", 4: "%A"}
_LATE = left_to_spark("a day of the year of three digits", "string")


def _digits(number: str, *counts: int) -> dict[int, str]:
    return {count: f"printf('%0{count}d', {number})" for count in counts}


_QUARTERS = {
    **_digits("quarter({t})", 1, 2),
    3: "'Q' || quarter({t})",
    4: "['1st', '2nd', '3rd', '4th'][quarter({t})] || ' quarter'",
}
_WRITTEN: dict[str, dict[int, str]] = {
    "G": {1: "'AD'", 2: "'AD'", 3: "'AD'", 4: "'Anno Domini'"},
    "y": {**_digits(_YEAR, 1, 3, 5, 6), 2: "%y", 4: "%Y"},
    "Q": _QUARTERS,
    "q": _QUARTERS,
    "M": _MONTHS,
    "L": _MONTHS,
    "d": {1: "%-d", 2: "%d"},
    "D": {1: "CAST(dayofyear({t}) AS VARCHAR)", 2: f"(CASE WHEN dayofyear({{t}}) > 99 THEN {_LATE} ELSE strftime({{t}}, '%j')[2:] END)", 3: "%j"},
    "E": _DAYS,
    "a": {1: "%p"},
    "H": {1: "%-H", 2: "%H"},
    "h": {1: "%-I", 2: "%I"},
    "k": _digits(_CLOCK_HOUR, 1, 2),
    "K": _digits(f"{_HOUR} % 12", 1, 2),
    "m": {1: "%-M", 2: "%M"},
    "s": {1: "%-S", 2: "%S"},
    "S": {**{count: f"left(strftime({{t}}, '%n'), {count})" for count in range(1, 9)}, 3: "%g", 6: "%f", 9: "%n"},
    "V": {2: "'{zone}'"},
    "X": {1: _short("%s%02d", "%02d", "Z"), **dict.fromkeys((2, 4), _offset("%s%02d%02d", "Z")), **dict.fromkeys((3, 5), _offset("%s%02d:%02d", "Z"))},
    "x": {1: _short("%s%02d", "%02d", "+00"), **dict.fromkeys((2, 4), _offset("%s%02d%02d", "+0000")), **dict.fromkeys((3, 5), _offset("%s%02d:%02d", "+00:00"))},
    "Z": {**dict.fromkeys((1, 2, 3), _offset("%s%02d%02d", "+0000")), 4: _offset("GMT%s%02d:%02d", "GMT"), 5: _offset("%s%02d:%02d", "Z")},
    "O": {1: _short("GMT%s%d", ":%02d", "GMT"), 4: _offset("GMT%s%02d:%02d", "GMT")},
}  # fmt: skip
"""By letter and their number: what the engine's ``strftime`` calls it, or a text of the local time ``t``, its offset ``o`` and the zone's name."""
_OF_SPARK_2 = {
    "d": "day({t})", "D": "dayofyear({t})", "F": "(day({t}) - 1) // 7 + 1", "u": "isodow({t})", "H": _HOUR, "k": _CLOCK_HOUR,
    "h": f"({_HOUR} + 11) % 12 + 1", "K": f"{_HOUR} % 12", "m": "minute({t})", "s": "second({t})", "S": "microsecond({t}) // 1000 % 1000",
}  # fmt: skip
"""Numbers of as many digits as there are letters, at least."""


def _form(letter: str, count: int) -> str | None:
    return _WRITTEN.get(letter, {}).get(count)


def _form_of_spark_2(letter: str, count: int) -> str | None:
    """As Java's ``SimpleDateFormat``."""
    if letter in _OF_SPARK_2 or (letter == "y" and count != 2):
        return _digits(_OF_SPARK_2.get(letter, _YEAR), count)[count]
    if letter in "GaZ":
        return _form(letter, 1)
    if (letter, count) == ("X", 1):
        return _offset("%s%02d", "Z")
    return _form(letter, min(count, 4)) if letter in "yMLE" or (letter == "X" and count < 4) else None


_READ = {
    "yyyy": "([0-9]{4})",
    "MM": "(0[1-9]|1[0-2])",
    "dd": "(0[1-9]|[12][0-9]|3[01])",
    "HH": "([01][0-9]|2[0-3])",
    "mm": "([0-5][0-9])",
    "ss": "([0-5][0-9])",
}
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")


def _pieces(
    node: Expr, known: Callable[[str], bool], others: str = "[-/:.,_ ]", left_out: str = ""
) -> list[tuple[str, bool]]:
    """Each a part of a time, or (False) a text of its own. ``others``: a regular expression of letters that stand for themselves."""
    pattern, pieces, at = str(constant(node, "a pattern")), [], 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        text = found[0] if found else ""
        if found and found[2] and known(text):
            pieces.append((text, True))
        elif found and found[1] is not None:
            pieces.append((found[1].replace("''", "'") or "'", False))
        elif found and not found[2] and re.fullmatch(others, text):
            pieces.append((text, False))
        elif not text or text not in left_out:
            raise Unsupported(f"the pattern {pattern!r} is not taken over")
        at += len(text)
    return pieces


def in_pattern(local: str, pattern: Expr, instant: str = "", zone: str = "", of_spark_2: bool = False) -> str:
    """``instant``: empty for a time without a zone."""
    form = _form_of_spark_2 if of_spark_2 else _form

    def known(text: str) -> bool:
        return form(text[0], len(text)) is not None

    if of_spark_2:
        pieces = _pieces(pattern, known, "[^A-Za-z']")
    else:  # in brackets is what may not be known
        pieces = _pieces(pattern, known, r"[^A-Za-z'{}#\[\]]", "[]")
        if re.sub(r"'[^']*'|[^\[\]]", "", str(pattern["value"])).replace("[]", ""):
            raise Unsupported("brackets in brackets of a pattern are not taken over")
    texts = [(form(text[0], len(text)) or "", True) if part else (text, False) for text, part in pieces]
    reads = {field for text, part in texts if part for field in ("{o}", "{zone}") if field in text}
    if reads and (not instant or ("{zone}" in reads and zone[0] in "+-")):
        raise Unsupported("the zone of this time by a pattern is not taken over")

    def of(t: str, o: str = "") -> str:
        found: list[str] = []
        for plain, group in groupby(texts, lambda one: not one[1] or one[0].startswith("%")):
            if plain:
                parts = "".join(text if part else text.replace("%", "%%") for text, part in group)
                found.append(f"strftime({t}, {literal(parts, 'string')})")
            else:
                found += [text.format(t=t, o=o, zone=zone) for text, _ in group]
        return " || ".join(found) or "''"

    def at_offset(t: str) -> str:
        return (
            once(f"((epoch_us({t}) - epoch_us({instant})) // 1000000)", lambda o: of(t, o)) if "{o}" in reads else of(t)
        )

    return between_years(local, at_offset, 1900 if of_spark_2 else 1)


_COMMON = (
    "yyyy-MM-dd", "yyyyMMdd", "yyyy/MM/dd", "dd/MM/yyyy", "MM/dd/yyyy", "dd.MM.yyyy", "yyyy-MM", "yyyyMM", "yyyy", "HH:mm:ss",
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm", "yyyy-MM-dd'T'HH:mm:ss", "dd/MM/yyyy HH:mm:ss", "MM/dd/yyyy HH:mm:ss",
)  # fmt: skip
"""Patterns that columns of them hold."""


def _by_pattern(x: Expressions, pattern: Expr, text: Callable[[Expr], str], kind: Any) -> str:
    """``text`` of a pattern; of a column of patterns that of each common one."""
    if pattern.cls == "Literal":
        return text(pattern)
    if not is_text(pattern.type):
        raise Unsupported(f"a pattern of type {said(pattern.type)} is not taken over")
    whens: list[str] = []
    for one in _COMMON:
        with suppress(Unsupported):  # it has too few parts to be read
            whens.append(f"WHEN {literal(one, 'string')} THEN {text(Expr('Literal', {'value': one}, 'string'))}")
    other = left_to_spark("this pattern", kind)
    return once(
        x.text(pattern), lambda p: f"(CASE WHEN {p} IS NOT NULL THEN CASE {p} {' '.join(whens)} ELSE {other} END END)"
    )


def _format(x: Expressions, n: Expr, of_spark_2: bool = False) -> str:
    time, zone = n["left"], n["timeZoneId"]
    instant = x.text(time)
    local = shown(instant, time, zone)
    instant, name = (instant, zone_of(zone).name) if time.type == "timestamp" else ("", "")
    return _by_pattern(x, n["right"], lambda pattern: in_pattern(local, pattern, instant, name, of_spark_2), "string")


def _of_seconds(x: Expressions, n: Expr, of_spark_2: bool = False) -> str:
    zone, instant = zone_of(n["timeZoneId"]), f"make_timestamptz({x.text(n['sec'])} * 1000000)"
    return in_pattern(zone.local(instant), n["format"], instant, zone.name, of_spark_2)


def _read(text: str, pattern: Expr, others: str) -> str:
    """The timestamp without a zone that a text says, which holds at least a day."""
    pieces = _pieces(pattern, _READ.__contains__)
    parts = [piece for piece, part in pieces if part]
    if len(set(parts)) < len(parts) or not {"yyyy", "MM", "dd"} <= set(parts):
        raise Unsupported("a pattern of these parts is not taken over")
    form = "".join(_READ[piece] if part else re.escape(piece) for piece, part in pieces)

    def value(t: str) -> str:
        place = {part: f"regexp_extract({t}, {literal(form, 'string')}, {i + 1})" for i, part in enumerate(parts)}
        day = " || '-' || ".join(place[part] for part in ("yyyy", "MM", "dd"))
        clock = " || ':' || ".join(place.get(part, "'00'") for part in ("HH", "mm", "ss"))
        return f"CAST({day} || ' ' || {clock} AS TIMESTAMP)"

    def known(t: str) -> str:
        plain = f"{t} IS NULL OR regexp_full_match({t}, {literal(form, 'string')})"
        return f"(CASE WHEN {plain} THEN CASE WHEN {t} IS NOT NULL THEN {value(t)} END ELSE {others} END)"

    return once(text, known)


def _parsed(x: Expressions, n: Expr) -> str:
    if not is_text(n["left"].type):
        raise Unsupported(f"{said(n['left'].type)} by a pattern is not taken over")
    text, other = x.text(n["left"]), left_to_spark("a text of another form", "timestamp_ntz")
    local = _by_pattern(x, n["right"], lambda pattern: _read(text, pattern, other), "timestamp_ntz")
    return at_clock(local, n.type, n["timeZoneId"])


def _seconds(x: Expressions, n: Expr) -> str:
    """Since 1970, of a time, a day or a text; a begun second before 1970 does not count."""
    time, zone = n["timeExp"], zone_of(n["timeZoneId"])
    text = x.text(time)
    if time.type == "date":
        text = zone.instant(f"CAST({text} AS TIMESTAMP)")
    elif is_text(time.type):
        text = zone.instant(_read(text, n["format"], left_to_spark("a text of another form", "timestamp_ntz")))
    elif time.type not in ("timestamp", "timestamp_ntz"):
        raise Unsupported(f"seconds of {said(time.type)} are not taken over")
    return f"(epoch_us({text}) // 1000000)"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "DateFormatClass": _format,
    "DateFormatClassOfSpark2": partial(_format, of_spark_2=True),
    "FromUnixTime": _of_seconds,
    "FromUnixTimeOfSpark2": partial(_of_seconds, of_spark_2=True),
    "GetTimestamp": _parsed,
    "UnixTimestamp": _seconds,
    "ToUnixTimestamp": _seconds,
}
