"""Rows merged by key into a folder of Parquet files: which files have the keys, those files without them, and the sink.

The source gives each row's key and, as a partition column more, its file. So a join with the new keys tells which files are
touched, and it alone is exchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.base import Recovered
from firesteel.connectors.files.partitions import Partitions, Values, find_partitions, pairs_of
from firesteel.connectors.files.paths import InputFile, InputFiles, Location, PathLike, is_hidden
from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.files.shaping import fit, plain_schema
from firesteel.connectors.files.writing.in_place import storage_errors
from firesteel.connectors.files.writing.part_files import FileCommit, FileWriter, NoWriter
from firesteel.connectors.formats.parquet import Footer, ParquetSink, ParquetSource
from firesteel.errors import FiresteelError, UsageError
from firesteel.task.batches import coalesce
from firesteel.task.operators.grouping import grouped
from firesteel.task.operators.join import only_of
from firesteel.task.program import Batches, TaskContext, UnitInput

FILE = "__firesteel_file"
"""The column that names a file of the folder."""


def listed(target: Location) -> dict[str, tuple[int, int]]:
    """Size and time of change of each file of data there, by its name in the folder. Raises OSError."""
    selector = pafs.FileSelector(target.path, recursive=True, allow_not_found=True)
    start = len(target.path) + 1
    infos = [info for info in target.filesystem.get_file_info(selector) if info.type is pafs.FileType.File]
    found = {info.path[start:]: (info.size, info.mtime_ns) for info in infos}
    return {name: found[name] for name in sorted(found) if not any(map(is_hidden, name.split("/")))}


class Folder:
    """The files of ``seen`` (as :func:`listed` gives them), whose columns, partition columns among them, are those of ``schema``.

    Raises UsageError for files with other columns.
    """

    def __init__(
        self, target: Location, seen: dict[str, tuple[int, int]], schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        files = tuple(
            InputFile(f"{target.path}/{name}", size, target.path, str(changed or ""))
            for name, (size, changed) in seen.items()
        )
        found = InputFiles(target.filesystem, target.prefix, files, (target.path,))
        wanted = plain_schema(schema)
        parts = pa.schema([wanted.field(name) for name in partition_by])
        _, values = find_partitions(found, parts if partition_by else False)
        own = pa.schema([field for field in wanted if field.name not in partition_by])
        named = [(*v, f"{file.size}/{name}") for v, file, name in zip(values, files, seen, strict=True)]
        with_file = Partitions(pa.schema([*parts, (FILE, pa.string())]))

        def agreed(footers: list[Footer]) -> pa.Schema:
            for footer in footers:
                _check_columns(found, footer, own)
            return own

        self.keys = ParquetSource.of_listed(Listed(found, with_file, named), "", agreed, {})
        self.keys.name = f"read_parquet {target.path.rpartition('/')[2]}"
        self.reader = Reader(self.keys.push_down(wanted.names, None), target.path)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one file whole, in a task."""

    source: ParquetSource
    root: str

    def read(self, name: str, ctx: TaskContext) -> Batches:
        """``name``: as the column :data:`FILE` has it."""
        size, _, path = name.partition("/")
        file = InputFile(f"{self.root}/{path}", int(size), self.root)
        values: Values = (*(value for _, value in pairs_of(file)), name)
        return self.source.read_whole(file, values, ctx)


def _check_columns(found: InputFiles, footer: Footer, own: pa.Schema) -> None:
    there = plain_schema(footer.schema)
    for name in dict.fromkeys([*own.names, *there.names]):
        kinds: list[Any] = [s.field(name).type if name in s.names else "no such column" for s in (there, own)]
        if kinds[0] != kinds[1]:
            raise UsageError(
                f"Rows cannot be merged into {found.label(footer.file.path)}: column '{name}' is {kinds[0]} there and {kinds[1]} in "
                "the stream.",
                hint="Bring the stream's columns to what is there (with_column, select), or write the folder anew.",
            )


ROWS = "__firesteel_rows"
"""The column that tells how many rows of the stream have a key."""


@dataclass(frozen=True, slots=True)
class OneRowAKey:
    """Passes keys on that are in one row (``ROWS``). Raises UsageError for others, and for keys with a null."""

    name: str
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            keys = batch.select(self.schema.names)
            for name in keys.schema.names:
                if keys.column(name).null_count:
                    row = int(np.argmax(np.asarray(keys.column(name).is_null())))
                    raise UsageError(
                        f"{self.name}: the key column '{name}' is null in a row of the stream ({_words(keys, row)}), which no key equals.",
                        hint=f"Leave such rows out: drop_nulls('{name}'), or write them with mode='append'.",
                    )
            counts = np.asarray(batch.column(ROWS))
            if len(counts) and counts.max() > 1:
                row = int(counts.argmax())
                raise UsageError(
                    f"{self.name}: {counts[row]} rows of the stream have the key {_words(keys, row)}; which of them shall stay is not said.",
                    hint="Keep one row of each key: drop_duplicates(...), or key_by(...) with an aggregation.",
                )
            yield keys


def _words(keys: pa.RecordBatch, row: int) -> str:
    return ", ".join(f"{name}={keys.column(name)[row].as_py()!r}" for name in keys.schema.names)


@dataclass(frozen=True, slots=True)
class NoRows:
    """Takes all rows in and gives none, of ``schema``: for what the step before it finds."""

    name: str
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for _ in batches:
            pass
        yield from ()


@dataclass(frozen=True, slots=True)
class RewriteFiles:
    """Reads files again in which keys were found: the rows with other keys, and for each file one row of nulls that names it."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    reader: Reader
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return ((FILE,),)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return coalesce(self._rewritten(inputs[0], ctx))

    def _rewritten(self, unit: UnitInput, ctx: TaskContext) -> Batches:
        table = unit.table()
        if not table.num_rows:
            return
        groups = grouped(table, (FILE,))
        for code in groups.codes():
            found = groups.of(code)
            name = found.column(FILE)[0].as_py()
            yield _marks([name], self.schema)
            batches = iter(self.reader.read(name, ctx))
            first = next(batches, None)
            if first is not None:
                others = only_of(found.select(self.key), self.key, first.schema, "anti").apply(
                    chain([first], batches), ctx
                )
                yield from (_unmarked(batch, self.schema) for batch in others)


def _marks(names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.nulls(len(names), field.type) for field in schema if field.name != FILE]
    return pa.RecordBatch.from_arrays([*columns, pa.array(names, pa.string())], schema=schema)


def _unmarked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = fit(batch, pa.schema([field for field in schema if field.name != FILE]))
    return pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.string())], schema=schema)


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """Commit message of one attempt. ``replaced``: names, in the folder, of files whose remaining rows are among what was written."""

    files: FileCommit
    replaced: tuple[str, ...]


class MergeSink(ParquetSink):
    """Takes rows with a column :data:`FILE` more, which is null but in those that stand for a file that is replaced.

    ``seen``: the files that the job read, or would have, as :func:`~firesteel.connectors.merging.listed` gives them.
    """

    kind = "merge_parquet"

    def __init__(self, path: PathLike, **options: Any) -> None:
        super().__init__(path, mode="append", **options)
        self.seen: dict[str, tuple[int, int]] = {}
        self._gone: tuple[str, ...] = ()

    @property
    def writes_all_rows(self) -> bool:
        """Some stand for files."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "seen": {}}  # there may be thousands

    def check(self, schema: pa.Schema) -> None:
        super().check(pa.schema([field for field in schema if field.name != FILE]))

    def write(self, subtask: int, attempt: int) -> Any:
        return MergeWriter(super().write(subtask, attempt))

    def state(self) -> dict[str, str]:
        return {**super().state(), "seen": json.dumps(self.seen)}

    def recover(self, job_id: str, winners: Sequence[Any], state: Mapping[str, str], *, step: str) -> Recovered:
        if "seen" in state:  # what is there now may be this job's already
            self.seen = {name: (size, changed) for name, (size, changed) in json.loads(state["seen"]).items()}
        return super().recover(job_id, [winner.files for winner in winners], state, step=step)

    def commit(self, winners: Sequence[Any]) -> None:
        """``winners``: MergeCommit. Raises FiresteelError also where others have changed the folder since the files were listed."""
        if not self.has_begun:
            self._check_unchanged()
        self._gone = tuple(sorted({name.partition("/")[2] for winner in winners for name in winner.replaced}))
        super().commit([winner.files for winner in winners])

    def _check_unchanged(self) -> None:
        with storage_errors(self.target.label):
            now = listed(self.target)
        changed = sorted(name for name in {*now, *self.seen} if now.get(name) != self.seen.get(name))
        if changed:
            what = "is gone" if changed[0] not in now else "is new" if changed[0] not in self.seen else "has changed"
            raise FiresteelError(
                f"Nothing was published to {self.target.label}: another program wrote there while the job was running ({changed[0]} {what}).",
                hint="Run the job again.",
            )

    def abort(self, attempts: Sequence[Any]) -> None:
        super().abort([attempt.files for attempt in attempts])

    def _replaced(self, files: list[tuple[str, str]]) -> list[str]:
        return list(self._gone)

    def _wants_a_file(self, written: Sequence[FileCommit]) -> bool:
        is_new = self.target.kind() is pafs.FileType.NotFound
        return super()._wants_a_file(written) and (is_new or len(self._gone) == len(self.seen))


class MergeWriter:
    """Writes rows, and notes the files that are replaced."""

    def __init__(self, files: FileWriter | NoWriter) -> None:
        self._files = files
        self._replaced: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        marks = batch.column(FILE)
        if marks.null_count < batch.num_rows:
            self._replaced += marks.drop_null().to_pylist()
            batch = batch.filter(marks.is_null())
        self._files.write(batch.drop_columns([FILE]))

    def finish(self) -> MergeCommit:
        return MergeCommit(self._files.finish(), tuple(self._replaced))

    def abort(self) -> None:
        self._files.abort()
