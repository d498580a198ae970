"""Sources: where pipelines begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from firesteel.api.data_stream import DataStream
from firesteel.api.ddl import dataframe_schema, to_schema
from firesteel.api.steps import step_at
from firesteel.connectors.base import Source
from firesteel.connectors.memory import TableSource, as_table, table_from_collection, table_from_pandas
from firesteel.connectors.parquet import ParquetSource
from firesteel.connectors.paths import as_paths, only_spark_opens, short_name
from firesteel.connectors.text import TextSource
from firesteel.errors import UsageError
from firesteel.graph.stream_graph import DataFrameStep, SourceStep, StreamNode

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment

_SOURCE_METHODS = ("list_splits", "read")


class Reading:
    """What an environment reads from."""

    _session: Any

    @property
    def spark(self) -> Any:
        raise NotImplementedError

    def _use(self, session: Any) -> None:
        raise NotImplementedError

    def _stream(self, node: StreamNode) -> DataStream:
        return DataStream(cast("ExecutionEnvironment", self), node)

    def read_text(
        self, paths: Any, *, path_column: str | None = None, errors: str = "replace", filesystem: Any = None
    ) -> DataStream:
        """Lines of text files, as column ``value``. ``paths``: a path, glob, directory, URL, or a list of these.

        ``path_column``: a second column with the file each line is from. ``errors``: what to do with bytes that are not
        UTF-8 (replace, ignore, strict). What only Spark can open (``s3a://``, ``dbfs:/``) its own reader reads.
        """
        with step_at("read_text") as place:
            paths = as_paths(paths)
            if all(only_spark_opens(path, filesystem) for path in paths):
                if errors != "replace":
                    raise UsageError(f"errors={errors!r}: {paths[0]} is read by Spark, which only has 'replace'.")
                return self._read_by_spark("text", paths, place, path_column)
            source = TextSource(paths, path_column=path_column, errors=errors, filesystem=filesystem)
            return self._source(source.name, source, place)

    def read_parquet(self, paths: Any, *, filesystem: Any = None) -> DataStream:
        """Rows of Parquet files of one schema. ``paths`` as in :meth:`read_text`. Only what later steps need is read
        (all of it where only Spark can open the path)."""
        with step_at("read_parquet") as place:
            paths = as_paths(paths)
            if all(only_spark_opens(path, filesystem) for path in paths):
                return self._read_by_spark("parquet", paths, place)
            source = ParquetSource(paths, filesystem=filesystem)
            return self._source(source.name, source, place)

    def from_collection(self, rows: Iterable[Any], schema: Any = None) -> DataStream:
        """Python values: dicts, tuples (named by ``schema``), or scalars (column ``value``).

        ``schema``: DDL, a ``pyarrow.Schema``, or a list of names only; without types they are inferred.
        """
        with step_at("from_collection") as place:
            names_only = isinstance(schema, list | tuple) and all(isinstance(name, str) for name in schema)
            typed = schema if schema is None or names_only else to_schema(schema)
            return self._source(
                "from_collection", TableSource(table_from_collection(rows, typed), "from_collection"), place
            )

    def from_arrow(self, table: Any) -> DataStream:
        """A ``pyarrow`` Table, RecordBatch or RecordBatchReader, or a list of RecordBatches."""
        with step_at("from_arrow") as place:
            return self._source("from_arrow", TableSource(as_table(table), "from_arrow"), place)

    def from_pandas(self, frame: Any, schema: Any = None) -> DataStream:
        """The columns of a pandas DataFrame, without its index."""
        with step_at("from_pandas") as place:
            table = table_from_pandas(frame, None if schema is None else to_schema(schema))
            return self._source("from_pandas", TableSource(table, "from_pandas"), place)

    def from_source(self, source: Source) -> DataStream:
        """A source of your own (protocol ``firesteel.Source``)."""
        with step_at("from_source") as place:
            missing = [m for m in _SOURCE_METHODS if not callable(getattr(source, m, None))]
            if missing or not isinstance(getattr(source, "schema", None), pa.Schema):
                what = f"it has no method {', '.join(missing)}" if missing else "its schema is no pyarrow.Schema"
                raise UsageError(f"{type(source).__name__} is no source: {what}.")
            return self._source(f"from_source({getattr(source, 'name', type(source).__name__)})", source, place)

    def from_dataframe(self, dataframe: Any) -> DataStream:
        """A Spark DataFrame: Spark reads it, one subtask per partition, and hands its rows over as Arrow.

        Its steps behind the last exchange run inside our tasks. The environment uses the DataFrame's session. Its
        partitions must come out the same when Spark computes one again, as they do unless it draws random numbers, limits
        rows without an order or deals them round robin.
        """
        with step_at("from_dataframe") as place:
            from firesteel.spark.dataframes import dataframe_source

            schema = dataframe_schema(dataframe)
            session = dataframe.sparkSession
            if self._session is None:
                self._use(session)
            elif self._session.sparkContext is not session.sparkContext:
                raise UsageError(
                    "The DataFrame belongs to another Spark than this environment.",
                    hint="Give the environment its session.",
                )
            work = DataFrameStep(lambda: dataframe_source(dataframe))
            return self._stream(StreamNode("from_dataframe", work, schema, place=place))

    def _read_by_spark(self, kind: str, paths: list[str], place: str, path_column: str | None = None) -> DataStream:
        from firesteel.api.spark_files import read_frame
        from firesteel.spark.dataframes import dataframe_source

        frame = read_frame(self.spark, kind, paths, path_column)
        work = DataFrameStep(lambda: dataframe_source(frame))
        name = f"read_{kind}({short_name(paths)})"
        return self._stream(StreamNode(name, work, dataframe_schema(frame), place=place))

    def _source(self, kind: str, source: Any, place: str) -> DataStream:
        return self._stream(StreamNode(kind, SourceStep(source), source.schema, place=place))
