"""Rows dropped whose key a Bloom filter rules out: before an exchange that a join behind it would have dropped them from anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns
from firesteel.task.batches import coalesce, filter_rows
from firesteel.task.operators.grouping import normalised
from firesteel.task.program import Batches, TaskContext

Words = NDArray[np.uint64]

_BITS_PER_KEY = 16
_PROBES = 4
"""Bits that a key sets, all in one word: of rows without a match about one in 300 gets through."""
_TRIED_ROWS = 1 << 18
_USELESS = 0.9
"""Share of the rows tried that get through, from which on the filter is not asked any more."""


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """``words``: a power of two of them."""

    words: Words

    @classmethod
    def of(cls, hashes: Words) -> Self:
        """``hashes``: of all keys, well mixed."""
        count = 1 << max(int(len(hashes) * _BITS_PER_KEY // 64).bit_length(), 1)
        bloom = cls(np.zeros(count, np.uint64))
        np.bitwise_or.at(bloom.words, bloom._places(hashes), _masks(hashes))
        return bloom

    def may_contain(self, hashes: Words) -> NDArray[np.bool_]:
        """Returns a mask: True for every hash that was put in, and for few others."""
        masks = _masks(hashes)
        return (self.words[self._places(hashes)] & masks) == masks

    def _places(self, hashes: Words) -> NDArray[np.int64]:
        return (hashes >> np.uint64(65 - len(self.words).bit_length())).astype(np.int64)


def _masks(hashes: Words) -> Words:
    one, low = np.uint64(1), np.uint64(63)
    masks = one << (hashes & low)
    for probe in range(1, _PROBES):
        masks |= one << ((hashes >> np.uint64(6 * probe)) & low)
    return masks


def key_hashes(columns: Sequence[Any], types: Sequence[pa.DataType]) -> Words:
    """A hash of each row's key; equal keys have equal ones in every process. ``types``: of the pairs that are compared."""
    return hash_columns([normalised(column, to) for column, to in zip(columns, types, strict=True)])


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Drops rows whose ``columns`` no key of the filter can equal. Where it lets most rows through it is not asked any more."""

    name: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    bloom: BloomFilter
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        tried = passed = 0
        for batch in coalesce(batches):
            if tried >= _TRIED_ROWS and passed > _USELESS * tried:
                yield batch
                continue
            kept = self.bloom.may_contain(key_hashes([batch.column(name) for name in self.columns], self.types))
            rows = int(kept.sum())
            tried, passed = tried + batch.num_rows, passed + rows
            if rows == batch.num_rows:
                yield batch
            elif rows:
                yield filter_rows(batch, kept)
