"""Variance, deviation, covariance and correlation, as doubles of numbers of any type.

The state is what Spark's is: the number of rows, the mean, and the sum of squared distances from it, which lose nothing where
large numbers vary little. Means are taken from the first mean of a group on, so that they are exact where all are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.task.operators.aggregation.aggregates.aggregate import (
    Mask,
    Members,
    as_doubles,
    is_number,
    plain_type,
    require,
)
from firesteel.task.operators.grouping import first_rows

Doubles = NDArray[np.float64]
VARIANCES = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
COVARIANCES = ("covar_samp", "covar_pop", "corr")


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one column, or of rows in which both of two have a value: n, each one's mean and squares, and the products of the distances."""

    columns: tuple[str, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.float64(),) * (3 if len(self.columns) == 1 else 6)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        for column in inputs:
            taken = taken & np.asarray(column.is_valid())
        means = [as_doubles(column) for column in inputs]
        if not taken.all():
            means = [np.where(taken, mean, 0.0) for mean in means]
        spread = [_of_one(mean) for mean in means]
        found = [taken.astype(np.float64)]
        for mean, none in zip(means, spread, strict=True):
            found += [mean, none]
        if len(means) == 2:
            found.append(spread[0] + spread[1])
        return [pa.array(part) for part in found]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        counts, *parts = [as_doubles(state) for state in states]
        if not counts.all():
            rows = np.flatnonzero(counts)
            members, counts, parts = members.of(rows), counts[rows], [part[rows] for part in parts]
        total = members.sums(counts)
        with np.errstate(all="ignore"):
            found, gaps = [total], []
            starts = first_rows(members.codes, members.n)
            for mean, squares in zip(parts[0:4:2], parts[1:4:2], strict=True):
                whole = _means(mean, counts, total, members, starts)
                gaps.append(mean - whole[members.codes])
                found += [whole, members.sums(squares + counts * gaps[-1] ** 2)]
            if len(gaps) == 2:
                found.append(members.sums(parts[4] + counts * gaps[0] * gaps[1]))
        return [pa.array(part) for part in found]


def _of_one(values: Doubles) -> Doubles:
    """The squares of single values: 0, and NaN of what is not finite."""
    if np.isfinite(values).all():
        return np.zeros(len(values))
    with np.errstate(invalid="ignore"):
        return values - values


def _means(means: Doubles, counts: Doubles, total: Doubles, members: Members, starts: NDArray[np.int64]) -> Doubles:
    """Of each group. ``starts``: the first row of each that has one."""
    first = np.zeros(members.n)
    first[members.codes[starts]] = means[starts]
    return first + members.sums(counts * (means - first[members.codes])) / np.maximum(total, 1)


@dataclass(frozen=True, slots=True)
class Moment:
    """``kind``: one of VARIANCES of one column, or of COVARIANCES of two. A double; null of no rows, and of one where the sample's
    is wanted."""

    kind: str
    columns: tuple[str, ...]

    def state(self, schema: pa.Schema) -> Moments:
        for column in self.columns:
            require(is_number(plain_type(schema.field(column).type)), self.kind, column, schema, "numbers")
        return Moments(self.columns)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.float64()

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        n, *parts = [as_doubles(state) for state in states]
        with np.errstate(all="ignore"):
            if self.kind == "corr":
                value, least = parts[4] / np.sqrt(parts[1] * parts[3]), 2
            else:
                least = 2 if self.kind.endswith("_samp") else 1
                value = parts[-1] / (n - least + 1)
                value = np.sqrt(value) if self.kind.startswith("stddev") else value
        return pa.array(value, mask=n < least, from_pandas=False)
