"""Joins by conditions that are no equality (``start <= time``), beside equal keys or without any.

One side's rows are sorted by key and by the column that most conditions look at, so that those that meet these conditions lie
together: two binary searches a row of the other side. What is left of the conditions is tried on these pairs, in chunks of
bounded size. Values compare as they sort: NaN is the largest number and equal to itself, null is never compared with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.model.arrays import Ints
from firesteel.results.keys import KeyTypeError, common_key_type
from firesteel.task.batches import chunked, stable_order
from firesteel.task.operators.grouping import encode, normalised, order_codes, paired_columns
from firesteel.task.operators.join import HashJoin
from firesteel.task.operators.ordered.pairs import emit, flat, joined, only_left, only_right, pairs_at_once
from firesteel.task.operators.relational import check_columns, order_type
from firesteel.task.operators.units import unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "!=": np.not_equal,
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
"""The operator when both sides are exchanged."""
_PAIRS = 1 << 17
"""Candidates that are looked at together."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``, of a column on each side."""

    left: str
    operator: str
    right: str

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


def check_comparison(left: pa.Schema, right: pa.Schema, one: Comparison) -> None:
    """Raises UsageError for columns that are not there or have no common order."""
    check_columns(left, [one.left], "the left side of the join")
    check_columns(right, [one.right], "the right side of the join")
    types = left.field(one.left).type, right.field(one.right).type
    for name, type_ in zip((one.left, one.right), types, strict=True):
        if order_type(type_) is None:
            raise UsageError(f"'{one}' cannot be told: '{name}' is {type_}, which has no order.")
    try:
        common_key_type(*types)
    except KeyTypeError as error:
        raise UsageError(f"'{one}' cannot be told. {error.message}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class RangeJoin:
    """Joins two inputs, co-partitioned by the keys of ``join``, by these and ``conditions``. ``join`` says what comes out."""

    name: str
    join: HashJoin
    conditions: tuple[Comparison, ...]
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return self.join.keys

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """A right side that fits is held, whatever the size of the left one."""
        return nbytes[1] <= limit // 2

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        left, right = inputs
        half = max(unit_limit(ctx) // 2, 1)
        rights = chunked(right.batches(), self.join.right_schema, half, 1 << 30)
        first, second = next(rights, self.join.right_schema.empty_table()), next(rights, None)
        if second is None:
            yield from self.against_one(chunked(left.batches(), self.join.left_schema, half, 1 << 30), first)
            return
        yield from self._nested(left, [first, second], rights, half)

    def against_one(self, lefts: Iterator[pa.Table], right: pa.Table) -> Batches:
        """The right side in memory, the left one streamed."""
        matched = np.zeros(right.num_rows, dtype=bool)
        for left in lefts:
            seen = np.zeros(left.num_rows, dtype=bool)
            yield from self._pairs(left, right, seen, matched)
            yield from self._left_rest(left, seen)
        yield from self._right_rest(right, matched)

    def _nested(self, left: UnitInput, first: list[pa.Table], more: Iterator[pa.Table], half: int) -> Batches:
        """Both sides too large: every chunk of the right against every chunk of the left, read again."""
        flags: list[NDArray[np.bool_]] = []
        for rights in (iter(first), more):
            for right in rights:
                matched = np.zeros(right.num_rows, dtype=bool)
                for i, table in enumerate(chunked(left.batches(), self.join.left_schema, half, 1 << 30)):
                    if i == len(flags):
                        flags.append(np.zeros(table.num_rows, dtype=bool))
                    yield from self._pairs(table, right, flags[i], matched)
                yield from self._right_rest(right, matched)
        lefts = chunked(left.batches(), self.join.left_schema, half, 1 << 30)
        for flag, table in zip(flags, lefts, strict=True):
            yield from self._left_rest(table, flag)

    def _pairs(self, left: pa.Table, right: pa.Table, seen: NDArray[np.bool_], matched: NDArray[np.bool_]) -> Batches:
        """The joined rows of these two; those that have a partner are marked in ``seen`` and ``matched``."""
        if not left.num_rows or not right.num_rows:
            return
        left, right = flat(left), flat(right)
        at_once = min(pairs_at_once(left), pairs_at_once(right))
        for lefts, rights in matching(left, right, self.join.left_keys, self.join.right_keys, self.conditions):
            seen[lefts] = True
            matched[rights] = True
            if self.join.how in ("semi", "anti"):
                continue
            for low in range(0, len(lefts), at_once):
                part = slice(low, low + at_once)
                yield joined(self.join, left, lefts[part], right, rights[part])

    def _left_rest(self, left: pa.Table, seen: NDArray[np.bool_]) -> Batches:
        if self.join.how in ("semi", "anti"):
            yield from emit(left, np.flatnonzero(seen == (self.join.how == "semi")))
        elif self.join.how in ("left", "full"):
            yield from only_left(self.join, left, np.flatnonzero(~seen))

    def _right_rest(self, right: pa.Table, matched: NDArray[np.bool_]) -> Batches:
        if self.join.how in ("right", "full"):
            yield from only_right(self.join, right, np.flatnonzero(~matched))


def matching(
    left: pa.Table,
    right: pa.Table,
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    conditions: Sequence[Comparison],
) -> Iterator[tuple[Ints, Ints]]:
    """The numbers of the left and right rows that go together, in chunks; both tables have rows."""
    ordered = [one for one in conditions if one.operator != "!="]
    lefts, rights = ([getattr(one, side) for one in ordered] for side in ("left", "right"))
    if max(map(lefts.count, lefts), default=0) <= max(map(rights.count, rights), default=0):
        yield from _sorted_right(left, right, left_keys, right_keys, conditions)
        return
    turned = [Comparison(one.right, _TURNED[one.operator], one.left) for one in conditions]
    for right_rows, left_rows in _sorted_right(right, left, right_keys, left_keys, turned):
        yield left_rows, right_rows


def _sorted_right(
    left: pa.Table,
    right: pa.Table,
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    conditions: Sequence[Comparison],
) -> Iterator[tuple[Ints, Ints]]:
    """As :func:`matching`, with the right side in order, by its column in most conditions."""
    left_codes, right_codes = key_codes(left, right, left_keys, right_keys)
    names = [one.right for one in conditions if one.operator != "!="]
    by = max(names, key=names.count, default=None)
    searched = _alike([one for one in conditions if one.right == by and one.operator != "!="], left, right)
    rest = [(one, *ranks(left, right, [one.left], one.right)[:2]) for one in conditions if one not in searched]
    bounds: list[Ints] = []
    values, n = np.ones(right.num_rows, np.int64), 2
    if by is not None:
        bounds, values, n = ranks(left, right, [one.left for one in searched], by)
    usable = np.flatnonzero((right_codes >= 0) & (values > 0))
    places = right_codes[usable] * n + values[usable]
    order = stable_order(places)
    places, rows = places[order], usable[order]
    low, high = left_codes * n, (left_codes + 1) * n
    known = left_codes >= 0
    for one, bound in zip(searched, bounds, strict=True):
        known &= bound > 0
        if one.operator in ("<", "<="):  # the right value is larger: from behind the left one on
            low = np.maximum(low, left_codes * n + bound + (one.operator == "<"))
        else:
            high = np.minimum(high, left_codes * n + bound + (one.operator == ">="))
    begins, ends = np.searchsorted(places, low), np.searchsorted(places, high)
    counts = np.where(known, np.maximum(ends - begins, 0), 0)
    for probes, at in _runs(begins, counts):
        partners = rows[at]
        keep = np.ones(len(probes), dtype=bool)
        for one, (ours,), theirs in rest:
            a, b = ours[probes], theirs[partners]
            keep &= OPERATORS[one.operator](a, b) & (a > 0) & (b > 0)
        yield probes[keep], partners[keep]


def _runs(begins: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(row, place) of each place of each row's run, which has ``counts`` places from ``begins`` on, in chunks."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for low in range(0, total, _PAIRS):
        numbers = np.arange(low, min(low + _PAIRS, total))
        of = np.searchsorted(ends, numbers, side="right")
        yield of, begins[of] + numbers - (ends[of] - counts[of])


def key_codes(
    left: pa.Table, right: pa.Table, left_keys: Sequence[str], right_keys: Sequence[str]
) -> tuple[Ints, Ints]:
    """A number per row, the same for equal keys, -1 for a null. Without keys all rows have the same one."""
    if not left_keys:
        return np.zeros(left.num_rows, np.int64), np.zeros(right.num_rows, np.int64)
    codes, _ = encode(paired_columns(left, left_keys, right, right_keys), nulls_match=False)
    return codes[: left.num_rows], codes[left.num_rows :]


def ranks(left: pa.Table, right: pa.Table, ours: Sequence[str], theirs: str) -> tuple[list[Ints], Ints, int]:
    """Numbers from 1 on, below the last one given, that order as the values of all these columns together do; 0 for null."""
    other = right.column(theirs)
    to = common_key_type(left.schema.field(ours[0]).type, other.type)
    values = pa.concat_arrays([normalised(column, to) for column in (*map(left.column, ours), other)])
    codes, n = order_codes(values, ascending=True)
    *parts, last = np.split(codes, np.cumsum([left.num_rows] * len(ours)))
    return parts, last, n


def _alike(conditions: list[Comparison], left: pa.Table, right: pa.Table) -> list[Comparison]:
    """The conditions that compare with the same column as values of the same type as the first one does."""
    types = [common_key_type(left.schema.field(c.left).type, right.schema.field(c.right).type) for c in conditions]
    return [one for one, type_ in zip(conditions, types, strict=True) if type_.equals(types[0])]
