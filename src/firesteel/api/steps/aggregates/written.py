"""The aggregates that users give to ``aggregate``: mappings of names to functions, the calls of ``firesteel.agg``, aggregates of PySpark."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.column import Column, named
from firesteel.api.column import column as as_column
from firesteel.api.resolved import Resolved
from firesteel.api.steps import window
from firesteel.api.steps.aggregates import agg
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.functions import ROWS, Aggregation
from firesteel.api.steps.common import unused_name
from firesteel.api.steps.projection import Computed, expression_of, projected
from firesteel.api.steps.spark_columns import aggregation, is_spark_column
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.plan.expr import same, walk
from firesteel.task.expressions import column, plain_column
from firesteel.task.operators.relational import check_filter, unknown_column

NAMED = (
    "sum", "min", "max", "count", "mean", "count_distinct", "any_value", "approx_count_distinct", "bit_and", "bit_or",
    "bit_xor", "bool_and", "bool_or", "collect_list", "collect_set", "median", "mode", "stddev", "stddev_pop",
    "stddev_samp", "var_pop", "var_samp", "variance", *window.OF_GROUPS,
)  # fmt: skip
"""Functions that want nothing but one column."""
_SPARKS = {"mean": "avg", "average": "avg", "std": "stddev", "size": "count"}
"""What PySpark's ``agg`` makes of a function's name."""
_ELSEWHERE = {"avg": "mean", "every": "bool_and", "some": "bool_or", "std": "stddev", "countDistinct": "count_distinct"}


def calls(
    given: Sequence[Any], named: Mapping[str, Any], kind: str, schema: pa.Schema
) -> list[tuple[str, AggregateCall]]:
    """The aggregates with the names of their columns. Raises UsageError.

    ``{"n": "sum"}`` (n becomes the sum of n), ``{"total": ("n", "sum")}``, ``{"n": ["min", "max"]}`` (n_min, n_max), ``{"total": agg.sum("n")}``,
    ``agg.sum("n").alias("total")``, or aggregates of PySpark that can be translated. ``schema``: of the rows.
    """
    found: list[tuple[str, AggregateCall]] = []
    for one in map(_of_groups, (*given, named)):
        if isinstance(one, AggregateCall):
            found.append((_own_name(one, schema), one))
        elif is_spark_column(one):
            found.append(aggregation(one, kind, schema))
        elif isinstance(one, Mapping):
            for output, what in cast(Mapping[str, Any], one).items():
                found += [aggregation(what, kind, schema, output)] if is_spark_column(what) else _of(output, what)
        else:
            raise UsageError(
                f"{kind} wants a mapping of output columns to functions, not {one!r}.",
                hint='Write {"n": "sum"}, total=agg.sum("n") or total=agg.first("n", order_by="t").',
            )
    if not found:
        raise UsageError(
            f"{kind} has nothing to aggregate.", hint='Write {"n": "sum"}, or distinct() for the keys alone.'
        )
    twice = named_twice(output for output, _ in found)
    if twice is not None:
        raise UsageError(f"{kind} makes the column '{twice}' twice.", hint="Give one of them another name.")
    return found


def with_sparks_names(given: Sequence[Any]) -> list[Any]:
    """The aggregates, those of dicts of columns to functions under the names that PySpark's ``agg`` gives them."""
    found: list[Any] = []
    for one in given:
        if isinstance(one, Mapping) and all(isinstance(what, str) for what in cast(Mapping[str, Any], one).values()):
            for column, function in cast(Mapping[str, str], one).items():
                spoken = _SPARKS.get(function, function)
                call = call_of(_ELSEWHERE.get(spoken, spoken), column)
                found.append(replace(call, said=(f"{spoken}({{}})", ("1" if column == ROWS else column,))))
        else:
            found.append(one)
    return found


def _own_name(call: AggregateCall, schema: pa.Schema) -> str:
    if call.name is not None:
        return call.name
    if call.said is not None:
        return call.spoken(Resolved.of(schema))
    value = call.arguments[0] if call.arguments else None
    if isinstance(value, str):
        return f"{value}_{call.function}"
    if value is None:
        return call.function
    raise UsageError(
        f"{call.function} of an expression has no name.", hint="Write aggregate(name=...), or add alias(name)."
    )


def _of_groups(what: Any) -> Any:
    return what.of_groups() if isinstance(what, window.WindowFunction) else what


def _of(output: str, what: Any) -> list[tuple[str, AggregateCall]]:
    what = _of_groups(what)
    if isinstance(what, AggregateCall):
        return [(output, what)]
    if isinstance(what, str):
        return [(output, call_of(what, output))]
    if isinstance(what, list) and all(isinstance(function, str) for function in what):
        return [(f"{output}_{function}", call_of(function, output)) for function in what]
    if isinstance(what, tuple) and len(what) == 2 and all(isinstance(part, str) for part in what):
        return [(output, call_of(what[1], what[0]))]
    raise UsageError(
        f"The aggregation {output!r}: {what!r} cannot be understood.",
        hint='Write {"n": "sum"}, {"total": ("n", "sum")}, {"n": ["min", "max"]} or {"total": agg.sum("n")}.',
    )


def call_of(function: str, of: str) -> AggregateCall:
    """The aggregate of this name of a column (``*``: of rows). Raises UsageError."""
    if function not in NAMED:
        raise _unknown(function)
    if of == ROWS and function != "count":
        raise UsageError(f"Only count can be of all rows, not {function}.", hint="Name a column.")
    return _of_groups(getattr(window if function in window.OF_GROUPS else agg, function)(of))


def _unknown(function: str) -> UsageError:
    if function in agg.__all__:
        hint = f"It wants more than a column: write agg.{function}(...), after from firesteel import agg."
        return UsageError(f"The aggregate function '{function}' cannot be given by its name alone.", hint=hint)
    close = [_ELSEWHERE[function]] if function in _ELSEWHERE else difflib.get_close_matches(function, NAMED, n=1)
    guess = f"Did you mean '{close[0]}'? " if close else ""
    return UsageError(
        f"There is no aggregate function '{function}'.",
        hint=f"{guess}There are {', '.join(NAMED)}, and those of firesteel.agg.",
    )


# --- columns that must be computed before ---------------------------------------------------------------------------


@dataclass(slots=True)
class Prepared:
    """``aggregations`` over the columns of the rows and those that are ``computed`` of them before."""

    aggregations: list[Aggregation] = field(default_factory=list)
    computed: dict[str, Computed] = field(default_factory=dict)


def prepared(
    calls: Sequence[tuple[str, AggregateCall]], schema: pa.Schema, kind: str, shadowed: Collection[str] = ()
) -> Prepared:
    """The calls over rows of ``schema``. ``shadowed``: columns that have other values by the time the rows are aggregated, so that
    copies are made of them. Raises UsageError."""
    made = Prepared()
    columns = _Columns(schema, kind, shadowed, made.computed)
    for output, call in calls:
        names = tuple(columns.name(argument, call.function) for argument in call.arguments)
        sparks = call.said is not None and call.function in ("sum", "mean")
        names = (columns.number(names[0], call),) if sparks else names
        where = columns.condition(call.condition) if call.condition is not None else None
        ours = None if call.ours is None else call.ours(names)
        made.aggregations.append(Aggregation(call.function, names, output, where, call.given, ours, sparks))
    return made


class _Columns:
    """Names for the arguments of aggregates; expressions get one of their own, equal ones the same."""

    def __init__(self, schema: pa.Schema, kind: str, shadowed: Collection[str], computed: dict[str, Computed]) -> None:
        self._schema, self._kind, self._shadowed, self._computed = schema, kind, shadowed, computed
        self._known: set[str] = set(schema.names)
        self._by_text: dict[str, list[str]] = {}

    def name(self, argument: Any, function: str) -> str:
        plain, expression = argument, None
        if not isinstance(argument, str):
            expression = expression_of(self._schema, argument, self._kind)
            plain = None if isinstance(expression, Column) else plain_column(expression, self._schema)
        elif argument not in self._known:
            raise unknown_column(self._schema, argument, function)
        if plain is not None and plain not in self._shadowed:
            return plain
        return self._named(column(argument) if expression is None else expression)

    def number(self, name: str, call: AggregateCall) -> str:
        """The column, or a text as a double. Raises UsageError for a column whose sum or mean has another type in Spark."""
        kind = self._schema.field(name).type if name in self._known else self._type(self._computed[name])
        if pa.types.is_string(kind):
            return self._named(
                (as_column(self._computed[name]) if name in self._computed else named(name)).cast("double")
            )
        if not (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)):
            raise UsageError(
                f"{_own_name(call, self._schema)} is not computed here: of {kind} Spark's has another type.",
                hint=f"Cast the column to double, or write agg.{call.function}(...), after from firesteel import agg.",
            )
        return name

    def _type(self, expression: Computed) -> pa.DataType:
        return projected(self._schema, [("x", expression)]).field(0).type

    def condition(self, condition: Any) -> str:
        expression = expression_of(self._schema, condition, self._kind)
        if isinstance(expression, Column):
            kind = self._type(expression)
            if not pa.types.is_boolean(kind):
                raise UsageError(
                    f"A filter must be true or false, but {expression} is {kind}.", hint="Compare it with something."
                )
            return self._named(expression)
        check_filter(self._schema, expression)
        return self._named(expression.cast(pa.bool_()))

    def _named(self, expression: Computed) -> str:
        alike = self._by_text.setdefault(str(expression), [])
        for name in alike:
            if same_expression(self._computed[name], expression):
                return name
        name = unused_name(f"__computed{len(self._computed)}", self._schema.names)
        self._computed[name] = expression
        alike.append(name)
        return name


def same_expression(one: Computed, other: Computed) -> bool:
    if isinstance(one, pc.Expression) and isinstance(other, pc.Expression):
        return one.equals(other)
    if not (isinstance(one, Column) and isinstance(other, Column)):
        return False
    return all(node.cls != "Arrow" for node in walk(one.tree)) and same(one.tree) == same(other.tree)


def with_condition(call: AggregateCall, condition: pc.Expression, schema: pa.Schema, kind: str) -> AggregateCall:
    """The call with one more condition."""
    if call.condition is None:
        return call.where(condition)
    own = expression_of(schema, call.condition, kind)
    return replace(call, condition=own & condition if isinstance(own, pc.Expression) else own & as_column(condition))
