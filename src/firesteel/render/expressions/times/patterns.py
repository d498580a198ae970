"""Times as texts, by patterns of parts in fixed places. Other texts than those in exactly this form are left to Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import is_text, said
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once
from firesteel.render.expressions.times.dates import between_years
from firesteel.render.expressions.times.timestamps import at_clock, shown
from firesteel.render.expressions.times.zones import zone_of

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_WRITTEN = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g", "SSSSSS": "%f", "yy": "%y",
    "M": "%-m", "d": "%-d", "H": "%-H", "m": "%-M", "s": "%-S", "MMM": "%b", "MMMM": "%B", "E": "%a", "EEE": "%a", "EEEE": "%A",
    "hh": "%I", "h": "%-I", "a": "%p", "DDD": "%j",
}  # fmt: skip
_READ = {
    "yyyy": "([0-9]{4})",
    "MM": "(0[1-9]|1[0-2])",
    "dd": "(0[1-9]|[12][0-9]|3[01])",
    "HH": "([01][0-9]|2[0-3])",
    "mm": "([0-5][0-9])",
    "ss": "([0-5][0-9])",
}
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")


def _pieces(node: Expr, known: dict[str, str]) -> list[tuple[str, bool]]:
    """Each a part of a time, or (False) a text of its own."""
    pattern, pieces, at = str(constant(node, "a pattern")), [], 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        text = found[0] if found else ""
        if found and found[2] and text in known:
            pieces.append((text, True))
        elif found and found[1]:
            pieces.append((found[1].replace("''", "'"), False))
        elif found and text in " -/:.,_":
            pieces.append((text, False))
        else:
            raise Unsupported(f"the pattern {pattern!r} is not taken over")
        at += len(text)
    if not pieces:
        raise Unsupported("an empty pattern is not taken over")
    return pieces


def _written(local: str, pattern: Expr) -> str:
    """In the years 1 to 9999."""
    text = "".join(_WRITTEN[piece] if part else piece.replace("%", "%%") for piece, part in _pieces(pattern, _WRITTEN))
    return between_years(local, lambda t: f"strftime({t}, {literal(text, 'string')})")


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


def _format(x: Expressions, n: Expr) -> str:
    local = shown(x.text(n["left"]), n["left"], n["timeZoneId"])
    return _by_pattern(x, n["right"], lambda pattern: _written(local, pattern), "string")


def _of_seconds(x: Expressions, n: Expr) -> str:
    instant = f"make_timestamptz({x.text(n['sec'])} * 1000000)"
    return _written(zone_of(n["timeZoneId"]).local(instant), n["format"])


def _read(text: str, pattern: Expr, others: str) -> str:
    """The timestamp without a zone that a text says, which holds at least a day."""
    pieces = _pieces(pattern, _READ)
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
    "FromUnixTime": _of_seconds,
    "GetTimestamp": _parsed,
    "UnixTimestamp": _seconds,
    "ToUnixTimestamp": _seconds,
}
