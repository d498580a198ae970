"""Layout of an object that holds one attempt's rows. All numbers are little-endian unsigned 64-bit, so that a reader can
fetch just the rows of the index it needs.

    header    magic (its last character is the version), zeros                                            16 bytes
    messages  Arrow IPC record-batch messages (no schema) as ``packing`` stores them, region after region, rows ordered by subpartition
    indexes   per region: a list of (E + 1) subpartition entries, then one of (M + 1) message entries     24 bytes each
    keys      of an object in order, else nothing: see ``key_index``
    regions   per region: index offset, E, M, rows                                                        32 bytes each
    trailer   regions offset, regions, subpartitions, rows, schema print, name print, check, magic        64 bytes

A *subpartition entry* is (first row, plain bytes before it, subpartition | message << 32); a *message entry* is (offset,
first row, seal: see ``packing``). Each list ends with an entry that holds the totals, and is cut into blocks of 64 entries,
each with a crc32 that ties it to its place, list and object name. A region lists every subpartition (E = subpartitions:
entry s is at a known place) unless few of them have rows; then only those. Small neighbours share a message, so the
entry counts rows, and says which message holds its first one. A half-written object has no trailer.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

U64 = np.dtype("<u8")
I64 = np.dtype("<i8")
"""For reading: no number that was written is 2**63 or more, but for prints."""
MAGIC = int.from_bytes(b"FIRESTL2", "little")
HEADER_BYTES = 16
TRAILER_BYTES = 64
ENTRY_BYTES = 24
BLOCK_ENTRIES = 64
"""A reader of a few subpartitions fetches and checks one or two blocks of the index."""
REGION_BYTES = 32
_BLOCK_BYTES = BLOCK_ENTRIES * ENTRY_BYTES + 8
_TRAILER = struct.Struct("<8Q")
_REGION = struct.Struct("<4Q")
_U64 = struct.Struct("<Q")
_OF_ONE_JOB = re.compile(r"^d\d+-(p\d+)-a\d+-")
SPARSE_SHARE = 4
"""A region lists only its non-empty subpartitions when they are fewer than one in this many."""
_LIST_SEED, _BLOCK_SEED = 0x9E3779B1, 0x85EBCA77
"""A block's checksum begins at the print of the object's name and these, times the list's number and the block's: it is valid in its own
place only."""

Words = NDArray[np.uint64]


class Damaged(Exception):
    """Raised for a damaged object; the message is the end of the sentence "the object ... "."""


def header() -> bytes:
    return np.array([MAGIC, 0], U64).tobytes()


def schema_print(schema: pa.Schema, order: str = "") -> int:
    """A fingerprint of the names and types as stored; nullability and metadata do not matter. ``order``: of the rows."""
    text = "\n".join([f"{field.name}\t{field.type}" for field in schema] + ([order] if order else []))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def name_print(name: str) -> int:
    """A fingerprint of what stays of a name when the object is used by another job: its partition and its token. Data set and attempt are
    numbers of a job's own."""
    found = _OF_ONE_JOB.match(name)
    lasting = name if found is None else f"{found[1]}-{name[found.end() :]}"
    return int.from_bytes(hashlib.blake2b(lasting.encode(), digest_size=8).digest(), "little")


def _list_bytes(entries: int) -> int:
    return entries * ENTRY_BYTES + 8 * -(-entries // BLOCK_ENTRIES)


def _encode_list(entries: Words, seed: int) -> bytes:
    parts: list[bytes] = []
    for block, first in enumerate(range(0, len(entries), BLOCK_ENTRIES)):
        data = entries[first : first + BLOCK_ENTRIES].tobytes()
        parts += [data, zlib.crc32(data, (seed + _BLOCK_SEED * block) & 0xFFFFFFFF).to_bytes(8, "little")]
    return b"".join(parts)


class Identity(NamedTuple):
    """Identity of an object: its writer seals it with this, and its reader expects it."""

    subpartitions: int
    schema: int
    name: int

    @staticmethod
    def of(name: str, schema: pa.Schema, subpartitions: int, order: str = "") -> Identity:
        """``schema``: as stored."""
        return Identity(subpartitions, schema_print(schema, order), name_print(name))


@dataclass(slots=True)
class Region:
    """A finished region, as its writer knows it. Columns are cumulative: one longer than there are things."""

    rows: NDArray[np.int64]
    """int64[S + 1]: rows before each subpartition."""
    plain: NDArray[np.int64]
    """int64[S + 1]: plain bytes before each subpartition."""
    message_offsets: list[int]
    """M + 1 offsets in the object."""
    message_rows: list[int]
    """M + 1: rows before each message."""


def encode_footer(regions: list[Region], seals: list[int], at: int, identity: Identity, keys: bytes = b"") -> bytes:
    """Indexes, ``keys``, region table and trailer of an object whose messages end at offset ``at``; ``seals``: of all its
    messages."""
    parts: list[bytes] = []
    table: list[bytes] = []
    done = rows = 0
    for number, region in enumerate(regions):
        entries = _subpartition_entries(region, identity.subpartitions)
        messages = np.zeros((len(region.message_offsets), 3), U64)
        messages[:, 0] = region.message_offsets
        messages[:, 1] = region.message_rows
        messages[:-1, 2] = seals[done : done + len(messages) - 1]
        done += len(messages) - 1
        rows += int(region.rows[-1])
        table.append(_REGION.pack(at, len(entries) - 1, len(messages) - 1, int(region.rows[-1])))
        seed = identity.name + 2 * number * _LIST_SEED
        parts.append(_encode_list(entries, seed))
        parts.append(_encode_list(messages, seed + _LIST_SEED))
        at += len(parts[-2]) + len(parts[-1])
    parts.append(keys)
    at += len(keys)
    fields = np.array([at, len(regions), identity.subpartitions, rows, identity.schema, identity.name], U64).tobytes()
    packed = b"".join(table)
    check = zlib.crc32(fields, zlib.crc32(packed))
    return b"".join([*parts, packed, fields, np.array([check, MAGIC], U64).tobytes()])


def _subpartition_entries(region: Region, subpartitions: int) -> Words:
    filled = np.flatnonzero(np.diff(region.rows))
    if len(filled) * SPARSE_SHARE >= subpartitions:
        filled = np.arange(subpartitions)
    places = np.append(filled, subpartitions)
    entries = np.zeros((len(places), 3), U64)
    entries[:, 0] = region.rows[places]
    entries[:, 1] = region.plain[places]
    # the message that holds the row; a row that begins a message belongs to that one
    message = np.searchsorted(np.asarray(region.message_rows), region.rows[places], side="right") - 1
    entries[:, 2] = places.astype(np.uint64) | (message.astype(np.uint64) << np.uint64(32))
    return entries


@dataclass(slots=True)
class Slice:
    """The part of a region's index that covers a range of subpartitions [low, high)."""

    rows: NDArray[np.int64]
    """int64[high - low + 1]: rows of the region before each subpartition. (Columns of one array, as those of messages are.)"""
    plain: NDArray[np.int64]
    message_offsets: NDArray[np.int64]
    """Of the messages that overlap the rows, and where the last of them ends."""
    message_rows: NDArray[np.int64]
    message_seals: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return 3 * (self.rows.nbytes + self.message_offsets.nbytes)


Fetch = Callable[[int, int], "memoryview"]
"""(offset, length) to the bytes that are there: fewer than asked only at the object's end."""


class Tail:
    """The last bytes of an object, in memory. What lies before them is fetched when it is asked for."""

    __slots__ = ("_held", "size")

    def __init__(self, size: int, length: int, fetch: Fetch) -> None:
        start = max(size - length, 0)
        self.size = size
        self._held = (start, _fetched(fetch, start, size - start))  # as one: threads share it

    @property
    def start(self) -> int:
        return self._held[0]

    @property
    def data(self) -> memoryview:
        return self._held[1]

    def extend(self, start: int, fetch: Fetch) -> None:
        """Hold the bytes from ``start`` on."""
        before, held = self._held
        if start < before:
            self._held = (start, memoryview(b"".join((_fetched(fetch, start, before - start), held))))

    def read(self, offset: int, length: int, fetch: Fetch) -> memoryview:
        """``length`` bytes at ``offset``; ``fetch``: for what is not held."""
        if offset < HEADER_BYTES or offset + length > self.size:
            raise Damaged(f"points outside itself (bytes {offset} to {offset + length} of {self.size})")
        start, held = self._held
        if offset >= start:
            return held[offset - start : offset - start + length]
        return _fetched(fetch, offset, length)


def _fetched(fetch: Fetch, offset: int, length: int) -> memoryview:
    data = fetch(offset, length)
    if len(data) != length:
        raise Damaged(f"ends at byte {offset + len(data)} where {offset + length} were expected")
    return data


class ObjectIndex:
    """Index at the end of an object: checked once, kept for as many reads as come. Holds no file."""

    __slots__ = ("_table", "identity", "start", "tail")

    def __init__(self, tail: Tail, identity: Identity, fetch: Fetch) -> None:
        """Raises Damaged."""
        self.tail = tail
        self.identity = identity
        self._table = _read_table(tail, identity, fetch)
        self.start = self._table[0][0] if self._table else tail.size
        """Offset at which the indexes begin and the messages end."""

    @property
    def length(self) -> int:
        """Bytes of all indexes, the table and the trailer."""
        return self.tail.size - self.start

    def regions(self, fetch: Fetch) -> list[Slice]:
        """Returns a slice per region of an object with one subpartition. Raises Damaged."""
        rows = enumerate(self._table)
        return [_read_slice(self.tail, fetch, self.identity, row, region, (0, 1)) for region, row in rows]

    def keys(self, fetch: Fetch) -> memoryview:
        """Returns the bytes between the indexes and the table of regions. Raises Damaged."""
        end = self.tail.size - TRAILER_BYTES - len(self._table) * REGION_BYTES
        begin = end
        if self._table:
            at, entries, messages, _ = self._table[-1]
            begin = at + _list_bytes(entries + 1) + _list_bytes(messages + 1)
        if begin > end:
            raise Damaged("has a damaged table of regions")
        return self.tail.read(begin, end - begin, fetch)

    def slices(self, low: int, high: int, fetch: Fetch) -> list[Slice]:
        """Returns the slices of subpartitions [low, high), one per region that has rows there. Raises Damaged."""
        found: list[Slice] = []
        for region, row in enumerate(self._table):
            piece = _read_slice(self.tail, fetch, self.identity, row, region, (low, high))
            if piece.rows[0] < piece.rows[-1]:
                found.append(piece)
        return found


def _read_table(tail: Tail, identity: Identity, fetch: Fetch) -> list[tuple[int, int, int, int]]:
    if tail.size < HEADER_BYTES + TRAILER_BYTES:
        raise Damaged(f"has only {tail.size} bytes: it was never finished, or was cut")
    end = tail.size - TRAILER_BYTES
    trailer = tail.read(end, TRAILER_BYTES, fetch)
    at, regions, subpartitions, _, schema, name, check, magic = _TRAILER.unpack(trailer)
    if magic != MAGIC and magic % (1 << 56) == MAGIC % (1 << 56):
        raise Damaged("was written by another version of Firesteel")
    if magic != MAGIC:
        raise Damaged("has no trailer: it was never finished, or was cut or overwritten")
    if at > end or regions * REGION_BYTES != end - at:
        raise Damaged("has a damaged trailer")
    table = tail.read(at, end - at, fetch)
    if zlib.crc32(trailer[: TRAILER_BYTES - 16], zlib.crc32(table)) != check:
        raise Damaged("has a damaged trailer (checksum differs)")
    if name != identity.name:
        raise Damaged("holds what another object should hold")
    if schema != identity.schema:
        raise Damaged("was written with another schema than its reader expects")
    if subpartitions != identity.subpartitions:
        raise Damaged(f"has {subpartitions} subpartitions where {identity.subpartitions} were expected")
    return list(_REGION.iter_unpack(table))


def _read_slice(  # noqa: PLR0917
    tail: Tail,
    fetch: Fetch,
    identity: Identity,
    row: tuple[int, int, int, int],
    region: int,
    bounds: tuple[int, int],
) -> Slice:
    low, high = bounds
    at, entry_count, message_count, _ = row
    seed = identity.name + 2 * region * _LIST_SEED
    if entry_count == identity.subpartitions:
        entries = _entries(tail, fetch, (at, entry_count + 1, seed), low, high + 1)
    else:
        entries = _entries(tail, fetch, (at, entry_count + 1, seed), 0, entry_count + 1)
        # the first listed subpartition at or after each asked one; the last entry stands for the end
        entries = entries[np.searchsorted(entries[:, 2] & 0xFFFFFFFF, np.arange(low, high + 1))]
    begin, end = entries.item(0), entries.item(-3)
    first = entries.item(2) >> 32
    last = first if begin == end else min((entries.item(-1) >> 32) + 1, message_count)
    place = at + _list_bytes(entry_count + 1), message_count + 1, seed + _LIST_SEED
    messages = _entries(tail, fetch, place, first, last + 1)
    if last - first > 1 and messages.item(-5) >= end:
        messages = messages[:-1]  # the range ends where its last message begins
    return Slice(entries[:, 0], entries[:, 1], messages[:, 0], messages[:, 1], messages[:-1, 2])


def _entries(tail: Tail, fetch: Fetch, place: tuple[int, int, int], first: int, last: int) -> NDArray[np.int64]:
    """Entries [first, last) of the list at ``place`` (offset, length, seed), read and checked by whole blocks: (n, 3), a copy."""
    at, length, seed = place
    block, end_block = first // BLOCK_ENTRIES, -(-last // BLOCK_ENTRIES)
    begin = block * _BLOCK_BYTES
    size = min(end_block * _BLOCK_BYTES, _list_bytes(length)) - begin
    data = tail.read(at + begin, size, fetch)
    skipped = (first - block * BLOCK_ENTRIES) * ENTRY_BYTES
    wanted = slice(skipped, skipped + (last - first) * ENTRY_BYTES)
    if end_block - block == 1:
        content = bytes(_block(data, seed + _BLOCK_SEED * block)[wanted])
    else:
        blocks = enumerate(range(0, size, _BLOCK_BYTES), block)
        parts = [_block(data[at : at + _BLOCK_BYTES], seed + _BLOCK_SEED * number) for number, at in blocks]
        content = b"".join(parts)[wanted]
    return np.frombuffer(content, I64).reshape(-1, 3)


def _block(data: memoryview, seed: int) -> memoryview:
    """The entries of one block, checked. Raises Damaged."""
    content = data[:-8]
    if zlib.crc32(content, seed & 0xFFFFFFFF) != _U64.unpack_from(data, len(content))[0]:
        raise Damaged("has a damaged index (checksum differs)")
    return content


CODECS = ("none", "lz4", "zstd")
_LEVELS = {"lz4": -7, "zstd": 1}
"""Of lz4: looks for matches at every eighth place where it has found none, in an eighth less time and to the same size."""
UNIT = 8
_AS_IS = 3
"""Stands for the codec of a message that did not shrink."""
MOST_PACKED_BYTES = UNIT << 25
"""Longer messages are stored as they are."""
LEAST_GAIN = 8
"""A message that would not become shorter by one part in so many is stored as it is,"""
MOST_SKIPPED = 31
"""and so are up to so many of the next ones without a try."""
_LANES = 512
_SUMMED_BYTES = 16 << 10
"""From so many bytes on sums are faster than the CRC of all bytes."""


class Packer:
    """Packer of the messages of one object. ``codec``: one of CODECS."""

    def __init__(self, codec: str) -> None:
        self._number = CODECS.index(codec)
        self._codec = pa.Codec(codec, _LEVELS[codec]) if self._number else None
        self._vain = 0
        """Messages skipped after the last try, which was in vain."""
        self._skip = 0

    def pack(self, message: pa.Buffer) -> tuple[list[Any], int]:
        """Returns what is stored of a message, a multiple of 8 bytes in parts, and its seal. ``message``: a multiple of 8 bytes."""
        packed = self._compressed(message)
        if packed is None:
            return [message], checksum(message) | (_AS_IS << 61 if self._number else 0)
        pad = -len(packed) % UNIT
        seal = checksum(packed) | message.size // UNIT << 32 | pad << 58 | self._number << 61
        return [packed, bytes(pad)] if pad else [packed], seal

    def _compressed(self, message: pa.Buffer) -> bytes | None:
        if self._codec is None or message.size > MOST_PACKED_BYTES:
            return None
        if self._skip:
            self._skip -= 1
            return None
        packed = self._codec.compress(
            message, asbytes=True
        )  # a buffer would keep the memory that the message needed at most
        if len(packed) + message.size // LEAST_GAIN > message.size:
            self._skip = self._vain = min(2 * self._vain + 1, MOST_SKIPPED)
            return None
        self._vain = 0
        return packed


def is_sound(stored: pa.Buffer, seal: int) -> bool:
    """Returns whether these are the bytes that were sealed, the zeros behind them aside."""
    return checksum(_without_pad(stored, seal)) == seal & 0xFFFFFFFF


def unpack(stored: pa.Buffer, seal: int) -> pa.Buffer:
    """The message. Raises ValueError for what was not packed so.

    With a codec it is in memory of its own: rows that are kept do not keep all that was read together.
    """
    number = seal >> 61
    if number == 0:
        return stored
    if number == _AS_IS:
        message: Any = pa.allocate_buffer(stored.size)
        memoryview(message).cast("B")[:] = memoryview(stored).cast("B")
        return message
    codec: Any = pa.Codec(CODECS[number])
    try:
        return codec.decompress(_without_pad(stored, seal), (seal >> 32 & (1 << 26) - 1) * UNIT)
    except OSError as error:
        raise ValueError(str(error)) from error


def _without_pad(stored: pa.Buffer, seal: int) -> pa.Buffer:
    pad = seal >> 58 & 7
    return stored.slice(0, stored.size - pad) if pad else stored


def checksum(data: Any) -> int:
    """32 bits of a run of bytes, which should begin at a multiple of 8."""
    if len(data) < _SUMMED_BYTES:
        return zlib.crc32(data)
    view = memoryview(data)
    summed = len(view) // (8 * _LANES) * (8 * _LANES)
    words = np.frombuffer(view[:summed], "<u8").reshape(-1, _LANES)
    check = zlib.crc32(np.add.reduce(words, axis=0), zlib.crc32(view[summed:]))
    return zlib.crc32(np.add.reduce(words, axis=1), check)
