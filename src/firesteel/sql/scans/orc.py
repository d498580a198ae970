"""ORC relations: files that all have the wanted columns in Spark's types. Timestamps depend on zones of writers and are Spark's."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.formats.orc_files import OrcFooter, OrcSource, orc_footers
from firesteel.errors import UsageError
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import arrow_type, said
from firesteel.sql.scans.columns import DataColumn

OPTIONS = {"serialization.format", "mergeschema"}
SETTINGS: Mapping[str, tuple[str, ...]] = {"spark.sql.orc.impl": ("native",)}
_REFUSED = ("timestamp", "timestamp_ntz")


def source(found: Listed, name: str, columns: list[DataColumn]) -> OrcSource:
    """Raises Unsupported."""
    try:
        footers = orc_footers(found.found)
    except UsageError as error:
        raise Unsupported(str(error)) from error
    schema = pa.schema([_field(footers, column) for column in columns])
    return OrcSource(found, name, schema, footers)


def _field(footers: list[OrcFooter], column: DataColumn) -> pa.Field:
    if column.kind in _REFUSED:
        raise Unsupported("timestamps of ORC are read by Spark")
    if "." in column.name:  # would be a field in a struct
        raise Unsupported("columns of ORC with dots in their names are read by Spark")
    wanted, names = arrow_type(column.kind), set[str]()
    for footer in footers:
        found = [name for name in footer.schema.names if column.is_called(name)]
        if len(found) != 1:
            raise Unsupported(f"a file lacks the column {column.name}")
        there = footer.schema.field(found[0]).type
        if there != wanted:
            raise Unsupported(f"the column {column.name} is {there} in a file, not {said(column.kind)}")
        names.add(found[0])
    if len(names) != 1:
        raise Unsupported(f"the column {column.name} is written in several ways")
    return pa.field(names.pop(), wanted)
