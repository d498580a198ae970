"""Days and times in Parquet files: in which calendar and form they are, as far as a footer tells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firesteel.errors import UsageError


@dataclass(frozen=True, slots=True)
class Times:
    """Of one file, by the names of its columns."""

    hybrid: bool
    """True: Spark wrote it in the hybrid of the Julian and the Gregorian calendar."""
    int96: frozenset[str]
    """Columns of timestamps in the form that says nothing of a zone, nor has statistics."""
    ends: frozenset[str]
    """Columns of days and timestamps that may hold the first or the last value of their type, which some readers take for infinite."""
    early: frozenset[str]
    """Columns that may hold, also deep inside, days before 15 October 1582 or times before 1900, of an unknown writer: nobody knows in
    which calendar."""


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """The columns of days and times of all files that have the same schemas."""

    int96: frozenset[str]
    whole: list[tuple[int, str]]
    """By leaf, the names of those that are not inside others."""
    known: list[tuple[int, str, int]]
    """By leaf, also inside others, the top-level column and the first value that is the same in both calendars."""

    @classmethod
    def of(cls, leaves: Any, schema: pa.Schema) -> TimeColumns:
        """``leaves``: Parquet's own schema."""
        times = {field.name for field in schema if pa.types.is_date32(field.type) or pa.types.is_timestamp(field.type)}
        every = [leaves.column(i) for i in range(len(leaves))]
        int96 = [leaf.path for leaf in every if leaf.physical_type == "INT96"]
        whole = [(i, leaf.path) for i, leaf in enumerate(every) if leaf.path in times]
        top = {name: i for i, name in enumerate(schema.names)}
        first = [(i, leaf.path, _first_known(leaf)) for i, leaf in enumerate(every)]
        known = [(i, schema.names[top_level(path, top)], value) for i, path, value in first if value is not None]
        return cls(frozenset(int96), whole, known)

    def in_file(self, metadata: Any, schema: pa.Schema) -> Times:
        """By the statistics; what has none may hold any value."""
        notes = schema.metadata or {}
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)] if self.known or self.whole else []
        ends = {name for i, name in self.whole if any(_reaches_end(group.column(i)) for group in groups)}
        known = () if _BY_SPARK in notes else self.known
        early = {name for i, name, first in known if any(_reaches_below(group.column(i), first) for group in groups)}
        return Times(_is_hybrid(notes), self.int96, frozenset(ends), frozenset(early))


def _reaches_end(chunk: Any) -> bool:
    told = chunk.statistics
    if told is None or not told.has_min_max:
        return told is None or not told.has_null_count or told.null_count < chunk.num_values
    most = (1 << 31 if chunk.physical_type == "INT32" else 1 << 63) - 1
    return not isinstance(told.max_raw, int) or told.max_raw >= most or told.min_raw <= -most


_FIRST_DAY = -141427
_FIRST_SECOND = -2208988800
_PER_SECOND = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def _first_known(leaf: Any) -> int | None:
    """The first value of a day or time that is the same in both calendars; None: the column holds something else."""
    if leaf.physical_type == "INT96":  # without statistics
        return 0
    if leaf.logical_type.type == "DATE":
        return _FIRST_DAY
    unit = json.loads(leaf.logical_type.to_json()).get("timeUnit") if leaf.logical_type.type == "TIMESTAMP" else None
    return None if unit is None else _FIRST_SECOND * _PER_SECOND[unit]


def _reaches_below(chunk: Any, first: int) -> bool:
    told = chunk.statistics
    if told is None or not told.has_min_max:
        return told is None or not told.has_null_count or told.null_count < chunk.num_values
    return not isinstance(told.min_raw, int) or told.min_raw < first


_BY_SPARK = b"org.apache.spark.version"


def _is_hybrid(metadata: dict[bytes, bytes]) -> bool:
    """By the version of Spark that wrote the file, and its own notes. INT96 came last, in Spark 3.1."""
    version = metadata.get(_BY_SPARK, b"4").split(b".")
    old = [int(part) for part in version[:2] if part.isdigit()] < [3, 1]
    return old or bool({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"} & set(metadata))


def top_level(path: str, top: dict[str, int]) -> int:
    """The column that a leaf ``a.list.element`` belongs to; names may have dots themselves, so the longest wins."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        index = top.get(".".join(parts[:end]))
        if index is not None:
            return index
    raise UsageError(f"The Parquet column '{path}' belongs to no column of the file's schema.")
