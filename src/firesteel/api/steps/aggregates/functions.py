"""What each aggregate takes and gives, and what it is in a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.plan.expr import Expr
from firesteel.plan.types import type_of
from firesteel.results.keys import normal_type
from firesteel.task.operators.aggregation.aggregate import Aggregate, is_number, plain_type, require
from firesteel.task.operators.relational import aggregate_type, check_columns, order_type, unknown_column

ROWS = "*"
"""``count`` of this counts rows."""
_types = pa.types


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``function`` of ``columns`` (``count`` of none: of rows) as column ``output``, of rows where the column ``where`` is true.

    SQL's nulls: they are not counted, summed or compared; a sum, mean, least or largest value of none is null. Of floats NaN is the
    largest value and one distinct value, as in Spark. Sums: int64, uint64, float64, decimal(38, scale); one that does not fit raises. Means are
    float64, of decimals, too.
    """

    function: str
    columns: tuple[str, ...]
    output: str
    where: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of the function: fields of its expression."""
    ours: Aggregate | None = None
    """It is a user's, or a sketch: the engine does not compute it."""
    sparks: bool = False
    """Sums and means of decimals have Spark's types."""

    @property
    def kind(self) -> str:
        return self.function

    @property
    def reads(self) -> list[str]:
        return [*self.columns, *([] if self.where is None else [self.where])]

    @property
    def order_dependent(self) -> bool:
        """Returns whether the same rows in another order may give another result; sums of doubles, whose last digits do, are not counted."""
        return self.function == "percentile_approx" or (self.function == "collect_list" and not self.given.get("order"))


def check_aggregations(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> None:
    """Raises UsageError for unknown columns, functions that do not fit a type, output names given twice."""
    check_columns(schema, keys, "the group keys")
    twice = named_twice([*keys, *(agg.output for agg in aggs)])
    if twice is not None:
        raise UsageError(
            f"The output column '{twice}' of an aggregation occurs twice.", hint="Give one of them another name."
        )
    for agg in aggs:
        for name in agg.columns:
            if schema.get_field_index(name) < 0:
                raise unknown_column(schema, name, agg.function)
        output_type(agg, schema)


def output_type(agg: Aggregation, schema: pa.Schema) -> pa.DataType:
    """Raises UsageError where the function does not fit the types of its columns."""
    return agg.ours.type(schema) if agg.ours is not None else _RULES[agg.function](agg, schema)[0]


def call_of(agg: Aggregation, schema: pa.Schema, columns: Mapping[str, Expr]) -> Expr:
    """The aggregate as an expression of a plan. ``columns``: those of the rows, by name."""
    kind, cls, inner = _RULES[agg.function](agg, schema)
    of = [columns[name] for name in agg.columns]
    fields: dict[str, Any] = {"children": of, "child": of[0] if of else None, **agg.given}
    if cls in ("Picked", "Listed"):
        fields["order"] = of[1:]
    if cls == "Sum":
        fields["said"] = agg.columns[0]
    if cls == "Only":
        name = f"agg.{agg.function}(..., order_by=...)"
        fields["said"] = (
            f"{agg.function} as column '{agg.output}' finds several values in a group, whose rows have no order. Write {name}, or any_value(...)"
        )
    if cls == "Average" and _types.is_decimal(kind):
        fields["mean"] = type_of(kind)
    if cls == "Moments":
        fields["kind"] = agg.function
    function = Expr(cls, fields, type_of(kind if inner is None else inner))
    where = None if agg.where is None else columns[agg.where]
    return Expr(
        "AggregateExpression",
        {"aggregateFunction": function, "isDistinct": agg.function == "count_distinct", "filter": where},
        type_of(kind),
    )


# --- a rule for each ----------------------------------------------------------------------------------------------------

Made = tuple[pa.DataType, str, pa.DataType | None]
"""The type of the result, the class of the expression, and the type of what it is made of, if that is another."""
Rule = Callable[[Aggregation, pa.Schema], Made]


def _plain(agg: Aggregation, schema: pa.Schema) -> pa.DataType:
    return plain_type(schema.field(agg.columns[0]).type)


def _refused(agg: Aggregation, schema: pa.Schema) -> UsageError:
    if not agg.columns:
        return UsageError(f"Only count can be of all rows, not {agg.function}.", hint="Name a column.")
    return UsageError(
        f"{agg.function} does not work on column '{agg.columns[0]}' of type {_plain(agg, schema)}.",
        hint="Cast the column, or choose another function.",
    )


def _count(agg: Aggregation, schema: pa.Schema) -> Made:
    return pa.int64(), "Count", None


def _distinct(agg: Aggregation, schema: pa.Schema) -> Made:
    if not agg.columns:
        raise _refused(agg, schema)
    normal_type(_plain(agg, schema))
    return pa.int64(), "Count", None


def _sum(agg: Aggregation, schema: pa.Schema) -> Made:
    type_ = _typed(agg, schema)
    if agg.sparks and _types.is_decimal128(type_):
        type_ = _wider(_plain(agg, schema), 10, 0)
    return type_, "Sum", pa.int64() if _types.is_duration(type_) else None


def _mean(agg: Aggregation, schema: pa.Schema) -> Made:
    type_, plain = _typed(agg, schema), _plain(agg, schema)
    if agg.sparks and _types.is_decimal128(plain):
        return _wider(plain, 4, 4), "Average", _wider(plain, 10, 0)
    return type_, "Average", aggregate_type("sum", agg.columns[0], schema) if _types.is_decimal(plain) else pa.float64()


def _wider(type_: pa.DataType, digits: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(type_.precision + digits, 38), min(type_.scale + scale, 38))


def _extreme(agg: Aggregation, schema: pa.Schema) -> Made:
    return _typed(agg, schema), agg.function.capitalize(), None


def _typed(agg: Aggregation, schema: pa.Schema) -> pa.DataType:
    if not agg.columns:
        raise _refused(agg, schema)
    return aggregate_type(agg.function, agg.columns[0], schema)


def _booleans(cls: str) -> Rule:
    def rule(agg: Aggregation, schema: pa.Schema) -> Made:
        if not agg.columns or not _types.is_boolean(_plain(agg, schema)):
            raise _refused(agg, schema)
        return pa.bool_(), cls, None

    return rule


def _has_order(type_: pa.DataType) -> bool:
    return order_type(type_) is not None


def _bits(cls: str) -> Rule:
    def rule(agg: Aggregation, schema: pa.Schema) -> Made:
        type_ = _plain(agg, schema)
        require(_types.is_integer(type_), agg.function, agg.columns[0], schema, "whole numbers")
        return type_, cls, None

    return rule


def _of_numbers(cls: str) -> Rule:
    """A double of numbers; several: a list."""

    def rule(agg: Aggregation, schema: pa.Schema) -> Made:
        for column in agg.columns:
            require(is_number(plain_type(schema.field(column).type)), agg.function, column, schema, "numbers")
        return pa.list_(pa.float64()) if agg.given.get("listed") else pa.float64(), cls, None

    return rule


def _bins(agg: Aggregation, schema: pa.Schema) -> Made:
    require(is_number(_plain(agg, schema)), "histogram", agg.columns[0], schema, "numbers")
    return pa.list_(pa.int64()), "Bins", None


def _mode(agg: Aggregation, schema: pa.Schema) -> Made:
    require(_has_order(_plain(agg, schema)), "mode", agg.columns[0], schema, "values that have an order")
    return _plain(agg, schema), "Mode", None


def _picked(agg: Aggregation, schema: pa.Schema) -> Made:
    _check_order(agg, schema)
    return _plain(agg, schema), "Only" if agg.given.get("only") else "Picked", None


def _listed(agg: Aggregation, schema: pa.Schema) -> Made:
    _check_order(agg, schema)
    type_ = _plain(agg, schema)
    if agg.function == "collect_set":
        fits = _has_order(type_) or not agg.given["sort"]
        require(fits, "collect_set(sort=True)", agg.columns[0], schema, "values that have an order")
        normal_type(type_)
    return pa.list_(type_), "Listed", None


def _check_order(agg: Aggregation, schema: pa.Schema) -> None:
    for name in agg.columns[1:]:
        fits = _has_order(schema.field(name).type)
        require(fits, f"The order of {agg.function}", name, schema, "values that have an order")


_MOMENTS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "covar_samp", "covar_pop", "corr")
_PICKS = ("first", "last", "max_by", "min_by", "any_value")
_RULES: dict[str, Rule] = {
    "count": _count,
    "count_distinct": _distinct,
    "sum": _sum,
    "mean": _mean,
    "min": _extreme,
    "max": _extreme,
    "bool_and": _booleans("Min"),
    "bool_or": _booleans("Max"),
    "bit_and": _bits("BitAndAgg"),
    "bit_or": _bits("BitOrAgg"),
    "bit_xor": _bits("BitXorAgg"),
    **dict.fromkeys(_MOMENTS, _of_numbers("Moments")),
    "percentile": _of_numbers("Percentile"),
    "median": _of_numbers("Percentile"),
    "histogram": _bins,
    "mode": _mode,
    **dict.fromkeys(_PICKS, _picked),
    "collect_list": _listed,
    "collect_set": _listed,
}
