"""CSV whose values are quoted plainly, if at all: no quote or escape inside of them, no missing and no additional value in a line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.formats.plain_lines import PlainLines, not_plain

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
