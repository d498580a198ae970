"""Keys with very many rows, found by a sample: these rows are worth folding before the exchange even where all others are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from firesteel.results.hashing import hash_columns

SLICES, SLICE_ROWS = 16, 128
"""Rows looked at, in slices that lie evenly: rows that are in the order of their keys show as well."""
SHARE = 1 / 16
"""Of the sample, from which on a key is heavy: the one task that gets its rows would have twice what each of 16 should have."""


def heavy_rows(table: pa.Table, names: Sequence[str]) -> pa.Array | None:
    """A mask of the rows of heavy keys, by the hash of these columns; None where the sample has none, or the rows are too few."""
    rows = table.num_rows
    if rows < 2 * SLICES * SLICE_ROWS:
        return None
    starts = np.arange(SLICES) * (rows // SLICES)
    sample = pa.concat_tables([table.slice(start, SLICE_ROWS) for start in starts.tolist()])
    found, counts = np.unique(_hashes(sample, names), return_counts=True)
    heavy = found[counts >= SHARE * sample.num_rows]
    return pa.array(np.isin(_hashes(table, names), heavy)) if len(heavy) else None


def _hashes(table: pa.Table, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return hash_columns([table.column(name) for name in names])
