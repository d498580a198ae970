"""Encoding of rows into the messages of an object: where they are cut, and what the region notes of them."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results import layout
from firesteel.results.storage.store import Output

MESSAGE_MIN_BYTES = 128 << 10
"""Subpartitions smaller than this share a message with their neighbours."""
MESSAGE_MAX_BYTES = 1 << 20
"""Larger subpartitions are cut into messages of about this size (a single larger row stays whole)."""
MESSAGE_MAX_ROWS = 1 << 17


class OpenRegion:
    """A region while messages are appended to it."""

    def __init__(self, subpartitions: int) -> None:
        self._row_ends = np.zeros(subpartitions + 1, np.int64)
        self._plain_ends = np.zeros(subpartitions + 1, np.int64)
        self._offsets: list[int] = []
        self._message_rows: list[int] = [0]

    @property
    def rows(self) -> int:
        return int(self._row_ends[-1])

    def extend(self, row_ends: NDArray[np.int64], plain_ends: NDArray[np.int64]) -> None:
        """More rows, cumulative per subpartition. Twice in one region only where there is a single subpartition."""
        self._row_ends += row_ends
        self._plain_ends += plain_ends

    def add_message(self, offset: int, rows: int) -> None:
        self._offsets.append(offset)
        self._message_rows.append(self._message_rows[-1] + rows)

    def close(self, end: int) -> layout.Region:
        return layout.Region(self._row_ends, self._plain_ends, [*self._offsets, end], self._message_rows)


class Before:
    """From row numbers (in order) to the plain bytes before them."""

    def __init__(self, varying: NDArray[np.int64] | None, constant: int) -> None:
        self._constant = constant
        self._sums: NDArray[np.int64] | None = None
        if varying is not None:
            self._sums = np.zeros(len(varying) + 1, np.int64)
            np.cumsum(varying, out=self._sums[1:])

    @property
    def varies(self) -> bool:
        """Returns whether rows may have different sizes."""
        return self._sums is not None

    def __call__(self, row: Any) -> Any:
        before = np.asarray(row, np.int64) * self._constant
        return before if self._sums is None else before + self._sums[row]

    def row_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows that these bytes belong to; ascending, before the last row's end."""
        if self._sums is None:
            return places // self._constant
        if not self._constant:
            return np.searchsorted(self._sums, places, side="right") - 1
        sums = self._sums + np.arange(len(self._sums)) * self._constant
        return np.searchsorted(sums, places, side="right") - 1


def message_cuts(
    bounds: NDArray[np.int64], before: Before, enough_bytes: int = MESSAGE_MIN_BYTES
) -> list[tuple[int, int]]:
    """Cut the ordered rows into messages: whole subpartitions until there are enough bytes, large ones in even parts of rows."""
    sizes = before(bounds)
    cuts: list[tuple[int, int]] = []
    at, last = 0, len(bounds) - 1
    while at < last and bounds[at] < bounds[last]:
        enough = int(np.searchsorted(sizes, sizes[at] + enough_bytes))
        many = int(np.searchsorted(bounds, bounds[at] + MESSAGE_MAX_ROWS))
        end = max(at + 1, min(enough, many, last))
        low, high = int(bounds[at]), int(bounds[end])
        cuts += _split(low, high, int(sizes[end] - sizes[at]), before)
        at = end
    return cuts


def _split(low: int, high: int, size: int, before: Before) -> list[tuple[int, int]]:
    if low == high:
        return []
    parts = max(-(-size // MESSAGE_MAX_BYTES), -(-(high - low) // MESSAGE_MAX_ROWS), 1)
    if parts == 1:
        return [(low, high)]
    ends = low + np.arange(1, parts + 1, dtype=np.int64) * (high - low) // parts
    # rows of very different sizes: halve what is still too large
    cuts: list[tuple[int, int]] = []
    for begin, end in zip(np.append(low, ends[:-1]).tolist(), ends.tolist(), strict=True):
        cuts += _halve(begin, end, before)
    return cuts


def _halve(low: int, high: int, before: Before) -> list[tuple[int, int]]:
    if low == high:
        return []
    if high - low == 1 or int(before(high) - before(low)) <= 2 * MESSAGE_MAX_BYTES:
        return [(low, high)]
    middle = (low + high) // 2
    return _halve(low, middle, before) + _halve(middle, high, before)


def cut_rows(columns: list[Any], order: NDArray[Any] | None, low: int, high: int, schema: pa.Schema) -> pa.RecordBatch:
    if not columns:  # rows without columns are still rows
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), high - low, [None]))
    if order is None:
        cut = [column.slice(low, high - low) for column in columns]
    else:
        rows = pa.array(order[low:high])
        cut = [column.take(rows) for column in columns]
    return pa.RecordBatch.from_arrays(cut, schema=schema)


class MessageStream:
    """Record batches to IPC messages, a few MiB of them to the store at a time; messages that are stored already, too."""

    def __init__(self, target: Output, schema: pa.Schema, codec: str, buffer_bytes: int) -> None:
        self._target = target
        self._schema = schema
        self._buffer_bytes = buffer_bytes
        self._options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec, use_threads=False)
        self._preamble = schema.serialize().size  # a stream begins with its schema, which is not stored
        self.crcs: list[int] = []
        """crc32 of each message but those of the batches added last, in order; of all once drained."""
        self._sealed: list[pa.Buffer] = []
        self._sealed_to = layout.HEADER_BYTES
        """Offset in the object at which the sealed messages end."""
        self._drained_to = layout.HEADER_BYTES
        self._target.write(layout.header())
        self._ends: list[int] = []
        self._sink: Any = None
        self._writer: Any = None

    @property
    def offset(self) -> int:
        """Offset in the object at which the next message begins."""
        return self._sealed_to + (self._ends[-1] - self._preamble if self._ends else 0)

    def add(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pa.ipc.new_stream(self._sink, self._schema, options=self._options)
        self._writer.write_batch(batch)
        self._ends.append(self._sink.tell())
        self._drain_if_full()

    def add_stored(self, message: pa.Buffer, crc: int) -> None:
        """A message of another object, as it is stored there."""
        self._seal()
        self._sealed.append(message)
        self._sealed_to += message.size
        self.crcs.append(crc)
        self._drain_if_full()

    def _drain_if_full(self) -> None:
        if self.offset - self._drained_to >= self._buffer_bytes:
            self.drain()

    def _seal(self) -> None:
        """End the stream of batches: their messages get their checksums."""
        if self._writer is None:
            return
        self._writer.close()
        data = self._sink.getvalue()
        start = self._preamble
        for end in self._ends:
            self.crcs.append(zlib.crc32(data.slice(start, end - start)))
            start = end
        self._sealed.append(data.slice(self._preamble, start - self._preamble))
        self._sealed_to = self.offset
        self._ends, self._sink, self._writer = [], None, None

    def drain(self) -> None:
        """Hand the finished messages to the store."""
        self._seal()
        if self._sealed:
            self._target.write(self._sealed[0] if len(self._sealed) == 1 else b"".join(map(memoryview, self._sealed)))
        self._sealed = []
        self._drained_to = self._sealed_to

    def finish(self, footer: bytes) -> int:
        """Write the footer and close. Returns the object's size in bytes."""
        self._target.write(footer)
        self._target.close()
        return self._drained_to + len(footer)

    def discard(self) -> None:
        self._target.discard()
