"""DataStream: a pipeline as a user writes it, step by step.

Every step returns a new stream and leaves the old one as it was, so a stream may be read by several steps. What follows
a step to say *how* it runs (``name``, ``set_parallelism``, ``disable_chaining``, ...) sets it on that last step, as in
Flink. Nothing is read or computed before ``execute`` or one of ``collect``, ``count``, ``show``, ...; but every schema is
known and checked as the step is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api import actions
from firesteel.api.ddl import to_schema
from firesteel.api.place import caller_place
from firesteel.api.steps import (
    Sides,
    aggregations,
    require_count,
    require_function,
    same_columns,
    step_at,
)
from firesteel.connectors.parquet import ParquetSink
from firesteel.connectors.paths import only_spark_opens
from firesteel.connectors.text import TextSink
from firesteel.errors import UsageError
from firesteel.expressions import passed_columns, plain_column
from firesteel.graph.describe import describe
from firesteel.graph.job_graph import ShipStrategy
from firesteel.graph.slot_sharing_group import SlotSharingGroup, as_group
from firesteel.graph.stream_graph import (
    ChainedStep,
    Chaining,
    SinkStep,
    StepConfig,
    StreamEdge,
    StreamNode,
    UnionStep,
    Work,
)
from firesteel.operators.functions import MapInArrow, MapInPandas
from firesteel.operators.relational import (
    Filter,
    Limit,
    Project,
    TopK,
    as_expression,
    check_columns,
    check_filter,
    order_type,
    project_schema,
)

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment
    from firesteel.api.keyed_stream import KeyedStream
    from firesteel.connectors.base import Sink


class _Configurable:
    """What can be set on the last step."""

    _node: StreamNode

    def _config(self, what: str) -> StepConfig:
        return self._node.config

    @contextmanager
    def _setting(self, what: str) -> Generator[StepConfig]:
        """The last step's settings; an error inside gets the user's place."""
        with step_at(what):
            yield self._config(what)

    def name(self, name: str) -> Self:
        """What the step is called in progress, explain and Spark's UI."""
        with self._setting("name") as config:
            config.name = str(name)
        return self

    def uid(self, uid: str) -> Self:
        """An identifier of the step that stays the same when the pipeline around it changes."""
        with self._setting("uid") as config:
            config.uid = str(uid)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Runs the step in exactly so many subtasks, instead of letting the scheduler decide."""
        with self._setting("set_parallelism") as config:
            config.parallelism = require_count(parallelism, "set_parallelism()", 1)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Runs the step in at most so many subtasks."""
        with self._setting("set_max_parallelism") as config:
            config.max_parallelism = require_count(max_parallelism, "set_max_parallelism()", 1)
        return self

    def disable_chaining(self) -> Self:
        """Shares no task with the steps before and after it."""
        with self._setting("disable_chaining") as config:
            config.chaining = Chaining.NEVER
        return self

    def start_new_chain(self) -> Self:
        """Shares no task with the step before it."""
        with self._setting("start_new_chain") as config:
            config.chaining = Chaining.HEAD
        return self

    def slot_sharing_group(self, group: SlotSharingGroup | str) -> Self:
        """Puts the step into a slot sharing group; resources that the group has are what each of its slots needs.

        A step that is put into none takes its inputs' group if they all share one, else ``"default"``, which may be named
        here. Steps share a task only within one group. Sharing is a hint, not a guarantee. What is registered for the
        name (``env.register_slot_sharing_group``, ``slot-sharing-group.<name>.*``) replaces the resources given here.
        """
        with self._setting("slot_sharing_group") as config:
            config.slot_sharing_group = as_group(group)
            config.group_place = caller_place()
        return self

    def no_speculation(self) -> Self:
        """Never mirrors the step, nor the steps that share its task, however slow one of its executions is."""
        with self._setting("no_speculation") as config:
            config.speculative = False
        return self

    def side_effects(self) -> Self:
        """Says that its functions act on the outside (call a service, write files of their own).

        No two attempts of a subtask run at the same time then, so there are no mirrors either. An attempt that failed is
        still followed by another one: what it did, it may do twice.
        """
        with self._setting("side_effects") as config:
            config.side_effects = True
        return self

    def as_nondeterministic(self) -> Self:
        """Says that its functions may give other rows when they run again (random numbers, the time, a service's answers).

        As PySpark's ``udf(...).asNondeterministic()``. When one of its subtasks has to run again after somebody read what
        it gave before, whoever read it runs again too, so that all of them see the same rows.
        """
        with self._setting("as_nondeterministic") as config:
            config.deterministic = False
        return self

    asNondeterministic = as_nondeterministic  # noqa: N815


class DataStream(_Configurable):
    """Rows of one schema, as Arrow record batches, produced by a pipeline of steps."""

    def __init__(
        self, env: ExecutionEnvironment, node: StreamNode, ship: ShipStrategy | None = None, sides: Sides = ()
    ) -> None:
        """Made by the environment and by the steps, not by users."""
        self._env = env
        self._node = node
        self._ship = ship
        self._sides = sides

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return self._node.schema

    @property
    def columns(self) -> list[str]:
        return list(self._node.schema.names)

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"{type(self).__name__}[{fields}] of {self._node.name}"

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

    # --- columns and rows ---

    def select(self, *columns: Any, **named: Any) -> DataStream:
        """Only these columns: names (``"*"``: all), expressions that merely name one, or ``new_name=expression``."""
        with step_at("select") as place:
            flat = [c for column in columns for c in self._spread(column)]
            pairs = [(self._column_name(c), as_expression(c)) for c in flat]
            pairs += [(name, as_expression(e)) for name, e in named.items()]
            if not pairs:
                raise UsageError("Nothing is selected.", hint="Name at least one column.")
            return self._project("select", pairs, place)

    def _spread(self, column: Any) -> list[Any]:
        if isinstance(column, list | tuple):
            return list(cast(Sequence[Any], column))
        return list(self.schema.names) if isinstance(column, str) and column == "*" else [column]

    def _column_name(self, column: Any) -> str:
        if isinstance(column, str):
            check_columns(self.schema, [column], "select")
            return column
        expression = as_expression(column)
        name = plain_column(expression, self.schema)
        if name is None:
            project_schema(self.schema, [("x", expression)])
            raise UsageError(f"The expression {expression} has no name.", hint=f"Write select(name={expression}).")
        return name

    def with_column(self, name: str, expression: Any) -> DataStream:
        """All columns and one more (or another one of that name)."""
        with step_at("with_column") as place:
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"The name of a column is a string, not {name!r}.")
            if isinstance(expression, str):
                raise UsageError(
                    f"with_column wants an expression, not the string {expression!r}.",
                    hint=f"Write col({expression!r}) for the column, lit({expression!r}) for the text.",
                )
            columns = {n: pc.field(n) for n in self.schema.names} | {name: as_expression(expression)}
            return self._project(f"with_column({name})", list(columns.items()), place)

    def drop(self, *columns: str) -> DataStream:
        """All columns but these."""
        with step_at("drop") as place:
            check_columns(self.schema, columns, "drop")
            rest = [(n, pc.field(n)) for n in self.schema.names if n not in columns]
            if not rest:
                raise UsageError("No column would be left.")
            return self._project("drop", rest, place)

    def _project(self, kind: str, pairs: list[tuple[str, pc.Expression]], place: str) -> DataStream:
        self._refuse_sides(kind)
        schema = project_schema(self.schema, pairs)
        columns = tuple(pairs)
        work = ChainedStep(Project(kind, columns, schema), passed_columns(columns, self.schema), columns)
        return self._then(kind, work, schema, place)

    def filter(self, condition: pc.Expression) -> DataStream:
        """Only the rows for which the expression is true (null is not true)."""
        with step_at("filter") as place:
            self._refuse_sides("filter")
            if isinstance(condition, str):
                raise UsageError(
                    f"filter wants an expression, not the string {condition!r}.",
                    hint='Write, for example, col("n") > 3.',
                )
            expression = as_expression(condition)
            check_filter(self.schema, expression)
            passed = {name: name for name in self.schema.names}
            return self._then(
                "filter", ChainedStep(Filter("filter", expression), passed, None, expression), self.schema, place
            )

    def limit(self, n: int) -> DataStream:
        """At most ``n`` rows: the first of the first subtasks."""
        with step_at("limit") as place:
            kind = f"limit({require_count(n, 'limit()', 0)})"
            return self._in_two(kind, lambda name: Limit(name, n), place)

    def top_k(self, n: int, *columns: str | tuple[str, bool], ascending: bool = False) -> DataStream:
        """The ``n`` rows with the largest values of these columns (``ascending``: smallest), in order; nulls last.

        A column may be given with its own direction: ``("name", True)`` is ascending.
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

    # --- partitioning ---

    def rebalance(self) -> DataStream:
        """Spreads rows evenly over all subtasks of the next step (all-to-all)."""
        return self._partitioned(ShipStrategy.REBALANCE)

    def rescale(self) -> DataStream:
        """Lets each subtask of the next step read from a few neighbours only (pointwise)."""
        return self._partitioned(ShipStrategy.RESCALE)

    def forward(self) -> DataStream:
        """Gives the next step the same parallelism: subtask k reads what subtask k made."""
        return self._partitioned(ShipStrategy.FORWARD)

    def broadcast(self) -> BroadcastStream:
        """Every subtask of the next step gets all rows."""
        return BroadcastStream(self._env, self._node, ShipStrategy.BROADCAST, self._sides)

    def global_(self) -> DataStream:
        """One subtask of the next step gets all rows."""
        return self._partitioned(ShipStrategy.GLOBAL)

    def _partitioned(self, ship: ShipStrategy | None) -> DataStream:
        return DataStream(self._env, self._node, ship, self._sides)

    # --- sinks: run by env.execute() ---

    def write_parquet(
        self, path: Any, *, mode: str = "error", compression: str = "snappy", filesystem: Any = None
    ) -> StreamSink:
        """Writes a directory of Parquet files, published once, at the end, with ``_SUCCESS``.

        ``mode``: ``"error"`` if the directory exists, or ``"overwrite"``. A path that only Spark can open (``s3a://``,
        ``dbfs:/``) Spark writes when the job commits, all or nothing as far as Spark's own committer is.
        """
        with step_at("write_parquet") as place:
            if only_spark_opens(path, filesystem):
                sink: Sink = self._spark_sink(path, "parquet", mode, compression)
                return self._sink(f"write_parquet({path})", sink, place)
            sink = ParquetSink(path, mode=mode, compression=compression, filesystem=filesystem)
            return self._sink(f"write_parquet({path})", sink, place)

    def write_text(self, path: Any, *, mode: str = "error", filesystem: Any = None) -> StreamSink:
        """Writes a directory of text files, one line a row, from a stream of one string column."""
        with step_at("write_text") as place:
            if only_spark_opens(path, filesystem):
                return self._sink(f"write_text({path})", self._spark_sink(path, "text", mode, "snappy"), place)
            return self._sink(f"write_text({path})", TextSink(path, mode=mode, filesystem=filesystem), place)

    def _spark_sink(self, path: Any, kind: str, mode: str, compression: str) -> Sink:
        from firesteel.api.spark_files import SparkFileSink
        from firesteel.spark.session import is_local
        from firesteel.spark.storage import storage_root

        session = self._env.spark
        storage = storage_root(self._env.options, shared=not is_local(session.sparkContext))
        return SparkFileSink(session, str(path), kind, storage, mode=mode, compression=compression)

    def write_to(self, sink: Sink) -> StreamSink:
        """Writes to a sink of your own (protocol ``firesteel.Sink``)."""
        with step_at("write_to") as place:
            missing = [
                m for m in ("check", "begin", "write", "commit", "abort") if not callable(getattr(sink, m, None))
            ]
            if missing:
                raise UsageError(f"{type(sink).__name__} is no sink: it has no method {', '.join(missing)}.")
            return self._sink(f"write_to({getattr(sink, 'name', type(sink).__name__)})", sink, place)

    def _sink(self, kind: str, sink: Any, place: str) -> StreamSink:
        self._refuse_sides(kind)
        node = StreamNode(kind, SinkStep(sink), self.schema, (self._edge(),), place=place)
        self._env._register(node)  # pyright: ignore[reportPrivateUsage]
        return StreamSink(node)

    # --- actions: run at once ---

    def to_arrow(self) -> pa.Table:
        """Runs the pipeline and brings the rows to the driver, at most ``firesteel.max-collect-bytes`` of them."""
        return actions.to_arrow(self, "to_arrow")

    def collect(self) -> list[dict[str, Any]]:
        """As :meth:`to_arrow`, as Python dicts."""
        return actions.to_arrow(self, "collect").to_pylist()

    def to_pandas(self) -> Any:
        """As :meth:`to_arrow`, as a pandas DataFrame with the types of PySpark's ``toPandas``."""
        return actions.to_pandas(actions.to_arrow(self, "to_pandas"))

    def to_dataframe(self) -> Any:
        """Runs the pipeline; a Spark DataFrame that reads its result, which is kept until the session or process ends."""
        return actions.to_dataframe(self)

    def take(self, n: int) -> list[dict[str, Any]]:
        """The first ``n`` rows, as Python dicts."""
        return actions.to_arrow(self.limit(n), "take").to_pylist()

    def count(self) -> int:
        """The number of rows."""
        return actions.count(self)

    def show(self, n: int = 20, truncate: int = 20) -> None:
        """Prints the first ``n`` rows as a table, values cut to ``truncate`` characters (0: not at all)."""
        actions.show(self, require_count(n, "show()", 0), require_count(truncate, "truncate", 0))

    def explain(self) -> str:
        """The job that this stream would be: its tasks, what is chained in each, and how data travels between them."""
        end = actions.collected(self, "collect")
        return describe(self._env._compile([end], "explain"))

    # --- for the steps ---

    def _then(self, kind: str, work: Work, schema: pa.Schema, place: str, *, sides: Sides = ()) -> DataStream:
        return DataStream(self._env, StreamNode(kind, work, schema, (self._edge(),), sides, place))

    def _edge(self) -> StreamEdge:
        return StreamEdge(self._node, self._ship)

    def _config(self, what: str) -> StepConfig:
        if self._ship is not None or isinstance(self._node.work, UnionStep):
            step = "union" if self._ship is None else self._ship.value
            raise UsageError(
                f"{what}() behind {step}() has no step to set it on: {step}() only says how rows travel.",
                hint="Set it on the step before or the step after.",
            )
        return self._node.config

    def _refuse_sides(self, kind: str) -> None:
        if self._sides:
            raise UsageError(
                f"with_broadcast({', '.join(f'{name}=...' for name, _ in self._sides)}) is not used: {kind} calls no function.",
                hint="Put it right before map_in_arrow, map_in_pandas, or key_by with apply_in_arrow or apply_in_pandas.",
            )

    def _same_env(self, other: DataStream) -> None:
        if other._env is not self._env:
            raise UsageError(
                "The streams belong to two environments.", hint="Make both from the same ExecutionEnvironment."
            )


class BroadcastStream(DataStream):
    """A stream that every subtask of the next step reads whole."""


class StreamSink(_Configurable):
    """A sink that ``env.execute()`` will run."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def __repr__(self) -> str:
        return f"StreamSink[{self._node.name}]"
