"""DataStream: a pipeline as a user writes it, step by step.

Every step returns a new stream and leaves the old one as it was, so a stream may be read by several steps. Methods that say
*how* a step runs (``name``, ``set_parallelism``, ``disable_chaining``, ...: ``configurable.py``) set it on the last step, as in
Flink. Nothing is read or computed before ``execute`` or one of ``collect``, ``count``, ``show``, ...; but every schema is
known and checked as the step is made. The work is in the functions of ``steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.configurable import Configurable
from firesteel.api.connectors import dataframes, spark_columns
from firesteel.api.joinable import Joinable
from firesteel.api.keyed_stream import KeyedStream
from firesteel.api.reshaping import Reshaping
from firesteel.api.service_steps import ServiceSteps
from firesteel.api.steps import (
    actions,
    caching,
    functions,
    keyed,
    ordering,
    partitioning,
    projection,
    summaries,
)
from firesteel.api.steps.combining import set_operations
from firesteel.api.steps.ordering import Column, Directions
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.unknown_names import no_subscript, no_such_step
from firesteel.api.writable import Writable
from firesteel.compile.stream_graph import StepConfig
from firesteel.local import runs
from firesteel.model.job_graph import ShipStrategy


class DataStream(Configurable, Joinable, Reshaping, ServiceSteps, Writable):
    """Rows of one schema, as Arrow record batches, produced by a pipeline of steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Made by the environment and by the steps, not by users."""
        self._pipeline = pipeline

    def _config(self, setting: str) -> StepConfig:
        return self._pipeline.config(setting)

    def _after(self, pipeline: Pipeline) -> DataStream:
        """The stream of a pipeline that begins with this one's."""
        return DataStream(pipeline)

    # --- columns ---

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return self._pipeline.schema

    @property
    def columns(self) -> list[str]:
        return self._pipeline.names

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
        condition: pc.Expression | Callable[..., Any] | str,
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

    mapInArrow = map_in_arrow  # noqa: N815
    mapInPandas = map_in_pandas  # noqa: N815
    flatMap = flat_map  # noqa: N815
    selectExpr = select_expr  # noqa: N815
    where = filter

    # --- keys and aggregates ---

    def key_by(self, *columns: str) -> KeyedStream:
        """The stream with equal values of these columns brought together, for steps on groups."""
        return KeyedStream(self, keyed.key_by(self._pipeline, columns))

    def aggregate(self, *aggregates: Any, **named: Any) -> DataStream:
        """One row with aggregates over all rows. See :meth:`KeyedStream.aggregate`."""
        return DataStream(spark_columns.aggregate(self._pipeline, (), aggregates, named))

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

    group_by = key_by
    groupBy = key_by  # noqa: N815
    agg = aggregate
    dropDuplicates = drop_duplicates  # noqa: N815

    # --- order and first rows ---

    def sort(self, *columns: Column | list[Column], ascending: Directions = True) -> DataStream:
        """All rows in the order of these columns, over all subtasks: the rows of subtask k come before those of k + 1.

        A column may be given with its own direction, ``("name", False)`` for descending; ``ascending`` may be a list, one
        for each column. As in Spark: nulls come first, and last in a descending column; NaN is greater than all numbers.
        Equal rows keep the order in which they were written: by producer, then as they came. The order holds for the steps
        that are chained behind it, up to the next exchange, for ``collect`` and for the files of a sink, in the order of
        their names; ``sort().limit(n)`` gives the first n.
        """
        return DataStream(ordering.sort(self._pipeline, columns, ascending))

    def limit(self, n: int) -> DataStream:
        """At most ``n`` rows: the first of the first subtasks."""
        return DataStream(ordering.limit(self._pipeline, n))

    def top_k(self, n: int, *columns: str | tuple[str, bool], ascending: bool = False) -> DataStream:
        """The ``n`` rows with the largest values of these columns (``ascending``: smallest), in order; nulls last.

        NaN is greater than every number. A column may be given with its own direction: ``("name", True)`` is ascending.
        """
        return DataStream(ordering.top_k(self._pipeline, n, columns, ascending))

    orderBy = order_by = sort  # noqa: N815

    # --- several streams ---

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
        sample's. Of other values than numbers there is no mean.
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
        ``set_parallelism``.
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

    # --- rows kept for later jobs ---

    def cache(self) -> Self:
        """Keeps the rows of the last step on storage when a job first computes them; later jobs of the session read them.

        Nothing runs now. As in PySpark the stream itself is marked and returned. The rows stay until :meth:`uncache`,
        until the environment is closed, the process ends, or no stream is left that leads to them. Later jobs know their
        sizes exactly, and decide their readers' parallelism by them. Two jobs at once: the first one keeps the rows, the
        other computes them for itself.
        """
        caching.keep(self._pipeline)
        return self

    def persist(self, *level: Any) -> Self:
        """PySpark's name of :meth:`cache`. There is one level: on storage."""
        caching.keep_at(self._pipeline, level)
        return self

    def uncache(self) -> Self:
        """Removes the kept rows, once no running job reads them; later jobs compute the step again. No error if it is not
        cached."""
        caching.remove(self._pipeline)
        return self

    @property
    def is_cached(self) -> bool:
        """True once later jobs will read the rows of the last step instead of computing them."""
        return caching.is_kept(self._pipeline)

    unpersist = uncache

    # --- actions: run the pipeline now ---

    def to_arrow(self) -> pa.Table:
        """Runs the pipeline and brings the rows to the driver, at most ``firesteel.max-collect-bytes`` of them."""
        return actions.to_arrow(self._pipeline)

    def collect(self) -> list[dict[str, Any]]:
        """As :meth:`to_arrow`, as Python dicts."""
        return actions.to_arrow(self._pipeline, "collect").to_pylist()

    def to_pandas(self) -> Any:
        """As :meth:`to_arrow`, as a pandas DataFrame with the types of PySpark's ``toPandas``."""
        return actions.to_pandas(self._pipeline)

    def to_dataframe(self) -> Any:
        """Runs the pipeline; a Spark DataFrame that reads its result, which is kept until the session or process ends."""
        return actions.to_dataframe(self._pipeline)

    def take(self, n: int) -> list[dict[str, Any]]:
        """The first ``n`` rows, as Python dicts."""
        return actions.take(self._pipeline, n).to_pylist()

    def first(self) -> dict[str, Any] | None:
        """The first row, as a Python dict; None if there are no rows."""
        return next(iter(actions.take(self._pipeline, 1, "first").to_pylist()), None)

    def is_empty(self) -> bool:
        """True if there are no rows."""
        return actions.take(self._pipeline, 1, "is_empty").num_rows == 0

    def count(self) -> int:
        """The number of rows."""
        return actions.count(self._pipeline)

    def show(self, n: int = 20, truncate: int = 20) -> None:
        """Prints the first ``n`` rows as a table, values cut to ``truncate`` characters (0: not at all)."""
        actions.show(self._pipeline, n, truncate)

    def print_schema(self) -> None:
        """Prints the columns and their types as a tree. Runs nothing."""
        actions.print_schema(self.schema)

    def explain(self) -> str:
        """The job that this stream would be: its tasks, the steps chained in each, and how data travels between them."""
        return actions.explain(self._pipeline)

    # --- without Spark, in this process ---

    def test_with(self, rows: Any = None, /, **sources: Any) -> list[dict[str, Any]]:
        """The stream's rows, as Python dicts, over these rows in the place of its sources': for unit tests, in milliseconds.

        ``sources``: rows by the name (or uid) of a step, ``test_with(orders=[{...}], customers=[...])``: dicts that may lack columns (null),
        tuples, an Arrow table or a pandas DataFrame. ``rows``: those of the only source that is not named, or a dict of names to rows. Rows of ``from_collection``
        and its likes stay; all other sources must be given some. All is computed in this process, each step in one subtask, and no Spark is
        started. Raises UsageError for rows or names that do not fit, and whatever a function of yours raises, as it is.
        """
        end = actions.collected(self._pipeline, "test_with")
        return runs.test_with(end, self._pipeline.env.options, rows, sources).to_pylist()

    def run_locally(self, rows: int | None = 1000) -> list[dict[str, Any]]:
        """The stream's rows, as Python dicts, over the first ``rows`` of each source (None: all): a try with a debugger at hand.

        All is computed in this process, as in :meth:`test_with`: breakpoints stop, and what a function of yours raises is raised here.
        """
        end = actions.collected(self._pipeline, "run_locally")
        return runs.run_locally([end], self._pipeline.env.options, rows)[0].to_pylist()

    toPandas = to_pandas  # noqa: N815
    isEmpty = is_empty  # noqa: N815
    printSchema = print_schema  # noqa: N815

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
