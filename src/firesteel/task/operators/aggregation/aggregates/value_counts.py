"""Aggregates of how often each value occurs: exact percentiles, the commonest value, histograms. Nulls do not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.task.batches import stable_order, take
from firesteel.task.operators.aggregation.aggregates.aggregate import (
    Mask,
    Members,
    as_doubles,
    elements,
    is_number,
    lists_of,
    numbers,
    plain_type,
    require,
    singles,
)
from firesteel.task.operators.grouping import order_codes, sorted_rows
from firesteel.task.operators.relational import order_type


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """Each different value, ascending, and beside it its number of rows. ``edges``: of the bins whose numbers stand for the values."""

    column: str
    kept: pa.DataType
    edges: tuple[float, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.list_(self.kept), pa.list_(pa.int64()))

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        values, taken = inputs[0], taken & np.asarray(inputs[0].is_valid())
        if self.edges:
            values, taken = self._bins(values, taken)
        elif values.type != self.kept:
            values = values.cast(self.kept, safe=False)
        return [singles(values, taken), singles(pa.array(np.ones(len(values), dtype=np.int64)), taken)]

    def _bins(self, values: pa.Array, taken: Mask) -> tuple[pa.Array, Mask]:
        doubles, edges = as_doubles(values), np.asarray(self.edges)
        bins = np.searchsorted(edges, doubles, side="right") - 1
        bins[doubles == edges[-1]] = len(edges) - 2
        return pa.array(bins.astype(np.int32)), taken & (doubles >= edges[0]) & (doubles <= edges[-1])

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        values, of = elements(states[0], members)
        counts = numbers(elements(states[1], members)[0])
        rows, differs = _in_order(values, of)
        codes = of.codes[rows]
        starts = np.flatnonzero(np.concatenate(([True], (codes[1:] != codes[:-1]) | differs))[: len(rows)])
        sums = np.add.reduceat(counts[rows], starts) if len(starts) else counts[:0]
        values = take(values, pa.array(rows[starts]))
        return [lists_of(values, codes[starts], of.n), lists_of(pa.array(sums), codes[starts], of.n)]


def _in_order(values: pa.Array, of: Members) -> tuple[Ints, Mask]:
    """Row numbers by group and value, and whether each value but the first differs from the one before."""
    if not pa.types.is_float64(values.type):
        ranks, n = order_codes(values, True)
        rows = sorted_rows([(of.codes, of.n), (ranks, n)])
        return rows, np.diff(ranks[rows]) != 0
    doubles = as_doubles(values)
    rows = np.argsort(doubles)  # NaN last
    rows = rows[stable_order(of.codes[rows])]
    doubles = doubles[rows]
    return rows, (doubles[1:] != doubles[:-1]) & ~(np.isnan(doubles[1:]) & np.isnan(doubles[:-1]))


@dataclass(frozen=True, slots=True)
class _Counted:
    """Merged states, flat: per value its group, and the number of rows up to and with it, over all groups."""

    values: pa.Array
    counts: Ints
    codes: Ints
    upto: Ints
    before: Ints
    """Per group, and behind the last one: rows of all groups before."""

    @classmethod
    def of(cls, states: Sequence[pa.Array]) -> _Counted:
        groups = Members(np.arange(len(states[0])), len(states[0]))
        values, of = elements(states[0], groups)
        counts = numbers(elements(states[1], groups)[0])
        rows = np.bincount(of.codes, weights=counts, minlength=of.n).astype(np.int64)
        return cls(values, counts, of.codes, np.cumsum(counts), np.concatenate(([0], np.cumsum(rows))))


@dataclass(frozen=True, slots=True)
class Percentile:
    """Spark's exact one: at places between two values, what lies between them. A double, or a list of them (``listed``)."""

    column: str
    fractions: tuple[float, ...]
    listed: bool = False
    name: str = "percentile"

    def state(self, schema: pa.Schema) -> ValueCounts:
        require(is_number(plain_type(schema.field(self.column).type)), self.name, self.column, schema, "numbers")
        return ValueCounts(self.column, pa.float64())

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(pa.float64()) if self.listed else pa.float64()

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        counted = _Counted.of(states)
        values, rows = as_doubles(counted.values), np.diff(counted.before)
        found = [_at(fraction, values, counted, rows) for fraction in self.fractions]
        return percentiles(found, rows == 0, self.listed)


def percentiles(found: list[NDArray[np.float64]], nothing: Mask, listed: bool) -> pa.Array:
    """An array of results per fraction as the column; null where there is nothing."""
    if not listed:
        return pa.array(found[0], mask=nothing, from_pandas=False)
    flat = pa.array(np.stack(found, axis=1).ravel(), from_pandas=False)
    offsets = np.arange(len(nothing) + 1, dtype=np.int32) * len(found)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(nothing))


def _at(fraction: float, values: NDArray[np.float64], counted: _Counted, rows: Ints) -> NDArray[np.float64]:
    if not len(values):
        return np.zeros(len(rows))
    place = np.maximum(rows - 1, 0) * fraction
    low, high = np.floor(place), np.ceil(place)
    one, other = (_value_at(counted, values, (counted.before[:-1] + edge).astype(np.int64)) for edge in (low, high))
    with np.errstate(invalid="ignore", over="ignore"):
        between = (high - place) * one + (place - low) * other
    return np.where((low == high) | (one == other), one, between)


def _value_at(counted: _Counted, values: NDArray[np.float64], place: Ints) -> NDArray[np.float64]:
    return values[np.minimum(np.searchsorted(counted.upto, place, side="right"), len(values) - 1)]


@dataclass(frozen=True, slots=True)
class Mode:
    """The commonest value, the smallest of those that are equally common."""

    column: str

    def state(self, schema: pa.Schema) -> ValueCounts:
        type_ = plain_type(schema.field(self.column).type)
        require(order_type(type_) is not None, "mode", self.column, schema, "values that have an order")
        return ValueCounts(self.column, type_)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return plain_type(schema.field(self.column).type)

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        counted = _Counted.of(states)
        order = np.lexsort((-counted.counts, counted.codes))  # stable: of equal counts the smallest value stays first
        rows = np.diff(counted.before)
        first = np.zeros(len(rows), dtype=np.int64)
        first[counted.codes[order[::-1]]] = order[::-1]
        return take(counted.values, pa.array(first, mask=rows == 0))


@dataclass(frozen=True, slots=True)
class Histogram:
    """The number of values in each bin: from its lower edge on, below its upper one; the last bin has its upper edge too. A list of
    int64; NaN and what lies outside is in none."""

    column: str
    edges: tuple[float, ...]

    def state(self, schema: pa.Schema) -> ValueCounts:
        require(is_number(plain_type(schema.field(self.column).type)), "histogram", self.column, schema, "numbers")
        return ValueCounts(self.column, pa.int32(), self.edges)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(pa.int64())

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        counted = _Counted.of(states)
        bins, groups = len(self.edges) - 1, len(states[0])
        full = np.zeros(groups * bins, dtype=np.int64)
        full[counted.codes * bins + numbers(counted.values)] = counted.counts
        return pa.ListArray.from_arrays(pa.array(np.arange(groups + 1, dtype=np.int32) * bins), pa.array(full))
