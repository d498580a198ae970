"""Reads the slices of a data set that one execution consumes: of each producer in its rectangles, a range of subpartitions.

One contiguous run of messages is read per producer and region, a few MiB at a time, and only the rows of the index that
are needed. Everything read is checked; what is missing or damaged is a PartitionException that names its producer.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
INDEX_CACHE_BYTES = 16 << 20
"""Indexes kept between reads of one gate; the ones beyond are read again."""
GATHER_ROWS = 4096
GATHER_BYTES = 4 << 20
"""Small slices of many producers are joined until they have so many rows, or hold so many bytes in memory."""
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE, errno.EISDIR, errno.EBADMSG}


@dataclass(slots=True)
class _Index:
    """What one producer's object says about the subpartitions from ``low`` on, for the regions that have rows there."""

    low: int
    slices: list[Slice]

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.slices)


class GateReader:
    """One input of one execution.

    ``attempts``, ``tokens``: int64, the admitted attempt of each partition of the data set. ``rects``: int (n, 4),
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
        self._rects = [tuple(int(bound) for bound in rect) for rect in np.asarray(rects).reshape(-1, 4)]
        self._tail_bytes = LOCAL_TAIL_BYTES if store.is_local else REMOTE_TAIL_BYTES
        self._cache: dict[tuple[int, int, int], _Index] = {}
        self._cache_bytes = 0
        self.rows_read = 0
        self.bytes_read = 0

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """(first subpartition of the range, int64 plain bytes of each one in it, summed over the producers)."""
        if not self._rects:
            return 0, np.zeros(0, np.int64)
        first = min(rect[2] for rect in self._rects)
        sizes = np.zeros(max(rect[3] for rect in self._rects) - first, np.int64)
        for partition_from, partition_to, low, high in self._rects:
            for partition in range(partition_from, partition_to):
                with self._opened(partition) as source:
                    index = self._index(source, partition, low, high)
                for piece in index.slices:
                    sizes[low - first : high - first] += np.diff(piece.plain)
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
        for partition_from, partition_to, rect_low, rect_high in self._rects:
            low = rect_low if subpartition_from is None else max(rect_low, subpartition_from)
            high = rect_high if subpartition_to is None else min(rect_high, subpartition_to)
            if low >= high:
                continue
            for partition in range(partition_from, partition_to):
                with self._opened(partition) as source:
                    index = self._index(source, partition, rect_low, rect_high)
                    for piece in index.slices:
                        yield from self._read_run(source, piece, low - index.low, high - index.low)

    def _index(self, source: _Object, partition: int, low: int, high: int) -> _Index:
        key = (partition, low, high)
        if (index := self._cache.get(key)) is not None:
            return index
        tail = layout.Tail(source.input, self._tail_bytes)
        identity = layout.Identity(self._subpartitions, self._print, layout.name_print(source.name))
        slices = layout.read_slices(tail, identity, low, high)
        index = _Index(low, [piece for piece in slices if piece.rows[0] < piece.rows[-1]])
        size = index.nbytes
        if self._cache_bytes + size <= INDEX_CACHE_BYTES:
            self._cache[key] = index
            self._cache_bytes += size
        return index

    def _read_run(self, source: _Object, piece: Slice, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The rows of one region between two places of ``piece``: one contiguous run of messages, in chunks."""
        begin, end = int(piece.rows[low]), int(piece.rows[high])
        if begin == end:
            return
        offsets, starts = piece.message_offsets, piece.message_rows
        message = int(np.searchsorted(starts, begin, side="right")) - 1
        last = int(np.searchsorted(starts, end))
        while message < last:
            fits = int(np.searchsorted(offsets, offsets[message] + CHUNK_BYTES, side="right")) - 1
            stop = min(max(fits, message + 1), last)
            data = source.read(int(offsets[message]), int(offsets[stop]))
            for number in range(message, stop):
                batch = self._decode(data, piece, number, int(offsets[message]))
                first = int(starts[number])
                cut = max(begin - first, 0)
                yield _part(batch, cut, min(end - first, batch.num_rows))
            del data
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
        attempt, token = int(self._attempts[partition]), int(self._tokens[partition])
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


def _part(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Some rows of a message; copied when they are few, so that whoever keeps them does not keep the whole message."""
    part = batch.slice(begin, end - begin)
    if 2 * part.num_rows >= batch.num_rows or not batch.num_columns:
        return part
    return part.take(pa.array(np.arange(part.num_rows)))


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
    if len(batches) == 1:
        yield batches[0]
    elif batches:
        yield pa.concat_batches(batches)
