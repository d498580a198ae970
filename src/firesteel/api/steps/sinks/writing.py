"""Sinks. They run at ``env.execute()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.sinks.layout import Layout, buckets_of, in_buckets
from firesteel.compile.stream_graph import SinkStep, StreamNode
from firesteel.connectors.files.paths import only_spark_opens
from firesteel.connectors.formats.arrow_files import ArrowSink
from firesteel.connectors.formats.csv_files import CsvSink
from firesteel.connectors.formats.json_files import JsonSink
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.connectors.formats.text import TextSink
from firesteel.errors import OutputExistsError, UsageError
from firesteel.options import asks_to_resume

if TYPE_CHECKING:
    from firesteel.connectors.base import Sink

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
        _check(pipeline, sink)
        pipeline = layout.evenly(pipeline, sink.partition_by, sink, f"write_delta({layout.path})")
        return end_with(pipeline, f"write_delta({layout.path})", sink, place)


def write_iceberg(
    pipeline: Pipeline, table: str, catalog: str | Mapping[str, str], layout: Layout, *, compression: str
) -> StreamNode:
    """An Iceberg table."""
    with step_at("write_iceberg") as place:
        from firesteel.connectors.tables.iceberg import IcebergSink  # loads what only jobs with tables need

        sink = IcebergSink(table, catalog, compression=compression, **layout.checked_for_table())
        _check(pipeline, sink)
        pipeline = layout.evenly(pipeline, sink.partition_by, sink, f"write_iceberg({table})")
        return end_with(pipeline, f"write_iceberg({table})", sink, place)


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
