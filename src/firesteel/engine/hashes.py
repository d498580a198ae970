"""Spark's hashes of rows, over Arrow arrays: ``hash`` (Murmur3 of 32 bits), ``xxhash64`` and ``crc32``, as functions of the engine, too.

The hash of a row begins with 42. Each column's hash is the seed of the next one's, and a null leaves it as it is. The elements of an array
and the fields of a struct are hashed one after another. Murmur3 mixes in the bytes after the last whole word one by one, each with its
sign, as in Spark and nowhere else; Spark's exchanges and bucketed tables go by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.plain import fixed_values, is_text, made_of, offsets_of, one_chunk, to_stored

Words = NDArray[Any]
"""The hashes of rows, or a part of their values: unsigned, of as many bits as the hash has."""
Lengths = NDArray[np.int64]

SEED = 42
_LONG_DIGITS = 18
"""Decimals of at most so many digits are hashed as whole numbers of 64 bits."""
_MOST_STEPS = 1024
"""Values are hashed word by word, all rows at once: with one of more words among them, Spark is faster."""
_t = pa.types


def hashed_as(type_: pa.DataType) -> pa.DataType | None:  # noqa: PLR0911 - one line per kind
    """The type that Spark has values of this Arrow type in when it hashes them; None for one that it reads as no such type."""
    if _t.is_dictionary(type_) or _t.is_run_end_encoded(type_):
        return hashed_as(type_.value_type)
    if _t.is_boolean(type_) or _t.is_float32(type_) or _t.is_float64(type_):
        return type_
    if _t.is_signed_integer(type_):
        return pa.int64() if _t.is_int64(type_) else pa.int32()
    if _t.is_date(type_):
        return pa.date32()
    if _t.is_timestamp(type_):
        return None if type_.unit == "ns" else pa.timestamp("us", type_.tz)
    if _t.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 and type_.scale >= 0 else None
    if _t.is_string(type_) or _t.is_large_string(type_) or _t.is_string_view(type_):
        return pa.large_string()
    if _t.is_binary(type_) or _t.is_large_binary(type_) or _t.is_fixed_size_binary(type_) or _t.is_binary_view(type_):
        return pa.large_binary()
    return None


def spark_hash(columns: Sequence[pa.Array], rows: int) -> NDArray[np.int32]:
    """Of each row the hash of its columns' values. It is undefined for types of which ``hashed_as`` is None."""
    return _of_rows(_MURMUR3, columns, rows).view(np.int32)


def xxhash64(columns: Sequence[pa.Array], rows: int) -> NDArray[np.int64]:
    """As :func:`spark_hash`, of 64 bits."""
    return _of_rows(_XXH64, columns, rows).view(np.int64)


def bucket_numbers(columns: Sequence[pa.Array], rows: int, count: int) -> NDArray[np.int32]:
    """Of each row the bucket of ``count`` that Spark puts it into."""
    return (spark_hash(columns, rows).astype(np.int64) % count).astype(np.int32)


def register(connection: Any) -> None:
    """Makes them functions of the engine, each of any number of columns: ``fs_hash``, ``fs_xxhash64``, ``fs_crc32`` and ``fs_code``."""
    made: dict[str, tuple[str, Callable[[Sequence[Any], int], Any]]] = {
        "fs_hash": ("INTEGER", lambda columns, rows: made_of(pa.int32(), spark_hash(_checked(columns), rows))),
        "fs_xxhash64": ("BIGINT", lambda columns, rows: made_of(pa.int64(), xxhash64(_checked(columns), rows))),
        "fs_crc32": ("BIGINT", lambda columns, rows: _crc32(columns[0])),
        "fs_code": ("INTEGER", _codes),
    }
    for name, (kind, of) in made.items():
        connection.create_function(name, _for_engine(of), None, kind, type="arrow", null_handling="special")


def _for_engine(of: Callable[[Sequence[pa.Array], int], pa.Array]) -> Callable[..., pa.Array]:
    def found(*columns: Any) -> pa.Array:
        arrays = list(map(one_chunk, columns))
        return of(arrays, len(arrays[0]))

    return found


def _checked(columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Raises ValueError where Spark is faster."""
    if sum(map(_steps, columns)) > _MOST_STEPS:
        raise ValueError("left to Spark: the hash of a text or an array as long as this")
    return columns


def _steps(values: Any) -> int:
    """About how many words the longest value has. They are hashed one after another."""
    if is_text(values.type):
        return int(np.diff(offsets_of(values)).max(initial=0)) // 4
    if _t.is_struct(values.type):
        return sum(_steps(values.field(place)) for place in range(values.type.num_fields))
    if _t.is_list(values.type):
        return int(np.diff(offsets_of(values)).max(initial=0)) * max(_steps(values.values), 1)
    return 1


def _crc32(texts: Any) -> Any:
    """The checksums of bytes; null of null."""
    data, ends = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes(), offsets_of(texts).tolist()
    found = np.array([zlib.crc32(data[start:end]) for start, end in pairwise(ends)], np.int64)
    return made_of(pa.int64(), found, np.asarray(texts.is_valid()))


RANKS = 64
"""Of a register of HyperLogLog++: more than there are."""


def _codes(columns: Sequence[Any], rows: int) -> Any:
    """The codes of values for HyperLogLog++, by a number of bits that all rows share: ``RANKS`` times the register, plus the rank.

    The first bits of the hash give the register. The rank is one more than the zeros that follow.
    """
    hashes, bits = xxhash64(_checked(columns[:1]), rows).view(np.uint64), columns[1][0].as_py() if rows else 1
    rest = (hashes << np.uint64(bits)) | np.uint64(1 << (bits - 1))
    first = rest & ~(rest >> np.uint64(1))  # so that a double is never rounded up to the next power of two
    length = np.frexp(first.astype(np.float64))[1]
    return made_of(pa.int32(), (hashes >> np.uint64(64 - bits)).astype(np.int32) * RANKS + (65 - length))


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Hash:
    """The hashes of values, each with a seed: of whole numbers of 32 and of 64 bits, and of the bytes that begin at places."""

    words: type[np.unsignedinteger[Any]]
    of_int: Callable[[NDArray[np.uint32], Words], Words]
    of_long: Callable[[NDArray[np.uint64], Words], Words]
    of_bytes: Callable[[NDArray[np.uint8], Lengths, Lengths, Words], Words]


def _of_rows(by: _Hash, columns: Sequence[Any], rows: int) -> Words:
    hashes = np.full(rows, SEED, by.words)
    for column in columns:
        hashes = _column(by, _as_hashed(column), hashes)
    return hashes


def _as_hashed(column: pa.Array) -> pa.Array:
    if _t.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif _t.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    column = to_stored(column) if _t.is_string_view(column.type) or _t.is_binary_view(column.type) else column
    type_ = column.type if _t.is_nested(column.type) or is_text(column.type) else hashed_as(column.type)
    return column if type_ in (None, column.type) else column.cast(type_)


def _column(by: _Hash, values: Any, seeds: Words) -> Words:
    type_ = values.type
    if _t.is_struct(type_):
        found = seeds
        for place in range(type_.num_fields):
            found = _column(by, _as_hashed(values.field(place)), found)
    elif _t.is_list(type_):
        found = _elements(by, values, seeds)
    else:
        found = _plain(by, values, seeds)
    return np.where(np.asarray(values.is_null()), seeds, found) if values.null_count else found


def _elements(by: _Hash, values: Any, seeds: Words) -> Words:
    hashes, ends, inside = seeds.copy(), offsets_of(values), _as_hashed(values.values)
    lengths = np.diff(ends)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        hashes[rows] = _column(by, inside.take(made_of(pa.int64(), ends[rows] + place)), hashes[rows])
    return hashes


def _plain(by: _Hash, values: Any, seeds: Words) -> Words:  # noqa: PLR0911 - one line per kind
    """Of nulls it is anything."""
    type_ = values.type
    if _t.is_null(type_):
        return seeds
    if _t.is_boolean(type_):
        return by.of_int(np.asarray(values.cast(pa.uint8()).fill_null(0)).astype(np.uint32), seeds)
    if _t.is_float32(type_):
        return by.of_int(_float_bits(fixed_values(values, "<f4"), np.uint32), seeds)
    if _t.is_float64(type_):
        return by.of_long(_float_bits(fixed_values(values, "<f8"), np.uint64), seeds)
    if _t.is_int32(type_) or _t.is_date32(type_):
        return by.of_int(fixed_values(values, "<u4"), seeds)
    if _t.is_int64(type_) or _t.is_timestamp(type_):
        return by.of_long(fixed_values(values, "<u8"), seeds)
    if _t.is_decimal(type_):
        return _decimal(by, values, seeds)
    ends, data = offsets_of(values), values.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return by.of_bytes(text, ends[:-1], np.diff(ends), seeds)


def _float_bits(numbers: NDArray[Any], bits: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """With one zero and one NaN, as Java has them."""
    numbers = np.where(numbers == 0, np.zeros(1, numbers.dtype), numbers)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(bits)


def _decimal(by: _Hash, values: Any, seeds: Words) -> Words:
    parts = fixed_values(values, "<u8", 2).reshape(-1, 2)
    if values.type.precision <= _LONG_DIGITS:
        return by.of_long(parts[:, 0], seeds)
    big_endian = np.ascontiguousarray(fixed_values(values, np.uint8, 16).reshape(-1, 16)[:, ::-1])
    sign = big_endian[:, 0] >> 7
    filler = np.where(sign, np.uint8(0xFF), np.uint8(0))[:, None]
    differs = big_endian != filler
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # the shortest form of two's complement, as of Java's BigInteger: its first bit is the sign
    first -= (first > 0) & ((np.take_along_axis(big_endian, first[:, None], axis=1)[:, 0] >> 7) != sign)
    starts = np.arange(len(values), dtype=np.int64) * 16 + first
    return by.of_bytes(big_endian.ravel(), starts, 16 - first, seeds)


# --- bytes ------------------------------------------------------------------------------------------------------------


def _falling(counts: Lengths) -> tuple[NDArray[np.int64], list[int]]:
    """The rows in the falling order of their counts, and how many of them have more than 0, more than 1 and so on."""
    order = np.argsort(-counts)
    return order, np.searchsorted(-counts[order], -np.arange(counts.max(initial=0))).tolist()


def _in_order(values: Words, order: NDArray[np.int64]) -> Words:
    """The values of rows that are in this order, in the order of their numbers."""
    found = np.empty_like(values)
    found[order] = values
    return found


def _any_word(data: NDArray[np.uint8], kind: type[np.unsignedinteger[Any]]) -> Words:
    """The word that begins at each byte. Zeros fill the words at the end."""
    size = np.dtype(kind).itemsize
    return np.ndarray(len(data) + 1, kind, np.append(data, np.zeros(size, np.uint8)), strides=(1,))


def _rotated(values: Words, by: int) -> Words:
    kind = values.dtype.type
    return (values << kind(by)) | (values >> kind(values.itemsize * 8 - by))


# --- Murmur3 ----------------------------------------------------------------------------------------------------------


def _murmur_int(values: NDArray[np.uint32], seeds: Words) -> Words:
    return _finished(_mixed(seeds, values), np.uint32(4))


def _murmur_long(values: NDArray[np.uint64], seeds: Words) -> Words:
    low, high = values.astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)
    return _finished(_mixed(_mixed(seeds, low), high), np.uint32(8))


def _murmur_bytes(data: NDArray[np.uint8], starts: Lengths, lengths: Lengths, seeds: Words) -> Words:
    order, sizes = _falling(lengths >> 2)
    words, at, hashes = _any_word(data, np.uint32), starts[order], seeds[order]
    for size in sizes:
        hashes[:size] = _mixed(hashes[:size], words[at[:size]])
        at[:size] += 4
    rest = lengths[order] & 3
    for byte in range(3):
        rows = np.flatnonzero(rest > byte)
        values = data[at[rows] + byte].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[rows] = _mixed(hashes[rows], values)
    return _finished(_in_order(hashes, order), lengths.astype(np.uint32))


def _mixed(hashes: Words, values: NDArray[np.uint32]) -> Words:
    values = _rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ values, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashes: Words, lengths: Any) -> Words:
    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


_MURMUR3 = _Hash(np.uint32, _murmur_int, _murmur_long, _murmur_bytes)

# --- XXH64 ------------------------------------------------------------------------------------------------------------

_P1, _P2, _P3, _P4, _P5 = np.array(
    [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5], np.uint64
)
_LANES = np.array([[0x60EA27EEADC0B5D6], [0xC2B2AE3D27D4EB4F], [0], [0x61C8864E7A143579]], np.uint64)
"""What the four lanes of a text's blocks begin with, besides the seed."""


def _xx_int(values: NDArray[np.uint32], seeds: Words) -> Words:
    return _avalanche(_with_half(seeds + _P5 + np.uint64(4), values.astype(np.uint64)))


def _xx_long(values: NDArray[np.uint64], seeds: Words) -> Words:
    return _avalanche(_with_word(seeds + _P5 + np.uint64(8), values))


def _xx_bytes(data: NDArray[np.uint8], starts: Lengths, lengths: Lengths, seeds: Words) -> Words:
    words, hashes = _any_word(data, np.uint64), seeds + _P5
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        hashes[long] = _xx_blocks(words, starts[long], lengths[long] >> 5, seeds[long])
    hashes += lengths.astype(np.uint64)
    rest = lengths & 31
    order, sizes = _falling(rest >> 3)
    at, rest, hashes = (starts + lengths - rest)[order], rest[order] & 7, hashes[order]
    for size in sizes:
        hashes[:size] = _with_word(hashes[:size], words[at[:size]])
        at[:size] += 8
    rows = np.flatnonzero(rest >= 4)
    hashes[rows] = _with_half(hashes[rows], words[at[rows]] & np.uint64(0xFFFFFFFF))
    at, rest = at + (rest & 4), rest & 3
    for byte in range(3):
        rows = np.flatnonzero(rest > byte)
        hashes[rows] = _rotated(hashes[rows] ^ (data[at[rows] + byte] * _P5), 11) * _P1
    return _avalanche(_in_order(hashes, order))


def _xx_blocks(words: Words, starts: Lengths, blocks: Lengths, seeds: Words) -> Words:
    """Of blocks of 32 bytes: a word of each for one of four lanes."""
    order, sizes = _falling(blocks)
    at = starts[order] + np.arange(0, 32, 8)[:, None]
    lanes = seeds[order] + _LANES
    for size in sizes:
        lanes[:, :size] = _round(lanes[:, :size], words[at[:, :size]])
        at[:, :size] += 32
    hashes = np.zeros(len(seeds), np.uint64)
    for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
        hashes += _rotated(lane, by)
    for lane in lanes:
        hashes = (hashes ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return _in_order(hashes, order)


def _round(lanes: Any, words: Words) -> Words:
    return _rotated(lanes + words * _P2, 31) * _P1


def _with_word(hashes: Words, words: Words) -> Words:
    return _rotated(hashes ^ _round(np.uint64(0), words), 27) * _P1 + _P4


def _with_half(hashes: Words, halves: Words) -> Words:
    return _rotated(hashes ^ (halves * _P1), 23) * _P2 + _P3


def _avalanche(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


_XXH64 = _Hash(np.uint64, _xx_int, _xx_long, _xx_bytes)
