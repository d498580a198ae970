"""Casts. A value that does not fit ends the fragment in every eval mode; Spark then does as the mode says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported, eval_mode
from firesteel.plan.types import (
    FLOATS,
    INTEGERS,
    checked,
    checked_inside,
    decimal_of,
    element_of,
    engine_type,
    fields_of,
    is_interval,
    is_text,
    said,
)
from firesteel.render.expressions.texts import (
    digits_of,
    exact_text,
    java_number,
    left_to_spark,
    once,
    shared,
    struct_text,
)
from firesteel.render.expressions.times import intervals
from firesteel.render.expressions.times.dates import between_years
from firesteel.render.expressions.times.timestamps import shown
from firesteel.render.expressions.times.zones import zone_of

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _cast(x: Expressions, n: Expr) -> str:
    if isinstance(n.type, dict):
        return nested_cast(x, n)
    child, to = n["child"], checked_inside(n.type)
    if child.type == "void":
        return f"CAST({x.text(child)} AS {engine_type(to)})"
    kind = checked_inside(child.type)
    text = x.text(child)
    if kind == to:
        return text
    by_interval = is_interval(kind) or is_interval(to)
    found = intervals.cast(text, kind, to) if by_interval else _TO[_family(to)](text, n)
    if found is None:
        raise Unsupported(f"a cast of {said(kind)} to {said(to)} is not taken over")
    return found


def _family(kind: str) -> str:
    """Of integers and decimals one."""
    return "integer" if kind in INTEGERS else "decimal" if decimal_of(kind) else kind


def _to_integer(text: str, n: Expr) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    found = decimal_of(kind)
    if kind == "boolean" or kind in INTEGERS:
        return f"CAST({text} AS {name})"
    if kind in FLOATS:
        return f"CAST(trunc({text}) AS {name})"
    if found and found[0] > 18 and n.type != "long" and eval_mode(n) != "LEGACY":  # by way of a double, in Spark
        return f"CAST(trunc(CAST(CAST({text} AS VARCHAR) AS DOUBLE)) AS {name})"
    if found:
        return f"CAST(trunc({text}) AS {name})"
    if kind == "timestamp":
        return f"CAST(fs_floor(epoch_us({text}), 1000000) AS {name})"
    return _of_text(text, n, "[+-]?[0-9]{1,18}") if is_text(kind) else None


def _to_decimal(text: str, n: Expr) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    if kind in INTEGERS or decimal_of(kind) or kind == "boolean":
        return f"CAST({f'CAST({text} AS INTEGER)' if kind == 'boolean' else text} AS {name})"
    if kind in FLOATS:  # by the shortest digits of the double, half up, as BigDecimal.valueOf
        return f"CAST({digits_of(f'CAST({text} AS DOUBLE)', decimal_of(n.type)[1])} AS {name})"  # type: ignore[index]
    return _of_text(text, n, r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?") if is_text(kind) else None


def _to_floating(text: str, n: Expr) -> str | None:
    kind, name = checked(n["child"].type), engine_type(n.type)
    if kind in INTEGERS or kind in FLOATS or kind == "boolean":
        return f"CAST({text} AS {name})"
    if decimal_of(kind):  # the nearest, by its digits; the engine divides two doubles
        return f"CAST(CAST({text} AS VARCHAR) AS {name})"
    if kind == "timestamp":
        return f"CAST(CAST(epoch_us({text}) AS DOUBLE) / 1000000.0::DOUBLE AS {name})"
    return _of_text(text, n, _FLOATING) if is_text(kind) else None


_FLOATING = r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?"


def _to_boolean(text: str, n: Expr) -> str | None:
    kind = checked(n["child"].type)
    is_number = kind in INTEGERS or kind in FLOATS or decimal_of(kind)
    if not is_text(kind):
        return f"({text} <> 0)" if is_number else None
    yes, no = "'t', 'true', 'y', 'yes', '1'", "'f', 'false', 'n', 'no', '0'"
    other = left_to_spark("a text of another form", "boolean")
    return once(
        f"lower({text})",
        lambda t: (
            f"(CASE WHEN {t} IN ({yes}) THEN true WHEN {t} IN ({no}) THEN false WHEN {t} IS NOT NULL THEN {other} END)"
        ),
    )


def _to_text(text: str, n: Expr) -> str | None:  # noqa: PLR0911 - one for each family
    kind = checked(n["child"].type)
    found = decimal_of(kind)
    if kind in INTEGERS or kind == "boolean" or is_text(kind) or (found and found[1] <= 6):
        return exact_text(text, kind)
    if found and eval_mode(n) == "ANSI":
        return exact_text(text, kind)
    if found:  # Java writes small ones with an exponent
        other = left_to_spark("a number with an exponent", "string")
        small = f"abs({{0}}) < CAST('0.000001' AS {engine_type(kind)})"
        return once(text, lambda t: f"(CASE WHEN {small.format(t)} THEN {other} ELSE {exact_text(t, kind)} END)")
    if kind == "date":
        return between_years(text, lambda t: f"strftime({t}, '%Y-%m-%d')")
    if kind in ("timestamp", "timestamp_ntz"):
        return between_years(shown(text, n["child"], n["timeZoneId"]), lambda t: f"CAST({t} AS VARCHAR)")
    if kind in FLOATS:
        return java_number(text, kind)
    return f"decode({text})" if kind == "binary" else None


_DATE = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_CLOCK = rf"{_DATE}[ T]([01]?[0-9]|2[0-3]):[0-5]?[0-9](:[0-5]?[0-9](\.[0-9]+)?)?"
_ZONED = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])"


def _to_date(text: str, n: Expr) -> str | None:
    if n["child"].type in ("timestamp", "timestamp_ntz"):
        return f"CAST({shown(text, n['child'], n['timeZoneId'])} AS DATE)"
    if not is_text(n["child"].type):
        return None

    def of(t: str) -> str:
        """Whatever follows the day."""
        day = f"CAST(regexp_extract({t}, '^[0-9-]+') AS DATE)"
        return f"(CASE WHEN regexp_full_match({t}, '(?s){_DATE}[ T].*') THEN {day} ELSE {_of_text(t, n, _DATE)} END)"

    return once(text, of)


def _to_local(text: str, n: Expr) -> str | None:
    """A timestamp without a zone."""
    kind = n["child"].type
    if kind in ("timestamp", "date"):
        return shown(text, n["child"], n["timeZoneId"]) if kind == "timestamp" else f"CAST({text} AS TIMESTAMP)"
    return _of_text(text, n, f"{_DATE}|{_CLOCK}", "timestamp_ntz") if is_text(kind) else None


def _to_timestamp(text: str, n: Expr) -> str | None:
    kind, zone = n["child"].type, zone_of(n["timeZoneId"])
    if kind in INTEGERS:
        return f"make_timestamptz(CAST({text} AS BIGINT) * 1000000)"
    if kind == "double":
        return f"make_timestamptz(CAST(trunc({text} * 1000000.0::DOUBLE) AS BIGINT))"
    if is_text(kind):
        return once(
            text,
            lambda t: (
                f"(CASE WHEN regexp_full_match({t}, '{_ZONED}') THEN CAST({t} AS TIMESTAMPTZ) ELSE {zone.instant(str(_to_local(t, n)))} END)"
            ),
        )
    local = text if kind == "timestamp_ntz" else _to_local(text, n) if kind == "date" else None
    return None if local is None else zone.instant(local)


_NEVER = {"integer": "[A-Za-z]", "decimal": "[A-DF-Za-df-z]", "date": "^[A-Za-z]"}
"""Letters that no text of the type holds, or begins with."""


def _of_text(text: str, n: Expr, form: str, kind: str | None = None) -> str:
    """Texts of a plain form; of others Spark knows. Those that never are of the type are null, or an error in ANSI mode."""
    kind = kind or checked(n.type)
    other, name = left_to_spark("a text of another form", kind), engine_type(kind)

    def of(t: str) -> str:
        letters = _NEVER.get(_family(kind))
        never = f"{t} = ''" + (f" OR regexp_matches({t}, '{letters}')" if letters else "")
        null = "" if eval_mode(n) == "ANSI" else f"WHEN {never} THEN NULL "
        return f"(CASE WHEN {t} IS NULL OR regexp_full_match({t}, '{form}') THEN CAST({t} AS {name}) {null}ELSE {other} END)"

    return shared(f"trim({text}, ' \t\n\r\f\v')", of)


_TO: dict[str, Callable[[str, Expr], str | None]] = {
    "integer": _to_integer,
    "decimal": _to_decimal,
    "float": _to_floating,
    "double": _to_floating,
    "boolean": _to_boolean,
    "string": _to_text,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_local,
    "binary": lambda text, n: f"encode({text})" if is_text(n["child"].type) else None,
}
RULES = {"Cast": _cast}


_INSIDE = -1
"""The number of the variable that stands for a value inside."""


def nested_cast(x: Expressions, n: Expr) -> str:
    child = n["child"]
    text = x.text(child)
    if engine_type(child.type) == engine_type(n.type):
        return text
    elements = element_of(child.type), element_of(n.type)
    if None not in elements:
        return f"list_transform({text}, lambda e: {_inside(x, n, 'e', *elements)})"
    before, after = fields_of(child.type), fields_of(n.type)
    if before is None or after is None or len(before) != len(after):
        raise Unsupported(f"a cast of {said(child.type)} to {said(n.type)} is not taken over")
    items = [
        (name, _inside(x, n, f"struct_extract_at({text}, {i + 1})", kind, to))
        for i, ((_, kind), (name, to)) in enumerate(zip(before, after, strict=True))
    ]
    return f"(CASE WHEN {text} IS NOT NULL THEN {struct_text(items)} END)"


def _inside(x: Expressions, n: Expr, text: str, kind: Any, to: Any) -> str:
    value = Expr("NamedLambdaVariable", {"exprId": _INSIDE}, kind)
    if kind == to:
        return text
    return x.inside({_INSIDE: text}).text(Expr(n.cls, {**n.fields, "child": value}, to))
