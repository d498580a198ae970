"""Reads ranges of keys from objects whose rows are in order: what ``reader`` does for subpartitions.

The keys in an object's index say which messages may hold keys of a range; only these are read, and of those at its ends
the rows beyond are cut off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.order import Order
from firesteel.model.sketches import Boundaries
from firesteel.results import layout
from firesteel.results.layout import Slice
from firesteel.results.order.key_ranges import KeyRange, RegionKeys, decode_keys_of, key_ranges
from firesteel.results.order.ordering import key_list, rows_before, suffix_of
from firesteel.results.plain import add_row_bytes
from firesteel.results.reader import (
    INDEX_CACHE_BYTES,
    Chunk,
    GateReader,
    ObjectName,
    blaming,
    chunks_of,
    compact,
    decode_message,
    gathered,
)
from firesteel.results.storage.objects import ObjectCache, StoredObject
from firesteel.results.storage.store import ResultStore


@dataclass(slots=True)
class _Run(Slice):
    """The messages of one region that may hold keys of a range: rows in order. Numbers count from the first of them."""

    cut_before: int
    """Number of messages at the beginning that may hold keys before the range,"""
    cut_from: int
    """and the first of those that may hold keys beyond it."""


@dataclass(frozen=True, slots=True)
class _Target:
    """One object's part of a read."""

    source: ObjectName
    keys: KeyRange


@dataclass(frozen=True, slots=True)
class _Index:
    """Of one object: its regions, each with all its messages and their keys."""

    regions: list[tuple[Slice, RegionKeys]]

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes + keys.nbytes for piece, keys in self.regions)

    def runs(self, keys: KeyRange) -> list[_Run]:
        found: list[_Run] = []
        for piece, index in self.regions:
            first, end = index.between(keys.low, keys.high)
            if first < end:
                found.append(_run(piece, index, keys, first, end))
        return found


class RangeReader(GateReader):
    """One input of one execution whose producers wrote their rows in ``order``.

    The subpartitions that ``rects`` name are ranges of keys, cut at ``boundaries``. The rest as for ``GateReader``; the
    rows of one producer in one of its regions come in order, region after region.
    """

    def __init__(  # noqa: PLR0917 - the columns of a gate, in their order
        self,
        store: ResultStore,
        dataset: int,
        schema: pa.Schema,
        order: Order,
        boundaries: Boundaries,
        attempts: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rects: NDArray[np.int32],
        partitions: NDArray[np.int64] | None = None,
        cache: ObjectCache | None = None,
    ) -> None:
        super().__init__(store, dataset, schema, 1, attempts, tokens, rects, partitions, None, cache)
        self._print = layout.schema_print(self._stored, str(order))
        self._order = order
        self._places = order.places(self._stored)
        self._boundaries = boundaries
        self._indexes: dict[str, _Index] = {}
        self._indexes_bytes = 0
        self._keep_bytes = 0
        self._kept: dict[tuple[str, int], pa.RecordBatch] = {}
        """By object and offset: messages that reach beyond the range that was read last."""

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """(first range, about how many plain bytes each has): a message's bytes are spread over the ranges it meets."""
        if not self._rects:
            return 0, np.zeros(0, np.int64)
        first, end = min(rect[2] for rect in self._rects), max(rect[3] for rect in self._rects)
        sizes = np.zeros(end - first + 1)
        for low, high, sources in self._sources_of(None, None):
            for index in map(self._index_of, sources):
                for _, keys in index.regions:
                    self._spread(keys, low, high, sizes[low - first :])
        return first, np.cumsum(sizes[:-1]).astype(np.int64)

    def _spread(self, keys: RegionKeys, low: int, high: int, changes: NDArray[np.float64]) -> None:
        """Adds to ``changes``, the differences between each range's bytes and the range's before, from ``low`` on."""
        cuts = self._boundaries.keys
        first, end = keys.between(self._boundaries.low(low), self._boundaries.high(high - 1))
        met = np.fromiter((bisect_right(cuts, key) for key in keys.keys[first : end + 1]), np.int64, end + 1 - first)
        begin, last = met[:-1], met[1:]
        each = np.diff(keys.plain[first : end + 1]) / (last - begin + 1)
        inside = (last >= low) & (begin < high)
        np.add.at(changes, np.maximum(begin, low)[inside] - low, each[inside])
        np.add.at(changes, np.minimum(last + 1, high)[inside] - low, -each[inside])

    def ranges(self, subpartition_from: int, subpartition_to: int, limit: int) -> list[KeyRange]:
        """The keys of these ranges, in order, in parts of about ``limit`` plain bytes; a single key may have more."""
        low, high = self._boundaries.low(subpartition_from), self._boundaries.high(subpartition_to - 1)
        regions = [
            keys
            for _, _, sources in self._sources_of(subpartition_from, subpartition_to)
            for index in map(self._index_of, sources)
            for _, keys in index.regions
        ]
        return key_ranges(regions, low, high, limit)

    def read_keys(self, keys: KeyRange, keep_bytes: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range of keys, as stored: see ``declared``.

        ``keep_bytes``: plain bytes of messages, with keys beyond the range, that are kept for the next one, where it ends.
        """
        self._keep_bytes = keep_bytes - sum(batch.nbytes for batch in self._kept.values())
        yield from gathered(self._rows(self._targets_in(keys)), self._stored)

    def open_bytes(self, keys: KeyRange) -> int:
        """Plain bytes of one message, the largest, of each region that may hold keys of a range."""
        return sum(
            int(np.diff(own.plain[first : end + 1]).max())
            for _, _, sources in self._sources_of(None, None)
            for index in map(self._index_of, sources)
            for _, own in index.regions
            for first, end in [own.between(keys.low, keys.high)]
            if first < end
        )

    def read_parts(self, parts: Sequence[KeyRange]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Stored rows of neighbouring ranges, and the number of the one each batch lies in: every message is read once.

        Of one range the rows come as ``read_keys`` would give them.
        """
        bounds = [part.low or b"" for part in parts[1:]]
        for target, batch in self._pairs(self._targets_in(KeyRange(parts[0].low, parts[-1].high))):
            yield from self._cut(batch, bounds, suffix_of(self._order, target.source.partition))

    def _cut(self, batch: pa.RecordBatch, bounds: list[bytes], suffix: bytes) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows in order, cut where they pass one of ``bounds``."""
        columns = [batch.column(place) for place in self._places]
        ends = pa.array([0, batch.num_rows - 1])
        first, last = key_list([column.take(ends) for column in columns], self._order, suffix)
        at = 0
        for number in range(bisect_right(bounds, first), bisect_right(bounds, last) + 1):
            rest = [column.slice(at) for column in columns]
            is_last = number == len(bounds) or bounds[number] > last
            end = batch.num_rows if is_last else at + rows_before(rest, self._order, bounds[number], suffix)
            if end > at:
                yield number, batch.slice(at, end - at)
            at = end

    def _targets_in(self, keys: KeyRange) -> Iterator[_Target]:
        for low, high, sources in self._sources_of(None, None):
            own = self._boundaries.low(low), self._boundaries.high(high - 1)
            part = KeyRange(_last(keys.low, own[0]), _first(keys.high, own[1]))
            if part.low is None or part.high is None or part.low < part.high:
                yield from (_Target(source, part) for source in sources)

    def declared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Stored rows in the declared types."""
        return self._declared(batch)

    def _slices(self, subpartition_from: int | None, subpartition_to: int | None) -> Iterator[pa.RecordBatch]:
        for low, high, sources in self._sources_of(subpartition_from, subpartition_to):
            keys = KeyRange(self._boundaries.low(low), self._boundaries.high(high - 1))
            yield from self._rows(_Target(source, keys) for source in sources)

    def _sources_of(
        self, subpartition_from: int | None, subpartition_to: int | None
    ) -> Iterator[tuple[int, int, Iterator[ObjectName]]]:
        """Per rectangle: the ranges [low, high) of it that are wanted, and its objects."""
        for partition_from, partition_to, rect_low, rect_high in self._rects:
            low = rect_low if subpartition_from is None else max(rect_low, subpartition_from)
            high = rect_high if subpartition_to is None else min(rect_high, subpartition_to)
            if low < high:
                yield low, high, self._sources(partition_from, partition_to)

    def _rows(self, targets: Iterator[_Target]) -> Iterator[pa.RecordBatch]:
        return (batch for _, batch in self._pairs(targets))

    def _pairs(self, targets: Iterator[_Target]) -> Iterator[tuple[_Target, pa.RecordBatch]]:
        for target, (chunks, first) in self._fetched(targets, self._first_of):
            if first is None:
                continue
            with blaming(target.source, self._dataset, self._store):
                yield from ((target, batch) for batch in self._trimmed(chunks[0], first, target))
            if len(chunks) > 1:
                with self._opened(target.source) as source:
                    for chunk in chunks[1:]:
                        data = source.read(chunk.begin, chunk.end)
                        yield from ((target, batch) for batch in self._trimmed(chunk, data, target))

    def _first_of(self, target: _Target) -> tuple[list[Chunk], pa.Buffer | None]:
        """Returns the chunks to read of an object, and the bytes of the first one; in one opening."""
        keys = target.keys
        with self._opened(target.source) as source:
            index = self._indexes.get(target.source.name) or self._read_index(source)
            chunks = chunks_of(list(index.runs(keys)), 0, 1, self._gap)
            return chunks, source.read(chunks[0].begin, chunks[0].end) if chunks else None

    def _trimmed(self, chunk: Chunk, data: pa.Buffer, target: _Target) -> Iterator[pa.RecordBatch]:
        schema = self._schema if self._plain else self._stored
        for run, number in chunk.messages:
            assert isinstance(run, _Run)
            place = target.source.name, int(run.message_offsets[number])
            batch = self._kept.pop(place, None)
            if batch is not None:
                self._keep_bytes += batch.nbytes
            else:
                batch = decode_message(data, chunk.begin, run, number, schema)
            batch = self._within(batch, run, number, target)
            if batch.num_rows:
                constant, varying = add_row_bytes(batch.columns)
                self.bytes_read += constant * batch.num_rows + (0 if varying is None else int(varying.sum()))
                yield batch

    def _within(self, batch: pa.RecordBatch, run: _Run, number: int, target: _Target) -> pa.RecordBatch:
        """The rows whose keys are in the range."""
        columns = [batch.column(place) for place in self._places]
        suffix = suffix_of(self._order, target.source.partition)
        low, high, keys = 0, batch.num_rows, target.keys
        if number < run.cut_before and keys.low is not None:
            low = rows_before(columns, self._order, keys.low, suffix)
        if number >= run.cut_from and keys.high is not None:
            high = rows_before(columns, self._order, keys.high, suffix)
            self._keep_beyond(batch, high, run, number, target)
        return batch if high - low == batch.num_rows else compact(batch.slice(low, max(high - low, 0)))

    def _keep_beyond(self, batch: pa.RecordBatch, row: int, run: _Run, number: int, target: _Target) -> None:
        if row < batch.num_rows and (size := batch.nbytes) <= self._keep_bytes:
            self._keep_bytes -= size
            self._kept[target.source.name, int(run.message_offsets[number])] = batch

    def _index_of(self, name: ObjectName) -> _Index:
        index = self._indexes.get(name.name)
        if index is None:
            with self._opened(name) as source:
                index = self._read_index(source)
        return index

    def _read_index(self, source: StoredObject) -> _Index:
        """Raises Damaged."""
        index = source.index()
        regions = index.regions(source.fetch)
        entries = [len(piece.message_offsets) for piece in regions]
        keys = decode_keys_of(index.keys(source.fetch), entries, index.identity.name)
        made = _Index(list(zip(regions, keys, strict=True)))
        if self._indexes_bytes + made.nbytes <= INDEX_CACHE_BYTES:
            self._indexes[source.name] = made
            self._indexes_bytes += made.nbytes
        return made


def _last(one: bytes | None, other: bytes | None) -> bytes | None:
    """Of two beginnings."""
    return other if one is None else one if other is None else max(one, other)


def _first(one: bytes | None, other: bytes | None) -> bytes | None:
    """Of two ends."""
    return other if one is None else one if other is None else min(one, other)


def _run(piece: Slice, index: RegionKeys, keys: KeyRange, first: int, end: int) -> _Run:
    """Messages [first, end) of a region as a piece with one place."""
    rows = piece.message_rows[[first, end]]
    return _Run(
        rows,
        index.plain[[first, end]],
        piece.message_offsets[first : end + 1],
        piece.message_rows[first : end + 1],
        piece.message_seals[first:end],
        index.surely_from(keys.low) - first,
        index.surely_before(keys.high) - first,
    )
