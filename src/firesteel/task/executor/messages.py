"""Messages from a task to the driver: one per execution, through the channel and again as the task's result.

A finish is a binary record, thousands of which become columns at once; failures and rejected deployments, which are rare,
are pickled objects. Stdlib and numpy only, since both ends import it.

    header      kind, numbers of what follows, the execution, when and how much          83 bytes
    partitions  per data set: its number, bytes of its sizes (-1: none), bytes, rows     35 bytes each
    node name, of each data set its sizes as packed by ``firesteel.model.sizes`` (where its ranges are still to be decided a sketch,
    ``firesteel.model.sketches``, in their place) and its heavy keys (``firesteel.model.heavy_keys``), per commit 4 bytes of
    length and itself; where its steps counted anything that (``firesteel.model.reports``), and in 4 bytes its length
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firesteel.errors import Stop

Ints = NDArray[np.int64]
_FINISHED, _FINISHED_WITH_REPORTS = 1, 2
"""The first byte of a finished execution's record; a pickle's is 128."""
_FIELDS = (
    ("kind", "u1"),
    ("partitions", "<u2"),
    ("commits", "<u2"),
    ("node", "<u2"),
    ("batch", "<i4"),
    ("subtask", "<i4"),
    ("attempt", "<i4"),
    ("token", "<i8"),
    ("deployed_at", "<f8"),
    ("running_at", "<f8"),
    ("ended_at", "<f8"),
    ("rows_in", "<i8"),
    ("bytes_in", "<i8"),
    ("rows_out", "<i8"),
    ("peak_memory", "<i8"),
)
_HEADER = np.dtype(list(_FIELDS))
_HEADER_CODE = struct.Struct("<BHHHiiiqdddqqqq")
_PARTITION = np.dtype(
    [
        ("dataset", "<i4"),
        ("packed", "<i4"),
        ("bytes", "<i8"),
        ("rows", "<i8"),
        ("stored", "<i8"),
        ("sketched", "u1"),
        ("heavy", "<u2"),
    ]
)
_PARTITION_CODE = struct.Struct("<iiqqqBH")
_LENGTH = struct.Struct("<I")
_HEAD, _PART = _HEADER.itemsize, _PARTITION.itemsize


@dataclass(frozen=True, slots=True)
class Where:
    """Batch, execution, node and times of a message; times are seconds since the epoch on the executor's clock."""

    batch: int
    subtask: int
    attempt: int
    token: int
    node: str
    """As ``Place.encoded``; the driver knows what to call it."""
    deployed_at: float
    running_at: float
    ended_at: float


class Written(NamedTuple):
    """One execution's output to one data set. ``packed``: plain bytes by subpartition as packed by ``firesteel.model.sizes``;
    None: not measured; ``sketched``: a sketch of its keys instead. ``heavy_keys``: ``firesteel.model.heavy_keys``; empty: none."""

    dataset: int
    bytes: int
    packed: bytes | None
    rows: int
    stored: int
    sketched: bool = False
    heavy_keys: bytes = b""


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    where: Where
    partitions: tuple[Written, ...]
    commits: tuple[bytes, ...]
    rows_in: int
    bytes_in: int
    rows_out: int
    peak_memory: int = -1
    """Most resident bytes of the worker while it ran; -1: not watched."""
    reports: bytes = b""
    """Of its steps (``firesteel.model.reports``); empty: they counted nothing."""


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
    stop: Stop | None = None
    """Of the embedded engine, if that is what failed."""


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """It began in the wrong place and ended at once, its program not begun."""

    where: Where
    retired: bool = False
    """True: in a Python worker that had begun with other external resources, and ends now; else on a blocked node."""


Message = FinishedMessage | FailedMessage | RejectedMessage


def encode(message: Message) -> bytes:
    if not isinstance(message, FinishedMessage):
        return pickle.dumps(message, protocol=5)
    at, node = message.where, message.where.node.encode()[:0xFFFF]
    numbers = len(message.partitions), len(message.commits), len(node)
    kind = _FINISHED_WITH_REPORTS if message.reports else _FINISHED
    execution = at.batch, at.subtask, at.attempt, at.token, at.deployed_at, at.running_at, at.ended_at
    measured = message.rows_in, message.bytes_in, message.rows_out, message.peak_memory
    pieces = [_HEADER_CODE.pack(kind, *numbers, *execution, *measured)]
    for part in message.partitions:
        length = -1 if part.packed is None else len(part.packed)
        numbers = part.dataset, length, part.bytes, part.rows, part.stored, part.sketched, len(part.heavy_keys)
        pieces.append(_PARTITION_CODE.pack(*numbers))
    pieces.append(node)
    for part in message.partitions:
        pieces += [part.packed or b"", part.heavy_keys]
    for commit in message.commits:
        pieces += [_LENGTH.pack(len(commit)), commit]
    if message.reports:
        pieces += [message.reports, _LENGTH.pack(len(message.reports))]
    return b"".join(pieces)


def is_finished(data: bytes) -> bool:
    """Returns True for a message of :func:`decode_many`, False for one of :func:`decode_other`."""
    return data[0] in (_FINISHED, _FINISHED_WITH_REPORTS)


def decode_other(data: bytes) -> FailedMessage | RejectedMessage:
    message: FailedMessage | RejectedMessage = pickle.loads(data)
    return message


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """Many executions' output to one data set, as columns. ``sizes``: None if not measured; ``sketched``: they are sketches.
    ``heavy_keys``: None if nobody has any."""

    dataset: int
    bytes: Ints
    rows: Ints
    stored: Ints
    sizes: list[bytes] | None
    sketched: bool = False
    heavy_keys: list[bytes] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FinishedMessages:
    """Many at once. ``header``: one row each, with the fields batch, subtask, attempt, token, ..., see the module."""

    header: NDArray[Any]
    records: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.records)

    def select(self, places: Sequence[int]) -> FinishedMessages:
        return FinishedMessages(self.header[places], [self.records[place] for place in places])

    def column(self, name: str) -> Ints:
        return self.header[name].astype(np.int64)

    def nodes(self, name_of: Callable[[str], str] = str) -> list[str]:
        """``name_of`` is asked once per place (``Where.node``)."""
        ends = self._node_begins() + self.header["node"]
        raw = [
            r[begin:end]
            for r, begin, end in zip(self.records, self._node_begins().tolist(), ends.tolist(), strict=True)
        ]
        names = {name: name_of(name.decode(errors="replace")) for name in set(raw)}
        return [names[name] for name in raw]

    def partitions(self) -> list[PartitionColumns]:
        """One entry per data set. All messages must be of executions of one vertex."""
        count = int(self.header["partitions"][0])
        if not count:
            return []
        table = self._partition_table(count)
        begins = self._sizes_begin()
        found: list[PartitionColumns] = []
        for place in range(count):
            own = table[:, place]
            ends = begins + np.maximum(own["packed"], 0)
            sizes = self._between(begins, ends) if (own["packed"] >= 0).all() else None
            begins, ends = ends, ends + own["heavy"]
            heavy_keys = self._between(begins, ends) if own["heavy"].any() else None
            plain, rows, stored = (own[name].astype(np.int64) for name in ("bytes", "rows", "stored"))
            sketched = bool(own["sketched"][0])
            found.append(PartitionColumns(int(own["dataset"][0]), plain, rows, stored, sizes, sketched, heavy_keys))
            begins = ends
        return found

    def commits(self) -> list[tuple[bytes, ...]]:
        """Of each execution the commit message of each sink; an empty list where none has any."""
        if not self.header["commits"].any():
            return []
        begins = self._sizes_begin()
        for count in np.unique(self.header["partitions"]).tolist():
            own = self.header["partitions"] == count
            table = self.select(np.flatnonzero(own).tolist())._partition_table(count)
            begins[own] += (np.maximum(table["packed"], 0) + table["heavy"]).sum(axis=1)
        counts = self.header["commits"].tolist()
        return [_commits(*given) for given in zip(self.records, begins.tolist(), counts, strict=True)]

    def reports(self) -> list[bytes]:
        """Of each execution what its steps counted; an empty list where none counted anything."""
        have = (self.header["kind"] == _FINISHED_WITH_REPORTS).tolist()
        return list(map(_reports, self.records, have)) if any(have) else []

    def _between(self, begins: Ints, ends: Ints) -> list[bytes]:
        bounds = zip(self.records, begins.tolist(), ends.tolist(), strict=True)
        return [record[begin:end] for record, begin, end in bounds]

    def _node_begins(self) -> Ints:
        return _HEAD + _PART * self.column("partitions")

    def _sizes_begin(self) -> Ints:
        return self._node_begins() + self.header["node"]

    def _partition_table(self, count: int) -> NDArray[Any]:
        end = _HEAD + _PART * count
        joined = b"".join([record[_HEAD:end] for record in self.records])
        return np.frombuffer(joined, _PARTITION).reshape(len(self.records), count)


def decode_many(records: Sequence[bytes]) -> FinishedMessages:
    """Records of finished executions, of any batches. Only their headers are looked at now."""
    header = np.frombuffer(b"".join([record[:_HEAD] for record in records]), _HEADER)
    return FinishedMessages(header, records)


def _reports(record: bytes, has_any: bool) -> bytes:
    if not has_any:
        return b""
    end = len(record) - _LENGTH.size
    (length,) = _LENGTH.unpack_from(record, end)
    return record[end - length : end]


def _commits(record: bytes, at: int, count: int) -> tuple[bytes, ...]:
    commits: list[bytes] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(record, at)
        at += _LENGTH.size
        commits.append(record[at : at + length])
        at += length
    return tuple(commits)
