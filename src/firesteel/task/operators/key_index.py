"""The keys of one table, built once and looked up by many: from key columns to the numbers of the rows that have the same keys.

Keys are compared exactly, as ``grouping.encode`` compares them. Integers (several columns of them as one, where that fits 64
bits) that do not lie too far apart are looked up by their value; other keys by a 64-bit hash in an open-addressing table, then
compared where the hash does not tell them apart.

An index is plain data, arrays of numpy and pyarrow: pickled with protocol 5 it leaves its memory out of band, so that it can
lie in a mapped file (``task.mapped``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firesteel.model.build_memory import INDEX_ROW_BYTES
from firesteel.results.hashing import fixed_values, hash_columns
from firesteel.task.batches import stable_order, take
from firesteel.task.operators.grouping import Codes, as_integers, is_integral

Rows = NDArray[Any]
"""Row numbers, int32 or int64; -1: no row."""
Numbers = NDArray[Any]
"""The number of the key of each row that is looked up, int32 or int64; -1 where the index does not have it."""
Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_FEW = 1 << 12
"""Keys of one column up to which pyarrow's own search, which builds its table for each batch anew, is the faster one."""
_SPARSE = 64
"""Integers whose span is more than this many times the rows are hashed, however much memory there is."""
_SMALL = 1 << 14
"""A span that is never too large."""
_SLOTS = 4
"""Least slots of a hash table for each key: the fewer are taken, the fewer lookups meet a key that is not theirs."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MOST_SPAN = 1 << 62
_WORDS = 1 << 64


class CodedRows:
    """The rows of a table by the code of their key. ``codes``: one per row, -1 for a key that matches nothing; ``n``: their number."""

    is_unique: ClassVar[bool] = False

    def __init__(self, codes: Codes, n: int) -> None:
        self._codes = codes
        self._n = n
        known = codes >= 0
        self._counts = _narrow(np.bincount(codes[known], minlength=n), len(codes))
        self._once = int(self._counts.max(initial=0)) <= 1
        if self._once:
            self._row_of = np.full(n + 1, -1, self._counts.dtype)
            self._row_of[codes[known]] = np.flatnonzero(known)
        else:
            self._order = _narrow(stable_order(codes + 1)[len(codes) - int(known.sum()) :], len(codes))
            self._starts = np.cumsum(self._counts, dtype=self._counts.dtype) - self._counts

    def matches(self, probe: Numbers) -> Rows:
        """Returns the number of rows that match each probe."""
        return np.where(probe >= 0, self._counts[probe], 0) if self._n else np.zeros(len(probe), np.int64)

    def matched_by(self, probe: Numbers) -> NDArray[np.bool_]:
        """Returns a mask of the rows: True for those that some probe matches."""
        seen = np.zeros(self._n + 1, dtype=bool)
        seen[probe] = True  # code -1 is the last place
        seen[self._n] = False
        return seen[self._codes]

    def pairs(self, probe: Numbers, at_once: int, *, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        """Yields (probe, row) numbers of all matches in the order of the probes, ``at_once`` or fewer at a time.

        ``keep``: probes without a match come too, with -1.
        """
        return (
            _pairs_of_rows(self._row_of[probe], at_once, keep) if self._once else self._by_count(probe, at_once, keep)
        )

    def _by_count(self, probe: Numbers, at_once: int, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        """Pairs are numbered through; a chunk of pair numbers is turned into row numbers, cutting inside a probe if need be."""
        matches = self.matches(probe)
        produced = np.maximum(matches, 1) if keep else matches
        ends = np.cumsum(produced, dtype=np.int64)
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


@dataclass(frozen=True, slots=True)
class UniqueRows:
    """As :class:`CodedRows`, of rows whose keys are all different: the code of a key is the number of its row."""

    rows: int
    is_unique: ClassVar[bool] = True

    def matches(self, probe: Numbers) -> Rows:
        return (probe >= 0).astype(np.int64)

    def matched_by(self, probe: Numbers) -> NDArray[np.bool_]:
        seen = np.zeros(self.rows + 1, dtype=bool)
        seen[probe] = True  # -1 is the last place
        return seen[:-1]

    def pairs(self, probe: Numbers, at_once: int, *, keep: bool) -> Iterator[tuple[Rows, Rows]]:
        return _pairs_of_rows(probe, at_once, keep)


def _pairs_of_rows(rows: Rows, at_once: int, keep: bool) -> Iterator[tuple[Rows, Rows]]:
    """Each probe has one row at most."""
    probes = np.arange(len(rows)) if keep else np.flatnonzero(rows >= 0)
    for low in range(0, len(probes), at_once):
        part = probes[low : low + at_once]
        yield part, rows[part]


def _narrow(numbers: Any, rows: int) -> Rows:
    """As int32 where they count at most ``rows`` rows that it can number."""
    return numbers.astype(_number_type(rows), copy=False)


class KeyIndex:
    """The index of the keys of a table."""

    def __init__(self, columns: Sequence[pa.Array], spare: int = 0) -> None:
        """``columns``: normalised key columns (``grouping.normalised``), at least one, of any number of rows. Null keys match nothing.

        ``spare``: bytes that the index may take instead of ``INDEX_ROW_BYTES`` a row, if that is more.
        """
        self.rows, self._finder = _indexed(columns, max(spare, INDEX_ROW_BYTES * len(columns[0])))

    @property
    def is_unique(self) -> bool:
        """Returns whether no key is there twice; then the number of a key is that of its row."""
        return self.rows.is_unique

    @property
    def cost(self) -> int:
        """Returns about how many nanoseconds it takes to find a key."""
        return self._finder.cost

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """Returns the number of each row's key. ``columns``: normalised to the same types as those of the index."""
        found = self._finder.find(columns)
        for column in columns:
            if column.null_count:
                found[np.asarray(column.is_null())] = -1
        return found


class _Finder(Protocol):
    """Finds the numbers of keys. For a row with a null any number comes back."""

    cost: ClassVar[int]

    def find(self, columns: Sequence[pa.Array]) -> Numbers: ...


def _indexed(columns: Sequence[pa.Array], most: int) -> tuple[CodedRows | UniqueRows, _Finder]:
    """``most``: bytes for an array of integers by value."""
    rows = len(columns[0])
    known = _without_null(columns)
    if not len(known):
        return UniqueRows(rows), _Nothing()
    integers = _Integers.of(columns, known)
    if integers is None:
        return _few(columns[0], known) if len(columns) == 1 and len(known) <= _FEW else _hashed_keys(columns, known)
    values = integers.values(columns)[known]
    bounds = int(values.min()), int(values.max())
    span = bounds[1] - bounds[0] + 1
    if span <= _SMALL or (span <= _SPARSE * rows and span * np.dtype(_number_type(rows)).itemsize <= most):
        return _by_value(integers, values, bounds, known, rows)
    return _hashed_integers(integers, values, known, rows)


def _without_null(columns: Sequence[pa.Array]) -> Ints:
    """The numbers of the rows without a null in any column."""
    null = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        if column.null_count:
            null |= np.asarray(column.is_null())
    return np.flatnonzero(~null)


@dataclass(frozen=True, slots=True)
class _Nothing:
    """No row has a key."""

    cost: ClassVar[int] = 1

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        return np.full(len(columns[0]), -1, np.int32)


# --- integers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Integers:
    """Keys of integers, dates or timestamps as one int64 each: one column as it is, several as places of a grid.

    ``lows``, ``spans``: of the grid's columns; empty: there is one column.
    """

    lows: tuple[int, ...] = ()
    spans: tuple[int, ...] = ()

    @classmethod
    def of(cls, columns: Sequence[pa.Array], known: Ints) -> Self | None:
        """Returns None for columns of other types, and for a grid with too many places."""
        if not all(is_integral(column.type) for column in columns):
            return None
        if len(columns) == 1:
            return cls()
        stored = [_stored(column)[known] for column in columns]
        lows = tuple(int(numbers.min()) for numbers in stored)
        spans = tuple(int(numbers.max()) - low + 1 for numbers, low in zip(stored, lows, strict=True))
        return cls(lows, spans) if math.prod(spans) <= _MOST_SPAN else None

    def values(self, columns: Sequence[pa.Array]) -> Ints:
        """One per row: equal ones for equal keys; -1 for a key outside of the grid, whose own are not negative."""
        if not self.lows:
            return _stored(columns[0])
        values = np.zeros(len(columns[0]), np.uint64)
        outside = np.zeros(len(values), bool)
        for column, low, span in zip(columns, self.lows, self.spans, strict=True):
            place = _less(_stored(column), low)
            outside |= place >= np.uint64(span)
            values *= np.uint64(span)
            values += place
        values[outside] = _WORDS - 1
        return values.view(np.int64)


def _stored(column: pa.Array) -> Ints:
    """Integers as they are stored, those of 64 bits without a sign as if they had one. Nulls are arbitrary."""
    integers = as_integers(column)
    return fixed_values(integers, f"<i{integers.type.bit_width // 8}").astype(np.int64, copy=False)


def _less(values: Ints, low: int) -> Hashes:
    """``values - low``, modulo 2**64, so that different values stay different."""
    return values.view(np.uint64) - np.uint64(low % _WORDS)


@dataclass(frozen=True, slots=True)
class _ByValue:
    """``table``: the number of key ``low + k`` at place ``k + 1``, with -1 at both ends."""

    integers: _Integers
    low: int
    table: Numbers
    cost: ClassVar[int] = 3

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        places = _less(self.integers.values(columns), self.low - 1).view(np.int64)
        return self.table.take(places, mode="clip")


def _by_value(
    integers: _Integers, values: Ints, bounds: tuple[int, int], known: Ints, rows: int
) -> tuple[CodedRows | UniqueRows, _ByValue]:
    low, high = bounds
    table = np.full(high - low + 3, -1, _number_type(rows))
    places = _less(values, low - 1).view(np.int64)
    table[places] = known
    taken = np.flatnonzero(table >= 0)
    found = _ByValue(integers, low, table)
    if len(taken) == len(known):
        return UniqueRows(rows), found
    table[taken] = np.arange(len(taken))
    return CodedRows(_spread(table[places], known, rows), len(taken)), found


@dataclass(frozen=True, slots=True)
class _HashedIntegers:
    integers: _Integers
    table: _HashTable
    cost: ClassVar[int] = 30

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        return self.table.find(_mixed(self.integers.values(columns)))


def _hashed_integers(
    integers: _Integers, values: Ints, known: Ints, rows: int
) -> tuple[CodedRows | UniqueRows, _HashedIntegers]:
    hashed = _Hashed(_mixed(values), known, rows)
    return hashed.rows, _HashedIntegers(integers, hashed.table())


def _mixed(values: Ints) -> Hashes:
    """A hash that differs where the values do."""
    words = values.view(np.uint64)
    hashes = words >> np.uint64(32)
    hashes ^= words
    hashes *= _GOLDEN
    return hashes


# --- other keys -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Few:
    """``numbers``: of the key at each place of ``keys``, with -1 behind."""

    keys: pa.Array
    numbers: Numbers
    cost: ClassVar[int] = 30

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        places = pc.index_in(columns[0], value_set=self.keys, skip_nulls=True)
        return self.numbers[np.asarray(places.fill_null(-1))]


def _few(column: pa.Array, known: Ints) -> tuple[CodedRows | UniqueRows, _Few]:
    encoded = column.dictionary_encode()
    n = len(encoded.dictionary)
    is_unique = n == len(known)
    numbers = np.append(known if is_unique else np.arange(n), -1).astype(_number_type(len(column)))
    found = _Few(encoded.dictionary, numbers)
    if is_unique:  # its values come in the order of the rows
        return UniqueRows(len(column)), found
    return CodedRows(np.asarray(encoded.indices.fill_null(-1)).astype(np.int64), n), found


@dataclass(frozen=True, slots=True)
class _HashedKeys:
    """``keys``: by their numbers, to compare with."""

    table: _HashTable
    keys: tuple[pa.Array, ...]
    seed: int
    cost: ClassVar[int] = 100

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        found = self.table.find(hash_columns(columns, self.seed))
        rows = np.flatnonzero(found >= 0)
        found[rows[~_same(columns, rows, self.keys, found[rows])]] = -1
        return found


def _hashed_keys(columns: Sequence[pa.Array], known: Ints) -> tuple[CodedRows | UniqueRows, _HashedKeys]:
    seed, rows = 0, len(columns[0])
    while True:
        hashed = _Hashed(hash_columns(columns, seed)[known], known, rows)
        again = np.flatnonzero(~hashed.is_first)
        if _same(columns, known[again], columns, known[hashed.firsts[again]]).all():
            break
        seed += 1  # two keys have one hash
    if hashed.rows.is_unique:
        return hashed.rows, _HashedKeys(hashed.table(), tuple(columns), seed)
    firsts = pa.array(known[hashed.is_first])
    return hashed.rows, _HashedKeys(hashed.table(), tuple(take(column, firsts) for column in columns), seed)


def _same(columns: Sequence[pa.Array], rows: Rows, others: Sequence[pa.Array], places: Rows) -> NDArray[np.bool_]:
    """Returns whether the keys of these rows, none of them null, are the others' at these places."""
    same = np.ones(len(rows), dtype=bool)
    for column, other in zip(columns, others, strict=True):
        same &= _equal(take(column, pa.array(rows)), take(other, pa.array(places)))
    return same


def _equal(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Of arrays without nulls and of one normalised type: NaN equals NaN."""
    if pa.types.is_floating(one.type):
        return np.asarray(one.view(pa.int64())) == np.asarray(other.view(pa.int64()))
    return np.asarray(pc.equal(one, other))


# --- hashes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HashTable:
    """Open addressing with linear probing. ``slots``: numbers of keys, or -1; ``hashes``: by number, and one more."""

    shift: np.uint64
    slots: Numbers
    hashes: Hashes

    def find(self, hashes: Hashes) -> Numbers:
        """Returns the number of each hash, -1 for one that is not here."""
        places = (hashes >> self.shift).view(np.int64)
        found = self.slots.take(places)
        taken = np.flatnonzero(found >= 0)
        other = taken[self.hashes.take(found.take(taken)) != hashes.take(taken)]
        places = places.take(other)
        mask = len(self.slots) - 1
        while len(other):
            places += 1
            places &= mask
            numbers = self.slots.take(places)
            found[other] = numbers
            on = np.flatnonzero((numbers >= 0) & (self.hashes.take(numbers, mode="wrap") != hashes.take(other)))
            other, places = other.take(on), places.take(on)
        return found


class _Hashed:
    """Rows by the hash of their key. ``hashes``: of the rows ``known``, of ``rows`` in all."""

    def __init__(self, hashes: Hashes, known: Ints, rows: int) -> None:
        self._hashes = hashes
        bits = (_SLOTS * len(hashes)).bit_length()
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, -1, _number_type(rows))
        """Places in ``hashes``."""
        self.firsts = self._inserted()
        """For each hash, the place of the one that stands for all that are equal."""
        self.is_first = self.firsts == np.arange(len(hashes))
        self.rows: CodedRows | UniqueRows
        if self.is_first.all():
            self.rows, self._numbers = UniqueRows(rows), known
            return
        self._numbers = np.cumsum(self.is_first) - 1
        codes = self._numbers[self.firsts]
        self.rows = CodedRows(_spread(codes, known, rows), int(self.is_first.sum()))

    def _inserted(self) -> Ints:
        firsts, left = np.arange(len(self._hashes)), np.arange(len(self._hashes))
        places = (self._hashes >> self._shift).astype(np.int64)
        mask = len(self._slots) - 1
        while len(left):
            at = places[left]
            free = self._slots[at] < 0
            self._slots[at[free]] = left[free]  # of several the last one stays
            there = self._slots[at]
            same = self._hashes[there] == self._hashes[left]
            firsts[left[same]] = there[same]
            left = left[~same]
            places[left] = (places[left] + 1) & mask
        return firsts

    def table(self) -> _HashTable:
        """By number, in the place of the slots."""
        taken = np.flatnonzero(self._slots >= 0)
        places = self._slots[taken]
        numbers = self._numbers[places]
        hashes = np.zeros(int(numbers.max(initial=-1)) + 2, np.uint64)
        hashes[numbers] = self._hashes[places]
        slots = np.full(len(self._slots), -1, self._slots.dtype)
        slots[taken] = numbers
        return _HashTable(self._shift, slots, hashes)


def _spread(codes: Rows, known: Ints, rows: int) -> Codes:
    """Codes of the rows ``known`` as one of each row; -1 for the others."""
    spread = np.full(rows, -1, np.int64)
    spread[known] = codes
    return spread


def _number_type(rows: int) -> Any:
    return np.int32 if rows < 1 << 31 else np.int64
