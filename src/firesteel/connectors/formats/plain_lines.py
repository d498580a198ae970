"""Files of lines, read only as long as every value is written in the one way that all readers understand alike.

For queries that another engine would answer otherwise: what is not plain ends the fragment, and that engine reads the file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
