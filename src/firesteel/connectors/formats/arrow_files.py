"""Arrow IPC files: cut between record batches by what the footer says; streams, which have no footer, are read whole."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.connectors.base import Split
from firesteel.connectors.files.paths import InputFile, InputFiles, PathLike
from firesteel.connectors.files.reading.evolution import widened
from firesteel.connectors.files.reading.source import FooterSource, Piece, bad_footer, pack, piece_bytes, unreadable
from firesteel.connectors.files.shaping import gather, has_type
from firesteel.connectors.files.writing.part_files import GatheringPart, PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.errors import UsageError
from firesteel.humanize import check_once
from firesteel.task.program import TaskContext

_MAGIC = b"ARROW1"
_MOST_ROWS = 1 << 16
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("pad", "<i4"), ("body", "<i8")])


@dataclass(frozen=True, slots=True)
class _Batches:
    """Record batches ``first`` to ``last`` (excluded) of one file; ``last`` -1: a stream, all of it."""

    piece: Piece
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Footer:
    file: InputFile
    schema: pa.Schema
    sizes: NDArray[np.int64] | None
    """Plain bytes per record batch, estimated where they are compressed; None for a stream."""
    plain: float
    """Plain bytes for a stored one."""
    columns: tuple[int, ...]
    """Plain bytes of each column in the first batch, in this file's order."""

    def share(self, names: set[str]) -> float:
        """Returns the part of all bytes that these columns have (none of them: the one by which rows are counted), as in the first
        batch; 1 where that has none."""
        total = sum(self.columns)
        read = [size for name, size in zip(self.schema.names, self.columns, strict=False) if name in names]
        return sum(read or self.columns[:1]) / total if total else 1.0


class ArrowSource(FooterSource[_Footer]):
    """Rows of Arrow IPC files (the file format, ``.arrow`` or ``.feather``, or the stream format).

    Types are the files' own, without metadata, every column nullable. ``partitions`` as in
    :func:`~firesteel.connectors.files.partitions.find_partitions`, ``merge_schema`` and what files may differ in as in
    :class:`~firesteel.connectors.formats.parquet.ParquetSource`. Footers are read now, as its are.

    Raises UsageError for missing paths, empty globs, files that are damaged or no Arrow files, and mixed schemas.
    """

    kind = "read_arrow"

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        filesystem: Any = None,
        partitions: bool | pa.Schema = True,
        merge_schema: bool = False,
    ) -> None:
        super().__init__(paths, filesystem, partitions, merge_schema)

    @staticmethod
    def _footer_reader() -> Callable[[InputFiles, InputFile], _Footer]:
        return _read_footer

    def list_splits(self, data_volume: int) -> list[Split]:
        self._read_other_footers()
        items: list[_Batches] = []
        sizes: list[int] = []
        names = set(self._columns_to_read())
        for number in self._kept:
            footer, values = self._footers[number], self._values[number]
            share = footer.share(names)
            piece = Piece(footer.file.path, footer.file.size, 0, footer.file.size, values)
            if footer.sizes is None:
                items.append(_Batches(piece, 0, -1))
                sizes.append(max(1, round(footer.file.size * footer.plain * share)))
            else:
                items += [_Batches(piece, i, i + 1) for i in range(len(footer.sizes))]
                sizes += [max(1, round(size * share)) for size in footer.sizes.tolist()]
        splits: list[Split] = []
        for group, size in pack(items, sizes, piece_bytes(sum(sizes), data_volume)):
            runs = tuple(_runs(group))
            splits.append(Split(runs, size, self._words(runs)))
        return splits

    def _words(self, runs: tuple[_Batches, ...]) -> str:
        if len(runs) > 1:
            return self._describe([run.piece for run in runs])
        run = next(iter(runs))
        label = self._prefix + run.piece.path
        if run.last < 0:
            return label
        which = f"batch {run.first}" if run.last == run.first + 1 else f"batches {run.first}-{run.last - 1}"
        return f"{label}, record {which}"

    # --- executor ---

    def read(self, split: tuple[_Batches, ...], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        batches = (batch for run in split for batch in self._read_run(run, ctx))
        dictionaries = any(pa.types.is_dictionary(field.type) for field in self.schema)
        return batches if dictionaries else gather(batches, ctx)

    def _read_run(self, run: _Batches, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        ctx.place = self._words((run,))
        schema = pa.schema([self._file_schema.field(name) for name in self._columns_to_read()])
        try:
            with self._opened(run.piece) as file:
                for batch in self._batches(file, run, schema.names):
                    for start in range(0, batch.num_rows, _MOST_ROWS):
                        yield from self._finish(
                            widened(batch.slice(start, _MOST_ROWS), schema, ctx.place), run.piece.values
                        )
        except (OSError, pa.ArrowException) as error:
            raise unreadable(ctx.place, error, self.kind) from error

    @staticmethod
    def _batches(file: Any, run: _Batches, names: list[str]) -> Iterator[pa.RecordBatch]:
        with _reader(file) as whole:
            numbers = [whole.schema.get_field_index(name) for name in names]
        wanted = sorted(number for number in numbers if number >= 0) or [0]  # one column at least tells how many rows
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=wanted)
        with _reader(file, options) as reader:
            if run.last < 0:
                yield from reader
                return
            for number in range(run.first, run.last):
                yield reader.get_batch(number)


def _runs(items: list[_Batches]) -> Iterator[_Batches]:
    """Neighbouring batches of one file as one."""
    held = items[0]
    for item in items[1:]:
        if item.piece is held.piece and item.first == held.last:
            held = _Batches(held.piece, held.first, item.last)
        else:
            yield held
            held = item
    yield held


def _reader(file: Any, options: Any = None) -> Any:
    """A reader of the file format or the stream format, whichever the file is of."""
    is_file = file.read_at(len(_MAGIC), 0) == _MAGIC if file.size() >= len(_MAGIC) else False
    file.seek(0)
    return pa.ipc.open_file(file, options=options) if is_file else pa.ipc.open_stream(file, options=options)


# --- footers -------------------------------------------------------------------------------------------------


def _read_footer(found: InputFiles, file: InputFile) -> _Footer:
    label = found.label(file.path)
    try:
        with found.filesystem.open_input_file(file.path) as raw:
            is_file = file.size >= len(_MAGIC) and raw.read_at(len(_MAGIC), 0) == _MAGIC
            with _reader(raw, pa.ipc.IpcReadOptions(use_threads=False)) as reader:
                schema = reader.schema
                check_once(
                    schema.names, lambda twice: f"{label} has two columns '{twice}'.", "Write it again with others."
                )
                union = next((one.name for one in schema if has_type([one], pa.types.is_union)), None)
                if union is not None:
                    raise UsageError(
                        f"{label}: column '{union}' of type {schema.field(union).type} cannot be read, because steps have no unions.",
                        hint="Write the file again without it.",
                    )
                if not len(schema):
                    raise UsageError(f"{label} has no columns.", hint="Leave it out of the paths.")
                if not is_file:
                    before = raw.tell()
                    first = next(iter(reader), None)
                    return _Footer(file, schema, None, _ratio(first, raw.tell() - before), _column_bytes(first))
                stored = _stored_sizes(raw, file.size)
                first = reader.get_batch(0) if len(stored) else None
                plain = _ratio(first, int(stored[0]) if len(stored) else 0)
                return _Footer(file, schema, (stored * plain).astype(np.int64), plain, _column_bytes(first))
    except FileNotFoundError:
        raise UsageError(f"{label} was listed and is gone now.", hint="Run again when nothing writes there.") from None
    except (OSError, pa.ArrowException, struct.error, ValueError) as error:
        what = "is empty" if not file.size else "is truncated, damaged or not an Arrow IPC file"
        raise bad_footer(label, error, "read_arrow", what) from None


def _stored_sizes(raw: Any, size: int) -> NDArray[np.int64]:
    """Bytes of each record batch's body, from the footer (a flatbuffer, Arrow's ``File.fbs``: field 3 of ``Footer``)."""
    tail = 4 + len(_MAGIC)
    (length,) = struct.unpack("<i", raw.read_at(4, size - tail))
    footer = raw.read_at(length, size - tail - length)
    (table,) = struct.unpack_from("<I", footer, 0)
    (back,) = struct.unpack_from("<i", footer, table)
    vtable = table - back
    (vtable_size,) = struct.unpack_from("<H", footer, vtable)
    slot = 4 + 2 * 3
    (field,) = struct.unpack_from("<H", footer, vtable + slot) if vtable_size > slot else (0,)
    if not field:
        return np.zeros(0, np.int64)
    (vector,) = struct.unpack_from("<I", footer, table + field)
    begin = table + field + vector
    (count,) = struct.unpack_from("<I", footer, begin)
    return np.frombuffer(footer, _BLOCK, count, begin + 4)["body"].astype(np.int64)


def _ratio(first: pa.RecordBatch | None, stored: int) -> float:
    """The size of the first batch in memory over that in the file: more than 1 where buffers are compressed."""
    return 1.0 if first is None or stored <= 0 else max(1.0, first.nbytes / stored)


def _column_bytes(first: pa.RecordBatch | None) -> tuple[int, ...]:
    return () if first is None else tuple(column.nbytes for column in first.columns)


# --- sink ----------------------------------------------------------------------------------------------------


class ArrowSink(FileSink):
    """Writes a directory of Arrow IPC files (the file format). ``compression``: of the buffers, lz4, zstd or none."""

    kind = "write_arrow"
    extension = "arrow"
    chunk_bytes = 4 << 20

    def __init__(self, path: PathLike, *, compression: str | None = None, **options: Any) -> None:
        """``options``: those of :class:`~firesteel.connectors.files.writing.sinks.FileSink`."""
        super().__init__(path, **options)
        if compression not in (None, "none", "uncompressed", "lz4", "zstd"):
            raise UsageError(
                f"compression={compression!r} is not one that Arrow IPC has.", hint="Use lz4, zstd or none."
            )
        self._codec = compression if compression in ("lz4", "zstd") else None

    def _check_schema(self, schema: pa.Schema) -> None:
        where = f"write_arrow to {self.target.label}"
        if not len(schema):
            raise UsageError(f"{where}: the stream has no columns, and there is nothing to write.")
        check_once(schema.names, lambda twice: f"{where}: there are two columns '{twice}'.", "Rename one with select.")

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        return _ArrowPart(stream, schema, self._codec, self.chunk_bytes if self._layout.is_direct else 0)


class _ArrowPart(GatheringPart):
    """Dictionaries are written as their values: the file format has one dictionary a column, and batches may come with several."""

    def __init__(self, stream: Any, schema: pa.Schema, codec: str | None, enough: int) -> None:
        super().__init__(pa.schema([_decoded(field) for field in schema]), enough)
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._writer = pa.ipc.new_file(stream, self._schema, options=options)

    def _write_piece(self, batches: list[pa.RecordBatch]) -> None:
        self._writer.write_batch(pa.concat_batches(batches))

    def _end(self) -> None:
        self._writer.close()


def _decoded(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
