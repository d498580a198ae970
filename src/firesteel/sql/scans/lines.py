"""Relations of CSV, JSON and text: read by sources that end the fragment where a line is not written plainly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.reading.source import FileSource, Listed
from firesteel.connectors.formats.plain_lines import PlainCsv, PlainJson, PlainText
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import arrow_type, decimal_of, element_of, fields_of, parts_of, said
from firesteel.sql.scans.columns import Columns

FORMATS = ("CSVFileFormat", "JsonFileFormat", "TextFileFormat")
SETTINGS: Mapping[str, tuple[str, ...]] = {"spark.sql.legacy.timeParserPolicy": ("CORRECTED", "EXCEPTION")}
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_ANY = {
    "mode",
    "samplingratio",
    "inferschema",
    "primitivesasstring",
    "prefersdecimal",
    "prefersdate",
    "dropfieldifallnull",
}
"""Options of guessing a schema, which is done, and of lines that cannot be read, which we leave to Spark."""
_CSV = {"header", "sep", "delimiter", "nullvalue", "quote", "escape"}
_FIXED = {
    "encoding": ("utf-8", "utf8"),
    "charset": ("utf-8", "utf8"),
    "multiline": ("false",),
    "enforceschema": ("true",),
    "wholetext": ("false",),
}
"""Options that may only say what holds without them."""
_CODED = re.compile(r"\.(bz2|deflate|lz4|snappy|zst|zstd|lzo|br|xz|zip|gzip)$", re.IGNORECASE)
_MOST_COLUMNS = 20_000
_KINDS = {"byte", "short", "integer", "long", "string", "boolean", "date", "timestamp", "timestamp_ntz"}


def maker(
    kind: str, options: Mapping[str, str], columns: Columns, names: list[str], setting: Callable[[str], str]
) -> Callable[[Listed, str], FileSource]:
    """Makes the source. ``names``: of all columns of the files; ``setting``: of the session. Raises Unsupported, as it does itself."""
    given = _checked(options, _CSV if kind == "CSVFileFormat" else set())
    also = {"CSVFileFormat": {"float", "double"}, "JsonFileFormat": {"double"}}.get(kind, set())
    of_column: Callable[[Any], Iterable[Any]] = _inside if kind == "JsonFileFormat" else lambda one: (one,)
    for inside in (one for column in columns.data for one in of_column(column.kind)):
        if str(inside) not in _KINDS | also and not (kind == "CSVFileFormat" and decimal_of(inside)):
            raise Unsupported(f"{said(inside)} in text files is read by Spark")
        if inside == "timestamp" and setting("spark.sql.session.timeZone") not in _UTC:
            raise Unsupported("timestamps of text files are Spark's in sessions whose zone is not UTC")
    if {setting("spark.sql.columnNameOfCorruptRecord"), *(n for n, _ in columns.partitions)} & set(names):
        raise Unsupported("a column of lines that cannot be read, or of directories and of files, is Spark's own")
    wanted = [column.name for column in columns.data]
    kinds = {column.name: arrow_type(column.kind) for column in columns.data}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])

    def made(found: Listed, name: str) -> FileSource:
        if any(_CODED.search(file.path) for file in found.found.files):
            raise Unsupported("compressed text is read by Spark, other than gzip")
        if kind == "JsonFileFormat":
            return PlainJson(found, name, schema, wanted)
        if kind == "TextFileFormat":
            return PlainText(found, name, schema, wanted)
        return PlainCsv(found, name, schema, wanted, *_form(given, len(names)))

    if kind == "JsonFileFormat" and not wanted:
        raise Unsupported("JSON of which no column is wanted is read by Spark")
    return made


def _inside(kind: Any) -> Iterator[Any]:
    """The types that a struct or an array is made of; another type itself."""
    if fields_of(kind) is None and element_of(kind) is None:
        yield kind
        return
    for _, part in parts_of(kind):
        yield from _inside(part)


def _checked(options: Mapping[str, str], known: set[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in options.items():
        if name in known:
            given[name] = value
        elif name not in _ANY and value.lower() not in _FIXED.get(name, ()):
            raise Unsupported(f"the option {name} of text files is Spark's own")
    return given


def _form(given: Mapping[str, str], columns: int) -> tuple[str, bool, str]:
    """Separator, header and the text of null. Raises Unsupported."""
    sep, null = given.get("sep", given.get("delimiter", ",")), given.get("nullvalue", "")
    plain = len(sep) == 1 and (sep == "\t" or " " < sep <= "~") and not sep.isalnum() and sep not in '"\\-+.:'
    if not plain or given.get("quote", '"') != '"' or given.get("escape", "\\") not in ("\\", '"'):
        raise Unsupported("these separators and quotes of CSV are Spark's own")
    if not null.isascii() or '"' in null or sep in null or columns > _MOST_COLUMNS:
        raise Unsupported("this text of null in CSV is Spark's own")
    return sep, given.get("header", "false").lower() == "true", null
