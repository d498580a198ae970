"""Encoding of rows into the messages of an object: where they are cut, and what the region notes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results import layout
from firesteel.results.layout import Packer
from firesteel.results.plain import is_text, stored_offsets
from firesteel.results.storage.store import Output

STEP_BYTES = 4 << 20
"""Of lists, gathered at once."""
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
        enough = int(sizes.searchsorted(sizes[at] + enough_bytes))
        many = int(bounds.searchsorted(bounds[at] + MESSAGE_MAX_ROWS))
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


def put_in_order(columns: list[Any], order: NDArray[Any]) -> None:
    """Gather all rows, in place and column by column: so only one column is there twice. A gather for each message would take six times
    as long, as other columns and messages go through the cache between two of a column's."""
    rows = pa.array(order)
    for place, column in enumerate(columns):
        width = _common_width(column)
        if width:
            columns[place] = _fixed_in_order(column, rows, width)
        elif _has_lists(column.type):
            columns[place] = _in_steps(column, rows)
        else:
            columns[place] = pc.take(column, rows, boundscheck=False)


def _has_lists(kind: pa.DataType) -> bool:
    varies = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    return varies or any(_has_lists(kind.field(place).type) for place in range(kind.num_fields))


def _in_steps(column: Any, rows: Any) -> Any:
    """Of lists, Arrow gathers the values by an index of each, which may need many times their bytes: so some of the rows at a time."""
    step = max(1, len(rows) * STEP_BYTES // max(1, column.nbytes))
    parts = [pc.take(column, rows.slice(at, step), boundscheck=False) for at in range(0, len(rows), step)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _common_width(column: Any) -> int:
    """Bytes of each text, if all have as many; else 0. Codes, dates as text and the like do."""
    if not is_text(column.type) or not len(column) or column.null_count:
        return 0
    offsets = stored_offsets(column)
    width = int(offsets[1] - offsets[0])
    same = int(offsets[-1] - offsets[0]) == width * len(column) and bool((np.diff(offsets) == width).all())
    return width if same else 0


def _fixed_in_order(column: Any, rows: Any, width: int) -> Any:
    """Texts of one width are gathered as bytes of a fixed width: in half the time."""
    offsets, count = stored_offsets(column), len(column)
    content = column.buffers()[2].slice(int(offsets[0]), width * count)
    fixed = pa.Array.from_buffers(pa.binary(width), count, [None, content])
    taken = pc.take(fixed, rows, boundscheck=False).buffers()[1]
    ends = np.arange(count + 1, dtype=offsets.dtype) * offsets.dtype.type(width)
    return pa.Array.from_buffers(column.type, count, [None, pa.py_buffer(ends), taken])


def whole_batch(columns: list[Any], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    if not columns:  # rows without columns are still rows
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class MessageStream:
    """Record batches to stored messages, a few MiB of them to the store at a time; messages that are stored already, too."""

    def __init__(self, target: Output, codec: str, buffer_bytes: int) -> None:
        self._target = target
        self._buffer_bytes = buffer_bytes
        self._packer = Packer(codec)
        self.seals: list[int] = []
        """Of each message, in order."""
        self.offset = layout.HEADER_BYTES
        """Offset in the object at which the next message begins."""
        self._parts: list[Any] = []
        """Parts that the store has not got yet,"""
        self._drained_to = layout.HEADER_BYTES
        """and the offset at which it begins."""
        self._target.write(layout.header())

    def add(self, batch: pa.RecordBatch) -> None:
        self._add(*self._packer.pack(batch.serialize()))

    def add_stored(self, message: pa.Buffer, seal: int) -> None:
        """A message of another object, as it is stored there."""
        self._add([message], seal)

    def _add(self, parts: list[Any], seal: int) -> None:
        self._parts += parts
        self.offset += sum(map(len, parts))
        self.seals.append(seal)
        if self.offset - self._drained_to >= self._buffer_bytes:
            self.drain()

    def drain(self) -> None:
        """Hand the finished messages to the store."""
        if self._parts:
            self._target.write(*self._parts)
        self._parts = []
        self._drained_to = self.offset

    def finish(self, footer: bytes) -> int:
        """Write the footer and close. Returns the object's size in bytes."""
        self._target.write(footer)
        self._target.close()
        return self._drained_to + len(footer)

    def discard(self) -> None:
        self._target.discard()
