"""Aggregates that the engine does not compute, those of users and sketches: states beside the keys, made of rows, merged, and finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from firesteel.results.plain import one_chunk
from firesteel.task.batches import nullable, take_rows
from firesteel.task.operators.aggregation.aggregate import Aggregate, Members, State, inputs_of
from firesteel.task.operators.aggregation.folding import FoldingState, fold_partial, fold_rows
from firesteel.task.operators.grouping import Codes, encode, key_columns, normalised
from firesteel.task.program import Batches, TaskContext, UnitInput

Given = tuple[str, Aggregate, str | None]
"""The name of the output, the aggregate, and the column that says which rows count (None: all)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A state in partial rows, whose columns begin with ``name``. ``where``: the column that says which raw rows count, if not all."""

    name: str
    state: State
    where: str | None

    @property
    def names(self) -> list[str]:
        return [f"{self.name}_{place}" for place in range(len(self.state.types))]

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(name, type_) for name, type_ in zip(self.names, self.state.types, strict=True)]

    def of_rows(self, table: pa.Table) -> list[pa.Array]:
        taken = np.ones(table.num_rows, dtype=np.bool_)
        if self.where is not None:
            taken = np.asarray(one_chunk(table.column(self.where).fill_null(False)))
        return self.state.of_rows(inputs_of(table, self.state.columns), taken)

    def merged(self, table: pa.Table, members: Members) -> list[pa.Array]:
        return self.state.merged([one_chunk(table.column(name)) for name in self.names], members)


class States:
    """The partial rows of aggregates over rows of ``schema``: the keys, and behind them the columns of states."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], given: Sequence[Given]) -> None:
        self.keys = tuple(keys)
        self._given = given
        kept: dict[tuple[State, str | None], Kept] = {}
        self._of: list[Kept] = []
        for _, aggregate, where in given:
            state = aggregate.state(schema)
            self._of.append(kept.setdefault((state, where), Kept(f"__state{len(kept)}", state, where)))
        self._kept = list(kept.values())
        fields = [schema.field(key).with_nullable(True) for key in keys]
        self.partial_schema = pa.schema([*fields, *(field for one in self._kept for field in one.fields)])
        self.output_schema = pa.schema(fields + [pa.field(name, agg.type(schema)) for name, agg, _ in given])

    def to_partial(self, table: pa.Table) -> pa.Table:
        """One partial row per raw row."""
        columns = [table.column(key) for key in self.keys]
        columns += [column for kept in self._kept for column in kept.of_rows(table)]
        return pa.Table.from_arrays(columns, schema=self.partial_schema)

    def merge(self, table: pa.Table) -> pa.Table:
        """Partial rows of equal keys become one. Without keys one row, of no rows as well."""
        members, first = _members(table, self.keys)
        columns: list[Any] = [_first_values(table.column(key), first) for key in self.keys]
        columns += [column for kept in self._kept for column in kept.merged(table, members)]
        return pa.Table.from_arrays(columns, schema=nullable(self.partial_schema))

    def finish(self, merged: pa.Table) -> pa.Table:
        columns = [merged.column(key) for key in self.keys]
        fields = list(self.output_schema)[len(self.keys) :]
        for (_, aggregate, _), kept, field in zip(self._given, self._of, fields, strict=True):
            found = aggregate.finished([one_chunk(merged.column(name)) for name in kept.names])
            columns.append(found if found.type == field.type else found.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.output_schema)


def _members(table: pa.Table, keys: Sequence[str]) -> tuple[Members, Codes]:
    """The group of each row, none empty, and the first row of each."""
    if not keys:
        return Members(np.zeros(table.num_rows, dtype=np.int64), 1), np.zeros(0, dtype=np.int64)
    codes, n = encode(key_columns(table, keys))
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


@dataclass(frozen=True, slots=True)
class PartialStates:
    """Combiner: states of a task's rows before they are exchanged. It reads the columns of ``reads`` alone."""

    group_keys: tuple[str, ...]
    given: tuple[Given, ...]
    reads: pa.Schema

    def new(self, ctx: TaskContext) -> FoldingState:
        return FoldingState(States(self.reads, self.group_keys, self.given), self.reads, ctx.memory_budget)


@dataclass(frozen=True)
class AggregateStates:
    """Keyed operator on rows, all of a key in one unit. ``group_keys`` empty: one row, also of no rows. It takes units of any size."""

    name: str
    group_keys: tuple[str, ...]
    given: tuple[Given, ...]
    reads: pa.Schema
    unitwise: ClassVar[bool] = False
    any_size: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    @cached_property
    def folding(self) -> States:
        return States(self.reads, self.group_keys, self.given)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "folding"}

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return fold_rows(self.folding, inputs[0], ctx)


@dataclass(frozen=True)
class MergeStates(AggregateStates):
    """Merges what :class:`PartialStates` wrote."""

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return fold_partial(self.folding, inputs[0], ctx)
