"""JSON with one object in each line, whose values are of the very kinds that their columns' types ask for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from firesteel.connectors.formats.plain_lines import PlainLines, not_plain

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
    if pa.types.is_integer(to):
        return pa.int64()
    return to if pa.types.is_boolean(to) or pa.types.is_float64(to) else pa.string()


def _checked(column: pa.ChunkedArray) -> pa.Array:
    array: Any = pa.concat_arrays(column.chunks)
    array.validate(full=True)
    if pa.types.is_floating(array.type):
        zeros = pc.and_(pc.equal(array, 0.0), pc.less(pc.divide(1.0, array), 0.0))  # a whole -0 is 0.0 to some
        if pc.any(zeros).as_py() or not pc.all(pc.is_finite(array), min_count=0).as_py():
            raise not_plain("a number without a plain form")
    return array
