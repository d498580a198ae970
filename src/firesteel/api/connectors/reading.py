"""Sources: where pipelines begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from firesteel.api.data_stream import DataStream
from firesteel.api.ddl import dataframe_schema, to_schema
from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import DataFrameStep, SourceStep, StreamNode
from firesteel.connectors.base import Source
from firesteel.connectors.files.paths import as_paths, only_spark_opens, short_name
from firesteel.connectors.formats.arrow_files import ArrowSource
from firesteel.connectors.formats.csv_files import CsvSource
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.connectors.formats.json_files import JsonSource
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.connectors.formats.text import TextSource
from firesteel.connectors.memory import TableSource, as_table, table_from_collection, table_from_pandas
from firesteel.errors import UsageError

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment

_SOURCE_METHODS = ("list_splits", "read")


class Reading:
    """The sources of an environment."""

    _session: Any

    @property
    def spark(self) -> Any:
        raise NotImplementedError

    def _use(self, session: Any) -> None:
        raise NotImplementedError

    def _stream(self, node: StreamNode) -> DataStream:
        return DataStream(Pipeline(cast("ExecutionEnvironment", self), node))

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
        with step_at("read_text") as place:
            paths = as_paths(paths)
            if all(only_spark_opens(path, filesystem) for path in paths):
                if errors != "replace":
                    raise UsageError(f"errors={errors!r}: {paths[0]} is read by Spark, which only has 'replace'.")
                return self._read_by_spark("text", paths, place, path_column=path_column)
            source = TextSource(
                paths,
                path_column=path_column,
                errors=errors,
                compression=compression,
                partitions=_partitions(partitions),
                filesystem=filesystem,
            )
            return self._source(source.name, source, place)

    def read_parquet(
        self, paths: Any, *, merge_schema: bool = False, partitions: Any = True, filesystem: Any = None
    ) -> DataStream:
        """Rows of Parquet files. ``paths`` and ``partitions`` as in :meth:`read_text`. Only what later steps need is read (all
        of it where only Spark can open the path).

        The files have one schema. ``merge_schema``: they need not; a column that a file lacks is null in its rows, and types
        are widened to one that holds them all (where only Spark can open the path, by its own rules).
        """
        with step_at("read_parquet") as place:
            paths = as_paths(paths)
            if all(only_spark_opens(path, filesystem) for path in paths):
                return self._read_by_spark("parquet", paths, place, merge_schema=merge_schema)
            source = ParquetSource(
                paths, merge_schema=merge_schema, partitions=_partitions(partitions), filesystem=filesystem
            )
            return self._source(source.name, source, place)

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
        with step_at("read_csv") as place:
            paths = as_paths(paths)
            self._refuse_spark_paths(paths, "read_csv", filesystem)
            csv = CsvFormat(
                header=header,
                sep=sep,
                quote=quote or None,
                escape=escape or None,
                null_values=_texts(null_values),
                date_formats=_texts(date_format),
                timestamp_formats=_texts(timestamp_format),
                newlines_in_values=newlines_in_values,
                encoding=encoding.lower(),
            )
            source = CsvSource(
                paths,
                schema=None if schema is None else to_schema(schema),
                csv=csv,
                infer_schema=infer_schema,
                compression=compression,
                partitions=_partitions(partitions),
                filesystem=filesystem,
                corrupt_column=corrupt_column,
            )
            return self._source(source.name, source, place)

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
        with step_at("read_json") as place:
            paths = as_paths(paths)
            self._refuse_spark_paths(paths, "read_json", filesystem)
            source = JsonSource(
                paths,
                schema=None if schema is None else to_schema(schema),
                newlines_in_values=newlines_in_values,
                compression=compression,
                partitions=_partitions(partitions),
                filesystem=filesystem,
                corrupt_column=corrupt_column,
            )
            return self._source(source.name, source, place)

    def read_arrow(
        self, paths: Any, *, merge_schema: bool = False, partitions: Any = True, filesystem: Any = None
    ) -> DataStream:
        """Rows of Arrow IPC files (``.arrow``, ``.feather``, or streams). ``paths`` and ``partitions`` as in
        :meth:`read_text`, ``merge_schema`` as in :meth:`read_parquet`."""
        with step_at("read_arrow") as place:
            paths = as_paths(paths)
            self._refuse_spark_paths(paths, "read_arrow", filesystem)
            source = ArrowSource(
                paths, merge_schema=merge_schema, partitions=_partitions(partitions), filesystem=filesystem
            )
            return self._source(source.name, source, place)

    def _refuse_spark_paths(self, paths: list[str], kind: str, filesystem: Any) -> None:
        for path in paths:
            if only_spark_opens(path, filesystem):
                raise UsageError(
                    f"{kind} cannot open {path}: only Spark has a filesystem for it.",
                    hint="Read it with Spark: env.read_with_spark(...).",
                )

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
                what = f"it has no method {', '.join(missing)}" if missing else "its schema is not a pyarrow.Schema"
                raise UsageError(f"{type(source).__name__} is not a source: {what}.")
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
            from firesteel.api.connectors.spark_formats import read_format
            from firesteel.api.ddl import dataframe_schema
            from firesteel.spark.dataframes import dataframe_source

            frame = read_format(self.spark, format, path, schema, options)
            work = DataFrameStep(lambda: dataframe_source(frame))
            return self._stream(StreamNode(f"read_with_spark({format})", work, dataframe_schema(frame), place=place))

    def _read_by_spark(
        self, kind: str, paths: list[str], place: str, *, path_column: str | None = None, merge_schema: bool = False
    ) -> DataStream:
        from firesteel.api.connectors.spark_files import read_frame
        from firesteel.spark.dataframes import dataframe_source

        frame = read_frame(self.spark, kind, paths, path_column=path_column, merge_schema=merge_schema)
        work = DataFrameStep(lambda: dataframe_source(frame))
        name = f"read_{kind}({short_name(paths)})"
        return self._stream(StreamNode(name, work, dataframe_schema(frame), place=place))

    def _source(self, kind: str, source: Any, place: str) -> DataStream:
        return self._stream(StreamNode(kind, SourceStep(source), source.schema, place=place))


def _partitions(given: Any) -> bool | pa.Schema:
    return given if isinstance(given, bool) else to_schema(given)


def _texts(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
