"""Sinks. They run at ``env.execute()``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, cast

import pyarrow as pa

from firesteel.api.steps.common import step_at, unused_name
from firesteel.api.steps.ordering import sort
from firesteel.api.steps.partitioning import gathered
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep, SinkStep, StreamNode
from firesteel.connectors.files.paths import only_spark_opens
from firesteel.connectors.files.writing.part_files import BucketNumbers, Buckets
from firesteel.connectors.formats.arrow_files import ArrowSink
from firesteel.connectors.formats.csv_files import CsvSink
from firesteel.connectors.formats.json_files import JsonSink
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.connectors.formats.text import TextSink
from firesteel.engine.hashes import hashed_as
from firesteel.errors import OutputExistsError, UsageError
from firesteel.humanize import named_twice
from firesteel.options import asks_to_resume, parse_size
from firesteel.results.order.ordering import can_order
from firesteel.task.operators.relational import check_columns
from firesteel.task.passing import Encodes

if TYPE_CHECKING:
    from firesteel.connectors.base import Sink
    from firesteel.connectors.tables.sink import TableSink


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Layout:
    """Folder, mode, partitions and size of the files to write, as the user gave them: the same for all formats."""

    path: Any
    mode: str = "error"
    partition_by: Any = ()
    file_size: Any = None
    max_file_size: Any = None
    filesystem: Any = None

    def checked(self) -> dict[str, Any]:
        """Arguments for a sink of files. Raises UsageError."""
        return {**self.checked_for_table(), "filesystem": self.filesystem}

    def checked_for_table(self) -> dict[str, Any]:
        """Arguments for a sink of a table. Raises UsageError."""
        columns: tuple[Any, ...] = (
            (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by or ())
        )
        wrong = next((name for name in columns if not isinstance(name, str)), None)
        if wrong is not None:
            raise UsageError(f"partition_by wants names of columns, not {wrong!r}.")
        most, even = _size("max_file_size", self.max_file_size), _size("file_size", self.file_size)
        if most is not None and even is not None and even > most:
            raise UsageError(f"file_size={self.file_size!r} is more than max_file_size={self.max_file_size!r}.")
        return {"mode": self.mode, "partition_by": columns, "max_file_size": most, "file_size": even}

    def evenly(self, pipeline: Pipeline, columns: Sequence[str], sink: Encodes, kind: str) -> Pipeline:
        """The rows gathered, once more, so that subtasks write files of ``file_size``. Raises UsageError."""
        size = _size("file_size", self.file_size)
        return pipeline if size is None else gathered(pipeline, columns, size, sink, kind)


class TableOptions(TypedDict, total=False):
    """The keywords of methods that write tables, with the defaults of :class:`Layout`."""

    mode: str
    partition_by: Any
    file_size: Any
    max_file_size: Any


class FileOptions(TableOptions, total=False):
    """The keywords of methods that write files."""

    filesystem: Any


def laid_out(options: type[TableOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a method with ``**layout: Unpack[options]``: its signature names these keywords, for ``help`` and notebooks, and it takes no
    others (TypeError)."""
    keywords = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Layout)
        if one.name in options.__optional_keys__
    ]

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        *own, _ = signature.parameters.values()
        signature = signature.replace(parameters=[*own, *keywords])

        @functools.wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{method.__name__}() {error}") from None
            return method(*args, **kwargs)

        checked.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return checked

    return decorate


def _size(what: str, given: Any) -> int | None:
    """Raises UsageError."""
    try:
        size = None if given is None else parse_size(given)
    except ValueError as error:
        raise UsageError(f"{what}={given!r} must be {error}.") from None
    if size is not None and size < 1:
        raise UsageError(f"{what}={given!r} must be at least 1 byte.")
    return size


MOST_BUCKETS = 100_000
"""As in Spark (``spark.sql.sources.bucketing.maxBuckets``)."""


def buckets_of(schema: pa.Schema, bucket_by: Any, sort_by: Any, partition_by: Sequence[str]) -> Buckets | None:
    """The buckets that a user asked for, checked; None: none. Raises UsageError."""
    order = _names("sort_by", sort_by)
    if bucket_by is None:
        if order:
            raise UsageError(
                f"sort_by={sort_by!r} needs bucket_by: it is the order within a bucket.",
                hint="To write files in order, write the rows of sort(...).",
            )
        return None
    count, columns = _count_and_columns(bucket_by)
    for what, names in (("bucket_by", columns), ("sort_by", order)):
        check_columns(schema, names, what)
        twice = named_twice(names)
        if twice is not None:
            raise UsageError(f"{what} names the column '{twice}' twice.")
        both = next((name for name in names if name in partition_by), None)
        if both is not None:
            raise UsageError(
                f"'{both}' is in partition_by and in {what}: all rows of a partition have one value of it."
            )
    for name in columns:
        if hashed_as(schema.field(name).type) is None:
            raise UsageError(
                f"bucket_by cannot part rows by '{name}': Spark has no hash for {schema.field(name).type}.",
                hint="Cast it to text, a signed number, a decimal, a boolean, a date or a timestamp of microseconds.",
            )
    unordered = next((name for name in order if not can_order(schema.field(name).type)), None)
    if unordered is not None:
        raise UsageError(f"sort_by cannot order by '{unordered}': it is {schema.field(unordered).type}.")
    return Buckets(count, columns, order, unused_name("__bucket", schema.names))


def _count_and_columns(given: Any) -> tuple[int, tuple[str, ...]]:
    parts: list[Any] = list(cast(Sequence[Any], given)) if isinstance(given, list | tuple) else []
    count, columns = (parts[0], _names("bucket_by", parts[1:])) if parts else (None, ())
    if isinstance(count, bool) or not isinstance(count, int) or not columns:
        raise UsageError(
            f"bucket_by={given!r} is not a number of buckets and columns.", hint='Write bucket_by=(8, "user").'
        )
    if not 1 <= count <= MOST_BUCKETS:
        raise UsageError(f"bucket_by wants 1 to {MOST_BUCKETS:,} buckets, not {count:,}.")
    return count, columns


def _names(what: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if len(names) == 1 and isinstance(names[0], list | tuple):
        names = tuple(cast(Sequence[Any], names[0]))
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(f"{what} wants names of columns, not {wrong!r}.")
    return names


def in_buckets(pipeline: Pipeline, buckets: Buckets, partition_by: Sequence[str], place: str) -> Pipeline:
    """The rows with the number of their bucket, those of one together, and in order within it."""
    pipeline.refuse_sides("bucket_by")
    schema = pa.schema([*pipeline.schema, pa.field(buckets.number, pa.int32())])
    kind = f"buckets({buckets.words})"
    work = ChainedStep(BucketNumbers(kind, buckets.columns, buckets.count, schema), pipeline.unchanged)
    numbered = pipeline.partitioned(None).then(kind, work, schema, place)
    return sort(numbered, [*partition_by, buckets.number, *buckets.sort_by], True)


_SINKS = {"parquet": ParquetSink, "csv": CsvSink, "json": JsonSink, "arrow": ArrowSink, "text": TextSink}
_SINK_METHODS = ("check", "begin", "write", "commit", "abort")
_MODES = ("error", "append", "overwrite", "ignore")


def write_files(pipeline: Pipeline, kind: str, layout: Layout, **own: Any) -> StreamNode:
    """A directory of files. ``kind``: a key of ``_SINKS``; ``own``: arguments of that sink alone."""
    with step_at(f"write_{kind}") as place:
        return _write_files(pipeline, kind, layout, place, **own)


def _write_files(pipeline: Pipeline, kind: str, layout: Layout, place: str, **own: Any) -> StreamNode:
    if only_spark_opens(layout.path, layout.filesystem):
        sink: Sink = _spark_sink(pipeline, kind, layout, own["compression"])
    else:
        options = layout.checked()
        sink = _SINKS[kind](layout.path, **own, **options)
        pipeline = layout.evenly(pipeline, options["partition_by"], sink, f"write_{kind}({layout.path})")
    return end_with(pipeline, f"write_{kind}({layout.path})", sink, place)


def write_parquet(pipeline: Pipeline, layout: Layout, bucket_by: Any, sort_by: Any, **own: Any) -> StreamNode:
    """A directory of Parquet files, in buckets if these are asked for."""
    with step_at("write_parquet") as place:
        partition_by = layout.checked_for_table()["partition_by"]
        buckets = buckets_of(pipeline.schema, bucket_by, sort_by, partition_by)
        if buckets is None:
            return _write_files(pipeline, "parquet", layout, place, **own)
        if layout.file_size is not None:
            raise UsageError("There is no file_size where there is bucket_by, which says how many files there are.")
        if only_spark_opens(layout.path, layout.filesystem):
            raise UsageError(f"{layout.path} is written by Spark, for which there is no bucket_by.")
        rows = in_buckets(pipeline, buckets, partition_by, place)
        return _write_files(rows, "parquet", layout, place, buckets=buckets, **own)


def write_delta(
    pipeline: Pipeline, layout: Layout, *, compression: str, storage_options: Mapping[str, str] | None
) -> StreamNode:
    """A Delta table."""
    with step_at("write_delta") as place:
        from firesteel.connectors.tables.delta import DeltaSink  # loads what only jobs with tables need

        options = layout.checked_for_table()
        sink = DeltaSink(layout.path, compression=compression, storage_options=storage_options, **options)
        return _write_table(pipeline, layout, sink, f"write_delta({layout.path})", place)


def write_iceberg(
    pipeline: Pipeline, table: str, catalog: str | Mapping[str, str], layout: Layout, *, compression: str
) -> StreamNode:
    """An Iceberg table."""
    with step_at("write_iceberg") as place:
        from firesteel.connectors.tables.iceberg import IcebergSink  # loads what only jobs with tables need

        sink = IcebergSink(table, catalog, compression=compression, **layout.checked_for_table())
        return _write_table(pipeline, layout, sink, f"write_iceberg({table})", place)


def _write_table(pipeline: Pipeline, layout: Layout, sink: TableSink, kind: str, place: str) -> StreamNode:
    _check(pipeline, sink)
    return end_with(layout.evenly(pipeline, sink.partition_by, sink, kind), kind, sink, place)


def _check(pipeline: Pipeline, sink: Sink) -> None:
    """Raises UsageError. A table that is there already may be the work of the very job that is about to go on: the job will tell."""
    try:
        sink.check(pipeline.schema)
    except OutputExistsError:
        if not asks_to_resume(pipeline.env.options):
            raise


def _spark_sink(pipeline: Pipeline, kind: str, layout: Layout, compression: str | None) -> Sink:
    """For a path that only Spark can open. Raises UsageError for anything but one new directory of Parquet or text files."""
    from firesteel.api.connectors.spark_files import SparkFileSink  # loads what only jobs with Spark's formats need

    path, hint = layout.path, "Write it with Spark: stream.write_with_spark(...)."
    if kind not in ("parquet", "text"):
        raise UsageError(f"write_{kind} cannot open {path}: only Spark has a filesystem for it.", hint=hint)
    other_layout = layout.partition_by or layout.max_file_size or layout.file_size or (kind == "text" and compression)
    if layout.mode not in ("error", "errorifexists", "overwrite") or other_layout:
        raise UsageError(
            f"{path} is written by Spark, for which there are only mode='error' and 'overwrite', and no other layout.",
            hint=hint,
        )
    session = pipeline.env.spark
    staging = _staging(pipeline, session)
    return SparkFileSink(session, str(path), kind, staging, mode=layout.mode, compression=compression or "snappy")


def write_with_spark(
    pipeline: Pipeline,
    format: str,
    path: Any,
    *,
    mode: str,
    partition_by: str | Sequence[str],
    options: Mapping[str, Any],
) -> StreamNode:
    """Any data source that Spark writes."""
    with step_at("write_with_spark") as place:
        from firesteel.api.connectors.spark_files import SparkFormatSink
        from firesteel.api.connectors.spark_formats import check_format, checked_options

        if mode not in _MODES:
            raise UsageError(f"mode={mode!r} is not a way to write.", hint=f"Use one of {', '.join(_MODES)}.")
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        missing = [name for name in columns if name not in pipeline.names]
        if missing:
            raise UsageError(f"There is no column '{missing[0]}' to partition by.", hint=f"There are {pipeline.names}.")
        session = pipeline.env.spark
        check_format(session, format)
        checked, staging = checked_options(options), _staging(pipeline, session)
        sink = SparkFormatSink(session, format, path, staging, mode=mode, partition_by=columns, options=checked)
        return end_with(pipeline, f"write_with_spark({format})", sink, place)


def _staging(pipeline: Pipeline, session: Any) -> str:
    """Folder of the rows until Spark writes them."""
    from firesteel.spark.session.sessions import is_local
    from firesteel.spark.storage.directories import storage_root

    return storage_root(pipeline.env.options, shared=not is_local(session.sparkContext))


def write_to(pipeline: Pipeline, sink: Any) -> StreamNode:
    """A sink of the user's own."""
    with step_at("write_to") as place:
        missing = [m for m in _SINK_METHODS if not callable(getattr(sink, m, None))]
        if missing:
            raise UsageError(f"{type(sink).__name__} is not a sink: it has no method {', '.join(missing)}.")
        return end_with(pipeline, f"write_to({getattr(sink, 'name', type(sink).__name__)})", sink, place)


def end_with(pipeline: Pipeline, kind: str, sink: Sink, place: str) -> StreamNode:
    """The pipeline ends in a sink, which runs at ``env.execute()``."""
    pipeline.refuse_sides(kind)
    node = StreamNode(kind, SinkStep(sink), pipeline.schema, (pipeline.edge(),), place=place)
    pipeline.env._register(node)  # pyright: ignore[reportPrivateUsage]
    return node
