"""``describe``: count, mean, standard deviation, least and largest value of columns, in one pass.

Each subtask leaves one row of partial statistics; one subtask merges them (Chan, Golub and LeVeque's formula for the mean
and the sum of squared distances from it, so that large numbers of small variance lose nothing) and writes them as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.task.batches import coalesce, one_chunk
from firesteel.task.operators.relational import order_type
from firesteel.task.program import Batches, TaskContext

STATISTICS = ("count", "mean", "stddev", "min", "max")


def is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def described(schema: pa.Schema, column: str) -> pa.DataType | None:
    """The plain type by which the column is described; None: its values have no order."""
    return order_type(schema.field(column).type)


def partial_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Of what :class:`DescribePart` writes."""
    fields: list[pa.Field] = []
    for k, column in enumerate(columns):
        type_ = described(schema, column)
        fields += [
            pa.field(f"{k}_count", pa.int64()),
            pa.field(f"{k}_mean", pa.float64()),
            pa.field(f"{k}_squares", pa.float64()),
            pa.field(f"{k}_min", type_),
            pa.field(f"{k}_max", type_),
        ]
    return pa.schema(fields)


def output_schema(columns: Sequence[str]) -> pa.Schema:
    """PySpark's: ``summary``, then a string for each column."""
    return pa.schema([pa.field(name, pa.string()) for name in ("summary", *columns)])


@dataclass(slots=True)
class _Moments:
    """``squares``: the sum of squared distances from the mean."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, count: int, mean: float, squares: float) -> None:
        if count == 0:
            return
        total = self.count + count
        gap = mean - self.mean
        self.squares += squares + gap * gap * (self.count * count / total)
        self.mean += gap * (count / total)
        self.count = total


class _Column:
    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._number = is_number(type_)
        self._moments = _Moments()
        self._extremes: list[Any] = []
        """Arrays of one or two values."""

    def add_values(self, column: pa.Array) -> None:
        column = column.drop_null()
        if not len(column):
            return
        if self._number:
            numbers = np.asarray(column.cast(pa.float64(), safe=False))
            with np.errstate(all="ignore"):
                mean = float(numbers.mean())
                self._moments.add(len(numbers), mean, float(((numbers - mean) ** 2).sum()))
        else:
            self._moments.count += len(column)
        self._add_extremes(column)

    def add_partial(self, count: int, mean: float, squares: float, extremes: pa.Array) -> None:
        if self._number:
            self._moments.add(count, mean, squares)
        else:
            self._moments.count += count
        self._add_extremes(extremes.drop_null())

    def _add_extremes(self, values: pa.Array) -> None:
        """Of all so far; NaN is the largest number, as in Spark."""
        values = pa.concat_arrays([*self._extremes, values])
        if len(values) > 1:
            order = pc.array_sort_indices(values)  # NaN last
            values = values.take(pa.array([order[0].as_py(), order[-1].as_py()]))
        self._extremes = [values] if len(values) else []

    def partial(self) -> list[Any]:
        low, high = self._bounds()
        moments = self._moments
        return [moments.count, moments.mean, moments.squares, low, high]

    def texts(self) -> dict[str, str | None]:
        low, high = self._bounds()
        n, squares = self._moments.count, self._moments.squares
        return {
            "count": str(n),
            "mean": _text(self._moments.mean if self._number and n else None),
            "stddev": _text(math.sqrt(squares / (n - 1)) if self._number and n > 1 and not squares < 0 else None),
            "min": _text(low),
            "max": _text(high),
        }

    def _bounds(self) -> tuple[Any, Any]:
        if not self._extremes:
            return None, None
        return self._extremes[0][0].as_py(), self._extremes[0][-1].as_py()


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(column: Any, type_: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return one_chunk(column if column.type == type_ else column.cast(type_))


@dataclass(frozen=True, slots=True)
class DescribePart:
    """One row of what a subtask has seen. ``types``: the plain types of the columns."""

    name: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        states = [_Column(type_) for type_ in self.types]
        for batch in coalesce(batches):
            for state, name, type_ in zip(states, self.columns, self.types, strict=True):
                state.add_values(_plain(batch.column(name), type_))
        values = [value for state in states for value in state.partial()]
        arrays = [pa.array([value], field.type) for value, field in zip(values, self.schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class Describe:
    """Merges the partial rows, all in one subtask. One row per statistic."""

    name: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    statistics: tuple[str, ...]
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        states = [_Column(type_) for type_ in self.types]
        for batch in batches:
            for k, state in enumerate(states):
                counts, means, squares, low, high = (batch.column(5 * k + i) for i in range(5))
                for row in range(batch.num_rows):
                    extremes = pa.concat_arrays([low.slice(row, 1), high.slice(row, 1)])
                    state.add_partial(counts[row].as_py(), means[row].as_py(), squares[row].as_py(), extremes)
        texts = [state.texts() for state in states]
        columns = [[text[what] for what in self.statistics] for text in texts]
        arrays = [pa.array(values, pa.string()) for values in (list(self.statistics), *columns)]
        yield pa.RecordBatch.from_arrays(arrays, schema=output_schema(self.columns))
