"""Files as Spark's plans name them: a source of our own for the formats that it reads as Spark does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from firesteel.connectors.files.reading.source import FileSource, Listed
from firesteel.connectors.formats.parquet import Footer, ParquetSource
from firesteel.errors import UsageError
from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.hints import hints
from firesteel.plan.relation import Relation, Scan, Values, schema_of
from firesteel.sql.plans.catalyst import Operator
from firesteel.sql.scans import lines, orc, parquet
from firesteel.sql.scans.chosen import Chosen
from firesteel.sql.scans.columns import Columns, columns_of
from firesteel.sql.scans.listing import listed

if TYPE_CHECKING:
    from firesteel.sql.reader import Reader

_INDEXES = ("InMemoryFileIndex", "CatalogFileIndex")
_LISTING = {"path", "paths", "basepath", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter"}
"""Options that only say which files there are, which Spark has listed."""
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark.sql.files.ignoreCorruptFiles": ("false",),
    "spark.sql.files.ignoreMissingFiles": ("false",),
}
"""Settings of the session, and their values with which files are read by all alike."""


def relation(reader: Reader, node: Operator) -> Relation:
    """Rows of files. Raises Unsupported."""
    files = node["relation"]
    if not isinstance(files, Expr) or files.cls != "HadoopFsRelation" or node["isStreaming"]:
        raise Unsupported("only files are read without Spark")
    if files["index"] not in _INDEXES:
        raise Unsupported("this way of reading files is Spark's own")
    options = {name.lower(): value for name, value in files["options"] if name.lower() not in _LISTING}
    columns = columns_of(files, reader.wanted(node), reader.catalyst.setting("spark.sql.caseSensitive") == "true")
    chosen = reader.chosen.get(node.handle, Chosen(node.handle))
    _check_settings(reader, _SETTINGS)
    make = _maker(reader, files, options, columns, chosen)
    found = listed(reader.catalyst.files_of(node), columns.partitions)
    kinds = {column: kind for column, kind, _ in columns.wanted}
    if not found.found.files:
        reader.taken += 1
        return Values(kinds, schema_of(kinds).empty_table())
    source = make(found, _name([file.path for file in found.found.files]))
    reader.taken += 1
    written = dict(zip([column.name for column in columns.data], source.schema.names, strict=False))
    return Scan(kinds, source, {column: written.get(name, name) for column, _, name in columns.wanted})


Make = Callable[[Listed, str], FileSource]


def _maker(reader: Reader, files: Expr, options: Mapping[str, str], columns: Columns, chosen: Chosen) -> Make:
    """Makes the source of listed files. Raises Unsupported, as it does itself."""
    kind = files["format"]
    known = {"ParquetFileFormat": parquet.OPTIONS, "OrcFileFormat": orc.OPTIONS}.get(kind)
    if known is not None and set(options) - known:
        raise Unsupported("this way of reading files is Spark's own")
    if kind == "ParquetFileFormat":
        _check_settings(reader, parquet.SETTINGS)
        return lambda found, name: _parquet(reader, found, name, columns, chosen)
    if kind == "OrcFileFormat":
        _check_settings(reader, orc.SETTINGS)
        return lambda found, name: orc.source(found, name, columns.data)
    if kind in lines.FORMATS:
        _check_settings(reader, lines.SETTINGS)
        names = [name for name, _ in files["data"]]
        return lines.maker(kind, options, columns, names, reader.catalyst.setting)
    raise Unsupported(f"files of the format {kind} are read by Spark")


def _check_settings(reader: Reader, expected: Mapping[str, tuple[str, ...]]) -> None:
    for name, values in expected.items():
        if reader.catalyst.setting(name).upper() not in map(str.upper, values):
            raise Unsupported(f"{name} is Spark's own")


def _parquet(reader: Reader, found: Listed, name: str, columns: Columns, chosen: Chosen) -> ParquetSource:
    """Footers are read once, however often the query names the table."""

    reading = parquet.Reading.by(reader.catalyst.version, reader.catalyst.setting)

    def agreed(footers: list[Footer]) -> pa.Schema:
        return parquet.agreed(footers, columns.data, reading)

    try:
        source = ParquetSource.of_listed(found, name, agreed, reader.footers)
    except UsageError as error:
        raise Unsupported(f"the files cannot be read here: {error}") from error
    written = dict(zip([column.name for column in columns.data], source.schema.names, strict=False))
    of_files = {column: written[name] for column, _, name in columns.wanted if name in written}
    return source.hinted(hints(chosen.conditions(), of_files))


def _name(paths: list[str]) -> str:
    """The directory of a table, as people call it."""
    folder = os.path.commonpath(paths) if len(paths) > 1 else paths[0]
    parts = [part for part in folder.split("/") if part]
    while len(parts) > 1 and "=" in parts[-1]:
        parts.pop()
    return parts[-1] if parts else "/"
