"""Sources: where pipelines begin, as functions from an environment to a pipeline of one step; the environment's methods call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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


@dataclass(frozen=True, slots=True)
class Files:
    """Paths, partitions and filesystem of the files to read, as the user gave them: the same for all formats."""

    paths: Any
    partitions: Any
    filesystem: Any

    def listed(self) -> list[str]:
        """Raises UsageError."""
        return as_paths(self.paths)

    def listed_for(self, kind: str) -> list[str]:
        """The same for a step that Spark cannot do in our place. Raises UsageError for a path that only Spark can open."""
        paths = self.listed()
        for path in paths:
            if only_spark_opens(path, self.filesystem):
                raise UsageError(
                    f"{kind} cannot open {path}: only Spark has a filesystem for it.",
                    hint="Read it with Spark: env.read_with_spark(...).",
                )
        return paths

    def are_for_spark(self, paths: list[str]) -> bool:
        return all(only_spark_opens(path, self.filesystem) for path in paths)

    def checked(self) -> dict[str, Any]:
        """Arguments for a source of files. Raises UsageError."""
        given = self.partitions
        return {
            "partitions": given if isinstance(given, bool) else to_schema(given),
            "filesystem": self.filesystem,
        }


def read_text(
    env: ExecutionEnvironment, files: Files, *, path_column: str | None, errors: str, compression: str | None
) -> Pipeline:
    with step_at("read_text") as place:
        paths = files.listed()
        if files.are_for_spark(paths):
            if errors != "replace":
                raise UsageError(f"errors={errors!r}: {paths[0]} is read by Spark, which only has 'replace'.")
            return _read_by_spark(env, "text", paths, place, path_column=path_column)
        source = TextSource(paths, path_column=path_column, errors=errors, compression=compression, **files.checked())
        return _begun(env, source.name, source, place)


def read_parquet(env: ExecutionEnvironment, files: Files, *, merge_schema: bool) -> Pipeline:
    with step_at("read_parquet") as place:
        paths = files.listed()
        if files.are_for_spark(paths):
            return _read_by_spark(env, "parquet", paths, place, merge_schema=merge_schema)
        source = ParquetSource(paths, merge_schema=merge_schema, **files.checked())
        return _begun(env, source.name, source, place)


def read_delta(
    env: ExecutionEnvironment, path: Any, version: int | None, storage_options: Mapping[str, str] | None
) -> Pipeline:
    with step_at("read_delta") as place:
        from firesteel.connectors.tables.delta import delta_source  # loads what only jobs with tables need

        source = delta_source(path, version, storage_options)
        return _begun(env, source.name, source, place)


def read_iceberg(
    env: ExecutionEnvironment, table: str, catalog: str | Mapping[str, str], snapshot: int | None
) -> Pipeline:
    with step_at("read_iceberg") as place:
        from firesteel.connectors.tables.iceberg import iceberg_source  # loads what only jobs with tables need

        source = iceberg_source(table, catalog, snapshot)
        return _begun(env, source.name, source, place)


def csv_format(
    *, null_values: Any, date_format: Any, timestamp_format: Any, encoding: str, **characters: Any
) -> CsvFormat:
    """The format of CSV files, as the user gave it; the source checks it. ``characters``: the other fields."""
    return CsvFormat(
        null_values=_texts(null_values),
        date_formats=_texts(date_format),
        timestamp_formats=_texts(timestamp_format),
        encoding=encoding.lower(),
        **characters,
    )


def read_csv(env: ExecutionEnvironment, files: Files, csv: CsvFormat, *, schema: Any, **options: Any) -> Pipeline:
    """``options``: of the source."""
    with step_at("read_csv") as place:
        paths = files.listed_for("read_csv")
        source = CsvSource(paths, csv=csv, schema=_typed(schema), **options, **files.checked())
        return _begun(env, source.name, source, place)


def read_json(env: ExecutionEnvironment, files: Files, *, schema: Any, **options: Any) -> Pipeline:
    """``options``: of the source."""
    with step_at("read_json") as place:
        source = JsonSource(files.listed_for("read_json"), schema=_typed(schema), **options, **files.checked())
        return _begun(env, source.name, source, place)


def read_arrow(env: ExecutionEnvironment, files: Files, *, merge_schema: bool) -> Pipeline:
    with step_at("read_arrow") as place:
        source = ArrowSource(files.listed_for("read_arrow"), merge_schema=merge_schema, **files.checked())
        return _begun(env, source.name, source, place)


def from_collection(env: ExecutionEnvironment, rows: Iterable[Any], schema: Any) -> Pipeline:
    with step_at("from_collection") as place:
        names_only = isinstance(schema, list | tuple) and all(isinstance(name, str) for name in schema)
        table = table_from_collection(rows, schema if names_only else _typed(schema))
        return _begun(env, "from_collection", TableSource(table, "from_collection"), place)


def from_arrow(env: ExecutionEnvironment, table: Any) -> Pipeline:
    with step_at("from_arrow") as place:
        return _begun(env, "from_arrow", TableSource(as_table(table), "from_arrow"), place)


def from_pandas(env: ExecutionEnvironment, frame: Any, schema: Any) -> Pipeline:
    with step_at("from_pandas") as place:
        table = table_from_pandas(frame, _typed(schema))
        return _begun(env, "from_pandas", TableSource(table, "from_pandas"), place)


def from_source(env: ExecutionEnvironment, source: Source) -> Pipeline:
    """A source of the user's own."""
    with step_at("from_source") as place:
        missing = [m for m in _SOURCE_METHODS if not callable(getattr(source, m, None))]
        if missing or not isinstance(getattr(source, "schema", None), pa.Schema):
            what = f"it has no method {', '.join(missing)}" if missing else "its schema is not a pyarrow.Schema"
            raise UsageError(f"{type(source).__name__} is not a source: {what}.")
        return _begun(env, f"from_source({getattr(source, 'name', type(source).__name__)})", source, place)


def from_spark(env: ExecutionEnvironment, kind: str, dataframe: Any, place: str) -> Pipeline:
    """Rows of a DataFrame that Spark runs."""
    return _read_frame(env, kind, dataframe, dataframe_schema(dataframe), place)


def read_with_spark(
    env: ExecutionEnvironment, format: str, path: Any, schema: Any, options: dict[str, Any]
) -> Pipeline:
    with step_at("read_with_spark") as place:
        from firesteel.api.connectors.spark_formats import read_format  # loads what only jobs with Spark's formats need

        frame = read_format(env.spark, format, path, schema, options)
        return _read_frame(env, f"read_with_spark({format})", frame, dataframe_schema(frame), place)


def _read_by_spark(
    env: ExecutionEnvironment,
    kind: str,
    paths: list[str],
    place: str,
    *,
    path_column: str | None = None,
    merge_schema: bool = False,
) -> Pipeline:
    from firesteel.api.connectors.spark_files import read_frame

    frame = read_frame(env.spark, kind, paths, path_column=path_column, merge_schema=merge_schema)
    return _read_frame(env, f"read_{kind}({short_name(paths)})", frame, dataframe_schema(frame), place)


def _read_frame(env: ExecutionEnvironment, kind: str, frame: Any, schema: pa.Schema, place: str) -> Pipeline:
    from firesteel.spark.dataframes import dataframe_source  # loads pyspark

    work = DataFrameStep(lambda: dataframe_source(frame))
    return Pipeline(env, StreamNode(kind, work, schema, place=place))


def _begun(env: ExecutionEnvironment, kind: str, source: Any, place: str) -> Pipeline:
    return Pipeline(env, StreamNode(kind, SourceStep(source), source.schema, place=place))


def _typed(schema: Any) -> pa.Schema | None:
    """Raises UsageError."""
    return None if schema is None else to_schema(schema)


def _texts(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
