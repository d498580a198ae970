"""Pieces of the engine's text that several rules write."""

from __future__ import annotations

import string
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.types import (
    FLOATS,
    INTEGERS,
    arrows,
    checked_inside,
    decimal_of,
    element_of,
    engine_type,
    entry_of,
    fields_of,
    is_interval,
    is_months,
    is_text,
    quoted,
    said,
)

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def left_to_spark(why: str, kind: Any) -> str:
    """An expression that ends the fragment: Spark then runs the query, and raises its own error or knows the answer."""
    return f"CAST(error('left to Spark: {why}') AS {engine_type(kind)})"


def filled(text: str, x: Expressions, n: Expr) -> str:
    """A text with the names of the node's fields in braces."""
    names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    return f"({text.format(**{name: x.text(n[name]) for name in names})})"


def once(text: str, use: Callable[[str], str]) -> str:
    """``use`` of a variable that stands for ``text``, so that it is written, and computed, once."""
    if text.isidentifier():
        return use(text)
    name = f"v{zlib.crc32(text.encode()):08x}"
    return f"list_transform([{text}], lambda {name}: {use(name)})[1]"


_SHORT = 250
"""Characters. What is shorter may be written several times: the engine computes most equal expressions once, and a list of each row costs more."""


def shared(text: str, use: Callable[[str], str]) -> str:
    """``use`` of the text, or, where it is long, of a variable: texts in texts in texts grow beyond what the engine plans in time."""
    return use(text) if len(text) <= _SHORT else once(text, use)


def all_shared(texts: list[str], use: Callable[..., str]) -> str:
    """As ``shared`` of several."""
    return shared(texts[0], lambda t: all_shared(texts[1:], partial(use, t))) if texts else use()


def counted(number: str, most: int, why: str) -> str:
    """A number of letters or values: none where it is negative. Above ``most`` it is left to Spark."""
    other = left_to_spark(why, "integer")
    return shared(number, lambda i: f"(CASE WHEN {i} > {most} THEN {other} WHEN {i} < 0 THEN 0 ELSE {i} END)")


def joined(array: str, by: str) -> str:
    """The texts of an array without nulls; of none an empty text. The engine's function wants a constant between them."""
    if by.startswith("'"):
        return f"coalesce(array_to_string({array}, {by}), '')"

    def of(a: str, d: str) -> str:
        return f"(CASE WHEN len({a}) = 0 THEN '' ELSE list_reduce({a}, lambda p, q: p || {d} || q) END)"

    return all_shared([f"list_filter({array}, lambda e: e IS NOT NULL)", by], of)


def in_wider(kind: Any, text: Callable[[str], str]) -> str:
    """An integer computed in a type that holds each result; the cast back ends the fragment where the result does not fit.

    So the engine may rearrange sums with constants: ``i + 2147483640 > 5`` as ``i > 5 - 2147483640`` loses no overflow.
    ``kind``: of the result; an interval is its months or microseconds. ``text``: by the name of the wider type.
    """
    if kind in ("byte", "short", "integer") or is_months(kind):
        return f"CAST({text('BIGINT')} AS {engine_type(kind)})"
    return f"CAST({text('HUGEINT')} AS BIGINT)"


def undivided(conditions: list[str]) -> str:
    """Conditions that all hold, as one that the engine does not take apart: each is computed where none before it is false."""
    whens = " ".join(f"WHEN NOT {one} THEN false" for one in conditions[:-1] or conditions)
    return f"(CASE {whens} ELSE {' AND '.join(conditions)} END)"


def constant(node: Expr, what: str) -> str | int:
    """The value of a constant. Raises Unsupported where it is none, or null."""
    if node.cls != "Literal" or node["value"] is None or not isinstance(node["value"], str | int):
        raise Unsupported(f"{what} that is no constant is not taken over")
    return node["value"]


def unscaled(text: str, scale: int) -> str:
    """The integer of a decimal's digits."""
    if scale == 0:
        return f"CAST({text} AS HUGEINT)"
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def scaled(integer: str, precision: int, scale: int) -> str:
    """A decimal of its digits. What has more than ``precision`` ends the fragment."""
    whole = f"CAST({integer} AS DECIMAL({38 if scale else precision},0))"
    if scale == 0:
        return whole
    return f"CAST({whole} * CAST('0.{'1':0>{scale}}' AS DECIMAL({scale},{scale})) AS DECIMAL({precision},{scale}))"


def exact_text(text: str, kind: Any) -> str:
    """Of a decimal, an integer, a boolean or a text. The engine leaves a decimal's zero out where its type has no digit before the point."""
    found, shown = decimal_of(kind), f"CAST({text} AS VARCHAR)"
    return f"replace({shown}, '.', '0.')" if found and found[0] == found[1] else shown


def digits_of(double: str, scale: int) -> str:
    """The text of a double that will be rounded to ``scale``. Java before 19 writes some with a digit more than the engine's
    shortest; up to 15 digits that does not show, and beyond the fragment ends."""
    if scale > 14:
        raise Unsupported(f"a double with {scale} decimal places is not taken over")
    other = left_to_spark("a double of more than 15 digits", "string")
    return f"(CASE WHEN {double} IS NULL OR abs({double}) < 1e{15 - scale} THEN CAST({double} AS VARCHAR) ELSE {other} END)"


def java_number(text: str, kind: str) -> str:
    """The text of a double or a float as Java writes it.

    Java before 19 writes some with more digits than the engine does. It never does so below 1e16 for texts of up to 15 digits, nor for
    floats below 1e7 and texts of up to 6 digits. Other numbers end the fragment.
    """
    most, largest = (15, "1e16") if kind == "double" else (6, "1e7")
    other = left_to_spark("a text of more digits", "string")

    def of(t: str) -> str:
        """``t``: the engine's text of the absolute value."""
        mantissa = f"split_part({t}, 'e', 1)"
        whole, part = (f"split_part({mantissa}, '.', {i})" for i in (1, 2))
        digits = f"trim({whole} || {part}, '0')"
        power = (
            f"CASE WHEN contains({t}, 'e') THEN CAST(split_part({t}, 'e', 2) AS INTEGER)"
            f" WHEN {whole} = '0' THEN length(ltrim({part}, '0')) - length({part}) - 1 ELSE length({whole}) - 1 END"
        )
        with_power = once(digits, lambda d: f"{d}[1] || '.' || coalesce(nullif({d}[2:], ''), '0') || 'E' || ({power})")
        plain = f"{t} = '0.0' OR NOT (contains({t}, 'e') OR length({whole}) > 7 OR starts_with({t}, '0.000'))"
        return f"CASE WHEN length({digits}) > {most} THEN {other} WHEN {plain} THEN {t} ELSE {with_power} END"

    def signed(v: str) -> str:
        size = f"abs({v})"
        return (
            f"(CASE WHEN isnan({v}) THEN 'NaN' WHEN isinf({v}) THEN CASE WHEN {v} > 0 THEN 'Infinity' ELSE '-Infinity' END"
            f" WHEN {v} <> 0 AND ({size} < 1e-20 OR {size} >= {largest}) THEN {other}"
            f" WHEN {v} IS NOT NULL THEN CASE WHEN signbit({v}) THEN '-' ELSE '' END || {once(f'CAST({size} AS VARCHAR)', of)} END)"
        )

    return once(text, signed)


def literal(value: Any, kind: Any) -> str:  # noqa: PLR0911 - one for each type
    """A constant's text. ``value``: as the reader writes it."""
    name = engine_type(kind)
    if value is None:
        return f"CAST(NULL AS {name})"
    if is_text(kind):
        if "\0" in value:
            raise Unsupported("a text with a NUL is not taken over")
        return "'" + str(value).replace("'", "''") + "'"
    if kind == "binary":
        return f"unhex('{value}')"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "date":
        return f"(DATE '1970-01-01' + CAST({int(value)} AS INTEGER))"
    if kind == "timestamp_ntz":
        return f"make_timestamp({int(value)})"
    if kind == "timestamp":
        return f"make_timestamptz({int(value)})"
    if kind in FLOATS or kind in INTEGERS or is_interval(kind) or decimal_of(kind) or arrows(kind) is not None:
        return f"CAST('{value}' AS {name})"
    if isinstance(kind, dict):
        return f"CAST({_nested(value, kind)} AS {name})"
    raise Unsupported(f"a constant of type {said(kind)} is not taken over")


def _nested(value: Any, kind: Any) -> str:
    """Arrays come as lists of values, structs as lists of fields, maps as two lists: of keys and of values."""
    if not isinstance(value, list):
        raise Unsupported(f"a constant of type {said(kind)} is not taken over")
    element, fields, entry = element_of(kind), fields_of(kind), entry_of(kind)
    if element is not None:
        return f"[{', '.join(literal(item, element) for item in value)}]"
    if entry is not None:
        keys, values = ([literal(item, part) for item in items] for items, part in zip(value, entry, strict=True))
        return f"MAP([{', '.join(keys)}], [{', '.join(values)}])"
    return struct_text([(name, literal(item, part)) for (name, part), item in zip(fields or [], value, strict=True)])


def struct_text(fields: list[tuple[str, str]]) -> str:
    """A struct of (name, text of the value) pairs."""
    return f"struct_pack({', '.join(f'{quoted(name)} := {text}' for name, text in fields)})"


def order_text(order: Iterable[Expr], x: Expressions) -> str:
    texts: list[str] = []
    for one in order:
        child = one["child"]
        kind, text = child.type if arrows(child.type) else checked_inside(child.type), x.text(child)
        if child.cls == "Literal":  # the engine takes none as it is: it might be a column's number
            text = f"CAST({text} AS {engine_type(kind)})"
        direction = "ASC" if one["direction"].cls == "Ascending" else "DESC"
        nulls = "FIRST" if one["nullOrdering"].cls == "NullsFirst" else "LAST"
        texts.append(f"{text} {direction} NULLS {nulls}")
    return ", ".join(texts)
