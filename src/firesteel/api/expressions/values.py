"""Expressions whose types are known, brought to a common type as Spark (ANSI) brings them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError
from firesteel.task.operators.relational import project_schema, unknown_column

_t = pa.types
_NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
MOST_DIGITS = 38
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?(Z|[+-]\d{2}:\d{2})?"
)
HINT = "A Column of pyspark.sql.functions is taken, too: what is not said here, Spark's optimiser translates."


@dataclass(frozen=True, slots=True)
class Value:
    """``expression`` gives values of this type. ``constant``: what it is on every row, in a tuple; empty: not known."""

    expression: pc.Expression
    type: pa.DataType
    constant: tuple[Any, ...] = ()

    def to(self, type_: pa.DataType) -> Value:
        """The same as a wider type, as Spark widens: a large whole number as the nearest fraction."""
        if self.type.equals(type_):
            return self
        if self.constant:
            return replace(constant(self.constant[0], type_), constant=self.constant)
        return Value(self.expression.cast(type_, safe=not _t.is_floating(type_)), type_)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of this schema, to which a Column is bound. ``mask``: only where it is true do values matter; elsewhere all columns are
    null, so that nothing fails there."""

    schema: pa.Schema
    mask: pc.Expression | None = None

    def where(self, condition: pc.Expression) -> Rows:
        return Rows(self.schema, condition if self.mask is None else self.mask & condition)

    def column(self, name: str) -> Value:
        """A column, or a field of a struct (``a.b``) where no column has that name. Raises UsageError."""
        path = [name] if self.schema.get_field_index(name) >= 0 else name.split(".")
        if self.schema.get_field_index(path[0]) < 0:
            raise unknown_column(self.schema, name, "the expression")
        type_ = self.schema.field(path[0]).type
        for part in path[1:]:
            if not _t.is_struct(type_) or type_.get_field_index(part) < 0:
                raise UsageError(f"There is no field '{part}' in '{name}', which is {type_}.")
            type_ = type_.field(part).type
        return self.of(pc.field(*path) if len(path) > 1 else pc.field(name), type_)

    def of(self, expression: pc.Expression, type_: pa.DataType | None = None) -> Value:
        """An Arrow expression as a value of one of Spark's types."""
        if type_ is None:
            type_ = project_schema(self.schema, [("x", expression)])[0].field(0).type
        if self.mask is not None:
            expression = pc.if_else(self.mask, expression, pc.scalar(pa.scalar(None, type_)))
        plain = _spark_type(type_)
        return Value(expression if plain.equals(type_) else expression.cast(plain), plain)


def _spark_type(type_: pa.DataType) -> pa.DataType:
    """The type as which Spark has a column of this one."""
    if _t.is_dictionary(type_) or _t.is_run_end_encoded(type_):
        return _spark_type(type_.value_type)
    if _t.is_large_string(type_) or _t.is_string_view(type_):
        return pa.string()
    unsigned = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}
    return unsigned.get(type_, type_)


def constant(value: Any, type_: pa.DataType | None = None) -> Value:
    """A constant, of the type that ``lit`` gives it in Spark. Raises UsageError."""
    if type_ is None and isinstance(value, int) and not isinstance(value, bool):
        type_ = pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64()
    try:
        scalar: Any = value if isinstance(value, pa.Scalar) else pa.scalar(value, type_)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"{value!r} is not a constant: {str(error) or type(error).__name__}.") from None
    return Value(pc.scalar(scalar), scalar.type, (scalar.as_py(),))


def null(type_: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(None, type_))


# --- types that are alike -------------------------------------------------------------------------------------------


def is_number(type_: pa.DataType) -> bool:
    return type_ in _NUMBERS or _t.is_decimal(type_)


def alike(values: Sequence[Value], what: str) -> list[Value]:
    """The values as one type. Raises UsageError for types that Spark brings together in a way that Arrow has not, or not at all."""
    known = [value for value in values if not _t.is_null(value.type)]
    to = known[0].type if known else pa.null()
    for value in known[1:]:
        wider = _wider(to, value.type)
        if wider is None:
            return _with_texts(values, what)
        to = wider
    return [value.to(to) for value in values]


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:  # noqa: PLR0911 - one line per kind
    if a.equals(b):
        return a
    if a in _NUMBERS and b in _NUMBERS:
        wider = max(a, b, key=_NUMBERS.index)
        return pa.float64() if wider.equals(pa.float32()) else wider  # a fraction of 32 bits would lose digits
    if _t.is_decimal(a) or _t.is_decimal(b):
        if _t.is_floating(a) or _t.is_floating(b):
            return None
        one, other = as_decimal(a), as_decimal(b)
        if one is None or other is None:
            return None
        scale = max(one.scale, other.scale)
        digits = scale + max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(digits, scale) if digits <= MOST_DIGITS else None
    if _t.is_timestamp(a) and _t.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        return pa.timestamp("ns" if "ns" in (a.unit, b.unit) else "us", a.tz)
    return None


def as_decimal(type_: pa.DataType) -> pa.DataType | None:
    """The decimal that holds a type's values; None for types that are no exact numbers."""
    if _t.is_decimal128(type_):
        return type_
    return pa.decimal128(_DIGITS[type_], 0) if type_ in _DIGITS else None


def _with_texts(values: Sequence[Value], what: str) -> list[Value]:
    """Dates and times beside constant texts, which are read as such."""
    times = [value.type for value in values if _t.is_timestamp(value.type) or _t.is_date32(value.type)]
    if times and all(time.equals(times[0]) for time in times):
        texts: dict[int, Value] = {
            i: _read_as(value.constant[0], times[0], what)
            for i, value in enumerate(values)
            if _t.is_string(value.type) and value.constant and isinstance(value.constant[0], str)
        }
        read = [texts.get(i, value) for i, value in enumerate(values)]
        if texts and all(value.type.equals(times[0]) or _t.is_null(value.type) for value in read):
            return [value.to(times[0]) for value in read]
    said = " and ".join(dict.fromkeys(str(value.type) for value in values if not _t.is_null(value.type)))
    raise UsageError(
        f"{what} brings {said} together, which are no types of one kind.",
        hint=f'Cast one of them: c.cast("double"). {HINT}',
    )


def _read_as(text: str, type_: pa.DataType, what: str) -> Value:
    """A text as a date or a time. Raises UsageError."""
    found = (_DATE if _t.is_date32(type_) else _TIME).fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        if _t.is_date32(type_):
            return constant(date(*map(int, found.groups())), type_)
        day, hour, minute, second, fraction, zone = found.groups()
        if (zone is None) != (type_.tz is None):
            need = "an offset, as the times have a zone: '2026-01-31T12:00:00Z'" if zone is None else "no offset"
            raise UsageError(f"{what}: the text {text!r} needs {need}.")
        clock = [int(part or 0) for part in (hour, minute, second)]
        when = datetime(*map(int, day.split("-")), *clock, int((fraction or "").ljust(6, "0")))  # pyright: ignore[reportCallIssue]
        if zone is not None:
            when = datetime.fromisoformat(f"{when.isoformat()}{'+00:00' if zone == 'Z' else zone}")
        return constant(when, type_)
    except (ValueError, OverflowError, pa.ArrowException):
        raise UsageError(
            f"{what}: {text!r} is no {'date' if _t.is_date32(type_) else 'time'}.",
            hint="Write it as '2026-01-31'" + ("." if _t.is_date32(type_) else " or '2026-01-31 12:00:00'."),
        ) from None


# --- comparisons ----------------------------------------------------------------------------------------------------


def compared(operator: str, left: Value, right: Value, what: str) -> Value:
    """``operator``: =, <, >, <= or >=. NaN is equal to itself and larger than every number; null of a null."""
    if is_number(left.type) and is_number(right.type) and _wider(left.type, right.type) is None:
        left, right = (as_double(value, what) for value in (left, right))
    left, right = alike([left, right], what)
    if not _comparable(left.type):
        raise UsageError(f"{what} compares {left.type}, which is not done here.", hint=HINT)
    a, b = left.expression, right.expression
    if not _t.is_floating(left.type):
        return Value(_COMPARED[operator](a, b), pa.bool_())
    a_nan, b_nan = _nan(left), _nan(right)
    if operator == "=":
        found = (a == b) if a_nan is None or b_nan is None else (a == b) | (a_nan & b_nan)
    elif operator in ("<", ">="):
        found = _less(a, a_nan, b, b_nan)
    else:
        found = _less(b, b_nan, a, a_nan)
    return Value(~found if operator in ("<=", ">=") else found, pa.bool_())


def _less(
    a: pc.Expression, a_nan: pc.Expression | None, b: pc.Expression, b_nan: pc.Expression | None
) -> pc.Expression:
    if b_nan is None:
        return a < b
    return (a < b) | (b_nan if a_nan is None else b_nan & ~a_nan)


_COMPARED: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def _nan(value: Value) -> pc.Expression | None:
    """True where it is NaN, null of a null; None: it is a number on every row."""
    if value.constant and value.constant[0] is not None and value.constant[0] == value.constant[0]:
        return None
    return pc.is_nan(value.expression)


def _comparable(type_: pa.DataType) -> bool:
    return (
        is_number(type_)
        or _t.is_boolean(type_)
        or _t.is_string(type_)
        or _t.is_binary(type_)
        or _t.is_date32(type_)
        or _t.is_timestamp(type_)
        or _t.is_null(type_)
    )


EXACT_DIGITS = 15
"""Of a decimal: so many are a double's in any case."""


def as_double(value: Value, what: str) -> Value:
    """Raises UsageError for a decimal of more digits than surely become the nearest double."""
    if value.constant and isinstance(value.constant[0], Decimal):
        return constant(float(value.constant[0]))
    if _t.is_decimal(value.type) and value.type.precision > EXACT_DIGITS:
        raise UsageError(f"{what} makes doubles of {value.type}, whose digits would be lost.", hint=HINT)
    return value.to(pa.float64())
