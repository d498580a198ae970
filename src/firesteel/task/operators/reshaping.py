"""Rows made of rows: one for each element of a list or map, one for each of several columns, one for each grouping set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.model.arrays import Ints
from firesteel.results.hashing import list_view_runs
from firesteel.task.batches import coalesce, one_chunk, take
from firesteel.task.operators.grouping import plain_values
from firesteel.task.program import Batches, TaskContext

_MOST_ROWS = 1 << 16
"""Given at once, unless one list has more elements."""
_types = pa.types


def element_types(type_: pa.DataType) -> tuple[pa.DataType, ...] | None:
    """The types of a list's elements, or of a map's keys and values; None for another type."""
    if _types.is_dictionary(type_) or _types.is_run_end_encoded(type_):
        return element_types(type_.value_type)
    if _types.is_map(type_):
        return type_.key_type, type_.item_type
    if (
        _types.is_list(type_)
        or _types.is_large_list(type_)
        or _types.is_fixed_size_list(type_)
        or _types.is_list_view(type_)
        or _types.is_large_list_view(type_)
    ):
        return (type_.value_type,)
    return None


@dataclass(frozen=True, slots=True)
class Explode:
    """A row for each element of ``column``, which is left out; the others are repeated. ``schema``: the others, the place of the element from 0
    on if ``position``, and the element, or the key and the value of a map.

    ``outer``: a null or empty list gives one row, of nulls; else none.
    """

    name: str
    column: str
    position: bool
    outer: bool
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            for rows in self._pieces(batch):
                made = self._exploded(rows)
                if made.num_rows:
                    yield made

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows that become few enough to be given at once."""
        lengths, _ = _elements(batch.column(self.column))
        ends = np.cumsum(np.maximum(lengths, 1))
        low = 0
        while low < len(ends):
            before = int(ends[low - 1]) if low else 0
            high = max(int(np.searchsorted(ends, before + _MOST_ROWS, side="right")), low + 1)
            yield batch.slice(low, high - low)
            low = high

    def _exploded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lengths, values = _elements(batch.column(self.column))
        times = np.maximum(lengths, 1) if self.outer else lengths
        parents = np.repeat(np.arange(len(lengths)), times)
        places = np.arange(len(parents)) - np.repeat(np.cumsum(times) - times, times)
        nothing = np.repeat(lengths == 0, times)
        of = pa.array(np.cumsum(~nothing) - 1, mask=nothing)
        columns = [take(batch.column(n), pa.array(parents)) for n in batch.schema.names if n != self.column]
        if self.position:
            columns.append(pa.array(places.astype(np.int32), mask=nothing))
        columns += [take(value, of) for value in values]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _elements(column: Any) -> tuple[Ints, list[pa.Array]]:
    """The number of elements of each row, and all elements of a list, or keys and values of a map."""
    column = plain_values(column)
    if _types.is_map(column.type):
        present = column.drop_null() if column.null_count else column
        offsets = np.asarray(present.offsets) if len(present) else np.zeros(1, dtype=np.int32)
        low, many = int(offsets[0]), int(offsets[-1] - offsets[0])
        lengths = np.zeros(len(column), dtype=np.int64)
        lengths[np.asarray(column.is_valid())] = np.diff(offsets)
        return lengths, [present.keys.slice(low, many), present.items.slice(low, many)]
    if _types.is_list_view(column.type) or _types.is_large_list_view(column.type):
        values, offsets = list_view_runs(column)
        return np.diff(offsets).astype(np.int64), [values]
    lengths = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    return lengths, [one_chunk(column.flatten())]


@dataclass(frozen=True, slots=True)
class Unpivot:
    """A row for each of ``values``, columns of one type: the columns of ``ids``, the name of the column, and its value."""

    name: str
    ids: tuple[str, ...]
    values: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            ids = [batch.column(name) for name in self.ids]
            for name in self.values:
                said = pa.repeat(pa.scalar(name, pa.string()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*ids, said, batch.column(name)], schema=self.schema)


@dataclass(frozen=True, slots=True)
class Expand:
    """Every row once for each of ``sets``, with nulls in the place of the ``keys`` that are not in it, and its number as the last column:
    Spark's grouping_id, in which the first key is the highest bit, 1 where it is left out."""

    name: str
    keys: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in coalesce(batches):
            for kept in self.sets:
                left_out = set(self.keys) - set(kept)
                columns = [
                    pa.nulls(batch.num_rows, field.type) if field.name in left_out else batch.column(field.name)
                    for field in batch.schema
                ]
                number = pa.repeat(pa.scalar(grouping_id(self.keys, kept), pa.int64()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*columns, number], schema=self.schema)


def grouping_id(keys: tuple[str, ...], kept: tuple[str, ...]) -> int:
    return sum(1 << place for place, key in enumerate(reversed(keys)) if key not in kept)
