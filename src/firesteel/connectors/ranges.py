"""A source of whole numbers at one distance, which tasks make themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from firesteel.connectors.base import Split
from firesteel.connectors.files.reading.packing import piece_bytes
from firesteel.task.program import TaskContext

_BATCH_ROWS = 1 << 16
_WIDTH = 8


class RangeSource:
    """The column ``id``: so many bigints from ``start`` on, ``step`` apart, all of which fit."""

    supports_concurrent_execution_attempts = True
    name = "range"
    schema = pa.schema([("id", pa.int64())])

    def __init__(self, start: int, step: int, count: int) -> None:
        self._start, self._step, self._count = start, step, count

    def list_splits(self, data_volume: int) -> list[Split]:
        """By the rows' numbers."""
        size = self._count * _WIDTH
        pieces = -(-size // piece_bytes(size, data_volume))
        bounds = [self._count * i // pieces for i in range(pieces + 1)] if pieces else []
        return [Split((a, b), (b - a) * _WIDTH, f"rows {a}-{b} of a range") for a, b in pairwise(bounds)]

    def read(self, split: tuple[int, int], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        begin, end = split
        ctx.place = f"rows {begin}-{end} of a range"
        for first in range(begin, end, _BATCH_ROWS):
            numbers = np.arange(min(_BATCH_ROWS, end - first), dtype=np.int64) * self._step
            numbers += self._start + first * self._step
            yield pa.record_batch([pa.array(numbers)], schema=self.schema)
