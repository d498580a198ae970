"""JSON values to Arrow one at a time: for the types and values that Arrow's own parser does not take, and to find errors.

As Spark reads them: a string column takes any value as its JSON text, binary is base64, numbers may be the strings "NaN",
"Infinity" and "-Infinity", a decimal may be written as a string, an object is a struct or a map.

Arrow's reader (pyarrow 26) refuses maps, "NaN", and numbers in columns of text. Its errors name neither line nor value. A first line
``null``, or one nested deeply, crashes it. It reads everything else.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.shaping import retyped


class _Number(decimal.Decimal):
    """A number with a fraction or an exponent, and the text that the file has of it."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


_DECODER = json.JSONDecoder(parse_float=_Number)
_SPECIAL = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "INF": float("inf"),
    "+INF": float("inf"),
    "-INF": float("-inf"),
}
_UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_LONGEST_HINT = 200
_FRACTION = re.compile(r"[.,][0-9]{6}([0-9]+)")


class BadValueError(Exception):
    """``line``: the number of the line or object in what was parsed, from 0."""

    def __init__(self, line: int, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.hint = hint


class _Unfit(Exception):
    def __init__(self, value: Any, data_type: pa.DataType, path: str = "") -> None:
        super().__init__()
        self.value, self.data_type, self.path = value, data_type, path


class _Unknown(_Unfit):
    """The struct ``data_type`` has no field for the value; ``path`` ends with the field's name."""


def parse_lines(
    data: bytes, schema: pa.Schema, *, spread: bool = False, known: frozenset[str] | None = None
) -> pa.RecordBatch:
    """The rows of the schema's columns. ``spread``: objects may take several lines, or be one array. ``known``: the only
    fields that may have values, and of structs only theirs; None: others are left out. Raises BadValueError."""
    columns: list[list[Any]] = [[] for _ in schema]
    converters = _converters(schema, known)
    numbered = enumerate(parse_objects(data)) if spread else _line_objects(data.splitlines())
    for line, row in numbered:
        for column, value in zip(columns, _values(line, row, converters, schema, known), strict=True):
            column.append(value)
    arrays = [_array(column, field) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def refused_lines(lines: Sequence[bytes], schema: pa.Schema, known: frozenset[str] | None) -> list[int]:
    """The numbers of the lines that :func:`parse_lines` would refuse by themselves, but for values that Arrow refuses."""
    converters = _converters(schema, known)
    refused: list[int] = []
    for number, line in enumerate(lines):
        try:
            for _, row in _line_objects((line,)):
                _values(number, row, converters, schema, known)
            if b"\\ud" in line.lower():  # half a pair, which Arrow refuses
                parse_lines(line, schema, known=known)
        except BadValueError:
            refused.append(number)
    return refused


_Converters = list[tuple[str, Callable[[Any], Any]]]


def _converters(schema: pa.Schema, known: frozenset[str] | None) -> _Converters:
    return [(field.name, _converter(field.type, known is not None)) for field in schema]


def _values(
    line: int, row: dict[str, Any], converters: _Converters, schema: pa.Schema, known: frozenset[str] | None
) -> list[Any]:
    """The row's values of the schema's columns. Raises BadValueError."""
    try:
        return _converted(line, row, converters, schema, known)
    except RecursionError:
        hint = "Correct the line, or give a schema without that field."
        raise BadValueError(line, "a value is nested too deeply", hint) from None


def _converted(
    line: int, row: dict[str, Any], converters: _Converters, schema: pa.Schema, known: frozenset[str] | None
) -> list[Any]:
    if known is not None and not row.keys() <= known:
        for name, value in row.items():
            if name not in known and value is not None:
                raise _unknown_field(line, name, _type_of(value), name, schema)
    values: list[Any] = []
    for name, convert in converters:
        value = row.get(name)
        try:
            values.append(None if value is None else convert(value))
        except _Unknown as error:
            raise _unknown_field(line, name, _type_of(value), name + error.path, schema) from None
        except _Unfit as error:
            raise _bad_value(line, name, error) from None
        except RecursionError:
            raise BadValueError(line, f"column '{name}' has a value that is nested too deeply") from None
    return values


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as whole:
        for line, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                raise _bad_value(line, field.name, _Unfit(value, field.type)) from None
        raise BadValueError(0, f"column '{field.name}': {whole}") from None


def _bad_value(line: int, name: str, error: _Unfit) -> BadValueError:
    shown = error.value if isinstance(error.value, str) else to_text(error.value)
    shown = shown if len(shown) <= 80 else shown[:80] + "..."
    return BadValueError(
        line,
        f"column '{name}'{error.path} is {error.data_type}, and {shown!r} does not fit",
        f"Give its type, schema='{name} string, ...' (with all columns; string takes any value).",
    )


def _unknown_field(line: int, column: str, found: pa.DataType, path: str, schema: pa.Schema) -> BadValueError:
    """For a field that an inferred schema lacks: ``path`` in the column ``column``, whose value here is of type ``found``."""
    types = {field.name: field.type for field in schema}
    whole = settle_json_type(found)
    types[column] = merge_json_types(types[column], whole) if column in types else whole
    listed = ", ".join(f"{_quoted(name)} {_ddl(data_type)}" for name, data_type in types.items())
    if len(listed) > _LONGEST_HINT:
        listed = f"{_quoted(column)} {_ddl(types[column])}, ..."
        listed = listed if len(listed) <= _LONGEST_HINT else f"{_quoted(column)} ..., ..."
    return BadValueError(
        line,
        f"the field '{path}' is not in the schema, which was inferred from the beginning of the first files",
        f"Give the schema, schema={listed!r} (with all columns; fields that are not in it are left out).",
    )


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


def _ddl(data_type: pa.DataType) -> str:
    """A type that was inferred, as users write it."""
    types = pa.types
    if types.is_struct(data_type):
        return "struct<" + ", ".join(f"{_quoted(f.name)}: {_ddl(f.type)}" for f in data_type) + ">"
    if types.is_list(data_type):
        return f"array<{_ddl(data_type.value_type)}>"
    plain = {pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
    return plain.get(data_type, "string")


def _line_objects(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            value = _DECODER.decode(line.decode())
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise BadValueError(
                number,
                f"this is not JSON: {_shown(line)} ({error})",
                "Correct or remove the line; where objects are spread over lines, read with newlines_in_values=True.",
            ) from None
        if not isinstance(value, dict):
            raise BadValueError(
                number, f"this is not a JSON object: {_shown(line)}", "Each line must be an object {...}."
            )
        yield number, value


def is_sound(line: bytes) -> bool:
    """True for a JSON object."""
    try:
        return any(True for _ in _line_objects((line,)))
    except BadValueError:
        return False


def parse_objects(data: bytes, *, prefix: bool = False) -> Iterator[dict[str, Any]]:
    """Objects one behind another, with any white space between, or the elements of one array.

    ``prefix``: the data may stop in the middle of an object. Raises BadValueError.
    """
    text = data.decode(errors="ignore" if prefix else "strict").removeprefix("\ufeff")
    at, number = _behind_space(text, 0), 0
    is_array = text.startswith("[", at)
    at += is_array
    while True:
        at = _behind_space(text, at, ",")
        if at >= len(text):
            if is_array and not prefix:
                raise BadValueError(number, "the file ends in the middle of its array", "The file is damaged.")
            return
        if is_array and text[at] == "]":
            rest = text[at + 1 :].strip(" \t\r\n")
            if rest and not prefix:
                shown = _shown(rest[:80].encode(errors="replace"))
                raise BadValueError(number, f"behind the end of the array comes {shown}", "The file is damaged.")
            return
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, ArithmeticError, RecursionError) as error:
            if prefix and number:
                return
            raise BadValueError(number, f"this is not JSON ({error})", "The file is damaged.") from None
        if not isinstance(value, dict):
            raise BadValueError(number, f"{_shown(to_text(value).encode())} is not an object")
        yield value
        number += 1


def _behind_space(text: str, at: int, more: str = "") -> int:
    while at < len(text) and text[at] in " \t\r\n" + more:
        at += 1
    return at


def _shown(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace") + ("..." if len(line) > 80 else ""))


def to_text(value: Any) -> str:
    """A parsed value as JSON again, without white space."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{to_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return value.text if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False, default=str)


# --- one converter a type ------------------------------------------------------------------------------------


def _converter(data_type: pa.DataType, strict: bool = False) -> Callable[[Any], Any]:
    """``strict``: a field with a value that a struct does not have is an error, and not left out."""
    types = pa.types
    if types.is_string(data_type) or types.is_large_string(data_type):
        return lambda value: value if isinstance(value, str) else to_text(value)
    if types.is_struct(data_type):
        return _struct_converter(data_type, strict)
    if types.is_map(data_type):
        return _map_converter(data_type, strict)
    if types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type):
        return _list_converter(data_type, strict)
    return _checked(data_type, _scalar_converter(data_type))


def _checked(data_type: pa.DataType, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, ArithmeticError, binascii.Error):
            raise _Unfit(value, data_type) from None

    return checked


def _scalar_converter(data_type: pa.DataType) -> Callable[[Any], Any]:
    types = pa.types
    table: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = [
        (types.is_integer, lambda v: _whole(v, data_type)),
        (types.is_floating, _real),
        (types.is_boolean, _boolean),
        (types.is_decimal, lambda v: _decimal(v, data_type)),
        (types.is_date, lambda v: datetime.date.fromisoformat(_text(v))),
        (types.is_time, lambda v: _time(v, data_type)),
        (types.is_timestamp, lambda v: _timestamp(v, data_type)),
        (types.is_binary, lambda v: base64.b64decode(_text(v), validate=True)),
        (types.is_large_binary, lambda v: base64.b64decode(_text(v), validate=True)),
        (types.is_fixed_size_binary, lambda v: _of_width(base64.b64decode(_text(v), validate=True), data_type)),
        (types.is_null, _nothing),
    ]
    for is_kind, convert in table:
        if is_kind(data_type):
            return convert

    def cast(value: Any) -> Any:
        return pa.scalar(_text(value)).cast(data_type).as_py()

    return cast


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _of_width(value: bytes, data_type: Any) -> bytes:
    if len(value) != data_type.byte_width:
        raise ValueError
    return value


def _nothing(_value: Any) -> Any:
    raise ValueError


def _whole(value: Any, data_type: pa.DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    bits = data_type.bit_width
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if pa.types.is_signed_integer(data_type) else (0, 1 << bits)
    if not low <= value < high:
        raise ValueError
    return value


def _real(value: Any) -> float:
    if isinstance(value, str):
        if value not in _SPECIAL:
            raise ValueError
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _decimal(value: Any, data_type: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | decimal.Decimal):
        raise TypeError
    number = decimal.Decimal(value)
    with decimal.localcontext(prec=data_type.precision):
        fitted = number.quantize(decimal.Decimal(1).scaleb(-data_type.scale))
    if fitted != number:
        raise ValueError
    return fitted


def _timestamp(value: Any, data_type: Any) -> datetime.datetime | int:
    moment = datetime.datetime.fromisoformat(_text(value))
    if data_type.tz is None:
        if moment.tzinfo is not None:
            raise ValueError
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=_UTC)
    finer = _nanoseconds(value) if data_type.unit == "ns" else 0
    if not finer:
        return moment
    since = moment - (_EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=_UTC))
    return (since // _MICROSECOND) * 1_000 + finer


def _time(value: Any, data_type: Any) -> datetime.time | int:
    time = datetime.time.fromisoformat(_text(value))
    finer = _nanoseconds(value) if data_type.unit == "ns" else 0
    if not finer:
        return time
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    return (seconds * 1_000_000 + time.microsecond) * 1_000 + finer


def _nanoseconds(text: str) -> int:
    """The digits that ``fromisoformat`` leaves out: the seventh to ninth digit of a second's fraction."""
    fraction = _FRACTION.search(text)
    return 0 if fraction is None else int(fraction[1][:3].ljust(3, "0"))


def _struct_converter(data_type: Any, strict: bool) -> Callable[[Any], Any]:
    fields = [
        (data_type.field(i).name, _converter(data_type.field(i).type, strict)) for i in range(data_type.num_fields)
    ]
    names = {name for name, _ in fields}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Unfit(value, data_type)
        if strict and not value.keys() <= names:
            for name, inner in value.items():
                if name not in names and inner is not None:
                    raise _Unknown(inner, data_type, f".{name}")
        row: dict[str, Any] = {}
        for name, inner in fields:
            found: Any = value.get(name)
            row[name] = None if found is None else _within(inner, found, f".{name}")
        return row

    return convert


def _map_converter(data_type: Any, strict: bool) -> Callable[[Any], Any]:
    key, item = _converter(data_type.key_type), _converter(data_type.item_type, strict)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _Unfit(value, data_type)
        return [
            (_within(key, k, " (key)"), None if v is None else _within(item, v, f"[{k}]")) for k, v in value.items()
        ]

    return convert


def _list_converter(data_type: Any, strict: bool) -> Callable[[Any], Any]:
    inner = _converter(data_type.value_type, strict)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _Unfit(value, data_type)
        return [None if v is None else _within(inner, v, f"[{i}]") for i, v in enumerate(value)]

    return convert


def _within(convert: Callable[[Any], Any], value: Any, step: str) -> Any:
    try:
        return convert(value)
    except _Unfit as error:
        raise type(error)(error.value, error.data_type, step + error.path) from None


# --- inferred types ------------------------------------------------------------------------------------------


def infer_types(data: bytes, *, spread: bool) -> dict[str, pa.DataType]:
    """The fields of the objects in the data and the types that take all their values. ``spread``: as in
    :func:`parse_lines`; the last object may be cut off then. Raises BadValueError."""
    fields: dict[str, pa.DataType] = {}
    rows = parse_objects(data, prefix=True) if spread else (row for _, row in _line_objects(data.splitlines()))
    for row in rows:
        for name, value in row.items():
            kind = _type_of(value)
            fields[name] = merge_json_types(fields[name], kind) if name in fields else kind
    return fields


def _type_of(value: Any) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        kind: pa.DataType = pa.null()
        for inner in value:
            kind = merge_json_types(kind, _type_of(inner))
        return pa.list_(kind)
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        return pa.float64()
    return next((kind for python, kind in _TYPES if isinstance(value, python)), pa.null())


_TYPES = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (decimal.Decimal, pa.float64()),
    (float, pa.float64()),
    (str, pa.string()),
)


def settle_json_type(data_type: pa.DataType) -> pa.DataType:
    """The schema that Arrow infers, with strings kept strings (it takes some for timestamps), as in Spark."""
    return retyped(data_type, _settled)


def _settled(data_type: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(data_type) or types.is_date(data_type) or types.is_binary(data_type):
        return pa.string()
    return pa.float64() if types.is_decimal(data_type) else data_type


def merge_json_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that takes the values of both; string where no other does."""
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        merged = {f.name: f.type for f in one}
        for field in other:
            merged[field.name] = (
                merge_json_types(merged[field.name], field.type) if field.name in merged else field.type
            )
        return pa.struct(list(merged.items()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(merge_json_types(one.value_type, other.value_type))
    numbers = [types.is_integer(t) or types.is_floating(t) for t in (one, other)]
    return pa.float64() if all(numbers) else pa.string()
