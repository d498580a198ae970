"""Column: an expression as a PySpark user writes it, with Spark's meaning (ANSI), which becomes one of Arrow's where a step takes it.

A Column knows no types until it is bound to the rows of a step. What may fail in a branch of ``when``, ``coalesce``, ``&`` or ``|`` is computed
only for the rows that take the branch, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.ddl import parse_ddl
from firesteel.api.expressions import arithmetic, texts
from firesteel.api.expressions.values import Rows, Value, alike, compared, constant, null
from firesteel.errors import UsageError, shortened

Bind = Callable[[Rows], Value]


class Column:
    """Made by ``firesteel.functions``: ``F.col("n") % 3``, ``F.when(F.col("n").between(1, 9), "some").otherwise("many")``."""

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as == gives a Column

    plain_name: str | None = None
    """The column that it merely names."""

    def __init__(self, bind: Bind, text: str, *, name: str | None = None, fails: bool = False) -> None:
        """``name``: of a result; ``fails``: it may raise for some rows."""
        self._bind, self._text, self._name, self._fails = bind, text, name, fails

    # --- arithmetic ---

    def __add__(self, other: Any) -> Column:
        return _arithmetic("+", self, other)

    def __radd__(self, other: Any) -> Column:
        return _arithmetic("+", other, self)

    def __sub__(self, other: Any) -> Column:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Column:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Any) -> Column:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Column:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: Any) -> Column:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Column:
        return _arithmetic("/", other, self)

    def __mod__(self, other: Any) -> Column:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: Any) -> Column:
        return _arithmetic("%", other, self)

    def __neg__(self) -> Column:
        text = f"(- {self})"
        return Column(lambda rows: arithmetic.negated(self._bind(rows), text), text, fails=True)

    # --- comparisons ---

    def __eq__(self, other: object) -> Column:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _comparison("=", self, other)

    def __ne__(self, other: object) -> Column:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ~_comparison("=", self, other)

    def __lt__(self, other: Any) -> Column:
        return _comparison("<", self, other)

    def __le__(self, other: Any) -> Column:
        return _comparison("<=", self, other)

    def __gt__(self, other: Any) -> Column:
        return _comparison(">", self, other)

    def __ge__(self, other: Any) -> Column:
        return _comparison(">=", self, other)

    def eqNullSafe(self, other: Any) -> Column:  # noqa: N802
        """Equal, or both null: never null itself."""
        same, that = self == other, column(other)
        text = f"({self} <=> {that})"

        def bind(rows: Rows) -> Value:
            one, two = self._bind(rows).expression.is_null(), that._bind(rows).expression.is_null()
            equal = pc.coalesce(same._bind(rows).expression, pc.scalar(False))
            return Value(equal | (one & two), pa.bool_())

        return Column(bind, text, fails=self._fails or that._fails)

    def between(self, lower: Any, upper: Any) -> Column:
        """At least ``lower`` and at most ``upper``."""
        return (self >= lower) & (self <= upper)

    def isin(self, *values: Any) -> Column:
        """Is one of the values; null where it is null itself, or is none of them while one of them is null."""
        given = (
            list(cast(Any, values[0]))
            if len(values) == 1 and isinstance(values[0], list | set | tuple)
            else list(values)
        )
        options = [column(value) for value in given]
        text = f"({self} IN ({', '.join(map(str, options))}))"

        def bind(rows: Rows) -> Value:
            value = self._bind(rows)
            return texts.any_equal(value, [option._bind(rows) for option in options], text)

        return Column(bind, text, fails=self._fails or any(option._fails for option in options))

    def isNull(self) -> Column:  # noqa: N802
        return self._whether("IS NULL", lambda value: value.expression.is_null())

    def isNotNull(self) -> Column:  # noqa: N802
        return self._whether("IS NOT NULL", lambda value: value.expression.is_valid())

    def isNaN(self) -> Column:  # noqa: N802
        """False of a null, as in Spark."""
        return self._whether("IS NAN", partial(texts.is_nan, text=f"isnan({self})"))

    def _whether(self, said: str, of: Callable[[Value], pc.Expression]) -> Column:
        return Column(lambda rows: Value(of(self._bind(rows)), pa.bool_()), f"({self} {said})", fails=self._fails)

    # --- logic ---

    def __and__(self, other: Any) -> Column:
        return _logic("AND", self, other)

    def __rand__(self, other: Any) -> Column:
        return _logic("AND", other, self)

    def __or__(self, other: Any) -> Column:
        return _logic("OR", self, other)

    def __ror__(self, other: Any) -> Column:
        return _logic("OR", other, self)

    def __invert__(self) -> Column:
        text = f"(NOT {self})"
        return Column(lambda rows: Value(~_condition(self, rows), pa.bool_()), text, fails=self._fails)

    def __bool__(self) -> bool:
        raise UsageError(
            f"The column {self} is true or false of a row, not by itself.", hint="Write & for and, | for or, ~ for not."
        )

    # --- texts ---

    def like(self, pattern: str) -> Column:
        r"""SQL's LIKE: ``%`` is any text, ``_`` any character, ``\`` takes the next one's meaning away."""
        return self._matches("LIKE", texts.of_like(pattern), pattern)

    def rlike(self, pattern: str) -> Column:
        """A part matches the regular expression. Only patterns that mean the same in Java and here."""
        return self._matches("RLIKE", texts.of_java(pattern), pattern)

    def startswith(self, text: str) -> Column:
        return self._matches("startswith", f"\\A{texts.quoted(text)}", text)

    def endswith(self, text: str) -> Column:
        return self._matches("endswith", f"{texts.quoted(text)}\\z", text)

    def contains(self, text: str) -> Column:
        return self._matches("contains", texts.quoted(text), text)

    def _matches(self, said: str, pattern: str, given: str) -> Column:
        text = f"({self} {said} {given!r})"

        def bind(rows: Rows) -> Value:
            value = texts.of_text(self._bind(rows), text)
            return Value(pc.match_substring_regex(value.expression, pattern), pa.bool_())

        return Column(bind, text, fails=self._fails)

    def substr(self, start: int, length: int) -> Column:
        """``length`` characters from ``start`` on, the first one being 1; a negative one counts from the end."""
        text = f"substring({self}, {start}, {length})"
        return Column(lambda rows: texts.substring(self._bind(rows), start, length, text), text, fails=self._fails)

    # --- others ---

    def cast(self, to: Any) -> Column:
        """As another type: a name of Spark's DDL or an Arrow type. What does not fit is an error."""
        type_ = to if isinstance(to, pa.DataType) else _named_type(to)
        text = f"CAST({self} AS {to})"
        return Column(lambda rows: arithmetic.cast(self._bind(rows), type_, text), text, fails=True)

    astype = cast

    def alias(self, name: str) -> Column:
        """Under this name: ``select((F.col("n") + 1).alias("m"))``."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"alias() wants a name, not {name!r}.")
        return Column(self._bind, self._text, name=name, fails=self._fails)

    name = alias

    def getField(self, name: str) -> Column:  # noqa: N802
        """A field of a struct."""

        def bind(rows: Rows) -> Value:
            value = self._bind(rows)
            if not pa.types.is_struct(value.type) or value.type.get_field_index(name) < 0:
                raise UsageError(f"There is no field '{name}' in {self}, which is {value.type}.")
            return Value(pc.struct_field(value.expression, [name]), value.type.field(name).type)

        return Column(bind, f"{self}.{name}", fails=self._fails)

    def __str__(self) -> str:
        return shortened(self._text)

    def __repr__(self) -> str:
        return f"Column<{self}>"

    # --- for steps ---

    @property
    def given_name(self) -> str | None:
        """The name of a result, if it is a column or has an alias."""
        return self._name

    @property
    def fails(self) -> bool:
        """True if it may raise for some rows."""
        return self._fails

    def bound(self, rows: Rows) -> Value:
        return self._bind(rows)

    def expression(self, schema: pa.Schema) -> pc.Expression:
        """The Arrow expression over rows of ``schema``. Raises UsageError."""
        if self.plain_name is not None and schema.get_field_index(self.plain_name) >= 0:
            return pc.field(self.plain_name)
        return self._bind(Rows(schema)).expression


class Case(Column):
    """``when(...)``, further ``when`` and ``otherwise``: the first branch whose condition is true."""

    def __init__(self, branches: tuple[tuple[Column, Column], ...], other: Column | None = None) -> None:
        self._branches, self._other = branches, other
        told = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
        parts = [part for branch in branches for part in branch] + ([] if other is None else [other])
        ending = "" if other is None else f" ELSE {other}"
        super().__init__(self._chosen, f"CASE {told}{ending} END", fails=any(part.fails for part in parts))

    def when(self, condition: Any, value: Any) -> Case:
        if self._other is not None:
            raise UsageError("when() comes before otherwise().")
        return Case((*self._branches, (column(condition), column(value))))

    def otherwise(self, value: Any) -> Column:
        if self._other is not None:
            raise UsageError("otherwise() is given twice.")
        return Case(self._branches, column(value))

    def _chosen(self, rows: Rows) -> Value:
        conditions: list[pc.Expression] = []
        values: list[Value] = []
        rest = rows
        for given, value in self._branches:
            conditions.append(_condition(given, rest if given.fails else rows))
            taken = pc.coalesce(conditions[-1], pc.scalar(False))
            values.append(value.bound(rest.where(taken) if value.fails else rows))
            rest = rest.where(~taken) if self.fails else rows
        other = column(None) if self._other is None else self._other
        values.append(other.bound(rest if other.fails else rows))
        values = alike(values, str(self))
        chosen = pc.case_when(pc.make_struct(*conditions), *(value.expression for value in values))
        return Value(chosen, values[0].type)


def first_of(columns: list[Column]) -> Column:
    """The first value that is not null."""
    text = f"coalesce({', '.join(map(str, columns))})"

    def bind(rows: Rows) -> Value:
        values: list[Value] = []
        rest = rows
        fails = any(one.fails for one in columns)
        for one in columns:
            values.append(one.bound(rest if one.fails else rows))
            rest = rest.where(values[-1].expression.is_null()) if fails else rows
        values = alike(values, text)
        return Value(pc.coalesce(*(value.expression for value in values)), values[0].type)

    return Column(bind, text, fails=any(one.fails for one in columns))


def named(name: str) -> Column:
    made = Column(lambda rows: rows.column(name), name, name=name)
    made.plain_name = name
    return made


def column(value: Any) -> Column:
    """A Column as it is, an Arrow expression as one, anything else as a constant."""
    if isinstance(value, Column):
        return value
    if isinstance(value, pc.Expression):
        return Column(lambda rows: rows.of(value), str(value), fails=True)
    made = constant(value)
    return Column(lambda rows: made, repr(value) if isinstance(value, str) else str(value))


def _arithmetic(operator: str, left: Any, right: Any) -> Column:
    one, two = column(left), column(right)
    text = f"({one} {operator} {two})"

    def bind(rows: Rows) -> Value:
        return arithmetic.computed(operator, one.bound(rows), two.bound(rows), text)

    return Column(bind, text, fails=True)


def _comparison(operator: str, left: Any, right: Any) -> Column:
    one, two = column(left), column(right)
    text = f"({one} {operator} {two})"
    return Column(
        lambda rows: compared(operator, one.bound(rows), two.bound(rows), text), text, fails=one.fails or two.fails
    )


def _logic(said: str, left: Any, right: Any) -> Column:
    """The right side is computed only where the left one does not decide."""
    one, two = column(left), column(right)

    def bind(rows: Rows) -> Value:
        first = _condition(one, rows)
        if two.fails:
            rows = rows.where(pc.coalesce(first if said == "AND" else ~first, pc.scalar(True)))
        second = _condition(two, rows)
        return Value(first & second if said == "AND" else first | second, pa.bool_())

    return Column(bind, f"({one} {said} {two})", fails=one.fails or two.fails)


def _condition(given: Column, rows: Rows) -> pc.Expression:
    value = given.bound(rows)
    if pa.types.is_null(value.type):
        return null(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise UsageError(f"{given} must be true or false, and is {value.type}.", hint="Compare it with something.")
    return value.expression


def _named_type(to: str) -> pa.DataType:
    try:
        return parse_ddl(f"c {to}").field(0).type
    except UsageError as error:
        raise UsageError(f"cast({to!r}): there is no such type.", hint=error.hint) from None
