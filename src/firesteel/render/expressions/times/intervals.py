"""Intervals: months, or microseconds, as integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import INTEGERS, decimal_of, is_days, is_months, said
from firesteel.render.expressions.texts import in_wider, left_to_spark, once, unscaled
from firesteel.render.expressions.times.timestamps import DAY, shown

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _between(x: Expressions, n: Expr) -> str:
    _not_of_calendars(n)
    a, b = (shown(x.text(n[side]), n[side], n["timeZoneId"]) for side in ("left", "right"))
    return in_wider(n.type, lambda wide: f"CAST(epoch_us({a}) AS {wide}) - CAST(epoch_us({b}) AS {wide})")


def _days_between(x: Expressions, n: Expr) -> str:
    _not_of_calendars(n)
    days = f"{x.text(n['left'])} - {x.text(n['right'])}"
    return in_wider(n.type, lambda wide: f"CAST({days} AS {wide}) * {DAY}")


def _not_of_calendars(n: Expr) -> None:
    if n["legacyInterval"] is not False or not is_days(n.type):
        raise Unsupported("an interval of this kind is not taken over")


def _times(x: Expressions, n: Expr) -> str:
    if n["num"].type not in INTEGERS:
        raise Unsupported(f"an interval times {said(n['num'].type)} is not taken over")
    interval, number = x.text(n["interval"]), x.text(n["num"])
    return in_wider(n.type, lambda wide: f"CAST({interval} AS {wide}) * CAST({number} AS {wide})")


def _parted(kind: str, x: Expressions, n: Expr) -> str:
    """Half away from zero."""
    if n["num"].type not in INTEGERS:
        raise Unsupported(f"an interval by {said(n['num'].type)} is not taken over")
    zero, by = left_to_spark("an interval by zero", "long"), f"CAST({x.text(n['num'])} AS HUGEINT)"
    quotient = once(
        f"CAST({x.text(n['interval'])} AS HUGEINT)",
        lambda a: once(by, lambda b: f"(CASE WHEN {b} = 0 THEN {zero} ELSE fs_half_up({a}, {b}) END)"),
    )
    return f"CAST({quotient} AS {kind})"


def _part(text: str) -> Callable[[Expressions, Expr], str]:
    kinds = {"integer": "INTEGER", "byte": "TINYINT", "long": "BIGINT", "decimal(8,6)": "DECIMAL(8,6)"}

    def rule(x: Expressions, n: Expr) -> str:
        return f"CAST({text.format(x.text(n['child']))} AS {kinds[n.type]})"

    return rule


def _made(x: Expressions, n: Expr) -> str:
    found = decimal_of(n["secs"].type)
    if not found or found[1] != 6:
        raise Unsupported("an interval of these parts is not taken over")
    days, hours, minutes = (f"CAST({x.text(n[name])} AS HUGEINT)" for name in ("days", "hours", "mins"))
    seconds = unscaled(x.text(n["secs"]), 6)
    return in_wider(n.type, lambda _: f"{days} * {DAY} + {hours} * 3600000000 + {minutes} * 60000000 + {seconds}")


def _made_of_months(x: Expressions, n: Expr) -> str:
    years, months = x.text(n["years"]), x.text(n["months"])
    return in_wider(n.type, lambda wide: f"CAST({years} AS {wide}) * 12 + CAST({months} AS {wide})")


def cast(text: str, kind: str, to: str) -> str | None:
    """To whole units or from them, to an interval that holds all of it, or to a text."""
    if kind in INTEGERS:
        size = {**_UNITS, "year": 12, "month": 1}[to.rsplit(maxsplit=1)[-1]]
        return in_wider(to, lambda wide: f"CAST({text} AS {wide}) * {size}")
    if to == ("interval day to second" if is_days(kind) else "interval year to month" if is_months(kind) else None):
        return text
    if to == "string":
        return once(f"CAST({text} AS HUGEINT)", lambda each: _shown(each, kind))
    per = _UNITS.get(kind.rsplit(maxsplit=1)[-1])
    return f"({text} // {per})" if is_days(kind) and to == "long" and per else None


_UNITS = {"day": DAY, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
"""In microseconds."""


def _shown(each: str, kind: str) -> str:
    """As a literal of SQL."""
    fields = kind.removeprefix("interval ")
    rest = f"abs({each})"
    if is_months(kind):
        both = f"{rest} // 12 || '-' || {rest} % 12"
        parts = {"year": f"{rest} // 12", "month": f"CAST({rest} AS VARCHAR)"}.get(fields, both)
    else:
        first, _, last = fields.partition(" to ")
        units = list(_UNITS)
        texts: list[str] = []
        for unit in units[units.index(first) : units.index(last or first) + 1]:
            number = f"({rest} // {_UNITS[unit]})"
            mark = "" if unit == first else " " if unit == "hour" else ":"
            zero = "" if unit == "day" else f"CASE WHEN {number} < 10 THEN '0' ELSE '' END || "
            texts.append(f"'{mark}' || {zero}{number}")
            rest = f"abs({each}) % {_UNITS[unit]}"
        if fields.endswith("second"):
            texts.append(
                f"CASE WHEN {rest} > 0 THEN rtrim('.' || lpad(CAST({rest} AS VARCHAR), 6, '0'), '0') ELSE '' END"
            )
        parts = " || ".join(texts)
    return f"('INTERVAL ''' || CASE WHEN {each} < 0 THEN '-' ELSE '' END || {parts} || ''' {fields.upper()}')"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "SubtractTimestamps": _between,
    "SubtractDates": _days_between,
    "MultiplyDTInterval": _times,
    "MultiplyYMInterval": _times,
    "DivideDTInterval": partial(_parted, "BIGINT"),
    "DivideYMInterval": partial(_parted, "INTEGER"),
    "ExtractANSIIntervalDays": _part(f"{{}} // {DAY}"),
    "ExtractANSIIntervalHours": _part(f"{{}} % {DAY} // 3600000000"),
    "ExtractANSIIntervalMinutes": _part("{} % 3600000000 // 60000000"),
    "ExtractANSIIntervalSeconds": _part("CAST({} % 60000000 AS DECIMAL(14,6)) * 0.000001"),
    "ExtractANSIIntervalYears": _part("{} // 12"),
    "ExtractANSIIntervalMonths": _part("{} % 12"),
    "MakeDTInterval": _made,
    "MakeYMInterval": _made_of_months,
}
