"""What a task tells the driver: one message per execution, through the channel and again as the task's result.

Plain picklable data; stdlib only, since both ends import it.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass


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
    partitions: tuple[tuple[int, int, bytes | None, int, int], ...]
    """(data set, plain bytes, those by subpartition as packed by ``firesteel.sizes``, rows, stored bytes)."""
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
