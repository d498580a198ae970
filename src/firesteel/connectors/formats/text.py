"""Text files, a line a row: split inside large files (see ``lines``), packed where they are small, found vectorised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Split
from firesteel.connectors.files.compression import codec_option, refuse_other_codecs
from firesteel.connectors.files.paths import PathLike
from firesteel.connectors.files.reading import lines
from firesteel.connectors.files.reading.lines import with_plain_ends
from firesteel.connectors.files.reading.source import FileSource, Piece
from firesteel.connectors.files.writing.part_files import PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.errors import FiresteelError, UsageError
from firesteel.task.program import TaskContext

_MAX_ROWS = 1 << 16
_ERRORS = ("replace", "strict", "ignore")


class TextSource(FileSource):
    """Lines of text files.

    ``paths``: a path, glob, directory, ``pyarrow.fs`` URL, or a list of these. The column ``value`` holds the lines without
    their ends. With ``path_column`` a second column of that name holds the file each line is from. ``errors`` is what
    happens to bytes that are not UTF-8: ``"replace"`` (by U+FFFD), ``"ignore"`` (drop them), ``"strict"`` (fail the job).
    ``compression``: of all files; None: by their endings. ``partitions``: as in
    :func:`~firesteel.connectors.files.partitions.find_partitions`.

    Files are listed now; raises UsageError for missing paths and empty globs.
    """

    kind = "read_text"

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        path_column: str | None = None,
        errors: str = "replace",
        compression: str | None = None,
        filesystem: Any = None,
        partitions: bool | pa.Schema = True,
    ) -> None:
        if errors not in _ERRORS:
            raise UsageError(
                f"errors={errors!r} is not a way to treat bytes that are not UTF-8.",
                hint=f"Use one of {', '.join(_ERRORS)}.",
            )
        if path_column == "value":
            raise UsageError("path_column='value' is the name of the column of lines.", hint="Choose another name.")
        self._compression = codec_option(compression, "read_text", infer=True)
        found, _ = self._find(paths, filesystem, partitions)
        refuse_other_codecs(found, self._compression, "read_text")
        self._path_column = path_column
        self._errors = errors
        self._have(pa.schema([("value", pa.string())] + ([(path_column, pa.string())] if path_column else [])))

    def list_splits(self, data_volume: int) -> list[Split]:
        return self._list_pieces(data_volume, self._compression, whole=False)

    def read(self, split: tuple[Piece, ...], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        pending: list[tuple[Piece, bytes]] = []
        pieces: list[Piece] = []
        size = 0
        for piece in split:
            pieces.append(piece)
            for _, block in self._open_blocks(piece, self._compression):
                pending.append((piece, with_plain_ends(block)))
                size += len(block)
                if size >= lines.BLOCK:
                    ctx.place = self._describe(pieces)
                    yield from self._batches(pending)
                    pending, pieces, size = [], [piece], 0
        ctx.place = self._describe(pieces)
        yield from self._batches(pending)

    def _batches(self, blocks: list[tuple[Piece, bytes]]) -> Iterator[pa.RecordBatch]:
        if not blocks:
            return
        data = blocks[0][1] if len(blocks) == 1 else b"".join(block for _, block in blocks)
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                if self._errors == "strict":
                    raise self._not_utf8(blocks, error.start) from None
                blocks = [(piece, block.decode(errors=self._errors).encode()) for piece, block in blocks]
                data = b"".join(block for _, block in blocks)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        columns = {"value": lines_of(data, ends)}
        if len(self._all_schema) > 1:
            counts = np.diff(np.searchsorted(ends, np.cumsum([0, *(len(block) for _, block in blocks)])))
            columns.update(self._repeated([piece for piece, _ in blocks], counts))
        batch = pa.RecordBatch.from_arrays([columns[n] for n in self._all_schema.names], schema=self._all_schema)
        for start in range(0, batch.num_rows, _MAX_ROWS):
            yield from self._shaped(batch.slice(start, _MAX_ROWS))

    def _repeated(self, pieces: list[Piece], counts: Any) -> dict[str, pa.Array]:
        """The columns that are the same for all lines of a file, as often as each file has lines here."""
        which = pa.array(np.repeat(np.arange(len(pieces)), counts))
        columns: dict[str, pa.Array] = {}
        if self._path_column is not None:
            names = pa.array([self._prefix + piece.path for piece in pieces], pa.string())
            columns[self._path_column] = names.take(which)
        if self._partitions is not None:
            table = self._partitions.table([piece.values for piece in pieces]).combine_chunks()
            columns.update({n: table.column(n).combine_chunks().take(which) for n in table.column_names})
        return columns

    def _not_utf8(self, blocks: list[tuple[Piece, bytes]], position: int) -> FiresteelError:
        for piece, block in blocks:
            if position < len(block):
                line = block[block.rfind(b"\n", 0, position) + 1 :].split(b"\n", 1)[0][:80]
                return FiresteelError(
                    f"{self._prefix + piece.path} has bytes that are not UTF-8, in the line {line!r}.",
                    hint="Read it with errors='replace', or convert the file.",
                )
            position -= len(block)
        raise AssertionError("the position lies in one of the blocks")


def lines_of(data: bytes, ends: np.ndarray[Any, Any]) -> pa.Array:
    """A string array of the lines of ``data``, which end at ``ends``: the same bytes less the ends."""
    if len(data) - len(ends) > 0x7FFFFFFF:
        raise FiresteelError("A line of text is longer than 2 GiB, which does not fit into one value.")
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b"")))


class TextSink(FileSink):
    """Writes a stream of one string column as text files, a line a row; nulls become empty lines, as in Spark.

    A value that holds line ends itself will be several lines when read again.
    """

    kind = "write_text"
    extension = "txt"

    def __init__(self, path: PathLike, *, compression: str | None = None, **options: Any) -> None:
        """``compression``: of the files, gzip, bz2, zstd or lz4; ``options``: those of
        :class:`~firesteel.connectors.files.writing.sinks.FileSink`."""
        super().__init__(path, **options)
        self._compress(codec_option(compression, "write_text", infer=False))

    def _check_schema(self, schema: pa.Schema) -> None:
        check_text_schema(schema, self.target.label)

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        return LinesPart(stream, _texts)


def _texts(batch: pa.RecordBatch) -> Any:
    return batch.column(0).cast(pa.large_string()).fill_null("")


def check_text_schema(schema: pa.Schema, target: str) -> None:
    """Raises UsageError unless there is one column of strings."""
    if len(schema) != 1 or not _is_text(schema.field(0).type):
        columns = ", ".join(f"{field.name} {field.type}" for field in schema) or "none"
        raise UsageError(
            f"write_text to {target} needs exactly one column of strings; the stream has: {columns}.",
            hint="Select one column, or write Parquet.",
        )


class LinesPart(PartWriter):
    """``texts``: the lines of a batch, as large strings of which none is null."""

    def __init__(self, stream: Any, texts: Callable[[pa.RecordBatch], Any]) -> None:
        self._stream, self._texts = stream, texts

    def write(self, batch: pa.RecordBatch) -> None:
        end = pa.scalar("\n", pa.large_string())
        lines = pc.call_function(
            "binary_join_element_wise", [self._texts(batch), pa.scalar("", pa.large_string()), end]
        )
        offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
        self._stream.write(lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(data_type):
        data_type = data_type.value_type
    return types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type)
