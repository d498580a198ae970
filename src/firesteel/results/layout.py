"""How one attempt's rows lie in its object. All numbers are little-endian unsigned 64-bit, so that a reader can
fetch just the rows of the index it needs.

    header    magic (its last character is the version), zeros                                            16 bytes
    messages  Arrow IPC record-batch messages (no schema), region after region, rows ordered by subpartition
    indexes   per region: (E + 1) subpartition entries, then (M + 1) message entries                      32 bytes each
    regions   per region: index offset, E, M, rows                                                        32 bytes each
    trailer   regions offset, regions, subpartitions, rows, schema print, name print, check, magic        64 bytes

A *subpartition entry* is (first row, plain bytes before it, subpartition | message << 32, check); a *message entry* is
(offset, first row, crc32 of its bytes, check). Each list ends with an entry that holds the totals. A region lists every
subpartition (E = subpartitions: entry s is at a known place) unless few of them have rows; then only those. Small
neighbours share a message, so the entry counts rows, and says which message holds its first one.
The checks tie an entry to its content, place, region and object name; a half-written object has no trailer.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.hashing import mix_in_place

U64 = np.dtype("<u8")
MAGIC = int.from_bytes(b"FIRESTL1", "little")
HEADER_BYTES = 16
TRAILER_BYTES = 64
ENTRY_BYTES = 32
REGION_BYTES = 32
SPARSE_SHARE = 4
"""A region lists only its non-empty subpartitions when they are fewer than one in this many."""

Words = NDArray[np.uint64]


class Damaged(Exception):
    """What is wrong with an object, as the end of the sentence "the object ... "."""


def header() -> bytes:
    return np.array([MAGIC, 0], U64).tobytes()


def schema_print(schema: pa.Schema) -> int:
    """A fingerprint of the names and types as stored; nullability and metadata do not matter."""
    text = "\n".join(f"{field.name}\t{field.type}" for field in schema)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def name_print(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def seal(entries: Words, name: int, region: int, first: int = 0) -> Words:
    """The check of each entry (n, 4): ``first`` is the list position of the first."""
    check = np.arange(first, first + len(entries), dtype=np.uint64)
    check ^= np.uint64((name + region * 0x9E3779B97F4A7C15) % (1 << 64))
    for column in range(3):
        mix_in_place(check)
        check ^= entries[:, column]
    return mix_in_place(check)


@dataclass(frozen=True, slots=True)
class Identity:
    """What an object is meant to be: its writer seals it with this, and its reader expects it."""

    subpartitions: int
    schema: int
    name: int

    @staticmethod
    def of(name: str, schema: pa.Schema, subpartitions: int) -> Identity:
        """``schema``: as stored."""
        return Identity(subpartitions, schema_print(schema), name_print(name))


@dataclass(slots=True)
class Region:
    """What the writer knows of a finished region. Columns are cumulative: one longer than there are things."""

    rows: NDArray[np.int64]
    """int64[S + 1]: rows before each subpartition."""
    plain: NDArray[np.int64]
    """int64[S + 1]: plain bytes before each subpartition."""
    message_offsets: list[int]
    """M + 1 offsets in the object."""
    message_rows: list[int]
    """M + 1: rows before each message."""


def encode_footer(regions: list[Region], crcs: list[int], at: int, identity: Identity) -> bytes:
    """Indexes, region table and trailer of an object whose messages end at offset ``at``; ``crcs``: of all its messages."""
    parts: list[bytes] = []
    done = 0
    table = np.zeros((len(regions), 4), U64)
    for number, region in enumerate(regions):
        entries = _subpartition_entries(region, identity.subpartitions)
        messages = np.zeros((len(region.message_offsets), 4), U64)
        messages[:, 0] = region.message_offsets
        messages[:, 1] = region.message_rows
        messages[:-1, 2] = crcs[done : done + len(messages) - 1]
        done += len(messages) - 1
        # two lists of a region differ in their check by the list's number
        entries[:, 3] = seal(entries, identity.name, 2 * number)
        messages[:, 3] = seal(messages, identity.name, 2 * number + 1)
        table[number] = (at, len(entries) - 1, len(messages) - 1, region.rows[-1])
        parts += [entries.tobytes(), messages.tobytes()]
        at += ENTRY_BYTES * (len(entries) + len(messages))
    rows = int(table[:, 3].sum())
    fields = np.array([at, len(regions), identity.subpartitions, rows, identity.schema, identity.name], U64)
    check = zlib.crc32(fields.tobytes(), zlib.crc32(table.tobytes()))
    parts += [table.tobytes(), fields.tobytes(), np.array([check, MAGIC], U64).tobytes()]
    return b"".join(parts)


def _subpartition_entries(region: Region, subpartitions: int) -> Words:
    filled = np.flatnonzero(np.diff(region.rows))
    if len(filled) * SPARSE_SHARE >= subpartitions:
        filled = np.arange(subpartitions)
    places = np.append(filled, subpartitions)
    entries = np.zeros((len(places), 4), U64)
    entries[:, 0] = region.rows[places]
    entries[:, 1] = region.plain[places]
    # the message that holds the row; a row that begins a message belongs to that one
    message = np.searchsorted(np.asarray(region.message_rows), region.rows[places], side="right") - 1
    entries[:, 2] = places.astype(np.uint64) | (message.astype(np.uint64) << np.uint64(32))
    return entries


@dataclass(slots=True)
class Trailer:
    """The checked end of an object. ``table`` (regions, 4): index offset, subpartition entries, message entries, rows."""

    table: Words
    rows: int


@dataclass(slots=True)
class Slice:
    """The part of a region's index that covers a range of subpartitions [low, high)."""

    rows: NDArray[np.int64]
    """int64[high - low + 1]: rows of the region before each subpartition."""
    plain: NDArray[np.int64]
    message_offsets: NDArray[np.int64]
    """Of the messages that overlap the rows, and where the last of them ends."""
    message_rows: NDArray[np.int64]
    message_crcs: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes * 2 + self.message_offsets.nbytes * 3


class Tail:
    """The last bytes of an object, in memory; reads what lies before them when it is asked for."""

    def __init__(self, source: Any, length: int) -> None:
        """``source``: a store's Input."""
        self._source = source
        self.size = int(source.size)
        self._from = max(self.size - length, 0)
        self._bytes = self._fetch(self._from, self.size - self._from)

    def _fetch(self, offset: int, length: int) -> pa.Buffer:
        data = self._source.read_at(offset, length)
        if data.size != length:
            raise Damaged(f"ends at byte {offset + data.size} where {offset + length} were expected")
        return data

    def words(self, offset: int, count: int) -> Words:
        """``count`` numbers at ``offset``."""
        length = 8 * count
        if offset < HEADER_BYTES or offset + length > self.size:
            raise Damaged(f"points outside itself (bytes {offset} to {offset + length} of {self.size})")
        if length == 0:
            return np.zeros(0, U64)
        inside = offset >= self._from
        data = self._bytes.slice(offset - self._from, length) if inside else self._fetch(offset, length)
        return np.frombuffer(data, U64)


def read_trailer(tail: Tail, identity: Identity) -> Trailer:
    """Check the end of an object against what its reader expects. Raises Damaged."""
    if tail.size < HEADER_BYTES + TRAILER_BYTES:
        raise Damaged(f"has only {tail.size} bytes: it was never finished, or was cut")
    words = tail.words(tail.size - TRAILER_BYTES, TRAILER_BYTES // 8)
    at, regions, found, rows, found_schema, found_name, check, magic = (int(word) for word in words)
    if magic != MAGIC and magic % (1 << 56) == MAGIC % (1 << 56):
        raise Damaged("was written by another version of Firesteel")
    if magic != MAGIC:
        raise Damaged("has no trailer: it was never finished, or was cut or overwritten")
    end = tail.size - TRAILER_BYTES
    if at > end or regions != (end - at) // REGION_BYTES or (end - at) % REGION_BYTES:
        raise Damaged("has a damaged trailer")
    table = tail.words(at, regions * (REGION_BYTES // 8))
    if zlib.crc32(words[:6].tobytes(), zlib.crc32(table.tobytes())) != check:
        raise Damaged("has a damaged trailer (checksum differs)")
    if found_name != identity.name:
        raise Damaged("holds what another object should hold")
    if found_schema != identity.schema:
        raise Damaged("was written with another schema than its reader expects")
    if found != identity.subpartitions:
        raise Damaged(f"has {found} subpartitions where {identity.subpartitions} were expected")
    return Trailer(table.reshape(-1, 4), rows)


def read_slices(tail: Tail, identity: Identity, low: int, high: int) -> list[Slice]:
    """Check the object's end, and read what its index says of subpartitions [low, high), region by region. Raises Damaged."""
    table = read_trailer(tail, identity).table
    return [_read_slice(tail, identity, table[region], region, (low, high)) for region in range(len(table))]


def _read_slice(tail: Tail, identity: Identity, row: Words, region: int, bounds: tuple[int, int]) -> Slice:
    low, high = bounds
    at, entry_count, message_count, _ = (int(word) for word in row)
    seal_of = (identity.name, 2 * region)
    if entry_count == identity.subpartitions:
        entries = _entries(tail, at, (low, high + 1), seal_of)
    else:
        entries = _entries(tail, at, (0, entry_count + 1), seal_of)
        # the first listed subpartition at or after each asked one; the last entry stands for the end
        asked = np.arange(low, high + 1, dtype=np.uint64)
        entries = entries[np.searchsorted(entries[:, 2] & np.uint64(0xFFFFFFFF), asked)]
    rows = entries[:, 0].astype(np.int64)
    first = int(entries[0, 2] >> np.uint64(32))
    last = min(int(entries[-1, 2] >> np.uint64(32)) + 1, message_count)
    if rows[0] == rows[-1]:
        last = first
    at += ENTRY_BYTES * (entry_count + 1)
    messages = _entries(tail, at, (first, last + 1), (identity.name, 2 * region + 1)).astype(np.int64)
    if last - first > 1 and messages[-2, 1] >= rows[-1]:
        messages = messages[:-1]  # the range ends where its last message begins
    return Slice(rows, entries[:, 1].astype(np.int64), messages[:, 0], messages[:, 1], messages[:-1, 2])


def _entries(tail: Tail, at: int, span: tuple[int, int], seal_of: tuple[int, int]) -> Words:
    first, last = span
    entries = tail.words(at + ENTRY_BYTES * first, 4 * (last - first)).reshape(-1, 4)
    if not np.array_equal(seal(entries, *seal_of, first), entries[:, 3]):
        raise Damaged("has a damaged index (checksum differs)")
    return entries
