"""The function of benchmark 1 that is called on rows. Loads nothing that a peer's environment lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NEEDED = ("l_orderkey", "l_extendedprice", "l_discount")


def worth(price: Any, discount: Any) -> Any:
    """``price * (1 - discount)`` as doubles."""
    return pc.multiply(pc.cast(price, pa.float64()), pc.subtract(1.0, pc.cast(discount, pa.float64())))


def revenue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        value = worth(batch.column("l_extendedprice"), batch.column("l_discount"))
        yield pa.RecordBatch.from_arrays([pc.cast(batch.column("l_orderkey"), pa.int64()), value], names=["k", "v"])
