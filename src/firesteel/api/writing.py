"""Sinks: where rows go. They run at ``env.execute()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.api.configurable import Configurable
from firesteel.api.steps import step_at
from firesteel.api.stream_base import StreamBase
from firesteel.connectors.arrow_files import ArrowSink
from firesteel.connectors.csv_sink import CsvSink
from firesteel.connectors.json_files import JsonSink
from firesteel.connectors.parquet import ParquetSink
from firesteel.connectors.paths import only_spark_opens
from firesteel.connectors.text import TextSink
from firesteel.errors import UsageError
from firesteel.graph.stream_graph import SinkStep, StreamNode
from firesteel.options import parse_size

if TYPE_CHECKING:
    from firesteel.connectors.base import Sink


class Writing(StreamBase):
    """Ends of a pipeline that write somewhere."""

    def write_parquet(
        self,
        path: Any,
        *,
        mode: str = "error",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str = "snappy",
        merge_schema: bool = False,
        filesystem: Any = None,
    ) -> StreamSink:
        """Writes a directory of Parquet files, published once, at the end, with ``_SUCCESS``.

        ``mode``, if the directory exists: ``"error"``, ``"overwrite"`` (all of it is replaced, once the new files are
        complete), ``"append"`` (files are added) or ``"ignore"`` (nothing is written). ``partition_by``: columns whose values
        become directories, ``a=1/b=x``. ``max_file_size``: about so many bytes a file (``"128 MiB"``). ``merge_schema``: what is
        appended may have other columns than the files there; read them with ``merge_schema``, too. A path that only Spark can
        open (``s3a://``, ``dbfs:/``) Spark writes when the job commits, all or nothing as far as Spark's own committer is.
        """
        with step_at("write_parquet") as place:
            if only_spark_opens(path, filesystem):
                _refuse_for_spark(path, mode, partition_by, max_file_size)
                sink: Sink = self._spark_sink(path, "parquet", mode, compression)
                return self._sink(f"write_parquet({path})", sink, place)
            layout = _layout(mode, partition_by, max_file_size, filesystem)
            written = ParquetSink(path, compression=compression, merge_schema=merge_schema, **layout)
            return self._sink(f"write_parquet({path})", written, place)

    def write_text(
        self,
        path: Any,
        *,
        mode: str = "error",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str | None = None,
        filesystem: Any = None,
    ) -> StreamSink:
        """Writes a directory of text files, one line a row, from a stream of one string column beside those to partition by.

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        with step_at("write_text") as place:
            if only_spark_opens(path, filesystem):
                _refuse_for_spark(path, mode, partition_by, max_file_size, compression)
                return self._sink(f"write_text({path})", self._spark_sink(path, "text", mode, "snappy"), place)
            layout = _layout(mode, partition_by, max_file_size, filesystem)
            return self._sink(f"write_text({path})", TextSink(path, compression=compression, **layout), place)

    def write_csv(
        self,
        path: Any,
        *,
        header: bool = True,
        sep: str = ",",
        null_value: str = "",
        mode: str = "error",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str | None = None,
        filesystem: Any = None,
    ) -> StreamSink:
        """Writes a directory of CSV files; texts in quotes, quotes inside doubled, null as ``null_value`` without quotes.

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        with step_at("write_csv") as place:
            _refuse_spark_path(path, "write_csv", filesystem)
            layout = _layout(mode, partition_by, max_file_size, filesystem)
            sink = CsvSink(path, header=header, sep=sep, null_value=null_value, compression=compression, **layout)
            return self._sink(f"write_csv({path})", sink, place)

    def write_json(
        self,
        path: Any,
        *,
        ignore_null_fields: bool = True,
        mode: str = "error",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str | None = None,
        filesystem: Any = None,
    ) -> StreamSink:
        """Writes a directory of files with a JSON object a line, without the fields that are null (``ignore_null_fields``).

        ``compression``: gzip, bz2, zstd or lz4. The others as in :meth:`write_parquet`.
        """
        with step_at("write_json") as place:
            _refuse_spark_path(path, "write_json", filesystem)
            layout = _layout(mode, partition_by, max_file_size, filesystem)
            sink = JsonSink(path, ignore_null_fields=ignore_null_fields, compression=compression, **layout)
            return self._sink(f"write_json({path})", sink, place)

    def write_arrow(
        self,
        path: Any,
        *,
        mode: str = "error",
        partition_by: Any = (),
        max_file_size: Any = None,
        compression: str | None = None,
        filesystem: Any = None,
    ) -> StreamSink:
        """Writes a directory of Arrow IPC files. ``compression``: of the buffers inside, lz4 or zstd. The others as in
        :meth:`write_parquet`."""
        with step_at("write_arrow") as place:
            _refuse_spark_path(path, "write_arrow", filesystem)
            layout = _layout(mode, partition_by, max_file_size, filesystem)
            return self._sink(f"write_arrow({path})", ArrowSink(path, compression=compression, **layout), place)

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


class StreamSink(Configurable):
    """A sink that ``env.execute()`` will run."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def __repr__(self) -> str:
        return f"StreamSink[{self._node.name}]"


def _layout(mode: str, partition_by: Any, max_file_size: Any, filesystem: Any) -> dict[str, Any]:
    columns: tuple[Any, ...] = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
    wrong = next((name for name in columns if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(f"partition_by wants names of columns, not {wrong!r}.")
    try:
        size = None if max_file_size is None else parse_size(max_file_size)
    except ValueError as error:
        raise UsageError(f"max_file_size={max_file_size!r} must be {error}.") from None
    return {"mode": mode, "partition_by": columns, "max_file_size": size, "filesystem": filesystem}


def _refuse_spark_path(path: Any, kind: str, filesystem: Any) -> None:
    if only_spark_opens(path, filesystem):
        raise UsageError(
            f"{kind} cannot open {path}: only Spark has a filesystem for it.",
            hint="Write it with Spark: stream.write_with_spark(...).",
        )


def _refuse_for_spark(path: Any, mode: str, *others: Any) -> None:
    """What Spark writes for us it writes as one directory, new or instead of another."""
    if mode not in ("error", "errorifexists", "overwrite") or any(others):
        raise UsageError(
            f"{path} is written by Spark, for which there are only mode='error' and 'overwrite', and no other layout.",
            hint="Write it with Spark: stream.write_with_spark(...).",
        )
