"""``firesteel.functions``: expressions under the names of ``pyspark.sql.functions`` and with Spark's meaning, without Spark.

``from firesteel import functions as F``. A text where a column is wanted names one, as in PySpark; in operators it is a constant. The functions
have PySpark's parameters. Aggregates are for ``agg``: ``groupBy("k").agg(F.sum("n"))`` has a column ``sum(n)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from inspect import Parameter, Signature, signature
from itertools import count as numbers
from typing import Any

import pyarrow.compute as pc

from firesteel.api.column import Column, column, named
from firesteel.api.steps import window
from firesteel.api.steps.aggregates import agg
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.spark_columns import AGGREGATES
from firesteel.api.unknown_names import no_such_function
from firesteel.errors import UsageError
from firesteel.plan.analysis import call
from firesteel.plan.expr import Expr
from firesteel.plan.functions import FUNCTIONS, Function


def col(col: str) -> Column:
    """A column by its name, or a field of a struct: ``col("address.city")``."""
    if not isinstance(col, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"col() wants a column name, not {col!r}.", hint="For a constant write lit(value).")
    return named(col)


def lit(col: Any) -> Column:
    """A constant, of the type that Spark gives it: a whole number is an int where it fits."""
    return column(col)


def when(condition: Any, value: Any) -> Column:
    """``when(a, x).when(b, y).otherwise(z)``: the value of the first condition that is true; without ``otherwise`` null."""
    if not isinstance(condition, Column | pc.Expression):
        raise UsageError(f"when() wants a condition, not {condition!r}.")
    return Column(call("when", column(condition).tree, column(value).tree))


def asc(col: Any) -> Column:
    """As :meth:`Column.asc`, of a name or a column."""
    return Column(_argument(col)).asc()


def desc(col: Any) -> Column:
    """As :meth:`Column.desc`, of a name or a column."""
    return Column(_argument(col)).desc()


asc_nulls_first, desc_nulls_last = asc, desc


def _made(function: Function) -> Callable[..., Column]:
    kinds = {False: Parameter.POSITIONAL_OR_KEYWORD, True: Parameter.VAR_POSITIONAL}
    taken = Signature([
        Parameter(one.name, kinds[one.several], default=one.default[0] if one.default else Parameter.empty)
        for one in function.parameters
    ])  # fmt: skip

    def made(*args: Any, **kwargs: Any) -> Column:
        try:
            bound = taken.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{function.name}(): {error}.") from None
        given: list[Expr] = []
        for one in function.parameters:
            value = bound.arguments.get(one.name, () if one.several else None)
            if one.several:
                given += [_argument(each) for each in (value[0] if _is_list(value) else value)]
            elif one.function and value is not None:
                given.append(_lambda(value))
            elif value is not None or not one.default:
                given.append(column(value).tree if one.constant else _argument(value))
            elif one.default[0] is not None:
                given.append(column(one.default[0]).tree)
        return Column(call(function.name, *given))

    made.__name__ = made.__qualname__ = function.name
    made.__signature__ = taken  # pyright: ignore[reportFunctionMemberAccess]
    return made


def _aggregate(name: str, make: Callable[..., AggregateCall]) -> Callable[..., AggregateCall]:
    def made(*columns: Any) -> AggregateCall:
        return changed(make(*columns), said=(f"{name}({{}})", columns))

    made.__name__ = made.__qualname__ = name
    return made


def count(col: Any) -> AggregateCall:
    """The aggregate for ``agg``: values that are not null; of ``"*"`` or a constant rows."""
    if isinstance(col, Column) and col.tree.cls == "Literal" and col.tree["value"] is not None:
        return changed(agg.count(), said=("count({})", (col,)))
    return changed(agg.count(col), said=("count({})", (lit(1) if isinstance(col, str) and col == "*" else col,)))


def count_distinct(col: Any) -> AggregateCall:
    """The aggregate for ``agg``: different values that are not null."""
    return changed(agg.count_distinct(col), said=("count(DISTINCT {})", (col,)))


countDistinct = count_distinct  # noqa: N816


def any_value(col: Any, ignoreNulls: bool | None = None) -> AggregateCall:  # noqa: N803
    """The aggregate for ``agg``: one of the values. It is null if all of them are."""
    return changed(agg.any_value(col), said=("any_value({})", (col,)))


def _lambda(function: Callable[..., Any]) -> Expr:
    """A function of Columns, called with variables."""
    names = [f"{name}_{next(_numbers)}" for name in signature(function).parameters]
    variables = [Expr("UnresolvedNamedLambdaVariable", {"name": name}) for name in names]
    body = column(function(*map(Column, variables))).tree
    return Expr("LambdaFunction", {"function": body, "arguments": variables})


_numbers = numbers()


def _is_list(value: tuple[Any, ...]) -> bool:
    return len(value) == 1 and isinstance(value[0], list | tuple | set)


def _argument(value: Any) -> Expr:
    return (named(value) if isinstance(value, str) else column(value)).tree


_OTHERWISE = ("any_value", "count", "percentile", "mode", "approx_count_distinct")
"""Aggregates of Spark's trees whose arguments or names of columns are others here."""
_AGGREGATES = {
    **{name: make for name, make in AGGREGATES.items() if name not in _OTHERWISE},
    "count_if": agg.count_if,
    "mode": agg.mode,
}
"""By the names that columns get in Spark."""
_WINDOWS = (
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first",
    "last",
    "nth_value",
)
"""``F.rank().over(window.partitionBy("k").orderBy("t"))``."""
_COUNTS = ("any_value", "count", "count_distinct", "countDistinct", "mean")
_OWN = ("Column", "col", "lit", "when", "asc", "desc", "asc_nulls_first", "desc_nulls_last")
_OPERATORS = frozenset(["and", "or", "not", "in", "mod", "div", "iff"])
"""Names that Spark's trees have, and PySpark has no function for."""
_TABLE = {name: one for name, one in FUNCTIONS.items() if name.isidentifier() and name not in (*_OWN, *_OPERATORS)}
globals().update({name: _made(function) for name, function in _TABLE.items()})
globals().update({name: getattr(window, name) for name in _WINDOWS})
globals().update({name: _aggregate(name, make) for name, make in _AGGREGATES.items()})
mean = _aggregate("avg", agg.mean)
__all__ = [*_OWN, *_TABLE, *_COUNTS, *_WINDOWS, *_AGGREGATES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Callable[..., Column]:
    raise no_such_function(
        "functions", name, __all__, "A Column of pyspark.sql.functions is taken wherever one of these is."
    )
