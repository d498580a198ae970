"""Sizes of a partition's subpartitions, packed for the way from a task to the driver and for the driver's scratch files.

Written inside Spark tasks, folded in the control plane: numpy only, imports nothing of Firesteel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_PACKED_BYTES = 25_000
"""What a report over 10,000 subpartitions may take."""
MANY_PRODUCERS = 10_000
FEW_SUBPARTITIONS = 4_096
"""Above so many producers a result has at most so many subpartitions, unless its consumer's parallelism is known."""


def is_measured(producers: int, subpartitions: int) -> bool:
    """Whether producers report sizes by subpartition at all. Both ends ask this."""
    return producers <= MANY_PRODUCERS or subpartitions <= FEW_SUBPARTITIONS


def pack(sizes: NDArray[np.int64]) -> bytes:
    """Plain bytes per subpartition, in as few bytes as they need."""
    return np.ascontiguousarray(sizes, "<i8").tobytes()


def unpack(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, "<i8").astype(np.int64)


def counts_of(rows: Sequence[bytes]) -> NDArray[np.int64]:
    """How many subpartitions each packed row speaks of."""
    return np.fromiter(map(len, rows), np.int64, len(rows)) // 8
