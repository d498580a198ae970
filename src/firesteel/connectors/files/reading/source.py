"""Parts that all sources of files share: columns and filters pushed down, partition columns, files read whole or cut at line ends.

A format says what columns its files have, how they are cut, and how a piece becomes batches; the rest is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from time import perf_counter, thread_time
from typing import Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Split
from firesteel.connectors.files.compression import codec_of, damaged, plain_sizes, plain_stream, refuse_foreign
from firesteel.connectors.files.partitions import Partitions, Values, find_partitions
from firesteel.connectors.files.paths import (
    DatasetName,
    InputFile,
    InputFiles,
    Location,
    PathLike,
    as_filesystem,
    datasets_of,
    find_files,
    first_line,
    is_local,
    short_name,
)
from firesteel.connectors.files.reading.evolution import check_merge_schema, merged_schema
from firesteel.connectors.files.reading.lines import BLOCK, count_lines, line_blocks, stream_blocks
from firesteel.connectors.files.shaping import Condition, condition, filter_batch, fit, gather, one_schema
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import first_of, format_count
from firesteel.task.program import TaskContext

_T = TypeVar("_T")
_READ_BLOCK = 4 << 20
"""Bytes read at a time where lines are counted."""
_THREADS = 16
"""Files that are looked at at a time, where each waits for the storage."""
_WORKING_THREADS = 2
"""The same where they do not: more would wait for one another, and spend on that twice the time that they work."""
_FEW = 4
"""Files that are looked at first, to see whether it waits."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``start`` to ``end`` of a file that was ``size`` bytes long when it was listed."""

    path: str
    size: int
    start: int
    end: int
    values: Values = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """Files that were listed already. ``values``: by file, those of the partition columns."""

    found: InputFiles
    partitions: Partitions | None
    values: list[Values]


class FileSource:
    """Rows of files on a ``pyarrow.fs`` filesystem. Subclasses call ``_find`` or ``_take``, and then ``_have``."""

    kind = "read_files"
    counts_by_column = True
    """True if rows can only be counted by reading a column of the files."""
    supports_concurrent_execution_attempts = True
    schema: pa.Schema

    def _find(
        self,
        paths: PathLike | Iterable[PathLike],
        filesystem: Any,
        partitions: bool | pa.Schema,
        schema: pa.Schema | None = None,
    ) -> tuple[InputFiles, list[InputFile]]:
        """Lists the files and finds partition columns. Returns the listing and the files in it."""
        paths = [paths] if isinstance(paths, str) or not isinstance(paths, Iterable) else list(paths)
        found = find_files(paths, as_filesystem(filesystem))
        columns, values = find_partitions(found, partitions, schema)
        self._take(Listed(found, columns, values), short_name(paths))
        return found, list(found.files)

    def _take(self, listed: Listed, name: str) -> None:
        """``name``: of the files, for people."""
        found = listed.found
        self.name = f"{self.kind} {name}"
        self.pruned = ""
        """``"3 of 120 partitions"`` where filters left some out; else empty."""
        self._filesystem = found.filesystem
        self._prefix = found.prefix
        self._found: InputFiles | None = found
        self._partitions: Partitions | None = listed.partitions
        self._kept: list[int] = list(range(len(found.files)))
        """Numbers of the files that are read; driver only, as is ``_values``."""
        self._values: list[Values] = listed.values
        self._conjuncts: tuple[Condition, ...] = ()

    def _partition_names(self) -> list[str]:
        return [] if self._partitions is None else self._partitions.schema.names

    def _have(self, file_schema: pa.Schema) -> None:
        """``file_schema``: the columns of the files. A partition column takes the place of one with its name, as in Spark."""
        columns = {field.name: field for field in file_schema}
        parts = self._partitions.schema if self._partitions is not None else pa.schema([])
        columns.update({field.name: field for field in parts})
        self._file_schema = pa.schema([field for field in file_schema if field.name not in parts.names])
        self._all_schema = pa.schema(list(columns.values()))
        if self.counts_by_column and not len(self._file_schema):
            raise UsageError(
                f"{self.name}: the files have no columns beside the partition columns.",
                hint="Say partitions=False to read the files' own columns.",
            )
        self.schema = self._all_schema

    def __getstate__(self) -> dict[str, Any]:
        # the splits tell executors which files; the listing may be long
        return {**self.__dict__, "_found": None, "_kept": [], "_values": []}

    # --- driver ---

    @property
    def inputs(self) -> tuple[list[Location], list[Location]]:
        """The directories given as such, and all paths (files, directories, bases of globs) that were given."""
        assert self._found is not None, "files are listed on the driver"
        at = Location(self._filesystem, "", self._prefix).at
        roots = dict.fromkeys(file.root for file in self._found.files)
        return [at(folder) for folder in self._found.folders], [at(root) for root in roots]

    def datasets(self) -> list[DatasetName]:
        """The paths that were given, as lineage names them."""
        return datasets_of(self.inputs[1])

    @property
    def found(self) -> InputFiles:
        """The files as they were listed, also those that filters leave out."""
        assert self._found is not None, "files are listed on the driver"
        return self._found

    @staticmethod
    def paths_of(split: Iterable[Any]) -> list[str]:
        """The files that a split (its payload) is of."""
        return [getattr(part, "piece", part).path for part in split]

    @property
    def is_filtered(self) -> bool:
        """Rows or whole files are left out by filters."""
        return bool(self._conjuncts or self.pruned)

    def push_down(self, columns: list[str] | None, filter: pc.Expression | None) -> Self:
        """The same rows with only these columns (None: all, as now), and only where ``filter`` is true.

        Files in partitions that the filter rules out are not opened. Both may name only columns this source has. Raises
        UsageError for others and for filters of wrong types.
        """
        pushed = type(self).__new__(type(self))  # copy.copy would drop the listing, as pickling does
        pushed.__dict__.update(self.__dict__)
        if filter is not None:
            pushed._add_filter(condition(filter, self.schema, self.name))
        if columns is not None:
            missing = next((name for name in columns if self.schema.get_field_index(name) < 0), None)
            if missing is not None:
                raise UsageError(
                    f"{self.name} has no column '{missing}'.", hint=f"It has: {first_of(self.schema.names)}."
                )
            pushed.schema = pa.schema([self.schema.field(name) for name in columns])
        return pushed

    def _add_filter(self, part: Condition) -> None:
        parts = self._partitions
        if parts is None or not set(part.columns) & set(parts.schema.names):
            self._conjuncts = (*self._conjuncts, part)
            return
        if not set(part.columns) <= set(parts.schema.names):  # else what is left of it is true for every row
            self._conjuncts = (*self._conjuncts, part)
        alive = parts.keep([self._values[i] for i in self._kept], (part,), self._all_schema)
        before = len(set(self._values))
        self._kept = [i for i, keep in zip(self._kept, alive, strict=True) if keep]
        left = len({self._values[i] for i in self._kept})
        if left < before:
            self.pruned = f"{format_count(left)} of {format_count(before)} partitions"

    def _columns_to_read(self) -> list[str]:
        """The files' columns among those of the schema and those that the filters look at."""
        names = [*self.schema.names, *(name for part in self._conjuncts for name in part.columns)]
        own = set(self._file_schema.names)
        return [name for name in dict.fromkeys(names) if name in own]

    def _kept_files(self) -> list[tuple[InputFile, Values]]:
        assert self._found is not None, "files are listed on the driver"
        return [(self._found.files[i], self._values[i]) for i in self._kept]

    def _list_pieces(self, data_volume: int, compression: str | None, whole: bool) -> list[Split]:
        """Byte ranges of plain files, whole files of others; small ones packed together."""
        assert self._found is not None, "list_splits is called on the driver"
        files = [(file, values) for file, values in self._kept_files() if file.size]
        sizes = plain_sizes(self._found, [file for file, _ in files], compression)
        target = piece_bytes(sum(sizes), data_volume)
        pieces: list[Piece] = []
        weights: list[int] = []
        for (file, values), size in zip(files, sizes, strict=True):
            cut = not whole and codec_of(file.path, compression) is None
            count = -(-size // target) if cut else 1
            bounds = [file.size * i // count for i in range(count + 1)]
            pieces += [Piece(file.path, file.size, a, b, values) for a, b in pairwise(bounds)]
            weights += [b - a for a, b in pairwise(bounds)] if cut else [max(size, 1)]
        packed = pack(pieces, weights, target)
        return [Split(tuple(group), size, self._describe(group)) for group, size in packed]

    def _describe(self, pieces: Sequence[Piece]) -> str:
        first, last = pieces[0], pieces[-1]
        if len(pieces) > 1:
            return f"{self._prefix + first.path} to {self._prefix + last.path} ({len(pieces)} files)"
        return self._where(first)

    def _where(self, piece: Piece) -> str:
        label = self._prefix + piece.path
        if (piece.start, piece.end) == (0, piece.size):
            return label
        return f"{label}, bytes {piece.start}-{piece.end}"

    # --- executor ---

    def read(self, split: Any, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        return gather((batch for part in split for batch in self._read_part(part, ctx)), ctx)

    def _read_part(self, part: Any, ctx: TaskContext, /) -> Iterator[pa.RecordBatch]:
        """The rows of one part of a split."""
        raise NotImplementedError

    def _finish(self, batch: pa.RecordBatch, values: Values) -> Iterator[pa.RecordBatch]:
        """From rows of a file to rows of the source: partition columns added, filtered, the schema's columns."""
        if self._partitions is not None:
            needed = {*self.schema.names, *(name for part in self._conjuncts for name in part.columns)}
            rows = batch.num_rows
            added = [(n, a) for n, a in self._partitions.arrays(values, rows).items() if n in needed]
            fields = [*batch.schema, *(self._all_schema.field(name) for name, _ in added)]
            arrays = [*batch.columns, *(array for _, array in added)]
            if arrays:
                batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        yield from self._shaped(batch)

    def _shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Filtered, and the schema's columns."""
        for kept in filter_batch(batch, self._conjuncts):
            yield fit(kept, self.schema)

    def _open_blocks(self, piece: Piece, compression: str | None) -> Iterator[tuple[int, bytes]]:
        """(offset, block) of the piece's own lines, decompressed. Raises FiresteelError, naming the file."""
        label = self._prefix + piece.path
        codec = codec_of(piece.path, compression)
        try:
            with self._opened(piece) as file:
                if codec is None:
                    yield from line_blocks(file, label, piece.start, piece.end, piece.size)
                else:
                    with plain_stream(file, codec) as stream:
                        yield from stream_blocks(stream)
        except (OSError, pa.ArrowException) as error:
            raise damaged(label, codec, error) from error

    def _lines_in_front(self, piece: Piece, offset: int) -> int:
        """Lines of the piece's file, which is not compressed, before ``offset``."""
        count, at = 0, 0
        with self._opened(piece) as file:
            while at < offset and (part := file.read_at(min(_READ_BLOCK, offset - at), at)):
                at += len(part)
                count += part.count(b"\n") or count_lines(part)
        return count

    def _opened(self, piece: Piece) -> Any:
        """The piece's file, opened. Raises FiresteelError when it is gone or has changed."""
        label = self._prefix + piece.path
        try:
            file = self._filesystem.open_input_file(piece.path)
        except FileNotFoundError:
            raise FiresteelError(
                f"{label} was there when the job was planned and is gone now.",
                hint="Run the job again; on a cluster, check that every executor sees this path.",
            ) from None
        except OSError as error:
            raise FiresteelError(f"{label} cannot be read: {first_line(error)}.") from error
        if file.size() < piece.size:
            file.close()
            raise FiresteelError(
                f"{label} became shorter while the job was running.",
                hint="Run the job again when nothing writes to it.",
            )
        return file


def unreadable(place: str, error: BaseException, kind: str) -> FiresteelError:
    """The error of a file whose footer could be read. ``kind``: the step's."""
    return _unsupported(place, error, kind) or FiresteelError(
        f"{place} cannot be read: {first_line(error)}.", hint="The file is damaged; write it again or leave it out."
    )


def bad_footer(label: str, error: BaseException, kind: str, what: str) -> UsageError:
    """``what``: what is wrong with the file, unless the footer is one that Arrow cannot read."""
    return _unsupported(label, error, kind) or UsageError(
        f"{label} {what} ({first_line(error)}).", hint="Write it again, or leave it out of the paths."
    )


def _unsupported(label: str, error: BaseException, kind: str) -> UsageError | None:
    """Returns None unless Arrow has no way to read what a sound file may hold."""
    if not isinstance(error, pa.ArrowNotImplementedError) and "Expected all lists to be of size" not in str(error):
        return None
    other = (
        "Read it with Spark, env.read_with_spark('parquet', ...), or write"
        if kind == "read_parquet"
        else "Leave it out of the paths, or write"
    )
    return UsageError(
        f"{label} holds what {kind} cannot read ({first_line(error)}).",
        hint=f"The file may be sound. {other} it again with other types.",
    )


def for_each_file(
    found: InputFiles, numbers: Iterable[int], read: Callable[[InputFiles, InputFile], _T]
) -> dict[int, _T]:
    """The results of ``read`` for these files, by their numbers; several at a time, and more where that waits for the storage."""
    numbers = list(numbers)

    def of(some: list[int]) -> list[_T]:
        return [read(found, found.files[i]) for i in some]

    few = _FEW if is_local(found.filesystem) else 0
    begun, worked = perf_counter(), thread_time()
    results = of(numbers[:few])
    waits = not few or perf_counter() - begun > 2 * (thread_time() - worked)
    threads = _THREADS if waits else _WORKING_THREADS
    size = -(-len(numbers) // (threads * 4)) or 1  # to hand over a file costs as much as a third of reading its footer
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(of, [numbers[i : i + size] for i in range(few, len(numbers), size)])
        results.extend(chain.from_iterable(parts))
    return dict(zip(numbers, results, strict=True))


T = TypeVar("T")

_LEAST = 1 << 20
_MOST_SPLITS = 20_000


def piece_bytes(total: int, data_volume: int) -> int:
    """Plain bytes a split should have: a sixteenth of a subtask's volume, so that there is something to balance.

    Not under 1 MiB unless the volume is, and never so little that there are more than some 20,000 splits.
    """
    return max(data_volume // 16, min(data_volume, _LEAST), -(-total // _MOST_SPLITS), 1)


def pack(items: Sequence[T], sizes: Sequence[int], target: int) -> list[tuple[list[T], int]]:
    """Groups neighbours, in order, up to ``target`` bytes; a larger item stays alone. Returns each group with its bytes."""
    groups: list[list[T]] = []
    totals: list[int] = []
    for item, size in zip(items, sizes, strict=True):
        if groups and totals[-1] + size <= target:
            groups[-1].append(item)
            totals[-1] += size
        else:
            groups.append([item])
            totals.append(size)
    return list(zip(groups, totals, strict=True))


class Footer(Protocol):
    """The parts that the footers of all formats have."""

    @property
    def file(self) -> InputFile: ...
    @property
    def schema(self) -> pa.Schema: ...


_F = TypeVar("_F", bound=Footer)


class FooterSource(FileSource, Generic[_F]):
    """``merge_schema``: the files' schemas may differ as in :mod:`~firesteel.connectors.files.reading.evolution`.

    Footers are read when the source is made (of a partitioned tree without ``merge_schema`` only the first; the others when
    splits are listed, of the partitions that filters leave). They stay on the driver: there may be thousands.
    """

    def __init__(
        self, paths: PathLike | Iterable[PathLike], filesystem: Any, partitions: bool | pa.Schema, merge_schema: bool
    ) -> None:
        self._merges = check_merge_schema(merge_schema, self.kind)
        found, files = self._find(paths, filesystem, partitions)
        numbers = range(len(files)) if merge_schema or self._partitions is None else range(1)
        self._footers: dict[int, _F] = for_each_file(found, numbers, self._footer_reader())
        self._have(self._agreed(found))

    @staticmethod
    @abstractmethod
    def _footer_reader() -> Callable[[InputFiles, InputFile], _F]:
        """A function that reads the footer of a file, on any thread, and raises UsageError for one that is damaged or of another format."""

    def _agreed(self, found: InputFiles) -> pa.Schema:
        """The schema of all footers that were read. Raises UsageError if there is none."""
        footers = [footer for _, footer in sorted(self._footers.items())]
        schemas = [(footer.file.path, footer.schema) for footer in footers]
        return merged_schema(found, schemas) if self._merges else one_schema(found, schemas)

    def _read_other_footers(self) -> None:
        """Reads the footers of all files that are left after filters on partitions."""
        assert self._found is not None, "list_splits is called on the driver"
        missing = [number for number in self._kept if number not in self._footers]
        if not missing:
            return
        self._footers.update(for_each_file(self._found, missing, self._footer_reader()))
        self._agreed(self._found)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_footers": {}}


FILES = 8
_MOST = 64 * BLOCK


def first_blocks(source: Any, compression: str | None, has_row: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    """(file's name, its first lines) of the first files of a :class:`~firesteel.connectors.files.reading.source.FileSource`.

    ``has_row``: whether these lines hold a row; while they do not, more are read, to some 64 MiB or the file's end. Raises UsageError for a file that cannot be read.
    """
    found = source._found
    seen = 0
    for file in found.files:
        if seen == FILES:
            return
        if not file.size:
            continue
        label = found.label(file.path)
        codec = codec_of(file.path, compression)
        try:
            with found.filesystem.open_input_file(file.path) as raw, plain_stream(raw, codec) as stream:
                if codec is None:
                    refuse_foreign(label, raw.read(16), source.kind)
                    raw.seek(0)
                block = _whole_lines(stream, has_row)
        except (OSError, pa.ArrowException) as error:
            said = damaged(label, codec, error)
            raise UsageError(said.message, hint=said.hint) from None
        if block.strip():
            seen += 1
            yield label, block


def _whole_lines(stream: Any, has_row: Callable[[bytes], bool]) -> bytes:
    """The first lines that are not blank and hold a row. Looked at each time they have doubled."""
    blocks: list[bytes] = []
    size = seen = 0
    for _, block in stream_blocks(stream):
        if not blocks and not block.strip():
            continue
        blocks.append(block)
        size += len(block)
        if size < 2 * seen:
            continue
        seen = size
        sample = b"".join(blocks)
        if size > _MOST or has_row(sample):
            return sample
    return b"".join(blocks)


def merge_types(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that holds what each of the samples is made of."""
    kinds = list(dict.fromkeys(t for t in types if not pa.types.is_null(t)))
    if not kinds:
        return pa.string()
    if len(kinds) == 1:
        return kinds[0]
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in kinds):
        return pa.float64()
    if all(pa.types.is_date(t) or (pa.types.is_timestamp(t) and t.tz is None) for t in kinds):
        return pa.timestamp("us")
    return pa.string()
