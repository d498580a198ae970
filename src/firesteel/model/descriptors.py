"""Deployment descriptors as bytes: of gates (once per consumed group) and of executions (a few bytes each).

Written by the control plane and the driver, read inside Spark tasks: stdlib and numpy only, imports nothing of Firesteel.
A gate is a header and columns. A column is a straight line plus what is left of each entry, in the narrowest width,
its bytes sorted by significance and deflated where that pays; one whose rest is all zero has no bytes at all.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rects = NDArray[np.int32]
DIGEST_BYTES = 16
_GATE = struct.Struct("<BBIqq")
"""Version, flags, columns' total bytes, data set, number of subpartitions."""
_COLUMN = struct.Struct("<BBIqqI")
"""Width of an entry, whether deflated, entries, start and step of the line, bytes that follow."""
_VERSION = 2
_BROADCAST, _PIPELINED, _PARTITIONS, _MERGED, _RANGES = 1, 2, 4, 8, 16
_WIDTHS = tuple((np.dtype(kind), int(np.iinfo(kind).max)) for kind in ("u1", "<u2", "<u4", "<u8"))
_DEFLATE_FROM = 64
"""Bytes of a column below which deflating cannot pay."""
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """``digest`` names ``data``: equal bytes have equal names."""

    digest: bytes
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> Encoded:
        return cls(digest_of(data), data)


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, eq=False)
class GateColumns:
    """The places of the partitions of a consumed data set: what ``scheduler.commands.GateDescriptor`` says, decoded.

    ``attempts``, ``tokens``: int64, one per partition of the data set, or per entry of ``partitions`` (ascending).
    ``merged``: (first, end, tokens) of the objects that stand for several partitions. ``boundaries``: ascending, the keys
    at which the ranges of a RANGE data set begin, but for the first: one less than it has subpartitions.
    """

    dataset: int
    num_subpartitions: int
    attempts: Ints
    tokens: Ints
    is_broadcast: bool
    partitions: Ints | None = None
    pipelined: bool = False
    merged: tuple[Ints, Ints, Ints] | None = None
    boundaries: tuple[bytes, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Memory that the columns take."""
        columns = [self.attempts, self.tokens, *(self.merged or ())]
        keys = sum(map(sys.getsizeof, self.boundaries or ()))
        return sum(c.nbytes for c in columns) + (0 if self.partitions is None else self.partitions.nbytes) + keys


def encode_gate(gate: GateColumns) -> bytes:
    """About a millisecond for 10,000 partitions; Spark's task attempt ids take one or two bytes each."""
    flags = _BROADCAST * gate.is_broadcast | _PIPELINED * gate.pipelined
    columns = [gate.attempts, gate.tokens]
    if gate.partitions is not None:
        flags |= _PARTITIONS
        columns.append(gate.partitions)
    if gate.merged is not None:
        flags |= _MERGED
        columns += gate.merged
    keys = b""
    if gate.boundaries is not None:
        flags |= _RANGES
        columns.append(np.fromiter(map(len, gate.boundaries), np.int64, len(gate.boundaries)))
        keys = zlib.compress(b"".join(gate.boundaries), _LEVEL)
    body = b"".join(map(_encode_column, columns)) + keys
    return _GATE.pack(_VERSION, flags, len(body), gate.dataset, gate.num_subpartitions) + body


def decode_gate(data: bytes) -> GateColumns:
    """Raises ValueError for bytes that are not a gate."""
    try:
        version, flags, length, dataset, num_subpartitions = _GATE.unpack_from(data)
        if version != _VERSION or len(data) != _GATE.size + length:
            raise ValueError("no gate descriptor")
        at = _GATE.size
        columns: list[Ints] = []
        for _ in range(2 + bool(flags & _PARTITIONS) + 3 * bool(flags & _MERGED) + bool(flags & _RANGES)):
            column, at = _decode_column(data, at)
            columns.append(column)
        boundaries = _keys(zlib.decompress(data[at:]), columns.pop()) if flags & _RANGES else None
    except (struct.error, zlib.error) as error:
        raise ValueError(f"no gate descriptor: {error}") from error
    attempts, tokens, *others = columns
    partitions = others.pop(0) if flags & _PARTITIONS else None
    merged = (others[0], others[1], others[2]) if flags & _MERGED else None
    is_broadcast, pipelined = bool(flags & _BROADCAST), bool(flags & _PIPELINED)
    where = attempts, tokens, is_broadcast, partitions, pipelined, merged
    return GateColumns(dataset, num_subpartitions, *where, boundaries)


def most_bytes(gate: GateColumns) -> int:
    """Returns a bound, in bytes, that the gate's encoding cannot exceed; known without encoding it."""
    columns = 2 + (gate.partitions is not None) + 3 * (gate.merged is not None) + (gate.boundaries is not None)
    keys = 0 if gate.boundaries is None else 64 + 8 * len(gate.boundaries)
    return _GATE.size + columns * _COLUMN.size + gate.nbytes + keys


def _keys(joined: bytes, lengths: Ints) -> tuple[bytes, ...]:
    ends = np.cumsum(lengths)
    if (ends[-1] if len(ends) else 0) != len(joined):
        raise ValueError("no gate descriptor: a key is cut")
    return tuple(joined[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True))


def _encode_column(column: Ints) -> bytes:
    values = np.asarray(column, np.int64)
    n = len(values)
    if not n:
        return _COLUMN.pack(1, 0, 0, 0, 0, 0)
    step = _best_step(values)
    rest = values - step * np.arange(n) if step else values
    start = int(rest.min())
    spread = int(rest.max()) - start
    if not spread:
        return _COLUMN.pack(1, 0, n, start, step, 0)
    kind = next(kind for kind, most in _WIDTHS if spread <= most)
    narrow = (rest.view(np.uint64) - np.uint64(start % (1 << 64))).astype(kind)
    raw = narrow.tobytes() if kind.itemsize == 1 else narrow.view(np.uint8).reshape(n, -1).T.tobytes()
    packed = zlib.compress(raw, _LEVEL) if len(raw) >= _DEFLATE_FROM else raw
    deflated = len(packed) < len(raw)
    data = packed if deflated else raw
    return _COLUMN.pack(kind.itemsize, deflated, n, start, step, len(data)) + data


def _decode_column(data: bytes, at: int) -> tuple[Ints, int]:
    width, deflated, n, start, step, length = _COLUMN.unpack_from(data, at)
    at += _COLUMN.size
    if length:
        raw = data[at : at + length]
        if deflated:
            raw = zlib.decompress(raw)
        if len(raw) != n * width:
            raise ValueError("no gate descriptor: a column is cut")
        planes = np.frombuffer(raw, np.uint8)
        rest = planes if width == 1 else np.ascontiguousarray(planes.reshape(width, n).T).view(f"<u{width}").ravel()
        values = rest.astype(np.int64)
        values += start
    else:
        values = np.full(n, start, np.int64)
    if step:
        values += step * np.arange(n)
    return values, at + length


def _best_step(values: Ints) -> int:
    """The slope of the line that leaves the least: none, one (numbers given in order), or that of the ends."""
    n = len(values)
    if n < 3 or (values == values[0]).all():
        return 0
    slope = round((int(values[-1]) - int(values[0])) / (n - 1))
    if abs(slope) > (1 << 62) // n:
        return 0
    return min({0, 1, slope}, key=lambda step: (_left(values - step * np.arange(n) if step else values), step))


def _left(rest: Ints) -> float:
    """About how many bits the entries need beside what most of them share. A few far away hardly count."""
    middle = int(np.partition(rest, len(rest) // 2)[len(rest) // 2])
    return float(np.log2(np.abs((rest - middle).astype(np.float64)) + 1).sum())


# --- executions ------------------------------------------------------------------------------------------------

_FIXED_WORDS = 3
"""Number of gates, less than 0 (``~n``) where the bytes it should read follow as int64, subtask, attempt; those bytes; then per gate the number
of its rectangles, less than 0 where each is followed by its share; then all rectangles. int32."""
_RECT_WORDS, _SHARED_WORDS = 4, 6


@dataclass(frozen=True, slots=True)
class ExecutionDescriptor:
    """The few bytes of one execution. ``rects``: per gate, the int32 rectangles (n, 4) it reads, and ``shares`` (n, 2) of them,
    see ``commands.InputRanges``; None: all are read whole."""

    subtask: int
    attempt: int
    rects: tuple[Rects, ...] = ()
    splits: tuple[Any, ...] = ()
    shares: tuple[Rects | None, ...] = ()
    input_bytes: int = 0
    """Plain bytes that it should read, as the scheduler estimates; 0: not known."""


def encode_executions(
    subtasks: Ints,
    attempts: Ints,
    ranges: Sequence[tuple[NDArray[np.int32], Rects]],
    splits: Sequence[Sequence[Any]] | None = None,
    dumps: Callable[[Any], bytes] = pickle.dumps,
    *,
    input_bytes: Ints | None = None,
) -> list[bytes]:
    """One descriptor per execution. ``ranges``: per gate, (offsets, rectangles), see ``commands.InputRanges.columns``.

    ``input_bytes``: plain bytes that each should read, if they are known. ``splits``: of a source, the splits of each execution; ``dumps`` pickles them. Some ten microseconds in all, and one slice per execution.
    """
    n, gates = len(subtasks), len(ranges)
    if not n:
        return []
    told_bytes = (
        np.empty((n, 0), "<i4")
        if input_bytes is None
        else np.ascontiguousarray(input_bytes, "<i8").view("<i4").reshape(n, 2)
    )
    fixed = _FIXED_WORDS + told_bytes.shape[1] + gates
    counts = np.empty((n, gates), np.int64)
    for gate, (offsets, _) in enumerate(ranges):
        counts[:, gate] = np.diff(offsets)
    widths = np.array([rects.shape[1] for _, rects in ranges], np.int64)
    ends = np.cumsum(fixed + counts @ widths)
    begins = np.concatenate(([0], ends[:-1])).astype(np.int64)
    words = np.empty(int(ends[-1]), "<i4")
    head = begins[:, None] + np.arange(fixed)
    told = np.where(widths == _SHARED_WORDS, ~counts, counts)
    told_gates = gates if input_bytes is None else ~gates
    words[head] = np.column_stack([np.full(n, told_gates), subtasks, attempts, told_bytes, told])
    at = begins + fixed
    for gate, (offsets, rects) in enumerate(ranges):
        # Row r of the rectangles belongs to execution k, and is its (r - offsets[k])th of this gate.
        width = rects.shape[1]
        first = at - width * np.asarray(offsets[:-1], np.int64)
        places = np.repeat(first, counts[:, gate]) + width * np.arange(int(offsets[0]), int(offsets[-1]))
        words[places[:, None] + np.arange(width)] = rects[int(offsets[0]) : int(offsets[-1])]
        at += width * counts[:, gate]
    data = words.tobytes()
    cut = [data[begin:end] for begin, end in zip((4 * begins).tolist(), (4 * ends).tolist(), strict=True)]
    if splits is None:
        return cut
    return [own + dumps(tuple(given)) for own, given in zip(cut, splits, strict=True)]


def decode_execution(data: bytes) -> ExecutionDescriptor:
    gates, subtask, attempt = np.frombuffer(data, "<i4", _FIXED_WORDS).tolist()
    at, input_bytes = 4 * _FIXED_WORDS, 0
    if gates < 0:
        gates, input_bytes, at = ~gates, int(np.frombuffer(data, "<i8", 1, at)[0]), at + 8
    counts = np.frombuffer(data, "<i4", gates, at).tolist()
    at += 4 * gates
    rects: list[Rects] = []
    shares: list[Rects | None] = []
    for told in counts:
        count, width = (told, _RECT_WORDS) if told >= 0 else (~told, _SHARED_WORDS)
        columns = np.frombuffer(data, "<i4", width * count, at).reshape(count, width)
        rects.append(columns[:, :_RECT_WORDS])
        shares.append(columns[:, _RECT_WORDS:] if told < 0 else None)
        at += 4 * width * count
    splits = pickle.loads(memoryview(data)[at:]) if at < len(data) else ()
    return ExecutionDescriptor(subtask, attempt, tuple(rects), splits, tuple(shares), input_bytes)
