"""Puts rows in order: row numbers that sort columns by an ``Order``, ties in row order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.ordering import Order, text_bytes, value_words
from firesteel.results.plain import to_stored

ROW_BYTES = 24
"""What sorting needs per row and fixed column beside the rows: their numbers in order, and numbers that compare."""


def row_order(columns: Sequence[Any], order: Order) -> NDArray[np.int64]:
    """int64[rows]. ``columns``: the arrays of ``order.columns``, equally long."""
    keys: list[Any] = []
    directions: list[str] = []

    def add(key: Any, direction: str = "ascending") -> None:
        keys.append(key)
        directions.append(direction)

    for array, column in zip(columns, order.columns, strict=True):
        stored = to_stored(array)
        if stored.null_count:
            valid = stored.is_valid() if column.ascending else stored.is_null()
            add(valid.cast(pa.uint8()))
        words = value_words(stored)
        if words is None:
            text = text_bytes(stored)
            add(text, "ascending" if column.ascending else "descending")
        else:
            for word in words:
                add(pa.array(_settled(word if column.ascending else ~word, stored)))
    if not keys:
        return np.arange(len(columns[0]))
    names = [str(place) for place in range(len(keys))]
    table = pa.RecordBatch.from_arrays(keys, names)
    sorting = list(zip(names, directions, strict=True))
    return np.asarray(pc.sort_indices(table, sort_keys=sorting)).view(np.int64)


def _settled(word: NDArray[Any], array: Any) -> NDArray[Any]:
    """With zeros for nulls, which are arbitrary."""
    return np.where(np.asarray(array.is_valid()), word, word.dtype.type(0)) if array.null_count else word
