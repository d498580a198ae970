"""Timestamps. Parts and days are those of the session's zone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import decimal_of, said
from firesteel.render.expressions.texts import constant, in_wider, left_to_spark, once, unscaled
from firesteel.render.expressions.times.dates import BEGINS, begin
from firesteel.render.expressions.times.zones import Zone, zone_of

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_TIMES = ("timestamp", "timestamp_ntz")
DAY = 86_400_000_000
_UTC = Zone("UTC", 0)


def shown(text: str, node: Expr, zone: str | None) -> str:
    """The time that clocks show, as a timestamp without a zone."""
    if node.type == "timestamp_ntz":
        return text
    if node.type != "timestamp":
        raise Unsupported(f"{said(node.type)} in place of a timestamp is not taken over")
    return zone_of(zone).local(text)


def at_clock(local: str, kind: str, zone: str | None) -> str:
    """The timestamp, of type ``kind``, at which clocks show ``local``."""
    return local if kind == "timestamp_ntz" else zone_of(zone).instant(local)


def later(text: str, kind: str, zone: str | None, microseconds: str) -> str:
    """By whole days on the clocks, then by the rest. For a timestamp without a zone days have 24 hours."""
    if kind == "timestamp_ntz":
        return f"make_timestamp(epoch_us({text}) + {microseconds})"
    place = zone_of(zone)
    if place.fixed is not None:
        return f"make_timestamptz(epoch_us({text}) + {microseconds})"

    def moved(by: str) -> str:
        on_the_day = place.shifted(text, lambda local: f"({local} + to_microseconds({by} // {DAY} * {DAY}))")
        return f"make_timestamptz(epoch_us({on_the_day}) + {by} % {DAY})"

    return once(microseconds, moved)


def _clock(text: str, x: Expressions, n: Expr) -> str:
    time = shown(x.text(n["child"]), n["child"], n["timeZoneId"])
    return f"CAST({text.format(time)} AS {'INTEGER' if n.type == 'integer' else 'DECIMAL(8,6)'})"


# --- begins of units -------------------------------------------------------------------------------------------------

_CLOCK_BEGINS = {
    **BEGINS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "milliseconds",
    "MICROSECOND": "microseconds",
}


def _trunc(x: Expressions, n: Expr) -> str:
    time, unit = n["timestamp"], begin(n["format"], _CLOCK_BEGINS)
    text, place = x.text(time), zone_of(n["timeZoneId"])
    if time.type != "timestamp":
        raise Unsupported(f"the begin of a unit of {said(time.type)} is not taken over")
    if unit in ("second", "milliseconds", "microseconds"):
        return _UTC.instant(f"date_trunc('{unit}', {_UTC.local(text)})")
    return place.shifted(text, lambda local: f"date_trunc('{unit}', {local})")


# --- to and fro --------------------------------------------------------------------------------------------------------


def _later(x: Expressions, n: Expr) -> str:
    """By an interval of days to microseconds."""
    start, by = n["start"], n["interval"]
    if not str(by.type).startswith("interval ") or start.type not in _TIMES:
        raise Unsupported("an interval of this kind is not taken over")
    return later(x.text(start), start.type, n["timeZoneId"], x.text(by))


def months_later(text: str, kind: str, zone: str | None, months: str) -> str:
    def by(local: str) -> str:
        return f"({local} + to_months(CAST({months} AS INTEGER)))"

    return by(text) if kind == "timestamp_ntz" else zone_of(zone).shifted(text, by)


def _months_later(x: Expressions, n: Expr) -> str:
    return months_later(x.text(n["timestamp"]), n["timestamp"].type, n["timeZoneId"], x.text(n["interval"]))


_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
}
_DAYS = {"DAY": 1, "DAYOFYEAR": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit(n: Expr, units: dict[str, int]) -> int | None:
    return units.get(str(n["unit"]).upper())


def _units_later(x: Expressions, n: Expr) -> str:
    time, zone = n["timestamp"], n["timeZoneId"]
    text, quantity = x.text(time), f"CAST({x.text(n['quantity'])} AS BIGINT)"
    if time.type not in _TIMES:
        raise Unsupported(f"{said(time.type)} in place of a timestamp is not taken over")
    if size := _unit(n, _MICROSECONDS):
        return f"make_timestamp{'tz' if time.type == 'timestamp' else ''}(epoch_us({text}) + {quantity} * {size})"
    if days := _unit(n, _DAYS):
        return later(text, time.type, zone, f"{quantity} * {days * DAY}")
    if months := _unit(n, _MONTHS):
        return months_later(text, time.type, zone, f"{quantity} * {months}")
    raise Unsupported("this unit of time is not taken over")


_WHOLE_MONTHS = """(((year({e}) - year({a})) * 12 + month({e}) - month({a})) * 32 + day({e}) - day({a})) // 32"""


def _between(x: Expressions, n: Expr) -> str:
    """Whole units on the clocks."""
    a, b = (shown(x.text(n[name]), n[name], n["timeZoneId"]) for name in ("startTimestamp", "endTimestamp"))
    if size := _unit(n, {**_MICROSECONDS, **{name: days * DAY for name, days in _DAYS.items()}}):
        return in_wider(
            "long", lambda wide: f"(CAST(epoch_us({b}) AS {wide}) - CAST(epoch_us({a}) AS {wide})) // {size}"
        )
    months = _unit(n, _MONTHS)
    if not months:
        raise Unsupported("this unit of time is not taken over")

    def counted(a: str, b: str) -> str:
        of_day = "epoch_us({0}) - epoch_us(date_trunc('day', {0}))"
        t1, t2 = of_day.format(a), of_day.format(b)
        last = (
            f"(CASE WHEN CAST({b} AS DATE) > CAST({a} AS DATE) AND {t2} < {t1} THEN CAST({b} AS DATE) - 1"
            f" WHEN CAST({b} AS DATE) < CAST({a} AS DATE) AND {t2} > {t1} THEN CAST({b} AS DATE) + 1 ELSE CAST({b} AS DATE) END)"
        )
        return once(last, lambda e: f"CAST({_WHOLE_MONTHS.format(e=e, a=a)} // {months} AS BIGINT)")

    return once(a, lambda a: once(b, lambda b: counted(a, b)))


def _months_between(x: Expressions, n: Expr) -> str:
    """Months, and the rest as a part of 31 days, to eight places."""
    if constant(n["roundOff"], "months to places") is not True:
        raise Unsupported("months that are not rounded are not taken over")
    (d1, s1), (d2, s2) = (_day_and_second(x, n[name], n["timeZoneId"]) for name in ("date1", "date2"))

    def counted(a: str, b: str, s1: str, s2: str) -> str:
        months = f"CAST((year({a}) - year({b})) * 12 + month({a}) - month({b}) AS DOUBLE)"
        whole = f"day({a}) = day({b}) OR ({a} = last_day({a}) AND {b} = last_day({b}))"
        rest = f"CAST((day({a}) - day({b})) * 86400 + {s1} - {s2} AS DOUBLE) / 2678400.0::DOUBLE"
        exact = f"({months} + {rest}) * 100000000.0::DOUBLE"
        near = once(exact, lambda e: f"(floor({e}) + CAST({e} - floor({e}) >= 0.5 AS DOUBLE)) / 100000000.0::DOUBLE")
        return f"(CASE WHEN {whole} THEN {months} ELSE {near} END)"

    return once(d1, lambda a: once(d2, lambda b: once(s1(a), lambda s: once(s2(b), lambda t: counted(a, b, s, t)))))


def _day_and_second(x: Expressions, time: Expr, name: str | None) -> tuple[str, Callable[[str], str]]:
    """The text of a day, and that of the seconds since this day began."""
    if time.cls == "Cast" and time["child"].type == "date":
        return x.text(time["child"]), lambda day: "0"
    if time.type != "timestamp":
        raise Unsupported(f"months between {said(time.type)} are not taken over")
    text, zone = x.text(time), zone_of(name)

    def since(day: str) -> str:
        return f"((epoch_us({text}) - epoch_us({zone.instant(f'CAST({day} AS TIMESTAMP)')})) // 1000000)"

    return f"CAST({zone.local(text)} AS DATE)", since


# --- numbers -----------------------------------------------------------------------------------------------------------


def _of_number(factor: int, x: Expressions, n: Expr) -> str:
    if n["child"].type not in ("integer", "long", "short", "byte"):
        raise Unsupported(f"{said_function(n)} of {said(n['child'].type)} is not taken over")
    return f"make_timestamptz(CAST({x.text(n['child'])} AS BIGINT) * {factor})"


def _number(per: int) -> Callable[[Expressions, Expr], str]:
    return lambda x, n: f"fs_floor(epoch_us({x.text(n['child'])}), {per})"


def _precise(x: Expressions, n: Expr) -> str:
    """Microseconds of a timestamp, or back: what windows of time are computed with."""
    kind, to = n["child"].type, n.type
    if kind in _TIMES and to == "long":
        return f"epoch_us({x.text(n['child'])})"
    if kind == "long" and to in _TIMES:
        return f"make_timestamp{'tz' if to == 'timestamp' else ''}({x.text(n['child'])})"
    raise Unsupported("this timestamp as a number is not taken over")


def _made(x: Expressions, n: Expr) -> str:
    """Of year to second; a 60th second, and what is no time, are left to Spark."""
    second = n["sec"]
    found = decimal_of(second.type)
    if n["timezone"] is not None or not found or found[1] != 6:
        raise Unsupported("a timestamp made of these parts is not taken over")

    def within(number: str, most: int) -> str:
        other = left_to_spark("a part of another time", "long")
        return once(
            number, lambda i: f"(CASE WHEN {i} BETWEEN 0 AND {most} THEN {i} WHEN {i} IS NOT NULL THEN {other} END)"
        )

    year, month, day, hour, minute = (
        f"CAST({x.text(n[part])} AS BIGINT)" for part in ("year", "month", "day", "hour", "min")
    )
    minutes = f"make_timestamp({year}, {month}, {day}, {within(hour, 23)}, {minute}, 0.0)"
    rest = within(f"CAST({unscaled(x.text(second), 6)} AS BIGINT)", 59_999_999)
    local = f"make_timestamp(epoch_us({minutes}) + {rest})"
    return at_clock(local, n.type, n["timeZoneId"])


# --- other zones ---------------------------------------------------------------------------------------------------------


def _from_utc(x: Expressions, n: Expr) -> str:
    zone = zone_of(str(constant(n["right"], "a zone")))
    return _UTC.instant(zone.local(x.text(n["left"])))


def _to_utc(x: Expressions, n: Expr) -> str:
    zone = zone_of(str(constant(n["right"], "a zone")))
    return zone.instant(_UTC.local(x.text(n["left"])))


def _converted(x: Expressions, n: Expr) -> str:
    source, target = (zone_of(str(constant(n[name], "a zone"))) for name in ("sourceTz", "targetTz"))
    return target.local(source.instant(x.text(n["sourceTs"])))


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "Hour": partial(_clock, "hour({})"),
    "Minute": partial(_clock, "minute({})"),
    "Second": partial(_clock, "second({})"),
    "SecondWithFraction": partial(_clock, "CAST(microsecond({}) AS DECIMAL(14,6)) * 0.000001"),
    "TruncTimestamp": _trunc,
    "TimestampAddInterval": _later,
    "TimestampAddYMInterval": _months_later,
    "TimestampAdd": _units_later,
    "TimestampDiff": _between,
    "MonthsBetween": _months_between,
    "SecondsToTimestamp": partial(_of_number, 1_000_000),
    "MillisToTimestamp": partial(_of_number, 1000),
    "MicrosToTimestamp": partial(_of_number, 1),
    "UnixSeconds": _number(1_000_000),
    "UnixMillis": _number(1000),
    "UnixMicros": lambda x, n: f"epoch_us({x.text(n['child'])})",
    "PreciseTimestampConversion": _precise,
    "MakeTimestamp": _made,
    "FromUTCTimestamp": _from_utc,
    "ToUTCTimestamp": _to_utc,
    "ConvertTimezone": _converted,
}
