"""``firesteel.functions``: expressions under the names of ``pyspark.sql.functions`` and with Spark's meaning, without Spark.

``from firesteel import functions as F``. A text where a column is wanted names one, as in PySpark; in operators it is a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.expressions import arithmetic, texts
from firesteel.api.expressions.column import Case, Column, column, first_of, named
from firesteel.api.expressions.values import HINT, Rows, Value, alike, compared
from firesteel.api.unknown_names import no_such_function
from firesteel.errors import UsageError

__all__ = [
    "Column", "abs", "coalesce", "col", "concat", "concat_ws", "dayofmonth", "greatest", "isnan", "isnotnull", "isnull", "least",
    "length", "lit", "lower", "ltrim", "month", "rtrim", "substring", "trim", "upper", "when", "year",
]  # fmt: skip


def col(name: str) -> Column:
    """A column by its name, or a field of a struct: ``col("address.city")``."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"col() wants a column name, not {name!r}.", hint="For a constant write lit(value).")
    return named(name)


def lit(value: Any) -> Column:
    """A constant, of the type that Spark gives it: a whole number is an int where it fits."""
    return column(value)


def when(condition: Any, value: Any) -> Case:
    """``when(a, x).when(b, y).otherwise(z)``: the value of the first condition that is true; without ``otherwise`` null."""
    if not isinstance(condition, Column | pc.Expression):
        raise UsageError(f"when() wants a condition, not {condition!r}.")
    return Case(((column(condition), column(value)),))


def coalesce(*columns: Any) -> Column:
    """The first value that is not null."""
    return first_of(_all(columns, "coalesce"))


def isnull(c: Any) -> Column:
    return _column(c).isNull()


def isnotnull(c: Any) -> Column:
    return _column(c).isNotNull()


def isnan(c: Any) -> Column:
    """True of NaN; false of a null."""
    return _column(c).isNaN()


def abs(c: Any) -> Column:
    """The distance from zero; of the smallest whole number of its type an error."""
    return _of(c, "abs", arithmetic.absolute, fails=True)


def greatest(*columns: Any) -> Column:
    """The largest value that is not null; of none null."""
    return _extreme("greatest", ">", columns)


def least(*columns: Any) -> Column:
    """The smallest value that is not null; of none null."""
    return _extreme("least", "<", columns)


def upper(c: Any) -> Column:
    """In capitals. Letters that Java changes in another way (as ß, which becomes SS) are an error."""
    return _of(c, "upper", lambda value, text: texts.letters(value, "upper", text), fails=True)


def lower(c: Any) -> Column:
    """In small letters. Letters that Java changes in another way are an error."""
    return _of(c, "lower", lambda value, text: texts.letters(value, "lower", text), fails=True)


def trim(c: Any) -> Column:
    """Without blanks at both ends."""
    return _of(c, "trim", lambda value, text: texts.trimmed(value, "both", text))


def ltrim(c: Any) -> Column:
    """Without blanks at the beginning."""
    return _of(c, "ltrim", lambda value, text: texts.trimmed(value, "left", text))


def rtrim(c: Any) -> Column:
    """Without blanks at the end."""
    return _of(c, "rtrim", lambda value, text: texts.trimmed(value, "right", text))


def length(c: Any) -> Column:
    """The number of characters."""
    return _of(c, "length", texts.length)


def substring(c: Any, pos: int, len: int) -> Column:
    """``len`` characters from ``pos`` on, the first one being 1; a negative ``pos`` counts from the end."""
    return _column(c).substr(pos, len)


def concat(*columns: Any) -> Column:
    """Texts behind each other; null where one is."""
    return _joined(None, columns, "concat")


def concat_ws(sep: str, *columns: Any) -> Column:
    """Texts behind each other, with ``sep`` between them; nulls are left out."""
    if not isinstance(sep, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"concat_ws() wants a text between the columns, not {sep!r}.")
    return _joined(sep, columns, "concat_ws")


def year(c: Any) -> Column:
    """Of a date, or a time without a zone."""
    return _of(c, "year", _calendar(pc.year))


def month(c: Any) -> Column:
    """Of a date, or a time without a zone: 1 to 12."""
    return _of(c, "month", _calendar(pc.month))


def dayofmonth(c: Any) -> Column:
    """Of a date, or a time without a zone: 1 to 31."""
    return _of(c, "dayofmonth", _calendar(pc.day))


def _calendar(part: Callable[..., Any]) -> Callable[[Value, str], Value]:
    def of(value: Value, text: str) -> Value:
        is_time = pa.types.is_timestamp(value.type) and value.type.tz is None
        if not (pa.types.is_date32(value.type) or is_time):
            raise UsageError(f"{text} is of a date or a time without a zone, not of {value.type}.", hint=HINT)
        return Value(part(value.expression).cast(pa.int32()), pa.int32())

    return of


def _column(given: Any) -> Column:
    return named(given) if isinstance(given, str) else column(given)


def _all(columns: tuple[Any, ...], name: str) -> list[Column]:
    if not columns:
        raise UsageError(f"{name}() wants at least one column.")
    return [_column(one) for one in columns]


def _of(given: Any, name: str, of: Callable[[Value, str], Value], *, fails: bool = False) -> Column:
    one = _column(given)
    text = f"{name}({one})"
    return Column(lambda rows: of(one.bound(rows), text), text, fails=fails or one.fails)


def _joined(separator: str | None, columns: tuple[Any, ...], name: str) -> Column:
    given = [_column(one) for one in columns]
    said = [] if separator is None else [repr(separator)]
    text = f"{name}({', '.join([*said, *map(str, given)])})"
    return Column(
        lambda rows: texts.joined(separator, [one.bound(rows) for one in given], text),
        text,
        fails=any(one.fails for one in given),
    )


def _extreme(name: str, operator: str, columns: tuple[Any, ...]) -> Column:
    given = _all(columns, name)
    if len(given) < 2:
        raise UsageError(f"{name}() wants at least two columns.")
    text = f"{name}({', '.join(map(str, given))})"

    def larger(one: Value, two: Value) -> Value:
        taken = one.expression.is_null() | pc.coalesce(compared(operator, two, one, text).expression, pc.scalar(False))
        return Value(pc.if_else(taken, two.expression, one.expression), one.type)

    def bind(rows: Rows) -> Value:
        return reduce(larger, alike([one.bound(rows) for one in given], text))

    return Column(bind, text, fails=any(one.fails for one in given))


if not TYPE_CHECKING:  # for the type checker an unknown name stays an error

    def __getattr__(name: str) -> Any:
        raise no_such_function(
            "functions", name, __all__, "A Column of pyspark.sql.functions is taken wherever one of these is."
        )
