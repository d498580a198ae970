"""Writes rows in order: as ``writer`` does, but a region is sorted by keys instead of subpartitions, of which there is one.

Which keys make a range is decided when all producers have finished, from their sketches. So the object's index holds
keys (``key_index``), by which a reader finds the messages of any range.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.order import Order
from firesteel.model.sketches import SketchBuilder, encode_sketch, phase_of
from firesteel.results import layout
from firesteel.results.messages import MESSAGE_MAX_BYTES, MESSAGE_MAX_ROWS, Before, put_in_order, whole_batch
from firesteel.results.order.key_ranges import RegionKeys, encode_keys_of
from firesteel.results.order.ordering import key_list, suffix_of
from firesteel.results.order.sorting import ROW_BYTES, row_order
from firesteel.results.plain import has_constant_width
from firesteel.results.storage.store import ResultStore
from firesteel.results.writer import REGION_MAX_BYTES, SIZE_BYTES_PER_ROW, ResultSummary, ResultWriter

MESSAGES_PER_RANGE = 2
"""So many of a region: of those at a range's ends about half is read in vain."""
FEWEST_MESSAGES = 16
"""Of a region, if it is large enough: a reader that merges many regions holds some messages of each."""
FEWEST_MESSAGE_BYTES = 64 << 10
"""Messages become no smaller, whatever the number of ranges."""
PHASE = 14
"""Of the phases (``sketches.phase_of``) those that no sketch uses."""


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
        self._producer = producer
        self._places = order.places(schema)
        self._suffix = suffix_of(order, producer)
        self._sketch = SketchBuilder(producer, producers)
        self._region_keys: list[RegionKeys] = []
        self._ranges = max(ranges, 1)
        super().__init__(store, name, schema, 1, memory_budget=memory_budget, codec=codec)
        self._flush_bytes = min(REGION_MAX_BYTES, self._half)
        self._row_cost = ROW_BYTES // 2
        if not all(has_constant_width(field.type) for field in self._stored):
            self._row_cost += SIZE_BYTES_PER_ROW

    def finish(self) -> ResultSummary:
        summary = super().finish()
        return replace(summary, sketch=encode_sketch(self._sketch.finish()))

    def _footer(self) -> bytes:
        identity = layout.Identity.of(self._name, self._stored, 1, str(self._order))
        keys = encode_keys_of(self._region_keys, identity.name)
        return layout.encode_footer(self._regions, self._out.seals, self._out.offset, identity, keys)

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
        cuts = self._cuts(rows, before)
        self._note_keys(keys, order, before, cuts)
        del keys
        if not (order[1:] > order[:-1]).all():
            put_in_order(columns, order)
        self._append(whole_batch(columns, rows, self._stored), pairwise(cuts))
        self._close_region()

    def _cuts(self, rows: int, before: Before) -> list[int]:
        """The rows at which messages begin, and the end. The first message is shorter than the others, in each region by
        another part: so the regions' messages begin at many different keys, by which their readers can cut finely."""
        total = int(before(rows))
        most = min(total // (MESSAGES_PER_RANGE * self._ranges), total // FEWEST_MESSAGES, MESSAGE_MAX_BYTES)
        parts = max(total // max(most, FEWEST_MESSAGE_BYTES), -(-rows // MESSAGE_MAX_ROWS))
        if parts < 2:
            return [0, rows]
        places = np.arange(parts) + phase_of(self._producer, PHASE, len(self._region_keys))
        if total:
            inside = before.row_at((places * (total / parts)).astype(np.int64))
        else:
            inside = (places * (rows / parts)).astype(np.int64)
        return [0, *np.unique(inside[inside > 0]).tolist(), rows]

    def _note_keys(self, keys: list[Any], order: NDArray[np.int64], before: Before, cuts: list[int]) -> None:
        """For the index the first key of each message, and the last one; for the sketch those at its targets."""
        edges = np.array([*cuts[:-1], len(order) - 1])
        self._region_keys.append(RegionKeys.of(self._keys_of(keys, order[edges]), before(np.array(cuts))))
        wanted, weights = self._sketch.targets(int(before(len(order))))
        if len(wanted):
            self._sketch.add(self._keys_of(keys, order[before.row_at(wanted)]), weights)

    def _keys_of(self, keys: list[Any], rows: NDArray[np.int64]) -> list[bytes]:
        chosen = pa.array(rows)
        return key_list([column.take(chosen) for column in keys], self._order, self._suffix)
