"""As-of joins: beside each left row the one right row whose time is the nearest, in one direction, among those of its key.

The right rows are sorted by key, time and a hash of all their columns, so that of equal times the same one is taken on every
run; each left row finds its place among them by binary search. Nulls match nothing, NaN is the largest number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.model.arrays import Ints
from firesteel.results.keys import KeyTypeError, common_key_type
from firesteel.task.batches import chunked, take_rows
from firesteel.task.operators.grouping import as_integers, content_hashes, is_integral, normalised
from firesteel.task.operators.join import HashJoin
from firesteel.task.operators.ordered.pairs import flat, joined, pairs_at_once
from firesteel.task.operators.ordered.range_join import key_codes, ranks
from firesteel.task.operators.relational import check_columns
from firesteel.task.operators.units import unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

DIRECTIONS = ("backward", "forward", "nearest")


def check_times(left: pa.Schema, right: pa.Schema, on: tuple[str, str]) -> pa.DataType:
    """The type as which the two columns are compared. Raises UsageError where there is none, or no distance in it."""
    check_columns(left, on[:1], "the time of the left side")
    check_columns(right, on[1:], "the time of the right side")
    types = [schema.field(name).type for schema, name in zip((left, right), on, strict=True)]
    hint = "Cast one of the two columns to the other's type."
    try:
        common = common_key_type(*types)
    except KeyTypeError as error:
        raise UsageError(f"The times '{on[0]}' and '{on[1]}' do not fit. {error.message}", hint=error.hint) from None
    measured = is_integral(common) or pa.types.is_floating(common) or pa.types.is_duration(common)
    if not measured or any(pa.types.is_uint64(type_) or pa.types.is_null(type_) for type_ in (common, *types)):
        said = " and ".join(dict.fromkeys(map(str, types)))
        if measured or len(set(types)) == 1:
            hint = "Cast the column: times are timestamps, dates, durations, integers or floats."
        raise UsageError(f"Nothing is near in a column of {said}.", hint=hint)
    return common


@dataclass(frozen=True, slots=True)
class AsOfJoin:
    """Joins two inputs, co-partitioned by ``keys``. ``join`` says what comes out (``how``: left or inner).

    ``on``: the columns of times; ``distance``: the largest one that counts, in units of the type in which both are compared (None:
    any); ``exact``: equal times count.
    """

    name: str
    join: HashJoin
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    on: tuple[str, str]
    direction: str
    distance: Any = None
    exact: bool = True
    unitwise: ClassVar[bool] = False

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """A right side that fits is held, whatever the size of the left one."""
        return nbytes[1] <= limit // 2

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        left, right = inputs
        half = max(unit_limit(ctx) // 2, 1)
        rights = chunked(right.batches(), right.schema, half, 1 << 30)
        first, second = next(rights, right.schema.empty_table()), next(rights, None)
        lefts = chunked(left.batches(), left.schema, half, 1 << 30)
        if second is None:
            yield from self.against_one(lefts, first)
            return
        for rows in lefts:
            yield from self._folded(rows, right, half)

    def _folded(self, left: pa.Table, right: UnitInput, half: int) -> Batches:
        """A right side too large to be held: what is best of each chunk and of those before it, for these left rows."""
        best = right.schema.empty_table()
        for chunk in chunked(right.batches(), right.schema, half, 1 << 30):
            best = pa.concat_tables([best, chunk])
            found = self.partners(left, best)
            best = take_rows(best, np.unique(found[found >= 0]))
        yield from self._joined(left, best)

    def against_one(self, lefts: Iterator[pa.Table], right: pa.Table) -> Batches:
        """The right side in memory, the left one streamed."""
        for left in lefts:
            yield from self._joined(left, right)

    def _joined(self, left: pa.Table, right: pa.Table) -> Batches:
        left, right = flat(left), flat(right)
        found = self.partners(left, right)
        rows = np.arange(len(found)) if self.join.how == "left" else np.flatnonzero(found >= 0)
        at_once = pairs_at_once(left)
        for low in range(0, len(rows), at_once):
            part = rows[low : low + at_once]
            yield joined(self.join, left, part, right, found[part])

    def partners(self, left: pa.Table, right: pa.Table) -> Ints:
        """The number of the right row of each left one; -1: there is none."""
        if not left.num_rows or not right.num_rows:
            return np.full(left.num_rows, -1, np.int64)
        left_codes, right_codes = key_codes(left, right, *self.keys)
        (times,), right_times, n = ranks(left, right, self.on[:1], self.on[1])
        usable = np.flatnonzero((right_codes >= 0) & (right_times > 0))
        places = right_codes[usable] * n + right_times[usable]
        order = np.lexsort((content_hashes(take_rows(right, usable)), places))
        places, rows = places[order], usable[order]
        known, wanted = (left_codes >= 0) & (times > 0), left_codes * n + times

        def at(position: Ints) -> Ints:
            """The right row at this position of its order, where that has the left row's key."""
            there = known & (position >= 0) & (position < len(places))
            there[there] = places[position[there]] // n == left_codes[there]
            found = np.full(len(position), -1, np.int64)
            found[there] = rows[position[there]]
            return found

        before = np.searchsorted(places, wanted, side="right" if self.exact else "left") - 1
        after = np.searchsorted(places, wanted, side="left" if self.exact else "right")
        return self._nearest(left, right, at(before), at(after))

    def _nearest(self, left: pa.Table, right: pa.Table, before: Ints, after: Ints) -> Ints:
        if self.direction != "nearest" and self.distance is None:
            return before if self.direction == "backward" else after
        gone, ahead = self._distances(left, right, before, after)
        if self.distance is not None:
            before = np.where(gone <= self.distance, before, -1)
            after = np.where(ahead <= self.distance, after, -1)
        if self.direction != "nearest":
            return before if self.direction == "backward" else after
        return np.where((before >= 0) & ((after < 0) | (gone <= ahead)), before, after)

    def _distances(
        self, left: pa.Table, right: pa.Table, before: Ints, after: Ints
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """From each left row to these right ones; anything where there is none. Exact: no difference of integers overflows."""
        ours, theirs = self._numbers(left, right)
        return _distance(theirs[before], ours), _distance(ours, theirs[after])

    def _numbers(self, left: pa.Table, right: pa.Table) -> tuple[NDArray[Any], NDArray[Any]]:
        to = common_key_type(left.schema.field(self.on[0]).type, right.schema.field(self.on[1]).type)
        columns = [normalised(left.column(self.on[0]), to), normalised(right.column(self.on[1]), to)]
        if pa.types.is_floating(to):
            return np.asarray(columns[0].fill_null(0.0)), np.asarray(columns[1].fill_null(0.0))
        whole = [c.cast(pa.int64()) if pa.types.is_duration(to) else as_integers(c) for c in columns]
        filled = [np.asarray(c.cast(pa.int64()).fill_null(0)).view(np.uint64) for c in whole]
        return filled[0], filled[1]


def _distance(low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """``high - low``; of floats 0 between equal ones, infinity between NaN and numbers."""
    with np.errstate(all="ignore"):
        distance = high - low
    if distance.dtype.kind == "f":
        distance[np.isnan(distance)] = np.inf
        distance[(low == high) | (np.isnan(low) & np.isnan(high))] = 0.0
    return distance
