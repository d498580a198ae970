"""Merges the objects of neighbouring partitions into one, by subpartition: what many readers would each fetch in many small
requests, each then gets in one.

The objects are read in few large requests. Small slices are decoded, ordered and encoded together; large ones are copied
as they are stored. Within a subpartition rows keep their order: by producer, and of each producer as it wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.model.arrays import Ints
from firesteel.results import layout
from firesteel.results.layout import Slice
from firesteel.results.messages import (
    MESSAGE_MAX_BYTES,
    MESSAGE_MIN_BYTES,
    Before,
    MessageStream,
    OpenRegion,
    message_cuts,
    put_in_order,
    whole_batch,
)
from firesteel.results.plain import add_row_bytes, stored_schema
from firesteel.results.reader import (
    Chunk,
    ObjectName,
    blaming,
    checked_message,
    chunks_of,
    decode_message,
    fetched,
    own_object,
)
from firesteel.results.storage.objects import ObjectCache, file_limit
from firesteel.results.storage.store import ResultStore, StorageError

OWN_MESSAGE_BYTES = 32 << 10
"""A subpartition with so many bytes shares no message of a merged object with its neighbours: each has its own reader."""
COPY_BYTES = MESSAGE_MIN_BYTES // 2
"""Messages of one subpartition alone, from so many plain bytes on, are copied as they are stored."""
FEWEST_BUDGET = 8 << 20
MOST_WINDOW_BYTES = 1 << 30
"""Rows ordered together: their columns must be addressable by 32-bit string offsets."""
THREADS = 16
"""Objects of a remote store that are asked for at once."""
WHOLE_BYTES = 4 << 20
"""Objects up to so large are fetched whole, if all of them may be held."""
OUTPUT_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class MergeInput:
    """Input of a merge: partitions ``first`` .. ``end - 1`` of a data set, as a gate describes it (``reader.GateReader``)."""

    dataset: int
    schema: pa.Schema
    num_subpartitions: int
    attempts: Ints
    tokens: Ints
    first: int
    end: int
    partitions: Ints | None = None


@dataclass(slots=True)
class _Source:
    """One of the objects, and what its index says of all subpartitions, region by region."""

    name: ObjectName
    index: list[Slice]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A part of a source's messages, in memory."""

    chunk: Chunk
    data: pa.Buffer


def merge_objects(store: ResultStore, given: MergeInput, name: str, *, memory_budget: int, codec: str) -> int:
    """Writes the object ``name``; its size in bytes. What was begun is removed when this raises.

    ``memory_budget``: bytes that may be held, beside 16 bytes for each object and subpartition.
    Raises PartitionException for an object that is missing or damaged, StorageError when the store fails.
    """
    merge = _Merge(store, given, max(memory_budget, FEWEST_BUDGET), codec)
    try:
        return merge.write(name)
    finally:
        merge.close()


@dataclass(frozen=True, slots=True)
class _Output:
    """Messages on their way out, and the region that notes them."""

    region: OpenRegion
    out: MessageStream

    def add(self, batch: pa.RecordBatch) -> None:
        self.region.add_message(self.out.offset, batch.num_rows)
        self.out.add(batch)

    def add_stored(self, message: pa.Buffer, seal: int, rows: int) -> None:
        self.region.add_message(self.out.offset, rows)
        self.out.add_stored(message, seal)


class _Merge:
    def __init__(self, store: ResultStore, given: MergeInput, budget: int, codec: str) -> None:
        self._store, self._given, self._codec = store, given, codec
        self._threads = 0 if store.is_local else THREADS
        self._schema = stored_schema(given.schema)
        self._print = layout.schema_print(self._schema)
        self._hold = budget // 4  # stored bytes in memory; what they become when decoded has the rest
        self._order = min(budget // 8, MOST_WINDOW_BYTES)
        count = max(given.end - given.first, 1)
        self._objects = ObjectCache(
            store,
            index_bytes=self._hold,
            files=file_limit(),
            tail_bytes=int(np.clip(self._hold // count, 64 << 10, WHOLE_BYTES)),
        )

    def close(self) -> None:
        self._objects.close()

    def write(self, name: str) -> int:
        sources = [_Source(source, index) for source, index in fetched(self._names(), self._index, self._threads)]
        count = self._given.num_subpartitions
        rows, plain, stored = (np.zeros(count, np.int64) for _ in range(3))
        for source in sources:
            for piece in source.index:
                rows += np.diff(piece.rows)
                plain += np.diff(piece.plain)
                stored += _stored_bytes(piece)
        target = self._store.open_output(name)
        out = MessageStream(target, self._codec, min(OUTPUT_BUFFER_BYTES, self._hold // 2))
        try:
            region = OpenRegion(count)
            region.extend(_before(rows), _before(plain))
            for low, high in windows(stored, self._hold):
                self._window(sources, low, high, plain, _Output(region, out))
            out.drain()
            identity = layout.Identity.of(name, self._schema, count)
            regions = [region.close(out.offset)] if region.rows else []
            return out.finish(layout.encode_footer(regions, out.seals, out.offset, identity))
        except BaseException:
            for step in (out.discard, lambda: self._store.delete([name])):
                with suppress(StorageError):
                    step()
            raise

    def _names(self) -> Iterator[ObjectName]:
        given = self._given
        for partition in range(given.first, given.end):
            yield own_object(given.dataset, partition, given.attempts, given.tokens, given.partitions)

    def _object(self, name: ObjectName) -> Any:
        return self._objects.object(name.name, self._given.num_subpartitions, self._print)

    def _index(self, name: ObjectName) -> list[Slice]:
        with blaming(name, self._given.dataset, self._store):
            opened = self._object(name)
            try:
                return opened.index().slices(0, self._given.num_subpartitions, opened.fetch)
            finally:
                opened.close()

    def _load(self, source: _Source, low: int, high: int) -> Iterator[_Loaded]:
        """The source's messages with rows of subpartitions [low, high), a few MiB at a time."""
        chunks = chunks_of(source.index, low, high, self._objects.tail_bytes)
        if not chunks:
            return
        with blaming(source.name, self._given.dataset, self._store):
            opened = self._object(source.name)
            try:
                for chunk in chunks:
                    yield _Loaded(chunk, opened.read(chunk.begin, chunk.end))
            finally:
                opened.close()

    def _window(self, sources: Sequence[_Source], low: int, high: int, plain: Ints, output: _Output) -> None:
        """Subpartitions [low, high): as many as may be held, or a single one that is streamed."""
        appender = _Appender(self._schema, output)
        if high - low == 1:
            for source in sources:
                with blaming(source.name, self._given.dataset, self._store):
                    for loaded in self._load(source, low, high):
                        appender.append(loaded, low)
            appender.flush()
            return
        held = [
            (source, loaded)
            for source, loaded in fetched(sources, lambda source: list(self._load(source, low, high)), self._threads)
            if loaded
        ]
        for begin, end, copied in self._runs(held, low, high, plain):
            if copied:
                for source, loaded in held:
                    with blaming(source.name, self._given.dataset, self._store):
                        for one in loaded:
                            appender.append(one, begin)
                appender.flush()
            else:
                self._ordered(held, begin, end, output)

    def _runs(
        self, held: Sequence[tuple[_Source, list[_Loaded]]], low: int, high: int, plain: Ints
    ) -> Iterator[tuple[int, int, bool]]:
        """Cuts [low, high) into (begin, end, copied): single subpartitions that are copied, runs that are ordered in memory."""
        alone = plain[low:high] > 0
        for source, _ in held:
            for piece in source.index:
                alone &= _alone(piece, low, high)
        alone |= plain[low:high] > self._order  # too large to order, and there is nothing to order
        begin = low
        for single in [*(low + np.flatnonzero(alone)).tolist(), high]:
            for first, end in windows(plain[begin:single], self._order):
                yield begin + first, begin + end, False
            if single < high:
                yield single, single + 1, True
            begin = single + 1

    def _ordered(self, held: Sequence[tuple[_Source, list[_Loaded]]], low: int, high: int, output: _Output) -> None:
        """All rows of subpartitions [low, high), ordered by subpartition, appended as messages."""
        batches: list[pa.RecordBatch] = []
        parts: list[Ints] = []
        numbers = np.arange(high - low)
        for source, loaded in held:
            with blaming(source.name, self._given.dataset, self._store):
                for one in loaded:
                    batches += _rows_of(one, low, high, self._schema)
            for piece in source.index:
                parts.append(np.repeat(numbers, np.diff(piece.rows[low : high + 1])))
        if not batches:
            return
        ids = np.concatenate(parts)
        columns = [pa.concat_arrays([batch.column(k) for batch in batches]) for k in range(len(self._schema))]
        del batches
        order = np.argsort(ids.astype(np.uint16) if high - low <= 1 << 16 else ids, kind="stable")
        constant, varying = add_row_bytes(columns)
        before = Before(None if varying is None else varying[order], constant)
        bounds = _before(np.bincount(ids, minlength=high - low))
        cuts = message_cuts(bounds, before, OWN_MESSAGE_BYTES)
        put_in_order(columns, order)
        rows = whole_batch(columns, len(order), self._schema)
        for first, end in cuts:
            output.add(rows.slice(first, end - first))


class _Appender:
    """Appends one subpartition's rows message by message: large messages as they are, small ones joined."""

    def __init__(self, schema: pa.Schema, output: _Output) -> None:
        self._schema, self._output = schema, output
        self._small: list[pa.RecordBatch] = []
        self._bytes = 0

    def append(self, loaded: _Loaded, subpartition: int) -> None:
        for piece, number in loaded.chunk.messages:
            begin, end = int(piece.rows[subpartition]), int(piece.rows[subpartition + 1])
            first, last = int(piece.message_rows[number]), int(piece.message_rows[number + 1])
            if begin == end or first >= end or last <= begin:
                continue
            size = int(piece.plain[subpartition + 1] - piece.plain[subpartition])
            if begin <= first and last <= end and size >= COPY_BYTES:
                self.flush()
                message = checked_message(loaded.data, loaded.chunk.begin, piece, number)
                self._output.add_stored(message, int(piece.message_seals[number]), last - first)
                continue
            batch = decode_message(loaded.data, loaded.chunk.begin, piece, number, self._schema)
            cut = max(begin - first, 0)
            self._add(batch.slice(cut, min(end - first, batch.num_rows) - cut))

    def _add(self, batch: pa.RecordBatch) -> None:
        self._small.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= MESSAGE_MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._small:
            whole = self._small[0] if len(self._small) == 1 or not len(self._schema) else pa.concat_batches(self._small)
            for batch in [whole] if len(self._schema) else self._small:
                self._output.add(batch)
        self._small, self._bytes = [], 0


def windows(sizes: Ints, limit: int) -> Iterator[tuple[int, int]]:
    """Cuts subpartitions into runs [low, high) of at most ``limit`` bytes; a larger one is a run of its own."""
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        done = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, done + limit, side="right")), low + 1)
        yield low, high
        low = high


def _rows_of(loaded: _Loaded, low: int, high: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece, number in loaded.chunk.messages:
        begin, end = int(piece.rows[low]), int(piece.rows[high])
        first, last = int(piece.message_rows[number]), int(piece.message_rows[number + 1])
        if begin < end and first < end and last > begin:
            batch = decode_message(loaded.data, loaded.chunk.begin, piece, number, schema)
            cut = max(begin - first, 0)
            yield batch.slice(cut, min(end - first, batch.num_rows) - cut)


def _alone(piece: Slice, low: int, high: int) -> Any:
    """bool[high - low]: subpartitions that have no rows in the region, or messages of their own that are worth copying."""
    rows = piece.rows[low : high + 1]
    places = np.searchsorted(piece.message_rows, rows)
    begins = piece.message_rows[np.minimum(places, len(piece.message_rows) - 1)] == rows
    large = np.diff(piece.plain[low : high + 1]) >= COPY_BYTES
    return (np.diff(rows) == 0) | (begins[:-1] & begins[1:] & large)


def _stored_bytes(piece: Slice) -> Ints:
    """About the stored bytes of each subpartition: those of its messages, by its share of their rows."""
    return np.diff(np.interp(piece.rows, piece.message_rows, piece.message_offsets)).astype(np.int64)


def _before(sizes: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
