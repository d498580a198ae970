"""Every kind of equi-join, on rows of any type.

Keys of both sides become dense integer codes; codes give pairs of row numbers, in chunks of bounded size however
skewed a key is; pairs give rows by ``take``. SQL's nulls never match; NaN matches NaN, -0.0 matches 0.0.
One side at least stays bounded: beyond a unit the right side is read chunk by chunk, and the left one against each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.results.keys import KeyTypeError, common_key_type
from firesteel.task.batches import chunked, one_chunk, take, take_rows
from firesteel.task.operators.grouping import encode, paired_columns
from firesteel.task.operators.key_index import CodedRows, Rows
from firesteel.task.operators.relational import check_columns
from firesteel.task.operators.units import unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

HOWS = ("inner", "left", "right", "full", "semi", "anti")
_SPELLINGS = {
    "inner": "inner", "left": "left", "leftouter": "left", "right": "right", "rightouter": "right",
    "full": "full", "outer": "full", "fullouter": "full", "semi": "semi", "leftsemi": "semi", "anti": "anti", "leftanti": "anti",
}  # fmt: skip
_DIVISIBLE = {
    "inner": (True, True),
    "left": (True, False),
    "semi": (True, False),
    "anti": (True, False),
    "right": (False, True),
}
_OUTPUT_BYTES = 4 << 20
_MIN_PAIRS, _MAX_PAIRS = 1 << 10, 1 << 17


def join_kind(how: str) -> str:
    """One of ``HOWS`` for any of Spark's and pyarrow's spellings. Raises UsageError."""
    kind = _SPELLINGS.get(how.lower().replace("_", "").replace(" ", ""))
    if kind is None:
        raise UsageError(f"There is no join of kind '{how}'.", hint=f"There are {', '.join(HOWS)}.")
    return kind


def join_schema(  # noqa: PLR0917
    left: pa.Schema,
    right: pa.Schema,
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    how: str,
    suffix: str = "_right",
) -> pa.Schema:
    """All left columns, then the right ones without the right keys, a clashing one under a name of :func:`right_names`; semi,
    anti: the left ones.

    In right and full joins the left key columns hold the right key where there is no left row; when the two differ
    in type they take the type that holds both. No keys: rows are compared in another way. Raises UsageError for unknown or
    incomparable keys.
    """
    kind = join_kind(how)
    _check_keys(left, right, left_keys, right_keys)
    if kind in ("semi", "anti"):
        return left
    left_nullable, right_nullable = kind in ("right", "full"), kind in ("left", "full")
    pairs = dict(zip(left_keys, right_keys, strict=True))
    fields = []
    for field in left:
        if field.name in pairs and left_nullable:
            fields.append(pa.field(field.name, _common_type(field.type, right.field(pairs[field.name]).type), True))
        else:
            fields.append(field.with_nullable(field.nullable or left_nullable))
    names = right_names(left, right, right_keys, suffix)
    for field, name in zip(payload(right, right_keys), names, strict=True):
        fields.append(field.with_name(name).with_nullable(field.nullable or right_nullable))
    return pa.schema(fields)


def right_names(left: pa.Schema, right: pa.Schema, right_keys: Sequence[str], suffix: str) -> list[str]:
    """The names of the right side's columns in the join's result, all different: its own where the left side has none such,
    else with ``suffix``; where that is taken too, by a column of either side, with ``suffix`` and the first free number
    from 2 on."""
    own = [field.name for field in payload(right, right_keys)]
    taken = {*left.names, *(name for name in own if left.get_field_index(name) < 0)}
    names: list[str] = []
    for name in own:
        if left.get_field_index(name) >= 0:
            tried = (
                f"{name}{suffix}{number}" for number in itertools.chain([""], (f"_{n}" for n in itertools.count(2)))
            )
            name = next(new for new in tried if new not in taken)  # noqa: PLW2901
            taken.add(name)
        names.append(name)
    return names


def payload(right: pa.Schema, right_keys: Sequence[str]) -> list[pa.Field]:
    """The right side's columns in the join's result."""
    keys = set(right_keys)
    return [field for field in right if field.name not in keys]


def _check_keys(left: pa.Schema, right: pa.Schema, left_keys: Sequence[str], right_keys: Sequence[str]) -> None:
    if len(left_keys) != len(right_keys):
        raise UsageError(
            f"A join needs as many keys on the left ({len(left_keys)}) as on the right ({len(right_keys)})."
        )
    check_columns(left, left_keys, "the left join keys")
    check_columns(right, right_keys, "the right join keys")
    for a, b in zip(left_keys, right_keys, strict=True):
        try:
            common_key_type(left.field(a).type, right.field(b).type)
        except KeyTypeError as error:
            raise UsageError(f"The join keys '{a}' and '{b}' do not fit. {error.message}", hint=error.hint) from None


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """A type that holds the keys of both sides."""
    if left == right:
        return left
    left, right = _plain(left), _plain(right)
    if left == right or pa.types.is_nested(left) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_timestamp(left):
        return pa.timestamp(_finer(left.unit, right.unit), left.tz)
    if pa.types.is_duration(left):
        return pa.duration(_finer(left.unit, right.unit))
    return common_key_type(left, right)


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _finer(unit: str, other: str) -> str:
    return max(unit, other, key=("s", "ms", "us", "ns").index)


def divisible_sides(how: str) -> tuple[bool, bool]:
    """``HashJoin.divisible`` of a join of this kind."""
    return _DIVISIBLE.get(how, (False, False))


def divisibility_of(how: str) -> list[tuple[bool, str]]:
    """:func:`divisible_sides`, each with the reason in words where it may not be divided."""
    may = divisible_sides(how)
    sides = [side for side, each in zip(("left", "right"), may, strict=True) if each]
    why = f"{f'only {sides[0]}' if sides else 'no'} rows may be in a join of kind '{how}'"
    return [(each, "" if each else why) for each in may]


@dataclass(frozen=True, slots=True)
class HashJoin:
    """Joins two co-partitioned inputs. ``schema`` is what :func:`join_schema` gives."""

    name: str
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_schema: pa.Schema
    right_schema: pa.Schema
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.left_keys, self.right_keys)

    @property
    def divisible(self) -> tuple[bool, bool]:
        """Of each side: True if its rows of one key may be joined in parts, each with all rows of the other side that have it:
        not where a row of the other side is given once only, or told to be alone, whatever parts it meets."""
        return divisible_sides(self.how)

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        """A right side that fits is held, whatever the size of the left one."""
        return nbytes[1] <= limit // 2

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        left, right = inputs
        half = max(unit_limit(ctx) // 2, 1)
        rights = chunked(right.batches(), self.right_schema, half, 1 << 30)
        first, second = next(rights, self.right_schema.empty_table()), next(rights, None)
        lefts = chunked(left.batches(), self.left_schema, half, 1 << 30)
        if second is None:
            return self._against_one(lefts, first)
        return self._nested(left, itertools.chain([first, second], rights), half)

    def _against_one(self, lefts: Iterator[pa.Table], right: pa.Table) -> Batches:
        """The right side in memory, the left one streamed."""
        matched = np.zeros(right.num_rows, dtype=bool)
        for left in lefts:
            match = _Match(self, left, right)
            if self.how in ("right", "full"):
                matched |= match.right_matched()
            if self.how in ("semi", "anti"):
                yield from emit(left, np.flatnonzero(match.left_matched() == (self.how == "semi")))
            else:
                yield from match.pairs(keep_left=self.how in ("left", "full"))
        if self.how in ("right", "full"):
            yield from self.only_right(right, np.flatnonzero(~matched))

    def _nested(self, left: UnitInput, rights: Iterator[pa.Table], half: int) -> Batches:
        """Both sides too large (a giant key): every chunk of the right against every chunk of the left, read again."""
        flags: list[NDArray[np.bool_]] = []
        for right in rights:
            matched = np.zeros(right.num_rows, dtype=bool)
            for i, table in enumerate(chunked(left.batches(), self.left_schema, half, 1 << 30)):
                match = _Match(self, table, right)
                if i == len(flags):
                    flags.append(np.zeros(table.num_rows, dtype=bool))
                flags[i] |= match.left_matched()
                matched |= match.right_matched()
                if self.how not in ("semi", "anti"):
                    yield from match.pairs(keep_left=False)
            if self.how in ("right", "full"):
                yield from self.only_right(right, np.flatnonzero(~matched))
        if self.how in ("inner", "right"):
            return
        for flag, table in zip(flags, chunked(left.batches(), self.left_schema, half, 1 << 30), strict=True):
            rows = np.flatnonzero(flag == (self.how == "semi"))
            yield from emit(table, rows) if self.how in ("semi", "anti") else self.only_left(table, rows)

    def only_left(self, left: pa.Table, rows: Rows) -> Batches:
        nothing = self.right_schema.empty_table()
        for part in _parts(rows, pairs_at_once(left)):
            yield self.joined(left, part, nothing, np.full(len(part), -1, dtype=np.int64))

    def only_right(self, right: pa.Table, rows: Rows) -> Batches:
        nothing = self.left_schema.empty_table()
        for part in _parts(rows, pairs_at_once(right)):
            yield self.joined(nothing, np.full(len(part), -1, dtype=np.int64), right, part)

    def joined(self, left: pa.Table, left_rows: Rows, right: pa.Table, right_rows: Rows) -> pa.RecordBatch:
        """Output rows of these pairs of row numbers; -1 stands for no row."""
        left_index, right_index = row_indices(left_rows), row_indices(right_rows)
        pairs = dict(zip(self.left_keys, self.right_keys, strict=True))
        sources: list[tuple[Any, Any]] = []
        for name in self.left_schema.names:
            if left.num_rows:
                sources.append((left.column(name), left_index))
            else:
                sources.append((right.column(pairs[name]), right_index) if name in pairs else (None, None))
        for field in payload(self.right_schema, self.right_keys):
            sources.append((right.column(field.name), right_index) if right.num_rows else (None, None))
        columns = [
            pa.nulls(len(left_rows), field.type)
            if column is None
            else _cast(take(one_chunk(column), index), field.type)
            for field, (column, index) in zip(self.schema, sources, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class _Match:
    """Rows of two tables that have equal keys."""

    def __init__(self, join: HashJoin, left: pa.Table, right: pa.Table) -> None:
        self._join = join
        self._left, self._right = flat(left), flat(right)
        both = paired_columns(left, join.left_keys, right, join.right_keys)
        codes, n = encode(both, nulls_match=False)
        self._left_codes = codes[: left.num_rows]
        self._rights = CodedRows(codes[left.num_rows :], n)

    def left_matched(self) -> NDArray[np.bool_]:
        return self._rights.matches(self._left_codes) > 0

    def right_matched(self) -> NDArray[np.bool_]:
        return self._rights.matched_by(self._left_codes)

    def pairs(self, *, keep_left: bool) -> Batches:
        """Joined rows in the order of the left side. ``keep_left``: rows without a match too, with nulls."""
        at_once = min(pairs_at_once(self._left), pairs_at_once(self._right))
        for left_rows, right_rows in self._rights.pairs(self._left_codes, at_once, keep=keep_left):
            yield self._join.joined(self._left, left_rows, self._right, right_rows)


def flat(table: pa.Table) -> pa.Table:
    """One chunk per column, so that a take of pairs does not look for the chunk of each."""
    return pa.Table.from_arrays([one_chunk(column) for column in table.columns], schema=table.schema)


def row_indices(rows: Rows) -> pa.Array:
    """Indices for ``take``: null for no row."""
    return pa.array(rows, mask=rows < 0) if len(rows) and rows.min() < 0 else pa.array(rows)


def _cast(column: Any, type_: pa.DataType) -> Any:
    return column if column.type == type_ else column.cast(type_)


def _parts(rows: Rows, at_once: int) -> Iterator[Rows]:
    for low in range(0, len(rows), at_once):
        yield rows[low : low + at_once]


def pairs_at_once(table: pa.Table) -> int:
    """Output rows per batch: about 4 MiB of this side's rows."""
    row_bytes = table.nbytes / max(table.num_rows, 1)
    return int(min(max(_OUTPUT_BYTES / max(row_bytes, 1), _MIN_PAIRS), _MAX_PAIRS))


def emit(table: pa.Table, rows: Rows) -> Batches:
    for part in _parts(rows, pairs_at_once(table)):
        yield from take_rows(table, part).to_batches()
