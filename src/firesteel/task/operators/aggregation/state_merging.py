"""Merging rows of equal keys that carry states beside sums, counts and extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.task.batches import nullable, one_chunk, take_rows
from firesteel.task.operators.aggregation.aggregates.aggregate import Members, State, inputs_of
from firesteel.task.operators.aggregation.group_merging import Part, grouped
from firesteel.task.operators.grouping import Codes, encode, key_columns, normalised

_GROUP = "__group"


@dataclass(frozen=True, slots=True)
class Kept:
    """A state in partial rows, whose columns begin with ``name``. ``where``: the column that says which raw rows count, if not all."""

    name: str
    state: State
    where: str

    @property
    def names(self) -> list[str]:
        return [f"{self.name}_{place}" for place in range(len(self.state.types))]

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(name, type_) for name, type_ in zip(self.names, self.state.types, strict=True)]

    def of_rows(self, table: pa.Table) -> list[pa.Array]:
        taken = np.ones(table.num_rows, dtype=np.bool_)
        if self.where:
            taken = np.asarray(one_chunk(table.column(self.where).fill_null(False)))
        return self.state.of_rows(inputs_of(table, self.state.columns), taken)

    def merged(self, table: pa.Table, members: Members) -> list[pa.Array]:
        return self.state.merged([one_chunk(table.column(name)) for name in self.names], members)


def merged_states(table: pa.Table, keys: Sequence[str], parts: Sequence[Part], states: Sequence[Kept]) -> pa.Table:
    """``table`` with one row per key. Columns: keys, parts, states. Without keys one row, of no rows as well."""
    members, first = _members(table, keys)
    columns: list[Any] = [_first_values(table.column(key), first) for key in keys]
    columns += _parts(table, members, parts, bool(keys))
    columns += [column for kept in states for column in kept.merged(table, members)]
    names = [*keys, *(part.name for part in parts), *(name for kept in states for name in kept.names)]
    return pa.Table.from_arrays(columns, schema=nullable(table.select(names).schema))


def _members(table: pa.Table, keys: Sequence[str]) -> tuple[Members, Codes]:
    """The group of each row, none empty, and the first row of each."""
    if not keys:
        return Members(np.zeros(table.num_rows, dtype=np.int64), 1), np.zeros(0, dtype=np.int64)
    codes, n = encode(key_columns(table, keys), nulls_match=True)
    there = np.bincount(codes, minlength=n) > 0
    codes = (np.cumsum(there) - 1)[codes]
    first = np.zeros(int(there.sum()), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return Members(codes, len(first)), first


def _first_values(column: Any, first: Codes) -> Any:
    """A key of each group. Of zeros and NaN the one that stands for all, whichever came first."""
    if pa.types.is_floating(column.type):
        return normalised(column).cast(column.type).take(pa.array(first))
    return take_rows(pa.table([column], ["key"]), first).column(0)


def _parts(table: pa.Table, members: Members, parts: Sequence[Part], keyed: bool) -> list[Any]:
    if not parts:
        return []
    measured = table.select([part.name for part in parts])
    if not keyed:
        return list(grouped(measured, (), (), parts).columns)
    found = grouped(measured.append_column(_GROUP, pa.array(members.codes)), [_GROUP], (), parts)
    codes = np.asarray(one_chunk(found.column(_GROUP)))
    found = found.drop_columns([_GROUP])
    return list((found if (np.diff(codes) > 0).all() else take_rows(found, np.argsort(codes))).columns)
