"""The ends of a stream: sinks, which run at ``env.execute()``, actions, which run now, and rows kept for later jobs.

The work is in the functions of ``steps``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from firesteel.api.steps import actions, caching, merging, writing
from firesteel.api.steps.common import require_count, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.writing import FileOptions, Layout, TableOptions, laid_out
from firesteel.compile.stream_graph import Chaining, StepConfig, StreamNode
from firesteel.local import runs
from firesteel.model.slot_sharing_group import SlotSharingGroup, as_group
from firesteel.users_line import caller_place

if TYPE_CHECKING:
    from firesteel.connectors.base import Sink


class Configurable:
    """A stream or a sink whose last step can be configured. Every method returns the same object."""

    def _config(self, setting: str) -> StepConfig:
        """The last step's settings. ``setting``: for messages. Raises UsageError if there is no step to set it on."""
        raise NotImplementedError

    @contextmanager
    def _setting(self, setting: str) -> Generator[StepConfig]:
        """The last step's settings; an error inside gets the user's place."""
        with step_at(setting):
            yield self._config(setting)

    def name(self, name: str) -> Self:
        """Sets the name of the step in progress, explain and Spark's UI."""
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


class StreamSink(Configurable):
    """A sink that ``env.execute()`` will run."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def _config(self, setting: str) -> StepConfig:
        return self._node.config

    def __repr__(self) -> str:
        return f"StreamSink[{self._node.name}]"


class Ends(Configurable):
    """A pipeline whose rows can be written, computed and kept."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Made by the environment and by the steps, not by users."""
        self._pipeline = pipeline

    def _config(self, setting: str) -> StepConfig:
        return self._pipeline.config(setting)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return self._pipeline.schema

    @property
    def columns(self) -> list[str]:
        return self._pipeline.names

    # --- sinks ---

    @laid_out(FileOptions)
    def write_parquet(
        self,
        path: Any,
        *,
        bucket_by: tuple[Any, ...] | None = None,
        sort_by: str | Sequence[str] | None = None,
        compression: str = "snappy",
        merge_schema: bool = False,
        **layout: Unpack[FileOptions],
    ) -> StreamSink:
        """Writes a directory of Parquet files, published once, at the end, with ``_SUCCESS``.

        ``mode``, if the directory exists: ``"error"``, ``"overwrite"`` (all of it is replaced, once the new files are
        complete), ``"append"`` (files are added), ``"overwrite_partitions"`` (the partitions that there are rows for are
        replaced, all others stay) or ``"ignore"`` (nothing is written). ``partition_by``: columns whose values become
        directories, ``a=1/b=x``. ``file_size``: rows are gathered, by one exchange more, so that files have about so many bytes each
        (``"128 MiB"``). ``max_file_size``: about so many bytes at most. ``merge_schema``: appended
        files may have other columns than the files there; read them with ``merge_schema``, too. A path that only Spark can
        open (``s3a://``, ``dbfs:/``) Spark writes when the job commits, all or nothing as far as Spark's own committer is.

        ``bucket_by``: ``(8, "user")`` parts the rows among 8 buckets by Spark's hash of columns, by one exchange more, so that a table of Spark
        over the directory (``CREATE TABLE ... CLUSTERED BY (user) INTO 8 BUCKETS LOCATION ...``) joins and groups by them without
        an exchange. ``sort_by``: columns that order the rows within each file.
        """
        own = {"compression": compression, "merge_schema": merge_schema}
        return StreamSink(writing.write_parquet(self._pipeline, Layout(path, **layout), bucket_by, sort_by, **own))

    @laid_out(FileOptions)
    def write_text(
        self,
        path: Any,
        *,
        compression: str | None = None,
        **layout: Unpack[FileOptions],
    ) -> StreamSink:
        """Writes a directory of text files, one line a row, from a stream of one string column beside those to partition by.

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        return self._files("text", Layout(path, **layout), compression=compression)

    @laid_out(FileOptions)
    def write_csv(
        self,
        path: Any,
        *,
        header: bool = True,
        sep: str = ",",
        null_value: str = "",
        compression: str | None = None,
        **layout: Unpack[FileOptions],
    ) -> StreamSink:
        """Writes a directory of CSV files; texts in quotes, quotes inside doubled, null as ``null_value`` without quotes.

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        return self._files(
            "csv", Layout(path, **layout), header=header, sep=sep, null_value=null_value, compression=compression
        )

    @laid_out(FileOptions)
    def write_json(
        self,
        path: Any,
        *,
        ignore_null_fields: bool = True,
        compression: str | None = None,
        **layout: Unpack[FileOptions],
    ) -> StreamSink:
        """Writes a directory of files with a JSON object a line, without the fields that are null (``ignore_null_fields``).

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        return self._files(
            "json", Layout(path, **layout), ignore_null_fields=ignore_null_fields, compression=compression
        )

    @laid_out(FileOptions)
    def write_arrow(
        self,
        path: Any,
        *,
        compression: str | None = None,
        **layout: Unpack[FileOptions],
    ) -> StreamSink:
        """Writes a directory of Arrow IPC files. ``compression``: of the buffers inside, lz4 or zstd. The others as in
        :meth:`write_parquet`."""
        return self._files("arrow", Layout(path, **layout), compression=compression)

    def merge_parquet(
        self,
        path: Any,
        key: str | Sequence[str],
        *,
        when_matched: str = "update",
        when_not_matched: str = "insert",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str = "snappy",
        filesystem: Any = None,
    ) -> StreamSink:
        """Merges the rows into a directory of Parquet files by ``key``, one or several columns.

        ``when_matched``: rows whose key is there take the place of those (``"update"``), remove them (``"delete"``) or are left out
        (``"ignore"``). ``when_not_matched``: other rows are added (``"insert"``) or left out (``"ignore"``). Only files with matches
        are written anew. ``partition_by`` is that of the directory, which is made if it is not there. Fails if two rows of the stream have
        one key, a key is null, or another program changed the directory meanwhile. The others as in :meth:`write_parquet`.
        """
        layout = Layout(path, "append", partition_by, max_file_size=max_file_size, filesystem=filesystem)
        when = (when_matched, when_not_matched)
        return StreamSink(merging.merge_parquet(self._pipeline, key, layout, when, compression))

    @laid_out(TableOptions)
    def write_delta(
        self,
        path: Any,
        *,
        compression: str = "snappy",
        storage_options: Mapping[str, str] | None = None,
        **layout: Unpack[TableOptions],
    ) -> StreamSink:
        """Writes a Delta table in one transaction (extra ``delta``).

        ``mode``, if the table exists: ``"error"``, ``"append"``, ``"overwrite"`` (all rows are replaced), ``"overwrite_partitions"``
        (those of partitions that there are rows for) or ``"ignore"``. ``partition_by``: of a new table. ``storage_options``: of
        ``deltalake``, which writes the log. The others as in :meth:`write_parquet`.
        """
        node = writing.write_delta(
            self._pipeline, Layout(path, **layout), compression=compression, storage_options=storage_options
        )
        return StreamSink(node)

    @laid_out(TableOptions)
    def write_iceberg(
        self,
        table: str,
        catalog: str | Mapping[str, str] = "default",
        *,
        compression: str = "snappy",
        **layout: Unpack[TableOptions],
    ) -> StreamSink:
        """Writes an Iceberg table in one transaction (extra ``iceberg``). ``table``: ``"namespace.name"``; ``catalog``: its name in
        the configuration of ``pyiceberg``, or its properties.

        ``partition_by``: of a new table, by the values themselves. The others as in :meth:`write_delta`.
        """
        return StreamSink(
            writing.write_iceberg(self._pipeline, table, catalog, Layout(None, **layout), compression=compression)
        )

    def _files(self, kind: str, layout: Layout, **own: Any) -> StreamSink:
        return StreamSink(writing.write_files(self._pipeline, kind, layout, **own))

    def write_to(self, sink: Sink) -> StreamSink:
        """Writes to a sink of your own (protocol ``firesteel.Sink``)."""
        return StreamSink(writing.write_to(self._pipeline, sink))

    def write_with_spark(
        self,
        format: str,
        path: Any = None,
        *,
        mode: str = "error",
        partition_by: str | Sequence[str] = (),
        **options: Any,
    ) -> StreamSink:
        """Writes with any data source that this Spark has, when the job commits: as
        ``frame.write.format(format).mode(mode).options(...).save(path)``.

        ``mode``: ``"error"`` if there is something already, ``"append"``, ``"overwrite"``, or ``"ignore"`` (write nothing if
        there is something). ``partition_by``: columns, for formats that have directories by value.

        Subtasks write their rows to the job's storage; once all have finished, and every sink that can be taken back has
        published, one Spark job carries the admitted rows over. So a job that fails before that writes nothing, and each
        row is handed to Spark's writer once, whatever was run twice. From there on the promise is that writer's:

        * Table formats (Delta, Iceberg, Hudi) commit in one transaction.
        * Files: readers may see some before ``_SUCCESS``; ``"overwrite"`` removes the old ones before the new are complete.
        * JDBC is **not one transaction**: each partition is one, so a writer that fails half-way leaves the rows of
          other partitions, and a partition that Spark tries again after its commit was lost is there twice.
          ``numPartitions=1`` makes the rows one transaction (of a database that has them); creating the table, and
          emptying it for ``"overwrite"`` (``truncate=True`` keeps its definition), come before and apart.
        * With Spark's own speculation on, writers without a commit protocol, JDBC among them, may write rows twice.

        Raises UsageError, before the job, for a format or driver that this Spark does not have, or an output that exists.
        """
        node = writing.write_with_spark(
            self._pipeline, format, path, mode=mode, partition_by=partition_by, options=options
        )
        return StreamSink(node)

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
        return actions.python_rows(actions.to_arrow(self._pipeline, "collect"))

    def to_pandas(self) -> Any:
        """As :meth:`to_arrow`, as a pandas DataFrame with the types of PySpark's ``toPandas``."""
        return actions.to_pandas(self._pipeline)

    def to_dataframe(self) -> Any:
        """Runs the pipeline; a Spark DataFrame that reads its result, which is kept until the session or process ends."""
        return actions.to_dataframe(self._pipeline)

    def take(self, n: int) -> list[dict[str, Any]]:
        """The first ``n`` rows, as Python dicts."""
        return actions.python_rows(actions.take(self._pipeline, n))

    def first(self) -> dict[str, Any] | None:
        """The first row, as a Python dict; None if there are no rows."""
        return next(iter(actions.python_rows(actions.take(self._pipeline, 1, "first"))), None)

    def head(self, n: int | None = None) -> Any:
        """PySpark's: the first row as :meth:`first` gives it, or, with ``n``, the first ``n`` rows as :meth:`take` gives them."""
        return self.first() if n is None else self.take(n)

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

    def explain(self, *, rules: bool = False) -> str:
        """The job that this stream would be: its tasks, the steps chained in each, and how data travels between them.

        ``rules``: also what each rule has changed in the plans of DataFrames and SQL in it, before and after.
        """
        return actions.explain(self._pipeline, rules=rules)

    # --- without Spark, in this process ---

    def test_with(self, rows: Any = None, /, **sources: Any) -> list[dict[str, Any]]:
        """The stream's rows, as Python dicts, over these rows in the place of its sources': for unit tests, in milliseconds.

        ``sources``: rows by the name (or uid) of a step, ``test_with(orders=[{...}], customers=[...])``: dicts that may lack columns (null),
        tuples, an Arrow table or a pandas DataFrame. ``rows``: those of the only source that is not named, or a dict of names to rows. Rows of ``from_collection``
        and its likes stay; all other sources must be given some. All is computed in this process, each step in one subtask, and no Spark is
        started. Raises UsageError for rows or names that do not fit, and whatever a function of yours raises, as it is.
        """
        end = actions.collected(self._pipeline, "test_with")
        return actions.python_rows(runs.test_with(end, self._pipeline.env.options, rows, sources))

    def run_locally(self, rows: int | None = 1000) -> list[dict[str, Any]]:
        """The stream's rows, as Python dicts, over the first ``rows`` of each source (None: all): a try with a debugger at hand.

        All is computed in this process, as in :meth:`test_with`: breakpoints stop, and what a function of yours raises is raised here.
        """
        end = actions.collected(self._pipeline, "run_locally")
        return actions.python_rows(runs.run_locally([end], self._pipeline.env.options, rows)[0])

    toPandas = to_pandas  # noqa: N815
    isEmpty = is_empty  # noqa: N815
    printSchema = print_schema  # noqa: N815
