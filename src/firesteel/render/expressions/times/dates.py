"""Dates: their parts, days and months to and fro."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import said
from firesteel.render.expressions.texts import constant, left_to_spark, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_DAYS = ("integer", "short", "byte")


def _date(x: Expressions, node: Expr) -> str:
    if node.type != "date":
        raise Unsupported(f"{said(node.type)} in place of a date is not taken over")
    return x.text(node)


def _part(text: str, kind: str = "INTEGER") -> Callable[[Expressions, Expr], str]:
    return lambda x, n: f"CAST({text.format(_date(x, n['child']))} AS {kind})"


def _date_add(sign: str, x: Expressions, n: Expr) -> str:
    if n["days"].type not in _DAYS:
        raise Unsupported(f"{said_function(n)} of {said(n['days'].type)} is not taken over")
    return f"({_date(x, n['startDate'])} {sign} CAST({x.text(n['days'])} AS INTEGER))"


def _date_diff(x: Expressions, n: Expr) -> str:
    return f"CAST({_date(x, n['endDate'])} - {_date(x, n['startDate'])} AS INTEGER)"


def _months(date: str, months: str) -> Callable[[Expressions, Expr], str]:
    """``date``, ``months``: the names of the fields. A day beyond a month's end is its last."""
    return lambda x, n: f"CAST({_date(x, n[date])} + to_months(CAST({x.text(n[months])} AS INTEGER)) AS DATE)"


def _made(x: Expressions, n: Expr) -> str:
    return f"make_date({', '.join(f'CAST({x.text(n[part])} AS BIGINT)' for part in ('year', 'month', 'day'))})"


_WEEK = ("THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY")
"""From the first day of 1970."""


def _next(x: Expressions, n: Expr) -> str:
    name = str(constant(n["dayOfWeek"], "a day of the week")).strip().upper()
    found = [i for i, day in enumerate(_WEEK) if name in (day, day[:3], day[:2])]
    if not found:
        raise Unsupported("a day of the week of this name is not taken over")
    since = f"CAST({found[0] - 1} - ({{0}} - DATE '1970-01-01') AS INTEGER)"
    return once(_date(x, n["startDate"]), lambda d: f"({d} + 1 + (({since.format(d)} % 7) + 7) % 7)")


BEGINS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "WEEK": "week",
}


def begin(node: Expr, known: dict[str, str]) -> str:
    """The engine's name of the unit whose begin is asked for."""
    unit = known.get(str(node["value"]).upper()) if node.cls == "Literal" else None
    if unit is None:
        raise Unsupported("the begin of this unit is not taken over")
    return unit


def _trunc(x: Expressions, n: Expr) -> str:
    return f"CAST(date_trunc('{begin(n['format'], BEGINS)}', {_date(x, n['date'])}) AS DATE)"


def between_years(time: str, text: Callable[[str], str], first: int = 1) -> str:
    """The text of a time whose year has four digits, or the end of the fragment."""
    other = left_to_spark("a year beyond four digits", "string")
    return once(
        time,
        lambda t: (
            f"(CASE WHEN year({t}) BETWEEN {first} AND 9999 THEN {text(t)} WHEN {t} IS NOT NULL THEN {other} END)"
        ),
    )


def _since_1970(x: Expressions, n: Expr) -> str:
    return f"(DATE '1970-01-01' + CAST({x.text(n['child'])} AS INTEGER))"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "Year": _part("year({})"),
    "YearOfWeek": _part("isoyear({})"),
    "Month": _part("month({})"),
    "DayOfMonth": _part("day({})"),
    "Quarter": _part("quarter({})"),
    "DayOfWeek": _part("dayofweek({}) + 1"),
    "WeekDay": _part("isodow({}) - 1"),
    "DayOfYear": _part("dayofyear({})"),
    "WeekOfYear": _part("week({})"),
    "MonthName": _part("strftime({}, '%b')", "VARCHAR"),
    "DayName": _part("strftime({}, '%a')", "VARCHAR"),
    "UnixDate": _part("{} - DATE '1970-01-01'"),
    "DateAdd": partial(_date_add, "+"),
    "DateSub": partial(_date_add, "-"),
    "DateDiff": _date_diff,
    "AddMonths": _months("startDate", "numMonths"),
    "DateAddYMInterval": _months("date", "interval"),
    "LastDay": lambda x, n: f"last_day({_date(x, n['startDate'])})",
    "NextDay": _next,
    "MakeDate": _made,
    "TruncDate": _trunc,
    "DateFromUnixDate": _since_1970,
}
