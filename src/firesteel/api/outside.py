"""Whatever Spark itself reads and writes: databases, table formats, data sources of a package or written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firesteel.api.steps import step_at
from firesteel.api.stream_base import StreamBase
from firesteel.errors import UsageError
from firesteel.graph.stream_graph import DataFrameStep, StreamNode

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream
    from firesteel.api.writing import StreamSink

MODES = ("error", "append", "overwrite", "ignore")


class ReadingOutside:
    """Sources that Spark reads."""

    if TYPE_CHECKING:

        @property
        def spark(self) -> Any: ...
        def _stream(self, node: StreamNode) -> DataStream: ...

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
        with step_at("read_with_spark") as place:
            from firesteel.api.ddl import dataframe_schema
            from firesteel.api.spark_formats import read_format
            from firesteel.spark.dataframes import dataframe_source

            frame = read_format(self.spark, format, path, schema, options)
            work = DataFrameStep(lambda: dataframe_source(frame))
            return self._stream(StreamNode(f"read_with_spark({format})", work, dataframe_schema(frame), place=place))


class WritingOutside(StreamBase):
    """Ends of a pipeline that Spark writes."""

    if TYPE_CHECKING:

        def _sink(self, kind: str, sink: Any, place: str) -> StreamSink: ...

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
        with step_at("write_with_spark") as place:
            from firesteel.api.spark_files import SparkFormatSink
            from firesteel.api.spark_formats import check_format, checked_options

            if mode not in MODES:
                raise UsageError(f"mode={mode!r} is not a way to write.", hint=f"Use one of {', '.join(MODES)}.")
            columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
            missing = [name for name in columns if name not in self.columns]
            if missing:
                raise UsageError(
                    f"There is no column '{missing[0]}' to partition by.", hint=f"There are {self.columns}."
                )
            session = self._env.spark
            check_format(session, format)
            sink = SparkFormatSink(
                session,
                format,
                path,
                self._staging(session),
                mode=mode,
                partition_by=columns,
                options=checked_options(options),
            )
            return self._sink(f"write_with_spark({format})", sink, place)

    def _staging(self, session: Any) -> str:
        """Where the rows lie until Spark writes them."""
        from firesteel.spark.session import is_local
        from firesteel.spark.storage import storage_root

        return storage_root(self._env.options, shared=not is_local(session.sparkContext))
