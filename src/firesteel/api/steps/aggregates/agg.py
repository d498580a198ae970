"""Aggregates for ``aggregate``: ``from firesteel import agg``, then ``key_by("k").aggregate(total=agg.sum(col("a") * col("b")))``.

Each is of a column's name or an expression, and may have a filter: ``agg.count().where(col("n") > 3)``. Nulls do not count unless a
function says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from firesteel.api.column import Column
from firesteel.api.ddl import to_schema
from firesteel.api.resolved import Resolved
from firesteel.api.steps.common import require_count
from firesteel.api.unknown_names import no_such_function
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.plan.expr import Expr
from firesteel.task.operators.aggregation.aggregate import Aggregate
from firesteel.task.operators.aggregation.sketches import (
    LEAST_ERROR,
    MOST_ERROR,
    ApproximateDistinct,
    ApproximatePercentile,
)
from firesteel.task.operators.aggregation.users import Users, check_user_aggregate

__all__ = [
    "any_value", "approx_count_distinct", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "collect_list",
    "collect_set", "corr", "count", "count_distinct", "count_if", "covar_pop", "covar_samp", "first", "histogram", "last",
    "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile", "percentile_approx", "stddev", "stddev_pop",
    "stddev_samp", "sum", "user", "var_pop", "var_samp", "variance",
]  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class AggregateCall:
    """An aggregate as it is written, made by the functions of ``firesteel.agg``."""

    function: str
    arguments: tuple[Any, ...]
    """Columns or expressions that it is of. The first one is its value."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of the function, as ``Aggregation`` has them."""
    ours: Callable[[tuple[str, ...]], Aggregate] | None = None
    """Makes one that the engine does not compute, of the names of its columns."""
    condition: Any = None
    name: str | None = None
    said: tuple[str, tuple[Any, ...]] | None = None
    """The result has Spark's type, and Spark's name where the user gives none: this text, with the names of these columns put in. None: it is an aggregate of our own."""

    def __repr__(self) -> str:
        """The call, without its filter and its name."""
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    @property
    def kind(self) -> str:
        return self.function

    def where(self, condition: Any) -> AggregateCall:
        """Only of rows for which the expression, the boolean column of this name, or the condition in SQL (``"n > 3"``, as in
        :meth:`DataStream.filter`) is true (null is not true)."""
        if self.condition is not None:
            raise UsageError(f"{self.function} has a filter already.", hint="Write where(one & other).")
        if condition is None or (isinstance(condition, str) and not condition.strip()):
            raise UsageError("where() wants a condition.", hint='Write agg.count().where(col("n") > 3).')
        return replace(self, condition=condition)

    def over(self, window: Any) -> Column:
        """The aggregate over a window, as a Column for ``select`` and ``withColumn``: ``F.sum("n").over(window.partitionBy("k").orderBy("t"))``.
        Only aggregates of ``firesteel.functions`` have it. Raises UsageError."""
        if self.said is None or self.ours is not None or self.condition is not None or self.name is not None:
            raise UsageError(
                f"{self.function} is not taken over a window.",
                hint='Write F.sum("n").over(...), after from firesteel import functions as F.',
            )
        return Column(Expr("WindowOf", {"function": self, "spec": window}))

    def spoken(self, rows: Resolved) -> str:
        """Spark's name for it. Raises UsageError."""
        text, columns = self.said or ("{}", ())
        return text.format(", ".join(rows.part_name(one) if isinstance(one, Column) else str(one) for one in columns))

    def alias(self, name: str) -> AggregateCall:
        """Under this name: ``aggregate(agg.sum("n").alias("total"))`` is ``aggregate(total=agg.sum("n"))``."""
        return replace(self, name=name)


def sum(column: Any) -> AggregateCall:
    """int64, uint64, float64, decimal(38, scale) or a duration; null of no values. One that does not fit is an error."""
    return AggregateCall("sum", (column,))


def min(column: Any) -> AggregateCall:
    """The smallest value; null of none. NaN is the largest number."""
    return AggregateCall("min", (column,))


def max(column: Any) -> AggregateCall:
    """The largest value; null of none. NaN is the largest number."""
    return AggregateCall("max", (column,))


def mean(column: Any) -> AggregateCall:
    """A double, of decimals too; null of no values."""
    return AggregateCall("mean", (column,))


def count(column: Any = "*") -> AggregateCall:
    """The number of rows, or of values that are not null."""
    return AggregateCall("count", () if isinstance(column, str) and column == "*" else (column,))


def count_if(condition: Any) -> AggregateCall:
    """The number of rows for which the expression is true: ``count().where(condition)``."""
    return count().where(condition)


def count_distinct(column: Any) -> AggregateCall:
    """The number of different values that are not null; NaN is one."""
    return AggregateCall("count_distinct", (column,))


def bool_and(column: Any) -> AggregateCall:
    """True where no value is false; null of no values. PySpark's ``every``."""
    return AggregateCall("bool_and", (column,))


def bool_or(column: Any) -> AggregateCall:
    """True where a value is true; null of no values. PySpark's ``some``."""
    return AggregateCall("bool_or", (column,))


def bit_and(column: Any) -> AggregateCall:
    """The bits that all integers have; null of none."""
    return AggregateCall("bit_and", (column,))


def bit_or(column: Any) -> AggregateCall:
    """The bits that any of the integers has; null of none."""
    return AggregateCall("bit_or", (column,))


def bit_xor(column: Any) -> AggregateCall:
    """The bits that an odd number of the integers has; null of none."""
    return AggregateCall("bit_xor", (column,))


def var_samp(column: Any) -> AggregateCall:
    """The sample's variance, a double; null of fewer than two values."""
    return AggregateCall("var_samp", (column,))


def var_pop(column: Any) -> AggregateCall:
    """The population's variance, a double; null of no values."""
    return AggregateCall("var_pop", (column,))


def stddev_samp(column: Any) -> AggregateCall:
    """The sample's standard deviation, a double; null of fewer than two values."""
    return AggregateCall("stddev_samp", (column,))


def stddev_pop(column: Any) -> AggregateCall:
    """The population's standard deviation, a double; null of no values."""
    return AggregateCall("stddev_pop", (column,))


def variance(column: Any) -> AggregateCall:
    """PySpark's name of :func:`var_samp`."""
    return var_samp(column)


def stddev(column: Any) -> AggregateCall:
    """PySpark's name of :func:`stddev_samp`."""
    return stddev_samp(column)


def covar_samp(one: Any, other: Any) -> AggregateCall:
    """The sample's covariance, a double, of rows in which both have a value; null of fewer than two."""
    return AggregateCall("covar_samp", (one, other))


def covar_pop(one: Any, other: Any) -> AggregateCall:
    """The population's covariance, a double, of rows in which both have a value; null of none."""
    return AggregateCall("covar_pop", (one, other))


def corr(one: Any, other: Any) -> AggregateCall:
    """Pearson's correlation, a double, of rows in which both have a value; null of fewer than two, NaN where one does not vary."""
    return AggregateCall("corr", (one, other))


def first(column: Any, *, order_by: Any, ignore_nulls: bool = False) -> AggregateCall:
    """The value in the first row of the group, in this order; null if it is null there.

    ``order_by``: a column, ``(column, ascending)``, or a list of these. Nulls come first, and last in a descending order; NaN is the
    largest number. Of rows that are equal in the order it is the smallest value, so that it does not depend on which row came
    first. ``ignore_nulls``: of the rows with a value only.
    """
    return _picked("first", column, order_by, ignore_nulls)


def last(column: Any, *, order_by: Any, ignore_nulls: bool = False) -> AggregateCall:
    """As :func:`first`, of the last row."""
    return _picked("last", column, order_by, ignore_nulls)


def any_value(column: Any) -> AggregateCall:
    """A value that is not null, if there is one: the smallest, so that it is the same whenever the rows are."""
    return AggregateCall("any_value", (column,), {"ascending": (), "known": (0,)})


def max_by(column: Any, order: Any) -> AggregateCall:
    """The value in the row where ``order`` is largest. Rows where it is null do not count; of equal ones: the smallest value."""
    return _by("max_by", column, order)


def min_by(column: Any, order: Any) -> AggregateCall:
    """The value in the row where ``order`` is smallest. Rows where it is null do not count; of equal ones: the smallest value."""
    return _by("min_by", column, order)


def collect_list(column: Any, *, order_by: Any = None) -> AggregateCall:
    """A list of all values that are not null, empty of none; in this order (as for :func:`first`), else in none that is fixed.

    A group's list must fit into its task's memory.
    """
    order = _order(order_by, "collect_list") if order_by is not None else ()
    given = {"order": bool(order), "ascending": tuple(up for _, up in order), "unique": False}
    return AggregateCall("collect_list", (column, *(by for by, _ in order)), given)


def collect_set(column: Any, *, sort: bool = False) -> AggregateCall:
    """A list of the different values that are not null, empty of none; NaN is one. ``sort``: in their order, else in none that
    means anything."""
    return AggregateCall("collect_set", (column,), {"ascending": (), "unique": True, "sort": sort})


def percentile(column: Any, fractions: Any) -> AggregateCall:
    """The exact percentile, a double: ``percentile("x", 0.5)``; between two values what lies between them, as in Spark.

    Several at once are a list: ``percentile("x", [0.5, 0.99])``. Null of no values. What is kept of a group is each different value
    with its number; for groups of very many there is :func:`percentile_approx`.
    """
    shares, listed = _fractions(fractions, "percentile")
    return AggregateCall("percentile", (column,), {"fractions": shares, "listed": listed})


def median(column: Any) -> AggregateCall:
    """The exact median, a double: ``percentile(column, 0.5)``."""
    return AggregateCall("median", (column,), {"fractions": (0.5,), "listed": False})


def percentile_approx(column: Any, fractions: Any, *, compression: int = 200) -> AggregateCall:
    """About the percentile, a double (several: a list), from a t-digest of some ``compression`` numbers a group.

    Exact of up to so many values, and at 0 and 1. The rank is wrong by about ``1 / compression`` in the middle and by much less near
    the ends. Unlike Spark's it lies between values, and is a double of integers too.
    """
    shares, listed = _fractions(fractions, "percentile_approx")
    require_count(compression, "The compression of percentile_approx", 20)
    return _ours(
        "percentile_approx", (column,), lambda names: ApproximatePercentile(names[0], shares, listed, compression)
    )


def approx_count_distinct(column: Any, rsd: float = 0.05) -> AggregateCall:
    """About the number of different values, with this relative standard deviation, from a sketch (HyperLogLog) of at most 2 KB a
    group (``rsd=0.01``: 64 KB)."""
    if not isinstance(rsd, float) or not LEAST_ERROR <= rsd <= MOST_ERROR:
        raise UsageError(
            f"rsd must be a number from {LEAST_ERROR} to {MOST_ERROR}, not {rsd!r}.",
            hint="For the exact number there is count_distinct.",
        )
    return _ours("approx_count_distinct", (column,), lambda names: ApproximateDistinct(names[0], rsd))


def mode(column: Any) -> AggregateCall:
    """The commonest value, of several the smallest; null of none."""
    return AggregateCall("mode", (column,))


def histogram(column: Any, edges: Iterable[Any]) -> AggregateCall:
    """The number of values in each bin between two edges, a list: ``histogram("x", [0, 10, 100])`` counts those from 0 below 10, and
    from 10 to 100. NaN, null and values outside are in none."""
    given = tuple(edges)
    numbers = all(isinstance(edge, int | float) and not math.isnan(edge) for edge in given)
    if len(given) < 2 or not numbers or any(a >= b for a, b in itertools.pairwise(given)):
        raise UsageError(
            f"histogram wants at least two ascending edges, not {list(given)!r}.",
            hint='Write agg.histogram("x", [0, 10, 100]).',
        )
    shares = tuple(map(float, given))
    return AggregateCall("histogram", (column,), {"edges": shares})


def user(aggregate: Any, *columns: Any, type: Any) -> AggregateCall:
    """An aggregate of your own: an object with four methods, and the type of its result (``"double"``, ``"array<bigint>"``).

    ``create()`` returns the state of no rows; ``update(state, batch)`` the state with a ``pyarrow.RecordBatch`` of rows of one group, which has
    ``columns`` under their names (expressions: ``_0``, ``_1``, ... by their place); ``merge(state, other)`` that of both; ``finish(state)`` the result, a
    Python value. Rows are folded before the exchange, in no order that is fixed, so ``merge`` must be associative and
    commutative. States are pickled. Nulls are in the batches.
    """
    check_user_aggregate(aggregate)
    if not columns:
        raise UsageError("agg.user wants the columns that are given to update().", hint='Write agg.user(a, "x", ...).')
    result = _result_type(type)
    labels = tuple(c if isinstance(c, str) else f"_{place}" for place, c in enumerate(columns))
    twice = named_twice(labels)
    if twice is not None:
        raise UsageError(f"agg.user is given the column '{twice}' twice.", hint="Name it once.")
    return _ours(_class_name(aggregate), columns, lambda names: Users(aggregate, names, labels, result))


# --- parts ----------------------------------------------------------------------------------------------------------


def _ours(function: str, arguments: Iterable[Any], make: Callable[[tuple[str, ...]], Aggregate]) -> AggregateCall:
    return AggregateCall(function, tuple(arguments), ours=make)


def _picked(kind: str, column: Any, order_by: Any, ignore_nulls: bool) -> AggregateCall:
    order = _order(order_by, kind)
    ascending = tuple(up == (kind == "first") for _, up in order)
    known = (len(order),) if ignore_nulls else ()
    return AggregateCall(kind, (column, *(by for by, _ in order)), {"ascending": ascending, "known": known})


def _by(kind: str, column: Any, order: Any) -> AggregateCall:
    return AggregateCall(kind, (column, order), {"ascending": (kind == "min_by",), "known": (0,)})


def _order(order_by: Any, function: str) -> tuple[tuple[Any, bool], ...]:
    given = cast(list[Any], order_by) if isinstance(order_by, list) else [order_by]
    order = [by if isinstance(by, tuple) else (by, True) for by in given]
    for by in order:
        if len(by) != 2 or not isinstance(by[1], bool):
            raise UsageError(
                f"{function} cannot order by {by!r}.",
                hint='Write order_by="t", or order_by=[("t", False), "n"] (False: descending).',
            )
    if not order or order_by is None:
        raise UsageError(f"{function} wants the columns to order by.", hint=f'Write agg.{function}("x", order_by="t").')
    return tuple(order)


def _fractions(given: Any, function: str) -> tuple[tuple[float, ...], bool]:
    listed = isinstance(given, list | tuple)
    shares = tuple(cast(Sequence[Any], given)) if listed else (given,)
    if not shares or any(
        isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1 for share in shares
    ):
        raise UsageError(
            f"{function} wants a number from 0 to 1, or a list of them, not {given!r}.",
            hint=f'Write agg.{function}("x", 0.5).',
        )
    return tuple(map(float, shares)), listed


def _result_type(given: Any) -> pa.DataType:
    if isinstance(given, str):
        schema = to_schema(f"x {given}")
        given = schema.field(0).type if len(schema) == 1 else None
    if not isinstance(given, pa.DataType):
        raise UsageError(
            "agg.user wants the type of its result.",
            hint='Write type="double", or a type of pyarrow: type=pa.float64().',
        )
    return given


def _class_name(aggregate: Any) -> str:
    return aggregate.__class__.__name__


if not TYPE_CHECKING:  # for the type checker an unknown name stays an error

    def __getattr__(name: str) -> Any:
        raise no_such_function(
            "agg", name, __all__, "agg.__all__ lists the aggregates. An aggregate of your own is agg.user(...)."
        )
