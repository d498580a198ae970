"""Sinks that Spark writes: any format of its own, and files where pyarrow cannot reach (``s3a://``, ``dbfs:/``, ``wasbs://``, ...).

Subtasks write Parquet files to the job's storage; when the job commits, Spark reads these and its ``DataFrameWriter`` writes
the output, by the format's committer. For files that is: a reader may see some before ``_SUCCESS`` is there, and with
``mode="overwrite"`` the old output goes when the new one begins.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from firesteel.api.connectors.spark_formats import check_table, hidden, said
from firesteel.api.ddl import check_spark_types
from firesteel.connectors.base import PUBLISHING, Recovered
from firesteel.connectors.files.paths import DatasetName, as_paths, dataset_of_url, is_local
from firesteel.connectors.files.writing.sinks import FileCommit
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.connectors.formats.text import check_text_schema
from firesteel.errors import FiresteelError, OutputExistsError, UsageError

_EXACT = {"__globPaths__": "false"}
"""With this Spark's readers take a path as it is: its folders may be named with brackets, braces or stars."""
_sessions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Sinks are pickled; on the driver they find their session again."""
_appending: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Sinks that may share an output, by the keys of their staging directories: the same names again in the next process, which
so finds what a killed one has left."""


def read_frame(
    session: Any, kind: str, paths: list[str], *, path_column: str | None = None, merge_schema: bool = False
) -> Any:
    """A DataFrame of Parquet or text files (``kind``), with Spark's rules for globs and directories. Raises UsageError."""
    from pyspark.sql import functions as f

    from firesteel.spark.session.versions import valid_text

    try:
        if kind == "parquet":
            reader = session.read.option("mergeSchema", True) if merge_schema else session.read  # else by Spark's conf
            return reader.parquet(*paths)
        columns = [valid_text("value").alias("value")]
        if path_column is not None:
            columns.append(f.col("_metadata.file_path").alias(path_column))
        return session.read.text(paths).select(*columns)
    except Exception as error:
        hint = "pyarrow opens no such path, so Spark does: it needs the path's connector and credentials."
        raise UsageError(f"Spark cannot read {', '.join(paths)}: {said(error)}.", hint=hint) from error


class _SparkSink(ParquetSink):
    """Rows are staged as Parquet in ``storage``; ``_write`` hands them to Spark when the job commits.

    ``output``: how messages name it, without secrets. ``key``: tells outputs apart that must not be written twice in a job.
    """

    hold: Any = None
    """None: output that Spark has written cannot be taken back, so of several sinks these are published last."""

    def __init__(
        self, session: Any, output: str, key: str, storage: str, *, mode: str, compression: str = "snappy"
    ) -> None:
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        place, question, query = storage.partition("?")
        super().__init__(f"{place}/for-spark-{digest}{question}{query}", mode=mode, compression=compression)
        _sessions[id(session)] = session
        self._session = id(session)
        self.output = output

    @property
    def session(self) -> Any:
        """Only on the driver."""
        return _sessions[self._session]

    def check(self, schema: pa.Schema) -> None:
        super().check(_spark_schema(schema, self.output))

    def _write(self, frame: Any) -> None:
        raise NotImplementedError

    def _said(self, error: BaseException) -> str:
        return said(error)

    def recover(self, job_id: str, winners: Sequence[FileCommit], state: Mapping[str, str], *, step: str) -> Recovered:
        """Raises UsageError where Spark may have written what cannot be written again."""
        if step == PUBLISHING and not self._can_be_written_again():
            raise UsageError(
                f"It is not known what was published to {self.output}: the driver died as Spark wrote it.",
                hint="Look at what is there, and run the script without resuming if it is to be published once more.",
            )
        return super().recover(job_id, winners, state, step=step)

    def _can_be_written_again(self) -> bool:
        """Whatever an earlier driver had written of it, the output is the same when it is written once more."""
        raise NotImplementedError

    def commit(self, winners: Sequence[FileCommit]) -> None:
        """Leaves the staged files to ``release``. Raises FiresteelError when a file is missing or Spark cannot write."""
        assert self._staging is not None, "begin comes before commit"
        written = [message for message in winners if message.name is not None]
        self._staging.verify(written)
        files = [self._for_spark(message) for message in written or [self._write_empty()]]
        try:
            # The commit has a thread of its own, and Spark looks Python data sources up in the thread's session.
            self.session._jvm.SparkSession.setActiveSession(self.session._jsparkSession)
            self._write(self.session.read.options(**_EXACT).parquet(*files))
        except Exception as error:
            raise FiresteelError(f"Spark could not write {self.output}: {self._said(error)}.") from error

    def _for_spark(self, message: FileCommit) -> str:
        """The file as Hadoop names it, which escapes nothing as a URL does."""
        assert self._staging is not None
        place = self.target.at(f"{self._staging.attempts.path}/{message.name}")
        return f"file:{place.path}" if is_local(place.filesystem) else place.label.replace("s3://", "s3a://", 1)

    def _refuse_existing(self, path: str, other: str = "mode='overwrite'") -> None:
        """Raises UsageError if there is something at ``path`` already, or Spark cannot look."""
        if self._exists(path):
            raise OutputExistsError(
                f"The output {self.output} exists already.",
                hint=f"Choose another path, remove it first, or write with {other}.",
            )

    def _exists(self, path: str) -> bool:
        """Raises UsageError if Spark cannot look."""
        try:
            place = self.session.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
            conf = self.session._jsparkSession.sessionState().newHadoopConf()
            return bool(place.getFileSystem(conf).exists(place))
        except Exception as error:
            hint = "pyarrow opens no such path, so Spark does: it needs the path's connector and credentials."
            raise UsageError(f"Spark cannot look at {self.output}: {self._said(error)}.", hint=hint) from error


class SparkFileSink(_SparkSink):
    """A directory of ``kind`` ("parquet" or "text") files that Spark writes. ``storage``: where subtasks write before."""

    def __init__(self, session: Any, url: str, kind: str, storage: str, *, mode: str, compression: str) -> None:
        super().__init__(session, url, url.rstrip("/"), storage, mode=mode, compression=compression)
        self.url, self.kind = url, kind
        self.name = f"write {url.rstrip('/').rsplit('/', 1)[-1]}"

    def check(self, schema: pa.Schema) -> None:
        if self.kind == "text":
            check_text_schema(schema, self.url)
        super().check(schema)
        if self.mode == "error":
            self._refuse_existing(self.url)

    def datasets(self) -> list[DatasetName]:
        return [dataset_of_url(self.url)]

    def _can_be_written_again(self) -> bool:
        return self.mode == "overwrite" or not self._exists(self.url)

    def _write(self, frame: Any) -> None:
        writer = frame.write.mode("overwrite" if self.mode == "overwrite" else "error")
        if self.kind == "text":
            writer.text(self.url)
        else:
            writer.parquet(self.url, compression=self._compression)


class SparkFormatSink(_SparkSink):
    """Any ``format`` that ``DataFrameWriter`` writes. Its options, which may hold passwords, never leave the driver."""

    def __init__(
        self,
        session: Any,
        format: str,
        path: Any,
        storage: str,
        *,
        mode: str,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        self.path = None if path is None else as_paths(path)[0]
        self.format, self.save_mode, self.partition_by = format, mode, tuple(partition_by)
        self._options = dict(options)
        named = {name.lower(): value for name, value in options.items()}
        where = self.path or named.get("dbtable") or ""
        key = repr((format.lower(), where, named.get("url")))
        if not where or mode == "append":  # several sinks may write to one place
            key = next(name for name in map(f"{key} {{}}".format, itertools.count()) if name not in _appending)
            _appending[key] = self
        super().__init__(session, hidden(f"{format} {where}".rstrip(), options), key, storage, mode="overwrite")
        self.name = f"write {hidden(where.rstrip('/').rsplit('/', 1)[-1], options) or format}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": {}}

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        if self.format.lower() == "jdbc":
            check_table(self.session, self._options, self.save_mode)
        elif self.path is not None and self.save_mode == "error":
            self._refuse_existing(self.path, "mode='append', 'overwrite' or 'ignore'")

    @property
    def writes_all_rows(self) -> bool:
        return self.save_mode != "ignore"

    def datasets(self) -> list[DatasetName]:
        """Of a format without a path, such as a database's, nothing is told: its address is in options that may hold passwords."""
        return [] if self.path is None else [dataset_of_url(self.path)]

    def _can_be_written_again(self) -> bool:
        if self.save_mode == "overwrite":
            return True
        return self.save_mode == "error" and self.path is not None and not self._exists(self.path)

    def _write(self, frame: Any) -> None:
        writer = frame.write.format(self.format).mode(self.save_mode).options(**self._options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self.path)

    def _said(self, error: BaseException) -> str:
        return hidden(said(error), self._options)


def _spark_schema(schema: pa.Schema, url: str) -> pa.Schema:
    """The schema in the types that Spark has. Raises UsageError for a column that has none."""
    from firesteel.spark.session.versions import arrow_schema, spark_schema

    check_spark_types(schema, f"Writing {url}")
    nothing = [field.name for field in schema if pa.types.is_null(field.type)]
    if nothing:
        raise UsageError(f"Spark cannot write column '{nothing[0]}' to {url}: it holds nothing but nulls.")
    return arrow_schema(spark_schema(schema), "UTC")
