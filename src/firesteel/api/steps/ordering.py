"""Rows in order over the whole stream, rows parted by ranges of their keys, and the first rows. No pass over the data is made
to sample it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api import column as expressions
from firesteel.api.steps.common import check_order, flat, require_count, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.projection import chosen, with_expressions
from firesteel.api.steps.spark_columns import ordering
from firesteel.compile import nodes
from firesteel.compile.relations import groups
from firesteel.compile.stream_graph import ChainedStep
from firesteel.engine.convert import opaque
from firesteel.errors import UsageError
from firesteel.humanize import check_once, plural
from firesteel.model.order import Order, OrderColumn
from firesteel.plan import relation as plan
from firesteel.results.order.ordering import can_order
from firesteel.task.expressions import plain_column
from firesteel.task.operators.fragments import SqlFragment
from firesteel.task.operators.relational import as_expression, check_columns
from firesteel.task.passing import Passing

Column = str | tuple[str, bool] | pc.Expression | expressions.Column
Directions = bool | Sequence[bool]


def sort(pipeline: Pipeline, columns: Iterable[Any], ascending: Directions) -> Pipeline:
    with step_at("sort") as place:
        names = pipeline.names
        pipeline.refuse_sides("sort")
        pipeline, columns = with_expressions(pipeline, flat(columns), "sort", place)
        order = Order(_columns(pipeline.schema, columns, ascending, "sort"), split_equal=True)
        return _of_columns(pipeline.at(nodes.sort(pipeline.node, order, place)), "sort", names, place)


def range_partition(
    pipeline: Pipeline, columns: Iterable[Any], ascending: Directions, *, split_equal: bool = False
) -> Pipeline:
    """``split_equal``: rows of equal keys may be parted."""
    with step_at("range_partition") as place:
        names = pipeline.names
        pipeline.refuse_sides("range_partition")
        pipeline, columns = with_expressions(pipeline, flat(columns), "range_partition", place)
        order = Order(_columns(pipeline.schema, columns, ascending, "range_partition"), split_equal=split_equal)
        kind = f"range_partition({nodes.said(order)})"
        passing = ChainedStep(Passing(kind), pipeline.unchanged)
        pipeline = pipeline.at(nodes.ranged(pipeline.node, kind, passing, order, place))
        return _of_columns(pipeline, "range_partition", names, place)


def _of_columns(pipeline: Pipeline, kind: str, names: list[str], place: str) -> Pipeline:
    """Without the columns that were made for its order."""
    return pipeline if pipeline.names == names else chosen(pipeline, kind, names, place)


def limit(pipeline: Pipeline, n: int) -> Pipeline:
    with step_at("limit") as place:
        pipeline.refuse_sides(f"limit({require_count(n, 'limit()', 0)})")
        return pipeline.at(nodes.limit(pipeline.edge(), n, place))


def top_k(pipeline: Pipeline, n: int, columns: Sequence[Any], ascending: bool) -> Pipeline:
    with step_at("top_k") as place:
        kept = pipeline.names
        pipeline.refuse_sides("top_k")
        pipeline, columns = with_expressions(pipeline, flat(columns), "top_k", place)
        given = [ordering(one, "top_k") for one in columns]
        keys = tuple(c if isinstance(c, tuple) else (c, ascending) for c in given)
        names = [name for name, _ in keys]
        if not names:
            raise UsageError("top_k wants the columns to order by.", hint='Write top_k(10, "n").')
        check_order(pipeline.schema, names, "top_k")
        kind = f"top_k({require_count(n, 'top_k()', 0)}, {', '.join(names)})"
        schema = pipeline.schema
        stream = groups.stream_of(pipeline.node, schema.names, "top_k", opaque)
        known = groups.columns_of(stream, schema.names)
        order = [groups.sort_order(known[name], up, nulls_first=False) for name, up in keys]
        text = groups.text_of(plan.Limit(stream, n, 0, (*order, groups.ties(known.values()))))

        def best(name: str) -> SqlFragment:
            return SqlFragment(name, text, schema, schema, raises=False, computes=False)

        return _of_columns(pipeline.at(nodes.in_two(pipeline.edge(), kind, best, place)), "top_k", kept, place)


def _columns(schema: pa.Schema, given: Iterable[Any], ascending: Directions, step: str) -> tuple[OrderColumn, ...]:
    columns = list(given)
    if not columns:
        raise UsageError(f"{step} wants the columns to order by.", hint=f'Write {step}("n") or {step}(("n", False)).')
    directions = _directions(columns, ascending, step)
    order = tuple(_column(schema, c, d, step) for c, d in zip(columns, directions, strict=True))
    names = [column.name for column in order]
    check_columns(schema, names, step)
    check_once(names, lambda twice: f"{step} names the column '{twice}' twice.", "Leave one of them out.")
    for name in names:
        if not can_order(schema.field(name).type):
            raise UsageError(
                f"{step} cannot order by '{name}': it is {schema.field(name).type}.",
                hint="Order by numbers, booleans, dates, times, decimals, strings or binary values; with_column() can make one.",
            )
    return order


def _directions(columns: list[Any], ascending: Directions, step: str) -> list[bool]:
    one: Any = ascending
    given: list[Any] = list(one) if isinstance(one, list | tuple) else [one] * len(columns)
    if len(given) != len(columns) or not all(direction in (True, False) for direction in given):  # 1 and 0 are, too
        raise UsageError(
            f"{step} has {plural(len(columns), 'column')} and ascending={ascending!r}.",
            hint="Give True or False, or a list with one of them for each column.",
        )
    return [bool(direction) for direction in given]


def _column(schema: pa.Schema, given: Any, ascending: bool, step: str) -> OrderColumn:
    given = ordering(given, step)
    if isinstance(given, tuple):
        pair = cast(tuple[Any, ...], given)
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], bool):
            raise UsageError(
                f"{step} cannot understand the column {given!r}.", hint='Write ("name", False) for descending.'
            )
        return OrderColumn(pair[0], pair[1])
    if isinstance(given, str):
        return OrderColumn(given, ascending)
    name = plain_column(as_expression(given), schema)
    if name is None:
        raise UsageError(
            f"{step} wants column names, not the expression {given}.", hint="Make it a column first, by with_column()."
        )
    return OrderColumn(name, ascending)
