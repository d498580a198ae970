"""Key columns in a canonical form, so that pyarrow's kernels group and join them as keys are meant.

Equal keys become exactly equal values of one type that group-by and join accept; nulls stay nulls. This agrees with
``hashing``: keys that are equal here have the same hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError
from firesteel.results.plain import fixed_values, list_view_runs, offsets_of

_t = pa.types

TICK_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
MIXED_TICKS = pa.decimal128(28, 9)
"""Seconds: holds every instant and duration of every unit, where nanoseconds meet a coarser unit."""
_MAX_TEXT_BYTES = (1 << 31) - 1


class KeyTypeError(UsageError, TypeError):
    """Two key columns cannot be compared, or a type cannot be a key."""


def normal_type(kind: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """The type of ``normalise_key`` for a column of type ``kind``. Raises KeyTypeError."""
    if isinstance(kind, pa.BaseExtensionType):
        return normal_type(kind.storage_type)
    if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind):
        return normal_type(kind.value_type)
    if _t.is_integer(kind):
        return kind if _t.is_uint64(kind) else pa.int64()
    if _t.is_floating(kind):
        return pa.float64()
    if _t.is_string(kind) or _t.is_large_string(kind) or _t.is_string_view(kind):
        return pa.string()
    if _is_bytes(kind) or _t.is_nested(kind) or _t.is_interval(kind):
        _refuse_unions(kind)
        return pa.binary()
    if _t.is_date(kind):
        return pa.date32()
    if _t.is_time(kind):
        return pa.time64("ns")
    if _t.is_timestamp(kind) or _t.is_duration(kind):
        make = pa.timestamp if _t.is_timestamp(kind) else pa.duration
        return make("ns" if kind.unit == "ns" else "us")
    if _t.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if _t.is_null(kind) or _t.is_boolean(kind):
        return pa.bool_()
    raise KeyTypeError(f"A column of type {kind} cannot be a key.", hint="Key by another column.")


def common_key_type(left: Any, right: Any) -> Any:
    """The type that both sides of a join or co-group normalise a key pair to: ``normalise_key(column, common)``.

    Raises KeyTypeError when the two cannot be compared exactly.
    """
    left, right = _plain(left), _plain(right)
    if _t.is_null(left) or _t.is_null(right):
        return normal_type(right if _t.is_null(left) else left)
    one, other = normal_type(left), normal_type(right)
    if _encoded(left) or _encoded(right):
        if _shape(left) == _shape(right):
            return one
    elif one.equals(other):
        return one
    elif _t.is_integer(one) and _t.is_integer(other):
        return pa.decimal128(38, 0)  # uint64 against a signed type
    elif _t.is_decimal(one) and _t.is_decimal(other):
        return _common_decimal(left, right)
    elif (_t.is_timestamp(one) and _t.is_timestamp(other)) or (_t.is_duration(one) and _t.is_duration(other)):
        return MIXED_TICKS
    raise KeyTypeError(
        f"Keys of types {left} and {right} cannot be compared exactly.",
        hint="Cast one of the two columns to the other's type.",
    )


def hash_alike(one: Any, other: Any) -> bool:
    """Returns True if equal keys of these two types have the same hash.

    Types that can be compared do, but for integers that stand as decimals where a join met signed and unsigned ones.
    """
    one, other = _plain(one), _plain(other)
    return _t.is_null(one) or _t.is_null(other) or _t.is_decimal(one) == _t.is_decimal(other)


def normalise_key(array: Any, to: Any = None) -> Any:
    """The canonical form of a key column (``pa.Array`` or ``pa.ChunkedArray``; the same comes back).

    Integers become int64 (uint64 stays), floats float64 with one zero and one NaN, strings of any layout string, dates
    date32, times time64[ns], instants without a zone in us or ns, decimals the widest precision of their scale, nested
    values a canonical binary encoding. ``to``: the ``common_key_type`` of a pair; default the ``normal_type`` of this
    column. Raises KeyTypeError. An array of more than 2 GiB of text comes back chunked.
    """
    to = normal_type(array.type) if to is None else to
    if not isinstance(array, pa.ChunkedArray):
        parts = canonical_parts(array, to)
        return parts[0] if len(parts) == 1 else pa.chunked_array(parts, to)
    return pa.chunked_array([part for chunk in array.chunks for part in canonical_parts(chunk, to)], to)


def canonical_parts(array: Any, to: Any) -> list[Any]:
    """The canonical form of an array as one array, or as several of at most 2 GiB of text each."""
    if _holds_long_text(array) and len(array) > 1:
        half = len(array) // 2
        return canonical_parts(array.slice(0, half), to) + canonical_parts(array.slice(half), to)
    try:
        return [_normalise(array, to)]
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise KeyTypeError(
            f"A key column of type {array.type} holds a value that cannot be compared as {to}: {reason}.",
            hint="Cast the column, or drop the value, before keying by it.",
        ) from error


def _holds_long_text(array: Any) -> bool:
    kind = array.type
    if _t.is_large_string(kind) or _t.is_large_binary(kind):
        offsets = offsets_of(array)
        return int(offsets[-1] - offsets[0]) > _MAX_TEXT_BYTES
    return (_t.is_string_view(kind) or _t.is_binary_view(kind)) and array.nbytes > _MAX_TEXT_BYTES


def _normalise(array: Any, to: Any) -> Any:  # noqa: PLR0911 - one line per kind
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _normalise(array.storage, to)
    if _t.is_dictionary(kind):
        return _normalise(array.dictionary, to).take(array.indices)
    if _t.is_run_end_encoded(kind):
        return _normalise(pc.run_end_decode(array), to)
    if _t.is_floating(kind):
        return _one_zero(array)
    if _t.is_nested(kind):
        return _encode(array)
    if _t.is_interval(kind) or (_t.is_fixed_size_binary(kind) and not _t.is_decimal(kind)):
        return _rows_of_bytes(array, array.type.bit_width // 8).cast(to)
    if _t.is_date64(kind):
        return pc.floor_temporal(array.cast(pa.timestamp("ms")), unit="day").cast(pa.date32())
    if _t.is_timestamp(kind) or _t.is_duration(kind):
        return _ticks(array, to)
    return array if kind.equals(to) else array.cast(to)


def _one_zero(array: Any) -> Any:
    numbers = fixed_values(array, f"<f{array.type.bit_width // 8}").astype(np.float64)
    numbers += 0.0  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(numbers, pa.float64(), mask=mask, from_pandas=False)


def _ticks(array: Any, to: Any) -> Any:
    kind = array.type
    if not _t.is_decimal(to):
        if _t.is_timestamp(kind) and kind.tz is not None:
            array = array.view(pa.timestamp(kind.unit))
        return array if array.type.equals(to) else array.cast(to)
    whole = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    shifted = pa.decimal128(28, TICK_DIGITS[kind.unit])  # the same digits, read as seconds
    return pa.Array.from_buffers(shifted, len(whole), whole.buffers(), offset=whole.offset).cast(to)


# --- nested keys: a canonical, self-delimiting encoding -------------------------------------------------------------


def _encode(array: Any) -> Any:
    """Binary per row: equal exactly when the rows are; null where the row is."""
    encoded = _tagged(array)
    if not array.null_count:
        return encoded
    return pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.binary()))


def _tagged(array: Any) -> Any:
    """Never null: a byte that tells null from a value, then the value, which delimits itself."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _tagged(array.storage)
    if _t.is_dictionary(kind):
        return _tagged(array.dictionary_decode())
    if _t.is_run_end_encoded(kind):
        return _tagged(pc.run_end_decode(array))
    if not len(array):
        return pa.array([], pa.binary())
    parts = _struct_parts(array) if _t.is_struct(kind) else _value_parts(array)
    tagged = pc.binary_join_element_wise(*parts, b"")
    if not array.null_count:
        return tagged
    return pc.if_else(array.is_valid(), tagged, pa.scalar(b"\x00", pa.binary()))


def _struct_parts(array: Any) -> list[Any]:
    tags = _binary_matrix(np.ones((len(array), 1), np.uint8))
    return [tags, *(_tagged(array.field(place)) for place in range(array.type.num_fields))]


def _value_parts(array: Any) -> list[Any]:
    kind = array.type
    if _t.is_list_view(kind) or _t.is_large_list_view(kind):
        return _run_parts(*list_view_runs(array))
    if _t.is_map(kind):
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        return _run_parts(entries, offsets_of(array))
    if _t.is_fixed_size_list(kind):
        places = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * kind.list_size
        return _run_parts(array.values, places)
    if _t.is_list(kind) or _t.is_large_list(kind):
        return _run_parts(array.values, offsets_of(array))
    return _leaf_parts(_normalise(array, normal_type(kind)))


def _run_parts(values: Any, offsets: Any) -> list[Any]:
    low, high = int(offsets[0]), int(offsets[-1])
    runs = pa.ListArray.from_arrays(pa.array((offsets - low).astype(np.int32)), _tagged(values.slice(low, high - low)))
    return [_lengths(np.diff(offsets)), pc.binary_join(runs, b"")]


def _leaf_parts(array: Any) -> list[Any]:
    kind = array.type
    if _t.is_string(kind) or _t.is_binary(kind):
        content = pc.fill_null(array.cast(pa.binary()), b"")
        return [_lengths(np.asarray(pc.binary_length(content))), content]
    if _t.is_boolean(kind):
        array = array.cast(pa.uint8())
    raw = _rows_of_bytes(array, array.type.bit_width // 8)
    return [_binary_matrix(np.ones((len(array), 1), np.uint8)), pc.fill_null(raw, b"")]


def _lengths(lengths: Any) -> Any:
    """The tag of a value, and the length of what follows in 4 bytes."""
    matrix = np.ones((len(lengths), 5), np.uint8)
    matrix[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return _binary_matrix(matrix)


def _rows_of_bytes(array: Any, width: int) -> Any:
    """The raw bytes of fixed-width values as binary, nulls kept."""
    matrix = fixed_values(array, np.uint8, width).reshape(len(array), width)
    mask = np.asarray(array.is_null()) if array.null_count else None
    return _binary_matrix(matrix, mask)


def _binary_matrix(matrix: Any, mask: Any = None) -> Any:
    rows, width = matrix.shape
    if rows * width > _MAX_TEXT_BYTES:
        raise KeyTypeError(
            "A key column holds nested values of more than 2 GiB together.", hint="Key by another column."
        )
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [validity, offsets, pa.py_buffer(np.ascontiguousarray(matrix))])


# --- types ------------------------------------------------------------------------------------------------------


def _plain(kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return _plain(kind.value_type) if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind) else kind


def _is_bytes(kind: Any) -> bool:
    fixed = _t.is_fixed_size_binary(kind) and not _t.is_decimal(kind)
    return fixed or _t.is_binary(kind) or _t.is_large_binary(kind) or _t.is_binary_view(kind)


def _encoded(kind: Any) -> bool:
    return _t.is_nested(kind) or _t.is_interval(kind)


def _shape(kind: Any) -> Any:
    """Returns the part of a nested type that its encoding depends on: equal shapes, comparable keys."""
    kind = _plain(kind)
    if _t.is_struct(kind):
        return ("struct", *(_shape(kind.field(place).type) for place in range(kind.num_fields)))
    if _t.is_map(kind):
        return ("map", _shape(kind.key_type), _shape(kind.item_type))
    if _t.is_nested(kind):
        return ("list", _shape(kind.value_type))
    return str(kind) if _t.is_interval(kind) else str(normal_type(kind))


def _refuse_unions(kind: Any) -> None:
    kind = _plain(kind)
    if _t.is_union(kind):
        raise KeyTypeError(f"A column of type {kind} cannot be a key.", hint="Key by another column.")
    for place in range(kind.num_fields):
        _refuse_unions(kind.field(place).type)


def _decimal(precision: int, scale: int) -> Any:
    return pa.decimal128(38, scale) if precision <= 38 else pa.decimal256(76, scale)


def _common_decimal(left: Any, right: Any) -> Any:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision > 76:
        raise KeyTypeError(
            f"Keys of types {left} and {right} need {precision} digits together, more than any decimal has.",
            hint="Cast one of the two columns to the other's type.",
        )
    return _decimal(precision, scale)
