"""Steps that call a Python function row by row: convenient, and a hundred times as dear as the same in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from firesteel.api.ddl import to_schema
from firesteel.api.steps import require_function, step_at
from firesteel.api.stream_base import StreamBase
from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.operators.batches import nullable
from firesteel.operators.reduce import Reduce, ReduceCombiner
from firesteel.operators.relational import Filter, as_expression, check_filter
from firesteel.operators.row_functions import FilterRows, FlatMapRows, MapRows
from firesteel.operators.rows import check_row_schema

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class RowSteps(StreamBase):
    """Python functions on rows. A row is a ``firesteel.Row``: ``row.word``, ``row["word"]`` or ``row[0]``."""

    def map(self, func: Callable[..., Any], schema: Any) -> DataStream:
        """One row for each row: ``func(row)`` gives a dict, a tuple in the order of ``schema``, or, where that has one
        column, its value.

        ``schema``: as for ``map_in_arrow``. Behind ``with_broadcast(small=...)`` it is called ``func(row, small=table)``.
        Called for one row after another, in batches of 10,000: ``map_in_arrow`` is many times as fast.
        """
        return self._on_rows("map", MapRows, func, schema)

    def flat_map(self, func: Callable[..., Iterable[Any]], schema: Any) -> DataStream:
        """Any number of rows for each row: ``func(row)`` gives an iterable of what :meth:`map` takes, or is a generator."""
        return self._on_rows("flat_map", FlatMapRows, func, schema)

    flatMap = flat_map  # noqa: N815

    def filter(self, condition: pc.Expression | Callable[..., Any]) -> DataStream:
        """Only the rows for which the expression, or the function of a row, is true (null and None are not true).

        An expression can be pushed into the source and is evaluated on whole batches; a function is called for every row.
        """
        with step_at("filter") as place:
            if isinstance(condition, str):
                raise UsageError(
                    f"filter wants an expression, not the string {condition!r}.",
                    hint='Write, for example, col("n") > 3.',
                )
            if callable(condition) and not isinstance(condition, pc.Expression):
                return self._filter_rows(condition, place)
            self._refuse_sides("filter")
            expression = as_expression(condition)
            check_filter(self.schema, expression)
            passed = {name: name for name in self.schema.names}
            work = ChainedStep(Filter("filter", expression), passed, None, expression)
            return self._then("filter", work, self.schema, place)

    where = filter

    def reduce(self, func: Callable[[Any, Any], Any]) -> DataStream:
        """One row of all rows, none of none: ``func(row, row)`` gives a row of the same schema, as in :meth:`map`.

        It must be associative and commutative: rows meet in no order that is fixed, first in each subtask, then all.
        See :meth:`KeyedStream.reduce`.
        """
        with step_at("reduce") as place:
            return reduce(self, (), func, place)

    def _on_rows(self, step: str, operator: type[MapRows | FlatMapRows], func: Any, schema: Any) -> DataStream:
        with step_at(step) as place:
            kind = f"{step}({require_function(func, step)})"
            out = to_schema(schema)
            check_row_schema(out)
            work = ChainedStep(operator(kind, func, out, tuple(name for name, _ in self._sides)))
            return self._then(kind, work, out, place, sides=self._sides)

    def _filter_rows(self, func: Callable[..., Any], place: str) -> DataStream:
        kind = f"filter({require_function(func, 'filter')})"
        operator = FilterRows(kind, func, self.schema, tuple(name for name, _ in self._sides))
        work = ChainedStep(operator, {name: name for name in self.schema.names})
        return self._then(kind, work, self.schema, place, sides=self._sides)


def reduce(stream: StreamBase, keys: tuple[str, ...], func: Any, place: str) -> DataStream:
    """The rows of a key folded in each task, then among all of them."""
    kind = f"reduce({require_function(func, 'reduce')})"
    schema = stream.schema
    stream._refuse_sides(kind)  # pyright: ignore[reportPrivateUsage]
    check_row_schema(schema)
    edge = StreamEdge(
        stream._node,  # pyright: ignore[reportPrivateUsage]
        ShipStrategy.HASH if keys else ShipStrategy.GLOBAL,
        keys,
        ReduceCombiner(kind, func, keys, schema),
        nullable(schema),
    )
    operator = Reduce(kind, func, keys, schema)
    node = StreamNode(kind, KeyedStep(operator, operator, (keys,), keys or None), schema, (edge,), place=place)
    return stream._stream(node)  # pyright: ignore[reportPrivateUsage]
