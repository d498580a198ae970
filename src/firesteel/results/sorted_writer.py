"""Writes rows in order: as ``writer`` does, but a region is sorted by keys instead of subpartitions, of which there is one.

Which keys make a range is decided when all producers have finished, from their sketches. So the object's index holds
keys (``key_index``), by which a reader finds the messages of any range.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results import layout
from firesteel.results.key_index import RegionKeys, encode_keys_of
from firesteel.results.messages import MESSAGE_MAX_BYTES, Before, cut_rows, even_cuts
from firesteel.results.ordering import Order, key_list, suffix_of
from firesteel.results.sorting import row_order
from firesteel.results.store import ResultStore
from firesteel.results.writer import REGION_MAX_BYTES, SIZE_BYTES_PER_ROW, ResultSummary, ResultWriter
from firesteel.sketches import SketchBuilder, encode_sketch

MESSAGES_PER_RANGE = 2
"""So many of a region: of those at a range's ends about half is read in vain."""
FEWEST_MESSAGE_BYTES = 128 << 10
"""Messages become no smaller, whatever the number of ranges."""
SORT_BYTES_PER_ROW = 12
SORT_BYTES_PER_KEY = 8
"""Half of what sorting needs per row, and per row and key column, beside the rows."""


class SortedWriter(ResultWriter):
    """The writer of one object whose regions are each in ``order``.

    ``producer``: its number among ``producers``. ``ranges``: how many the keys will be parted into. The rest as for
    ``ResultWriter``; the summary has a sketch, and ``bytes`` of one subpartition.
    """

    def __init__(
        self,
        store: ResultStore,
        name: str,
        schema: pa.Schema,
        order: Order,
        *,
        producer: int,
        producers: int,
        ranges: int,
        memory_budget: int,
        codec: str = "lz4",
    ) -> None:
        self._order = order
        self._places = order.places(schema)
        self._suffix = suffix_of(order, producer)
        self._sketch = SketchBuilder(producer, producers)
        self._region_keys: list[RegionKeys] = []
        self._ranges = max(ranges, 1)
        super().__init__(store, name, schema, 1, memory_budget=memory_budget, codec=codec)
        self._flush_bytes = min(REGION_MAX_BYTES, self._half)
        self._row_cost = SORT_BYTES_PER_ROW + SORT_BYTES_PER_KEY * len(self._places) + SIZE_BYTES_PER_ROW

    def finish(self) -> ResultSummary:
        summary = super().finish()
        return replace(summary, sketch=encode_sketch(self._sketch.finish()))

    def _footer(self) -> bytes:
        identity = layout.Identity.of(self._name, self._stored, 1, str(self._order))
        keys = encode_keys_of(self._region_keys, identity.name)
        return layout.encode_footer(self._regions, self._out.crcs, self._out.offset, identity, keys)

    def _flush(self) -> None:
        """Append the pending rows as one region in order."""
        pending = self._pending
        rows = pending.rows
        self._rows += rows
        varying = pending.varying()
        constant = (pending.bytes - (0 if varying is None else int(varying.sum()))) // rows
        columns = pending.take_columns()
        keys = [columns[place] for place in self._places]
        order = row_order(keys, self._order)
        before = Before(None if varying is None else varying[order], constant)
        del varying
        total = int(before(rows))
        self._open_region.extend(np.array([0, rows]), np.array([0, total]))
        message_bytes = min(max(total // (MESSAGES_PER_RANGE * self._ranges), FEWEST_MESSAGE_BYTES), MESSAGE_MAX_BYTES)
        cuts = even_cuts(0, rows, before, message_bytes)
        self._note_keys(keys, order, before, [low for low, _ in cuts])
        ascending = bool((order[1:] > order[:-1]).all())
        for low, high in cuts:
            self._open_region.add_message(self._out.offset, high - low)
            self._out.add(cut_rows(columns, None if ascending else order, low, high, self._stored))
        self._close_region()

    def _note_keys(self, keys: list[Any], order: NDArray[np.int64], before: Before, starts: list[int]) -> None:
        """For the index the first key of each message, and the last one; for the sketch those at its targets."""
        rows = len(order)
        bounds = np.array([*starts, rows])
        edges = np.array([*starts, rows - 1])
        self._region_keys.append(RegionKeys.of(self._keys_of(keys, order[edges]), before(bounds)))
        wanted, weights = self._sketch.targets(int(before(rows)))
        if len(wanted):
            self._sketch.add(self._keys_of(keys, order[before.row_at(wanted)]), weights)

    def _keys_of(self, keys: list[Any], rows: NDArray[np.int64]) -> list[bytes]:
        chosen = pa.array(rows)
        return key_list([column.take(chosen) for column in keys], self._order, self._suffix)
