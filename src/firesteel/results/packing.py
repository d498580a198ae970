"""Storage of messages: compressed as a whole where that gains enough, and sealed by a word of the object's index.

    seal    checksum of what is stored, 32 bits; the plain length in units of 8 bytes, 26 bits; zeros behind it, 3 bits; codec, 2 bits

Of a message that is stored as it is, the seal is the checksum; with a codec it says so in place of the codec's number. With the zeros, every
message begins at a multiple of 8 bytes, as sums of words want it.

A message is compressed in one call, not buffer by buffer as Arrow would, whose reader hands each buffer to another thread. The checksum is of
sums: those of the words in each column and each row of a table of 4 KiB wide rows take a third of the time of a CRC of all bytes. Whatever is
changed changes one of each, and what is moved the order of those of the rows; so a CRC of the sums tells it.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa

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
