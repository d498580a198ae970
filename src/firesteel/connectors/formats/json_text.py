"""Arrow arrays to JSON text, by Arrow's string functions: no Python object per value (but for binary and rare characters).

As Spark writes it: null fields are left out, NaN and infinities are strings, timestamps are ISO 8601, binary is base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError

_TEXT = pa.large_string()
_SPECIAL = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_rows(batch: pa.RecordBatch, *, nulls: bool = False) -> pa.Array:
    """An object per row. ``nulls``: write fields that are null as ``null``."""
    return _object(batch.schema.names, [_texts(column, nulls) for column in batch.columns], batch.num_rows, nulls)


def check_json_type(data_type: pa.DataType, what: str) -> None:
    """Raises UsageError for a type that JSON has no form for. ``what``: the column, in words."""
    types = pa.types
    if types.is_dictionary(data_type):
        check_json_type(data_type.value_type, what)
    elif types.is_nested(data_type) and not types.is_union(data_type):
        for i in range(data_type.num_fields):
            check_json_type(data_type.field(i).type, what)
    elif types.is_union(data_type) or types.is_interval(data_type) or types.is_duration(data_type):
        raise UsageError(f"{what} of type {data_type} cannot be written as JSON.", hint="Cast it to another type.")


def _texts(array: Any, nulls: bool) -> Any:
    """The JSON of each value; null where the value is."""
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if types.is_null(array.type):
        return pa.nulls(len(array), _TEXT)
    if not types.is_nested(array.type):
        return _scalars(array)
    nested = _structs if types.is_struct(array.type) else _maps if types.is_map(array.type) else _lists
    texts = nested(array, nulls)
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, _TEXT)) if array.null_count else texts


def _structs(array: Any, nulls: bool) -> Any:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    return _object(names, [_texts(child, nulls) for child in array.flatten()], len(array), nulls)


def _maps(array: Any, nulls: bool) -> Any:
    lengths, flat = _elements(array)
    keys = array.keys.take(flat).cast(_TEXT)
    items = _texts(array.items.take(flat), nulls).fill_null("null")
    return _wrapped("{", _joined(_concat(_quoted(keys), ":", items), lengths), "}")


def _lists(array: Any, nulls: bool) -> Any:
    lengths, flat = _elements(array)
    values = _texts(array.values.take(flat), nulls).fill_null("null")
    return _wrapped("[", _joined(values, lengths), "]")


def _scalars(array: Any) -> Any:
    data_type, types = array.type, pa.types
    if types.is_floating(data_type):
        return _floats(array)
    if types.is_integer(data_type) or types.is_boolean(data_type) or types.is_decimal(data_type):
        return array.cast(_TEXT)
    if types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type):
        texts = [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in array.to_pylist()]
        return pa.array(texts, _TEXT)
    if types.is_timestamp(data_type) and data_type.tz is not None:
        array = array.cast(pa.timestamp(data_type.unit, "UTC"))
    texts = array.cast(_TEXT)
    if types.is_timestamp(data_type):
        return _wrapped('"', pc.replace_substring(texts, " ", "T", max_replacements=1), '"')
    return _quoted(texts)


def _floats(array: Any) -> Any:
    array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
    texts = array.cast(_TEXT)
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")  # else it would be read as a whole number again
    texts = pc.if_else(whole, _concat(texts, "", _constant(".0")), texts)
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return texts
    for text, written in _SPECIAL.items():
        texts = pc.if_else(pc.equal(texts, _constant(text)), _constant(written), texts)
    return texts


def _quoted(texts: Any) -> Any:
    if pc.any(pc.match_substring_regex(texts, '["\\\\\\x00-\\x1f]')).as_py():
        for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            texts = pc.replace_substring(texts, char, escaped)
        if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
            plain = [None if t is None else _escape_control(t) for t in texts.to_pylist()]
            texts = pa.array(plain, _TEXT)
    return _wrapped('"', texts, '"')


def _escape_control(text: str) -> str:
    return "".join(char if char >= " " else f"\\u{ord(char):04x}" for char in text)


def _object(names: list[str], columns: list[Any], rows: int, nulls: bool) -> Any:
    if not names:
        return pa.array(["{}"] * rows, _TEXT)
    fields = [
        # a join that skips nulls loses rows where all are null (seen in Arrow 26), so every field brings its comma
        _concat(
            _constant(f",{json.dumps(name, ensure_ascii=False)}:"), "", values.fill_null("null") if nulls else values
        )
        for name, values in zip(names, columns, strict=True)
    ]
    inner = pc.binary_join_element_wise(
        _constant("{"), *(f.fill_null("") for f in fields), _constant("}"), _constant("")
    )
    return pc.replace_substring(inner, "{,", "{", max_replacements=1)


def _constant(text: str) -> Any:
    return pa.scalar(text, _TEXT)


def _concat(one: Any, separator: str, other: Any) -> Any:
    return pc.binary_join_element_wise(one, other, _constant(separator))


def _wrapped(before: str, texts: Any, after: str) -> Any:
    return pc.binary_join_element_wise(_constant(before), texts, _constant(after), _constant(""))


def _elements(array: Any) -> tuple[Any, Any]:
    """The length of each list (or map), and the child's values that are its elements."""
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = lengths * np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.int64)
    before = np.cumsum(lengths) - lengths
    return lengths, pa.array(np.repeat(offsets[:-1] - before, lengths) + np.arange(int(lengths.sum())))


def _joined(texts: Any, lengths: Any) -> Any:
    """The texts of each list with commas between."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts)
    return pc.binary_join(lists, _constant(","))
