"""Keyed streams: steps on groups of equal keys, joins and cogroups. Null keys are one group; in joins they match nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from firesteel.api.data_stream import DataStream
from firesteel.api.ddl import to_schema
from firesteel.api.names import ELSEWHERE_KEYED, NoSuchStep
from firesteel.api.row_steps import reduce
from firesteel.api.steps import aggregations, require_function, step_at
from firesteel.api.stream_base import StreamBase
from firesteel.api.window import window_operator
from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.push_down import narrowest
from firesteel.graph.stream_graph import KeyedStep, StreamEdge, StreamNode
from firesteel.operators.aggregate import (
    Aggregation,
    Distinct,
    DistinctCombiner,
    FinalAggregate,
    FullAggregate,
    PartialAggregate,
    aggregate_schema,
    partial_schema,
)
from firesteel.operators.duplicates import OnePerKey, OnePerKeyCombiner
from firesteel.operators.join import HashJoin, join_kind, join_schema
from firesteel.operators.keyed import ApplyInArrow, ApplyInPandas, CoGroupApplyInArrow, takes_key
from firesteel.operators.narrow import NarrowCombiner
from firesteel.operators.window import WindowFunction

_SETTINGS = frozenset({
    "as_nondeterministic", "disable_chaining", "name", "no_speculation", "set_max_parallelism", "set_parallelism",
    "side_effects", "slot_sharing_group", "start_new_chain", "uid",
})  # fmt: skip
"""What a step is told, and only a step can be."""


class KeyedStream:
    """A stream by key. Made by :meth:`DataStream.key_by`."""

    def __init__(self, stream: DataStream, keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        if name in ELSEWHERE_KEYED:
            raise NoSuchStep(f"A keyed stream has no {name}.", hint=ELSEWHERE_KEYED[name])
        if not name.startswith("_") and hasattr(DataStream, name):
            steps = "aggregate, window, apply_in_arrow, apply_in_pandas, join or cogroup"
            raise NoSuchStep(
                f"A keyed stream has no {name}.",
                hint=f"It is no step yet: follow key_by with {steps}, and call {name} on that."
                if name in _SETTINGS
                else f"Call {name} before key_by, or follow key_by with {steps}.",
            )
        raise AttributeError(f"'KeyedStream' object has no attribute '{name}'")

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def __repr__(self) -> str:
        return f"KeyedStream[{', '.join(self._keys)}] of {self._stream!r}"

    def _repr_html_(self) -> str:
        """As a stream's, which it is not yet."""
        return self._stream._html(repr(self))  # pyright: ignore[reportPrivateUsage]

    def with_broadcast(self, **streams: DataStream) -> KeyedStream:
        """Side inputs for the function that follows, as :meth:`DataStream.with_broadcast`."""
        return KeyedStream(self._stream.with_broadcast(**streams), self._keys)

    def aggregate(self, aggregations_by_output: Mapping[str, Any] | None = None, /, **named: Any) -> DataStream:
        """One row per key: the keys, then the aggregates.

        ``{"n": "sum"}`` makes n the sum of n; ``{"total": ("n", "sum")}`` or ``total=("n", "sum")`` names the result;
        ``{"n": ["min", "max"]}`` gives n_min and n_max. Functions: sum, min, max, count, mean, count_distinct;
        ``("*", "count")`` counts rows.
        """
        with step_at("aggregate") as place:
            self._refuse_sides("aggregate")
            return aggregate(
                self._stream, self._keys, aggregations(aggregations_by_output or {}, named, "aggregate"), place
            )

    agg = aggregate

    def count(self) -> DataStream:
        """PySpark's ``groupBy(...).count()``: one row per key with the number of its rows, as ``count``."""
        with step_at("count") as place:
            self._refuse_sides("count")
            return aggregate(self._stream, self._keys, (Aggregation(None, "count", "count"),), place)

    def reduce(self, func: Callable[[Any, Any], Any]) -> DataStream:
        """One row per key (Flink's ``reduce``): ``func(row, row)`` gives a row of the same schema and key.

        Rows are ``firesteel.Row``; a dict or a tuple may be given back. ``func`` must be associative and commutative: the rows
        of a key meet in no order that is fixed, first in each subtask and then behind the exchange. A row that is alone
        with its key is given out as it is, without a call.
        """
        with step_at("reduce") as place:
            self._refuse_sides("reduce")
            return reduce(self._stream, self._keys, func, place)

    def window(
        self, functions: Mapping[str, WindowFunction] | None = None, /, *, order_by: Any, **named: WindowFunction
    ) -> DataStream:
        """All rows, with a column more for each function over the rows of their key, in this order.

        ``window(order_by=["day", ("n", False)], place=window.rank(), before=window.lag("n"))``, the functions being those
        of ``firesteel.window``. ``order_by``: a column, ``(column, ascending)``, or a list of these. Nulls are the smallest
        values and NaN is the largest number, as Spark orders them. Equal rows come in an order that depends on their values
        only. A key's rows must fit into the task's memory.
        """
        with step_at("window") as place:
            self._refuse_sides("window")
            made = window_operator(self.schema, self._keys, {**(functions or {}), **named}, order_by)
            work = KeyedStep(made, made, (self._keys,), self._keys)
            return _keyed(self._stream, made.name, work, made.schema, (self._edge(),), place)

    def apply_in_arrow(self, func: Callable[..., pa.Table], schema: Any) -> DataStream:
        """PySpark's ``applyInArrow``: ``func(table)`` or ``func(key, table)`` for every key, giving a table of ``schema``."""
        return self._apply("apply_in_arrow", ApplyInArrow, func, schema)

    def apply_in_pandas(self, func: Callable[..., Any], schema: Any) -> DataStream:
        """PySpark's ``applyInPandas``: ``func(frame)`` or ``func(key, frame)`` for every key."""
        return self._apply("apply_in_pandas", ApplyInPandas, func, schema)

    applyInArrow = apply_in_arrow  # noqa: N815
    applyInPandas = apply_in_pandas  # noqa: N815

    def _apply(self, step: str, operator: type[ApplyInArrow | ApplyInPandas], func: Any, schema: Any) -> DataStream:
        with step_at(step) as place:
            kind = f"{step}({require_function(func, step)})"
            out = to_schema(schema)
            names = tuple(name for name, _ in self._sides)
            takes_key(kind, func, 1, names)
            made = operator(kind, func, self._keys, out, names)
            work = KeyedStep(made, made, (self._keys,))
            return _keyed(self._stream, kind, work, out, (self._edge(),), place, self._sides)

    def join(self, other: KeyedStream, how: str = "inner", *, suffix: str = "_right") -> DataStream:
        """Rows of both sides with equal keys. ``how``: inner, left, right, full, semi, anti (Spark's spellings too).

        All left columns, then the right ones without the right keys; one that clashes gets ``suffix``.
        """
        with step_at("join") as place:
            self._check_other("join", other)
            kind = join_kind(how)
            left, right = self.schema, other.schema
            schema = join_schema(left, right, self._keys, other._keys, kind, suffix)
            joined = HashJoin(f"{kind} join", kind, self._keys, other._keys, left, right, schema)
            work = KeyedStep(joined, joined, (self._keys, other._keys), self._keys)
            return _keyed(self._stream, f"{kind} join", work, schema, (self._edge(), other._edge()), place)

    def cogroup(self, other: KeyedStream) -> CoGroupedStreams:
        """Both streams by key, for a function that gets both sides of a key as tables."""
        with step_at("cogroup"):
            self._check_other("cogroup", other)
            join_schema(self.schema, other.schema, self._keys, other._keys, "semi")
            return CoGroupedStreams(self, other)

    def _check_other(self, step: str, other: KeyedStream) -> None:
        if isinstance(other, DataStream):
            raise UsageError(f"{step} wants a keyed stream.", hint=f"Write a.key_by(...).{step}(b.key_by(...)).")
        if not isinstance(other, KeyedStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{step} wants a keyed stream, not {type(other).__name__}.")
        self._stream._same_env(other._stream)  # pyright: ignore[reportPrivateUsage]
        if step == "join":
            self._refuse_sides(step)
        other._refuse_sides(step)

    def _refuse_sides(self, step: str) -> None:
        self._stream._refuse_sides(step)  # pyright: ignore[reportPrivateUsage]

    @property
    def _sides(self) -> tuple[tuple[str, StreamEdge], ...]:
        return self._stream._sides  # pyright: ignore[reportPrivateUsage]

    def _edge(self) -> StreamEdge:
        return StreamEdge(self._stream._node, ShipStrategy.HASH, self._keys)  # pyright: ignore[reportPrivateUsage]


class CoGroupedStreams:
    """Two keyed streams side by side. Made by :meth:`KeyedStream.cogroup`."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        self._left = left
        self._right = right

    def apply_in_arrow(self, func: Callable[..., pa.Table], schema: Any) -> DataStream:
        """``func(left, right)`` or ``func(key, left, right)`` for every key of either side, giving a table of ``schema``."""
        step = "cogroup.apply_in_arrow"
        with step_at(step) as place:
            kind = f"cogroup.apply_in_arrow({require_function(func, step)})"
            out = to_schema(schema)
            left, right = self._left, self._right
            sides = left._sides  # pyright: ignore[reportPrivateUsage]
            names = tuple(name for name, _ in sides)
            takes_key(kind, func, 2, names)
            made = CoGroupApplyInArrow(kind, func, left.keys, right.keys, out, names)
            edges = (left._edge(), right._edge())  # pyright: ignore[reportPrivateUsage]
            stream = left._stream  # pyright: ignore[reportPrivateUsage]
            return _keyed(stream, kind, KeyedStep(made, made, (left.keys, right.keys)), out, edges, place, sides)

    applyInArrow = apply_in_arrow  # noqa: N815


def aggregate(stream: StreamBase, keys: tuple[str, ...], aggs: tuple[Aggregation, ...], place: str) -> DataStream:
    """Partly before the exchange, finally behind it. Without keys: one row, in one subtask."""
    out = aggregate_schema(stream.schema, keys, aggs)
    reads = tuple(dict.fromkeys([*keys, *(a.column for a in aggs if a.column not in (None, "*"))]))
    reads = reads or (narrowest(stream.schema),)  # rows without columns have no number
    read_schema = pa.schema([stream.schema.field(name) for name in reads])
    kind = f"aggregate({_some([a.output for a in aggs])})"
    edge = StreamEdge(
        stream._node,  # pyright: ignore[reportPrivateUsage]
        ShipStrategy.HASH if keys else ShipStrategy.GLOBAL,
        keys,
        NarrowCombiner(reads, PartialAggregate(keys, aggs, read_schema)),
        partial_schema(read_schema, keys, aggs),
        reads=reads,
    )
    final = FinalAggregate(kind, keys, aggs, read_schema)
    full = FullAggregate(kind, keys, aggs, read_schema)
    return _keyed(stream, kind, KeyedStep(final, full, (keys,), keys), out, (edge,), place)


def _some(names: list[str]) -> str:
    """The first few of many names."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def distinct(stream: DataStream, place: str) -> DataStream:
    """Duplicates go in each task first, then among all rows that are equal."""
    keys = tuple(stream.schema.names)
    edge = StreamEdge(
        stream._node,  # pyright: ignore[reportPrivateUsage]
        ShipStrategy.HASH,
        keys,
        DistinctCombiner(keys, stream.schema),
        stream.schema,
    )
    operator = Distinct("distinct", keys, stream.schema)
    return _keyed(stream, "distinct", KeyedStep(operator, operator, (keys,), keys), stream.schema, (edge,), place)


def one_per_key(stream: DataStream, keys: tuple[str, ...], place: str) -> DataStream:
    """One row of those that agree in ``keys``: in each task first, then among all."""
    edge = StreamEdge(
        stream._node,  # pyright: ignore[reportPrivateUsage]
        ShipStrategy.HASH,
        keys,
        OnePerKeyCombiner(keys, stream.schema),
        stream.schema,
    )
    kind = f"drop_duplicates({_some(list(keys))})"
    operator = OnePerKey(kind, keys, stream.schema)
    return _keyed(stream, kind, KeyedStep(operator, operator, (keys,), keys), stream.schema, (edge,), place)


def _keyed(  # noqa: PLR0917 - the fields of a node
    stream: StreamBase,
    kind: str,
    work: KeyedStep,
    schema: pa.Schema,
    edges: tuple[StreamEdge, ...],
    place: str,
    sides: tuple[tuple[str, StreamEdge], ...] = (),
) -> DataStream:
    env = stream._env  # pyright: ignore[reportPrivateUsage]
    return DataStream(env, StreamNode(kind, work, schema, edges, sides, place))
