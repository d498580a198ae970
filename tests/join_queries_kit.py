"""Joins of every kind as queries, with what may happen to them while they run, and as SQL: for tests on a cluster.

Its classes and functions are shipped to executors by value, and what they use is imported there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from firesteel.connectors.base import Split

SQL = {
    "inner": "SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k",
    "left": "SELECT l.k, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k",
    "right": "SELECT r.k, l.v, r.w FROM l RIGHT JOIN r ON l.k = r.k",
    "full": "SELECT coalesce(l.k, r.k) AS k, l.v, r.w FROM l FULL JOIN r ON l.k = r.k",
    "semi": "SELECT l.k, l.v FROM l SEMI JOIN r ON l.k = r.k",
    "anti": "SELECT l.k, l.v FROM l ANTI JOIN r ON l.k = r.k",
}
SPLITS = 5
"""Of the large side: more than there are slots."""


class Query(NamedTuple):
    """``heavy``: one key holds 60 % of the large side's rows."""

    how: str
    heavy: bool

    @property
    def small(self) -> str:
        """The side that may be read whole, of those that may."""
        return "left" if self.how == "right" else "right"

    @property
    def name(self) -> str:
        return f"{self.how}-{'heavy' if self.heavy else 'even'}"

    def tables(self) -> dict[str, pa.Table]:
        """Keys of 64 bits on one side and 32 on the other; some are null, some are there twice, some on one side only. What the small
        side's tasks write is more than a reader keeps of it."""
        rng = np.random.default_rng([ord(c) for c in self.name])

        def side(column: str, rows: int, low: int, type_: Any) -> pa.Table:
            keys = rng.integers(low, low + 3_000, rows)
            if self.heavy:
                keys[np.arange(rows) < 2 if low else rng.random(rows) < 0.6] = 2_000
            masked = pa.array(keys.astype(type_), mask=rng.random(rows) < 0.03)
            return pa.table({"k": masked, column: [f"{column}{n}" for n in rng.integers(0, 1 << 40, rows)]})

        few, many = (1_200, 1_500, np.int64), (8_000, 0, np.int32)
        return {
            "l": side("v", *(few if self.small == "left" else many)),
            "r": side("w", *(few if self.small == "right" else many)),
        }


class Rows:
    """A table in splits, each of which gives several batches.

    ``slow``: the first attempt at split 0 never ends.
    """

    supports_concurrent_execution_attempts = True

    def __init__(self, name: str, table: pa.Table, splits: int, *, slow: bool = False) -> None:
        self.name, self.table, self.splits, self.slow = name, table, splits, slow
        self.schema = table.schema

    def list_splits(self, data_volume: int) -> list[Split]:
        return [Split(k, self.table.nbytes // self.splits, f"split {k}") for k in range(self.splits)]

    def read(self, split: int, ctx: Any):
        import time

        n = self.table.num_rows
        first, end = n * split // self.splits, n * (split + 1) // self.splits
        yield from self.table.slice(first, end - first).combine_chunks().to_batches(max_chunksize=n // self.splits // 4)
        while self.slow and split == 0 and ctx.attempt == 0:
            time.sleep(0.01)


def failing_once(folder, name):
    """A step that fails when it has handed on a batch, but for the first time only."""
    where = str(folder)

    def fail(batches):
        from pathlib import Path

        for batch in batches:
            yield batch
            try:
                (Path(where) / f"failed-{name}").touch(exist_ok=False)
            except FileExistsError:
                continue
            raise ValueError("once")

    return fail
