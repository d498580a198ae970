"""Frames: how records lie in a file, so that its last whole group is found again wherever writing was cut off.

A file begins with :data:`MAGIC`, then come frames: ``<u4 length, u4 crc32 of the payload>`` and the payload, a group of entries that
was made durable at once; an entry is a list of records that belong together. The next group is written only when the one before is
durable. So what is not whole at the end was being written when its driver died, in whatever order its pages reached the disk, and
says nothing; one that is not whole with whole ones behind it is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from firesteel.errors import FiresteelError
from firesteel.scheduler.recovery.records import AnyLogRecord

MAGIC = b"firesteel log 1\n"
_HEAD = struct.Struct("<II")
_ARRAY = struct.Struct(">BI")
_ARRAY_32 = 0xDD
"""MessagePack's array with a length of four bytes."""
_decoder = msgspec.msgpack.Decoder(list[list[AnyLogRecord]])


class DamagedLogError(FiresteelError):
    """A log that cannot be read as far as it was written: nobody can tell what is missing."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """``entries``: in order. ``end``: bytes up to the end of the last whole group; what lies behind is void."""

    entries: list[list[AnyLogRecord]]
    end: int


def frame(entries: Sequence[bytes]) -> bytes:
    """Returns the entries (``records.encode_records``) as one group: all of them are read again, or none."""
    payload = _ARRAY.pack(_ARRAY_32, len(entries)) + b"".join(entries)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def read(data: bytes, where: str) -> ReadLog:
    """Reads a file, as far as it is whole; ``where`` names it in errors. Raises DamagedLogError."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data) or not data.strip(b"\0"):  # its driver died at once
            return ReadLog([], 0)
        raise DamagedLogError(f"{where} is no log of a job, or has a format that this version does not read.")
    entries: list[list[AnyLogRecord]] = []
    at = len(MAGIC)
    while (payload := _payload(data, at)) is not None:
        try:
            entries += _decoder.decode(payload)
        except ValueError as error:
            raise DamagedLogError(
                f"{where} has records at byte {at} that this version cannot read: {error}."
            ) from error
        at += _HEAD.size + len(payload)
    behind = next(_whole_behind(data, at), None)
    if behind is not None:
        raise DamagedLogError(
            f"{where} is damaged: at byte {at} it is not whole, and from byte {behind} on it is again.",
            hint="What had finished in between cannot be told: run the script without resuming.",
        )
    return ReadLog(entries, at)


def _payload(data: bytes, at: int) -> bytes | None:
    """The payload of a whole frame at this place; None: there is none."""
    if at + _HEAD.size > len(data):
        return None
    length, checksum = _HEAD.unpack_from(data, at)
    begin = at + _HEAD.size
    payload = data[begin : begin + length]
    return payload if len(payload) == length >= _ARRAY.size and zlib.crc32(payload) == checksum else None


def _whole_behind(data: bytes, at: int) -> Iterator[int]:
    """The places of whole frames behind one that is not, ascending."""
    rest = np.frombuffer(data, np.uint8, offset=at)
    places = len(rest) - _HEAD.size
    if places <= 0:
        return
    begins = rest[_HEAD.size :] == _ARRAY_32
    lengths = sum(rest[k : k + places].astype(np.int64) << (8 * k) for k in range(4))
    fits = begins & (lengths >= _ARRAY.size) & (np.arange(places) + lengths <= places)
    fits[0] = False
    for place in np.flatnonzero(fits).tolist():
        if _payload(data, at + place) is not None:
            yield at + place
