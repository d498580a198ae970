"""DataStream: a pipeline as a user writes it, step by step.

Every step returns a new stream and leaves the old one as it was, so a stream may be read by several steps. Nothing is read or
computed before ``execute`` or one of ``collect``, ``count``, ``show``, ...; but every schema is known and checked as the step is
made. The work is in the functions of ``steps``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api import column as expressions
from firesteel.api.connectors import dataframes, spark_aggregates, spark_columns
from firesteel.api.steps import (
    common,
    functions,
    joins,
    keyed,
    ordering,
    partitioning,
    projection,
    reshaping,
    set_operations,
    summaries,
)
from firesteel.api.steps.aggregates import grouping_sets
from firesteel.api.steps.aggregates.written import with_sparks_names
from firesteel.api.steps.ordering import Column, Directions
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.streams.ends import Ends
from firesteel.api.streams.keyed_stream import GroupedStream, KeyedStream
from firesteel.api.unknown_names import no_subscript, no_such_step
from firesteel.model.job_graph import ShipStrategy


class DataStream(Ends):
    """Rows of one schema, as Arrow record batches, produced by a pipeline of steps."""

    def _after(self, pipeline: Pipeline) -> DataStream:
        """The stream of a pipeline that begins with this one's: for streams by key, which cannot import this class."""
        return DataStream(pipeline)

    def transform(self, func: Callable[..., DataStream], *args: Any, **kwargs: Any) -> DataStream:
        """``func(stream, *args, **kwargs)``: steps of a function of yours in a row with others."""
        return func(self, *args, **kwargs)

    # --- columns ---

    def select(self, *columns: Any, **named: Any) -> DataStream:
        """Only these columns: names (``"*"``: all), Columns with a name or an alias, or ``new_name=expression``.

        Expressions are those of ``firesteel.functions`` and of PySpark, and Arrow's. A text that can be no name is SQL: ``"n + 1 AS m"``.
        """
        return DataStream(spark_columns.select(self._pipeline, columns, named))

    def with_column(self, name: str, expression: Any) -> DataStream:
        """All columns and one more (or another one of that name)."""
        return DataStream(spark_columns.with_column(self._pipeline, name, expression))

    def with_columns(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> DataStream:
        """As :meth:`with_column` of several: ``with_columns({"m": col("n") + 1})`` or ``with_columns(m=col("n") + 1)``.

        All are computed from the columns as they were before.
        """
        return DataStream(spark_columns.with_columns(self._pipeline, columns, named))

    def rename(self, names: Mapping[str, str]) -> DataStream:
        """The same columns, some under other names: ``rename({"old": "new"})``."""
        return DataStream(projection.rename(self._pipeline, names))

    def with_column_renamed(self, existing: str, new: str) -> DataStream:
        """PySpark's ``withColumnRenamed``; a column that is not there is an error here. See :meth:`rename`."""
        return DataStream(projection.with_column_renamed(self._pipeline, existing, new))

    def drop(self, *columns: str) -> DataStream:
        """All columns but these."""
        return DataStream(projection.drop(self._pipeline, columns))

    def drop_nulls(self, *columns: str, how: str = "any") -> DataStream:
        """Without the rows that have a null (``how="all"``: nothing but nulls) in these columns (none: in all of them).

        NaN counts as null, as in PySpark's ``dropna``.
        """
        return DataStream(projection.drop_nulls(self._pipeline, columns, how))

    def dropna(self, how: str = "any", subset: Any = None) -> DataStream:
        """PySpark's name and arguments of :meth:`drop_nulls` (there is no ``thresh``)."""
        return DataStream(projection.drop_nulls(self._pipeline, projection.subset_names(subset), how))

    def fill_nulls(self, value: Any, *columns: str) -> DataStream:
        """``value`` in the place of nulls (of floats also of NaN, as in PySpark's ``fillna``).

        ``value``: one for these columns (none: for all of its kind: numbers, strings, booleans, or its very type), or a dict
        of a value per column.
        """
        return DataStream(projection.fill_nulls(self._pipeline, value, columns))

    def fillna(self, value: Any, subset: Any = None) -> DataStream:
        """PySpark's name and arguments of :meth:`fill_nulls`."""
        return DataStream(projection.fill_nulls(self._pipeline, value, projection.subset_names(subset)))

    withColumn = with_column  # noqa: N815
    withColumns = with_columns  # noqa: N815
    withColumnRenamed = with_column_renamed  # noqa: N815
    withColumnsRenamed = rename  # noqa: N815

    # --- functions ---

    def map_in_arrow(
        self,
        func: Callable[..., Iterable[pa.RecordBatch]],
        schema: Any,
        *,
        by_position: bool = False,
        batch_size: int | str | None = None,
        prefetch: int = 0,
        on_error: str = "fail",
        max_errors: int | None = None,
    ) -> DataStream:
        """PySpark's ``mapInArrow``: ``func`` gets an iterator of record batches and yields record batches of ``schema``.

        ``schema``: a DDL string (``"word string, n bigint"``), a ``pyarrow.Schema`` or a PySpark ``StructType``. Columns are
        matched by name, in any order; other names are an error. ``by_position``: by their position instead, as in PySpark,
        whatever their names; superfluous columns at the end are dropped. Behind ``with_broadcast(small=...)`` it is called
        ``func(batches, small=table)``.

        ``func`` may be an object with ``setup()`` and ``close()``, or a class: it is set up once in each Python worker, and kept.
        ``batch_size``: rows of each batch, or bytes as text (``"8 MiB"``): batches are joined and cut, and only the last one of a
        subtask is smaller. None: at most 10,000 rows and 64 MiB, small ones joined. ``prefetch``: batches that a thread reads, and as
        many that another one writes, while ``func`` computes, for functions that wait for a GPU or release Python's lock.

        ``on_error``, ``max_errors``: as for :meth:`map`. With another than ``"fail"``, ``func`` is called for each batch alone, and of one
        that fails for its halves, down to the row.
        """
        policy, reading = (on_error, max_errors), functions.Reading(batch_size, prefetch)
        return DataStream(functions.map_in_arrow(self._pipeline, func, schema, by_position, policy, reading))

    def map_in_pandas(
        self,
        func: Callable[..., Iterable[Any]],
        schema: Any,
        *,
        batch_size: int | str | None = None,
        prefetch: int = 0,
        on_error: str = "fail",
        max_errors: int | None = None,
    ) -> DataStream:
        """PySpark's ``mapInPandas``: as :meth:`map_in_arrow`, with pandas DataFrames.

        As in PySpark, superfluous columns at the end are dropped, and columns without names are matched by position.
        """
        policy, reading = (on_error, max_errors), functions.Reading(batch_size, prefetch)
        return DataStream(functions.map_in_pandas(self._pipeline, func, schema, policy, reading))

    def map(
        self, func: Callable[..., Any], schema: Any, *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """One row for each row: ``func(row)`` returns a dict, a tuple in the order of ``schema``, or, if that has one
        column, its value. A row is a ``firesteel.Row``: ``row.word``, ``row["word"]`` or ``row[0]``.

        ``schema``: as for ``map_in_arrow``. Behind ``with_broadcast(small=...)`` it is called ``func(row, small=table)``.
        Called for one row after another, in batches of 10,000: ``map_in_arrow`` is many times as fast.

        ``on_error``, where ``func`` raises for a row, or what it returns does not fit: ``"fail"`` ends the job; ``"skip"`` leaves the
        row out; ``"null"`` puts a row of nulls in its place; ``"route"`` hands it to the stream :attr:`errors`. ``max_errors``: with
        more of them the job fails.
        """
        return DataStream(functions.map_rows(self._pipeline, func, schema, (on_error, max_errors)))

    def flat_map(
        self, func: Callable[..., Iterable[Any]], schema: Any, *, on_error: str = "fail", max_errors: int | None = None
    ) -> DataStream:
        """Any number of rows for each row: ``func(row)`` returns an iterable of what :meth:`map` takes, or is a generator.

        ``on_error``, ``max_errors``: as for :meth:`map`; a row gives all of its rows, or is an error.
        """
        return DataStream(functions.flat_map_rows(self._pipeline, func, schema, (on_error, max_errors)))

    def filter(
        self,
        condition: expressions.Column | pc.Expression | Callable[..., Any] | str,
        *,
        on_error: str = "fail",
        max_errors: int | None = None,
    ) -> DataStream:
        """Only the rows for which the expression, the condition in SQL (``"n > 3"``), or the function of a row is true (null and None
        are not true).

        An expression can be pushed into the source and is evaluated on whole batches; a function is called for every row.
        ``on_error``, ``max_errors``: of a function, as for :meth:`map`, but for ``"null"``.
        """
        if isinstance(condition, str) and on_error == "fail":
            return DataStream(dataframes.where(self._pipeline, condition))
        return DataStream(spark_columns.filter_rows(self._pipeline, condition, (on_error, max_errors)))

    def select_expr(self, *expressions: str) -> DataStream:
        """Columns by expressions in SQL: ``select_expr("a", "a + 1 AS b")``. Spark parses them, as in :meth:`ExecutionEnvironment.sql`."""
        return DataStream(dataframes.select_expr(self._pipeline, expressions))

    def with_broadcast(self, **streams: DataStream) -> DataStream:
        """Side inputs for the function that follows: each is read whole by every subtask, as a table in its memory, beside
        the task's budget.

        ``stream.with_broadcast(small=names).map_in_arrow(f, ...)`` calls ``f(batches, small=table)``.
        """
        return DataStream(functions.with_broadcast(self._pipeline, streams))

    def map_async(
        self,
        func: Callable[..., Awaitable[Any]],
        schema: Any,
        *,
        concurrency: int = 16,
        ordered: bool = False,
        rate: str | float | None = None,
        retries: int = 0,
        timeout: Any = None,
        on_error: str = "fail",
        max_errors: int | None = None,
    ) -> DataStream:
        """As :meth:`map` with an ``async def func(row)``, which calls a service: each subtask waits for ``concurrency`` rows at a time.

        ``ordered``: rows leave in the order in which they came, else as they are answered. ``rate``: calls of the whole job, ``"100/s"``
        or ``"5000/min"``, which its subtasks share. ``retries``: repetitions of a call that raised, after pauses of 0.1 s, 0.2 s, ... with
        jitter. ``timeout``: of each try, seconds or ``"500 ms"``. What failed in each try is an error: see ``on_error`` of :meth:`map`.
        An execution of the step is never mirrored: the service would be called twice.
        """
        settings = {
            "concurrency": concurrency,
            "ordered": ordered,
            "rate": rate,
            "retries": retries,
            "timeout": timeout,
        }
        return DataStream(functions.map_async(self._pipeline, func, schema, (on_error, max_errors), **settings))

    @property
    def errors(self) -> DataStream:
        """Of the stream that a step with ``on_error="route"`` returned: the rows that its function could not do, as they came in, and a
        column ``error`` with the reason."""
        return DataStream(common.errors(self._pipeline))

    mapInArrow = map_in_arrow  # noqa: N815
    mapInPandas = map_in_pandas  # noqa: N815
    flatMap = flat_map  # noqa: N815
    selectExpr = select_expr  # noqa: N815
    where = filter

    # --- keys and aggregates ---

    def key_by(self, *columns: Any) -> KeyedStream:
        """The stream with equal values of these columns brought together, for steps on groups. An expression becomes a column, under Spark's name."""
        return KeyedStream(self, keyed.key_by(self._pipeline, columns))

    def aggregate(self, *aggregates: Any, **named: Any) -> DataStream:
        """One row with aggregates over all rows. See :meth:`KeyedStream.aggregate`."""
        return DataStream(spark_aggregates.aggregate(self._pipeline, (), aggregates, named))

    def reduce(self, func: Callable[[Any, Any], Any]) -> DataStream:
        """All rows reduced to one, no rows to none: ``func(row, row)`` returns a row of the same schema, as in :meth:`map`.

        It must be associative and commutative: rows meet in no fixed order, first in each subtask, then all.
        See :meth:`KeyedStream.reduce`.
        """
        return DataStream(functions.reduce(self._pipeline, (), func))

    def distinct(self) -> DataStream:
        """Every different row once. Nulls are equal to each other here."""
        return DataStream(keyed.distinct(self._pipeline))

    def drop_duplicates(self, *subset: Any) -> DataStream:
        """One row of those that agree in these columns (none: in all of them, as :meth:`distinct`). Nulls agree.

        Which one is kept does not depend on the order of the rows: it is the same whenever the rows are the same.
        """
        return DataStream(keyed.drop_duplicates(self._pipeline, subset))

    def rollup(self, *columns: str, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by all of these columns, by all but the last, and so on, and of all rows: ``rollup("a", "b").aggregate({"n": "sum"})``.

        Columns that a row is not grouped by are null. ``grouping_id``: the name of a column for PySpark's ``grouping_id()``, a number in
        which the first column is the highest bit, 1 where the row is not grouped by it: it tells these nulls from those of
        the rows. Every row is counted as often as there are groupings; no rows give none.
        """
        return GroupedStream(self._after, grouping_sets.rollup(self._pipeline, columns, grouping_id))

    def cube(self, *columns: str, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by every subset of these columns. See :meth:`rollup`."""
        return GroupedStream(self._after, grouping_sets.cube(self._pipeline, columns, grouping_id))

    def grouping_sets(self, *sets: Any, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by each of these sets of columns: ``grouping_sets(("a", "b"), "b", ())``. See :meth:`rollup`."""
        return GroupedStream(self._after, grouping_sets.grouping_sets(self._pipeline, sets, grouping_id))

    def agg(self, *exprs: Any, **named: Any) -> DataStream:
        """PySpark's: :meth:`aggregate`, but for ``{"n": "sum"}``, which gives a column ``sum(n)``, as there."""
        return self.aggregate(*with_sparks_names(exprs), **named)

    groupBy = key_by  # noqa: N815
    dropDuplicates = drop_duplicates  # noqa: N815

    # --- rows of rows ---

    def explode(self, column: str, into: Any = None) -> DataStream:
        """A row for each element of a list, beside the other columns: ``explode("tags", into="tag")``; of a map for each entry, as
        columns ``key`` and ``value``, or two that ``into`` names.

        A null or empty list gives no row. Without ``into`` the element has the column's name.
        """
        return DataStream(reshaping.explode(self._pipeline, column, into, position=False, outer=False))

    def explode_outer(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`explode`; a null or empty list gives one row, with null for the element."""
        return DataStream(reshaping.explode(self._pipeline, column, into, position=False, outer=True))

    def posexplode(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`explode`, with the place of the element from 0 on, as ``pos``, before it."""
        return DataStream(reshaping.explode(self._pipeline, column, into, position=True, outer=False))

    def posexplode_outer(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`posexplode`; a null or empty list gives one row, with nulls."""
        return DataStream(reshaping.explode(self._pipeline, column, into, position=True, outer=True))

    def unpivot(self, ids: Any, values: Any = None, variable: str = "variable", value: str = "value") -> DataStream:
        """A row for each of the columns ``values`` (None: all but ``ids``): ``ids``, the column's name as ``variable``, what it holds as ``value``.

        The columns must be of one type.
        """
        return DataStream(reshaping.unpivot(self._pipeline, ids, values, variable, value))

    melt = unpivot

    # --- order and first rows ---

    def sort(self, *columns: Column | list[Column], ascending: Directions = True) -> DataStream:
        """All rows in the order of these columns, over all subtasks: the rows of subtask k come before those of k + 1.

        A column may be an expression, and may be given with its own direction, ``("name", False)`` for descending. ``ascending`` may be a list,
        one for each column. As in Spark: nulls come first, and last in a descending column; NaN is greater than all numbers.
        Equal rows keep the order in which they were written: by producer, then as they came. The order holds for the steps
        that are chained behind it, up to the next exchange, for ``collect`` and for the files of a sink, in the order of
        their names; ``sort().limit(n)`` gives the first n.
        """
        return DataStream(ordering.sort(self._pipeline, columns, ascending))

    def limit(self, n: int) -> DataStream:
        """At most ``n`` rows: the first of the first subtasks."""
        return DataStream(ordering.limit(self._pipeline, n))

    def top_k(self, n: int, *columns: Column, ascending: bool = False) -> DataStream:
        """The ``n`` rows with the largest values of these columns (``ascending``: smallest), in order; nulls last.

        NaN is greater than every number. A column may be given with its own direction: ``("name", True)`` is ascending.
        Expressions are columns, too: ``F.abs("n")``. The result does not have them. Rows that tie come in an order that depends on their values only.
        """
        return DataStream(ordering.top_k(self._pipeline, n, columns, ascending))

    orderBy = sort  # noqa: N815

    # --- unions and set operations ---

    def union(self, *others: DataStream) -> DataStream:
        """The rows of all the streams (duplicates stay). Columns must agree in name, order and type."""
        return DataStream(set_operations.union(self._pipeline, others))

    def union_by_name(self, other: DataStream, allow_missing_columns: bool = False) -> DataStream:
        """The rows of both, columns matched by name, in the order of the first.

        ``allow_missing_columns``: a column that one of them lacks is null there; without, that is an error.
        """
        return DataStream(set_operations.union_by_name(self._pipeline, other, allow_missing_columns))

    def unionByName(self, other: DataStream, allowMissingColumns: bool = False) -> DataStream:  # noqa: N802, N803
        """PySpark's spelling of :meth:`union_by_name`."""
        return self.union_by_name(other, allowMissingColumns)

    def subtract(self, other: DataStream) -> DataStream:
        """SQL's ``EXCEPT``: every different row that ``other`` does not have, once.

        As for all four of these: columns must agree in name, order and type; rows are equal when all their columns are,
        nulls and NaN being equal to themselves and 0.0 to -0.0.
        """
        return DataStream(set_operations.set_operation(self._pipeline, "subtract", other))

    def except_all(self, other: DataStream) -> DataStream:
        """SQL's ``EXCEPT ALL``: as many of equal rows as there are more of them than in ``other``."""
        return DataStream(set_operations.set_operation(self._pipeline, "except_all", other))

    def intersect(self, other: DataStream) -> DataStream:
        """SQL's ``INTERSECT``: every different row that both have, once."""
        return DataStream(set_operations.set_operation(self._pipeline, "intersect", other))

    def intersect_all(self, other: DataStream) -> DataStream:
        """SQL's ``INTERSECT ALL``: as many of equal rows as there are on the side that has fewer."""
        return DataStream(set_operations.set_operation(self._pipeline, "intersect_all", other))

    unionAll = union  # noqa: N815
    exceptAll = except_all  # noqa: N815
    intersectAll = intersect_all  # noqa: N815

    # --- joins ---

    def join(
        self,
        other: DataStream,
        on: Any = None,
        how: str = "inner",
        *,
        left_on: Any = None,
        right_on: Any = None,
        suffix: str = "_right",
        broadcast: Literal["left", "right", "never"] | None = None,
    ) -> DataStream:
        """Rows of both streams with equal keys, as PySpark's ``join`` with names. Null keys match nothing.

        ``on``: a column, a list of columns, or where the names differ a list of pairs, ``[("id", "user_id")]`` (or ``left_on=``
        and ``right_on=``). A triple is a condition that is no equality: ``["k", ("time", ">=", "start"), ("time", "<", "end")]``, the left
        stream's column first. ``how``: inner, left, right, full, semi, anti (Spark's spellings too).

        All left columns, then the right ones without the right keys: a key comes once, under the left name, and holds the
        right side's where there is no left row. A right column whose name the left side has gets ``suffix``; where
        that is taken as well, ``suffix`` and a number from 2 on. ``broadcast``: as in :meth:`KeyedStream.join`. With conditions
        and no equal columns the right side is read whole by every subtask, into its memory (inner, left, semi, anti).
        """
        return DataStream(joins.join(self._pipeline, other, on, how, left_on, right_on, suffix, broadcast))

    def join_asof(
        self,
        other: DataStream,
        on: str | tuple[str, str],
        by: Any = None,
        *,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        tolerance: Any = None,
        exact: bool = True,
        how: str = "left",
        suffix: str = "_right",
    ) -> DataStream:
        """Beside each row the one of ``other`` whose time comes nearest before (``backward``), behind (``forward``) or on either side.

        ``on``: the column of the time, or one on each side: timestamps, dates, durations or numbers. ``by``: columns that
        must be equal, as ``on`` of :meth:`join`. ``tolerance``: the largest distance (a timedelta; of numbers a number). ``exact=False``: an equal
        time does not count. ``how``: left (a row without a partner has nulls) or inner.

        Of equal times on the right, the same row is taken on every run; of a time before and one behind that are equally near, the
        one before. Columns as in :meth:`join`; a time of one name comes once, the left one. Without ``by`` the right side is read whole
        by every subtask, into its memory.
        """
        return DataStream(joins.join_asof(self._pipeline, other, on, by, direction, tolerance, exact, how, suffix))

    def cross_join(self, other: DataStream, *, suffix: str = "_right") -> DataStream:
        """Every row with every row of ``other``, which every subtask reads whole into its memory: the smaller side is the right one."""
        return DataStream(joins.cross_join(self._pipeline, other, suffix))

    crossJoin = cross_join  # noqa: N815

    # --- samples and summaries ---

    def sample(self, fraction: float, seed: int | None = None, with_replacement: bool = False) -> DataStream:
        """About ``fraction`` of the rows, drawn at random, each on its own; ``with_replacement``: a row may come several times.

        A subtask that runs again, or is mirrored, draws the same rows. So does another run with the same ``seed`` (a whole
        number; None: a new one for this stream) as long as every subtask reads the same rows in the same order: right
        behind a source, that is the same files with the same options. Where the subtasks' ranges or number change, other
        rows are drawn. Behind an exchange rows may come in another order when a subtask runs again; its consumers then run
        again too.
        """
        return DataStream(summaries.sample(self._pipeline, fraction, seed, with_replacement))

    def describe(self, *columns: str) -> DataStream:
        """PySpark's: rows ``count``, ``mean``, ``stddev``, ``min`` and ``max`` of these columns, as text, under ``summary``.

        Without columns: of all numbers and strings. Nulls do not count; NaN is the largest number; ``stddev`` is the
        sample's. Of other values than numbers there is no mean. A double is written as Python writes it (``858993460.4``, not
        ``8.589934604E8``).
        """
        return DataStream(summaries.describe(self._pipeline, columns))

    def summary(self, *statistics: str) -> DataStream:
        """As :meth:`describe` of all numbers and strings, with these of its rows only, in this order (none: all)."""
        return DataStream(summaries.summary(self._pipeline, statistics))

    # --- how rows travel to the next step ---

    def rebalance(self) -> DataStream:
        """Spreads rows evenly over all subtasks of the next step (all-to-all)."""
        return DataStream(self._pipeline.partitioned(ShipStrategy.REBALANCE))

    def rescale(self) -> DataStream:
        """Lets each subtask of the next step read from a few neighbours only (pointwise)."""
        return DataStream(self._pipeline.partitioned(ShipStrategy.RESCALE))

    def forward(self) -> DataStream:
        """Gives the next step the same parallelism: subtask k reads what subtask k made."""
        return DataStream(self._pipeline.partitioned(ShipStrategy.FORWARD))

    def broadcast(self) -> BroadcastStream:
        """Every subtask of the next step gets all rows."""
        return BroadcastStream(self._pipeline.partitioned(ShipStrategy.BROADCAST))

    def global_(self) -> DataStream:
        """One subtask of the next step gets all rows."""
        return DataStream(self._pipeline.partitioned(ShipStrategy.GLOBAL))

    def range_partition(self, *columns: Column | list[Column], ascending: Directions = True) -> DataStream:
        """Brings rows with neighbouring values of these columns together: each subtask gets a range of them, all rows with
        equal values in one. Within a subtask there is no order. The number of ranges is decided from their bytes, or set by
        ``set_parallelism``. Expressions are columns, too: ``F.year("day")``. The result does not have them.
        """
        return DataStream(ordering.range_partition(self._pipeline, columns, ascending))

    def repartition(self, n: int | str, *columns: str) -> DataStream:
        """The rows spread over exactly ``n`` subtasks, evenly, or by the hash of ``columns``, so that equal ones are together.

        Steps that follow are chained to it, and run in so many subtasks, until one of them sets its own parallelism or
        begins an exchange. ``repartition("k")`` leaves the number to be decided from the bytes. Seldom needed here:
        every exchange spreads its rows by their bytes.
        """
        return DataStream(partitioning.repartition(self._pipeline, n, columns))

    def repartition_by_range(self, number: int | Column, *columns: Column) -> DataStream:
        """PySpark's ``repartitionByRange``: :meth:`range_partition`, with the number of ranges before the columns if it is set."""
        return DataStream(partitioning.repartition_by_range(self._pipeline, number, columns))

    def coalesce(self, n: int) -> DataStream:
        """The rows in exactly ``n`` subtasks, each reading a few neighbours (PySpark's merges partitions, too).

        For a default in the place of nulls see :meth:`fill_nulls`.
        """
        return DataStream(partitioning.coalesce(self._pipeline, n))

    repartitionByRange = repartition_by_range  # noqa: N815

    # --- shown to the user ---

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"{type(self).__name__}[{fields}] of {self._pipeline.node.name}"

    def _repr_html_(self) -> str:
        """In a notebook: its columns and the steps behind it."""
        return self._pipeline.as_html(repr(self))

    if not TYPE_CHECKING:  # for the type checker an unknown name stays an error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            raise no_such_step(self, name, self.columns)

        def __getitem__(self, key: Any) -> Any:
            raise no_subscript(key)


class BroadcastStream(DataStream):
    """A stream that every subtask of the next step reads whole."""
