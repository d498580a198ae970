"""Hashes of key columns: 64 bits a row, the same in every process, on every platform and in every run.

Values that are equal as keys hash equal whatever their width: int32 and int64, float and double, -0.0 and 0.0, all NaN,
strings in any layout, decimals of any scale, instants in any unit. No Python code runs per row.

Widely known parts: the finaliser of splitmix64 (Steele, Lea, Flood 2014) mixes; decimals are hashed as rational numbers
modulo two primes, which no trailing zero changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.keys import canonical_parts, normal_type
from firesteel.results.plain import fixed_values, is_text, offsets_of

Hashes = NDArray[np.uint64]

NULL_HASH = 0x9AE16A3B2F90404F
_NAN = 0x7FF8000000000000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_CANONICAL_BYTES = 16 << 20
_BLOCK = 1 << 16
"""Rows or words handled at once: temporaries stay in the cache."""
_SHORT_WORDS = 16
"""Strings of up to this many 8-byte words are walked word by word, all rows together; longer ones as one flat run of words."""
_PRIMES = (2_147_483_647, 2_147_483_629)
"""The two largest below 2**31: products of two residues fit 63 bits."""
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def hash_columns(columns: Sequence[Any], seed: int = 0) -> Hashes:
    """Hash the rows of key columns (``pa.Array`` or ``pa.ChunkedArray``, equally long), combined in their order.

    Returns uint64[rows]. Different seeds give independent hashes. Raises TypeError for a type that cannot be a key.
    """
    if not columns:
        raise ValueError("Cannot hash without key columns: give at least one.")
    rows = len(columns[0])
    result = np.full(rows, _mix_number(seed), np.uint64)
    values = [_column(column) for column in columns]
    for start in range(0, rows, _BLOCK):
        block = result[start : start + _BLOCK]
        for value in values:
            block ^= value[start : start + _BLOCK]
            mix_in_place(block)
    return result


def subpartition_of(hashes: Hashes, n: int) -> NDArray[np.int32]:
    """The subpartition, 0 to n - 1, of each hash: int32[rows]. Evenly spread over the hashes' high bits."""
    if n == 1:
        return np.zeros(len(hashes), np.int32)
    high = hashes >> np.uint64(32)
    high *= np.uint64(n)
    high >>= np.uint64(32)
    return high.astype(np.int32)


def mix_in_place(x: Hashes) -> Hashes:
    """The splitmix64 finaliser, a bijection in which every input bit reaches every output bit."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _mix_number(seed: int) -> np.uint64:
    with np.errstate(over="ignore"):
        return mix_in_place(np.array([(seed * int(_GOLDEN) + 1) % (1 << 64)], np.uint64))[0]


def _column(column: Any) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        parts = [_values(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    return _values(column)


def _values(array: Any) -> Hashes:
    """A number per row that depends on the value only; not yet mixed. The result may be changed by the caller."""
    kind: Any = array.type
    function = next((function for accepts, function in _KINDS if accepts(kind)), None)
    if function is None:
        return _canonical(array, normal_type(kind))
    hashes = function(array)
    if array.null_count and not pa.types.is_dictionary(kind):
        hashes[np.asarray(array.is_null())] = NULL_HASH
    return hashes


# --- fixed width ------------------------------------------------------------------------------------------------


def _integers(array: Any) -> Hashes:
    kind = array.type
    if kind.bit_width == 64:
        return fixed_values(array, "<u8").astype(np.uint64)
    letter = "i" if pa.types.is_signed_integer(kind) else "u"
    numbers = fixed_values(array, f"<{letter}{kind.bit_width // 8}")
    return numbers.astype(np.int64).view(np.uint64)


def _booleans(array: Any) -> Hashes:
    return _integers(array.cast(pa.uint8()))


def _floats(array: Any) -> Hashes:
    numbers = fixed_values(array, f"<f{array.type.bit_width // 8}").astype(np.float64)
    numbers += 0.0  # turns -0.0 into 0.0
    bits = numbers.view(np.uint64)
    bits[np.isnan(numbers)] = _NAN
    return bits


def _date32(array: Any) -> Hashes:
    return fixed_values(array, "<i4").astype(np.int64).view(np.uint64)


def _ticks(array: Any) -> Hashes:
    """Instants, times and durations in nanoseconds, modulo 2**64: equal ones agree, far dates do not overflow."""
    width = array.type.bit_width // 8
    ticks = fixed_values(array, f"<i{width}").astype(np.int64).view(np.uint64)
    ticks *= np.uint64(_NANOSECONDS[array.type.unit])
    return ticks


# --- decimals ---------------------------------------------------------------------------------------------------


def _decimals(array: Any) -> Hashes:
    """unscaled / 10**scale in two prime fields: 1.5 and 1.500 are the same elements."""
    kind = array.type
    residues: list[NDArray[np.int64]] = []
    for prime in _PRIMES:
        if kind.byte_width <= 8:
            residue = fixed_values(array, f"<i{kind.byte_width}").astype(np.int64) % prime
        else:
            words = kind.byte_width // 8
            residue = _residues(fixed_values(array, "<u8", words).reshape(len(array), words), prime)
        residues.append(residue * pow(10, -kind.scale, prime) % prime)
    return (residues[0] << 31 | residues[1]).view(np.uint64)


def _residues(words: Hashes, prime: int) -> NDArray[np.int64]:
    """Two's complement numbers of several words, the highest last, modulo ``prime``; nothing exceeds 63 bits."""
    residue = words[:, -1].view(np.int64) % prime
    for place in range(words.shape[1] - 2, -1, -1):
        residue *= pow(2, 64, prime)
        residue += (words[:, place] % np.uint64(prime)).view(np.int64)
        residue %= prime
    return residue


# --- strings ----------------------------------------------------------------------------------------------------


def _strings(array: Any) -> Hashes:
    offsets = offsets_of(array)
    return _byte_runs(array.buffers()[2], offsets[:-1], np.diff(offsets))


def _byte_runs(buffer: Any, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    hashes = lengths.astype(np.uint64)
    hashes *= _GOLDEN
    if buffer is None or not len(lengths) or not lengths.any():
        return hashes
    low, high = int(starts[0]), int(starts[-1] + lengths[-1])
    padded = np.empty(high - low + 8, np.uint8)  # a word at the very end must not reach outside
    padded[: high - low] = np.frombuffer(buffer, np.uint8, high - low, low)
    padded[high - low :] = 0
    words = np.ndarray((high - low + 1,), "<u8", padded, strides=(1,))
    starts = starts - low
    for block in range(0, len(starts), _BLOCK):
        part = slice(block, block + _BLOCK)
        _short_runs(words, starts[part], lengths[part], hashes[part])
    longer = np.flatnonzero(lengths > 8 * _SHORT_WORDS)
    if len(longer):
        hashes[longer] ^= _long_runs(words, starts[longer], lengths[longer])
    return hashes


def _short_runs(words: Hashes, starts: NDArray[np.int64], lengths: NDArray[np.int64], hashes: Hashes) -> None:
    """Fold the first words of every row into its hash, in place; long rows only count with their first words here."""
    rows: Any = slice(None)
    for _ in range(min(_SHORT_WORDS, int(lengths.max() + 7) // 8)):
        active = lengths > 0
        if not active.all():
            keep = np.flatnonzero(active)
            rows = keep if isinstance(rows, slice) else rows[keep]
            starts, lengths = starts[keep], lengths[keep]
        word = words[starts]
        word &= _MASKS[np.minimum(lengths, 8)]
        word ^= hashes[rows]
        word *= _MULTIPLIER
        word ^= word >> np.uint64(32)
        hashes[rows] = word
        starts, lengths = starts + 8, lengths - 8


def _long_runs(words: Hashes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """The sum over each row's words, each mixed with its place: independent of how the flat run of words is cut."""
    counts = (lengths + 7) // 8
    ends = np.cumsum(counts)
    begins = ends - counts
    sums = np.zeros(len(starts), np.uint64)
    for block in range(0, int(ends[-1]), _BLOCK):
        flat = np.arange(block, min(block + _BLOCK, int(ends[-1])), dtype=np.int64)
        first, last = np.searchsorted(ends, flat[[0, -1]], side="right")
        inner = np.minimum(ends[first : last + 1], flat[-1] + 1) - np.maximum(begins[first : last + 1], block)
        row = np.repeat(np.arange(first, last + 1), inner)
        place = flat - begins[row]
        word = words[starts[row] + 8 * place]
        word &= _MASKS[np.minimum(lengths[row] - 8 * place, 8)]
        word ^= (place.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        sums[first : last + 1] += np.add.reduceat(mix_in_place(word), np.cumsum(inner) - inner)
    return sums


# --- encoded ---------------------------------------------------------------------------------------------------


def _dictionary(array: Any) -> Hashes:
    if len(array.dictionary) > len(array):
        return _values(array.dictionary.take(array.indices))
    values = np.append(_values(array.dictionary), np.uint64(NULL_HASH))
    indices = array.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(values) - 1)
    return values[np.asarray(indices)]


def _canonical(array: Any, kind: Any) -> Hashes:
    """A part at a time: the canonical form of nested values may need many times their bytes."""
    step = max(1, len(array) * _CANONICAL_BYTES // max(1, array.nbytes))
    slices = (array.slice(at, step) for at in range(0, max(1, len(array)), step))
    return np.concatenate([_values(part) for each in slices for part in canonical_parts(each, kind)])


def _is_ticks(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any], Hashes]]] = [
    (pa.types.is_integer, _integers),
    (is_text, _strings),
    (pa.types.is_floating, _floats),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_date32, _date32),
    (_is_ticks, _ticks),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_dictionary, _dictionary),
]
"""Types whose values are hashed as they are stored. All others are by their canonical form: see ``keys``."""
