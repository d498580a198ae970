"""The plain form in which rows are stored, and its size.

Dictionaries, run ends, views and extension types are stored as what they stand for: a dictionary sliced into many pieces
would otherwise be written with each of them. On reading the declared type comes back. Nested types likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.errors import FiresteelError

_t = pa.types


_PLAIN = frozenset(
    kind.id
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.large_string(), pa.large_binary()),
        *(pa.date32(), pa.timestamp("us"), pa.decimal128(1)),
    )
)
"""Ids of common types that are stored as they are: to be told at once."""


class TooManyValues(Exception):
    """A batch has more distinct values than the declared dictionary index can count: it must be cut smaller."""


def stored_type(kind: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """The plain type in which values of ``kind`` are stored; ``kind`` itself when it is plain already."""
    if kind.id in _PLAIN:
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)
    if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind):
        return stored_type(kind.value_type)
    if _t.is_string_view(kind):
        return pa.large_string()
    if _t.is_binary_view(kind):
        return pa.large_binary()
    if _t.is_struct(kind):
        return pa.struct([_stored_field(kind.field(place)) for place in range(kind.num_fields)])
    if _t.is_map(kind):
        return pa.map_(_stored_field(kind.key_field), _stored_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if _t.is_fixed_size_list(kind):
        return pa.list_(_stored_field(kind.value_field), kind.list_size)
    if _t.is_large_list(kind) or _t.is_large_list_view(kind):
        return pa.large_list(_stored_field(kind.value_field))
    if _t.is_list(kind) or _t.is_list_view(kind):
        return pa.list_(_stored_field(kind.value_field))
    return kind


def _stored_field(field: Any) -> Any:
    return pa.field(field.name, stored_type(field.type), field.nullable)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the stored messages. Top-level columns are nullable there: a producer's promise is not the store's to check."""
    return pa.schema([pa.field(field.name, stored_type(field.type)) for field in schema])


def to_stored(array: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """The same values in their plain form (``array`` itself when they are in it)."""
    kind = array.type
    if kind.id in _PLAIN or stored_type(kind).equals(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return to_stored(array.storage)
    if _t.is_dictionary(kind):
        return to_stored(array.dictionary_decode())
    if _t.is_run_end_encoded(kind):
        return to_stored(pc.run_end_decode(array))
    if _t.is_string_view(kind) or _t.is_binary_view(kind):
        return array.cast(stored_type(kind))
    if _t.is_list_view(kind) or _t.is_large_list_view(kind):
        values, offsets = list_view_runs(array)
        return _list_array(stored_type(kind), _validity(array), offsets, to_stored(values))
    return _rebuild(array, stored_type(kind), _convert_child)


def _convert_child(child: Any, _kind: Any) -> Any:
    return to_stored(child)


def from_stored(array: Any, kind: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """Plain values in the declared type ``kind`` again. Raises TooManyValues."""
    if array.type.equals(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, from_stored(array, kind.storage_type))
    if _t.is_dictionary(kind):
        return _encode(array, kind)
    if _t.is_run_end_encoded(kind):
        encoded = pc.run_end_encode(array, run_end_type=kind.run_end_type)
        values = from_stored(encoded.values, kind.value_type)
        return pa.RunEndEncodedArray.from_arrays(encoded.run_ends, values, kind)
    if _t.is_string_view(kind) or _t.is_binary_view(kind):
        return array.cast(kind)
    if _t.is_list_view(kind) or _t.is_large_list_view(kind):
        return _list_view(array, kind)
    return _rebuild(array, kind, from_stored)


def _list_view(array: Any, kind: Any) -> Any:
    offsets = offsets_of(array)
    low, high = int(offsets[0]), int(offsets[-1])
    values = from_stored(array.values.slice(low, high - low), kind.value_type)
    width = np.int64 if _t.is_large_list_view(kind) else np.int32
    places = [pa.py_buffer(part.astype(width)) for part in (offsets[:-1] - low, np.diff(offsets))]
    return pa.Array.from_buffers(kind, len(array), [_validity(array), *places], children=[values])


def _encode(array: Any, kind: Any) -> Any:
    encoded = array.dictionary_encode()
    try:
        indices = encoded.indices.cast(kind.index_type)
    except pa.ArrowInvalid as error:
        raise TooManyValues from error
    dictionary = from_stored(encoded.dictionary, kind.value_type)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=kind.ordered)


def _rebuild(array: Any, kind: Any, convert: Any) -> Any:
    """A nested array of type ``kind`` with converted children, compacted to its own rows."""
    validity = _validity(array)
    size = len(array)
    if _t.is_struct(kind):
        children = [convert(array.field(place), kind.field(place).type) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, size, [validity], children=children)
    if _t.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * kind.list_size, size * kind.list_size)
        return pa.Array.from_buffers(kind, size, [validity], children=[convert(values, kind.value_type)])
    offsets = offsets_of(array)
    low, high = int(offsets[0]), int(offsets[-1])
    if _t.is_map(kind):
        keys = convert(array.keys.slice(low, high - low), kind.key_type)
        items = convert(array.items.slice(low, high - low), kind.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        return _list_array(kind, validity, offsets - low, entries)
    return _list_array(kind, validity, offsets - low, convert(array.values.slice(low, high - low), kind.value_type))


def _list_array(kind: Any, validity: Any, offsets: NDArray[np.int64], values: Any) -> Any:
    width = np.int64 if _t.is_large_list(kind) else np.int32
    buffers = [validity, pa.py_buffer(offsets.astype(width))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[values])


def _validity(array: Any) -> Any:
    """The validity bitmap of exactly these rows, or None when there are no nulls."""
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little"))


# --- sizes ------------------------------------------------------------------------------------------------------


def row_bytes(array: Any) -> tuple[int, NDArray[np.int64] | None]:
    """Plain bytes of each row of an array in stored form: a constant, and what varies per row (int64[rows]) if anything.

    Fixed-width values count their width (booleans 1, nulls as the others), strings and lists their offset and content.
    Validity bitmaps are not counted. Exact and additive: the sum does not depend on how rows are cut into batches.
    """
    kind = array.type
    if _t.is_null(kind):
        return 0, None
    if _t.is_boolean(kind):
        return 1, None
    if _t.is_struct(kind):
        return add_row_bytes([array.field(place) for place in range(kind.num_fields)])
    if _t.is_fixed_size_list(kind):
        return _fixed_list_bytes(array)
    if _has_offsets(kind):
        return _run_bytes(array)
    return kind.bit_width // 8, None


def add_row_bytes(arrays: list[Any]) -> tuple[int, NDArray[np.int64] | None]:
    """``row_bytes`` of several equally long arrays together."""
    constant, varying = 0, None
    for array in arrays:
        width, more = row_bytes(array)
        constant += width
        if more is not None:
            varying = more if varying is None else varying + more
    return constant, varying


def has_constant_width(kind: Any) -> bool:
    """Returns True if all values of a stored type have the same number of plain bytes."""
    return not _has_offsets(kind) and all(
        has_constant_width(kind.field(place).type) for place in range(kind.num_fields)
    )


def _has_offsets(kind: Any) -> bool:
    return is_text(kind) or _t.is_list(kind) or _t.is_large_list(kind) or _t.is_map(kind)


def _run_bytes(array: Any) -> tuple[int, NDArray[np.int64]]:
    kind = array.type
    offsets = offsets_of(array)
    lengths = np.diff(offsets)
    if _t.is_map(kind):
        children = [array.keys, array.items]
    elif _t.is_list(kind) or _t.is_large_list(kind):
        children = [array.values]
    else:
        large = _t.is_large_string(kind) or _t.is_large_binary(kind)
        return 8 if large else 4, lengths
    low, high = int(offsets[0]), int(offsets[-1])
    constant, varying = add_row_bytes([child.slice(low, high - low) for child in children])
    content = lengths * constant
    if varying is not None:
        content += _differences(varying, offsets - low)
    return 8 if _t.is_large_list(kind) else 4, content


def _fixed_list_bytes(array: Any) -> tuple[int, NDArray[np.int64] | None]:
    size = array.type.list_size
    constant, varying = row_bytes(array.values.slice(array.offset * size, len(array) * size))
    if varying is None:
        return constant * size, None
    return constant * size, varying.reshape(len(array), size).sum(axis=1)


def _differences(values: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return np.diff(sums[offsets])


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """About how many bytes a batch has once its top-level dictionaries are decoded."""
    size = batch.nbytes
    for column in batch.columns:
        if _t.is_dictionary(column.type):
            constant, varying = row_bytes(to_stored(column.dictionary))
            size += constant * len(column)
            if varying is not None:
                counts = pc.value_counts(column.indices.drop_null())
                size += int((varying[np.asarray(counts.field(0))] * np.asarray(counts.field(1))).sum())
    return size


# --- buffers ----------------------------------------------------------------------------------------------------


def fixed_values(array: Any, dtype: Any, per_row: int = 1) -> NDArray[Any]:
    """The numbers of a fixed-width array as stored, without copying; zeros where there is no buffer. Nulls are arbitrary."""
    dtype = np.dtype(dtype)
    count = len(array) * per_row
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(count, dtype)
    return np.frombuffer(buffer, dtype, count, array.offset * per_row * dtype.itemsize)


def one_chunk(column: Any) -> pa.Array:
    """A chunked array as one array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else _combined(column)
    return column


def _combined(column: pa.ChunkedArray) -> pa.Array:
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid as error:
        raise FiresteelError(
            f"A column of type {column.type} holds too much to be worked on as a whole: {error}",
            hint="Give its dictionary a wider index (int32), or make it a plain or large type.",
        ) from None


def made_of(kind: Any, values: NDArray[Any], known: NDArray[Any] | None = None) -> Any:
    """The array of fixed-width values; null where they are not ``known``. Without :func:`pyarrow.array`, which imports pandas."""
    validity = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def offsets_of(array: Any) -> NDArray[np.int64]:
    """int64[rows + 1]: where each row's bytes or elements begin, for string, binary, list and map layouts."""
    return stored_offsets(array).astype(np.int64)


def stored_offsets(array: Any) -> NDArray[Any]:
    """The same as they are stored, without copying them: int32 or int64."""
    large = _t.is_large_string(array.type) or _t.is_large_binary(array.type) or _t.is_large_list(array.type)
    dtype = np.dtype("<i8" if large else "<i4")
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def list_view_runs(array: Any) -> tuple[Any, NDArray[np.int64]]:
    """The elements of a list view in the order of its rows, and int64[rows + 1] offsets into them."""
    lengths = np.asarray(array.value_lengths().fill_null(0), np.int64)
    return array.flatten(), np.append(0, np.cumsum(lengths))


def is_text(kind: Any) -> bool:
    """Returns True for the layouts of strings and bytes that have offsets."""
    return _t.is_string(kind) or _t.is_large_string(kind) or _t.is_binary(kind) or _t.is_large_binary(kind)
