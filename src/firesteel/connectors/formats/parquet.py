"""Parquet files: split by row groups, columns and filters pushed down, and a sink.

Footers are read once, on the driver, and stay there. What travels to an executor is a path and row group numbers.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, chain, groupby
from operator import and_, attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firesteel.connectors.base import Split
from firesteel.connectors.files.column_keys import ColumnKeys
from firesteel.connectors.files.partitions import Values
from firesteel.connectors.files.paths import InputFile, InputFiles, PathLike, first_line, is_hidden, is_local
from firesteel.connectors.files.reading.evolution import check_merge_schema, common_type, widened
from firesteel.connectors.files.reading.far import (
    FILES_AHEAD,
    FarFile,
    Range,
    etag_of,
    fetched_ahead,
    neighbours,
)
from firesteel.connectors.files.reading.source import (
    FooterSource,
    Listed,
    bad_footer,
    for_each_file,
    pack,
    piece_bytes,
    unreadable,
)
from firesteel.connectors.files.shaping import (
    Condition,
    condition,
    gather,
    has_type,
    plain_schema,
    plain_type,
    rows_without_columns,
)
from firesteel.connectors.files.writing.part_files import NOTE, Buckets, GatheringPart, PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.engine.file_marks import Mark, mark_of
from firesteel.engine.files import FileRows
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import check_once
from firesteel.results.reader import fetched
from firesteel.task.program import TaskContext

_BATCH_BYTES = 4 << 20
_MOST_ROWS, _LEAST_ROWS = 1 << 16, 64
ROW_GROUP_BYTES = 32 << 20
_PAGE_BUFFER = 1 << 20
_THREADS = 16
_AnyMark = Mark | bytes
"""Of a local file, or the one that a far store gives."""
_GLOBS = set("*?[]{}\\")
_PLAIN = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}


@dataclass(frozen=True, slots=True)
class _Groups:
    """Row groups of one file, which was ``size`` bytes long when its footer was read."""

    path: str
    size: int
    row_groups: tuple[int, ...]
    """None: all."""
    values: Values
    rows: FileRows | None
    """The same rows, for who reads the file itself; None: they would not be those that this source makes."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file that is open."""

    groups: _Groups
    label: str
    stream: Any
    """Of the filesystem, or a FarFile."""
    file: Any
    rebase: Rebase | None
    leaves: Sequence[int]
    """Of a file on a far store, those that are wanted."""

    @property
    def row_groups(self) -> Sequence[int]:
        return self.groups.row_groups or range(self.file.num_row_groups)

    def place(self, row_group: int) -> str:
        return f"{self.label}, row group {row_group}"

    def ranges(self, row_group: int) -> list[Range]:
        """Where the values of the wanted columns lie."""
        about, size = self.file.metadata.row_group(row_group), self.groups.size
        chunks = [about.column(leaf) for leaf in self.leaves]
        begins = [one.dictionary_page_offset or one.data_page_offset for one in chunks]
        ends = [at + one.total_compressed_size for at, one in zip(begins, chunks, strict=True)]
        return neighbours((at, min(end, size)) for at, end in zip(begins, ends, strict=True) if at < size)

    def close(self) -> None:
        self.file.close()
        self.stream.close()


@dataclass(frozen=True, slots=True)
class Footer:
    file: InputFile
    schema: pa.Schema
    rows: NDArray[np.int64]
    """Per row group."""
    column_bytes: NDArray[np.int64]
    """Plain bytes, (row group, top-level column), the columns in this file's order."""
    times: Times
    spans: Mapping[str, tuple[int, int]]
    """The least and the greatest value of columns of integers, by the statistics of the first, the middle and the last row group."""
    bounds: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = dataclasses.field(default_factory=dict)
    """By column of integers or dates (days), the least and the greatest value of each row group. A column's are read when a key is looked up in it."""
    copy: bytes = b""
    """A Parquet file of nothing but this footer, where the file lies on a far store."""


class KeptFooters:
    """Footers of files, up to ``most`` bytes of them; the ones that were asked for last stay. Several threads may ask at once."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes, self._lock = most, 0, threading.Lock()
        self._kept: dict[str, tuple[_AnyMark, Footer, int]] = {}

    def get(self, file: InputFile, mark: _AnyMark | None) -> Footer | None:
        """``mark``: of the file as it is now. Returns None if the footer must be read: the file has changed, or may have."""
        with self._lock:
            known = self._kept.pop(file.path, None)
            if known is None:
                return None
            if known[0] != mark or known[1].file.size != file.size:
                self._bytes -= known[2]
                return None
            self._kept[file.path] = known
            return known[1]

    def keep(self, footer: Footer, mark: _AnyMark | None) -> None:
        """``mark``: of the file before its footer was read; None: it may change once more without a sign."""
        size = footer.rows.nbytes + 3 * footer.column_bytes.nbytes + _FIELD_BYTES * len(footer.schema)
        size += len(footer.copy)
        if mark is None or size > self._most:
            return
        with self._lock:
            before = self._kept.pop(footer.file.path, None)
            self._bytes += size - (0 if before is None else before[2])
            self._kept[footer.file.path] = mark, footer, size
            while self._bytes > self._most:
                self._bytes -= self._kept.pop(next(iter(self._kept)))[2]


_FIELD_BYTES = 512
"""About what a schema takes for each of its columns."""
_driver_footers = KeptFooters(64 << 20)


class ParquetSource(FooterSource[Footer]):
    """Rows of Parquet files.

    ``paths``: a path, glob, directory, ``pyarrow.fs`` URL, or a list of these. Types are exactly what pyarrow makes of the
    files, without metadata, every column nullable, string views as strings, INT96 (in which Spark writes timestamps unless
    told otherwise) in microseconds, since nanoseconds end in the year 2262. Files may have their columns in another order, and with ``merge_schema``
    other columns and types that can be widened (see :mod:`~firesteel.connectors.files.reading.evolution`), nothing else.
    ``partitions``: as in :func:`~firesteel.connectors.files.partitions.find_partitions`. ``columns`` and ``filter`` as in
    :meth:`push_down`.

    Footers are read now (of a partitioned tree without ``merge_schema`` only the first; the others when splits are listed, of
    the partitions that filters leave). Raises UsageError for missing paths, empty globs, files that are damaged or no Parquet, mixed schemas,
    and for columns or filters that do not fit.
    """

    kind = "read_parquet"
    counts_by_column = False
    _hints: tuple[pc.Expression, ...] = ()
    _keys: tuple[tuple[str, NDArray[np.int64], NDArray[np.int64]], ...] = ()
    """Columns, and where the ranges of their keys start and end (``ColumnKeys.ranges``)."""
    _pruned: list[NDArray[np.intp]] | None = None
    """The row groups of each file that filters and hints leave; None: they are not looked up yet."""

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        filesystem: Any = None,
        partitions: bool | pa.Schema = True,
        merge_schema: bool = False,
    ) -> None:
        super().__init__(paths, filesystem, partitions, merge_schema)
        if columns is not None or filter is not None:
            self.__dict__.update(self.push_down(columns, filter).__dict__)

    @classmethod
    def of_listed(
        cls, listed: Listed, name: str, agreed: Callable[[list[Footer]], pa.Schema], known: dict[InputFile, Footer]
    ) -> ParquetSource:
        """Rows of files that were listed already. ``agreed``: names and types of the columns to read, of all footers; a column that a file
        lacks is null in its rows, and other types are cast. ``known``: footers that were read already; those read now are added. Raises
        UsageError, and what ``agreed`` raises."""
        source = cls.__new__(cls)
        source._merges = True
        source._take(listed, name)
        files = listed.found.files
        read = [i for i, file in enumerate(files) if file not in known]
        local = isinstance(listed.found.filesystem, pafs.LocalFileSystem)
        marks = {i: mark_of(files[i].path) for i in read} if local else {}
        kept = {i: footer for i, mark in marks.items() if (footer := _driver_footers.get(files[i], mark)) is not None}
        missing = [i for i in read if i not in kept]
        if missing:
            kept |= for_each_file(listed.found, missing, cls._footer_reader())
            for i in missing:
                _driver_footers.keep(kept[i], marks.get(i))
        known.update((files[i], footer) for i, footer in kept.items())
        source._footers = {i: known[file] for i, file in enumerate(files)}
        source._have(agreed(list(source._footers.values())))
        return source

    @staticmethod
    def _footer_reader() -> Callable[[InputFiles, InputFile], Footer]:
        return _FooterReader().read

    def hinted(self, conditions: Sequence[pc.Expression]) -> ParquetSource:
        """The same source without row groups and partitions of which statistics and values say that one of the conditions is true of none of
        their rows. What is read is not filtered: whoever asks does that."""
        hinted: ParquetSource = self.push_down(None, None)
        known = set() if self._partitions is None else set(self._partitions.schema.names)
        parts = (condition(one, self.schema, self.name) for one in conditions if known)
        for part in parts:
            if known.issuperset(part.columns):
                hinted._add_filter(part)
        if conditions:
            hinted._hints, hinted._pruned = (*self._hints, *conditions), None
        return hinted

    def _add_filter(self, part: Condition) -> None:
        super()._add_filter(part)
        self._pruned = None

    def holding(self, keys: Sequence[ColumnKeys]) -> ParquetSource:
        """The same source without row groups and partitions in which one of these columns has none of its keys."""
        ranges = {i: one.ranges for i, one in enumerate(keys) if one.column in self._file_schema.names}
        held = self.hinted([one.condition for i, one in enumerate(keys) if ranges.get(i) is None])
        held._keys = (*self._keys, *((keys[i].column, *found) for i, found in ranges.items() if found is not None))
        return held

    def without_hints(self) -> ParquetSource:
        whole: ParquetSource = self.push_down(None, None)
        whole._hints, whole._keys, whole._pruned = (), (), None
        return whole

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_hints": (), "_keys": (), "_pruned": None}

    def list_splits(self, data_volume: int) -> list[Split]:
        self._read_other_footers()
        footers = [self._footers[i] for i in self._kept]
        if self._pruned is None:
            self._pruned = self._prune(footers)
        kept = self._with_keys(footers, self._pruned)
        wanted = pa.schema([self._file_schema.field(name) for name in self._columns_to_read()])
        names = set(wanted.names)
        sizes = {number: _plain_bytes(self._footers[number], names).tolist() for number in self._kept}
        items = [(number, g) for number, ids in zip(self._kept, kept, strict=True) for g in ids.tolist()]
        weights = [sizes[number][g] for number, g in items]
        plain = dict(zip(self._kept, _are_plain(footers, wanted), strict=True))
        splits: list[Split] = []
        for group, size in pack(items, weights, piece_bytes(sum(weights), data_volume)):
            by_file: dict[int, list[int]] = {}
            for number, row_group in group:
                by_file.setdefault(number, []).append(row_group)
            groups = tuple(self._groups(number, ids, sizes[number], plain[number]) for number, ids in by_file.items())
            splits.append(Split(groups, size, self._words(groups)))
        return splits

    def _groups(self, number: int, ids: list[int], sizes: list[int], plain: bool) -> _Groups:
        """``sizes``: plain bytes of all row groups of the file."""
        footer = self._footers[number]
        rows = None
        if plain:
            rows = FileRows(footer.file.path, *_ranges(footer.rows.tolist(), ids), sum(sizes[g] for g in ids))
        return _Groups(footer.file.path, footer.file.size, tuple(ids), self._values[number], rows)

    def _words(self, groups: Sequence[_Groups]) -> str:
        first, last = groups[0], groups[-1]
        if len(groups) > 1:
            return f"{self._prefix + first.path} to {self._prefix + last.path} ({len(groups)} files)"
        ids = first.row_groups
        which = f"row group {ids[0]}" if len(ids) == 1 else f"row groups {ids[0]}-{ids[-1]}"
        return f"{self._prefix + first.path}, {which}"

    def count_rows(self) -> int:
        """Of all files, whatever conditions there are."""
        self._read_other_footers()
        return sum(int(self._footers[i].rows.sum()) for i in self._kept)

    def count_values(self, name: str) -> int | None:
        """Distinct values of a column at most, about, as the statistics tell; None: they do not."""
        spans = [self._footers[i].spans.get(name) for i in self._kept]
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return None
        return max(most for _, most in known) - min(least for least, _ in known) + 1

    def _prune(self, footers: list[Footer]) -> list[NDArray[np.intp]]:
        """Row groups of each file that may hold rows the filter keeps, by the statistics in the footers and, where the
        filter looks at partition columns too, their values."""
        import pyarrow.dataset as pads  # slow to import, and only the driver needs it

        everything = [np.flatnonzero(footer.rows) for footer in footers]
        hints = (condition(one, self.schema, self.name) for one in self._hints)
        prune = [part for part in (*self._conjuncts, *hints) if part.prunes]
        if not prune:
            return everything
        known = self._known_values()
        of_partitions = set(self._all_schema.names) - set(self._file_schema.names) if known else set[str]()

        def survivors(index: int) -> NDArray[np.intp]:
            told = self._told_by(footers[index]) | of_partitions
            usable = [part.expression for part in prune if told.issuperset(part.columns)]
            if not usable:
                return everything[index]
            both = reduce(and_, usable)
            about = known.get(self._values[self._kept[index]])
            copy = footers[index].copy
            where = (pa.BufferReader(copy),) if copy else (footers[index].file.path, self._filesystem)
            fragment = pads.ParquetFileFormat().make_fragment(*where, partition_expression=about)
            try:
                groups = [group.id for group in fragment.subset(both, schema=self._all_schema).row_groups]
                single = [part for part in prune if part.rejects_null and told.issuperset(part.columns)]
                kept = set(self._alive(fragment, groups, single))
            except (OSError, pa.ArrowException):
                return everything[index]  # reading will tell what is wrong with it
            return np.array([g for g in everything[index] if int(g) in kept], np.intp)

        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(survivors, range(len(footers))))

    def _with_keys(self, footers: list[Footer], groups: list[NDArray[np.intp]]) -> list[NDArray[np.intp]]:
        """Of these row groups of each file, the ones of which statistics do not say that they have no key."""
        if not self._keys:
            return groups
        assert self._found is not None, "list_splits is called on the driver"
        names = {column for column, *_ in self._keys}
        comparable = [names & self._told_by(footer) for footer in footers]
        files = zip(self._kept, footers, comparable, strict=True)
        lacking = [number for number, footer, columns in files if not columns <= footer.bounds.keys()]
        read = partial(_FooterReader().bounds, names, {footer.file.path: footer.copy for footer in footers})
        for number, bounds in for_each_file(self._found, lacking, read).items():
            self._footers[number].bounds.update(bounds)
        return [self._meeting(*file) for file in zip(footers, groups, comparable, strict=True)]

    def _meeting(self, footer: Footer, groups: NDArray[np.intp], columns: set[str]) -> NDArray[np.intp]:
        """``columns``: those of the keys that the footer's statistics are of."""
        for column, starts, ends in self._keys:
            bounds = footer.bounds.get(column)
            if column in columns and bounds is not None and len(bounds[0]) == len(footer.rows):
                groups = groups[_meets(starts, ends, *(bound[groups] for bound in bounds))]
        return groups

    def _alive(self, fragment: Any, groups: Sequence[int], conditions: Sequence[Condition]) -> list[int]:
        """Row groups that may hold rows for which all of these are true. Arrow itself keeps any that has a null in the column; these
        conditions are true of no null, so that the least and greatest of the other values tell."""
        import pyarrow.dataset as pads

        schema = fragment.metadata.schema
        places = {schema.column(i).path: i for i in range(len(schema))}
        columns = {name: places[name] for part in conditions for name in part.columns if name in places}
        if not columns:
            return list(groups)
        format_, nowhere = pads.ParquetFileFormat(), pafs.LocalFileSystem()
        known = [
            format_.make_fragment(str(group), nowhere, partition_expression=self._between(about, columns))
            for group in groups
            for about in [fragment.metadata.row_group(group)]
        ]
        dataset = pads.FileSystemDataset(known, self._all_schema, format_, nowhere)
        alive = dataset.get_fragments(filter=reduce(and_, (part.expression for part in conditions)))
        return [int(one.path) for one in alive]

    def _between(self, group: Any, columns: dict[str, int]) -> pc.Expression:
        """A condition that every row of the group fulfils whose columns are not null, by its statistics. ``columns``: with their
        places in the file."""
        found = pc.scalar(True)
        for name, place in columns.items():
            told, to = group.column(place).statistics, self._all_schema.field(name).type
            if told is not None and told.has_min_max and not (pa.types.is_timestamp(to) and to.unit == "ns"):
                with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
                    least, most = pa.scalar(told.min, to), pa.scalar(told.max, to)
                    found &= (pc.field(name) >= least) & (pc.field(name) <= most)
        return found

    def _told_by(self, footer: Footer) -> set[str]:
        """Columns of which the footer's statistics tell: those that the file has, in the type and the calendar of all the files."""
        if not self._merges:
            return set(self._file_schema.names) - footer.times.rebased
        types = {field.name: field.type for field in self._file_schema}
        same = {field.name for field in footer.schema if plain_type(field.type) == types.get(field.name)}
        return same - footer.times.rebased

    def _known_values(self) -> dict[Values, pc.Expression]:
        """The statistics known of the rows of each partition; nothing where files have a column of their own under the name of a
        partition column, since their statistics are of that one."""
        parts = self._partitions
        if parts is None or any(
            set(footer.schema.names) & set(parts.schema.names) for footer in self._footers.values()
        ):
            return {}
        return parts.known({self._values[i] for i in self._kept})

    # --- executor ---

    def files(self, splits: Sequence[tuple[_Groups, ...]]) -> list[FileRows] | None:
        """The rows of splits, for who reads Parquet itself; None: they would not be those that :meth:`read` gives.

        Raises FiresteelError for a file that is gone, or has changed."""
        groups = [one for split in splits for one in split]
        rows = [one.rows for one in groups if one.rows is not None]
        partitions = set(self.schema.names) - set(self._columns_to_read())
        if len(rows) < len(groups) or self._conjuncts or partitions or not is_local(self._filesystem):
            return None
        if any(set(one.path) & _GLOBS for one in groups):  # others would look for files that fit
            return None
        for one in groups:
            self._check_size(one, self._filesystem.get_file_info(one.path).size)
        return rows

    def _check_size(self, groups: _Groups, size: int | None) -> None:
        label = self._prefix + groups.path
        if size is None:
            raise FiresteelError(
                f"{label} was there when the job was planned and is gone now.",
                hint="Run the job again; on a cluster, check that every executor sees this path.",
            )
        if size != groups.size:
            raise FiresteelError(
                f"{label} changed while the job was running.", hint="Run the job again when nothing writes to it."
            )

    def read(self, split: tuple[_Groups, ...], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        return self.read_all([split], ctx)

    def read_all(self, splits: Sequence[tuple[_Groups, ...]], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        batches = self._read([groups for split in splits for groups in split], ctx)
        return batches if has_type(self.schema, pa.types.is_dictionary) else gather(batches, ctx)

    def read_whole(self, file: InputFile, values: Values, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        """All rows of one file. ``values``: of the partition columns."""
        return self._read([_Groups(file.path, file.size, (), values, None)], ctx)

    def _read(self, parts: Sequence[_Groups], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        files = [
            _Groups(path, size, tuple(chain.from_iterable(one.row_groups for one in some)), values, None)
            for (path, size, values), some in groupby(parts, key=attrgetter("path", "size", "values"))
        ]
        with closing(self._read_near(files) if is_local(self._filesystem) else self._read_far(files)) as row_groups:
            try:
                for opened, row_group in row_groups:  # one at a time: what was read ahead is freed with it
                    ctx.place = opened.place(row_group)
                    with self._explained(opened.groups, ctx.place):
                        yield from self._read_row_group(opened, row_group)
            except FiresteelError:  # it names its file, which may be the next one
                ctx.place = ""
                raise

    def _read_near(self, files: Iterable[_Groups]) -> Generator[tuple[_Opened, int]]:
        for groups in files:
            with closing(self._open(groups)) as opened:
                for row_group in opened.row_groups:
                    yield opened, row_group

    def _read_far(self, files: Iterable[_Groups]) -> Generator[tuple[_Opened, int]]:
        """Opens files, and fetches what is wanted of row groups, before their turn."""
        with closing(fetched(files, self._open, FILES_AHEAD)) as found:
            wanted = (
                ((opened, row_group, number == len(opened.row_groups)), opened.stream, opened.ranges(row_group))
                for _, opened in found
                for number, row_group in enumerate(opened.row_groups, 1)
            )
            with closing(fetched_ahead(wanted)) as ready:
                for (opened, row_group, is_last), taken in ready:
                    with self._explained(opened.groups, opened.place(row_group)):
                        opened.stream.parts = taken()
                    yield opened, row_group
                    opened.stream.parts = ()
                    if is_last:
                        opened.close()

    def _open(self, groups: _Groups) -> _Opened:
        """Raises FiresteelError for a file that is gone, has changed or is damaged."""
        path, label = groups.path, self._prefix + groups.path
        near = is_local(self._filesystem)
        before = mark_of(path) if near else None
        with self._explained(groups, label), ExitStack() as stack:
            opened = stack.enter_context(self._filesystem.open_input_file(path))
            self._check_size(groups, opened.size())
            if near:
                stream, mark = opened, before if mark_of(path) == before else None
            else:
                stream, mark = FarFile(opened, groups.size), etag_of(opened)
            file = pq.ParquetFile(
                stream,
                metadata=_kept_footer(path, mark),
                buffer_size=_PAGE_BUFFER if near else 0,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
            )
            metadata, schema = file.metadata, file.schema_arrow
            if max(groups.row_groups, default=-1) >= metadata.num_row_groups:
                self._check_size(groups, -1)
            _keep_footer(path, mark, metadata)
            calendar = Calendar.of(metadata.metadata or {})
            rebase = Rebase(calendar, metadata.schema, schema, label) if calendar.is_hybrid else None
            leaves = () if near else self._leaves(metadata.schema, schema.names)
            stack.pop_all()
            return _Opened(groups, label, stream, file, rebase, leaves)

    def _leaves(self, schema: Any, names: Sequence[str]) -> list[int]:
        """The numbers of the wanted columns' leaves. ``schema``: Parquet's own; ``names``: of the file's columns."""
        top, wanted = {name: i for i, name in enumerate(names)}, set(self._columns_to_read())
        return [i for i in range(len(schema)) if names[top_level(schema.column(i).path, top)] in wanted]

    @contextmanager
    def _explained(self, groups: _Groups, place: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError:
            self._check_size(groups, None)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(place, error, self.kind) from error

    def _read_row_group(self, opened: _Opened, row_group: int) -> Iterator[pa.RecordBatch]:
        file, values, place = opened.file, opened.groups.values, opened.place(row_group)
        about = file.metadata.row_group(row_group)
        read_schema = pa.schema([self._file_schema.field(name) for name in self._columns_to_read()])
        there = set(file.schema_arrow.names)
        wanted = [name for name in read_schema.names if name in there]
        if not wanted:
            for batch in rows_without_columns(about.num_rows):
                yield from self._finish(widened(batch, read_schema, place), values)
            return
        rows = int(np.clip(_BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1), _LEAST_ROWS, _MOST_ROWS))
        for batch in file.iter_batches(batch_size=rows, row_groups=[row_group], columns=wanted, use_threads=False):
            given = batch if opened.rebase is None else opened.rebase(batch)
            yield from self._finish(widened(given, read_schema, place), values)


_footers: dict[str, tuple[_AnyMark, Any]] = {}
"""Those that this process has read last, since splits of one file come one after another."""
_MOST_FOOTERS, _FOOTER_BYTES = 8, 4 << 20


def _kept_footer(path: str, mark: _AnyMark | None) -> Any:
    """``mark``: of the file that is open; None: it may be another one. Returns None if the footer must be read."""
    known = _footers.get(path)
    return known[1] if known is not None and known[0] == mark else None


def _keep_footer(path: str, mark: _AnyMark | None, footer: Any) -> None:
    _footers.pop(path, None)
    if mark is not None and footer.serialized_size <= _FOOTER_BYTES:
        _footers[path] = (mark, footer)
        for old in list(_footers)[:-_MOST_FOOTERS]:  # a copy: other threads change the dictionary at the same time
            _footers.pop(old, None)


def _is_plain(kind: pa.DataType) -> bool:
    """Types whose values every reader of Parquet makes the same of."""
    return kind in _PLAIN or pa.types.is_decimal128(kind)


def _are_plain(footers: Sequence[Footer], wanted: pa.Schema) -> Iterator[bool]:
    """For each file, True if it has all columns, in these very types, and every reader makes the same of them.

    The engine takes ``a`` and ``A`` for one column, and has a column ``file_row_number`` of its own."""
    plain = all(map(_is_plain, wanted.types))
    names, last, fits = set(wanted.names), None, False
    for footer in footers:
        if plain and (last is None or not footer.schema.equals(last)):  # neighbours mostly have one schema
            last = footer.schema
            there = {field.name: plain_type(field.type) for field in last}
            known = Counter(name.lower() for name in there)
            fits = "file_row_number" not in known and all(
                there.get(field.name) == field.type and known[field.name.lower()] == 1 for field in wanted
            )
        times = footer.times
        yield fits and all(names.isdisjoint(others) for others in (times.int96, times.ends, times.rebased))


def _ranges(rows: list[int], ids: list[int]) -> tuple[tuple[tuple[int, int], ...], int]:
    """The ranges of these row groups' rows in the file, those that follow one another as one (none: all of them), and how many rows they
    have. ``rows``: of each row group."""
    joined: list[tuple[int, int]] = []
    if len(ids) < len(rows):
        ends = list(accumulate(rows))
        for g in ids:
            follows = bool(joined) and joined[-1][1] == ends[g] - rows[g]
            joined.append((joined.pop()[0] if follows else ends[g] - rows[g], ends[g]))
    return tuple(joined), sum(rows[g] for g in ids)


# --- footers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """All that the schemas of a file say by themselves."""

    schema: pa.Schema
    leaves: Any
    """Parquet's own schema."""
    sizes: list[tuple[int, int]]
    """Of each leaf, the top-level column and the least bytes that a value takes in Arrow's form."""
    numbers: dict[str, tuple[int, bool]]
    """Of each leaf that is a column of integers or dates, by name: its place, and whether it is one of dates."""
    times: TimeColumns

    @classmethod
    def of(cls, leaves: Any, schema: pa.Schema) -> _Columns:
        top = {name: i for i, name in enumerate(schema.names)}
        columns = [top_level(leaves.column(i).path, top) for i in range(len(leaves))]
        sizes = [(column, _width(schema.field(column).type)) for column in columns]
        numbers = {
            one.name: (i, pa.types.is_date32(one.type))
            for i, one in enumerate(map(schema.field, columns))
            if (pa.types.is_integer(one.type) and one.type != pa.uint64()) or pa.types.is_date32(one.type)
        }
        return cls(schema, leaves, sizes, numbers, TimeColumns.of(leaves, schema))


class _FooterReader:
    """Reads footers of files, on any thread. Neighbours mostly have the same schemas, which are looked at once."""

    def __init__(self) -> None:
        self._last: _Columns | None = None

    def read(self, found: InputFiles, file: InputFile) -> Footer:
        with self._opened(found, file) as stream:
            far = not is_local(found.filesystem)
            mark = etag_of(stream) if far else None
            kept = None if mark is None else _driver_footers.get(file, mark)
            if kept is None:
                metadata, columns = self._parsed(stream, found.label(file.path))
                rows, sizes = _plain_column_bytes(metadata, columns)
                times = columns.times.in_file(metadata, columns.schema)
                copy = _copy(metadata) if far else b""
                kept = Footer(file, columns.schema, rows, sizes, times, _spans(metadata, columns), copy=copy)
                _driver_footers.keep(kept, mark)
            return kept

    def bounds(
        self, names: Iterable[str], copies: Mapping[str, bytes], found: InputFiles, file: InputFile
    ) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """``Footer.bounds`` of these columns. Those of other types are left out. ``copies``: of footers, by path; empty where the file has to be opened."""
        copy = copies[file.path]
        with nullcontext(pa.BufferReader(copy)) if copy else self._opened(found, file) as stream:
            metadata, columns = self._parsed(stream, found.label(file.path))
            known = (name for name in names if name in columns.numbers)
            return {name: _bounds(metadata, *columns.numbers[name]) for name in known}

    def _parsed(self, stream: Any, label: str) -> tuple[Any, _Columns]:
        with pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as opened:
            return opened.metadata, self._columns(opened.metadata.schema, opened.schema_arrow, label)

    @contextmanager
    def _opened(self, found: InputFiles, file: InputFile) -> Generator[Any]:
        """Raises UsageError for a file that is damaged, gone or another one, and where what it is read for fails."""
        label = found.label(file.path)
        try:
            with found.filesystem.open_input_file(file.path) as stream:
                yield stream
                if stream.size() != file.size:
                    raise UsageError(
                        f"{label} has changed since it was listed.", hint="Run again when nothing writes there."
                    )
        except FileNotFoundError:
            raise UsageError(
                f"{label} was listed and is gone now.", hint="Run again when nothing writes there."
            ) from None
        except (OSError, pa.ArrowException) as error:
            what = "is empty" if not file.size else "is truncated, damaged or not a Parquet file"
            raise bad_footer(label, error, "read_parquet", what) from None

    def _columns(self, leaves: Any, schema: pa.Schema, label: str) -> _Columns:
        last = self._last
        if last is not None and leaves.equals(last.leaves) and schema.equals(last.schema):
            return last
        check_once(
            schema.names, lambda twice: f"{label} has two columns '{twice}'.", "Write it again with different names."
        )
        self._last = columns = _Columns.of(leaves, schema)
        return columns


def _copy(metadata: Any) -> bytes:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return sink.getvalue().to_pybytes()


def _plain_bytes(footer: Footer, names: set[str]) -> NDArray[np.int64]:
    """Per row group, of the columns that must be read; at least 1, so that rows without columns count."""
    wanted = [i for i, name in enumerate(footer.schema.names) if name in names]
    return np.maximum(footer.column_bytes[:, wanted].sum(axis=1), footer.rows // 8 + 1)


def _spans(metadata: Any, columns: _Columns) -> dict[str, tuple[int, int]]:
    numbers = {0, metadata.num_row_groups // 2, metadata.num_row_groups - 1} if metadata.num_row_groups else ()
    groups = [metadata.row_group(number) for number in numbers]
    found: dict[str, tuple[int, int]] = {}
    for name, (place, is_date) in columns.numbers.items():
        if is_date:
            continue
        told = [one for group in groups if (one := group.column(place).statistics) is not None]
        ends = [(one.min, one.max) for one in told if one.has_min_max]
        if ends:
            found[name] = min(least for least, _ in ends), max(most for _, most in ends)
    return found


def _bounds(metadata: Any, place: int, is_date: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and the greatest value of a column in each row group. A row group without statistics gets the ends of int64."""
    ends = np.iinfo(np.int64)
    found = np.empty((metadata.num_row_groups, 2), np.int64)
    for g in range(metadata.num_row_groups):
        told = metadata.row_group(g).column(place).statistics
        if told is None or not told.has_min_max:
            found[g] = ends.min, ends.max
        else:
            found[g] = (told.min_raw, told.max_raw) if is_date else (told.min, told.max)
    return found[:, 0], found[:, 1]


def _meets(
    starts: NDArray[np.int64], ends: NDArray[np.int64], least: NDArray[np.int64], most: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """For each row group, by its least and greatest value, returns whether one of the ranges reaches into it."""
    first = np.searchsorted(ends, least)  # the first range that does not end before the row group begins
    met = first < len(ends)
    met[met] = starts[first[met]] <= most[met]
    return met


def _plain_column_bytes(metadata: Any, columns: _Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows per row group, and an estimate of the bytes each top-level column takes in Arrow's form.

    A column chunk's uncompressed size is of encoded values, which dictionaries make small; a value takes at least
    its type's width (4 bytes of offset for what has no fixed width).
    """
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    sizes = [[0] * len(columns.schema) for _ in groups]
    for group, of_group in zip(groups, sizes, strict=True):
        for i, (column, width) in enumerate(columns.sizes):
            chunk = group.column(i)
            of_group[column] += max(chunk.total_uncompressed_size, chunk.num_values * width)
    rows = np.array([group.num_rows for group in groups], np.int64)
    return rows, np.array(sizes, np.int64).reshape(len(groups), len(columns.schema))


def _width(data_type: pa.DataType) -> int:
    if pa.types.is_nested(data_type) or pa.types.is_null(data_type):
        return 1
    try:
        return max(1, data_type.bit_width // 8)
    except ValueError:
        return 4


# --- sink ----------------------------------------------------------------------------------------------------


class ParquetSink(FileSink):
    """Writes a directory of Parquet files; with no rows at all, one file that has the schema.

    ``compression``: what pyarrow's Parquet writer takes (``"snappy"``, ``"zstd"``, ``"none"``, ...). ``merge_schema``: what is
    appended may have other columns than what is there, and types that can be read as one with those. ``buckets``: by which rows come.
    """

    kind = "write_parquet"
    extension = "parquet"
    chunk_bytes = ROW_GROUP_BYTES

    def __init__(
        self,
        path: PathLike,
        *,
        compression: str = "snappy",
        merge_schema: bool = False,
        buckets: Buckets | None = None,
        **options: Any,
    ) -> None:
        """``options``: those of :class:`~firesteel.connectors.files.writing.sinks.FileSink`."""
        super().__init__(path, **options)
        self._merges = check_merge_schema(merge_schema, self.kind)
        self._compression = check_compression(compression)
        self._buckets = buckets
        if buckets is not None:
            self._layout = replace(self._layout, bucket=buckets.number)

    def _check_schema(self, schema: pa.Schema) -> None:
        where = f"write_parquet to {self.target.label}"
        if not len(schema):
            raise UsageError(f"{where}: the stream has no columns, and Parquet needs at least one.")
        check_once(schema.names, lambda twice: f"{where}: there are two columns '{twice}'.", "Rename one with select.")
        for field in schema:
            try:
                probe = pa.table({"probe": pa.nulls(1, _loosened(field.type))})
                pq.write_table(probe, pa.BufferOutputStream(), compression="none")
            except (OSError, pa.ArrowException) as error:
                raise UsageError(
                    f"{where}: Parquet cannot hold column '{field.name}' of type {field.type} ({first_line(error)}).",
                    hint="Cast it to another type or drop it.",
                ) from None

    def _check_same_columns(self, schema: pa.Schema) -> None:
        """One of the files that are there stands for all: they could not be read as one source otherwise."""
        path = _some_file(self.target.filesystem, self.target.path)
        if path is None:
            return
        try:
            with self.target.filesystem.open_input_file(path) as file, pq.ParquetFile(file) as opened:
                there, notes = plain_schema(opened.schema_arrow), opened.metadata.metadata or {}
        except (OSError, pa.ArrowException):  # whoever reads it will be told
            return
        self._check_same_buckets(notes.get(NOTE, b"").decode())
        given = plain_schema(schema)
        for name in dict.fromkeys([*given.names, *there.names]):
            kinds = [s.field(name).type if name in s.names else None for s in (there, given)]
            if not self._go_together(*kinds):
                said = ["no such column" if kind is None else str(kind) for kind in kinds]
                raise UsageError(
                    f"What is in {self.target.label} does not fit: column '{name}' is {said[0]} there and {said[1]} in the stream, "
                    "so that both could not be read together.",
                    hint="Bring the stream's columns to what is there (with_column, select), or write to another directory."
                    + (
                        ""
                        if self._merges
                        else " Columns may be new or missing with merge_schema=True, here and where it is read."
                    ),
                )

    def _check_same_buckets(self, there: str) -> None:
        """Spark would look for rows in the wrong files."""
        given = "" if self._buckets is None else self._buckets.words
        if given != there:
            said = ["not known to be in buckets" if not words else f"in buckets ({words})" for words in (there, given)]
            raise UsageError(
                f"What is in {self.target.label} is {said[0]}, and the rows to write are {said[1] if given else 'in none'}.",
                hint="Write with the same bucket_by, or to another directory.",
            )

    def _go_together(self, there: pa.DataType | None, given: pa.DataType | None) -> bool:
        if there is None or given is None:
            return self._merges
        return there.equals(given) or (self._merges and common_type(there, given) is not None)

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        notes = {} if self._buckets is None else {NOTE.decode(): self._buckets.words}
        return ParquetPart(stream, schema, self._compression, self.chunk_bytes if self._layout.is_direct else 0, notes)


def check_compression(compression: str) -> str:
    """Raises UsageError for one that pyarrow's Parquet writer does not take."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([("a", pa.int8())]), compression=compression).close()
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException):
        raise UsageError(
            f"compression={compression!r} is not one that Parquet has here.",
            hint="Use snappy, zstd, gzip, lz4, brotli or none.",
        ) from None
    return compression


def _some_file(filesystem: pafs.FileSystem, folder: str) -> str | None:
    """Of a tree, the first file of data that is met; None if there is none. Of each folder, one listing."""
    infos: list[Any] = filesystem.get_file_info(pafs.FileSelector(folder))
    seen = [info for info in infos if not is_hidden(info.base_name)]
    files = (info.path for info in seen if info.is_file)
    below = (_some_file(filesystem, info.path) for info in seen if not info.is_file)
    return next(files, None) or next(filter(None, below), None)


def _loosened(type_: pa.DataType) -> pa.DataType:
    """The type with all fields of its structs nullable, so that one null makes a row of it."""
    if not pa.types.is_struct(type_):
        return type_
    return pa.struct([field.with_type(_loosened(field.type)).with_nullable(True) for field in type_])


WITHOUT_NAN = b"firesteel.without-nan"
"""The footer's note of the columns without NaN, of which its statistics say nothing: a list of names as JSON."""


class ParquetPart(GatheringPart):
    """A Parquet file in row groups of about ``enough`` bytes. ``notes``: in its footer. ``looks_for_nan``: the footer names the columns of
    floating-point numbers without NaN, too."""

    def __init__(
        self,
        stream: Any,
        schema: pa.Schema,
        compression: str,
        enough: int,
        notes: Mapping[str, str] | None = None,
        *,
        looks_for_nan: bool = False,
    ) -> None:
        super().__init__(schema, enough)
        floats = {field.name for field in schema if pa.types.is_floating(field.type)}
        self._without_nan = floats if looks_for_nan else set[str]()
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)
        if notes:
            self._writer.add_key_value_metadata(notes)

    def discard(self) -> None:
        super().discard()
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # else it tries again when it is collected

    def _write_piece(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches, self._schema)
        self._without_nan = {name for name in self._without_nan if not pc.any(pc.is_nan(table[name])).as_py()}
        self._writer.write_table(table)

    def _end(self) -> None:
        if self._without_nan:
            self._writer.add_key_value_metadata({WITHOUT_NAN.decode(): json.dumps(sorted(self._without_nan))})
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Calendar:
    """Which values of a file Spark wrote in the hybrid of the Julian and the Gregorian calendar."""

    dates: bool
    """Dates, and timestamps of 64 bits."""
    int96: bool
    zone: str | None
    """Of the hybrid timestamps' local times; None: the footer does not tell."""

    @classmethod
    def of(cls, notes: Mapping[bytes, bytes]) -> Calendar:
        """By a footer's notes, as Spark judges them. What other writers wrote is taken as Gregorian, as Spark 4 does by default."""
        version = notes.get(b"org.apache.spark.version")
        if version is None:
            return cls(False, False, None)
        number = [int(part) for part in version.split(b".")[:2] if part.isdigit()]
        zone = notes.get(b"org.apache.spark.timeZone")
        return cls(
            number < [3, 0] or b"org.apache.spark.legacyDateTime" in notes,
            number < [3, 1] or b"org.apache.spark.legacyINT96" in notes,
            None if zone is None else zone.decode(errors="replace"),
        )

    @property
    def is_hybrid(self) -> bool:
        return self.dates or self.int96


@dataclass(frozen=True, slots=True)
class Times:
    """Of one file, by the names of its columns."""

    hybrid: bool
    """True: Spark wrote it in the hybrid of the Julian and the Gregorian calendar."""
    rebased: frozenset[str]
    """Columns that may hold, also deep inside, values that are others in the Gregorian calendar: their statistics are of the other one."""
    int96: frozenset[str]
    """Columns of timestamps in the form that says nothing of a zone, nor has statistics."""
    ends: frozenset[str]
    """Columns of days and timestamps that may hold the first or the last value of their type, which some readers take for infinite."""
    early: frozenset[str]
    """Columns that may hold, also deep inside, days before 15 October 1582 or times before 1900, of an unknown writer: nobody knows in
    which calendar."""


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """The columns of days and times of all files that have the same schemas."""

    int96: frozenset[str]
    whole: list[tuple[int, str]]
    """By leaf, the names of those that are not inside others."""
    known: list[tuple[int, str, int]]
    """By leaf, also inside others, the top-level column and the first value that is the same in both calendars."""

    @classmethod
    def of(cls, leaves: Any, schema: pa.Schema) -> TimeColumns:
        """``leaves``: Parquet's own schema."""
        times = {field.name for field in schema if pa.types.is_date32(field.type) or pa.types.is_timestamp(field.type)}
        every = [leaves.column(i) for i in range(len(leaves))]
        int96 = [leaf.path for leaf in every if leaf.physical_type == "INT96"]
        whole = [(i, leaf.path) for i, leaf in enumerate(every) if leaf.path in times]
        top = {name: i for i, name in enumerate(schema.names)}
        first = [(i, leaf.path, _first_known(leaf)) for i, leaf in enumerate(every)]
        known = [(i, schema.names[top_level(path, top)], value) for i, path, value in first if value is not None]
        return cls(frozenset(int96), whole, known)

    def in_file(self, metadata: Any, schema: pa.Schema) -> Times:
        """By the statistics; what has none may hold any value."""
        calendar = Calendar.of(metadata.metadata or {})
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)] if self.known or self.whole else []
        ends = {name for i, name in self.whole if any(_reaches_end(group.column(i)) for group in groups)}
        by_spark = b"org.apache.spark.version" in (metadata.metadata or {})
        old = (
            frozenset(
                n for i, n, first in self.known if any(_reaches_below(group.column(i), first) for group in groups)
            )
            if calendar.is_hybrid or not by_spark
            else frozenset[str]()
        )
        rebased, early = (old, frozenset[str]()) if by_spark else (frozenset[str](), old)
        return Times(calendar.is_hybrid, rebased, self.int96, frozenset(ends), early)


def _reaches_end(chunk: Any) -> bool:
    told = chunk.statistics
    if told is None or not told.has_min_max:
        return told is None or not told.has_null_count or told.null_count < chunk.num_values
    most = (1 << 31 if chunk.physical_type == "INT32" else 1 << 63) - 1
    return not isinstance(told.max_raw, int) or told.max_raw >= most or told.min_raw <= -most


_FIRST_DAY = -141427
_FIRST_SECOND = -2208988800
_PER_SECOND = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def _first_known(leaf: Any) -> int | None:
    """The first value of a day or time that is the same in both calendars; None: the column holds something else."""
    if leaf.physical_type == "INT96":  # without statistics
        return 0
    if leaf.logical_type.type == "DATE":
        return _FIRST_DAY
    unit = json.loads(leaf.logical_type.to_json()).get("timeUnit") if leaf.logical_type.type == "TIMESTAMP" else None
    return None if unit is None else _FIRST_SECOND * _PER_SECOND[unit]


def _reaches_below(chunk: Any, first: int) -> bool:
    told = chunk.statistics
    if told is None or not told.has_min_max:
        return told is None or not told.has_null_count or told.null_count < chunk.num_values
    return not isinstance(told.min_raw, int) or told.min_raw < first


def top_level(path: str, top: dict[str, int]) -> int:
    """The column that a leaf ``a.list.element`` belongs to; names may have dots themselves, so the longest wins."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        index = top.get(".".join(parts[:end]))
        if index is not None:
            return index
    raise UsageError(f"The Parquet column '{path}' belongs to no column of the file's schema.")


# --- from the hybrid calendar ----------------------------------------------------------------------------------------

_Change = Callable[[Any], Any]
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu"}
_DAY = 86_400


class Rebase:
    """Turns the batches of a file in the hybrid calendar into Gregorian ones: a value keeps its year, month, day and time of day.

    Exact for dates, and for timestamps of UTC. Of other zones, and of unknown ones, times before 1900 are refused."""

    def __init__(self, calendar: Calendar, leaves: Any, schema: pa.Schema, label: str) -> None:
        """``leaves``: Parquet's own schema; ``label``: the file, for messages."""
        self._calendar, self._label, self._column = calendar, label, ""
        each = (leaves.column(i) for i in range(len(leaves)))
        changes = {field.name: self._change(field.type, each) for field in schema}
        self._changes = {name: change for name, change in changes.items() if change is not None}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, which may have fewer columns than the file. Raises FiresteelError for times that it cannot turn exactly."""
        for place, name in enumerate(batch.schema.names):
            change = self._changes.get(name)
            if change is not None:
                self._column = name
                batch = batch.set_column(place, batch.schema.field(place), change(batch.column(place)))
        return batch

    def _change(self, kind: pa.DataType, leaves: Iterator[Any]) -> _Change | None:
        """What to do with arrays of this type; None: nothing. Takes its leaves, of which Arrow's types have the same order."""
        types = pa.types
        if types.is_struct(kind):
            parts = [self._change(field.type, leaves) for field in kind]
            return partial(_in_struct, parts) if any(parts) else None
        if types.is_map(kind):
            parts = [self._change(inner, leaves) for inner in (kind.key_type, kind.item_type)]
            return partial(_in_map, parts) if any(parts) else None
        if types.is_nested(kind):
            part = self._change(kind.value_type, leaves)
            return partial(_in_list, part) if part is not None else None
        leaf = next(leaves)
        if types.is_date32(kind):
            return _gregorian_days if self._calendar.dates else None
        int96 = leaf.physical_type == "INT96"
        if not types.is_timestamp(kind) or not (self._calendar.int96 if int96 else self._calendar.dates and kind.tz):
            return None
        return self._gregorian_times

    def _gregorian_times(self, array: Any) -> Any:
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
        values = array.view(pa.int64())
        least = pc.min(values).as_py()
        if least is None or least >= _FIRST_SECOND * per_second:
            return array
        if self._calendar.zone not in _UTC:
            zone = "an unknown time zone" if self._calendar.zone is None else f"the time zone {self._calendar.zone}"
            raise FiresteelError(
                f"{self._label}: column '{self._column}' holds times before 1900 of {zone}, in the calendar before Spark 3, "
                "which are turned into today's calendar only for UTC.",
                hint="Read the file with Spark: env.from_dataframe(spark.read.parquet(...)).",
            )
        per_day = _DAY * per_second
        return _shifted(values, lambda given: _days_apart(given // per_day) * per_day).view(array.type)


def _days_apart(days: Any) -> Any:
    """What to add to days since 1970 of the hybrid calendar, so that the same date in the Gregorian one comes out.

    Both calendars lose a day against each other at the end of February of each century, but for every fourth. Years are of March here,
    so that the 29th of February that only the Julian one has becomes the 1st of March."""
    years = (4 * (days + 2_440_528) + 3) // 1461 - 4712  # since 1 March 4713 BC, of 365.25 days each
    return np.where(days < _FIRST_DAY, years // 400 - years // 100 + 2, 0)


def _shifted(values: Any, apart: Callable[[Any], Any]) -> Any:
    given = np.asarray(values.fill_null(0)).astype(np.int64)
    return pa.array(given + apart(given), pa.int64(), mask=np.asarray(values.is_null()))


def _gregorian_days(array: Any) -> Any:
    days = array.view(pa.int32())
    least = pc.min(days).as_py()
    if least is None or least >= _FIRST_DAY:
        return array
    return _shifted(days, _days_apart).cast(pa.int32()).view(pa.date32())


def _in_struct(parts: list[_Change | None], array: Any) -> Any:
    columns = [column if part is None else part(column) for part, column in zip(parts, array.flatten(), strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(array.type), mask=array.is_null())


def _in_list(part: _Change, array: Any) -> Any:
    return _with_values(array, part(array.values))


def _in_map(parts: list[_Change | None], array: Any) -> Any:
    inner = [
        values if part is None else part(values) for part, values in zip(parts, (array.keys, array.items), strict=True)
    ]
    fields = [array.type.key_field, array.type.item_field]
    return _with_values(array, pa.StructArray.from_arrays(inner, fields=fields))


def _with_values(array: Any, values: Any) -> Any:
    """The list array with other values in the same places."""
    places = array.buffers()[: 1 if pa.types.is_fixed_size_list(array.type) else 2]
    return pa.Array.from_buffers(array.type, len(array), places, offset=array.offset, children=[values])
