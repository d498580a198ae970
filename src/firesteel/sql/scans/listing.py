"""The files of a relation as Spark lists them, with the values that it gives to partition columns."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.partitions import Partitions, Values, parse_values
from firesteel.connectors.files.paths import InputFile, InputFiles, only_spark_opens
from firesteel.connectors.files.reading.source import Listed
from firesteel.plan.expr import Unsupported
from firesteel.plan.types import arrow_type, decimal_of
from firesteel.sql.plans.catalyst import Folder, FoundFile

_EPOCH = dt.datetime(1970, 1, 1)
_DAYS = dt.date(1, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal(), dt.date.max.toordinal() - _EPOCH.toordinal()


def listed(folders: list[Folder], columns: list[tuple[str, str]]) -> Listed:
    """``columns``: the names and types of those partition columns of the folders that are wanted; of others no value is looked at.
    Files without any bytes are left out, as by Spark. Raises Unsupported."""
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns if kind])
    files: list[FoundFile] = []
    values: list[Values] = []
    for folder in folders:
        mine = tuple(_text(value, kind) for value, (_, kind) in zip(folder.values, columns, strict=True) if kind)
        full = [file for file in folder.files if file.size]
        files += full
        values += [mine] * len(full)
    for i, field in enumerate(schema):
        _check(field, [each[i] for each in set(values)])
    filesystem, prefix, lead = _place(files)
    found = tuple(InputFile(lead + file.path, file.size, lead + file.path) for file in files)
    return Listed(InputFiles(filesystem, prefix, found), Partitions(schema) if len(schema) else None, values)


def _place(files: list[FoundFile]) -> tuple[pafs.FileSystem, str, str]:
    """Their filesystem, what messages put before its paths, and what stands in front of a URL's path there. Raises Unsupported."""
    if not files:
        return pafs.LocalFileSystem(), "", ""
    if len({(file.scheme, file.authority) for file in files}) > 1:
        raise Unsupported("files in several places are read by Spark")
    first = files[0]
    if first.scheme in (None, "file") and not first.authority:
        return pafs.LocalFileSystem(), "", ""
    root = f"{first.scheme}://{first.authority or ''}/"
    if only_spark_opens(root):
        raise Unsupported(f"only Spark opens {first.scheme}: here")
    try:
        filesystem, path = pafs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise Unsupported(f"{root} cannot be opened here: {error}") from error
    return filesystem, f"{first.scheme}://", path.rstrip("/")


def _text(value: Any, kind: str) -> str | None:
    """The name a directory would have for a value, given as constants in plans are. Raises Unsupported."""
    if value is None:
        return None
    if isinstance(value, dict) or kind == "binary":
        raise Unsupported(f"a partition column of type {kind} is read by Spark")
    if kind == "date":
        if not _DAYS[0] <= value <= _DAYS[1]:
            raise Unsupported("a partition's day outside of the years 1 to 9999 is read by Spark")
        return str((_EPOCH + dt.timedelta(days=value)).date())
    if kind in ("timestamp", "timestamp_ntz"):
        try:
            return str(_EPOCH + dt.timedelta(microseconds=value))
        except OverflowError as error:
            raise Unsupported("a partition's time outside of the years 1 to 9999 is read by Spark") from error
    if kind == "boolean":
        return "true" if value else "false"
    found = decimal_of(kind)
    if found:
        return f"{decimal.Decimal(value):f}"
    return str(value)


def _check(field: pa.Field, texts: list[str | None]) -> None:
    """Raises Unsupported for a value that tasks would not read out of its text."""
    try:
        parse_values(texts, field.type)
    except (pa.ArrowException, ValueError) as error:
        raise Unsupported(f"a value of the partition column {field.name} is read by Spark: {error}") from error
