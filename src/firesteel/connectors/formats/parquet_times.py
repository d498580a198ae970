"""Days and times in Parquet files: in which calendar and form they are, as far as a footer tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import FiresteelError, UsageError


@dataclass(frozen=True, slots=True)
class Calendar:
    """Which values of a file Spark wrote in the hybrid of the Julian and the Gregorian calendar."""

    dates: bool
    """Dates, and timestamps of 64 bits."""
    int96: bool
    zone: str | None
    """Of the hybrid timestamps' local times; None: the footer does not tell."""

    @classmethod
    def of(cls, notes: Mapping[bytes, bytes]) -> Calendar:
        """By a footer's notes, as Spark judges them. What other writers wrote is taken as Gregorian, as Spark 4 does by default."""
        version = notes.get(b"org.apache.spark.version")
        if version is None:
            return cls(False, False, None)
        number = [int(part) for part in version.split(b".")[:2] if part.isdigit()]
        zone = notes.get(b"org.apache.spark.timeZone")
        return cls(
            number < [3, 0] or b"org.apache.spark.legacyDateTime" in notes,
            number < [3, 1] or b"org.apache.spark.legacyINT96" in notes,
            None if zone is None else zone.decode(errors="replace"),
        )

    @property
    def is_hybrid(self) -> bool:
        return self.dates or self.int96


@dataclass(frozen=True, slots=True)
class Times:
    """Of one file, by the names of its columns."""

    hybrid: bool
    """True: Spark wrote it in the hybrid of the Julian and the Gregorian calendar."""
    rebased: frozenset[str]
    """Columns that may hold, also deep inside, values that are others in the Gregorian calendar: their statistics are of the other one."""
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
        calendar = Calendar.of(metadata.metadata or {})
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)] if self.known or self.whole else []
        ends = {name for i, name in self.whole if any(_reaches_end(group.column(i)) for group in groups)}
        by_spark = b"org.apache.spark.version" in (metadata.metadata or {})
        old = (
            frozenset(
                n for i, n, first in self.known if any(_reaches_below(group.column(i), first) for group in groups)
            )
            if calendar.is_hybrid or not by_spark
            else frozenset[str]()
        )
        rebased, early = (old, frozenset[str]()) if by_spark else (frozenset[str](), old)
        return Times(calendar.is_hybrid, rebased, self.int96, frozenset(ends), early)


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


def top_level(path: str, top: dict[str, int]) -> int:
    """The column that a leaf ``a.list.element`` belongs to; names may have dots themselves, so the longest wins."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        index = top.get(".".join(parts[:end]))
        if index is not None:
            return index
    raise UsageError(f"The Parquet column '{path}' belongs to no column of the file's schema.")


# --- from the hybrid calendar ----------------------------------------------------------------------------------------

_Change = Callable[[Any], Any]
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu"}
_DAY = 86_400


class Rebase:
    """Turns the batches of a file in the hybrid calendar into Gregorian ones: a value keeps its year, month, day and time of day.

    Exact for dates, and for timestamps of UTC. Of other zones, and of unknown ones, times before 1900 are refused."""

    def __init__(self, calendar: Calendar, leaves: Any, schema: pa.Schema, label: str) -> None:
        """``leaves``: Parquet's own schema; ``label``: the file, for messages."""
        self._calendar, self._label, self._column = calendar, label, ""
        each = (leaves.column(i) for i in range(len(leaves)))
        changes = {field.name: self._change(field.type, each) for field in schema}
        self._changes = {name: change for name, change in changes.items() if change is not None}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, which may have fewer columns than the file. Raises FiresteelError for times that it cannot turn exactly."""
        for place, name in enumerate(batch.schema.names):
            change = self._changes.get(name)
            if change is not None:
                self._column = name
                batch = batch.set_column(place, batch.schema.field(place), change(batch.column(place)))
        return batch

    def _change(self, kind: pa.DataType, leaves: Iterator[Any]) -> _Change | None:
        """What to do with arrays of this type; None: nothing. Takes its leaves, of which Arrow's types have the same order."""
        types = pa.types
        if types.is_struct(kind):
            parts = [self._change(field.type, leaves) for field in kind]
            return partial(_in_struct, parts) if any(parts) else None
        if types.is_map(kind):
            parts = [self._change(inner, leaves) for inner in (kind.key_type, kind.item_type)]
            return partial(_in_map, parts) if any(parts) else None
        if types.is_nested(kind):
            part = self._change(kind.value_type, leaves)
            return partial(_in_list, part) if part is not None else None
        leaf = next(leaves)
        if types.is_date32(kind):
            return _gregorian_days if self._calendar.dates else None
        int96 = leaf.physical_type == "INT96"
        if not types.is_timestamp(kind) or not (self._calendar.int96 if int96 else self._calendar.dates and kind.tz):
            return None
        return self._gregorian_times

    def _gregorian_times(self, array: Any) -> Any:
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
        values = array.view(pa.int64())
        least = pc.min(values).as_py()
        if least is None or least >= _FIRST_SECOND * per_second:
            return array
        if self._calendar.zone not in _UTC:
            zone = "an unknown time zone" if self._calendar.zone is None else f"the time zone {self._calendar.zone}"
            raise FiresteelError(
                f"{self._label}: column '{self._column}' holds times before 1900 of {zone}, in the calendar before Spark 3, "
                "which are turned into today's calendar only for UTC.",
                hint="Read the file with Spark: env.from_dataframe(spark.read.parquet(...)).",
            )
        per_day = _DAY * per_second
        return _shifted(values, lambda given: _days_apart(given // per_day) * per_day).view(array.type)


def _days_apart(days: Any) -> Any:
    """What to add to days since 1970 of the hybrid calendar, so that the same date in the Gregorian one comes out.

    Both calendars lose a day against each other at the end of February of each century, but for every fourth. Years are of March here,
    so that the 29th of February that only the Julian one has becomes the 1st of March."""
    years = (4 * (days + 2_440_528) + 3) // 1461 - 4712  # since 1 March 4713 BC, of 365.25 days each
    return np.where(days < _FIRST_DAY, years // 400 - years // 100 + 2, 0)


def _shifted(values: Any, apart: Callable[[Any], Any]) -> Any:
    given = np.asarray(values.fill_null(0)).astype(np.int64)
    return pa.array(given + apart(given), pa.int64(), mask=np.asarray(values.is_null()))


def _gregorian_days(array: Any) -> Any:
    days = array.view(pa.int32())
    least = pc.min(days).as_py()
    if least is None or least >= _FIRST_DAY:
        return array
    return _shifted(days, _days_apart).cast(pa.int32()).view(pa.date32())


def _in_struct(parts: list[_Change | None], array: Any) -> Any:
    columns = [column if part is None else part(column) for part, column in zip(parts, array.flatten(), strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(array.type), mask=array.is_null())


def _in_list(part: _Change, array: Any) -> Any:
    return _with_values(array, part(array.values))


def _in_map(parts: list[_Change | None], array: Any) -> Any:
    inner = [
        values if part is None else part(values) for part, values in zip(parts, (array.keys, array.items), strict=True)
    ]
    fields = [array.type.key_field, array.type.item_field]
    return _with_values(array, pa.StructArray.from_arrays(inner, fields=fields))


def _with_values(array: Any, values: Any) -> Any:
    """The list array with other values in the same places."""
    places = array.buffers()[: 1 if pa.types.is_fixed_size_list(array.type) else 2]
    return pa.Array.from_buffers(array.type, len(array), places, offset=array.offset, children=[values])
