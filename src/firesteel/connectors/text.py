"""Text files, a line a row: split inside large files, packed where they are small, found vectorised.

A split owns the lines that *begin* in its byte range, as Hadoop's and Spark's do. Lines end with ``\\n``, ``\\r\\n`` or
``\\r``, as in Spark; the last one need not end; a UTF-8 byte order mark at the start of a file is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from firesteel.connectors.base import Split
from firesteel.connectors.files import FileSink, PartWriter
from firesteel.connectors.packing import pack, piece_bytes
from firesteel.connectors.paths import InputFiles, PathLike, find_files, first_line, short_name
from firesteel.errors import FiresteelError, UsageError
from firesteel.operators.program import TaskContext

_BLOCK = 1 << 20
_SCAN = 1 << 16
_MAX_ROWS = 1 << 16
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = re.compile(r"\.(gz|bz2|zst|zstd|lz4|snappy|xz|br|zip|deflate|Z|7z)$", re.IGNORECASE)
_ERRORS = ("replace", "strict", "ignore")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes ``start`` to ``end`` of a file that was ``size`` bytes long when it was listed."""

    path: str
    size: int
    start: int
    end: int


class TextSource:
    """Lines of text files.

    ``paths``: a path, glob, directory, ``pyarrow.fs`` URL, or a list of these. The column ``value`` holds the lines without
    their ends. With ``path_column`` a second column of that name holds the file each line is from. ``errors`` is what
    happens to bytes that are not UTF-8: ``"replace"`` (by U+FFFD), ``"ignore"`` (drop them), ``"strict"`` (fail the job).

    Files are listed now; raises UsageError for missing paths, empty globs and compressed files.
    """

    supports_concurrent_execution_attempts = True

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        path_column: str | None = None,
        errors: str = "replace",
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        if errors not in _ERRORS:
            raise UsageError(
                f"errors={errors!r} is not a way to treat bytes that are not UTF-8.",
                hint=f"Use one of {', '.join(_ERRORS)}.",
            )
        if path_column == "value":
            raise UsageError("path_column='value' is the name of the column of lines.", hint="Choose another name.")
        paths = [paths] if isinstance(paths, str) or not isinstance(paths, Iterable) else list(paths)
        found = find_files(paths, filesystem)
        for file in found.files:
            if _COMPRESSED.search(file.path):
                raise UsageError(
                    f"{found.label(file.path)} is compressed, which read_text does not read yet.",
                    hint="Decompress it, or read it with Spark: env.from_dataframe(spark.read.text(...)).",
                )
        self.name = f"read_text {short_name(paths)}"
        self.schema = pa.schema([("value", pa.string())] + ([(path_column, pa.string())] if path_column else []))
        self._path_column = path_column
        self._errors = errors
        self._files: InputFiles | None = found
        self._filesystem = found.filesystem
        self._prefix = found.prefix

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}  # the splits tell executors which files; the listing may be long

    def list_splits(self, data_volume: int) -> list[Split]:
        assert self._files is not None, "list_splits is called on the driver"
        files = [file for file in self._files.files if file.size]
        target = piece_bytes(sum(file.size for file in files), data_volume)
        pieces: list[_Piece] = []
        for file in files:
            count = -(-file.size // target)
            bounds = [file.size * i // count for i in range(count + 1)]
            pieces += [_Piece(file.path, file.size, a, b) for a, b in pairwise(bounds)]
        groups = pack(pieces, [piece.end - piece.start for piece in pieces], target)
        return [Split(tuple(group), sum(p.end - p.start for p in group), self._describe(group)) for group in groups]

    def read(self, split: tuple[_Piece, ...], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        pending: list[tuple[str, bytes]] = []
        pieces: list[_Piece] = []
        size = 0
        for piece in split:
            pieces.append(piece)
            for block in self._blocks(piece):
                pending.append((piece.path, block))
                size += len(block)
                if size >= _BLOCK:
                    ctx.place = self._describe(pieces)
                    yield from self._batches(pending)
                    pending, pieces, size = [], [piece], 0
        ctx.place = self._describe(pieces)
        yield from self._batches(pending)

    def _describe(self, pieces: Sequence[_Piece]) -> str:
        first, last = pieces[0], pieces[-1]
        label = self._prefix + first.path
        if len(pieces) > 1:
            return f"{label} to {self._prefix + last.path} ({len(pieces)} files)"
        return label if (first.start, first.end) == (0, first.size) else f"{label}, bytes {first.start}-{first.end}"

    def _blocks(self, piece: _Piece) -> Iterator[bytes]:
        """The piece's own lines as blocks of whole lines, about a MiB each, every line ended by ``\\n`` alone."""
        label = self._prefix + piece.path
        try:
            with self._filesystem.open_input_file(piece.path) as file:
                if file.size() < piece.size:
                    raise FiresteelError(
                        f"{label} became shorter while the job was running.",
                        hint="Run the job again when nobody writes to it.",
                    )
                yield from _read_lines(file, piece)
        except FileNotFoundError:
            raise FiresteelError(
                f"{label} was there when the job was planned and is gone now.",
                hint="Run the job again; on a cluster, check that every executor sees this path.",
            ) from None
        except OSError as error:
            raise FiresteelError(f"{label} cannot be read: {first_line(error)}.") from error

    def _batches(self, blocks: list[tuple[str, bytes]]) -> Iterator[pa.RecordBatch]:
        if not blocks:
            return
        data = blocks[0][1] if len(blocks) == 1 else b"".join(block for _, block in blocks)
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                if self._errors == "strict":
                    raise self._not_utf8(blocks, error.start) from None
                blocks = [(path, block.decode(errors=self._errors).encode()) for path, block in blocks]
                data = b"".join(block for _, block in blocks)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        columns = [_lines(data, ends)]
        if self._path_column is not None:
            counts = np.diff(np.searchsorted(ends, np.cumsum([0, *(len(block) for _, block in blocks)])))
            names = pa.array([self._prefix + path for path, _ in blocks], pa.string())
            columns.append(names.take(pa.array(np.repeat(np.arange(len(blocks)), counts))))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        for start in range(0, batch.num_rows, _MAX_ROWS):
            yield batch.slice(start, _MAX_ROWS)

    def _not_utf8(self, blocks: list[tuple[str, bytes]], position: int) -> FiresteelError:
        for path, block in blocks:
            if position < len(block):
                line = block[block.rfind(b"\n", 0, position) + 1 :].split(b"\n", 1)[0][:80]
                return FiresteelError(
                    f"{self._prefix + path} has bytes that are not UTF-8, in the line {line!r}.",
                    hint="Read it with errors='replace', or convert the file.",
                )
            position -= len(block)
        raise AssertionError("the position lies in one of the blocks")


def _lines(data: bytes, ends: np.ndarray[Any, Any]) -> pa.Array:
    """A string array of the lines of ``data``, which end at ``ends``: the same bytes less the ends."""
    if len(data) - len(ends) > 0x7FFFFFFF:
        raise FiresteelError("A line of text is longer than 2 GiB, which does not fit into one value.")
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b"")))


def _read_lines(file: Any, piece: _Piece) -> Iterator[bytes]:
    begin = _line_begin(file, piece.start, piece.end, piece.size)
    if begin is None:
        return
    end = _line_begin(file, piece.end, piece.size, piece.size)
    end = piece.size if end is None else end
    rest: list[bytes] = []
    while begin < end:
        block = file.read_at(min(_BLOCK, end - begin), begin)
        if not block:
            raise FiresteelError(f"{piece.path} became shorter while it was read.", hint="Run the job again.")
        if begin == 0 and block.startswith(_BOM):
            begin, block = 3, block[3:]
            if begin == end:
                return
        begin += len(block)
        cut = _last_line_end(block) if begin < end else len(block)
        if not cut:  # a line longer than a block
            rest.append(block)
            continue
        yield _with_plain_ends(b"".join([*rest, block[:cut]]) if rest else block if cut == len(block) else block[:cut])
        rest = [block[cut:]] if cut < len(block) else []


def _line_begin(file: Any, position: int, bound: int, size: int) -> int | None:
    """Where the first line begins at or after ``position``; None if not before ``bound`` (or the end of the file)."""
    if position == 0:
        return 0
    at = position - 1  # the end of the line before may be the very byte in front
    while at < bound:
        block = file.read_at(min(_SCAN, size - at), at)
        if not block:
            return None
        ends = [i for i in (block.find(b"\n"), block.find(b"\r")) if i >= 0]
        if ends:
            at += min(ends)
            after = file.read_at(2, at) if min(ends) + 1 == len(block) else block[min(ends) : min(ends) + 2]
            begin = at + (2 if after == b"\r\n" else 1)
            return begin if begin < bound else None
        at += len(block)
    return None


def _last_line_end(block: bytes) -> int:
    """Bytes up to the end of the last line that surely ends in the block (a final ``\\r`` may be half a ``\\r\\n``)."""
    newline = block.rfind(b"\n")
    return max(newline, block.rfind(b"\r", newline + 1, len(block) - 1)) + 1


def _with_plain_ends(data: bytes) -> bytes:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if data.endswith(b"\n") else data + b"\n"


class TextSink(FileSink):
    """Writes a stream of one string column as text files, a line a row; nulls become empty lines, as in Spark.

    A value that holds line ends itself will be several lines when read again.
    """

    extension = "txt"

    def _check_schema(self, schema: pa.Schema) -> None:
        check_text_schema(schema, self.target.label)

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        return _TextWriter(stream)


def check_text_schema(schema: pa.Schema, target: str) -> None:
    """Raises UsageError unless there is one column of strings."""
    if len(schema) != 1 or not _is_text(schema.field(0).type):
        columns = ", ".join(f"{field.name} {field.type}" for field in schema) or "none"
        raise UsageError(
            f"write_text to {target} needs exactly one column of strings; the stream has: {columns}.",
            hint="Select one column, or write Parquet.",
        )


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(data_type):
        data_type = data_type.value_type
    return types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type)


class _TextWriter:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        values = batch.column(0)
        if not pa.types.is_large_string(values.type):
            values = values.cast(pa.large_string())
        lines = pc.call_function(
            "binary_join_element_wise",
            [values.fill_null(""), pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())],
        )
        offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
        self._stream.write(lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))

    def close(self) -> None:
        pass

    def discard(self) -> None:
        pass
