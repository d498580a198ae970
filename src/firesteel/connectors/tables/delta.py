"""Delta tables, written and read. Their log is ``deltalake``'s business (``delta_log``)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.partitions import Partitions, Values
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
from firesteel.connectors.tables.delta_log import Added, DeltaLog, LoggedFile, partition_texts
from firesteel.connectors.tables.footer_statistics import statistics_of
from firesteel.connectors.tables.sink import TableSink
from firesteel.errors import FiresteelError, OutputExistsError, UsageError


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
