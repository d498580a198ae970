"""Files of lines, read only as long as every value is written in the one way that all readers understand alike.

For queries that another engine would answer otherwise: what is not plain ends the fragment, and that engine reads the file.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from firesteel.connectors.base import Split
from firesteel.connectors.files.paths import first_line
from firesteel.connectors.files.reading.lines import is_text, with_plain_ends
from firesteel.connectors.files.reading.source import FileSource, Listed, Piece
from firesteel.connectors.files.shaping import rows_without_columns
from firesteel.connectors.formats.text import lines_of
from firesteel.errors import EngineStop, Stop
from firesteel.task.program import TaskContext

_FIRST_DAY = -719162
"""The first of January of the year 1."""
_INTEGER = "^-?[0-9]{1,19}$"
_FLOAT = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,2})?$"
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"


class PlainLines(FileSource):
    """Rows of lines. ``file_schema``: all columns of the files; of them ``wanted`` are read."""

    kind = "read_lines"
    counts_by_column = False

    def __init__(self, listed: Listed, name: str, file_schema: pa.Schema, wanted: list[str]) -> None:
        self._take(listed, name)
        self._all_names = file_schema.names
        self._have(pa.schema([file_schema.field(one) for one in wanted]))

    def list_splits(self, data_volume: int) -> list[Split]:
        return self._list_pieces(data_volume, None, whole=False)

    def _read_part(self, piece: Piece, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        ctx.place = place = self._where(piece)
        begins = piece.start == 0
        for _, block in self._open_blocks(piece, None):
            data = with_plain_ends(block)
            if b"\0" in data or not is_text(data):
                raise stopped(place, "bytes that are no text")
            try:
                columns, rows = self._columns(data, begins)
                begins = begins and rows is None
                for batch in self._batches(columns, rows or 0):
                    yield from self._finish(batch, piece.values)
            except (pa.ArrowException, _NotPlainError) as error:
                raise stopped(place, first_line(error)) from error

    def _batches(self, columns: dict[str, pa.Array], rows: int) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self._file_schema.field(name) for name in self._columns_to_read()])
        if not rows or not len(schema):
            yield from rows_without_columns(rows)
            return
        arrays = [plain_values(columns[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @abstractmethod
    def _columns(self, data: bytes, begins: bool) -> tuple[dict[str, Any], int | None]:
        """The columns that are read, of whole lines, and the number of rows; None: the file still has not begun. Raises what
        ``not_plain`` gives, and ArrowException. ``begins``: nothing of the file was before them."""


class PlainText(PlainLines):
    """The lines themselves, as the only column."""

    kind = "read_text"

    def _columns(self, data: bytes, begins: bool) -> tuple[dict[str, Any], int | None]:
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        return {self._all_names[0]: lines_of(data, ends)}, len(ends)


class _NotPlainError(Exception):
    """A value or a line that readers understand in different ways."""


def not_plain(what: str) -> Exception:
    return _NotPlainError(what)


def stopped(place: str, what: str) -> EngineStop:
    """The end of the fragment: Spark reads the file."""
    return EngineStop(Stop.INPUT, f"{place} has {what}.")


def plain_values(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Texts as values of a type, if all are in its plain form; values of other types cast, if that changes none. Raises what ``not_plain``
    gives, and ArrowException."""
    if pa.types.is_nested(to):
        fields = list(to) if pa.types.is_struct(to) else [to.value_field]
        inside = [plain_values(one, field.type) for one, field in zip(_parts(array), fields, strict=True)]
        if pa.types.is_struct(to):
            return pa.StructArray.from_arrays(inside, fields=fields, mask=array.is_null())
        return pa.ListArray.from_arrays(array.offsets, inside[0], type=to, mask=array.is_null())
    if not pa.types.is_string(array.type) or pa.types.is_string(to):
        return array if array.type == to else array.cast(to)
    pattern = _pattern(to)
    if not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        raise _NotPlainError(f"a value that is not plainly of type {to}")
    zoned = pa.types.is_timestamp(to) and to.tz is not None
    values = array.cast(pa.timestamp("us")).cast(to) if zoned else array.cast(to)
    if pa.types.is_date32(to) and (pc.min(values.cast(pa.int32())).as_py() or 0) < _FIRST_DAY:
        raise _NotPlainError("a day before the year 1")
    if pa.types.is_timestamp(to) and (pc.min(values.cast(pa.int64())).as_py() or 0) < _FIRST_DAY * 86_400_000_000:
        raise _NotPlainError("a time before the year 1")
    return values


def _parts(array: Any) -> list[pa.Array]:
    """The values of a struct's fields, or those in lists."""
    return array.flatten() if pa.types.is_struct(array.type) else [array.values]


def _pattern(to: pa.DataType) -> str:
    types = pa.types
    if types.is_decimal(to):
        fraction = rf"(\.[0-9]{{1,{to.scale}}})?" if to.scale else ""
        whole = to.precision - to.scale
        return f"^-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{fraction}$"
    known = {
        types.is_integer: _INTEGER,
        types.is_floating: _FLOAT,
        types.is_boolean: "^(true|false)$",
        types.is_date32: _DATE,
        types.is_timestamp: _TIMESTAMP,
    }
    return next(pattern for is_such, pattern in known.items() if is_such(to))


_BLANK = re.compile(rb"(?:\A|\n)[\x01-\x09\x0b-\x20]+\n")
_QUOTE = ord('"')


class PlainCsv(PlainLines):
    """``null``: the text that is null where it is not quoted. Quoted, it is refused, as is every empty text in quotes."""

    kind = "read_csv"

    def __init__(  # noqa: PLR0917
        self, listed: Listed, name: str, file_schema: pa.Schema, wanted: list[str], sep: str, header: bool, null: str
    ) -> None:
        super().__init__(listed, name, file_schema, wanted)
        self._sep, self._header, self._null = sep, header, null

    def _columns(self, data: bytes, begins: bool) -> tuple[dict[str, Any], int | None]:
        if _BLANK.search(data):
            raise not_plain("a line of blanks")
        data = data.lstrip(b"\n")
        if not data:
            return {}, None
        if begins and self._header:
            data = data[data.find(b"\n") + 1 :].lstrip(b"\n")
            if not data:
                return {}, 0
        if b'"' in data:
            self._check_quotes(data)
        names = self._columns_to_read() or self._all_names[:1]
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._all_names),
            parse_options=pacsv.ParseOptions(delimiter=self._sep, double_quote=False),
            convert_options=pacsv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", self._null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()
        return {name: _one(table.column(name)) for name in names}, table.num_rows

    def _check_quotes(self, data: bytes) -> None:
        """Each pair of quotes must be around a whole value that has neither an end of line nor an escape, and is not empty."""
        if b"\\" in data or b'""' in data or f'"{self._null}"'.encode() in data:
            raise not_plain("an escape, or quotes of nothing")
        bytes_ = np.frombuffer(b"\n" + data + b"\n", np.uint8)
        at = np.flatnonzero(bytes_ == _QUOTE)
        if len(at) % 2:
            raise not_plain("a quote alone")
        begins, ends = at[::2], at[1::2]
        around = np.array([ord(self._sep), 10], np.uint8)
        lines = np.flatnonzero(bytes_ == 10)
        inside = np.searchsorted(lines, begins) != np.searchsorted(lines, ends)
        if inside.any() or not (np.isin(bytes_[begins - 1], around) & np.isin(bytes_[ends + 1], around)).all():
            raise not_plain("a quote inside of a value")


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


_BEGIN, _END, _LIST = b"{}["
_NO_NUMBER = re.compile(rb"[:,\[]\s*[-+]?(?:NaN|Inf)|[0-9]{1000}")
"""Numbers that only some parsers take, also in fields that nobody reads."""
_DEEPEST = 1000
"""Objects and lists in a line, of which parsers take only so many inside of each other."""
_LONGEST = 20_000_000
"""Characters of a text. Jackson, Spark's parser, refuses longer ones."""
_LONGEST_NAME = 50_000
_LONG_NAME = re.compile(rb'[{,]\s*"(?:[^"\\]|\\.){%d,}+"\s*:' % _LONGEST_NAME)
"""A name begins after a brace or a comma, so that quotes within a text are not tried. The possessive repetition keeps no state for each
character: memory and time stay small for a long text."""


class PlainJson(PlainLines):
    kind = "read_json"

    def _columns(self, data: bytes, begins: bool) -> tuple[dict[str, Any], int | None]:
        rows = _objects(data)
        if not rows:
            return {}, 0
        names = self._columns_to_read()
        table = pajson.read_json(
            pa.BufferReader(data),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pajson.ParseOptions(
                explicit_schema=pa.schema([(name, _written(self._file_schema.field(name).type)) for name in names]),
                unexpected_field_behavior="ignore",
            ),
        ).combine_chunks()
        if table.num_rows != rows:
            raise not_plain("several objects in a line")
        return {name: _checked(table.column(name)) for name in names}, rows


def _objects(data: bytes) -> int:
    """The number of lines, each of which must begin and end as an object does, if it has anything. None such can go on in the next line."""
    bytes_ = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(bytes_ == 10)
    begins = np.concatenate([[0], ends[:-1] + 1])
    full = begins < ends
    if not ((bytes_[begins[full]] == _BEGIN) & (bytes_[ends[full] - 1] == _END)).all():
        raise not_plain("a line that is no object")
    longest = (ends - begins).max(initial=0)
    if longest > _LONGEST or (longest > _LONGEST_NAME and _LONG_NAME.search(data)):
        raise not_plain("a text longer than all parsers take")
    opened = np.flatnonzero((bytes_ == _BEGIN) | (bytes_ == _LIST))
    if _NO_NUMBER.search(data) or np.diff(np.searchsorted(opened, ends), prepend=0).max() >= _DEEPEST:
        raise not_plain("numbers or depths that not all parsers take")
    return int(full.sum())


def _written(to: pa.DataType) -> pa.DataType:
    """The type that JSON has for values of a type."""
    if pa.types.is_struct(to):
        return pa.struct([(field.name, _written(field.type)) for field in to])
    if pa.types.is_list(to):
        return pa.list_(_written(to.value_type))
    if pa.types.is_integer(to):
        return pa.int64()
    return to if pa.types.is_boolean(to) or pa.types.is_float64(to) else pa.string()


def _checked(column: pa.ChunkedArray) -> pa.Array:
    array: Any = pa.concat_arrays(column.chunks)
    array.validate(full=True)
    _check_numbers(array)
    return array


def _check_numbers(array: Any) -> None:
    if pa.types.is_nested(array.type):
        for one in _parts(array):
            _check_numbers(one)
    elif pa.types.is_floating(array.type):
        zeros = pc.and_(pc.equal(array, 0.0), pc.less(pc.divide(1.0, array), 0.0))  # a whole -0 is 0.0 to some
        if pc.any(zeros).as_py() or not pc.all(pc.is_finite(array), min_count=0).as_py():
            raise not_plain("a number without a plain form")
