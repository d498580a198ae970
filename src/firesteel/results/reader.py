"""Reads the slices of a data set that one execution consumes: of each producer in its rectangles, a range of subpartitions.

Where the outputs of several producers were merged, and a rectangle covers them all, the merged object is read in their
place. Of an object only what is needed is asked for, neighbouring regions in one request, a few MiB at a time; what says
where it lies is kept (``objects``). Everything read is checked; what is missing or damaged is a PartitionException that
names its producer, or the merged object.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import MERGED_ATTEMPT, PartitionException
from firesteel.results import layout
from firesteel.results.layout import Damaged, Slice, is_sound, unpack
from firesteel.results.plain import TooManyValues, from_stored, stored_schema
from firesteel.results.storage.filesystem import shown
from firesteel.results.storage.objects import ObjectCache, StoredObject
from firesteel.results.storage.store import ResultStore, merged_name, object_name, storage_error

CHUNK_BYTES = 4 << 20
"""Stored bytes fetched at once (a single larger message comes whole)."""
LOCAL_GAP_BYTES = 16 << 10
REMOTE_GAP_BYTES = 256 << 10
"""Parts of an object that lie no further apart are read in one request, with what lies between them."""
READ_AHEAD = 4
"""Objects of a remote store whose index and first chunk are fetched while another one's rows are used."""
INDEX_CACHE_BYTES = 16 << 20
"""Indexes kept between reads of one gate; the ones beyond are read again."""
GATHER_ROWS = 4096
GATHER_BYTES = 4 << 20
"""Small slices of many producers are joined until they have so many rows, or hold so many bytes in memory."""
SMALL_BYTES = 4 << 10
"""Memory that a few rows may keep beyond what they need."""
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE, errno.EISDIR, errno.EBADMSG}

_T = TypeVar("_T")
_F = TypeVar("_F")
Rect = tuple[int, int, int, int]
Share = tuple[int, int]
"""(part, parts)."""
WHOLE: Share = (0, 1)
_Key = tuple[str, int, int, Share]
"""Object, and a rectangle of it."""


Merged = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Merged objects of a data set: (first partition, end, token) of each, as columns; ascending and disjoint."""


class ObjectName(NamedTuple):
    """An object and what it holds: partition ``partition`` as ``attempt`` produced it, or merged ones from there on."""

    name: str
    partition: int
    attempt: int
    token: int

    def lost(self, dataset: int, url: str, what: str) -> PartitionException:
        if self.attempt == MERGED_ATTEMPT:
            holds = f"several partitions of data set {dataset}, merged, from {self.partition} on"
            then = "their own objects can be read in its place"
        else:
            holds = f"partition {self.partition} of data set {dataset}, as attempt {self.attempt} (token {self.token}) produced it"
            then = "the partition has to be produced again"
        return PartitionException(
            f"The result {self.name} in {shown(url)} {what}. It holds {holds}; {then}.",
            dataset=dataset,
            partition=self.partition,
            attempt=self.attempt,
            token=self.token,
        )


def own_object(
    dataset: int,
    partition: int,
    attempts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    partitions: NDArray[np.int64] | None,
) -> ObjectName:
    """The object of one partition, among the columns of a gate."""
    place = partition if partitions is None else int(np.searchsorted(partitions, partition))
    attempt, token = attempts.item(place), tokens.item(place)
    return ObjectName(object_name(dataset, partition, attempt, token), partition, attempt, token)


class _Target(NamedTuple):
    """One object's part of a read: subpartitions [low, high), of those of its rectangle, [rect_low, rect_high), and which share
    of their rows."""

    source: ObjectName
    rect_low: int
    rect_high: int
    low: int
    high: int
    share: Share = WHOLE

    @property
    def key(self) -> _Key:
        return self.source.name, self.rect_low, self.rect_high, self.share

    @property
    def places(self) -> tuple[int, int]:
        """Returns the places in the index of the rectangle between which the wanted subpartitions lie."""
        return self.low - self.rect_low, self.high - self.rect_low


class Chunk(NamedTuple):
    """Messages read in one request: bytes [begin, end) of the object; each a region's slice and its number in there."""

    begin: int
    end: int
    messages: list[tuple[Slice, int]]


class GateReader:
    """One input of one execution.

    ``attempts``, ``tokens``: int64, the admitted attempt of each partition of the data set, or of each of ``partitions``
    (ascending), which are all that ``rects`` names. ``rects``: int (n, 4),
    half-open (partition_from, partition_to, subpartition_from, subpartition_to). ``schema``: as the writer had it.
    ``shares``: int (n, 2), (part, parts) of each rectangle's rows, see ``commands.InputRanges``; None: all are read whole.
    ``merged``: objects to read where a rectangle covers all of their partitions. ``cache``: what earlier readers of the
    store have learned; None: the reader keeps what it needs for itself.
    ``rows_read`` and ``bytes_read`` (plain bytes) count what ``read`` has handed out so far.
    Raises PartitionException for anything missing, cut or damaged, StorageError when the store itself cannot be reached.
    """

    def __init__(  # noqa: PLR0917 - the columns of a gate, in their order
        self,
        store: ResultStore,
        dataset: int,
        schema: pa.Schema,
        num_subpartitions: int,
        attempts: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rects: NDArray[np.int32],
        partitions: NDArray[np.int64] | None = None,
        merged: Merged | None = None,
        cache: ObjectCache | None = None,
        shares: NDArray[np.int32] | None = None,
    ) -> None:
        self._store = store
        self._threads = 0 if store.is_local else READ_AHEAD
        self._dataset = dataset
        self._schema = schema
        self._stored = stored_schema(schema)
        self._plain = all(a.type.equals(b.type) for a, b in zip(schema, self._stored, strict=True))
        self._print = layout.schema_print(self._stored)
        self._subpartitions = num_subpartitions
        self._attempts = attempts
        self._tokens = tokens
        self._partitions = partitions
        self._merged = merged
        numbers = np.asarray(rects).reshape(-1, 4).tolist()
        self._rects, self._shares = _joined_rects(numbers, None if shares is None else shares.tolist())
        self._gap = LOCAL_GAP_BYTES if store.is_local else REMOTE_GAP_BYTES
        self._objects = cache or ObjectCache(store)
        self._cache: dict[_Key, list[Slice]] = {}
        self._cache_bytes = 0
        self.rows_read = 0
        self.bytes_read = 0

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """(first subpartition of the range, int64 plain bytes of each one in it, summed over the producers)."""
        if not self._rects:
            return 0, np.zeros(0, np.int64)
        first = min(rect[2] for rect in self._rects)
        sizes = np.zeros(max(rect[3] for rect in self._rects) - first, np.int64)
        before = {(low, high): np.zeros(high - low + 1, np.int64) for _, _, low, high in self._rects}
        for target, index in self._fetched(self._targets(None, None), self._index):
            for piece in index:
                before[target.rect_low, target.rect_high] += piece.plain
        for (low, high), each in before.items():
            sizes[low - first : high - first] += np.diff(each)
        return first, sizes

    def num_rows(self) -> int:
        """Rows of all subpartitions within the rectangles."""
        rows = 0
        for _, index in self._fetched(self._targets(None, None), self._index):
            rows += sum(int(piece.rows[-1] - piece.rows[0]) for piece in index)
        return rows

    def read(
        self, subpartition_from: int | None = None, subpartition_to: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of subpartitions [from, to) within the rectangles (None: all of them), batch by batch.

        At most a few MiB are held, however large the slice is. Batches have the declared schema; small slices of
        several producers are joined. Rows of one producer and subpartition keep their order.
        """
        batches = self._slices(subpartition_from, subpartition_to)
        for batch in gathered(batches, self._stored):
            yield from self._declared(batch)

    def _slices(self, subpartition_from: int | None, subpartition_to: int | None) -> Iterator[pa.RecordBatch]:
        targets = self._targets(subpartition_from, subpartition_to)
        for target, (index, chunks, first) in self._fetched(targets, self._begin):
            if first is None:
                continue
            with blaming(target.source, self._dataset, self._store):
                yield from self._decoded(chunks[0], first, target)
            if len(chunks) > 1:  # fetched as they come up
                with self._opened(target.source) as source:
                    for chunk in chunks[1:]:
                        yield from self._decoded(chunk, source.read(chunk.begin, chunk.end), target)
            low, high = target.places
            for piece in index:
                self.bytes_read += piece.plain.item(high) - piece.plain.item(low)

    def _fetched(self, targets: Iterable[_T], fetch: Callable[[_T], _F]) -> Iterator[tuple[_T, _F]]:
        return fetched(targets, fetch, self._threads)

    def _targets(self, subpartition_from: int | None, subpartition_to: int | None) -> Iterator[_Target]:
        for (partition_from, partition_to, rect_low, rect_high), share in zip(self._rects, self._shares, strict=True):
            low = rect_low if subpartition_from is None else max(rect_low, subpartition_from)
            high = rect_high if subpartition_to is None else min(rect_high, subpartition_to)
            if low < high:
                for source in self._sources(partition_from, partition_to, may_be_merged=share == WHOLE):
                    yield _Target(source, rect_low, rect_high, low, high, share)

    def _sources(self, partition_from: int, partition_to: int, *, may_be_merged: bool = True) -> Iterator[ObjectName]:
        """The objects that hold these partitions: merged ones where all of their partitions are among them, but not for a share:
        a merged object has its rows in another order, and not every reader needs to find it."""
        at = partition_from
        if self._merged is not None and may_be_merged:
            first, end, tokens = self._merged
            inside = range(int(np.searchsorted(first, at)), int(np.searchsorted(end, partition_to, side="right")))
            for k in inside:
                begin, stop, token = int(first[k]), int(end[k]), int(tokens[k])
                yield from map(self._own, range(at, begin))
                name = merged_name(self._dataset, begin, stop, token)
                yield ObjectName(name, begin, MERGED_ATTEMPT, token)
                at = stop
        yield from map(self._own, range(at, partition_to))

    def _own(self, partition: int) -> ObjectName:
        return own_object(self._dataset, partition, self._attempts, self._tokens, self._partitions)

    def _index(self, target: _Target) -> list[Slice]:
        """Returns the slices of the rectangle's subpartitions in the object, one per region that has rows there."""
        key = target.key
        index = self._cache.get(key)
        if index is None:
            with self._opened(target.source) as source:
                index = self._read_slices(source, target, key)
        return index

    def _begin(self, target: _Target) -> tuple[list[Slice], list[Chunk], pa.Buffer | None]:
        """The index, what to read, and the first of it, if the target has any rows; in one opening at most."""
        key = target.key
        index = self._cache.get(key)
        if index is not None:
            chunks = chunks_of(index, *target.places, self._gap)
            held = self._objects.held(target.source.name, chunks[0].begin, chunks[0].end) if chunks else None
            if held is not None or not chunks:
                return index, chunks, held
        with self._opened(target.source) as source:
            if index is None:
                index = self._read_slices(source, target, key)
            chunks = chunks_of(index, *target.places, self._gap)
            return index, chunks, source.read(chunks[0].begin, chunks[0].end) if chunks else None

    def _read_slices(self, source: StoredObject, target: _Target, key: _Key) -> list[Slice]:
        """The target's rectangle in the object: what its share leaves of it."""
        index = source.index().slices(target.rect_low, target.rect_high, source.fetch)
        if target.share != WHOLE:
            index = shared(index, target.share)
        size = sum([piece.nbytes for piece in index])
        if self._cache_bytes + size <= INDEX_CACHE_BYTES:  # of several threads each may go beyond it by one
            self._cache[key] = index
            self._cache_bytes += size
        return index

    def _decoded(self, chunk: Chunk, data: pa.Buffer, target: _Target) -> Iterator[pa.RecordBatch]:
        """The target's rows in the messages of a chunk."""
        low, high = target.places
        schema = self._schema if self._plain else self._stored
        for piece, number in chunk.messages:
            batch = decode_message(data, chunk.begin, piece, number, schema)
            first = piece.message_rows.item(number)
            cut = max(piece.rows.item(low) - first, 0)
            rows = min(piece.rows.item(high) - first, batch.num_rows) - cut
            yield batch if rows == batch.num_rows else compact(batch.slice(cut, rows))

    def _declared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in the declared types; cut up where its values are too many for a declared dictionary index."""
        if not self._plain:
            try:
                columns = [
                    from_stored(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)
                ]
            except TooManyValues:
                if batch.num_rows == 1:
                    raise
                half = batch.num_rows // 2
                yield from self._declared(batch.slice(0, half))
                yield from self._declared(batch.slice(half))
                return
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.rows_read += batch.num_rows
        yield batch

    def _opened(self, source: ObjectName) -> _Opened:
        """The object, opened when first read. What goes wrong with it inside becomes a PartitionException."""
        opened = self._objects.object(source.name, self._subpartitions, self._print)
        return _Opened(source, self._dataset, self._store, opened)


def blaming(source: ObjectName, dataset: int, store: ResultStore) -> _Blaming:
    """Turns errors that are raised inside of a ``with`` about the object into a PartitionException, or a StorageError."""
    return _Blaming(source, dataset, store)


class _Blaming:
    """A class, as thousands of objects are read in a row, and a generator's context costs as much as opening a file."""

    __slots__ = ("_dataset", "_source", "_store")

    def __init__(self, source: ObjectName, dataset: int, store: ResultStore) -> None:
        self._source = source
        self._dataset = dataset
        self._store = store

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            _blame(error, self._source, self._dataset, self._store)


class _Opened:
    """An object to be read inside of a ``with``, which blames it as ``blaming`` does."""

    __slots__ = ("_dataset", "_object", "_source", "_store")

    def __init__(self, source: ObjectName, dataset: int, store: ResultStore, opened: StoredObject) -> None:
        self._source = source
        self._dataset = dataset
        self._store = store
        self._object = opened

    def __enter__(self) -> StoredObject:
        return self._object

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._object.discard()
        self._object.close()
        if error is not None:
            _blame(error, self._source, self._dataset, self._store)


def _blame(error: BaseException, source: ObjectName, dataset: int, store: ResultStore) -> None:
    """Raises what the error means where it is about the object."""
    match error:
        case MemoryError():  # also Arrow's own, which is not a sign of damage
            return
        case Damaged():
            raise source.lost(dataset, store.url, str(error)) from error
        case FileNotFoundError():
            raise source.lost(dataset, store.url, "is missing") from error
        case OSError() if error.errno in _LOST:
            raise source.lost(dataset, store.url, f"cannot be read ({error.strerror})") from error
        case OSError():
            raise storage_error(error, store.url, f"does not give {source.name}") from error
        case pa.ArrowException() | ValueError():
            raise source.lost(dataset, store.url, f"cannot be decoded ({error})") from error
        case _:
            return


def decode_message(data: pa.Buffer, base: int, piece: Slice, number: int, schema: pa.Schema) -> pa.RecordBatch:
    """One message of a region, checked; ``data`` holds the object's bytes from ``base`` on. Raises Damaged."""
    message = unpack(checked_message(data, base, piece, number), piece.message_seals.item(number))
    batch = pa.ipc.read_record_batch(message, schema)
    if batch.num_rows != piece.message_rows.item(number + 1) - piece.message_rows.item(number):
        at, to = piece.message_offsets.item(number), piece.message_offsets.item(number + 1)
        raise Damaged(f"holds another number of rows between bytes {at} and {to} than its index says")
    return batch


def checked_message(data: pa.Buffer, base: int, piece: Slice, number: int) -> pa.Buffer:
    """The bytes of one message, as they are stored. Raises Damaged."""
    at, to = piece.message_offsets.item(number), piece.message_offsets.item(number + 1)
    message = data.slice(at - base, to - at)
    if not is_sound(message, piece.message_seals.item(number)):
        raise Damaged(f"is damaged between bytes {at} and {to} (checksum differs)")
    return message


def chunks_of(index: list[Slice], low: int, high: int, gap: int) -> list[Chunk]:
    """Returns the chunks to read of an object for places [low, high) of its index: parts with small gaps between them in one."""
    chunks: list[Chunk] = []
    for piece in index:
        begin, end = piece.rows.item(low), piece.rows.item(high)
        if begin >= end:
            continue
        # the messages that hold rows [begin, end) of the region
        message, last = 0, 1
        if len(piece.message_rows) > 2:
            message = int(np.searchsorted(piece.message_rows, begin, side="right")) - 1
            last = int(np.searchsorted(piece.message_rows, end))
        offsets: list[int] = piece.message_offsets[message : last + 1].tolist()
        for number, (at, to) in enumerate(pairwise(offsets), message):
            before = chunks[-1] if chunks else None
            if before is not None and 0 <= at - before.end <= gap and to - before.begin <= CHUNK_BYTES:
                before.messages.append((piece, number))
                chunks[-1] = Chunk(before.begin, to, before.messages)
            else:
                chunks.append(Chunk(at, to, [(piece, number)]))
    return chunks


def _joined_rects(rects: list[list[int]], shares: list[list[int]] | None) -> tuple[list[Rect], list[Share]]:
    """Rectangles that follow one another on the same partitions as one, but for shares; and the share of each."""
    joined: list[Rect] = []
    joined_shares: list[Share] = []
    for number, (begin, end, low, high) in enumerate(rects):
        share = WHOLE if shares is None else (shares[number][0], shares[number][1])
        if share != WHOLE and high != low + 1:
            raise ValueError(f"A share is of one subpartition, not of {low} to {high}.")
        follows = bool(joined) and joined[-1][:2] == (begin, end) and joined[-1][3] == low
        if follows and joined_shares[-1] == share == WHOLE:
            joined[-1] = (begin, end, joined[-1][2], high)
        else:
            joined.append((begin, end, low, high))
            joined_shares.append(share)
    return joined, joined_shares


def shared(index: list[Slice], share: Share) -> list[Slice]:
    """The part of one subpartition's slices (one per region, in their order) that holds the share's rows, and of its plain bytes
    as many as fall to these rows."""
    part, parts = share
    counts = [int(piece.rows[1] - piece.rows[0]) for piece in index]
    total, before = sum(counts), 0
    begin, end = total * part // parts, total * (part + 1) // parts
    narrowed: list[Slice] = []
    for piece, count in zip(index, counts, strict=True):
        low, high = max(begin - before, 0), min(end - before, count)
        before += count
        if low < high:
            nbytes = int(piece.plain[1] - piece.plain[0])
            plain = piece.plain[0] + np.array([nbytes * low // count, nbytes * high // count])
            narrowed.append(replace(piece, rows=piece.rows[0] + np.array([low, high]), plain=plain))
    return narrowed


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Join small neighbours, in order; large ones pass as they are."""
    if not len(schema):
        yield from batches
        return
    small: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        if batch.num_rows >= GATHER_ROWS // 2:
            yield from _joined(small)
            small, rows, held = [], 0, 0
            yield batch
            continue
        small.append(batch)
        rows += batch.num_rows
        held += batch.get_total_buffer_size()
        if rows >= GATHER_ROWS or held >= GATHER_BYTES:
            yield from _joined(small)
            small, rows, held = [], 0, 0
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; copied when they are a small part of their message, so that who keeps them does not keep all of it."""
    held = batch.get_total_buffer_size()
    if held <= SMALL_BYTES or held <= SMALL_BYTES + 2 * batch.nbytes:  # what the rows alone need takes longer to say
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


_W = TypeVar("_W")


def fetched(wanted: Iterable[_W], fetch: Callable[[_W], _F], threads: int) -> Generator[tuple[_W, _F]]:
    """Each with what ``fetch`` gave for it, in order; ``threads``: how many are fetched ahead, 0: none.

    Closing the iterator gives up what was not begun, and waits for what was.
    """
    if threads == 0:
        for one in wanted:
            yield one, fetch(one)
        return
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[_W, Future[_F]]] = deque()
    try:
        for one in wanted:
            waiting.append((one, pool.submit(fetch, one)))
            if len(waiting) > threads:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
