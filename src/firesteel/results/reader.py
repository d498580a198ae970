"""Reads the slices of a data set that one execution consumes: of each producer in its rectangles, a range of subpartitions.

One contiguous run of messages is read per producer and region, a few MiB at a time, and only the rows of the index that
are needed. Everything read is checked; what is missing or damaged is a PartitionException that names its producer.
"""

from __future__ import annotations

import errno
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import PartitionException
from firesteel.results import layout
from firesteel.results.layout import Damaged, Slice
from firesteel.results.plain import TooManyValues, from_stored, stored_schema
from firesteel.results.store import Input, ResultStore, object_name, storage_error

CHUNK_BYTES = 4 << 20
"""Stored bytes fetched at once (a single larger message comes whole)."""
LOCAL_TAIL_BYTES = 4 << 10
REMOTE_TAIL_BYTES = 64 << 10
"""Fetched first, from an object's end: the trailer, and often all of the index in the same round trip."""
READ_AHEAD = 4
"""Producers of a remote store whose index and first chunk are fetched while another one's rows are used."""
INDEX_CACHE_BYTES = 16 << 20
"""Indexes kept between reads of one gate; the ones beyond are read again."""
GATHER_ROWS = 4096
GATHER_BYTES = 4 << 20
"""Small slices of many producers are joined until they have so many rows, or hold so many bytes in memory."""
_T = TypeVar("_T")
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE, errno.EISDIR, errno.EBADMSG}


@dataclass(frozen=True, slots=True)
class _Target:
    """One producer's part of a read: subpartitions [low, high), of those of its rectangle, [rect_low, rect_high)."""

    partition: int
    rect_low: int
    rect_high: int
    low: int
    high: int

    @property
    def key(self) -> tuple[int, int, int]:
        return self.partition, self.rect_low, self.rect_high

    @property
    def places(self) -> tuple[int, int]:
        """Where the wanted subpartitions begin and end in the index of the rectangle."""
        return self.low - self.rect_low, self.high - self.rect_low


class GateReader:
    """One input of one execution.

    ``attempts``, ``tokens``: int64, the admitted attempt of each partition of the data set, or of each of ``partitions``
    (ascending), which are all that ``rects`` names. ``rects``: int (n, 4),
    half-open (partition_from, partition_to, subpartition_from, subpartition_to). ``schema``: as the writer had it.
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
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._schema = schema
        self._stored = stored_schema(schema)
        self._plain = all(a.type.equals(b.type) for a, b in zip(schema, self._stored, strict=True))
        self._print = layout.schema_print(self._stored)
        self._subpartitions = num_subpartitions
        self._attempts = attempts
        self._tokens = tokens
        self._partitions = partitions
        self._rects = [tuple(int(bound) for bound in rect) for rect in np.asarray(rects).reshape(-1, 4)]
        self._tail_bytes = LOCAL_TAIL_BYTES if store.is_local else REMOTE_TAIL_BYTES
        self._cache: dict[tuple[int, int, int], list[Slice]] = {}
        self._cache_bytes = 0
        self.rows_read = 0
        self.bytes_read = 0

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """(first subpartition of the range, int64 plain bytes of each one in it, summed over the producers)."""
        if not self._rects:
            return 0, np.zeros(0, np.int64)
        first = min(rect[2] for rect in self._rects)
        sizes = np.zeros(max(rect[3] for rect in self._rects) - first, np.int64)
        for target, index in self._ahead(self._index, self._targets(None, None)):
            self._keep(target, index)
            for piece in index:
                sizes[target.rect_low - first : target.rect_high - first] += np.diff(piece.plain)
        return first, sizes

    def read(
        self, subpartition_from: int | None = None, subpartition_to: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of subpartitions [from, to) within the rectangles (None: all of them), batch by batch.

        At most a few MiB are held, however large the slice is. Batches have the declared schema; small slices of
        several producers are joined. Rows of one producer and subpartition keep their order.
        """
        batches = self._slices(subpartition_from, subpartition_to)
        for batch in _gather(batches, self._stored):
            yield from self._declared(batch)

    def _slices(self, subpartition_from: int | None, subpartition_to: int | None) -> Iterator[pa.RecordBatch]:
        targets = self._targets(subpartition_from, subpartition_to)
        for target, (index, chunk) in self._ahead(self._begin, targets):
            self._keep(target, index)
            if chunk is None:
                continue
            data: pa.Buffer | None = chunk  # the first; the others are fetched as they come up
            with self._opened(target.partition) as source:
                for piece in index:
                    low, high = target.places
                    if piece.rows[low] < piece.rows[high]:
                        yield from self._read_run(source, piece, target, data)
                        data = None

    def _targets(self, subpartition_from: int | None, subpartition_to: int | None) -> Iterator[_Target]:
        for partition_from, partition_to, rect_low, rect_high in self._rects:
            low = rect_low if subpartition_from is None else max(rect_low, subpartition_from)
            high = rect_high if subpartition_to is None else min(rect_high, subpartition_to)
            if low < high:
                for partition in range(partition_from, partition_to):
                    yield _Target(partition, rect_low, rect_high, low, high)

    def _ahead(self, fetch: Callable[[_Target], _T], targets: Iterable[_Target]) -> Iterator[tuple[_Target, _T]]:
        """Each target with what is fetched for it, in order; of a remote store some are fetched while others are used."""
        if self._store.is_local:
            for target in targets:
                yield target, fetch(target)
            return
        pool = ThreadPoolExecutor(READ_AHEAD)
        waiting: deque[tuple[_Target, Future[_T]]] = deque()
        try:
            for target in targets:
                waiting.append((target, pool.submit(fetch, target)))
                if len(waiting) > READ_AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _index(self, target: _Target) -> list[Slice]:
        """What the producer's object says about the rectangle's subpartitions, for the regions that have rows there."""
        if (index := self._cache.get(target.key)) is not None:
            return index
        with self._opened(target.partition) as source:
            return self._read_index(source, target)

    def _begin(self, target: _Target) -> tuple[list[Slice], pa.Buffer | None]:
        """The index, and the first chunk of messages that the target needs, if it needs any; in one opening."""
        with self._opened(target.partition) as source:
            index = self._cache.get(target.key) or self._read_index(source, target)
            low, high = target.places
            for piece in index:
                if piece.rows[low] < piece.rows[high]:
                    message, last = _messages(piece, int(piece.rows[low]), int(piece.rows[high]))
                    stop = _chunk(piece, message, last)
                    return index, source.read(int(piece.message_offsets[message]), int(piece.message_offsets[stop]))
        return index, None

    def _read_index(self, source: _Object, target: _Target) -> list[Slice]:
        tail = layout.Tail(source.input, self._tail_bytes)
        identity = layout.Identity(self._subpartitions, self._print, layout.name_print(source.name))
        slices = layout.read_slices(tail, identity, target.rect_low, target.rect_high)
        return [piece for piece in slices if piece.rows[0] < piece.rows[-1]]

    def _keep(self, target: _Target, index: list[Slice]) -> None:
        size = sum(piece.nbytes for piece in index)
        if target.key not in self._cache and self._cache_bytes + size <= INDEX_CACHE_BYTES:
            self._cache[target.key] = index
            self._cache_bytes += size

    def _read_run(
        self, source: _Object, piece: Slice, target: _Target, data: pa.Buffer | None
    ) -> Iterator[pa.RecordBatch]:
        """The target's rows of one region: one contiguous run of messages, in chunks, of which ``data`` may be the first."""
        low, high = target.places
        begin, end = int(piece.rows[low]), int(piece.rows[high])
        offsets, starts = piece.message_offsets, piece.message_rows
        message, last = _messages(piece, begin, end)
        while message < last:
            stop = _chunk(piece, message, last)
            if data is None:
                data = source.read(int(offsets[message]), int(offsets[stop]))
            for number in range(message, stop):
                batch = self._decode(data, piece, number, int(offsets[message]))
                first = int(starts[number])
                cut = max(begin - first, 0)
                yield batch.slice(cut, min(end - first, batch.num_rows) - cut)
            data = None
            message = stop
        self.bytes_read += int(piece.plain[high] - piece.plain[low])

    def _decode(self, data: pa.Buffer, piece: Slice, number: int, base: int) -> pa.RecordBatch:
        at, to = int(piece.message_offsets[number]), int(piece.message_offsets[number + 1])
        message = data.slice(at - base, to - at)
        if zlib.crc32(message) != piece.message_crcs[number]:
            raise Damaged(f"is damaged between bytes {at} and {to} (checksum differs)")
        batch = pa.ipc.read_record_batch(message, self._schema if self._plain else self._stored)
        if batch.num_rows != piece.message_rows[number + 1] - piece.message_rows[number]:
            raise Damaged(f"holds another number of rows between bytes {at} and {to} than its index says")
        return batch

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

    @contextmanager
    def _opened(self, partition: int) -> Generator[_Object, None, None]:
        """The object of a producer, opened when first read. What goes wrong with it inside becomes a PartitionException."""
        place = partition if self._partitions is None else int(np.searchsorted(self._partitions, partition))
        attempt, token = int(self._attempts[place]), int(self._tokens[place])
        source = _Object(self._store, object_name(self._dataset, partition, attempt, token))
        try:
            yield source
        except MemoryError:  # also Arrow's own, which is no sign of damage
            raise
        except Damaged as damage:
            raise self._lost(source.name, partition, attempt, token, str(damage)) from damage
        except FileNotFoundError as error:
            raise self._lost(source.name, partition, attempt, token, "is missing") from error
        except OSError as error:
            if error.errno in _LOST:
                raise self._lost(
                    source.name, partition, attempt, token, f"cannot be read ({error.strerror})"
                ) from error
            raise storage_error(error, self._store.url, f"does not give {source.name}") from error
        except (pa.ArrowException, ValueError) as error:
            raise self._lost(source.name, partition, attempt, token, f"cannot be decoded ({error})") from error
        finally:
            source.close()

    def _lost(self, name: str, partition: int, attempt: int, token: int, what: str) -> PartitionException:
        return PartitionException(
            f"The result {name} in {self._store.url} {what}. It holds partition {partition} of data set {self._dataset}, "
            f"as attempt {attempt} (token {token}) produced it; the partition has to be produced again.",
            dataset=self._dataset,
            partition=partition,
            attempt=attempt,
            token=token,
        )


class _Object:
    """A producer's object, opened when its first byte is needed."""

    def __init__(self, store: ResultStore, name: str) -> None:
        self._store = store
        self.name = name
        self._input: Input | None = None

    @property
    def input(self) -> Input:
        if self._input is None:
            self._input = self._store.open_input(self.name)
        return self._input

    def read(self, begin: int, end: int) -> pa.Buffer:
        data = self.input.read_at(begin, end - begin)
        if data.size != end - begin:
            raise Damaged(f"ends at byte {begin + data.size} where {end} were expected")
        return data

    def close(self) -> None:
        if self._input is not None:
            self._input.close()


def _messages(piece: Slice, begin: int, end: int) -> tuple[int, int]:
    """The messages that hold rows [begin, end) of a region: half-open places in ``piece``."""
    first = int(np.searchsorted(piece.message_rows, begin, side="right")) - 1
    return first, int(np.searchsorted(piece.message_rows, end))


def _chunk(piece: Slice, message: int, last: int) -> int:
    """Where a chunk that begins with ``message`` ends: as many messages as fit, at least one."""
    offsets = piece.message_offsets
    fits = int(np.searchsorted(offsets, offsets[message] + CHUNK_BYTES, side="right")) - 1
    return min(max(fits, message + 1), last)


def _gather(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
            yield _compact(batch)
            continue
        small.append(batch)
        rows += batch.num_rows
        held += batch.get_total_buffer_size()
        if rows >= GATHER_ROWS or held >= GATHER_BYTES:
            yield from _joined(small)
            small, rows, held = [], 0, 0
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield _compact(batches[0])
    elif batches:
        yield pa.concat_batches(batches)


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; copied when they are a small part of their message, so that who keeps them does not keep all of it."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + 4096:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))
