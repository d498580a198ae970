"""The order of rows as an order of bytes: keys that compare as the rows do, in Spark's order.

Nulls come first in an ascending column and last in a descending one; NaN is greater than every number, -0.0 equals 0.0,
strings compare by their UTF-8 bytes, false is less than true. Of a row, each column's key follows the one before:

    a null       byte 0
    a value      byte 1, then what compares as the value does:
                 integers, dates, instants, durations, decimals: big-endian, the sign bit flipped
                 floats: the bits, all flipped below zero and the sign bit above
                 text, bytes: themselves, 00 written as 00 FF, ended by 00 00

with all bits flipped where the column descends. Keys of one order are prefix-free (a null of a fixed width is padded, so
that all keys of an order without text have the same length): a suffix may follow, and still the keys before it decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.model.order import PRODUCER_BYTES, Order
from firesteel.results.plain import fixed_values, is_text, stored_type, to_stored

_t = pa.types
_PROBES = 64


def can_order(kind: Any) -> bool:
    """Returns True if rows can be ordered by a column of this type: not by lists, structs, maps, unions or calendar intervals."""
    kind = stored_type(kind)
    return is_text(kind) or _fixed_width(kind) is not None


def suffix_of(order: Order, producer: int) -> bytes:
    """Returns the bytes that follow the encoded columns in the keys of a producer's rows."""
    return producer.to_bytes(PRODUCER_BYTES, "big") if order.split_equal else b""


def encode_keys(columns: Sequence[Any], order: Order) -> Any:
    """One key per row, as a ``pa.LargeBinaryArray`` without nulls; compare them as bytes.

    ``columns``: the arrays of ``order.columns``, equally long. The producer's number does not belong to it: see
    ``suffix_of``. Raises TypeError for a type without an order.
    """
    if not columns:
        raise ValueError("Cannot order without columns: give at least one.")
    rows = len(columns[0])
    pieces: list[Any] = []
    fixed: list[NDArray[np.uint8]] = []
    for array, column in zip(columns, order.columns, strict=True):
        stored = to_stored(array)
        width = _fixed_width(stored.type)
        if width is not None:
            fixed.append(_fixed_key(stored, width, ascending=column.ascending))
        elif is_text(stored.type):
            pieces += _joined_columns(fixed, rows)
            fixed = []
            pieces.append(_text_key(stored, ascending=column.ascending))
        else:
            raise TypeError(f"Rows cannot be ordered by a column of type {array.type}.")
    pieces += _joined_columns(fixed, rows)
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def key_list(columns: Sequence[Any], order: Order, suffix: bytes = b"") -> list[bytes]:
    """``encode_keys`` with a suffix behind each, as Python bytes: of a few rows."""
    keys: list[bytes] = encode_keys(columns, order).to_pylist()
    return [key + suffix for key in keys] if suffix else keys


def rows_before(columns: Sequence[Any], order: Order, key: bytes, suffix: bytes = b"") -> int:
    """Returns the number of rows before ``key``, of rows in order. Encodes only some of them: a search by ``_PROBES``."""
    low, high = 0, len(columns[0])
    while low < high:
        probes = np.arange(low, high, -(-(high - low) // _PROBES))
        keys = key_list([column.take(pa.array(probes)) for column in columns], order, suffix)
        before = bisect_left(keys, key)
        if before < len(probes):
            high = int(probes[before])
        if before == 0:
            break
        low = int(probes[before - 1]) + 1
    return high


# --- fixed width ---------------------------------------------------------------------------------------------------


def _fixed_width(kind: Any) -> int | None:
    """Bytes of a value's key, the null byte not counted; None: the type varies in length or has no order."""
    if _t.is_null(kind):
        return 0
    if _t.is_boolean(kind):
        return 1
    if _t.is_interval(kind) or _t.is_nested(kind):
        return None
    if _t.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return None


def _fixed_key(array: Any, width: int, *, ascending: bool) -> NDArray[np.uint8]:
    """uint8[rows, 1 + width]."""
    key = np.ones((len(array), 1 + width), np.uint8)
    if width:
        key[:, 1:] = _value_bytes(array, width)
    if array.null_count:
        key[np.asarray(array.is_null())] = 0
    return key if ascending else ~key


def _value_bytes(array: Any, width: int) -> NDArray[np.uint8]:
    kind = array.type
    if _t.is_fixed_size_binary(kind) and not _t.is_decimal(kind):
        return fixed_values(array, np.uint8, width).reshape(-1, width)
    if width <= 8:
        return _word(array, width).astype(f">u{width}").view(np.uint8).reshape(-1, width)
    raw = fixed_values(array, np.uint8, width).reshape(-1, width)[:, ::-1].copy()  # a decimal
    raw[:, 0] ^= 0x80
    return raw


def value_words(array: Any) -> list[NDArray[Any]] | None:
    """Columns of unsigned numbers, the highest first, that compare as the values do (those of nulls are arbitrary); None for
    text and bytes. ``array``: stored, of a type that has an order."""
    width = _fixed_width(array.type)
    if width is None or (_t.is_fixed_size_binary(array.type) and not _t.is_decimal(array.type)):
        return None
    if width <= 8:
        return [_word(array, width)] if width else []
    raw = _value_bytes(array, width)
    return [raw[:, at : at + 8].copy().view(">u8").ravel().astype(np.uint64) for at in range(0, width, 8)]


def _word(array: Any, width: int) -> NDArray[Any]:
    if _t.is_boolean(array.type):
        return fixed_values(array.cast(pa.uint8()), np.uint8)
    return _float_bits(array, width) if _t.is_floating(array.type) else _ordered_bits(array, width)


def _ordered_bits(array: Any, width: int) -> NDArray[Any]:
    """Integers and what is stored as such: unsigned numbers in the same order. Those of nulls are arbitrary."""
    bits = fixed_values(array, f"<u{width}")
    if _t.is_unsigned_integer(array.type):
        return bits
    return bits ^ bits.dtype.type(1 << (8 * width - 1))


def _float_bits(array: Any, width: int) -> NDArray[Any]:
    numbers = fixed_values(array, f"<f{width}") + np.dtype(f"<f{width}").type(0)  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(f"<u{width}")
    sign = bits.dtype.type(1 << (8 * width - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _joined_columns(columns: list[NDArray[np.uint8]], rows: int) -> list[Any]:
    """Neighbouring columns of fixed width as one binary array."""
    if not columns:
        return []
    matrix = np.ascontiguousarray(columns[0] if len(columns) == 1 else np.hstack(columns))
    offsets = np.arange(rows + 1, dtype=np.int64) * matrix.shape[1]
    return [_binary(rows, offsets, matrix)]


def _binary(rows: int, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Any:
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# --- text and bytes ------------------------------------------------------------------------------------------------


def _text_key(array: Any, *, ascending: bool) -> Any:
    content = text_bytes(array)
    if content.null_count:
        content = pc.fill_null(content, b"")
    escaped = pc.replace_substring(content, pattern=b"\x00", replacement=b"\x00\xff")
    tag, end = pa.scalar(b"\x01", pa.large_binary()), pa.scalar(b"\x00\x00", pa.large_binary())
    key = pc.binary_join_element_wise(tag, escaped, end, pa.scalar(b"", pa.large_binary()))
    if array.null_count:
        key = pc.if_else(array.is_valid(), key, pa.scalar(b"\x00", pa.large_binary()))
    return key if ascending else _complement(key)


def text_bytes(array: Any) -> Any:
    """Text or bytes as ``large_binary``."""
    if _t.is_string(array.type):  # pyarrow has no direct cast
        array = array.cast(pa.binary())
    return array if _t.is_large_binary(array.type) else array.cast(pa.large_binary())


def _complement(key: Any) -> Any:
    _, offsets, data = key.buffers()
    flipped = ~np.frombuffer(data or b"", np.uint8)
    return pa.Array.from_buffers(key.type, len(key), [None, offsets, pa.py_buffer(flipped)], offset=key.offset)
