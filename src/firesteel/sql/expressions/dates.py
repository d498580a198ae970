"""Dates and timestamps; parts of a timestamp in a session whose zone is UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firesteel.sql.expressions.texts import left_to_spark
from firesteel.sql.expressions.types import said
from firesteel.sql.plans.nodes import Node, Unsupported

if TYPE_CHECKING:
    from firesteel.sql.expressions.translator import Expressions

_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00")
_DAYS = ("integer", "short", "byte")


def in_utc(text: str, node: Node, zone: str | None) -> str:
    """A timestamp without a zone: what clocks show in UTC. Raises Unsupported for other zones."""
    if node.type == "timestamp_ntz":
        return text
    if node.type != "timestamp" or zone not in _UTC:
        raise Unsupported(f"{said(node.type)} in the zone {zone} is not taken over")
    return f"make_timestamp(epoch_us({text}))"


def _part(text: str) -> Callable[[Expressions, Node], str]:
    """A part of a date."""

    def rule(x: Expressions, n: Node) -> str:
        if n["child"].type != "date":
            raise Unsupported(f"{n.cls} of {said(n['child'].type)} is not taken over")
        return f"CAST({text.format(x.text(n['child']))} AS INTEGER)"

    return rule


def _clock(function: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        return f"CAST({function}({in_utc(x.text(n['child']), n['child'], n['timeZoneId'])}) AS INTEGER)"

    return rule


def _date_add(sign: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        days = n["days"]
        if n["startDate"].type != "date" or days.type not in _DAYS:
            raise Unsupported(f"{n.cls} of {said(n['startDate'].type)} is not taken over")
        return f"({x.text(n['startDate'])} {sign} CAST({x.text(days)} AS INTEGER))"

    return rule


def _date_diff(x: Expressions, n: Node) -> str:
    return f"CAST({x.text(n['endDate'])} - {x.text(n['startDate'])} AS INTEGER)"


def _months(date: str, months: str) -> Callable[[Expressions, Node], str]:
    """``date``, ``months``: the names of the fields. A day beyond a month's end is its last."""

    def rule(x: Expressions, n: Node) -> str:
        by = n[months]
        if by.cls != "Literal" or not isinstance(by["value"], int):
            raise Unsupported("months that are no constant are not taken over")
        return f"CAST({x.text(n[date])} + to_months({by['value']}) AS DATE)"

    return rule


def _later(x: Expressions, n: Node) -> str:
    """A timestamp and a constant interval of days to microseconds."""
    by = n["interval"]
    if n["start"].type != "timestamp_ntz" or by.cls != "Literal" or not isinstance(by["value"], int):
        raise Unsupported("an interval of this kind is not taken over")
    return f"({x.text(n['start'])} + to_microseconds({by['value']}))"


_BEGINS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "WEEK": "week",
}
_CLOCK_BEGINS = {
    **_BEGINS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}


def _begin(node: Node, known: dict[str, str]) -> str:
    unit = known.get(str(node["value"]).upper()) if node.cls == "Literal" else None
    if unit is None:
        raise Unsupported("the begin of this unit is not taken over")
    return unit


def _trunc(x: Expressions, n: Node) -> str:
    return f"CAST(date_trunc('{_begin(n['format'], _BEGINS)}', {x.text(n['date'])}) AS DATE)"


def _trunc_clock(x: Expressions, n: Node) -> str:
    time = n["timestamp"]
    text = f"date_trunc('{_begin(n['format'], _CLOCK_BEGINS)}', {in_utc(x.text(time), time, n['timeZoneId'])})"
    return text if time.type == "timestamp_ntz" else f"make_timestamptz(epoch_us({text}))"


_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def _format(x: Expressions, n: Node) -> str:
    """By a pattern of digits alone, in the years 1 to 9999."""
    pattern = n["right"]["value"] if n["right"].cls == "Literal" else None
    if not isinstance(pattern, str):
        raise Unsupported("a date's pattern that is no constant is not taken over")
    rest, text = pattern, ""
    while rest:
        size = next((i for i in range(1, len(rest) + 1) if i == len(rest) or rest[i] != rest[0]), len(rest))
        piece, rest = rest[:size], rest[size:]
        if piece not in _LETTERS and piece.strip(" -/:.,_"):
            raise Unsupported(f"the pattern {pattern!r} is not taken over")
        text += _LETTERS.get(piece, piece)
    time = in_utc(x.text(n["left"]), n["left"], n["timeZoneId"])
    return between_years(time, f"strftime({time}, '{text}')")


def between_years(time: str, text: str) -> str:
    """A year of four digits, or the end of the fragment."""
    return f"(CASE WHEN {time} IS NULL OR year({time}) BETWEEN 1 AND 9999 THEN {text} ELSE {left_to_spark('a year beyond four digits', 'string')} END)"


def _of_number(text: str) -> Callable[[Expressions, Node], str]:
    def rule(x: Expressions, n: Node) -> str:
        if n["child"].type not in ("integer", "long"):
            raise Unsupported(f"{n.cls} of {said(n['child'].type)} is not taken over")
        return text.format(x.text(n["child"]))

    return rule


RULES: dict[str, Callable[[Expressions, Node], str]] = {
    "Year": _part("year({})"),
    "Month": _part("month({})"),
    "DayOfMonth": _part("day({})"),
    "Quarter": _part("quarter({})"),
    "DayOfWeek": _part("dayofweek({}) + 1"),
    "WeekDay": _part("isodow({}) - 1"),
    "DayOfYear": _part("dayofyear({})"),
    "WeekOfYear": _part("week({})"),
    "UnixDate": _part("{} - DATE '1970-01-01'"),
    "Hour": _clock("hour"),
    "Minute": _clock("minute"),
    "Second": _clock("second"),
    "DateAdd": _date_add("+"),
    "DateSub": _date_add("-"),
    "DateDiff": _date_diff,
    "AddMonths": _months("startDate", "numMonths"),
    "DateAddYMInterval": _months("date", "interval"),
    "LastDay": lambda x, n: f"last_day({x.text(n['startDate'])})",
    "TruncDate": _trunc,
    "TruncTimestamp": _trunc_clock,
    "TimestampAddInterval": _later,
    "DateFormatClass": _format,
    "DateFromUnixDate": _of_number("(DATE '1970-01-01' + {})"),
    "MicrosToTimestamp": _of_number("make_timestamptz({})"),
    "SecondsToTimestamp": _of_number("make_timestamptz(CAST({} AS BIGINT) * 1000000)"),
    "UnixMicros": lambda x, n: f"epoch_us({x.text(n['child'])})",
}
