"""The format of CSV files: characters, headers, and the Arrow type from which each column's type is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from firesteel.errors import UsageError
from firesteel.humanize import first_of, named_twice

_ZONE = r":.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The format of the files. ``None`` for ``quote`` or ``escape``: there is no such character.

    ``date_formats``, ``timestamp_formats``: strptime patterns besides ISO 8601. ``null_values``: what stands for null where
    it is not quoted. ``encoding``: one in which bytes below 128 are ASCII, as in all but UTF-16 and UTF-32.
    """

    header: bool = True
    sep: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_values: tuple[str, ...] = ("",)
    date_formats: tuple[str, ...] = ()
    timestamp_formats: tuple[str, ...] = ()
    newlines_in_values: bool = False
    encoding: str = "utf-8"

    def check(self) -> None:
        """Raises UsageError for what cannot be."""
        for what, char in (("sep", self.sep), ("quote", self.quote), ("escape", self.escape)):
            if char is not None and (len(char) != 1 or not char.isascii() or char in "\r\n"):
                raise UsageError(f"{what}={char!r} must be one character of ASCII, and no line end.")
        chars = [char for char in (self.sep, self.quote) if char is not None]
        if len(set(chars)) < len(chars):
            raise UsageError(f"sep and quote are both {self.sep!r}.", hint="Give them different characters.")
        try:
            fits = "a,\n".encode(self.encoding) == b"a,\n"
        except LookupError:
            fits = False
        if not fits:
            raise UsageError(
                f"encoding={self.encoding!r} is not one that CSV files can be cut in.",
                hint="Use one that Python knows and that has ASCII in it, such as utf-8, latin-1 or cp1252.",
            )
        for pattern in (*self.date_formats, *self.timestamp_formats):
            if "%" not in pattern:
                raise UsageError(
                    f"The format {pattern!r} is not a strptime pattern.",
                    hint="Write it as Python does, '%d/%m/%Y %H:%M:%S' for dd/MM/yyyy HH:mm:ss.",
                )

    def plain(self, block: bytes) -> bytes:
        """The block in UTF-8. Raises UnicodeDecodeError."""
        return block if self.encoding == "utf-8" or block.isascii() else block.decode(self.encoding).encode()

    def parse_options(self, skip: Callable[[Any], str] | None = None) -> pacsv.ParseOptions:
        """``skip``: called with each row of too few or too many values, which is left out then."""
        doubled = self.quote is not None and self.escape in (None, self.quote)
        return pacsv.ParseOptions(
            delimiter=self.sep,
            quote_char=self.quote or False,
            double_quote=doubled,
            escape_char=False if doubled or self.escape is None else self.escape,
            newlines_in_values=self.newlines_in_values,
            ignore_empty_lines=True,
            invalid_row_handler=skip,
        )

    def convert_options(self, types: dict[str, pa.DataType] | None, columns: list[str] | None) -> pacsv.ConvertOptions:
        parsers: list[Any] = [*self.timestamp_formats, *self.date_formats]
        return pacsv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            null_values=list(self.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[*parsers, pacsv.ISO8601],
        )


def settled(data_type: pa.DataType) -> pa.DataType:
    """The column type for an inferred type: timestamps in microseconds, zoned ones in UTC; times and bytes stay text."""
    types = pa.types
    if types.is_timestamp(data_type):
        return pa.timestamp("us", tz=None if data_type.tz is None else "UTC")
    if types.is_time(data_type) or types.is_binary(data_type) or types.is_dictionary(data_type):
        return pa.string()
    return data_type


def wire_type(data_type: pa.DataType, csv: CsvFormat) -> pa.DataType:
    """As what Arrow parses a column that shall be of this type."""
    types = pa.types
    if types.is_timestamp(data_type) and data_type.tz is not None:
        return data_type if any("%z" in f for f in csv.timestamp_formats) else _naive(data_type, csv)
    if types.is_date(data_type) and csv.date_formats:
        return pa.timestamp("s")
    if types.is_float16(data_type):
        return pa.float32()
    if types.is_null(data_type):
        return pa.string()
    return data_type


def _naive(data_type: pa.DataType, csv: CsvFormat) -> pa.DataType:
    return pa.timestamp(data_type.unit) if csv.timestamp_formats else pa.string()


def convert(column: Any, data_type: pa.DataType) -> Any:
    if column.type == data_type:
        return column
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return zoned(column, data_type)
    return column.cast(data_type)


def zoned(column: Any, data_type: pa.DataType) -> Any:
    """Timestamps of a zone from texts with an offset or without one (these are UTC), or from plain timestamps."""
    plain = pa.timestamp(data_type.unit)
    if not pa.types.is_string(column.type):
        return pc.assume_timezone(column.cast(plain), "UTC").cast(data_type)
    has_zone = pc.match_substring_regex(column, _ZONE)
    if not pc.any(has_zone).as_py():
        return pc.assume_timezone(column.cast(plain), "UTC").cast(data_type)
    if pc.all(has_zone).as_py():
        return column.cast(data_type)
    without = pc.if_else(has_zone, pa.scalar(None, pa.string()), column).cast(plain)
    with_zone = pc.if_else(has_zone, column, pa.scalar(None, pa.string())).cast(data_type)
    return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC").cast(data_type))


def header_line(block: bytes) -> tuple[int, int]:
    """Returns the positions at which the first line that is not empty begins and ends, line end included; (0, 0): there is none."""
    if not block.strip():
        return 0, 0
    begin = len(block) - len(block.lstrip(b"\r\n"))
    ends = [i for i in (block.find(b"\n", begin), block.find(b"\r", begin)) if i >= 0]
    end = min(ends) + 1 if ends else len(block)
    return begin, end + (block[end - 1 : end + 1] == b"\r\n")


def difference(names: Sequence[str], than: Sequence[str]) -> str:
    """In what the columns of a file differ from others."""
    these, those = set(names), set(than)
    more = [f"'{name}'" for name in names if name not in those]
    lacking = [f"'{name}'" for name in than if name not in these]
    said = [f"it has {first_of(more, 8)} more"] * bool(more) + [f"it lacks {first_of(lacking, 8)}"] * bool(lacking)
    if said:
        return " and ".join(said)
    if len(names) != len(than):
        return f"it names '{named_twice(names)}' twice"
    number = next(i for i, (name, other) in enumerate(zip(names, than, strict=True)) if name != other)
    return f"they come in another order, column {number + 1} is '{names[number]}' instead of '{than[number]}'"
