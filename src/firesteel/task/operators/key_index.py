"""The keys of one table, built once and looked up by many: from key columns to the codes of the rows that have the same keys.

Keys are compared exactly, as ``grouping.encode`` compares them. Integers that lie close together are looked up by their
value; other keys by a 64-bit hash in an open-addressing table, then compared where the hash does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.results.hashing import hash_columns, mix_in_place
from firesteel.task.batches import stable_order, take
from firesteel.task.operators.grouping import Codes, as_integers, encode, first_rows, integer_codes, is_integral

Rows = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_NO_CODE = -1
_FEW = 1 << 16
"""Keys of one column up to which pyarrow's own search, which builds its table for each batch anew, is the faster one."""


class CodedRows:
    """The rows of a table by the code of their key. ``codes``: one per row, -1 for a key that matches nothing; ``n``: their number."""

    def __init__(self, codes: Codes, n: int) -> None:
        self._codes = codes
        self._n = n
        known = codes >= 0
        self.counts: Rows = np.bincount(codes[known], minlength=n)
        self._unique = self.counts.max(initial=0) <= 1
        if self._unique:
            self._row_of = np.full(n + 1, -1, dtype=np.int64)
            self._row_of[codes[known]] = np.flatnonzero(known)
        else:
            self._order = stable_order(codes + 1)[len(codes) - int(known.sum()) :]
            self._starts = np.cumsum(self.counts) - self.counts

    def matches(self, probe: Codes) -> Rows:
        """Returns the number of rows that match each probe."""
        return np.where(probe >= 0, self.counts[probe], 0) if self._n else np.zeros(len(probe), np.int64)

    def matched_by(self, probe: Codes) -> NDArray[np.bool_]:
        """Returns a mask of the rows: True for those that some probe matches."""
        seen = np.zeros(self._n + 1, dtype=bool)
        seen[probe] = True  # code -1 is the last place
        seen[self._n] = False
        return seen[self._codes]

    def pairs(self, probe: Codes, at_once: int, *, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        """Yields (probe, row) numbers of all matches in the order of the probes, ``at_once`` or fewer at a time.

        ``keep``: probes without a match come too, with -1.
        """
        return self._by_row(probe, at_once, keep) if self._unique else self._by_count(probe, at_once, keep)

    def _by_row(self, probe: Codes, at_once: int, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        """No key is here twice: its row number is looked up."""
        rows = self._row_of[probe]
        probes = np.arange(len(rows)) if keep else np.flatnonzero(rows >= 0)
        for low in range(0, len(probes), at_once):
            part = probes[low : low + at_once]
            yield part, rows[part]

    def _by_count(self, probe: Codes, at_once: int, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        """Pairs are numbered through; a chunk of pair numbers is turned into row numbers, cutting inside a probe if need be."""
        matches = self.matches(probe)
        produced = np.maximum(matches, 1) if keep else matches
        ends = np.cumsum(produced)
        total = int(ends[-1]) if len(ends) else 0
        for low in range(0, total, at_once):
            high = min(low + at_once, total)
            first, last = np.searchsorted(ends, [low, high - 1], side="right")
            within = np.arange(first, last + 1)
            spans = np.minimum(ends[within], high) - np.maximum(ends[within] - produced[within], low)
            probes = np.repeat(within, spans)
            nth = np.arange(low, high) - (ends[probes] - produced[probes])
            matched = matches[probes] > 0
            position = np.where(matched, self._starts[probe[probes]] + nth, 0)
            yield probes, np.where(matched, self._order[position], -1)


class KeyIndex:
    """``columns``: normalised key columns (``grouping.normalised``), at least one, of any number of rows. Null keys match nothing."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        codes, n = encode(columns, nulls_match=False)
        self.rows = CodedRows(codes, n)
        dense = integer_codes(columns[0], nulls_match=False) if len(columns) == 1 else None
        self._smallest, self._span = (0, 0) if dense is None else (dense[2], dense[1] - 1)
        self._dense = dense is not None
        self._exact = len(columns) == 1 and is_integral(columns[0].type)
        self._few: pa.Array | None = None
        if not self._dense:
            known = np.flatnonzero(codes >= 0)
            firsts = known[first_rows(codes[known], n)]
            self._keys = [take(column, pa.array(firsts)) for column in columns]
            self._code_at = codes[firsts]
            if len(columns) == 1 and len(firsts) <= _FEW and not self._exact:
                self._few = self._keys[0]
                return
            self._table = _HashTable(self._hashed, self._code_at)
            self._place = np.zeros(n, np.int64)
            self._place[self._code_at] = np.arange(len(firsts))

    def codes(self, columns: Sequence[pa.Array]) -> Codes:
        """Returns the code of each row of these columns, normalised to the same types; -1 where no row here has its key."""
        if self._dense:
            return self._by_value(columns[0])
        if self._few is not None:
            places = pc.index_in(columns[0], value_set=self._few, skip_nulls=True)
            return np.append(self._code_at, _NO_CODE)[np.asarray(places.fill_null(-1))]
        codes = self._table.find(self._hash(columns, self._table.seed))
        for column in columns:
            if column.null_count:
                codes[np.asarray(column.is_null())] = _NO_CODE
        return codes if self._exact else self._compared(columns, codes)

    def _by_value(self, column: pa.Array) -> Codes:
        if not self._span:
            return np.full(len(column), _NO_CODE, np.int64)
        values = as_integers(column)
        numbers = np.asarray(values.fill_null(self._smallest) if values.null_count else values)
        inside = (numbers >= self._smallest) & (numbers <= self._smallest + self._span - 1)
        if column.null_count:
            inside &= np.asarray(column.is_valid())
        return np.where(inside, numbers.astype(np.int64, copy=False) - self._smallest, _NO_CODE)

    def _hashed(self, seed: int) -> Hashes:
        return self._hash(self._keys, seed)

    def _hash(self, columns: Sequence[pa.Array], seed: int) -> Hashes:
        if not self._exact:
            return hash_columns(columns, seed)
        values = as_integers(columns[0])
        numbers = np.asarray(values.fill_null(0) if values.null_count else values)
        return mix_in_place(numbers.astype(np.int64, copy=False).view(np.uint64).copy())

    def _compared(self, columns: Sequence[pa.Array], codes: Codes) -> Codes:
        """The codes of those whose keys are equal, and not only their hashes."""
        found = np.flatnonzero(codes >= 0)
        places = pa.array(self._place[codes[found]])
        for column, keys in zip(columns, self._keys, strict=True):
            same = _equal(take(column, pa.array(found)), take(keys, places))
            codes[found[~same]] = _NO_CODE
        return codes


class _HashTable:
    """Open addressing with linear probing, at most half full. ``hashed(seed)``: of distinct keys, in the order of ``codes``."""

    def __init__(self, hashed: Callable[[int], Hashes], codes: Codes) -> None:
        self.seed, hashes = 0, hashed(0)
        while len(np.unique(hashes)) < len(hashes):  # two keys of one hash
            self.seed += 1
            hashes = hashed(self.seed)
        bits = max(int(2 * len(hashes)).bit_length(), 4)
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._codes = np.full(1 << bits, _NO_CODE, np.int64)
        self._hashes = np.zeros(1 << bits, np.uint64)
        self._put(hashes, codes)

    def _put(self, hashes: Hashes, codes: Codes) -> None:
        left = np.arange(len(hashes))
        places = (hashes >> self._shift).astype(np.int64)
        taken = np.full(len(self._codes), -1, np.int64)
        while len(left):
            free = left[taken[places[left]] < 0]
            taken[places[free]] = free  # of several the last one stays
            left = left[taken[places[left]] != left]
            places[left] = (places[left] + 1) & self._mask
        self._codes[places] = codes
        self._hashes[places] = hashes

    def find(self, hashes: Hashes) -> Codes:
        """Returns the code of each hash, -1 for one that is not here."""
        places = (hashes >> self._shift).astype(np.int64)
        found = self._codes[places]
        other = np.flatnonzero((found >= 0) & (self._hashes[places] != hashes))
        places = places[other]
        while len(other):
            places = (places + 1) & self._mask
            codes = self._codes[places]
            found[other] = codes
            on = (codes >= 0) & (self._hashes[places] != hashes[other])
            other, places = other[on], places[on]
        return found


def _equal(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Of arrays without nulls and of one normalised type: NaN equals NaN."""
    if pa.types.is_floating(one.type):
        return np.asarray(one.view(pa.int64())) == np.asarray(other.view(pa.int64()))
    return np.asarray(pc.equal(one, other))
