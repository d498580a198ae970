"""The files of a folder that rows are merged into, as a source of their keys, and read again one by one.

The source gives each row's key and, as a partition column more, its file. So a join with the new keys tells which files are
touched, and it alone is exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.partitions import Partitions, Values, find_partitions, pairs_of
from firesteel.connectors.files.paths import InputFile, InputFiles, Location, is_hidden
from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.files.shaping import plain_schema
from firesteel.connectors.formats.parquet import Footer, ParquetSource
from firesteel.errors import UsageError
from firesteel.task.program import Batches, TaskContext

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
