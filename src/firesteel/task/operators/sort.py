"""The consumer of a sort: walks its ranges of keys part by part, puts each part's rows in order, and so gives all in order.

What is more than the limit is cut into finer ranges by the keys in the producers' indexes. If these are so fine that most
messages would be read for several of them, the rows are parted on local disk first, each read once. A
single key that is heavier by itself needs no sorting, and is passed on as it is read: by producer, and of each as it wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.errors import FiresteelError
from firesteel.model.order import Order
from firesteel.results.order.key_ranges import KeyRange
from firesteel.results.order.range_reader import RangeReader
from firesteel.results.order.sorting import row_order
from firesteel.task.operators.units import MAX_BUCKETS, GateInput, SpoolInput, unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

MOST_BYTES = 1 << 30
"""Sorted together: 32-bit string offsets must reach."""
TWICE = 2
"""Messages that reach over the end of a part may hold so many times the limit: at most one limit's worth of them is kept."""
EMITTED_ROWS = 1 << 16
EMITTED_BYTES = 1 << 20
"""About so much is given at once."""


@dataclass(frozen=True, slots=True)
class Sort:
    """All rows of its ranges by ``order``, equal ones by producer and then as each wrote them. Reads a ``RangeReader``."""

    name: str
    order: Order
    unitwise: ClassVar[bool] = False
    takes_all: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """None: its input is not hashed."""
        return ((),)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        for unit in inputs:
            if not isinstance(unit, GateInput) or not isinstance(unit.reader, RangeReader):
                raise FiresteelError(f"Step '{self.name}' reads rows that were not written in an order.")
            reader = unit.reader
            for batch in self._sorted(reader, unit.subpartition_from, unit.subpartition_to, ctx):
                yield from reader.declared(batch)

    def _sorted(self, reader: RangeReader, low: int, high: int, ctx: TaskContext) -> Batches:
        """Ranges [low, high) part by part, each read by itself; or several at once to disk, if too much were read twice."""
        limit = min(unit_limit(ctx), MOST_BYTES)
        parts = reader.ranges(low, high, limit)
        if len(parts) < 3 or reader.open_bytes(KeyRange(parts[0].low, parts[-1].high)) <= TWICE * limit:
            for part in parts:
                yield from self._in_order(reader.read_keys(part, keep_bytes=limit), part)
            return
        for first in range(0, len(parts), MAX_BUCKETS):
            yield from self._by_disk(reader, parts[first : first + MAX_BUCKETS], ctx)

    def _by_disk(self, reader: RangeReader, parts: list[KeyRange], ctx: TaskContext) -> Batches:
        with ExitStack() as stack:
            spools: dict[int, SpoolInput] = {}
            for number, batch in reader.read_parts(parts):
                if number not in spools:
                    spools[number] = SpoolInput(batch.schema, ctx.scratch, 0)
                    stack.callback(spools[number].close)
                spools[number].write(batch)
            for number in sorted(spools):
                yield from self._in_order(spools[number].finish().batches(), parts[number])
                spools[number].close()

    def _in_order(self, batches: Batches, part: KeyRange) -> Batches:
        return batches if part.is_one_key else in_order(batches, self.order)


def in_order(batches: Iterable[pa.RecordBatch], order: Order) -> Iterator[pa.RecordBatch]:
    """The rows of stored batches, all held at once, sorted; equal ones as they come."""
    whole = _joined(list(batches))
    if whole is None:
        return
    rows = row_order([whole.column(place) for place in order.places(whole.schema)], order)
    step = min(max(EMITTED_BYTES * len(rows) // max(whole.nbytes, 1), 1), EMITTED_ROWS)
    if bool((rows[1:] > rows[:-1]).all()):
        yield from (whole.slice(low, step) for low in range(0, len(rows), step))
        return
    columns = whole.columns
    for low in range(0, len(rows), step):
        yield cut_rows(columns, rows[low : low + step], whole.schema)


def cut_rows(columns: list[Any], rows: NDArray[Any], schema: pa.Schema) -> pa.RecordBatch:
    """These rows as a batch of their own: slices of all rows in order would keep all of them while the next part is sorted."""
    places = pa.array(rows)
    return pa.RecordBatch.from_arrays([pc.take(column, places, boundscheck=False) for column in columns], schema=schema)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    if len(batches) > 1:
        return pa.concat_batches(batches)
    return batches[0] if batches else None
