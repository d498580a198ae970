"""One part of a divided subpartition, by the hash of values: who reads it keeps the rows that are of its part.

Each of its readers reads all of the subpartition, whatever attempt of a producer made it and in whatever order: the same rows are of the
same part always.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.reader import GateReader, Share
from firesteel.task.batches import filter_rows

_SEED = 0x7A
"""Another one than those by which rows find their subpartitions, and buckets on local disk."""


class ValuePartReader(GateReader):
    """As :class:`GateReader` of one rectangle, but only the rows of ``share`` (part, parts), by the hash of ``columns``."""

    def __init__(self, *gate: Any, columns: tuple[str, ...], share: Share) -> None:
        """``gate``: the arguments of :class:`GateReader`, without shares."""
        super().__init__(*gate)
        self._columns = columns
        self._part, self._parts = share

    def bytes_per_subpartition(self) -> tuple[int, NDArray[np.int64]]:
        """The part's, as if all were alike."""
        first, sizes = super().bytes_per_subpartition()
        return first, -(-sizes // self._parts)

    def read(
        self, subpartition_from: int | None = None, subpartition_to: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        for batch in super().read(subpartition_from, subpartition_to):
            hashes = hash_columns([batch.column(name) for name in self._columns], seed=_SEED)
            kept = filter_rows(batch, pa.array(subpartition_of(hashes, self._parts) == self._part))
            self.rows_read -= batch.num_rows - kept.num_rows
            if kept.num_rows:
                yield kept
