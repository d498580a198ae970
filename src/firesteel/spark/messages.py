"""What a task tells the driver: one message per execution, through the channel and again as the task's result.

Plain picklable data; stdlib and numpy only, since both ends import it.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_COMPRESS_ABOVE = 512
"""Bytes of a size column above which it is worth compressing."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which execution of which batch, where and when; times are seconds since the epoch on the executor's clock."""

    batch: int
    subtask: int
    attempt: int
    token: int
    node: str
    deployed_at: float
    running_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    where: Where
    partitions: tuple[tuple[int, bytes, int, int], ...]
    """(data set, packed plain bytes per subpartition, rows, stored bytes)."""
    commits: tuple[bytes, ...]
    rows_in: int
    bytes_in: int
    rows_out: int


@dataclass(frozen=True, slots=True)
class FailedMessage:
    where: Where
    kind: str
    """Name of a ``scheduler.events.FailureKind``."""
    message: str
    hint: str | None = None
    trace: str | None = None
    partition: tuple[int, int, int, int] = (-1, -1, -1, -1)
    """(data set, partition, attempt, token) of a bad partition."""


Message = FinishedMessage | FailedMessage


def encode(message: Message) -> bytes:
    return pickle.dumps(message, protocol=5)


def decode(data: bytes) -> Message:
    return pickle.loads(data)


def pack_sizes(sizes: NDArray[np.int64]) -> bytes:
    """int64 sizes as bytes, compressed when long (4,096 sizes would be 32 KiB in each message)."""
    raw = np.ascontiguousarray(sizes, dtype="<i8").tobytes()
    return b"z" + zlib.compress(raw, 1) if len(raw) > _COMPRESS_ABOVE else b"r" + raw


def unpack_sizes(data: bytes) -> NDArray[np.int64]:
    raw = zlib.decompress(data[1:]) if data[:1] == b"z" else data[1:]
    return np.frombuffer(raw, dtype="<i8").astype(np.int64, copy=False)
