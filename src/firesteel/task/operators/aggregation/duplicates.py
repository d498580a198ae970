"""One row per key, whichever way the rows came: of a key's rows the one whose hash over all columns is smallest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns
from firesteel.task.operators.aggregation.aggregate import Distinct, Folding, FoldingState, OneRowPerKey
from firesteel.task.program import TaskContext


def content_hashes(table: pa.Table) -> NDArray[np.uint64]:
    """A number per row that depends on its values only (not on columns of types that have no hash: unions)."""
    hashable: list[pa.ChunkedArray] = []
    for column in table.columns:
        try:
            hash_columns([column.slice(0, 0)])
        except TypeError:
            continue
        hashable.append(column)
    return hash_columns(hashable) if hashable else np.zeros(table.num_rows, dtype=np.uint64)


class _SmallestRows(OneRowPerKey):
    """The same one in whatever order they are folded."""

    def _chosen(self, table: pa.Table, codes: Any, keys: int) -> Any:
        order = np.lexsort((content_hashes(table), codes))
        ordered = codes[order]
        first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        return np.sort(order[first])


@dataclass(frozen=True)
class OnePerKey(Distinct):
    """``distinct_keys``: the columns in which no two rows may agree."""

    @property
    def folding(self) -> Folding:
        return _SmallestRows(self.schema, self.distinct_keys)


@dataclass(frozen=True)
class OnePerKeyCombiner:
    """Combiner: drops a task's duplicates before the exchange. The schema stays."""

    distinct_keys: tuple[str, ...]
    schema: pa.Schema

    def new(self, ctx: TaskContext) -> FoldingState:
        return FoldingState(_SmallestRows(self.schema, self.distinct_keys), self.schema, ctx.memory_budget)
