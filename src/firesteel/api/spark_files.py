"""Files where pyarrow cannot reach and Spark can (``s3a://``, ``dbfs:/``, ``wasbs://``, ``hdfs://`` without libhdfs).

Spark's own reader reads them, as any DataFrame. To write them, subtasks write Parquet files to the job's storage; when
the job commits, Spark reads these and its ``DataFrameWriter`` writes the output, by Spark's committer: a reader may see
files before ``_SUCCESS`` is there, and with ``mode="overwrite"`` the old output goes when the new one begins.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.api.ddl import check_spark_types
from firesteel.connectors.files import FileCommit
from firesteel.connectors.parquet import ParquetSink
from firesteel.connectors.paths import first_line, is_local
from firesteel.connectors.text import check_text_schema
from firesteel.errors import FiresteelError, UsageError

_sessions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Sinks are pickled; on the driver they find their session again."""


def read_frame(session: Any, kind: str, paths: list[str], path_column: str | None = None) -> Any:
    """A DataFrame of Parquet or text files (``kind``), with Spark's rules for globs and directories. Raises UsageError."""
    from pyspark.sql import functions as f

    from firesteel.spark.versions import valid_text

    try:
        if kind == "parquet":
            return session.read.parquet(*paths)
        columns = [valid_text("value").alias("value")]
        if path_column is not None:
            columns.append(f.col("_metadata.file_path").alias(path_column))
        return session.read.text(paths).select(*columns)
    except Exception as error:
        hint = "pyarrow opens no such path, so Spark does: it needs the path's connector and credentials."
        raise UsageError(f"Spark cannot read {', '.join(paths)}: {_said(error)}.", hint=hint) from error


class SparkFileSink(ParquetSink):
    """A directory of ``kind`` ("parquet" or "text") files that Spark writes. ``storage``: where subtasks write before."""

    hold: Any = None
    """What Spark has written cannot be taken back: of several sinks these are published last."""

    def __init__(self, session: Any, url: str, kind: str, storage: str, *, mode: str, compression: str) -> None:
        digest = hashlib.blake2b(url.rstrip("/").encode(), digest_size=8).hexdigest()
        place, question, query = storage.partition("?")
        super().__init__(f"{place}/for-spark-{digest}{question}{query}", mode=mode, compression=compression)
        _sessions[id(session)] = session
        self._session = id(session)
        self.url, self.kind = url, kind
        self.name = f"write {url.rstrip('/').rsplit('/', 1)[-1]}"

    def check(self, schema: pa.Schema) -> None:
        if self.kind == "text":
            check_text_schema(schema, self.url)
        super().check(_spark_schema(schema, self.url))
        if self.mode == "error" and self._exists():
            hint = "Choose another path, remove it first, or write with mode='overwrite'."
            raise UsageError(f"The output {self.url} exists already.", hint=hint)

    def _exists(self) -> bool:
        session = _sessions[self._session]
        try:
            path = session.sparkContext._jvm.org.apache.hadoop.fs.Path(self.url)
            return bool(path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).exists(path))
        except Exception as error:
            hint = "pyarrow opens no such path, so Spark does: it needs the path's connector and credentials."
            raise UsageError(f"Spark cannot look at {self.url}: {_said(error)}.", hint=hint) from error

    def commit(self, winners: Sequence[FileCommit]) -> None:
        """Raises FiresteelError when a file is missing or Spark cannot write; then Spark's committer has cleaned up."""
        written = [message for message in winners if message.name is not None]
        self._verify(written)
        files = [self._for_spark(message) for message in written or [self._write_empty()]]
        try:
            frame = _sessions[self._session].read.parquet(*files)
            writer = frame.write.mode("overwrite" if self.mode == "overwrite" else "error")
            if self.kind == "text":
                writer.text(self.url)
            else:
                writer.parquet(self.url, compression=self._compression)
        except Exception as error:
            raise FiresteelError(f"Spark could not write {self.url}: {_said(error)}.") from error
        self._forget_staging()

    def _for_spark(self, message: FileCommit) -> str:
        place = self.target.at(f"{self._attempts}/{message.name}")
        if is_local(place.filesystem):
            return Path(place.path).as_uri()
        return place.label.replace("s3://", "s3a://", 1)


def _spark_schema(schema: pa.Schema, url: str) -> pa.Schema:
    """The schema in the types that Spark has. Raises UsageError for a column that has none."""
    from firesteel.spark.versions import arrow_schema, spark_schema

    check_spark_types(schema, f"Writing {url}")
    nothing = [field.name for field in schema if pa.types.is_null(field.type)]
    if nothing:
        raise UsageError(f"Spark cannot write column '{nothing[0]}' to {url}: it holds nothing but nulls.")
    return arrow_schema(spark_schema(schema), "UTC")


def _said(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    return first_line(error) if java is None else str(java.toString()).splitlines()[0].rstrip(". ")
