"""ExecutionEnvironment: where pipelines begin, and what runs them.

Making an environment and building and checking pipelines needs no Spark: a session is made when the first job starts, unless
one was given. A given session is used, never stopped or reconfigured. The work of the sources is in the functions of
``connectors.reading``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from firesteel.api.connectors import dataframes, reading
from firesteel.api.connectors.reading import Files
from firesteel.api.steps.actions import left_to_spark, python_rows, show_table
from firesteel.api.steps.caching import Cache, CacheUse
from firesteel.api.steps.common import step_at
from firesteel.api.streams.data_stream import DataStream
from firesteel.api.unexecuted import sink_made, sinks_used
from firesteel.api.unknown_names import no_such_name_of_a_session
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.describe import describe, describe_left_to_spark, describe_rules
from firesteel.compile.slot_sharing import unused_groups
from firesteel.compile.stream_graph import StreamNode
from firesteel.errors import FiresteelError, UsageError, interruption
from firesteel.local import runs
from firesteel.local.runs import LocalMode
from firesteel.model.group_options import groups_of
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import RECOVERY_DRY_RUN, Options, asks_to_resume
from firesteel.options.layers import read_spark_conf, surroundings
from firesteel.options.registry import ON_COMMAND_LINE
from firesteel.ui.process import ui_of
from firesteel.users_line import caller_level

if TYPE_CHECKING:
    from firesteel.api.job_client import JobClient, JobResult
    from firesteel.connectors.base import Source
    from firesteel.spark.driver.runtime import SubmittedJob


@dataclass(slots=True)
class _Defaults:
    """Defaults for environments where the program says nothing; set by ``firesteel run``."""

    master: str | None = None
    options: Options = field(default_factory=Options)
    local: LocalMode | None = None


_defaults = _Defaults()
_session_lock = threading.Lock()
"""Two jobs that are the first to need Spark must not both start it."""


def running_context() -> Any:
    """The Spark context of this process; None if there is none (pyspark is not loaded to find out)."""
    module = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = getattr(module, "SparkContext", None)
    return getattr(context, "_active_spark_context", None)


def set_defaults(
    *, master: str | None = None, options: Mapping[str, Any] | None = None, local: LocalMode | None = None
) -> None:
    """For every environment made from now on that leaves the master, or one of these options, open. ``local``: all that such
    environments compute they compute in this process. :meth:`ExecutionEnvironment.get_or_create` makes a new one, too."""
    _defaults.master, _defaults.local = master, local
    _defaults.options = Options(options, ON_COMMAND_LINE)
    ExecutionEnvironment._found = None  # pyright: ignore[reportPrivateUsage]


class ExecutionEnvironment:
    """``spark``: a session to use; without one, a session on ``master`` (``local[*]``) is made, or the running one used.

    ``options``: values by key (``firesteel options`` lists the keys). They override the command line's, those override ``FIRESTEEL_...`` in the
    environment, those ``spark.firesteel.<key>`` in Spark's configuration, those over ``config``, the path of a YAML file
    (which goes over the file of FIRESTEEL_CONFIG). Only :meth:`get_or_create` changes the options of an environment.
    As a context manager it stops, at the end, the session that it has made; a given or found one it leaves alone.
    """

    _found: ClassVar[ExecutionEnvironment | None] = None
    """The one that :meth:`get_or_create` returns."""

    def __init__(
        self,
        spark: Any = None,
        options: Mapping[str, Any] | None = None,
        *,
        master: str | None = None,
        app_name: str = "firesteel",
        config: str | os.PathLike[str] | None = None,
    ) -> None:
        if spark is not None and master is not None:
            raise UsageError("A session and a master were given.", hint="Leave out the master: the session has one.")
        if isinstance(spark, str) or isinstance(options, str):
            raise UsageError(
                "ExecutionEnvironment takes a SparkSession.",
                hint="For a master write ExecutionEnvironment(master=...).",
            )
        files = () if config is None else (os.fspath(config),)
        around = surroundings(configs=files).merged(_defaults.options)
        self.options = around.merged(Options(options))
        self._groups: dict[str, SlotSharingGroup] = {}
        self._registered = set[str]()
        self._master = master or _defaults.master
        self._app_name = app_name
        self._local = _defaults.local
        self._session: Any = None
        self._stop: Any = None
        self._sinks: list[StreamNode] = []
        self._owner = object()
        """Of the sinks, for the warning on those that were never executed."""
        self._caches: weakref.WeakSet[Cache] = weakref.WeakSet()
        if spark is not None:
            self._use(spark)
        elif (running := running_context()) is not None:
            self._take_conf(running.getConf().getAll())
        self._read_groups()
        self._unproven = set(self._groups)
        """Slot sharing groups from the options of which no job has been looked at yet."""

    @classmethod
    def get_or_create(
        cls,
        master: str | None = None,
        options: Mapping[str, Any] | None = None,
        app_name: str = "firesteel",
        config: str | os.PathLike[str] | None = None,
    ) -> ExecutionEnvironment:
        """The environment that an earlier call made, if it is not closed and its session runs, with these options over its own. Else a new
        one, on the Spark session of this process, or on one that is made when the first job starts. Another master is an error."""
        known = cls._found
        if known is None or known._is_over():
            known = cls._found = cls(options=options, master=master, app_name=app_name, config=config)
            return known
        runs_on = known._master
        if known._session is not None:
            runs_on = getattr(known._session.sparkContext, "master", runs_on)
        if master is not None and runs_on is not None and master != runs_on:
            from firesteel.spark.session.sessions import said_master, same_master

            if not same_master(master, runs_on):
                raise UsageError(
                    f"The environment that there is runs on {said_master(runs_on)}, not on {master}.",
                    hint="Call its close() before, or write ExecutionEnvironment(master=...) for one more.",
                )
        known._master = runs_on or master
        if config is not None:
            known.options = known.options.merged(surroundings(configs=(os.fspath(config),)))
        known.options = known.options.merged(Options(options))
        known._read_groups()
        return known

    def _is_over(self) -> bool:
        """Its session was stopped, or it is not of the command that runs this program."""
        stopped = self._session is not None and getattr(self._session.sparkContext, "_jsc", self) is None
        return stopped or self._local is not _defaults.local

    # --- the page ---

    @property
    def ui_url(self) -> str | None:
        """The address of the page that shows the jobs and streams of this process (``firesteel.ui.enabled``), which is served from
        now on. None: it is off, or cannot be served."""
        ui = ui_of(self.options)
        return None if ui is None else ui.url

    # --- the session ---

    @property
    def spark(self) -> Any:
        """The Spark session; made now if there is none yet."""
        return self._session_with({})

    def _session_with(self, settings: Mapping[str, str]) -> Any:
        """``settings``: Spark's, of a session that has to be made."""
        if self._local is not None:
            raise UsageError(
                "This needs a Spark session, which a run with --local does without.", hint="Run it without --local."
            )
        with _session_lock:
            if self._session is None:
                self._make_session(settings)
            return self._session

    def _make_session(self, settings: Mapping[str, str]) -> None:
        from pyspark import SparkContext

        from firesteel.spark.session.sessions import check_session, create_session

        found = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
        session = create_session(self._master, self._app_name, settings)
        check_session(session)
        self._session = session
        self._take_conf(session.sparkContext.getConf().getAll())
        if found is None:
            self._stop = session.stop

    def _use(self, session: Any) -> None:
        from firesteel.spark.session.sessions import check_session

        check_session(session)
        self._session = session
        self._take_conf(session.sparkContext.getConf().getAll())

    def _adopt(self, session: Any) -> None:
        """Uses the session of a DataFrame that is to be read. Raises UsageError if this environment has another Spark."""
        if self._session is None:
            self._use(session)
        elif self._session.sparkContext is not session.sparkContext:
            raise UsageError(
                "The DataFrame belongs to another Spark than this environment.",
                hint="Give the environment its session.",
            )

    def _take_conf(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Spark's configuration overrides files, and is overridden by options= and the command line."""
        found = read_spark_conf(pairs)
        if not found:
            return
        self.options = self.options.merged(found)
        self._read_groups()

    def _read_groups(self) -> None:
        """Slot sharing groups of the options, which may say one's cores in one place and its memory in another."""
        for name, group in groups_of(self.options).items():
            if name not in self._registered:
                self._groups[name] = group

    def close(self) -> None:
        """Stops the session if this environment made it, and drops what was cached. Sinks that were not executed are forgotten."""
        self._taken()
        self.clear_cache()
        if ExecutionEnvironment._found is self:
            ExecutionEnvironment._found = None
        stop, self._stop, self._session = self._stop, None, None
        if stop is not None:
            stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- sources: where pipelines begin ---

    def read_text(
        self,
        paths: Any,
        *,
        path_column: str | None = None,
        errors: str = "replace",
        compression: str | None = None,
        partitions: Any = True,
        filesystem: Any = None,
    ) -> DataStream:
        """Lines of text files, as column ``value``. ``paths``: a path, glob, directory, URL, or a list of these.

        ``path_column``: a second column with the file each line is from. ``errors``: what to do with bytes that are not
        UTF-8 (replace, ignore, strict). ``compression``: gzip, bz2, zstd, lz4 or none; else by the files' endings.
        ``partitions``: columns from directories such as ``year=2024``: True, False, or their types (``"year int"``). What
        only Spark can open (``s3a://``, ``dbfs:/``) its own reader reads.
        """
        files = Files(paths, partitions, filesystem)
        return DataStream(
            reading.read_text(self, files, path_column=path_column, errors=errors, compression=compression)
        )

    def read_parquet(
        self, paths: Any, *, merge_schema: bool = False, partitions: Any = True, filesystem: Any = None
    ) -> DataStream:
        """Rows of Parquet files. ``paths`` and ``partitions`` as in :meth:`read_text`. Only what later steps need is read (all
        of it where only Spark can open the path).

        The files have one schema. ``merge_schema``: they need not; a column that a file lacks is null in its rows, and types
        are widened to one that holds them all (where only Spark can open the path, by its own rules).
        """
        files = Files(paths, partitions, filesystem)
        return DataStream(reading.read_parquet(self, files, merge_schema=merge_schema))

    def read_delta(
        self, path: Any, *, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DataStream:
        """Rows of a Delta table as it is now, or was at ``version`` (extra ``delta``). Its files are read as those of
        :meth:`read_parquet`. ``storage_options``: of ``deltalake``, which reads its log."""
        return DataStream(reading.read_delta(self, path, version, storage_options))

    def read_iceberg(
        self, table: str, catalog: str | Mapping[str, str] = "default", *, snapshot: int | None = None
    ) -> DataStream:
        """Rows of an Iceberg table as it is now, or was at ``snapshot`` (extra ``iceberg``). ``table``: ``"namespace.name"``;
        ``catalog``: its name in the configuration of ``pyiceberg``, or its properties. Files are read as those of :meth:`read_parquet`."""
        return DataStream(reading.read_iceberg(self, table, catalog, snapshot))

    def read_csv(
        self,
        paths: Any,
        *,
        schema: Any = None,
        header: bool = True,
        sep: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null_values: Any = ("",),
        date_format: Any = (),
        timestamp_format: Any = (),
        infer_schema: bool = True,
        newlines_in_values: bool = False,
        encoding: str = "utf-8",
        corrupt_column: str | None = None,
        compression: str | None = None,
        partitions: Any = True,
        filesystem: Any = None,
    ) -> DataStream:
        """Rows of CSV files. ``paths``, ``compression`` and ``partitions`` as in :meth:`read_text`.

        ``schema``: DDL, a ``pyarrow.Schema`` or a PySpark ``StructType`` with the files' columns in order; without it names
        come from the header and types from the first MiB of the first files (``infer_schema=False``: all strings).
        ``null_values``: what stands for null where it is not quoted. ``date_format`` and ``timestamp_format``: strptime
        patterns besides ISO 8601, one or several. ``newlines_in_values``: values in quotes may hold line ends; each file is
        one split then. Files that Spark wrote with quotes inside of values want ``escape="\\\\"``. ``corrupt_column``: a last
        column with the text of lines that cannot be read and whose other columns are null, as Spark's ``_corrupt_record``;
        without it such a line ends the job.
        """
        csv = reading.csv_format(
            header=header,
            sep=sep,
            quote=quote or None,
            escape=escape or None,
            null_values=null_values,
            date_format=date_format,
            timestamp_format=timestamp_format,
            newlines_in_values=newlines_in_values,
            encoding=encoding,
        )
        begun = reading.read_csv(
            self,
            Files(paths, partitions, filesystem),
            csv,
            schema=schema,
            infer_schema=infer_schema,
            corrupt_column=corrupt_column,
            compression=compression,
        )
        return DataStream(begun)

    def read_json(
        self,
        paths: Any,
        *,
        schema: Any = None,
        newlines_in_values: bool = False,
        corrupt_column: str | None = None,
        compression: str | None = None,
        partitions: Any = True,
        filesystem: Any = None,
    ) -> DataStream:
        """Rows of files with a JSON object a line. ``paths``, ``compression`` and ``partitions`` as in :meth:`read_text`.

        ``schema``: names and types of the fields to read, as in :meth:`read_csv`; without it they are inferred from the
        first MiB of the first files. ``newlines_in_values``: objects may take several lines, or the file be one array;
        each file is one split then. ``corrupt_column`` as in :meth:`read_csv`.
        """
        begun = reading.read_json(
            self,
            Files(paths, partitions, filesystem),
            schema=schema,
            newlines_in_values=newlines_in_values,
            corrupt_column=corrupt_column,
            compression=compression,
        )
        return DataStream(begun)

    def read_arrow(
        self, paths: Any, *, merge_schema: bool = False, partitions: Any = True, filesystem: Any = None
    ) -> DataStream:
        """Rows of Arrow IPC files (``.arrow``, ``.feather``, or streams). ``paths`` and ``partitions`` as in
        :meth:`read_text`, ``merge_schema`` as in :meth:`read_parquet`."""
        files = Files(paths, partitions, filesystem)
        return DataStream(reading.read_arrow(self, files, merge_schema=merge_schema))

    def from_collection(self, rows: Iterable[Any], schema: Any = None) -> DataStream:
        """Python values: dicts, tuples (named by ``schema``), or scalars (column ``value``).

        ``schema``: DDL, a ``pyarrow.Schema``, or a list of names only; without types they are inferred.
        """
        return DataStream(reading.from_collection(self, rows, schema))

    def from_arrow(self, table: Any) -> DataStream:
        """A ``pyarrow`` Table, RecordBatch or RecordBatchReader, or a list of RecordBatches."""
        return DataStream(reading.from_arrow(self, table))

    def from_pandas(self, frame: Any, schema: Any = None) -> DataStream:
        """The columns of a pandas DataFrame, without its index."""
        return DataStream(reading.from_pandas(self, frame, schema))

    def from_source(self, source: Source) -> DataStream:
        """A source of your own (protocol ``firesteel.Source``)."""
        return DataStream(reading.from_source(self, source))

    def from_dataframe(self, dataframe: Any) -> DataStream:
        """A Spark DataFrame, as one stream. Nothing is run yet.

        Spark only plans it: scans of Parquet, filters, expressions, joins, aggregations, windows, sorts and
        limits become steps of the job, under its scheduler, wherever they give Spark's very answers. Parts that are not known come
        from Spark, and ``explain()`` says which and why (``firesteel.sql.dataframes = spark``: all of it). Where a task meets a value
        that only Spark can judge (an overflow, a division by zero), Spark computes the DataFrame again, before anything is published.

        What Spark computes it hands over as Arrow, one subtask per partition; its steps behind the last exchange run inside our tasks.
        These partitions must come out the same when Spark computes one again, as they do unless it draws random numbers,
        limits rows without an order or deals them round robin. The environment uses the DataFrame's session.
        """
        return DataStream(dataframes.from_dataframe(self, dataframe))

    def sql(self, query: str, **streams: Any) -> DataStream:
        """The rows of a query: ``env.sql("SELECT * FROM orders JOIN {customers} USING (id)", customers=stream)``.

        Over Spark's catalog, temporary views, files (``parquet.`path```), and streams of this environment in braces; other values in braces are
        as in ``spark.sql``. Spark parses and plans it; what computes it: see :meth:`from_dataframe`. Raises UsageError in Spark's words.
        """
        return DataStream(dataframes.sql(self, query, streams))

    def read_with_spark(self, format: str, path: Any = None, *, schema: Any = None, **options: Any) -> DataStream:
        """Rows of any data source that this Spark has: ``spark.read.format(format).options(...).load(path)``.

        ``format``: ``"jdbc"``, ``"orc"``, ``"csv"``, ``"delta"``, ..., or one registered in Python. ``path``: one, several or none.
        ``schema``: DDL, an Arrow schema or a ``StructType``, where the format does not know its own.

        Spark plans it, one subtask per partition: JDBC reads all in one unless ``partitionColumn``, ``lowerBound``,
        ``upperBound`` and ``numPartitions`` are given. Each attempt of a subtask asks the source again, so what it reads must
        not change while the job runs (a table format reads one snapshot; a database table is asked anew for each partition).
        What later steps leave out is read nevertheless: choose rows and columns by the format's options (JDBC: ``query``),
        or with ``from_dataframe(spark.read....select(...))``.

        Raises UsageError for a format or driver that this Spark does not have, naming the package to start it with.
        """
        return DataStream(reading.read_with_spark(self, format, path, schema, options))

    # --- resources ---

    def register_slot_sharing_group(self, group: SlotSharingGroup) -> Self:
        """Sets what slots of the group of this name need, for all jobs from now on, whatever their steps and the options
        say: a pipeline gets resources without being touched. A group without resources is coarse from now on. Nothing
        happens if no step is in it.
        """
        with step_at("register_slot_sharing_group"):
            if not isinstance(group, SlotSharingGroup):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"register_slot_sharing_group wants a SlotSharingGroup, not {group!r}.",
                    hint='Write SlotSharingGroup("gpu", cpu_cores=2, task_heap_memory="2 GiB").',
                )
            self._groups[group.name] = group
            self._registered.add(group.name)
            self._unproven.discard(group.name)
        return self

    # --- running ---

    def execute(self, name: str = "firesteel job", *, resume: bool | str | None = None) -> JobResult:
        """Runs all sinks written since the last call, as one job, and forgets them, whatever comes of it.

        ``resume``: True: goes on with the job at this place of the script that did not finish, if there is one; the id of a job: with
        that one; None: as ``firesteel run --resume`` or ``firesteel.recovery.mode`` say; False: begins anew.

        Raises UsageError for what is wrong with the pipeline, JobExecutionError when the job fails, KeyboardInterrupt on
        Ctrl-C.
        """
        if self._local is not None:
            return self._executed_here(name, self._local)
        with _interruptible(name):
            return self.execute_async(name, resume=resume).wait()

    def _executed_here(self, name: str, local: LocalMode) -> JobResult:
        """Prints the rows of each sink."""
        from firesteel.api.job_client import LocalResult

        sinks = self._taken()
        begun = time.monotonic()
        tables = local.tables(sinks, self.options)
        for sink, table in zip(runs.names(sinks), tables, strict=True):
            show_table(table, f"{sink} would get {table.num_rows} rows; nothing is written:")
        return LocalResult("local", name, time.monotonic() - begun, [], None)

    def execute_async(self, name: str = "firesteel job", *, resume: bool | str | None = None) -> JobClient:
        """As :meth:`execute`, but returns once the job has been checked and started.

        Where Spark has to compute a DataFrame that our tasks gave up on, :meth:`JobClient.wait` begins a second job for it.
        """
        sinks = self._taken()
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"The name of a job is a string, not {name!r}.", hint='Write execute("word count").')
        with _interruptible(name):
            from firesteel.api.job_client import JobClient

            def by_spark(error: FiresteelError) -> tuple[SubmittedJob, Callable[[FiresteelError], object]] | None:
                instead = left_to_spark(sinks, error)
                if instead is None:
                    return None
                _, run, caches = self._submit(instead, name)
                return run, caches.lost_by

            _, run, caches = self._submit(sinks, name, resume)
            return JobClient(run, caches.lost_by, by_spark)

    def run_locally(self, rows: int | None = 1000) -> dict[str, list[dict[str, Any]]]:
        """The rows, as Python dicts, that each sink written since the last ``execute`` would get, by the sinks' names: computed in this process,
        without Spark, over the first ``rows`` of each source (None: all). Nothing is written, and the sinks stay.

        Breakpoints stop, and what a function of yours raises is raised here; see :meth:`DataStream.run_locally`.
        """
        sinks_used(self._owner)
        tables = runs.run_locally(self._sinks, self.options, rows)
        return {name: python_rows(table) for name, table in zip(runs.names(self._sinks), tables, strict=True)}

    def compile(self, name: str = "firesteel job") -> CompiledJob:
        """The job of the sinks written so far, checked but not run. They stay."""
        sinks_used(self._owner)
        return self._compile(self._sinks, name)

    def explain(self, *, rules: bool = False) -> str:
        """The job of the sinks written so far: its tasks and how data travels between them. They stay. ``rules``: as of a stream's."""
        found = describe(self.compile()) + describe_left_to_spark(self._sinks)
        return found + describe_rules(self._sinks) if rules else found

    def _register(self, sink: StreamNode) -> None:
        self._sinks.append(sink)
        sink_made(self._owner, sink)

    def _taken(self) -> list[StreamNode]:
        """The sinks, which the environment forgets."""
        sinks_used(self._owner)
        sinks, self._sinks = self._sinks, []
        return sinks

    def clear_cache(self) -> None:
        """Removes all rows that were kept for streams of this environment (``cache()``). They are kept again when they are
        computed again."""
        for cache in list(self._caches):
            cache.drop()

    def _remember(self, cache: Cache) -> None:
        self._caches.add(cache)

    def _compile(self, ends: Sequence[StreamNode], name: str) -> CompiledJob:
        return compile_job(CacheUse.of(ends, claim=False).ends, self.options, name, self._groups)

    def _tell_unused_groups(self, compiled: CompiledJob) -> None:
        """A name in the options that no step has is a typo more often than not. Said once; another job may have it."""
        unused = unused_groups(compiled.job_graph, sorted(self._unproven))
        self._unproven.clear()
        for sentence in unused.values():
            warnings.warn(sentence, UserWarning, stacklevel=caller_level())

    def _submit(
        self, ends: Sequence[StreamNode], name: str, resume: bool | str | None = None
    ) -> tuple[CompiledJob, SubmittedJob, CacheUse]:
        """Compiles and starts a job. Raises KeyboardInterrupt on Ctrl-C, also while Spark starts."""
        with _interruptible(name):
            return self._started(ends, name, resume)

    def _started(
        self, ends: Sequence[StreamNode], name: str, resume: bool | str | None
    ) -> tuple[CompiledJob, SubmittedJob, CacheUse]:
        caches = CacheUse.of(ends, claim=True)
        try:
            checked_with = self.options
            compiled = self._compiled(caches.ends, name, resume)
            if self.options[RECOVERY_DRY_RUN]:
                _say_what_is_kept(compiled, self.options, resume)
            session = self.spark
            if self.options is not checked_with:  # Spark's configuration, known only now, says something of its own
                compiled = self._compiled(caches.ends, name, resume)
            self._tell_unused_groups(compiled)
            from firesteel.spark.driver.runtime import launch

            run = launch(compiled, session, self.options, resume)
        except BaseException:
            caches.not_started()
            raise
        caches.started(run, compiled)
        return compiled, run, caches

    def _compiled(self, ends: Sequence[StreamNode], name: str, resume: bool | str | None) -> CompiledJob:
        may_be_there = asks_to_resume(self.options, resume)
        return compile_job(ends, self.options, name, self._groups, may_be_there=may_be_there)

    if not TYPE_CHECKING:  # for the type checker an unknown name stays an error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            raise no_such_name_of_a_session(self, name)


def _say_what_is_kept(compiled: CompiledJob, options: Options, resume: bool | str | None) -> NoReturn:
    """Ends the script."""
    from firesteel.spark.recovery.resuming import dry_run

    sys.stdout.write(f"{dry_run(compiled, options, resume)}\n")
    raise SystemExit(0)


@contextmanager
def _interruptible(name: str) -> Generator[None]:
    """Until the job is waited for, Ctrl-C (in a notebook: interrupting the cell) is told in a sentence, as it is then."""
    try:
        from firesteel.spark.session.sessions import own_interrupts, without_py4j_traces

        with own_interrupts(), without_py4j_traces():
            yield
    except KeyboardInterrupt as error:
        if error.args:  # it is told already what was interrupted
            raise
        raise interruption(f"The job '{name}' was interrupted before it began.") from None


__all__ = ["ExecutionEnvironment", "set_defaults"]
