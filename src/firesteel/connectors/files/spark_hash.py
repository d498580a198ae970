"""Spark's hash of rows: what its function ``hash`` gives, and what its exchanges and bucketed tables go by.

Murmur3 of 32 bits, with seed 42; each column's hash is the seed of the next one's, and a null leaves it as it is. Bytes behind the last
whole word are mixed in one by one, each with its sign, as in Spark and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.plain import fixed_values, offsets_of, to_stored

Words = NDArray[np.uint32]

SEED = 42
_LONG_DIGITS = 18
"""Decimals of at most so many digits are hashed as whole numbers of 64 bits."""
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
    """Of each row the hash of its columns' values. Of types for which ``hashed_as`` is None it is not defined."""
    hashes = np.full(rows, SEED, np.uint32)
    for column in columns:
        values = _as_hashed(column)
        with np.errstate(over="ignore"):
            found = _hashed(values, hashes)
        hashes = np.where(np.asarray(values.is_null()), hashes, found) if values.null_count else found
    return hashes.view(np.int32)


def bucket_numbers(columns: Sequence[pa.Array], rows: int, count: int) -> NDArray[np.int32]:
    """Of each row the bucket of ``count`` that Spark puts it into."""
    return (spark_hash(columns, rows).astype(np.int64) % count).astype(np.int32)


def _as_hashed(column: pa.Array) -> pa.Array:
    if _t.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif _t.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    column = to_stored(column) if _t.is_string_view(column.type) or _t.is_binary_view(column.type) else column
    type_ = hashed_as(column.type)
    assert type_ is not None
    return column if column.type == type_ else column.cast(type_)


def _hashed(values: Any, seeds: Words) -> Words:  # noqa: PLR0911 - one line per kind
    """``values``: of a type that ``hashed_as`` gives. Of nulls it is anything."""
    type_ = values.type
    if _t.is_boolean(type_):
        return _int(np.asarray(values.cast(pa.uint8()).fill_null(0)).astype(np.uint32), seeds)
    if _t.is_float32(type_):
        return _int(_float_bits(fixed_values(values, "<f4"), np.uint32), seeds)
    if _t.is_float64(type_):
        return _long(_float_bits(fixed_values(values, "<f8"), np.uint64), seeds)
    if _t.is_int32(type_) or _t.is_date32(type_):
        return _int(fixed_values(values, "<u4"), seeds)
    if _t.is_int64(type_) or _t.is_timestamp(type_):
        return _long(fixed_values(values, "<u8"), seeds)
    if _t.is_decimal(type_):
        return _decimal(values, seeds)
    ends = offsets_of(values)
    data = values.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return _bytes(text, ends[:-1], ends[1:] - ends[:-1], seeds)


def _float_bits(numbers: NDArray[Any], bits: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """With one zero and one NaN, as Java has them."""
    numbers = np.where(numbers == 0, np.zeros(1, numbers.dtype), numbers)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(bits)


def _decimal(values: Any, seeds: Words) -> Words:
    parts = fixed_values(values, "<u8", 2).reshape(-1, 2)
    if values.type.precision <= _LONG_DIGITS:
        return _long(parts[:, 0], seeds)
    big_endian = np.ascontiguousarray(fixed_values(values, np.uint8, 16).reshape(-1, 16)[:, ::-1])
    sign = big_endian[:, 0] >> 7
    filler = np.where(sign, np.uint8(0xFF), np.uint8(0))[:, None]
    differs = big_endian != filler
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # the shortest form of two's complement, as of Java's BigInteger: its first bit is the sign
    first -= (first > 0) & ((np.take_along_axis(big_endian, first[:, None], axis=1)[:, 0] >> 7) != sign)
    starts = np.arange(len(values), dtype=np.int64) * 16 + first
    return _bytes(big_endian.ravel(), starts, 16 - first, seeds)


# --- Murmur3 --------------------------------------------------------------------------------------------------------


def _int(values: NDArray[np.uint32], seeds: Words) -> Words:
    return _finished(_mixed(seeds, values), np.uint32(4))


def _long(values: NDArray[np.uint64], seeds: Words) -> Words:
    low, high = values.astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)
    return _finished(_mixed(_mixed(seeds, low), high), np.uint32(8))


def _bytes(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seeds: Words) -> Words:
    """Of bytes that begin at ``starts``. Word by word, over the rows that have so many."""
    hashes = seeds.copy()
    rows = np.argsort(-lengths, kind="stable")
    words = (lengths // 4)[rows]
    for word in range(int(words[0]) if len(words) else 0):
        now = rows[: int(np.searchsorted(-words, -word))]
        at = starts[now] + 4 * word
        values = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            values |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        hashes[now] = _mixed(hashes[now], values)
    for byte in range(3):
        now = np.flatnonzero(lengths % 4 > byte)
        values = data[starts[now] + lengths[now] // 4 * 4 + byte].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[now] = _mixed(hashes[now], values)
    return _finished(hashes, lengths.astype(np.uint32))


def _mixed(hashes: Words, values: NDArray[np.uint32]) -> Words:
    values = _rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ values, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(values: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def _finished(hashes: Words, lengths: Any) -> Words:
    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
