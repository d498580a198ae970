"""One attempt's files: rows to files by partition and by size, a bounded number of them open, memory bounded.

Rows that are partitioned are held until there are 64 MiB of them, put in order by partition and written, each partition to
its file; others are held only where files have a largest size. When more files would be open than ``Layout.max_open_files``, the one
that was written to longest ago is closed; more rows of its partition begin another file. So input that comes in no order
of its many partitions makes many small files: let ``key_by`` the partition columns come before.
"""

from __future__ import annotations

import math
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from firesteel.connectors.files.partitions import escape, exact_names, format_values
from firesteel.connectors.files.paths import Location, is_local
from firesteel.connectors.files.shaping import fit
from firesteel.connectors.files.writing.in_place import storage_errors
from firesteel.engine.hashes import bucket_numbers
from firesteel.errors import FiresteelError
from firesteel.results.plain import decoded_bytes
from firesteel.task.program import Batches, TaskContext

_PARTITIONED_CHUNK = 64 << 20
_LEAST_CHUNK, _LEAST_EVEN = 64 << 10, 8 << 10
_CHUNKS_A_FILE = 8
LONGEST_NAME = 255
"""Bytes of a directory's name on the file systems that there are."""


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file in the staging directory: ``name`` there, and ``folder`` (``"a=1/b=x"`` or empty) and ``number`` in the output.

    ``number`` counts the files of one attempt in one folder, or of one ``bucket`` there.
    """

    name: str
    folder: str
    number: int
    rows: int
    bytes: int
    bucket: int | None = None


@dataclass(frozen=True, slots=True)
class FileCommit:
    """Commit message of one attempt: what it wrote. No files: it had no rows."""

    subtask: int
    files: tuple[PartFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def name(self) -> str | None:
        """The first file's name; None where there is none."""
        return self.files[0].name if self.files else None


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a sink's files. ``max_file_size``: bytes a file may have, about; None: no bound. ``file_size``: about so many it
    should have, where the rows of a partition are enough.

    ``codec``: of the whole file, None where it is plain or its format compresses by itself.
    """

    extension: str
    chunk_bytes: int
    partition_by: tuple[str, ...] = ()
    max_file_size: int | None = None
    max_open_files: int = 64
    codec: str | None = None
    file_size: int | None = None
    keeps_columns: bool = False
    """The columns of ``partition_by`` are in the files, too, each of which has one value of each."""
    bucket: str | None = None
    """The column of the number of the bucket, which is in the files' names only."""

    @property
    def parting(self) -> tuple[str, ...]:
        """Columns, of whose values each file has one."""
        return self.partition_by if self.bucket is None else (*self.partition_by, self.bucket)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are not in the files."""
        return () if self.keeps_columns else self.parting

    @property
    def is_direct(self) -> bool:
        """True if each batch goes right to the one file."""
        return not self.parting and self.most_bytes is None

    @property
    def most_bytes(self) -> int | None:
        """Bytes that a file has at most, about, where nobody knows what is to come: of twice the size that it should have two are made."""
        sizes = [size for size in (self.max_file_size, self.file_size and 2 * self.file_size) if size is not None]
        return min(sizes, default=None)

    @property
    def write_bytes(self) -> int:
        """Bytes of rows that are written to a file at once, where there may be several."""
        if self.most_bytes is None:
            return self.chunk_bytes
        if self.file_size is not None:
            return min(self.chunk_bytes, max(min(self.file_size, self.most_bytes) // _CHUNKS_A_FILE, _LEAST_EVEN))
        return min(self.chunk_bytes, max(self.most_bytes // _CHUNKS_A_FILE, _LEAST_CHUNK))

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that are held before they are written."""
        if self.is_direct:
            return 0
        return max(_PARTITIONED_CHUNK, self.chunk_bytes) if self.parting else self.write_bytes


class PartWriter:
    """Turns batches into the bytes of one file. The stream stays open."""

    def write(self, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Writes what is still held."""

    def discard(self) -> None:
        """Gives up on what is held, without raising."""


class GatheringPart(PartWriter):
    """A file that is written in pieces of about ``enough`` bytes, whatever batches come: one piece a batch would make it slow
    to read. What a piece is, and how the file ends, subclasses say."""

    def __init__(self, schema: pa.Schema, enough: int) -> None:
        self._schema = schema
        self._enough = enough
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(fit(batch, self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= self._enough:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._end()

    def discard(self) -> None:
        self._held = []

    def _flush(self) -> None:
        if self._held:
            self._write_piece(self._held)
        self._held, self._bytes = [], 0

    def _write_piece(self, batches: list[pa.RecordBatch]) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


NewWriter = Callable[[Any, pa.Schema], PartWriter]
Part = tuple[str, int | None]
"""A folder, and a bucket in it."""


class _Open:
    """A file that is being written."""

    def __init__(self, place: Location, layout: Layout, schema: pa.Schema, new_writer: NewWriter) -> None:
        self.place = place
        self.rows = 0
        self.last = 0
        """Bytes that the last write added."""
        self._raw: Any = place.filesystem.open_output_stream(place.path, compression=None)
        self._stream: Any = self._raw
        self._part: PartWriter | None = None
        try:
            if layout.codec is not None:
                self._stream = pa.CompressedOutputStream(self._raw, layout.codec)
            self._part = new_writer(self._stream, schema)
        except BaseException:
            self.discard()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        assert self._part is not None
        before = self._raw.tell()
        self._part.write(batch)
        self.rows += batch.num_rows
        self.last = max(self._raw.tell() - before, 0)

    @property
    def bytes(self) -> int:
        """As far as they are written."""
        return int(self._raw.tell())

    def is_full(self, limit: float | None) -> bool:
        return limit is not None and self.rows > 0 and self.bytes + self.last > limit

    def close(self) -> int:
        """Bytes of the file."""
        assert self._part is not None
        self._part.close()
        if self._stream is not self._raw:
            self._stream.flush()
            self._finish_stream()
            size = self.place.filesystem.get_file_info(self.place.path).size
            return int(size)
        size = self._raw.tell()
        self._raw.close()
        return int(size)

    def _finish_stream(self) -> None:
        self._stream.close()  # closes what is under it too
        if not self._raw.closed:
            self._raw.close()

    def discard(self) -> None:
        steps: list[Callable[[], Any]] = [] if self._part is None else [self._part.discard]
        for step in (*steps, self._stream.close, self._raw.close):
            with suppress(OSError, pa.ArrowException):
                step()


class FileWriter:
    """Writes one attempt's files, each made with its first row. ``finish`` returns a :class:`FileCommit`."""

    def __init__(
        self, folder: Location, who: tuple[int, int], schema: pa.Schema, layout: Layout, new_writer: NewWriter
    ) -> None:
        """``who``: subtask and attempt."""
        self._folder = folder
        self._subtask, self._attempt = who
        self._schema = schema
        self._file_schema = pa.schema([f for f in schema if f.name not in layout.left_out])
        self._layout = layout
        self._new_writer = new_writer
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._open: OrderedDict[Part, _Open] = OrderedDict()
        self._counts: dict[Part, int] = {}
        self._numbers: dict[Part, int] = {}
        self._made: list[Location] = []
        self._files: list[PartFile] = []
        self._share = Share(layout.file_size)

    @property
    def expects(self) -> bool:
        """It should be told of the rows that are to come."""
        return self._layout.file_size is not None

    def expect(self, nbytes: int) -> None:
        """``nbytes``: plain ones, of all that it will get."""
        self._share.expected = nbytes

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._share.came(batch)
        self._held.append(fit(batch, self._schema))
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._layout.held_bytes:
            self._flush()

    def open(self) -> None:
        """Makes a file though there are no rows."""
        self._opened(("", None if self._layout.bucket is None else 0))

    def finish(self) -> FileCommit:
        self._flush()
        for part in list(self._open):
            self._close(part)
        files = sorted(self._files, key=lambda file: (file.folder, file.bucket or 0, file.number))
        return FileCommit(self._subtask, tuple(files))

    def abort(self) -> None:
        """Removes all that was written. Raises nothing."""
        self._held, self._held_bytes = [], 0
        for part in self._open.values():
            part.discard()
        self._open.clear()
        for place in self._made:
            with suppress(OSError, pa.ArrowException):
                place.filesystem.delete_file(place.path)

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        rows = held[0] if len(held) == 1 else pa.concat_batches(held)
        for part, batch in self._parted(rows) if self._layout.parting else [(("", None), rows)]:
            self._add(part, batch)

    def _parted(self, batch: pa.RecordBatch) -> Iterator[tuple[Part, pa.RecordBatch]]:
        """The rows of each partition and bucket, in order; those whose files are open first."""
        codes = np.zeros(batch.num_rows, np.int64)
        for name in self._layout.parting:
            column = batch.column(name)
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        first = batch.take(pa.array(order[starts])) if len(starts) < batch.num_rows else batch.take(pa.array(order))
        parts = self._parts(first)
        rest = batch.select(self._file_schema.names)
        rest = rest if len(starts) == 1 else rest.take(pa.array(order))
        ends = [*starts[1:].tolist(), batch.num_rows]
        spans: dict[Part, list[tuple[int, int]]] = {}  # several where two values have one name, null and ""
        for part, start, end in zip(parts, starts.tolist(), ends, strict=True):
            spans.setdefault(part, []).append((start, end - start))
        opened = [part for part in self._open if part in spans]
        for part in [*opened, *sorted(spans.keys() - set(opened))]:
            for start, rows in spans[part]:
                yield part, rest.slice(start, rows)

    def _parts(self, rows: pa.RecordBatch) -> list[Part]:
        """Folder and bucket of each row."""
        bucket = self._layout.bucket
        folders = self._folders(rows) if self._layout.partition_by else [""] * rows.num_rows
        buckets: list[int | None] = [None] * rows.num_rows if bucket is None else rows.column(bucket).to_pylist()
        return list(zip(folders, buckets, strict=True))

    def _folders(self, rows: pa.RecordBatch) -> list[str]:
        """The directory of each row."""
        named = exact_names if self._layout.keeps_columns else format_values
        texts = [named(rows.column(name)) for name in self._layout.partition_by]
        parts: list[list[str]] = []
        for column, values in zip(self._layout.partition_by, texts, strict=True):
            name = escape(column)
            parts.append([f"{name}={value}" for value in values])
            if self._layout.keeps_columns or is_local(self._folder.filesystem):
                _check_lengths(column, parts[-1])
        return ["/".join(row) for row in zip(*parts, strict=True)]

    def _add(self, group: Part, batch: pa.RecordBatch) -> None:
        rows = batch.num_rows
        if self._layout.most_bytes is not None:
            rows = max(1, batch.num_rows * self._layout.write_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            part = self._open.get(group)
            if part is not None and part.is_full(self._limit(part)):
                self._close(group)
            part = self._opened(group)
            piece = batch.slice(start, rows)
            with storage_errors(part.place.label):
                part.write(piece)
            self._share.wrote(piece.num_rows, part.last)

    def _limit(self, part: _Open) -> float | None:
        """Bytes that a file may have."""
        even = self._share.limit(part.bytes, part.last) if len(self._counts) == 1 else None
        if even is None:
            return self._layout.most_bytes
        return even if self._layout.max_file_size is None else min(even, self._layout.max_file_size)

    def _opened(self, group: Part) -> _Open:
        if group in self._open:
            self._open.move_to_end(group)
            return self._open[group]
        while len(self._open) >= self._layout.max_open_files:
            self._close(next(iter(self._open)))
        name = f"part-{self._subtask:05d}-{self._attempt}-{uuid.uuid4().hex[:12]}.{self._layout.extension}"
        place = self._folder.at(f"{self._folder.path}/{name}")
        self._made.append(place)
        with storage_errors(place.label):
            part = _Open(place, self._layout, self._file_schema, self._new_writer)
        self._open[group] = part
        self._numbers[group] = self._counts.get(group, 0)
        self._counts[group] = self._numbers[group] + 1
        return part

    def _close(self, group: Part) -> None:
        part = self._open[group]
        with storage_errors(part.place.label):
            size = part.close()
        del self._open[group]
        name, (folder, bucket) = part.place.path.rsplit("/", 1)[-1], group
        self._files.append(PartFile(name, folder, self._numbers[group], part.rows, size, bucket))


def _check_lengths(column: str, names: list[str]) -> None:
    """Raises FiresteelError for a name that no directory of a disk can have."""
    longest = max(names, key=len)
    if len(longest.encode()) > LONGEST_NAME:
        raise FiresteelError(
            f"A value of the column '{column}' is too long for a directory's name: '{longest[:60]}...' has "
            f"{len(longest.encode())} bytes, and {LONGEST_NAME} are allowed.",
            hint="Partition by a column with shorter values.",
        )


def encoded_bytes(batches: Sequence[pa.RecordBatch], schema: pa.Schema, layout: Layout, new_writer: NewWriter) -> int:
    """Bytes that these rows (at least one batch) add to a file that has some. Raises OSError, pa.ArrowException, FiresteelError."""
    kept = pa.schema([field for field in schema if field.name not in layout.left_out])
    rows = pa.concat_batches([fit(batch, schema).select(kept.names) for batch in batches])
    return _file_bytes([rows], kept, layout, new_writer) - _file_bytes([], kept, layout, new_writer)


def _file_bytes(batches: list[pa.RecordBatch], schema: pa.Schema, layout: Layout, new_writer: NewWriter) -> int:
    raw: Any = pa.BufferOutputStream()
    stream: Any = raw if layout.codec is None else pa.CompressedOutputStream(raw, layout.codec)
    part = new_writer(stream, schema)
    for batch in batches:
        part.write(batch)
    part.close()
    if stream is not raw:
        stream.flush()
    return int(raw.tell())


class NoWriter:
    """Drops all rows: the output exists already and shall stay as it is (``mode="ignore"``)."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def write(self, batch: pa.RecordBatch) -> None:
        pass

    def finish(self) -> FileCommit:
        return FileCommit(self._subtask, ())

    def abort(self) -> None:
        pass


class Share:
    """Counts what one writer was given and has written, so that its files get about the same size. Only what is written shows how large rows become.

    ``size``: bytes that a file should have; None: no size was asked for.
    """

    def __init__(self, size: int | None) -> None:
        self._size = size
        self.expected = 0
        """Plain bytes of all rows; 0: not known."""
        self._rows = self._plain = 0
        self._rows_written = self._bytes_written = 0

    def came(self, batch: pa.RecordBatch) -> None:
        if self.expected:
            self._rows += batch.num_rows
            self._plain += decoded_bytes(batch)

    def wrote(self, rows: int, nbytes: int) -> None:
        self._rows_written += rows
        self._bytes_written += nbytes

    def limit(self, written: int, last: int) -> float | None:
        """Bytes that a file of which ``written`` are there may have, so that it and those that follow have about as many: infinite where all rows
        that are left are one file. ``last``: bytes of a write. None: not known."""
        if self._size is None or not self._rows or not self._bytes_written:
            return None
        left = max(self.expected * self._rows / max(self._plain, 1) - self._rows_written, 0)
        whole = written + left * self._bytes_written / self._rows_written
        files = round(whole / self._size)
        return whole / files + last / 2 if files > 1 else math.inf  # the nearer of before and behind the next write


NOTE = b"firesteel.buckets"
"""The key under which a Parquet file says how the rows of its folder are bucketed."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """``count`` buckets by ``columns``. ``number``: the column that says in which a row lies; it is not written."""

    count: int
    columns: tuple[str, ...]
    sort_by: tuple[str, ...]
    number: str

    @property
    def words(self) -> str:
        return f"{self.count} by {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class BucketNumbers:
    """Adds the number of the bucket to each row, as the last column of ``schema``."""

    name: str
    columns: tuple[str, ...]
    count: int
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            numbers = bucket_numbers([batch.column(name) for name in self.columns], batch.num_rows, self.count)
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=self.schema)
