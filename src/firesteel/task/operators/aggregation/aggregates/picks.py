"""A value from one row of the group: the first or last by an order, of the largest or smallest other column, or any.

Rows that are equal in the order are told apart by the value, so that the answer never depends on which came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.task.batches import take
from firesteel.task.operators.aggregation.aggregates.aggregate import Mask, Members, plain_type, require
from firesteel.task.operators.aggregation.duplicates import content_hashes
from firesteel.task.operators.grouping import as_integers, is_integral, order_codes
from firesteel.task.operators.relational import order_type


@dataclass(frozen=True, slots=True)
class PickedRow:
    """The row that comes first: whether there is any, what it is ordered by, and the value.

    ``ascending``: for each column of the order. ``skips``: places in ``columns`` of which no null counts.
    """

    columns: tuple[str, ...]
    """Of the order, and the value."""
    ascending: tuple[bool, ...]
    skips: tuple[int, ...]
    kept: tuple[pa.DataType, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.bool_(), *self.kept)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        for place in self.skips:
            taken = taken & np.asarray(inputs[place].is_valid())
        return [pa.array(taken), *inputs]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        there, *parts = states
        rows = np.flatnonzero(np.asarray(there.fill_null(False)))
        for part, ascending in zip(parts, (*self.ascending, True), strict=True):
            rows = rows[_smallest(take(part, pa.array(rows)), ascending, members.of(rows))]
        first = np.full(members.n, -1, dtype=np.int64)
        first[members.codes[rows[::-1]]] = rows[::-1]
        found = first >= 0
        picked = pa.array(first, mask=~found)
        return [pa.array(found), *(take(part, picked) for part in parts)]


def _smallest(values: pa.Array, ascending: bool, members: Members) -> NDArray[np.bool_]:
    """The rows whose value comes first in their group, several where they are equal."""
    if not len(values):
        return np.zeros(0, dtype=np.bool_)
    numbers = _ordered(values, ascending)
    best = np.full(members.n, np.iinfo(np.int64).max)
    np.minimum.at(best, members.codes, numbers)
    return numbers == best[members.codes]


def _ordered(values: pa.Array, ascending: bool) -> Ints:
    """Numbers of the values' order: themselves, if they are integers without nulls; of values that have no order, of their hashes."""
    if order_type(values.type) is None:
        return content_hashes(pa.table([values], ["value"])).view(np.int64)
    if not values.null_count and is_integral(values.type) and not pa.types.is_uint64(values.type):
        numbers = np.asarray(as_integers(values)).astype(np.int64, copy=False)
        return numbers if ascending else ~numbers
    return order_codes(values, ascending)[0]


@dataclass(frozen=True, slots=True)
class Picked:
    """``kind``: first or last of the value in this order, max_by or min_by of the first column of it, or any_value, which has none.

    In an order nulls come first, and last in a descending one, NaN is the largest number; max_by and min_by pass over rows whose
    order is null, any_value over null values, and first and last over these if ``ignore_nulls``. Nothing there: null.
    """

    kind: str
    column: str
    order: tuple[tuple[str, bool], ...] = ()
    """(column, ascending)"""
    ignore_nulls: bool = False

    def state(self, schema: pa.Schema) -> PickedRow:
        names = (*(name for name, _ in self.order), self.column)
        for name, _ in self.order:
            fits = order_type(schema.field(name).type) is not None
            require(fits, f"The order of {self.kind}", name, schema, "values that have an order")
        backwards = self.kind in ("last", "max_by")
        skips = (0,) if self.kind in ("max_by", "min_by") else ()
        if self.kind == "any_value" or self.ignore_nulls:
            skips = (*skips, len(names) - 1)
        kept = tuple(plain_type(schema.field(name).type) for name in names)
        return PickedRow(names, tuple(ascending != backwards for _, ascending in self.order), skips, kept)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return plain_type(schema.field(self.column).type)

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[-1]
