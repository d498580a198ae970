"""Hive partitions: columns whose values are the names of directories, ``year=2024/country=at/``.

Read and written as Spark does it: null and the empty string are ``__HIVE_DEFAULT_PARTITION__``, characters that mean
something in a path are ``%XX``, types not given are inferred from all the names (int, bigint, decimal, double, date,
timestamp, else string).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import InputFile, InputFiles, first_line
from firesteel.connectors.files.shaping import Condition, filter_batch
from firesteel.errors import UsageError
from firesteel.humanize import check_once

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
Values = tuple[str | None, ...]
"""One directory's values as its name has them, unescaped; None for null."""

_UNSAFE = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_WHOLE = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z|[+-]?Infinity\Z|NaN\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\Z")
_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partition columns of a source."""

    schema: pa.Schema

    def arrays(self, values: Values, rows: int) -> dict[str, pa.Array]:
        """The columns of so many rows of one directory."""
        return {
            field.name: pa.repeat(parse_values([value], field.type)[0], rows)
            for field, value in zip(self.schema, values, strict=True)
        }

    def table(self, values: Sequence[Values]) -> pa.Table:
        """A row per element. Raises ArrowInvalid for a value that is not of its column's type."""
        columns = [parse_values([v[i] for v in values], field.type) for i, field in enumerate(self.schema)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def keep(self, values: Sequence[Values], conditions: Sequence[Condition], schema: pa.Schema) -> list[bool]:
        """The directories that may hold rows for which the conditions are true. ``schema``: all columns of the source."""
        distinct = list(dict.fromkeys(values))
        names = set(self.schema.names)
        alive = np.ones(len(distinct), bool)
        for part in conditions:
            if set(part.columns) <= names:
                alive &= self._exactly(distinct, part)
            elif part.prunes and names & set(part.columns):
                alive &= self._perhaps(distinct, part, schema)
        kept = dict(zip(distinct, alive.tolist(), strict=True))
        return [kept[v] for v in values]

    def _exactly(self, distinct: list[Values], part: Condition) -> Any:
        row = "row"
        while row in self.schema.names:
            row += "_"
        table = self.table(distinct).append_column(row, pa.array(np.arange(len(distinct))))
        alive = np.zeros(len(distinct), bool)
        for batch in table.combine_chunks().to_batches():
            for kept in filter_batch(batch, (part,)):
                alive[kept.column(row).to_numpy()] = True
        return alive

    def _perhaps(self, distinct: list[Values], part: Condition, schema: pa.Schema) -> Any:
        """By what Arrow makes of a filter when it knows the partition columns' values. Opens no file."""
        import pyarrow.dataset as pads  # slow to import, and only the driver needs it

        file_format, nowhere = pads.IpcFileFormat(), pafs.LocalFileSystem()
        fragments = [
            file_format.make_fragment(str(i), nowhere, partition_expression=known)
            for i, known in enumerate(self.known(distinct).values())
        ]
        dataset = pads.FileSystemDataset(fragments, schema, file_format, nowhere)
        alive = np.zeros(len(distinct), bool)
        alive[[int(f.path) for f in dataset.get_fragments(filter=part.expression)]] = True
        return alive

    def known(self, distinct: Iterable[Values]) -> dict[Values, pc.Expression]:
        """For each directory, the condition that holds for all its rows, as an expression for Arrow's datasets."""
        each = list(distinct)
        table = self.table(each)
        return {values: self._facts(table, row) for row, values in enumerate(each)}

    def _facts(self, table: pa.Table, row: int) -> pc.Expression:
        facts: Any = None
        for name in self.schema.names:
            value = table.column(name)[row]
            fact = (pc.field(name) == pc.scalar(value)) if value.is_valid else pc.field(name).is_null()
            facts = fact if facts is None else facts & fact
        return facts


def find_partitions(
    found: InputFiles, wanted: bool | pa.Schema, schema: pa.Schema | None = None
) -> tuple[Partitions | None, list[Values]]:
    """The partition columns of the files and each file's values.

    ``wanted``: True to look for them, False where directory names mean nothing, or a schema with the types of some or all
    of them. ``schema``: of the whole source, where one was given; it may have types of partition columns too. Raises UsageError for trees whose files have different partition columns, and for values that do not fit.
    """
    none: list[Values] = [() for _ in found.files]
    if wanted is False:
        return None, none
    names, values = _names_and_values(found)
    given: pa.Schema = pa.schema([]) if wanted is True else wanted
    missing = [name for name in given.names if name not in names]
    if missing:
        raise UsageError(
            f"{found.label(found.files[0].root)} has no partition column '{missing[0]}'.",
            hint=f"Its partition columns: {', '.join(names) or 'none'}.",
        )
    if not names:
        return None, none
    distinct = list(dict.fromkeys(values))
    known = {field.name: field.type for field in (*(schema or ()), *given)}
    fields = [
        pa.field(name, known[name] if name in known else infer_type([v[i] for v in distinct]))
        for i, name in enumerate(names)
    ]
    partitions = Partitions(pa.schema(fields))
    for i, field in enumerate(fields):
        _check_values(found, field, [v[i] for v in distinct])
    return partitions, values


def _names_and_values(found: InputFiles) -> tuple[tuple[str, ...], list[Values]]:
    split: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
    each: list[list[tuple[str, str | None]]] = []
    for file in found.files:
        folder = (file.root, file.path.rpartition("/")[0])
        if folder not in split:
            split[folder] = pairs_of(file)
        each.append(split[folder])
    names = tuple(name for name, _ in each[0])
    for file, pairs in zip(found.files, each, strict=True):
        other = tuple(name for name, _ in pairs)
        if other != names:
            raise UsageError(
                f"The directories of {found.label(file.root)} are not partitioned alike: {found.label(found.files[0].path)} "
                f"lies in {_words(names)} and {found.label(file.path)} in {_words(other)}.",
                hint="Name the partitioned directory itself, or say partitions=False to take no columns from the names.",
            )
    check_once(
        names, lambda twice: f"{found.label(found.files[0].path)} lies in two directories for the column '{twice}'."
    )
    return names, [tuple(value for _, value in pairs) for pairs in each]


def _words(names: tuple[str, ...]) -> str:
    return "/".join(f"{name}=..." for name in names) or "none"


def pairs_of(file: InputFile) -> list[tuple[str, str | None]]:
    """Names and values of the partition columns, by the folders that the file lies in below its root."""
    folders = file.path[len(file.root) :].split("/")[:-1]
    parts = [folder.partition("=") for folder in folders if "=" in folder and not folder.startswith("=")]
    return [(unquote(n), None if v == NULL_NAME else unquote(v, errors="surrogateescape")) for n, _, v in parts]


def _check_values(found: InputFiles, field: pa.Field, texts: list[str | None]) -> None:
    try:
        parse_values(texts, field.type)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"A directory of {found.label(found.files[0].root)} has a value for the partition column '{field.name}' "
            f"that is not of type {field.type}: {first_line(error)}.",
            hint=f"Give its type: partitions='{field.name} string'.",
        ) from None


# --- values and their names ----------------------------------------------------------------------------------


def infer_type(texts: Sequence[str | None]) -> pa.DataType:
    """The type Spark would infer for a partition column with these values."""
    known = [text for text in texts if text is not None]
    if not known:
        return pa.string()
    if all(_WHOLE.match(text) for text in known):
        data_type = _whole_type([int(text) for text in known])
        return data_type if _all_parse(known, data_type) else pa.string()  # a leading + is not a number to Arrow
    if all(_NUMBER.match(text) for text in known):
        return pa.float64()
    dates = [_DATE.match(text) is not None for text in known]
    if all(dates) or all(date or _TIMESTAMP.match(text) for date, text in zip(dates, known, strict=True)):
        data_type = pa.date32() if all(dates) else _UTC
        return data_type if _all_parse(known, data_type) else pa.string()  # the 31st of February
    return pa.string()


def _all_parse(texts: Sequence[str | None], data_type: pa.DataType) -> bool:
    try:
        parse_values(texts, data_type)
    except pa.ArrowException:
        return False
    return True


def _whole_type(numbers: list[int]) -> pa.DataType:
    low, high = min(numbers), max(numbers)
    if low >= -(1 << 31) and high < 1 << 31:
        return pa.int32()
    if low >= -(1 << 63) and high < 1 << 63:
        return pa.int64()
    digits = max(len(str(abs(number))) for number in numbers)
    return pa.decimal128(digits, 0) if digits <= 38 else pa.string()


def parse_values(texts: Sequence[str | None], data_type: pa.DataType) -> pa.Array:
    """Texts to values. Raises ArrowInvalid for a text that is not such a value."""
    array = pa.array(texts, pa.string())
    if data_type.equals(pa.string()):
        return array
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        zoned = pc.match_substring_regex(array, r":.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
        if not pc.any(zoned).as_py():
            unit = "ns" if data_type.unit == "ns" else "us"
            return pc.assume_timezone(array.cast(pa.timestamp(unit)), "UTC").cast(data_type)
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return array.cast(data_type)
    return pc.utf8_trim_whitespace(array).cast(data_type)


def exact_names(array: pa.Array) -> list[str]:
    """As :func:`format_values`, but each value has a name of its own, null and the empty string, too."""
    names = format_values(array)
    null = "%5F" + NULL_NAME[1:]  # of a text that is the name of null
    texts: list[str | None] = array.to_pylist() if pa.types.is_string(array.type) else [None] * len(names)
    return ["" if text == "" else null if text == NULL_NAME else name for text, name in zip(texts, names, strict=True)]


def format_values(array: pa.Array) -> list[str]:
    """The values as Spark's directory names have them, escaped."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        array, data_type = array.dictionary_decode(), data_type.value_type
    if pa.types.is_timestamp(data_type):
        texts = _timestamp_texts(array)
    elif pa.types.is_floating(data_type):
        texts = [None if v is None else _float_text(v) for v in array.to_pylist()]
    else:
        texts = array.cast(pa.string()).to_pylist()
    return [NULL_NAME if not text else escape(text) for text in texts]


def _timestamp_texts(array: pa.Array) -> list[str | None]:
    unit = "ns" if array.type.unit == "ns" else "us"
    naive = array.cast(pa.timestamp(unit, tz=array.type.tz)).cast(pa.int64()).cast(pa.timestamp(unit))
    texts = naive.cast(pa.string()).to_pylist()
    return [None if t is None else t.rstrip("0").rstrip(".") if "." in t else t for t in texts]


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def escape(text: str) -> str:
    """A name of a directory for the text, as Spark and Hive escape it; the NUL, with which they can do nothing, like others."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def check_partition_columns(schema: pa.Schema, columns: Sequence[str], what: str) -> None:
    """Raises UsageError unless rows of the schema can be written by these columns."""
    for name in columns:
        if name not in schema.names:
            raise UsageError(
                f"{what}: there is no column '{name}' to partition by.", hint=f"There are: {', '.join(schema.names)}."
            )
        data_type = schema.field(name).type
        value_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        if pa.types.is_nested(value_type) or pa.types.is_duration(value_type) or pa.types.is_null(value_type):
            raise UsageError(
                f"{what}: column '{name}' of type {data_type} cannot be part of a directory's name.",
                hint="Partition by columns of text, numbers, dates, timestamps or booleans.",
            )
        if pa.types.is_binary(value_type) or pa.types.is_large_binary(value_type):
            raise UsageError(
                f"{what}: column '{name}' is binary, which may be no text.", hint="Cast it to a string first."
            )
    check_once(columns, lambda twice: f"{what}: partition_by names the column '{twice}' twice.")
    if len(columns) == len(schema):
        raise UsageError(
            f"{what}: all columns are partition columns, so that nothing is left to write into the files.",
            hint="Leave one column out of partition_by.",
        )
