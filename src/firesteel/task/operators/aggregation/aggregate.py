"""The two halves of an aggregate: a state, which partial rows carry, and what is made of it in the end.

Several aggregates may share one state: all percentiles of a column, or its variance and its deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.results.plain import one_chunk
from firesteel.task.batches import take
from firesteel.task.operators.grouping import Codes, plain_values

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Members:
    """The group of each row, a number below ``n``. A group may have no rows."""

    codes: Codes
    n: int

    def sums(self, values: Any) -> NDArray[np.float64]:
        """Of a number per row, by group."""
        return np.bincount(self.codes, weights=values, minlength=self.n).astype(np.float64, copy=False)

    def of(self, rows: Any) -> Members:
        """Only these rows (numbers or a mask), of the same groups."""
        return Members(self.codes[rows], self.n)


class State(Protocol):
    """Columns of partial rows; equal states of one aggregation are kept once. A row of nulls is the state of no rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Read from the raw rows."""
        ...

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Of its columns."""
        ...

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        """The state of each raw row by itself. ``inputs``: plain values of ``columns``; ``taken``: rows that count."""
        ...

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        """The state of each group."""
        ...


class Aggregate(Protocol):
    """One column of the output. Picklable."""

    def state(self, schema: pa.Schema) -> State:
        """Raises UsageError for columns that it cannot be of."""
        ...

    def type(self, schema: pa.Schema) -> pa.DataType: ...

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        """The results of merged states."""
        ...


# --- tools that families share --------------------------------------------------------------------------------------


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of :func:`plain_values`."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return type_.value_type
    return type_


def is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) or types.is_null(type_)


def require(fits: bool, function: str, column: str, schema: pa.Schema, wanted: str) -> None:
    """Raises UsageError unless ``fits``."""
    if not fits:
        raise UsageError(
            f"{function} does not work on column '{column}' of type {schema.field(column).type}: it wants {wanted}.",
            hint="Cast the column, or choose another function.",
        )


def as_doubles(column: pa.Array) -> NDArray[np.float64]:
    """Numbers of any type as doubles, nulls as 0."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column))
    doubles = column.cast(pa.float64(), safe=False)
    return np.asarray(doubles.fill_null(0.0) if doubles.null_count else doubles)


def numbers(column: pa.Array) -> NDArray[Any]:
    """A column of integers or doubles with nulls as 0, in its own type."""
    return np.asarray(column.fill_null(0) if column.null_count else column)


def singles(values: pa.Array, taken: Mask) -> pa.ListArray:
    """A list of one value for each row, empty where the row is not taken."""
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(taken, out=offsets[1:])
    kept = values if taken.all() else take(values, pa.array(np.flatnonzero(taken)))
    return pa.ListArray.from_arrays(pa.array(offsets), kept)


def elements(lists: pa.Array, members: Members) -> tuple[pa.Array, Members]:
    """All elements of a column of lists, and the group of each."""
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    return one_chunk(lists.flatten()), Members(np.repeat(members.codes, lengths), members.n)


def lists_of(values: pa.Array, codes: Codes, n: int) -> pa.ListArray:
    """A list for each of ``n`` groups. ``codes``: ascending, the group of each value."""
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=n), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values)


def inputs_of(table: pa.Table, columns: Sequence[str]) -> list[pa.Array]:
    """Columns as states take them."""
    return [plain_values(table.column(name)) for name in columns]
