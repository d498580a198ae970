"""Delta tables, written and read. Their log is ``deltalake``'s business (``DeltaLog``)."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.partitions import NULL_NAME, Partitions, Values, format_values
from firesteel.connectors.files.paths import (
    WRITTEN_ONCE,
    InputFile,
    InputFiles,
    Location,
    PathLike,
    find_target,
    is_local,
)
from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.files.shaping import plain_schema
from firesteel.connectors.files.writing.part_files import PartFile
from firesteel.connectors.formats.parquet import Footer, ParquetSource
from firesteel.connectors.tables.sink import (
    Conflict,
    FileStatistics,
    NotKnown,
    TableSink,
    as_usage,
    statistics_of,
    words,
)
from firesteel.errors import FiresteelError, OutputExistsError, UsageError
from firesteel.extras import load


class DeltaSink(TableSink):
    """Writes rows of a Delta table at ``path``. ``storage_options``: of ``deltalake``, for its log."""

    kind = "write_delta"
    looks_for_nan = True

    def __init__(self, path: PathLike, *, storage_options: Mapping[str, str] | None = None, **options: Any) -> None:
        """``options``: those of :class:`~firesteel.connectors.tables.sink.TableSink`."""
        place = find_target(path)
        super().__init__(_uri(place, path), **options)
        self.target = self._place = place
        self._options = None if storage_options is None else dict(storage_options)
        self._of_table()  # the library is there

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": None}  # they may hold secrets, and only the driver asks the log

    def _found(self, schema: pa.Schema) -> tuple[Location, Sequence[str] | None]:
        log = self._of_table()
        if not log.exists():
            return self._place, None
        table = log.table()
        if self.mode in ("append", "overwrite", "overwrite_partitions"):
            self._check_table(log, table, schema)
        return self._place, table.metadata().partition_columns

    def _of_table(self) -> DeltaLog:
        return DeltaLog(self.label, self._options, self.kind)

    def _check_free(self) -> None:
        selector = pafs.FileSelector(self._place.path, allow_not_found=True)
        if self._place.filesystem.get_file_info(selector):
            raise OutputExistsError(
                f"{self.label} holds files and is no Delta table.", hint="Choose another path, or remove it first."
            )

    def _check_table(self, log: DeltaLog, table: Any, schema: pa.Schema) -> None:
        """Raises UsageError."""
        log.check_writable(table, removes=self.mode != "append")
        there = plain_schema(log.schema(table))
        self._check_columns(there, schema)

    def _log(self, files: Sequence[tuple[str, PartFile]]) -> None:
        assert self._schema is not None
        log = self._of_table()
        if not log.exists():
            log.create(self._schema, self._layout.partition_by, self._added(files, None), self._job)
            return
        table = log.table()
        if table.transaction_version(self._job) is not None:
            return
        if self.mode in ("error", "ignore"):
            raise FiresteelError(
                f"Nothing was published: the table {self.label} was made by another program while the job was running.",
                hint="Write with mode='append' or mode='overwrite'.",
            )
        self._check_table(log, table, self._schema)
        if tuple(table.metadata().partition_columns) != self._layout.partition_by:
            raise FiresteelError(f"Nothing was published: the table {self.label} was partitioned otherwise meanwhile.")
        if self.mode == "overwrite":
            log.commit(table, None, self._added(files, table), self._job)
        elif files:
            log.commit(table, self._replaced(log, table, files), self._added(files, table), self._job)

    def _is_logged(self) -> bool:
        log = self._of_table()
        return log.exists() and log.table().transaction_version(self._job) is not None

    def _added(self, files: Sequence[tuple[str, PartFile]], table: Any) -> list[Added]:
        assert self._schema is not None
        own = pa.schema([field for field in self._schema if field.name not in self._layout.partition_by])
        paths = [f"{self._place.path}/{path}" for path, _ in files]
        statistics = statistics_of(self._place.filesystem, paths, own, self._of_table().columns_with_statistics(table))
        return [Added(path, file, told) for (path, file), told in zip(files, statistics, strict=True)]

    def _replaced(self, log: DeltaLog, table: Any, files: Sequence[tuple[str, PartFile]]) -> list[LoggedFile]:
        if self.mode != "overwrite_partitions":
            return []
        texts = [partition_texts(folder) for folder in {file.folder for _, file in files}]
        ours = {tuple(one[name] or None for name in self._layout.partition_by) for one in texts}
        return [file for file in log.files(table) if file.values in ours]


def delta_source(
    path: PathLike, version: int | None = None, storage_options: Mapping[str, str] | None = None
) -> ParquetSource:
    """The rows of the table as it is now, or was at ``version``. Raises UsageError."""
    place = find_target(path)
    log = DeltaLog(_uri(place, path), storage_options, "read_delta")
    if not log.exists():
        raise UsageError(f"{_uri(place, path)} is no Delta table.", hint="Read files of Parquet with read_parquet.")
    table = log.table(version)
    log.check_readable(table)
    logged = log.files(table)
    schema = plain_schema(log.schema(table))
    names = table.metadata().partition_columns
    files = tuple(InputFile(f"{place.path}/{file.path}", file.size, place.path, WRITTEN_ONCE) for file in logged)
    partitions = Partitions(pa.schema([schema.field(name) for name in names])) if names else None
    values: list[Values] = [file.values for file in logged]
    listed = Listed(InputFiles(place.filesystem, place.prefix, files), partitions, values)
    own = pa.schema([field for field in schema if field.name not in names])

    def agreed(footers: list[Footer]) -> pa.Schema:
        return own

    source = ParquetSource.of_listed(listed, "", agreed, {}).push_down(schema.names, None)
    source.name = f"read_delta {place.path.rpartition('/')[2]} (version {table.version()})"
    return source


def _uri(place: Location, path: PathLike) -> str:
    """As ``deltalake`` wants it: URLs as they were given."""
    return place.path if is_local(place.filesystem) else os.fspath(path)


_WRITER_FEATURES = {
    *("appendOnly", "invariants", "changeDataFeed", "timestampNtz", "deletionVectors", "domainMetadata"),
    *("v2Checkpoint", "vacuumProtocolCheck", "checkConstraints", "generatedColumns", "columnMapping"),
}
"""Names of what asks nothing of a writer of plain files, and of more, whose use is looked at table by table."""
_UNHEARD = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
_INDEXED = 32
"""Columns that have statistics unless a property says otherwise."""
_READER_FEATURES = {"timestampNtz", "deletionVectors", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}


@dataclass(frozen=True, slots=True)
class Added:
    """A file that was written: its path in the table."""

    path: str
    file: PartFile
    statistics: FileStatistics


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file of the table: its path there, unescaped, and the texts of its partition columns' values."""

    path: str
    size: int
    values: Values


class DeltaLog:
    """The log of the table at ``uri``. ``options``: of ``deltalake``'s storage."""

    def __init__(self, uri: str, options: Mapping[str, str] | None, step: str) -> None:
        self._library = load("deltalake", "delta", step)
        self._uri = uri
        self._options = None if options is None else dict(options)

    def exists(self) -> bool:
        with as_usage(self._uri):
            return bool(self._library.DeltaTable.is_deltatable(self._uri, storage_options=self._options))

    def table(self, version: int | None = None) -> Any:
        """As it is now, or was at the version. Raises UsageError."""
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"version={version!r} is no version of a Delta table: these are whole numbers from 0 on.",
                hint=f"Write version=0 for the first one; the latest is {self.table().version()}.",
            )
        try:
            with as_usage(self._uri):
                return self._library.DeltaTable(self._uri, version=version, storage_options=self._options)
        except UsageError as error:
            if version is None:
                raise
            raise self._no_version(version, error) from error

    def _no_version(self, version: int, error: UsageError) -> UsageError:
        """Of a table that cannot be had as it was at this version."""
        latest = self.table().version()
        if version > latest:
            return UsageError(
                f"The table {self._uri} has no version {version}: the latest is {latest}.",
                hint=f"Give a version from 0 to {latest}, or none for the latest.",
            )
        hint = "Its log or its files may have been cleaned up since: give a later version, or none for the latest."
        return UsageError(f"Version {version} of {self._uri} cannot be read. {error.message}", hint=hint)

    def create(self, schema: pa.Schema, partition_by: Sequence[str], added: Sequence[Added], job: str) -> None:
        """Raises as :meth:`commit`."""
        from deltalake.transaction import create_table_with_add_actions

        with self._told(job, before=None):
            create_table_with_add_actions(
                self._uri,
                self._library.Schema.from_arrow(schema),
                self._additions(added),
                mode="error",
                partition_by=list(partition_by),
                storage_options=self._options,
                commit_properties=self._properties(job),
            )

    def commit(self, table: Any, removed: Sequence[LoggedFile] | None, added: Sequence[Added], job: str) -> None:
        """One transaction on top of ``table``. ``removed``: these files go; None: all of them.

        Raises Conflict where another one came between, NotKnown where the log cannot be asked whether ours was written, FiresteelError.
        """
        actions = [*self._additions(added), *self._removals(table, removed or ())]
        with self._told(job, before=table.version()):
            table.create_write_transaction(
                actions,
                "overwrite" if removed is None else "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=self._properties(job),
            )

    def files(self, table: Any) -> list[LoggedFile]:
        """Raises UsageError for files that are elsewhere."""
        actions = pa.table(table.get_add_actions(flatten=False))
        names = table.metadata().partition_columns
        paths = [unquote(path) for path in actions.column("path").to_pylist()]
        elsewhere = next((path for path in paths if "://" in path or path.startswith("/")), None)
        if elsewhere is not None:
            raise UsageError(
                f"The table {self._uri} has files elsewhere, as a shallow clone has: {elsewhere}.",
                hint="Read the table with Spark, or clone it whole.",
            )
        values: list[Values] = [() for _ in paths]
        if names:
            partition = actions.column("partition").combine_chunks()
            texts = [format_values(partition.field(name)) for name in names]
            columns = [[None if text == NULL_NAME else unquote(text) for text in column] for column in texts]
            values = list(zip(*columns, strict=True))
        sizes = actions.column("size_bytes").to_pylist()
        return [LoggedFile(*one) for one in zip(paths, sizes, values, strict=True)]

    def columns_with_statistics(self, table: Any) -> int | None:
        """Return how many of the first columns have statistics, as the properties say it; None: all may have. ``table``: None: a new one."""
        options = {} if table is None else table.metadata().configuration
        given = options.get("delta.dataSkippingNumIndexedCols", str(_INDEXED))
        if "delta.dataSkippingStatsColumns" in options or not given.isdecimal():
            return None
        return int(given)

    def schema(self, table: Any) -> pa.Schema:
        with as_usage(self._uri):
            return pa.schema(table.schema())

    def check_readable(self, table: Any) -> None:
        """Raises UsageError for what plain files do not say."""
        features = _names(table.protocol().reader_features)
        self._refuse(features - _READER_FEATURES, "cannot be read")
        self._refuse_mapping(table)
        if "deletionVectors" in features and self._has_deletions(table):
            raise UsageError(
                f"The table {self._uri} has deletion vectors: rows that are deleted are still in its files.",
                hint="Rewrite those files (in Spark: REORG TABLE ... APPLY (PURGE)), or read the table with Spark.",
            )

    def check_writable(self, table: Any, removes: bool) -> None:
        """Raises UsageError for what a writer of plain files would break. ``removes``: files may be removed."""
        self._refuse(_names(table.protocol().writer_features) - _WRITER_FEATURES, "cannot be written")
        self._refuse_mapping(table)
        options = table.metadata().configuration
        constraint = next((key for key in options if key.startswith("delta.constraints.")), None)
        columns = json.loads(table.schema().to_json())["fields"]
        unheard = [(one["name"], key) for one in columns for key in one.get("metadata", {}) if key in _UNHEARD]
        if constraint is not None or unheard:
            said = f"column '{unheard[0][0]}' has {unheard[0][1]}" if unheard else f"it has {constraint}"
            raise UsageError(
                f"The table {self._uri} cannot be written: {said}, which Firesteel would not keep.",
                hint="Write it with Spark: stream.write_with_spark('delta', ...).",
            )
        if removes and options.get("delta.appendOnly") == "true":
            raise UsageError(
                f"The table {self._uri} takes only more rows (delta.appendOnly).", hint="Use mode='append'."
            )

    def _has_deletions(self, table: Any) -> bool:
        with as_usage(self._uri):
            return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))

    def _refuse(self, features: set[str], what: str) -> None:
        if features:
            raise UsageError(
                f"The table {self._uri} {what}: it has the feature {min(features)}, which Firesteel does not know.",
                hint="Use Spark: read_with_spark('delta', ...) and write_with_spark('delta', ...).",
            )

    def _refuse_mapping(self, table: Any) -> None:
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise UsageError(
                f"The columns of the table {self._uri} have other names in its files (delta.columnMapping.mode).",
                hint="Use Spark: read_with_spark('delta', ...) and write_with_spark('delta', ...).",
            )

    @contextmanager
    def _told(self, job: str, before: int | None) -> Generator[None]:
        """Whatever the library raises, the log says what came of it. ``before``: its version when the transaction began; None: there was
        no table."""
        try:
            yield
        except Exception as error:
            try:
                now = self.table() if self.exists() else None
                if now is not None and now.transaction_version(job) is not None:
                    return
            except Exception:
                raise NotKnown(words(error)) from error
            if (None if now is None else now.version()) != before:
                raise Conflict(words(error)) from error
            raise FiresteelError(f"The table {self._uri} could not be changed: {words(error)}.") from error

    def _properties(self, job: str) -> Any:
        """No tries of its own: what is removed is found again each time."""
        return self._library.CommitProperties(
            app_transactions=[self._library.Transaction(job, 1)],
            custom_metadata={"firesteel.job": job},
            max_commit_retries=0,
        )

    def _additions(self, added: Sequence[Added]) -> list[Any]:
        from deltalake.transaction import AddAction

        at = int(time.time() * 1000)
        return [
            AddAction(one.path, one.file.bytes, partition_texts(one.file.folder), at, True, _json(one.statistics))
            for one in added
        ]

    def _removals(self, table: Any, removed: Sequence[LoggedFile]) -> list[Any]:
        from deltalake.transaction import RemoveAction

        at = int(time.time() * 1000)
        names = table.metadata().partition_columns
        return [
            RemoveAction(one.path, True, at, one.size, dict(zip(names, one.values, strict=True))) for one in removed
        ]


def _names(given: Any) -> set[str]:
    return set(given or ())


def partition_texts(folder: str) -> dict[str, str | None]:
    """``"a=1/b=x%2Fy"`` as the log has it; null and the empty string are null there."""
    pairs = [part.partition("=") for part in folder.split("/") if part]
    return {unquote(name): None if text == NULL_NAME else unquote(text) for name, _, text in pairs}


_LAST_MILLISECOND = dt.datetime.max.replace(microsecond=999_000)


def _json(statistics: FileStatistics) -> str:
    """Write the bounds as text: JSON numbers hold decimals exactly, and Python's encoder has none."""
    told: dict[str, Any] = {"numRecords": statistics.rows, "nullCount": statistics.nulls}
    text = json.dumps(told, ensure_ascii=False)  # deltalake takes some pairs of surrogates for other characters
    if not statistics.bounds:
        return text
    for key, up in (("minValues", False), ("maxValues", True)):
        values = (
            f"{json.dumps(name, ensure_ascii=False)}: {_value(bounds[up], up=up)}"
            for name, bounds in statistics.bounds.items()
        )
        text = f'{text[:-1]}, "{key}": {{{", ".join(values)}}}}}'
    return text


def _value(value: Any, *, up: bool) -> str:
    """As JSON. Timestamps have milliseconds there: the least is rounded down, the greatest up. The last millisecond of the year 9999, above
    which the log has none, is all that it holds, as every reader of truncated bounds takes it. Decimals have no exponent, which ``deltalake``
    does not read."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        rest = dt.timedelta(microseconds=value.microsecond % 1000)
        moment = value.replace(tzinfo=None) - rest
        moment += dt.timedelta(milliseconds=1 if up and rest and moment < _LAST_MILLISECOND else 0)
        value = moment.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    elif isinstance(value, dt.date):
        value = value.isoformat()
    return json.dumps(value, ensure_ascii=False)
