"""Rows in order over the whole stream, and rows parted by ranges of their keys. No pass over the data is made to sample it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.steps import require_count, step_at
from firesteel.api.stream_base import StreamBase
from firesteel.errors import UsageError
from firesteel.expressions import plain_column
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.stream_graph import ChainedStep, SortStep, StreamEdge, StreamNode, Work
from firesteel.humanize import plural
from firesteel.operators.passing import Passing
from firesteel.operators.relational import as_expression, check_columns
from firesteel.operators.sort import Sort
from firesteel.results.ordering import Order, OrderColumn, can_order

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream

Column = str | tuple[str, bool] | pc.Expression
Directions = bool | Sequence[bool]


class Ordering(StreamBase):
    """Steps that put rows in order."""

    def sort(self, *columns: Column | list[Column], ascending: Directions = True) -> DataStream:
        """All rows in the order of these columns, over all subtasks: the rows of subtask k come before those of k + 1.

        A column may be given with its own direction, ``("name", False)`` for descending; ``ascending`` may be a list, one
        for each column. As in Spark: nulls come first, and last in a descending column; NaN is greater than all numbers.
        Equal rows keep the order in which they were written: by producer, then as they came. The order holds for the steps
        that are chained behind it, up to the next exchange, for ``collect`` and for the files of a sink, in the order of
        their names; ``sort().limit(n)`` gives the first n.
        """
        with step_at("sort") as place:
            order = Order(_columns(self.schema, columns, ascending, "sort"), split_equal=True)
            kind = f"sort({', '.join(_said(order))})"
            return self._ranged(kind, SortStep(Sort(kind, order)), order, place)

    orderBy = order_by = sort  # noqa: N815

    def range_partition(self, *columns: Column | list[Column], ascending: Directions = True) -> DataStream:
        """Brings rows with neighbouring values of these columns together: each subtask gets a range of them, all rows with
        equal values in one. Within a subtask there is no order. How many ranges there are is decided from their bytes;
        ``set_parallelism`` on it sets the number.
        """
        with step_at("range_partition") as place:
            order = Order(_columns(self.schema, columns, ascending, "range_partition"))
            kind = f"range_partition({', '.join(_said(order))})"
            work = ChainedStep(Passing(kind), {name: name for name in self.schema.names})
            return self._ranged(kind, work, order, place)

    def repartition_by_range(self, number: int | Column, *columns: Column) -> DataStream:
        """PySpark's ``repartitionByRange``: :meth:`range_partition`, with the number of ranges before the columns if it is set."""
        if isinstance(number, int):
            with step_at("repartition_by_range"):
                n = require_count(number, "the number of ranges", 1)
            return self._partitioned(None).range_partition(*columns).set_parallelism(n)
        return self._partitioned(None).range_partition(number, *columns)

    repartitionByRange = repartition_by_range  # noqa: N815

    def _ranged(self, kind: str, work: Work, order: Order, place: str) -> DataStream:
        self._refuse_sides(kind)
        edge = StreamEdge(self._node, ShipStrategy.RANGE, order.names, order=order)
        return self._stream(StreamNode(kind, work, self.schema, (edge,), place=place))


def _columns(schema: pa.Schema, given: Iterable[Any], ascending: Directions, step: str) -> tuple[OrderColumn, ...]:
    flat: list[Any] = []
    for column in given:
        flat += cast(list[Any], column) if isinstance(column, list) else [column]
    if not flat:
        raise UsageError(f"{step} wants the columns to order by.", hint=f'Write {step}("n") or {step}(("n", False)).')
    directions = _directions(flat, ascending, step)
    columns = tuple(_column(schema, c, d, step) for c, d in zip(flat, directions, strict=True))
    names = [column.name for column in columns]
    check_columns(schema, names, step)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{step} names the column '{twice}' twice.", hint="Leave one of them out.")
    for name in names:
        if not can_order(schema.field(name).type):
            raise UsageError(
                f"{step} cannot order by '{name}': it is {schema.field(name).type}.",
                hint="Order by numbers, booleans, dates, times, decimals, strings or binary values; with_column() can make one.",
            )
    return columns


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


def _said(order: Order) -> list[str]:
    return [column.name if column.ascending else f"{column.name} descending" for column in order.columns]
