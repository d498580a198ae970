"""Messages as they are stored: they come back, no change to their bytes goes unnoticed, and what does not shrink is left as it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from firesteel.results.layout import MOST_SKIPPED, Packer, checksum, is_sound, unpack

RNG = np.random.default_rng(3)


def joined(parts):
    return pa.py_buffer(b"".join(map(memoryview, parts)))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("size", [8, 16_384, 16_392, 1 << 20])
def test_what_is_packed_comes_back(codec, size):
    packer = Packer(codec)
    for numbers in (np.zeros(size // 8, np.int64), np.arange(size // 8), RNG.integers(0, 1 << 62, size // 8)):
        content = numbers.tobytes()
        parts, seal = packer.pack(pa.py_buffer(content))
        stored = joined(parts)
        assert stored.size % 8 == 0 and stored.size <= size and 0 <= seal < 1 << 63
        assert is_sound(stored, seal) and unpack(stored, seal).to_pybytes() == content
        own = not stored.address <= unpack(stored, seal).address < stored.address + stored.size
        assert own == (codec != "none")


def test_what_does_not_shrink_is_tried_less_and_less():
    packer, noise, even = Packer("lz4"), pa.py_buffer(RNG.bytes(4096)), pa.py_buffer(bytes(4096))
    for _ in range(40):
        assert joined(packer.pack(noise)[0]).equals(noise)
    packed = [joined(packer.pack(even)[0]).size < 4096 for _ in range(MOST_SKIPPED + 2)]
    assert packed.index(True) > 3 and all(packed[packed.index(True) :])


@pytest.mark.parametrize("size", [100, 16_384, 70_001])
def test_no_change_keeps_the_checksum(size):
    content = np.frombuffer(RNG.bytes(size), np.uint8)
    expected = checksum(content.tobytes())
    changes = [np.delete(content, 5), np.append(content, np.uint8(0)), np.roll(content, 8), content[::-1].copy()]
    for place in RNG.integers(0, size, 50):
        flipped = content.copy()
        flipped[place] ^= 1 << int(RNG.integers(0, 8))
        changes.append(flipped)
    for length in (8, 64, 4096):  # runs that changed places, and one that never reached the disk
        if 3 * length <= size:
            swapped, lost = content.copy(), content.copy()
            swapped[:length], swapped[2 * length : 3 * length] = content[2 * length : 3 * length], content[:length]
            lost[length : 2 * length] = 0
            changes += [swapped, lost]
    assert expected not in [checksum(change.tobytes()) for change in changes]
    assert checksum(bytearray(content.tobytes())) == expected


def test_what_cannot_be_unpacked_is_a_sentence():
    parts, seal = Packer("lz4").pack(pa.py_buffer(bytes(4096)))
    with pytest.raises(ValueError, match=r"(?i)lz4"):
        unpack(pa.py_buffer(b"\x01" * joined(parts).size), seal)
