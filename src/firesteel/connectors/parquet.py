"""Parquet files: split by row groups, columns and filters pushed down, and a sink.

Footers are read once, on the driver, and stay there. What travels to an executor is a path and row group numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import acero

from firesteel.connectors.base import Split
from firesteel.connectors.files import FileSink, PartWriter
from firesteel.connectors.packing import pack, piece_bytes
from firesteel.connectors.paths import InputFile, InputFiles, PathLike, find_files, first_line, is_local, short_name
from firesteel.errors import FiresteelError, UsageError
from firesteel.operators.program import TaskContext

_BATCH_BYTES = 4 << 20
_MOST_ROWS, _LEAST_ROWS = 1 << 16, 64
_ENOUGH_ROWS, _ENOUGH_BYTES = 1 << 13, 1 << 18
_ROW_GROUP_BYTES = 32 << 20
_PAGE_BUFFER = 1 << 20
_THREADS = 16


@dataclass(frozen=True, slots=True)
class _Groups:
    """Row groups of one file, which was ``size`` bytes long when its footer was read."""

    path: str
    size: int
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Footer:
    file: InputFile
    schema: pa.Schema
    rows: NDArray[np.int64]
    """Per row group."""
    column_bytes: NDArray[np.int64]
    """Plain bytes, (row group, top-level column), the columns in this file's order."""


class ParquetSource:
    """Rows of Parquet files of one schema.

    ``paths``: a path, glob, directory, ``pyarrow.fs`` URL, or a list of these. Types are exactly what pyarrow makes of the
    files, without metadata, every column nullable, string views as strings. Files may have their columns in another order, nothing else.
    ``columns`` and ``filter`` as in :meth:`push_down`.

    Footers are read now; raises UsageError for missing paths, empty globs, files that are damaged or no Parquet,
    mixed schemas, Hive partitions, and for columns or filters that do not fit.
    """

    supports_concurrent_execution_attempts = True

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        paths = [paths] if isinstance(paths, str) or not isinstance(paths, Iterable) else list(paths)
        found = find_files(paths, filesystem)
        _refuse_partitions(found)
        self.name = f"read_parquet {short_name(paths)}"
        self._filesystem = found.filesystem
        self._prefix = found.prefix
        self._footers: tuple[_Footer, ...] = _read_footers(found)
        self._file_schema = _one_schema(found, self._footers)
        self._conjuncts: tuple[_Condition, ...] = ()
        self.schema = self._file_schema
        if columns is not None or filter is not None:
            self.__dict__.update(self.push_down(columns, filter).__dict__)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_footers": ()}  # of no use on executors, and there may be thousands

    def push_down(self, columns: list[str] | None, filter: pc.Expression | None) -> ParquetSource:
        """The same rows with only these columns (None: all, as now), and only where ``filter`` is true.

        Both may name only columns this source has. Raises UsageError for others and for filters of wrong types.
        """
        pushed = ParquetSource.__new__(ParquetSource)  # copy.copy would drop the footers, as pickling does
        pushed.__dict__.update(self.__dict__)
        if filter is not None:
            pushed._conjuncts = (*self._conjuncts, _condition(filter, self.schema, self.name))
        if columns is not None:
            missing = [name for name in columns if name not in self.schema.names]
            if missing:
                raise UsageError(
                    f"{self.name} has no column '{missing[0]}'.", hint=f"It has: {', '.join(self.schema.names)}."
                )
            pushed.schema = pa.schema([self.schema.field(name) for name in columns])
        return pushed

    def list_splits(self, data_volume: int) -> list[Split]:
        kept = self._prune()
        sizes = [self._plain_bytes(footer)[ids] for footer, ids in zip(self._footers, kept, strict=True)]
        target = piece_bytes(int(sum(size.sum() for size in sizes)), data_volume)
        items = [(f, int(g)) for f, ids in enumerate(kept) for g in ids]
        weights = [int(size) for per_file in sizes for size in per_file]
        splits: list[Split] = []
        begin = 0
        for group in pack(items, weights, target):
            groups = self._by_file(group)
            splits.append(Split(groups, sum(weights[begin : begin + len(group)]), self._describe(groups)))
            begin += len(group)
        return splits

    def _by_file(self, items: list[tuple[int, int]]) -> tuple[_Groups, ...]:
        by_file: dict[int, list[int]] = {}
        for file, row_group in items:
            by_file.setdefault(file, []).append(row_group)
        files = [(self._footers[file].file, tuple(ids)) for file, ids in by_file.items()]
        return tuple(_Groups(file.path, file.size, ids) for file, ids in files)

    def _describe(self, groups: tuple[_Groups, ...]) -> str:
        first, last = groups[0], groups[-1]
        if len(groups) > 1:
            return f"{self._prefix + first.path} to {self._prefix + last.path} ({len(groups)} files)"
        ids = first.row_groups
        which = f"row group {ids[0]}" if len(ids) == 1 else f"row groups {ids[0]}-{ids[-1]}"
        return f"{self._prefix + first.path}, {which}"

    def _plain_bytes(self, footer: _Footer) -> NDArray[np.int64]:
        """Per row group, of the columns that must be read; at least 1, so that rows without columns count."""
        names = set(self._columns_to_read())
        wanted = [i for i, name in enumerate(footer.schema.names) if name in names]
        return np.maximum(footer.column_bytes[:, wanted].sum(axis=1), footer.rows // 8 + 1)

    def _prune(self) -> list[NDArray[np.intp]]:
        """Row groups of each file that may hold rows the filter keeps, by the statistics in the footers."""
        import pyarrow.dataset as pads  # slow to import, and only the driver needs it

        everything = [np.flatnonzero(footer.rows) for footer in self._footers]
        usable = [part.expression for part in self._conjuncts if part.prunes]
        if not usable:
            return everything
        condition = usable[0]
        for part in usable[1:]:
            condition &= part

        def survivors(index: int) -> NDArray[np.intp]:
            file = self._footers[index].file
            fragment = pads.ParquetFileFormat().make_fragment(file.path, self._filesystem)
            try:
                kept = {group.id for group in fragment.subset(condition, schema=self._file_schema).row_groups}
            except (OSError, pa.ArrowException):
                return everything[index]  # reading will tell what is wrong with it
            return np.array([g for g in everything[index] if int(g) in kept], np.intp)

        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(survivors, range(len(self._footers))))

    # --- executor ---

    def read(self, split: tuple[_Groups, ...], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        batches = (batch for groups in split for batch in self._read_file(groups, ctx))
        return batches if _has(self.schema, pa.types.is_dictionary) else _gather(batches, ctx)

    def _read_file(self, groups: _Groups, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        label = self._prefix + groups.path
        place = label
        try:
            with self._filesystem.open_input_file(groups.path) as stream:
                if stream.size() != groups.size:
                    raise FiresteelError(
                        f"{label} changed while the job was running.",
                        hint="Run the job again when nobody writes to it.",
                    )
                local = is_local(self._filesystem)
                with pq.ParquetFile(
                    stream,
                    pre_buffer=not local,
                    buffer_size=_PAGE_BUFFER if local else 0,
                    page_checksum_verification=True,
                ) as file:
                    for row_group in groups.row_groups:  # one at a time: what was read ahead is freed with it
                        ctx.place = place = f"{label}, row group {row_group}"
                        yield from self._read_row_group(file, row_group)
        except FileNotFoundError:
            raise FiresteelError(
                f"{label} was there when the job was planned and is gone now.",
                hint="Run the job again; on a cluster, check that every executor sees this path.",
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise FiresteelError(
                f"{place} cannot be read: {first_line(error)}.",
                hint="The file is damaged; write it again or leave it out.",
            ) from error

    def _read_row_group(self, file: Any, row_group: int) -> Iterator[pa.RecordBatch]:
        about = file.metadata.row_group(row_group)
        if not len(self.schema) and not self._conjuncts:
            yield from _rows_without_columns(about.num_rows)
            return
        rows = int(np.clip(_BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1), _LEAST_ROWS, _MOST_ROWS))
        wanted = self._columns_to_read()
        read_schema = pa.schema([self._file_schema.field(name) for name in wanted])
        for batch in file.iter_batches(batch_size=rows, row_groups=[row_group], columns=wanted, use_threads=False):
            for kept in _filter(_fit(batch, read_schema), self._conjuncts):
                yield _fit(kept, self.schema)

    def _columns_to_read(self) -> list[str]:
        """The columns of the schema, and what the filters look at besides."""
        return list(dict.fromkeys([*self.schema.names, *(name for part in self._conjuncts for name in part.columns)]))


def _rows_without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    for start in range(0, rows, _MOST_ROWS):
        yield pa.RecordBatch.from_struct_array(empty.slice(start, _MOST_ROWS))


def _gather(batches: Iterator[pa.RecordBatch], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
    """Neighbouring small batches as one: many small files would else cost every later step a call each."""
    held: list[pa.RecordBatch] = []
    first, rows, size = "", 0, 0
    for batch in batches:
        first = ctx.place if not held else first
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield _together(held, first, ctx)
            held, rows, size = [], 0, 0
    if held:
        yield _together(held, first, ctx)


def _together(held: list[pa.RecordBatch], first: str, ctx: TaskContext) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    ctx.place = ctx.place if ctx.place == first else f"{first} to {ctx.place}"
    return pa.concat_batches(held)


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's columns, in its order; types differ at most as :func:`_plain_type` makes them."""
    if batch.schema.equals(schema):
        return batch
    if not len(schema):
        return next(_rows_without_columns(batch.num_rows))
    columns = [batch.column(name) for name in schema.names]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- filters -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Condition:
    """A filter, the columns it looks at, and whether statistics tell the truth about it."""

    expression: pc.Expression
    columns: tuple[str, ...]
    prunes: bool


def _condition(expression: Any, schema: pa.Schema, name: str) -> _Condition:
    if not isinstance(expression, pc.Expression):
        what = type(expression).__name__
        raise UsageError(
            f"The filter of {name} is a {what}, not an expression.",
            hint='Write one with col and lit, e.g. col("n") > 3.',
        )
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"The filter {expression} does not fit {name}: {first_line(error)}.",
            hint=f"Its columns: {', '.join(schema.names)}.",
        ) from None
    columns = tuple(field.name for i, field in enumerate(schema) if not _binds(expression, schema.remove(i)))
    # NaNs are left out of a row group's minimum and maximum, so ~(x > 5) or x != 7 would drop row groups whose NaNs it keeps.
    prunes = not _has([schema.field(column) for column in columns], pa.types.is_floating)
    return _Condition(expression, columns, prunes)


def _binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        schema.empty_table().filter(expression)
    except pa.ArrowException:
        return False
    return True


def _filter(batch: pa.RecordBatch, conditions: tuple[_Condition, ...]) -> list[pa.RecordBatch]:
    """Rows for which all hold, in order. On this thread alone: the task has one core."""
    if not conditions:
        return [batch]

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    steps = [acero.Declaration("filter", acero.FilterNodeOptions(part.expression)) for part in conditions]
    kept = acero.Declaration.from_sequence([source, *steps]).to_table(use_threads=False)
    return [part for part in kept.combine_chunks().to_batches() if part.num_rows]


def _has(fields: Iterable[pa.Field], kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type of this kind is among the fields' types, or inside one."""
    for field in fields:
        data_type = field.type
        if kind(data_type):
            return True
        if pa.types.is_dictionary(data_type) and kind(data_type.value_type):
            return True
        if pa.types.is_nested(data_type) and _has([data_type.field(i) for i in range(data_type.num_fields)], kind):
            return True
    return False


# --- footers and schemas -------------------------------------------------------------------------------------


def _refuse_partitions(found: InputFiles) -> None:
    for file in found.files:
        inside = file.path[len(file.root) :].split("/")[:-1]
        if any("=" in part for part in inside):
            raise UsageError(
                f"{found.label(file.root)} is partitioned by directories ({'/'.join(p for p in inside if '=' in p)}), which read_parquet does not read yet.",
                hint="Read it with Spark: env.from_dataframe(spark.read.parquet(...)), or name the directories one by one.",
            )


def _read_footers(found: InputFiles) -> tuple[_Footer, ...]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(partial(_read_footer, found), found.files))


def _read_footer(found: InputFiles, file: InputFile) -> _Footer:
    label = found.label(file.path)
    try:
        with found.filesystem.open_input_file(file.path) as stream, pq.ParquetFile(stream) as opened:
            schema = opened.schema_arrow
            twice = [name for name, n in Counter(schema.names).items() if n > 1]
            if twice:
                raise UsageError(f"{label} has two columns '{twice[0]}'.", hint="Write it again with different names.")
            rows, sizes = _plain_column_bytes(opened.metadata, schema)
            return _Footer(file, schema, rows, sizes)
    except FileNotFoundError:
        raise UsageError(f"{label} was listed and is gone now.", hint="Run again when nobody writes there.") from None
    except (OSError, pa.ArrowException) as error:
        what = "is empty" if not file.size else "is truncated, damaged or not a Parquet file"
        raise UsageError(
            f"{label} {what} ({first_line(error)}).", hint="Write it again, or leave it out of the paths."
        ) from None


def _plain_column_bytes(metadata: Any, schema: pa.Schema) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows per row group, and an estimate of the bytes each top-level column takes in Arrow's form.

    A column chunk's uncompressed size is of encoded values, which dictionaries make small; a value takes at least
    its type's width (4 bytes of offset for what has no fixed width).
    """
    top = {name: i for i, name in enumerate(schema.names)}
    leaves = [_top_level(metadata.schema.column(i).path, top) for i in range(metadata.num_columns)]
    widths = [_width(schema.field(leaf).type) for leaf in leaves]
    rows = np.zeros(metadata.num_row_groups, np.int64)
    sizes = np.zeros((metadata.num_row_groups, len(schema)), np.int64)
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        rows[g] = group.num_rows
        for i, leaf in enumerate(leaves):
            chunk = group.column(i)
            sizes[g, leaf] += max(chunk.total_uncompressed_size, chunk.num_values * widths[i])
    return rows, sizes


def _top_level(path: str, top: dict[str, int]) -> int:
    """The column that a leaf ``a.list.element`` belongs to; names may have dots themselves, so the longest wins."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        index = top.get(".".join(parts[:end]))
        if index is not None:
            return index
    raise UsageError(f"The Parquet column '{path}' belongs to no column of the file's schema.")


def _width(data_type: pa.DataType) -> int:
    if pa.types.is_nested(data_type) or pa.types.is_null(data_type):
        return 1
    try:
        return max(1, data_type.bit_width // 8)
    except ValueError:
        return 4


def _one_schema(found: InputFiles, footers: tuple[_Footer, ...]) -> pa.Schema:
    first = footers[0]
    schema = _plain_schema(first.schema)
    for footer in footers[1:]:
        if footer.schema.equals(first.schema):
            continue
        other = _plain_schema(footer.schema)
        for name in [*schema.names, *(n for n in other.names if n not in schema.names)]:
            mine, theirs = schema.get_field_index(name), other.get_field_index(name)
            if mine >= 0 and theirs >= 0 and schema.field(mine).type.equals(other.field(theirs).type):
                continue
            said = [
                f"is {s.field(i).type}" if i >= 0 else "does not exist" for s, i in ((schema, mine), (other, theirs))
            ]
            raise UsageError(
                f"The files do not have one schema: column '{name}' {said[0]} in {found.label(first.file.path)} and {said[1]} in {found.label(footer.file.path)}.",
                hint="Read them as two sources, cast, and join them with union().",
            )
    return schema


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type))


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """Without metadata, everything nullable, at every depth (a map's keys stay as they must be); no views.

    Views are how a writer held values in memory, noted in the file by the way. pyarrow cannot filter, take or join them.
    """
    types = pa.types
    if types.is_struct(data_type):
        return pa.struct([_plain_field(data_type.field(i)) for i in range(data_type.num_fields)])
    if types.is_map(data_type):
        return pa.map_(_plain_type(data_type.key_type), _plain_type(data_type.item_type), data_type.keys_sorted)
    if types.is_fixed_size_list(data_type):
        return pa.list_(_plain_field(data_type.value_field), data_type.list_size)
    if types.is_large_list(data_type):
        return pa.large_list(_plain_field(data_type.value_field))
    if types.is_list(data_type):
        return pa.list_(_plain_field(data_type.value_field))
    return _PLAIN.get(data_type, data_type)


# --- sink ----------------------------------------------------------------------------------------------------


class ParquetSink(FileSink):
    """Writes a directory of Parquet files; with no rows at all, one file that has the schema.

    ``compression``: what pyarrow's Parquet writer takes (``"snappy"``, ``"zstd"``, ``"none"``, ...).
    """

    extension = "parquet"

    def __init__(
        self,
        path: PathLike,
        *,
        mode: str = "error",
        compression: str = "snappy",
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        super().__init__(path, mode=mode, filesystem=filesystem)
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([("a", pa.int8())]), compression=compression).close()
        except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException):
            raise UsageError(
                f"compression={compression!r} is not one that Parquet has here.",
                hint="Use snappy, zstd, gzip, lz4, brotli or none.",
            ) from None
        self._compression = compression

    def _check_schema(self, schema: pa.Schema) -> None:
        where = f"write_parquet to {self.target.label}"
        if not len(schema):
            raise UsageError(f"{where}: the stream has no columns, and Parquet needs at least one.")
        twice = [name for name, n in Counter(schema.names).items() if n > 1]
        if twice:
            raise UsageError(f"{where}: there are two columns '{twice[0]}'.", hint="Rename one with select.")
        for field in schema:
            try:
                probe = pa.table({"probe": pa.nulls(1, _loosened(field.type))})
                pq.write_table(probe, pa.BufferOutputStream(), compression="none")
            except (OSError, pa.ArrowException) as error:
                raise UsageError(
                    f"{where}: Parquet cannot hold column '{field.name}' of type {field.type} ({first_line(error)}).",
                    hint="Cast it to another type or drop it.",
                ) from None

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        return _ParquetPart(stream, schema, self._compression)


def _loosened(type_: pa.DataType) -> pa.DataType:
    """The type with all fields of its structs nullable, so that one null makes a row of it."""
    if not pa.types.is_struct(type_):
        return type_
    return pa.struct([field.with_type(_loosened(field.type)).with_nullable(True) for field in type_])


class _ParquetPart:
    """Gathers batches into row groups of about 32 MiB: one row group a batch would make files slow to read."""

    def __init__(self, stream: Any, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(_fit(batch, self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def discard(self) -> None:
        self._held = []
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # else it tries again when it is collected

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held, self._bytes = [], 0
