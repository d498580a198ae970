"""Sinks: where rows go. They run at ``env.execute()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.api.configurable import Configurable
from firesteel.api.steps import step_at
from firesteel.api.stream_base import StreamBase
from firesteel.connectors.parquet import ParquetSink
from firesteel.connectors.paths import only_spark_opens
from firesteel.connectors.text import TextSink
from firesteel.errors import UsageError
from firesteel.graph.stream_graph import SinkStep, StreamNode

if TYPE_CHECKING:
    from firesteel.connectors.base import Sink


class Writing(StreamBase):
    """Ends of a pipeline that write somewhere."""

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


class StreamSink(Configurable):
    """A sink that ``env.execute()`` will run."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def __repr__(self) -> str:
        return f"StreamSink[{self._node.name}]"
