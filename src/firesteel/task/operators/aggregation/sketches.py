"""Sketches of a few KB a group: the number of different values, approximately (HyperLogLog), and percentiles (t-digest).

The state holds only registers that are not empty, as a list of numbers: register and rank. The estimate is Ertl's (2017), which
needs no table of corrections and is unbiased from the first value on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.model.arrays import Ints
from firesteel.results.hashing import hash_columns
from firesteel.results.keys import normal_type
from firesteel.task.batches import stable_order
from firesteel.task.operators.aggregation.aggregate import (
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

LEAST_ERROR, MOST_ERROR = 0.0022, 0.39
"""Relative standard deviations of 2^18 and of 2^3 registers."""
_RANK_BITS = 6
_GROUPS = 1 << 12
"""Estimated at once."""


def precision(error: float) -> int:
    """Bits of a hash that choose the register, as Spark has it for this relative standard deviation."""
    return max(math.ceil(2 * math.log2(1.106 / error)), 4)


@dataclass(frozen=True, slots=True)
class Registers:
    """``bits``: the logarithm of the number of registers."""

    column: str
    bits: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.list_(pa.uint32()),)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        hashes = hash_columns([inputs[0]])
        register = hashes >> np.uint64(64 - self.bits)
        rest = hashes << np.uint64(self.bits)
        rank = np.minimum(_leading_zeros(rest), 64 - self.bits) + 1
        packed = (register.astype(np.uint32) << np.uint32(_RANK_BITS)) | rank.astype(np.uint32)
        return [singles(pa.array(packed), taken & np.asarray(inputs[0].is_valid()))]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        flat, of = elements(states[0], members)
        packed = np.sort((of.codes << 32) | numbers(flat).astype(np.int64))
        register = packed >> _RANK_BITS
        packed = packed[np.concatenate((register[1:] != register[:-1], [True]))[: len(packed)]]  # the largest rank
        return [lists_of(pa.array((packed & 0xFFFFFFFF).astype(np.uint32)), packed >> 32, of.n)]


def _leading_zeros(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    found = np.full(len(values), 64, dtype=np.int64)
    rest = values.copy()
    for width in (32, 16, 8, 4, 2, 1):  # the place of the highest bit, by halves
        high = rest >> np.uint64(width)
        some = high > 0
        found[some] -= width
        rest = np.where(some, high, rest)
    return found - (rest > 0)


@dataclass(frozen=True, slots=True)
class ApproximateDistinct:
    """An int64, with this relative standard deviation; 0 of none."""

    column: str
    error: float = 0.05

    def state(self, schema: pa.Schema) -> Registers:
        normal_type(plain_type(schema.field(self.column).type))
        return Registers(self.column, precision(self.error))

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.int64()

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        bits = precision(self.error)
        pieces = [states[0].slice(at, _GROUPS) for at in range(0, len(states[0]), _GROUPS)]
        found = [_estimates(piece, bits) for piece in pieces]
        return pa.array(np.rint(np.concatenate(found)).astype(np.int64) if found else [], pa.int64())


def _estimates(registers: pa.Array, bits: int) -> NDArray[np.float64]:
    m, ranks = 1 << bits, 64 - bits + 1
    packed, of = elements(registers, Members(np.arange(len(registers)), len(registers)))
    cells = of.codes * (ranks + 1) + (numbers(packed).astype(np.int64) & ((1 << _RANK_BITS) - 1))
    table = np.bincount(cells, minlength=of.n * (ranks + 1)).reshape(of.n, ranks + 1).astype(np.float64)
    table[:, 0] = m - table[:, 1:].sum(axis=1)
    with np.errstate(divide="ignore"):
        z = m * _tau(1 - table[:, ranks] / m)
        for rank in range(ranks - 1, 0, -1):
            z = 0.5 * (z + table[:, rank])
        z += m * _sigma(table[:, 0] / m)
        return m * m / (2 * math.log(2) * z)


def _sigma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """x + the sum of 2^(k - 1) x^(2^k): infinite for 1, of which the estimate is 0."""
    found, power, x = x.copy(), 1.0, x.copy()
    for _ in range(64):
        x *= x
        found += x * power
        power += power
    return np.where(x == 1, np.inf, found)


def _tau(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A third of (1 - x - the sum of (1 - x^(2^-k))^2 2^-k)."""
    found, power, x = 1 - x, 1.0, x.copy()
    for _ in range(64):
        x = np.sqrt(x)
        power *= 0.5
        found -= (1 - x) ** 2 * power
    return found / 3


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
