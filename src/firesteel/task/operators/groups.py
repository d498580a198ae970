"""Aggregations of steps as queries: partial rows before an exchange, groups after it.

No other query is one statement with them: what they stop for is an error of the user's rows, and how many rows are left is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.engine.connection import LEFT
from firesteel.engine.files import FileRows
from firesteel.errors import EngineStop, FiresteelError, Stop
from firesteel.task.batches import filter_rows
from firesteel.task.operators.aggregation.folding import NO_REDUCTION, ChunkedState
from firesteel.task.operators.fragments import INPUT, Chain, SqlFragment, SqlOfKeys, Statement
from firesteel.task.operators.grouping import heavy_rows
from firesteel.task.program import Batches, TaskContext, UnitInput

SAMPLE_ROWS = 1 << 16
"""A task's first rows: they show whether partial rows are worth making."""


@dataclass(frozen=True, slots=True)
class PartialRows:
    """Partial rows of an aggregation, before an exchange: a combiner, and an operator where the rows have one way to go.

    ``single``: the text of the query that makes one of each row; empty: there is none. ``by``: the columns by which rows are merged.
    """

    query: SqlFragment
    single: str = ""
    by: tuple[str, ...] = ()
    unitwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def reads(self) -> pa.Schema:
        return self.query.reads

    @property
    def schema(self) -> pa.Schema:
        return self.query.schema

    @property
    def reads_files(self) -> bool:
        return Chain((self.query,)).reads_files

    def new(self, ctx: TaskContext) -> _Chunks:
        return _Chunks(self, ctx)

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        if not self.single:
            yield from self.grouped(batches, ctx)
            return
        first, rows = list[pa.RecordBatch](), 0
        while rows < SAMPLE_ROWS and (batch := next(batches, None)) is not None:
            first.append(batch)
            rows += batch.num_rows
        taken = list(self.grouped(iter(first), ctx))
        if rows < SAMPLE_ROWS:
            yield from taken
        elif not _is_too_many(taken, rows):
            yield from self.grouped(chain(first, batches), ctx)
        else:
            yield from taken
            chunks = _Chunks(self, ctx, passing=True)
            for batch in batches:
                yield from chunks.add(batch)
            yield from chunks.finish()

    def apply_files(self, files: Sequence[FileRows], ctx: TaskContext) -> Batches:
        """Where the first rows are not worth it, the files are read as rows."""
        if self.single and files:
            sample = list(self._rows(f"SELECT * FROM {INPUT} LIMIT {SAMPLE_ROWS}").apply_files(files, ctx))
            rows = sum(batch.num_rows for batch in sample)
            if rows == SAMPLE_ROWS and _is_too_many(self.grouped(iter(sample), ctx), rows):
                return self.apply(iter(self._rows(f"SELECT * FROM {INPUT}").apply_files(files, ctx)), ctx)
        return _as_error_of_rows(self.name, Chain((self.query,)).apply_files(files, ctx))

    def _rows(self, sql: str) -> Chain:
        return Chain((replace(self.query, sql=sql, schema=self.reads),))

    def grouped(self, batches: Batches, ctx: TaskContext) -> Batches:
        return _as_error_of_rows(self.name, self.query.apply(batches, ctx))

    def passed(self, table: pa.Table, ctx: TaskContext) -> Batches:
        """A partial row of each row, but for those of heavy keys."""
        heavy = heavy_rows(table, self.by) if self.by else None
        if heavy is not None:
            yield from self.grouped(iter(filter_rows(table, heavy).to_batches()), ctx)
            table = filter_rows(table, pc.invert(heavy))
        yield from _as_error_of_rows(
            self.name, replace(self.query, sql=self.single).apply(iter(table.to_batches()), ctx)
        )


def _is_too_many(made: Iterable[pa.RecordBatch], rows: int) -> bool:
    return sum(batch.num_rows for batch in made) > NO_REDUCTION * rows


class _Chunks(ChunkedState):
    def __init__(self, partial: PartialRows, ctx: TaskContext, *, passing: bool = False) -> None:
        super().__init__(partial.reads, ctx.memory_budget, passing=None if partial.single and not passing else passing)
        self._partial, self._ctx = partial, ctx

    def _of(self, table: pa.Table) -> list[pa.RecordBatch]:
        if self._passing:
            return list(self._partial.passed(table, self._ctx))
        made = list(self._partial.grouped(iter(table.to_batches()), self._ctx))
        self._decide(table.num_rows, sum(batch.num_rows for batch in made))
        return made


@dataclass(frozen=True, slots=True)
class SqlGroups:
    """The groups of an aggregation. ``in_two``: the same in two steps, where different values are counted; None: not in two."""

    query: SqlOfKeys
    in_two: tuple[CountValues, AddCounts] | None = None
    takes_all: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return self.query.keys

    @property
    def schema(self) -> pa.Schema:
        return self.query.schema

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return _as_error_of_rows(self.name, self.query.apply_unit(inputs, ctx))


@dataclass(frozen=True, slots=True)
class CountValues(SqlGroups):
    """The first of two steps: partial rows with the number of different values in their place.

    ``divided_by``: the columns by whose hash a subpartition may be divided among tasks. ``group_keys``: of the aggregation; ``keys`` are
    those by whose hash its input lies.
    """

    divided_by: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddCounts(SqlGroups):
    """The second step: adds the numbers up, by key. After the first step in one task it is an operator of the chain."""

    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        statement = Statement(ctx, computes=True)
        rows = statement.stream(self.query.reads[0], batches)
        return _as_error_of_rows(self.name, statement.run(self.query.of([rows], [0], statement)))


def _as_error_of_rows(name: str, batches: Batches) -> Batches:
    """The same. Where the engine stops at a value, that is an error of the user's rows: Spark does not compute this step."""
    try:
        yield from batches
    except EngineStop as stop:
        if stop.kind is not Stop.VALUE:
            raise
        said = stop.message.removeprefix("Invalid Input Error: ").removeprefix(LEFT)
        text = said if said.startswith("A sum of column") else f"A value of step '{name}' does not fit its type: {said}"
        raise FiresteelError(text, hint="Cast the column to a wider decimal or to double before.") from stop
