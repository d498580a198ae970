"""DataStream: a pipeline as a user writes it, step by step.

Every step returns a new stream and leaves the old one as it was, so a stream may be read by several steps. What follows
a step to say *how* it runs (``name``, ``set_parallelism``, ``disable_chaining``, ...) sets it on that last step, as in
Flink. Nothing is read or computed before ``execute`` or one of ``collect``, ``count``, ``show``, ...; but every schema is
known and checked as the step is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.actions import Actions
from firesteel.api.caching import Caching
from firesteel.api.columns import Columns
from firesteel.api.ddl import to_schema
from firesteel.api.names import NamesElsewhere
from firesteel.api.outside import WritingOutside
from firesteel.api.partitioning import Partitioning
from firesteel.api.row_steps import RowSteps
from firesteel.api.statistics import Statistics
from firesteel.api.steps import (
    Sides,
    aggregations,
    require_count,
    require_function,
    same_columns,
    step_at,
)
from firesteel.api.writing import Writing
from firesteel.errors import UsageError
from firesteel.expressions import plain_column
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.stream_graph import (
    ChainedStep,
    StreamEdge,
    StreamNode,
    UnionStep,
)
from firesteel.operators.functions import MapInArrow, MapInPandas
from firesteel.operators.relational import (
    Limit,
    Project,
    TopK,
    as_expression,
    check_columns,
    order_type,
)

if TYPE_CHECKING:
    from firesteel.api.keyed_stream import KeyedStream


class DataStream(
    Columns, RowSteps, Statistics, Caching, Actions, Writing, WritingOutside, Partitioning, NamesElsewhere
):
    """Rows of one schema, as Arrow record batches, produced by a pipeline of steps."""

    # --- functions ---

    def map_in_arrow(self, func: Callable[..., Iterable[pa.RecordBatch]], schema: Any) -> DataStream:
        """PySpark's ``mapInArrow``: ``func`` gets an iterator of record batches and yields record batches of ``schema``.

        ``schema``: a DDL string (``"word string, n bigint"``), a ``pyarrow.Schema`` or a PySpark ``StructType``.
        Behind ``with_broadcast(small=...)`` it is called ``func(batches, small=table)``.
        """
        return self._map("map_in_arrow", MapInArrow, func, schema)

    def map_in_pandas(self, func: Callable[..., Iterable[Any]], schema: Any) -> DataStream:
        """PySpark's ``mapInPandas``: as :meth:`map_in_arrow`, with pandas DataFrames."""
        return self._map("map_in_pandas", MapInPandas, func, schema)

    mapInArrow = map_in_arrow  # noqa: N815
    mapInPandas = map_in_pandas  # noqa: N815

    def _map(self, step: str, operator: type[MapInArrow | MapInPandas], func: Any, schema: Any) -> DataStream:
        with step_at(step) as place:
            kind = f"{step}({require_function(func, step)})"
            out = to_schema(schema)
            work = ChainedStep(operator(kind, func, out, tuple(name for name, _ in self._sides)))
            return self._then(kind, work, out, place, sides=self._sides)

    # --- rows ---

    def limit(self, n: int) -> DataStream:
        """At most ``n`` rows: the first of the first subtasks."""
        with step_at("limit") as place:
            kind = f"limit({require_count(n, 'limit()', 0)})"
            return self._in_two(kind, lambda name: Limit(name, n), place)

    def top_k(self, n: int, *columns: str | tuple[str, bool], ascending: bool = False) -> DataStream:
        """The ``n`` rows with the largest values of these columns (``ascending``: smallest), in order; nulls last.

        NaN is greater than every number. A column may be given with its own direction: ``("name", True)`` is ascending.
        """
        with step_at("top_k") as place:
            keys = tuple(c if isinstance(c, tuple) else (c, ascending) for c in columns)
            names = [name for name, _ in keys]
            if not names:
                raise UsageError("top_k wants the columns to order by.", hint='Write top_k(10, "n").')
            check_columns(self.schema, names, "top_k")
            for name in names:
                if order_type(self.schema.field(name).type) is None:
                    raise UsageError(f"top_k cannot order by '{name}': it is {self.schema.field(name).type}.")
            kind = f"top_k({require_count(n, 'top_k()', 0)}, {', '.join(names)})"
            return self._in_two(kind, lambda name: TopK(name, n, keys), place)

    def _in_two(self, kind: str, operator: Callable[[str], Limit | TopK], place: str) -> DataStream:
        """Once in every subtask, then once more over what these left."""
        self._refuse_sides(kind)
        passed = {name: name for name in self.schema.names}
        local = self._then(f"local {kind}", ChainedStep(operator(f"local {kind}"), passed), self.schema, place)
        return local.global_()._then(kind, ChainedStep(operator(kind), passed), self.schema, place)

    def distinct(self) -> DataStream:
        """Every different row once. Nulls are equal to each other here."""
        from firesteel.api.keyed_stream import distinct

        with step_at("distinct") as place:
            self._refuse_sides("distinct")
            return distinct(self, place)

    def drop_duplicates(self, *subset: Any) -> DataStream:
        """One row of those that agree in these columns (none: in all of them, as :meth:`distinct`). Nulls agree.

        Which one is kept does not depend on the order of the rows: it is the same whenever the rows are the same.
        """
        from firesteel.api.keyed_stream import one_per_key

        with step_at("drop_duplicates") as place:
            self._refuse_sides("drop_duplicates")
            names = [
                n for column in subset if column is not None for n in ([column] if isinstance(column, str) else column)
            ]
            check_columns(self.schema, names, "drop_duplicates")
            return one_per_key(self, tuple(dict.fromkeys(names)) or tuple(self.schema.names), place)

    dropDuplicates = drop_duplicates  # noqa: N815

    def union(self, *others: DataStream) -> DataStream:
        """The rows of all the streams (duplicates stay). Columns must agree in name, order and type."""
        with step_at("union") as place:
            streams = [self, *others]
            if not others:
                return self
            for stream in streams:
                if not isinstance(stream, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise UsageError(f"union wants streams, not {stream!r}.")
                self._same_env(stream)
                stream._refuse_sides("union")
            schema = same_columns(self.schema, [stream.schema for stream in others], "union")
            edges = tuple(stream._as(schema, place)._edge() for stream in streams)
            return DataStream(self._env, StreamNode("union", UnionStep(), schema, edges, place=place))

    unionAll = union  # noqa: N815

    def union_by_name(self, other: DataStream, allow_missing_columns: bool = False) -> DataStream:
        """The rows of both, columns matched by name, in the order of the first.

        ``allow_missing_columns``: a column that one of them lacks is null there; without, that is an error.
        """
        with step_at("union_by_name") as place:
            if not isinstance(other, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"union_by_name wants a stream, not {other!r}.")
            names = list(self.schema.names)
            extra = [name for name in other.schema.names if name not in names]
            missing = [name for name in names if name not in other.schema.names]
            if (extra or missing) and not allow_missing_columns:
                side, name = ("first", extra[0]) if extra else ("second", missing[0])
                raise UsageError(
                    f"The {side} stream has no column '{name}'.",
                    hint="Write allow_missing_columns=True for nulls there.",
                )
            wanted = {n: (self if n in names else other).schema.field(n).type for n in [*names, *extra]}
            left, right = self._aligned(wanted, place), other._aligned(wanted, place)
        return left.union(right)

    def unionByName(self, other: DataStream, allowMissingColumns: bool = False) -> DataStream:  # noqa: N802, N803
        """PySpark's spelling of :meth:`union_by_name`."""
        return self.union_by_name(other, allowMissingColumns)

    def _aligned(self, wanted: dict[str, pa.DataType], place: str) -> DataStream:
        if list(wanted) == list(self.schema.names):
            return self
        null = {n: pc.scalar(pa.scalar(None, type_)) for n, type_ in wanted.items()}
        columns = [(n, pc.field(n) if n in self.schema.names else null[n]) for n in wanted]
        return self._project("select", columns, place)

    def _as(self, schema: pa.Schema, place: str) -> DataStream:
        """The same rows under a schema that differs in nullability at most."""
        if self.schema.equals(schema):
            return self
        columns = tuple((name, pc.field(name)) for name in schema.names)
        passed = {name: name for name in schema.names}
        work = ChainedStep(Project("select", columns, schema), passed, columns)
        return DataStream(self._env, self._node)._then("select", work, schema, place)._partitioned(self._ship)

    def aggregate(self, aggregations_by_output: dict[str, Any] | None = None, /, **named: Any) -> DataStream:
        """One row with aggregates over all rows. See :meth:`KeyedStream.aggregate`."""
        from firesteel.api.keyed_stream import aggregate

        with step_at("aggregate") as place:
            self._refuse_sides("aggregate")
            return aggregate(self, (), aggregations(aggregations_by_output or {}, named, "aggregate"), place)

    agg = aggregate

    # --- keys and side inputs ---

    def key_by(self, *columns: str) -> KeyedStream:
        """The stream with equal values of these columns brought together, for what works on groups."""
        from firesteel.api.keyed_stream import KeyedStream

        with step_at("key_by"):
            names = [n for column in columns for n in (column if isinstance(column, list | tuple) else [column])]
            if not names:
                raise UsageError(
                    "key_by wants at least one column.", hint="For all rows together use aggregate() without keys."
                )
            for name in names:
                if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                    plain = plain_column(as_expression(name), self.schema)
                    raise UsageError(
                        f"key_by wants column names, not the expression {name}.",
                        hint=f'Write key_by("{plain}").' if plain else "Make it a column first, by with_column().",
                    )
            check_columns(self.schema, names, "key_by")
            if len(set(names)) != len(names):
                raise UsageError(f"key_by names a column twice: {', '.join(names)}.")
            return KeyedStream(self, tuple(names))

    group_by = key_by
    groupBy = key_by  # noqa: N815

    def with_broadcast(self, **streams: DataStream) -> DataStream:
        """Side inputs for the function that follows: each is read whole by every subtask, as a table in its memory, beside
        the task's budget.

        ``stream.with_broadcast(small=names).map_in_arrow(f, ...)`` calls ``f(batches, small=table)``.
        """
        with step_at("with_broadcast"):
            if not streams:
                raise UsageError("with_broadcast wants at least one name=stream.")
            return DataStream(self._env, self._node, self._ship, (*self._sides, *self._side_edges(streams)))

    def _side_edges(self, streams: dict[str, DataStream]) -> Sides:
        edges: list[tuple[str, StreamEdge]] = []
        for name, stream in streams.items():
            if not isinstance(stream, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"with_broadcast({name}=...) wants a stream, not {type(stream).__name__}.")
            if name in dict(self._sides):
                raise UsageError(f"There is a side input '{name}' already.")
            self._same_env(stream)
            stream._refuse_sides("with_broadcast")
            edges.append((name, StreamEdge(stream._node, ShipStrategy.BROADCAST)))
        return tuple(edges)


class BroadcastStream(DataStream):
    """A stream that every subtask of the next step reads whole."""
