"""Percentiles, approximately, of a t-digest (Dunning): centroids that are small near both ends and larger in the middle.

Centroids are found for all groups at once: sorted by mean, cut where the scale of their rank passes a whole number. A group of
fewer values than that would give keeps each, and its percentiles are exact; so are the smallest and the largest value always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.task.batches import stable_order
from firesteel.task.operators.aggregation.aggregates.aggregate import (
    Mask,
    Members,
    as_doubles,
    elements,
    is_number,
    lists_of,
    plain_type,
    require,
    singles,
)

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Centroids:
    """Means, ascending, and their weights; at most about ``compression`` of them."""

    column: str
    compression: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.list_(pa.float64()),) * 2

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        taken = taken & np.asarray(inputs[0].is_valid())
        values = as_doubles(inputs[0])
        return [singles(pa.array(part), taken) for part in (values, np.ones(len(values)))]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        flat, of = elements(states[0], members)
        means, weights = as_doubles(flat), as_doubles(elements(states[1], members)[0])
        order = np.argsort(means)  # NaN last
        order = order[stable_order(of.codes[order])]
        codes, means, weights = of.codes[order], means[order], weights[order]
        starts = self._starts(codes, means, weights, of.n)
        if len(starts) < len(codes):
            total = np.add.reduceat(weights, starts)
            with np.errstate(all="ignore"):
                base = means[starts]
                gaps = weights * (means - np.repeat(base, np.diff(np.append(starts, len(codes)))))
                means = np.where(np.isfinite(base), base + np.add.reduceat(gaps, starts) / total, base)
            codes, weights = codes[starts], total
        return [lists_of(pa.array(part), codes, of.n) for part in (means, weights)]

    def _starts(self, codes: Ints, means: Doubles, weights: Doubles, n: int) -> Ints:
        """The first place of each centroid to be."""
        if not len(codes):
            return np.zeros(0, dtype=np.int64)
        counts = np.bincount(codes, minlength=n)
        total = np.bincount(codes, weights=weights, minlength=n)
        upto = np.cumsum(weights)
        middle = (upto - weights / 2 - (np.cumsum(total) - total)[codes]) / total[codes]
        scale = self.compression / (2 * math.pi) * np.arcsin(np.clip(2 * middle - 1, -1, 1))
        cell = np.floor(scale)
        differs = (cell[1:] != cell[:-1]) | (counts[codes[1:]] <= self.compression)
        first = codes[1:] != codes[:-1]
        differs |= first | ~np.isfinite(means[1:]) | ~np.isfinite(means[:-1])
        differs[1:] |= first[:-1]  # behind the smallest value
        differs[:-1] |= first[1:]  # before the largest
        if len(differs):
            differs[0] = differs[-1] = True
        same = np.isnan(means[1:]) & np.isnan(means[:-1]) | (means[1:] == means[:-1]) & ~np.isfinite(means[1:])
        return np.flatnonzero(np.concatenate(([True], differs & ~(same & ~first))))


@dataclass(frozen=True, slots=True)
class ApproximatePercentile:
    """A double, or a list of them (``listed``), for numbers of any type; null of none. NaN is the largest number."""

    column: str
    fractions: tuple[float, ...]
    listed: bool
    compression: int

    def state(self, schema: pa.Schema) -> Centroids:
        type_ = plain_type(schema.field(self.column).type)
        require(is_number(type_), "percentile_approx", self.column, schema, "numbers")
        return Centroids(self.column, self.compression)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(pa.float64()) if self.listed else pa.float64()

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        groups = Members(np.arange(len(states[0])), len(states[0]))
        flat, of = elements(states[0], groups)
        means, weights = as_doubles(flat), as_doubles(elements(states[1], groups)[0])
        counts = np.bincount(of.codes, minlength=of.n)
        total = np.bincount(of.codes, weights=weights, minlength=of.n)
        if not len(means):
            return percentiles([np.zeros(of.n) for _ in self.fractions], counts == 0, self.listed)
        first = np.minimum(np.cumsum(counts) - counts, len(means) - 1)
        last = np.maximum(first + counts - 1, first)
        centres = np.cumsum(weights) - (weights + 1) / 2
        before = np.cumsum(total) - total
        found: list[Doubles] = []
        for fraction in self.fractions:
            place = before + np.maximum(total - 1, 0) * fraction
            low = np.clip(np.searchsorted(centres, place, side="right") - 1, first, last)
            high = np.minimum(low + 1, last)
            with np.errstate(all="ignore"):
                along = np.clip((place - centres[low]) / (centres[high] - centres[low]), 0, 1)
                between = means[low] * (1 - along) + means[high] * along
            exact = (low == high) | (along == 0) | (means[low] == means[high])
            found.append(np.where(exact, means[low], np.where(along == 1, means[high], between)))
        return percentiles(found, counts == 0, self.listed)


def percentiles(found: list[NDArray[np.float64]], nothing: Mask, listed: bool) -> pa.Array:
    """An array of results per fraction as the column; null where there is nothing."""
    if not listed:
        return pa.array(found[0], mask=nothing, from_pandas=False)
    flat = pa.array(np.stack(found, axis=1).ravel(), from_pandas=False)
    offsets = np.arange(len(nothing) + 1, dtype=np.int32) * len(found)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(nothing))
