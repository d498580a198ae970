"""Keyed streams: steps on groups of equal keys, joins and cogroups. Null keys are one group; in joins they match nothing.

The work is in ``steps/keyed.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from firesteel.api.connectors.spark_aggregates import aggregate, aggregate_groups
from firesteel.api.steps import keyed
from firesteel.api.steps.aggregates.grouping_sets import GroupingSets
from firesteel.api.steps.aggregates.pivot import Pivot, pivot
from firesteel.api.steps.aggregates.written import with_sparks_names
from firesteel.api.steps.functions import reduce, with_broadcast
from firesteel.api.steps.keyed import Keyed
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.window import WindowFunction
from firesteel.api.unknown_names import no_such_step_of_a_key
from firesteel.task.operators.aggregation.aggregate import is_number

if TYPE_CHECKING:
    from firesteel.api.streams.data_stream import DataStream


class KeyedStream:
    """A stream by key. Made by :meth:`DataStream.key_by`."""

    def __init__(self, stream: DataStream, keyed: Keyed) -> None:
        """Made by ``key_by``, not by users. ``keyed``: of the stream's pipeline."""
        self._stream = stream
        self._keyed = keyed

    @property
    def schema(self) -> pa.Schema:
        return self._keyed.schema

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keyed.keys

    def with_broadcast(self, **streams: DataStream) -> KeyedStream:
        """Side inputs for the function that follows, as :meth:`DataStream.with_broadcast`."""
        pipeline = with_broadcast(self._keyed.pipeline, streams)
        return KeyedStream(self._after(pipeline), Keyed(pipeline, self.keys))

    def aggregate(self, *aggregates: Any, **named: Any) -> DataStream:
        """One row per key: the keys, then the aggregates.

        ``total=agg.sum(col("a") * col("b"))``, with the functions of ``firesteel.agg``; those of one column also by name:
        ``{"n": "sum"}`` makes n the sum of n, ``{"total": ("n", "sum")}`` or ``total=("n", "sum")`` names the result,
        ``{"n": ["min", "max"]}`` gives n_min and n_max, ``("*", "count")`` counts rows. A PySpark aggregate of plain columns is
        taken too: ``aggregate(F.sum("n").alias("t"))``.
        """
        return self._after(aggregate(self._keyed.pipeline, self.keys, aggregates, named))

    def agg(self, *exprs: Any, **named: Any) -> DataStream:
        """As :meth:`DataStream.agg`, one row per key."""
        return self.aggregate(*with_sparks_names(exprs), **named)

    def sum(self, *cols: str) -> DataStream:
        """The sum of each of these columns per key, as ``sum(n)``; of none given, of all columns of numbers but the keys."""
        return self._of_each("sum", cols)

    def avg(self, *cols: str) -> DataStream:
        """The means, as ``avg(n)``. See :meth:`sum`."""
        return self._of_each("avg", cols)

    mean = avg

    def min(self, *cols: str) -> DataStream:
        """The smallest values, as ``min(n)``. See :meth:`sum`."""
        return self._of_each("min", cols)

    def max(self, *cols: str) -> DataStream:
        """The largest values, as ``max(n)``. See :meth:`sum`."""
        return self._of_each("max", cols)

    def _of_each(self, function: str, columns: Sequence[str]) -> DataStream:
        numbers = [one.name for one in self.schema if one.name not in self.keys and is_number(one.type)]
        return self.agg(*({name: function} for name in columns or numbers))

    def pivot(self, column: str, values: Iterable[Any] | None = None) -> GroupedStream:
        """Aggregates for each of these values of a column, side by side: ``key_by("k").pivot("p", values=["a", "b"]).aggregate({"n": "sum"})``.

        The columns are named by the values, or, of several aggregates, by value and aggregate (``a_total``), as in PySpark. Where a
        key has no row with the value they are null; where an aggregate is of another type than numbers and booleans, counts are
        0 and lists are empty there, as in PySpark. The values must be given: no job is run to find them.
        """
        return GroupedStream(self._after, pivot(self._keyed, column, values))

    def count(self) -> DataStream:
        """PySpark's ``groupBy(...).count()``: one row per key with the number of its rows, as ``count``."""
        return self._after(keyed.count(self._keyed.pipeline, self.keys))

    def reduce(
        self, func: Callable[[Any, Any], Any], *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """One row per key (Flink's ``reduce``): ``func(row, row)`` returns a row of the same schema and key.

        Rows are ``firesteel.Row``; a dict or a tuple may be returned. ``func`` must be associative and commutative: the rows
        of a key meet in no fixed order, first in each subtask and then behind the exchange. The only row of a key is
        passed on as it is, without a call.

        ``on_error``, ``max_errors``: as for :meth:`apply_in_arrow`. With another than ``"fail"`` the rows of a key meet only behind the
        exchange, where they must fit into the task's memory.
        """
        return self._after(reduce(self._keyed.pipeline, self.keys, func, (on_error, max_errors)))

    def window(
        self, functions: Mapping[str, WindowFunction] | None = None, /, *, order_by: Any, **named: WindowFunction
    ) -> DataStream:
        """All rows, with a column more for each function over the rows of their key, in this order.

        ``window(order_by=["day", ("n", False)], place=window.rank(), before=window.lag("n"))``, the functions being those
        of ``firesteel.window``. ``order_by``: a column, ``(column, ascending)``, or a list of these. Nulls are the smallest
        values and NaN is the largest number, as Spark orders them. Equal rows come in an order that depends on their values
        only.
        """
        return self._after(keyed.window(self._keyed, {**(functions or {}), **named}, order_by))

    def apply_in_arrow(
        self, func: Callable[..., pa.Table], schema: Any, *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """PySpark's ``applyInArrow``: ``func(table)`` or ``func(key, table)`` for every key returns a table of ``schema``.

        ``on_error``, where ``func`` raises for a key, or what it returns does not fit: ``"fail"`` ends the job; ``"skip"`` leaves the key's rows
        out; ``"route"`` hands them to :attr:`DataStream.errors`, as they came in. ``max_errors``: keys that may fail in the whole job before it ends
        after all.
        """
        return self._after(keyed.apply_in_arrow(self._keyed, func, schema, (on_error, max_errors)))

    def apply_in_pandas(
        self, func: Callable[..., Any], schema: Any, *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """PySpark's ``applyInPandas``: ``func(frame)`` or ``func(key, frame)`` for every key. ``on_error``, ``max_errors``: as for
        :meth:`apply_in_arrow`."""
        return self._after(keyed.apply_in_pandas(self._keyed, func, schema, (on_error, max_errors)))

    applyInArrow = apply_in_arrow  # noqa: N815
    applyInPandas = apply_in_pandas  # noqa: N815

    def join(
        self,
        other: KeyedStream,
        how: str = "inner",
        *,
        suffix: str = "_right",
        broadcast: Literal["left", "right", "never"] | None = None,
        on: None = None,
    ) -> DataStream:
        """Rows of both sides with equal keys. ``how``: inner, left, right, full, semi, anti (Spark's spellings too).

        All left columns, then the right ones without the right keys; one that clashes gets ``suffix``. PySpark's ``on`` is
        refused: both streams are keyed by the columns to compare. ``broadcast``: the side that every task is to read whole, so
        that the other one needs no exchange, or "never"; None: decided while the job runs, by the bytes that the smaller side
        really has (``firesteel.join.adaptive``). Rows of a key that has very many are joined by several
        subtasks (``firesteel.join.skew``): a step behind the join that wants a key's rows together begins with ``key_by``.
        """
        return self._after(keyed.join(self._keyed, other, how, suffix, broadcast, on))

    def cogroup(self, other: KeyedStream) -> CoGroupedStreams:
        """Both streams by key, for a function that gets both sides of a key as tables."""
        return CoGroupedStreams(self._stream, self._keyed, keyed.cogroup(self._keyed, other))

    def _after(self, pipeline: Pipeline) -> DataStream:
        return self._stream._after(pipeline)  # pyright: ignore[reportPrivateUsage]

    def __repr__(self) -> str:
        return f"KeyedStream[{', '.join(self.keys)}] of {self._stream!r}"

    def _repr_html_(self) -> str:
        """In a notebook: its stream's columns and steps."""
        return self._keyed.pipeline.as_html(repr(self))

    def __getattr__(self, name: str) -> Any:
        error = None if name.startswith("_") else no_such_step_of_a_key(name, type(self._stream))
        raise error or AttributeError(f"'KeyedStream' object has no attribute '{name}'")


class GroupedStream:
    """Groups that aggregates follow. Made by :meth:`DataStream.rollup`, ``cube`` and ``grouping_sets``, and :meth:`KeyedStream.pivot`."""

    def __init__(self, after: Callable[[Pipeline], DataStream], groups: GroupingSets | Pivot) -> None:
        """Made by those steps, not by users. ``after``: the stream of a pipeline."""
        self._after = after
        self._groups = groups

    def aggregate(self, *aggregates: Any, **named: Any) -> DataStream:
        """One row per group, as :meth:`KeyedStream.aggregate`."""
        return self._after(aggregate_groups(self._groups, aggregates, named))

    def agg(self, *exprs: Any, **named: Any) -> DataStream:
        """As :meth:`DataStream.agg`, one row per group."""
        return self.aggregate(*with_sparks_names(exprs), **named)

    def count(self) -> DataStream:
        """The number of rows of each group, as ``count``."""
        return self._after(self._groups.count())


class CoGroupedStreams:
    """Two keyed streams side by side. Made by :meth:`KeyedStream.cogroup`."""

    def __init__(self, stream: DataStream, left: Keyed, right: Keyed) -> None:
        """Made by ``cogroup``, not by users. ``stream``: of the left side."""
        self._stream = stream
        self._left = left
        self._right = right

    def apply_in_arrow(
        self, func: Callable[..., pa.Table], schema: Any, *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """``func(left, right)`` or ``func(key, left, right)`` for every key of either side returns a table of ``schema``.

        ``on_error``, ``max_errors``: as for :meth:`KeyedStream.apply_in_arrow`. The rows in ``errors`` have the columns ``left`` and
        ``right``, of which one is a struct of the row, and the other null.
        """
        joined = keyed.cogroup_in_arrow(self._left, self._right, func, schema, (on_error, max_errors))
        return self._stream._after(joined)  # pyright: ignore[reportPrivateUsage]

    applyInArrow = apply_in_arrow  # noqa: N815
