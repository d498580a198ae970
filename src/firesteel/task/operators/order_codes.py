"""Values of any ordered type as numbers that order as they do, so that numpy can sort by several columns at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.model.arrays import Ints
from firesteel.task.batches import one_chunk, stable_order
from firesteel.task.operators.relational import order_type


def order_codes(column: Any, ascending: bool) -> tuple[Ints, int]:
    """A number below ``n`` per row that orders as the values do (or the other way round); returns (numbers, n)."""
    values = plain_values(column)
    to = order_type(values.type) or values.type
    if pa.types.is_null(to):
        return np.zeros(len(values), dtype=np.int64), 1
    values = values if values.type == to else values.cast(to)
    codes = np.asarray(pc.rank(values, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
    if values.null_count:
        codes[np.asarray(values.is_null())] = 0
    n = int(codes.max()) + 1 if len(codes) else 1
    return (codes, n) if ascending else (n - 1 - codes, n)


def sorted_rows(codes: list[tuple[Ints, int]]) -> Ints:
    """Row numbers in the order of these (numbers, n), the first one first; equal rows stay in their order."""
    total = 1
    for _, n in codes:
        total *= max(n, 1)
    if total >= 1 << 31:
        return np.lexsort([code for code, _ in reversed(codes)])
    combined = codes[0][0]
    for code, n in codes[1:]:
        combined = combined * n + code
    return stable_order(combined)


def plain_values(column: Any) -> pa.Array:
    """The values in one chunk, without a dictionary or runs."""
    array = one_chunk(column)
    if pa.types.is_dictionary(array.type):
        return array.cast(array.type.value_type)
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array
