"""Arithmetic and casts with Spark's results (ANSI): what overflows, divides by zero or cannot be cast is an error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.expressions.values import (
    EXACT_DIGITS,
    HINT,
    MOST_DIGITS,
    Value,
    alike,
    as_decimal,
    as_double,
    constant,
    is_number,
    null,
)
from firesteel.errors import UsageError

_t = pa.types
_CHECKED: dict[str, Callable[..., Any]] = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN: dict[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def computed(operator: str, left: Value, right: Value, what: str) -> Value:
    """``operator``: +, -, *, / or %. Raises UsageError for types that it is not of."""
    for value in (left, right):
        if not is_number(value.type) and not _t.is_null(value.type):
            raise UsageError(f"{what}: '{operator}' is of numbers here, not of {value.type}.", hint=HINT)
    if operator == "/":
        return _divided(left, right, what)
    decimals = any(_t.is_decimal(value.type) for value in (left, right))
    floats = any(_t.is_floating(value.type) for value in (left, right))
    if decimals and not floats:
        return _of_decimals(operator, left, right, what)
    if decimals:
        left, right = as_double(left, what), as_double(right, what)
    left, right = alike([left, right], what)
    if _t.is_null(left.type):
        return Value(null(pa.float64()), pa.float64())
    if operator == "%":
        return _remainder(left, right, what)
    compute = (_PLAIN if _t.is_floating(left.type) else _CHECKED)[operator]
    return Value(compute(left.expression, right.expression), left.type)


def _divided(left: Value, right: Value, what: str) -> Value:
    if any(_t.is_decimal(value.type) for value in (left, right)) and not any(
        _t.is_floating(value.type) for value in (left, right)
    ):
        raise UsageError(f"{what} divides decimals.", hint=f'Cast them: c.cast("double"). {HINT}')
    a, b = as_double(left, what), as_double(right, what)
    return Value(pc.divide_checked(a.expression, b.expression), pa.float64())


def _remainder(left: Value, right: Value, what: str) -> Value:
    """Of whole numbers, with the sign of the left one."""
    if _t.is_floating(left.type):
        raise UsageError(f"{what}: '%' is of whole numbers here.", hint=HINT)
    a, b = left.expression, right.expression
    one = pc.scalar(pa.scalar(1, left.type))
    if not (right.constant and right.constant[0] not in (-1, None)):  # the smallest number has no quotient by -1
        b = pc.if_else(pc.equal(b, pc.scalar(pa.scalar(-1, left.type))), one, b)
    return Value(pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b)), left.type)


def _of_decimals(operator: str, left: Value, right: Value, what: str) -> Value:
    a, b = _exact(left), _exact(right)
    if operator == "%" or a is None or b is None:
        raise UsageError(f"{what}: '{operator}' is not done of decimals here.", hint=HINT)
    first, second = a.type, b.type
    if operator == "*":
        scale, digits = first.scale + second.scale, first.precision + second.precision + 1
    else:
        scale = max(first.scale, second.scale)
        digits = scale + 1 + max(first.precision - first.scale, second.precision - second.scale)
    if digits > MOST_DIGITS:
        raise UsageError(f"{what} has {digits} digits; {MOST_DIGITS} fit.", hint=f"Cast to fewer digits before. {HINT}")
    return Value(_PLAIN[operator](a.expression, b.expression), pa.decimal128(digits, scale))


def _exact(value: Value) -> Value | None:
    if value.constant and isinstance(value.constant[0], int):
        return constant(Decimal(value.constant[0]), pa.decimal128(max(len(str(abs(value.constant[0]))), 1), 0))
    to = as_decimal(value.type)
    if to is None or to.equals(value.type):
        return None if to is None else value
    return Value(value.expression.cast(to), to)


def negated(value: Value, what: str) -> Value:
    if not is_number(value.type):
        raise UsageError(f"{what}: '-' is of numbers here, not of {value.type}.", hint=HINT)
    return Value((pc.negate_checked if _t.is_integer(value.type) else pc.negate)(value.expression), value.type)


def absolute(value: Value, what: str) -> Value:
    if not is_number(value.type):
        raise UsageError(f"{what} is of numbers, not of {value.type}.", hint=HINT)
    return Value((pc.abs_checked if _t.is_integer(value.type) else pc.abs)(value.expression), value.type)


# --- casts ----------------------------------------------------------------------------------------------------------

_WHOLE = r"^[+-]?[0-9]{1,40}$"
_FRACTION = r"^[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})([eE][+-]?[0-9]{1,3})?$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


def cast(value: Value, to: pa.DataType, what: str) -> Value:
    """Raises UsageError for a cast whose results might be others than Spark's."""
    if value.type.equals(to):
        return value
    if _t.is_null(value.type):
        return Value(null(to), to)
    rule = next((rule for is_, rule in _CASTS if is_(value.type)), None)
    made = None if rule is None else rule(value, to)
    if made is None:
        raise UsageError(f"{what}: a cast of {value.type} to {to} is not done here.", hint=HINT)
    return Value(made, to)


def _of_boolean(value: Value, to: pa.DataType) -> pc.Expression | None:
    return value.expression.cast(to) if _t.is_integer(to) or _t.is_string(to) else None


def _of_integer(value: Value, to: Any) -> pc.Expression | None:
    if _t.is_boolean(to):
        return pc.not_equal(value.expression, pc.scalar(pa.scalar(0, value.type)))
    if _t.is_decimal128(to):  # by way of one that holds it in any case
        return value.expression.cast(pa.decimal128(MOST_DIGITS, min(to.scale, MOST_DIGITS - 20))).cast(to)
    known = _t.is_integer(to) or _t.is_string(to) or _t.is_floating(to)
    return value.expression.cast(to, safe=not _t.is_floating(to)) if known else None


def _of_fraction(value: Value, to: pa.DataType) -> pc.Expression | None:
    if _t.is_integer(to):
        return pc.trunc(value.expression).cast(to)
    return value.expression.cast(to, safe=False) if _t.is_floating(to) else None


def _of_decimal(value: Value, to: Any) -> pc.Expression | None:
    """Digits that are too many are rounded, half away from zero."""
    if _t.is_float64(to) and value.type.precision <= EXACT_DIGITS:
        return value.expression.cast(to)
    if not _t.is_decimal128(to):
        return None
    if to.scale < value.type.scale:
        return pc.round(value.expression, ndigits=to.scale, round_mode="half_towards_infinity").cast(to)
    return value.expression.cast(to)


def _of_text(value: Value, to: pa.DataType) -> pc.Expression | None:
    """Of the texts that both read alike; another one is an error, which names it."""
    form = _WHOLE if _t.is_integer(to) else _FRACTION if _t.is_floating(to) else _DAY if _t.is_date32(to) else None
    if form is None:
        return None
    trimmed = pc.utf8_trim(value.expression, characters=" \t\n\r\f\v")
    told = pc.binary_join_element_wise(value.expression, pc.scalar(f" is no {to}"), pc.scalar(""))
    known = pc.if_else(pc.match_substring_regex(trimmed, form), trimmed, told)
    return (known if _t.is_date32(to) else pc.replace_substring_regex(known, r"^\+", "")).cast(to)


def _of_day(value: Value, to: Any) -> pc.Expression | None:
    return value.expression.cast(to) if _t.is_timestamp(to) and to.tz is None else None


def _of_time(value: Value, to: Any) -> pc.Expression | None:
    return value.expression.cast(to) if value.type.tz is None and _t.is_date32(to) else None


_CASTS: list[tuple[Callable[[Any], bool], Callable[[Value, Any], pc.Expression | None]]] = [
    (_t.is_boolean, _of_boolean),
    (_t.is_integer, _of_integer),
    (_t.is_floating, _of_fraction),
    (_t.is_decimal128, _of_decimal),
    (_t.is_string, _of_text),
    (_t.is_date32, _of_day),
    (_t.is_timestamp, _of_time),
]


def failing(condition: pc.Expression, text: pc.Expression, said: str, otherwise: pc.Expression) -> pc.Expression:
    """``otherwise``, but an error that quotes ``text`` where the condition holds."""
    told = pc.binary_join_element_wise(text, pc.scalar(f": {said}"), pc.scalar(""))
    fails = pc.if_else(condition, told, null(pa.string())).cast(pa.bool_())
    return pc.if_else(pc.is_valid(fails), null(pa.string()), otherwise)
