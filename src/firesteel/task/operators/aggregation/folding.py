"""Rows merged by key by our own code: before the exchange (a combiner), and after it.

State is bounded everywhere: partial rows are given away when they do not shrink, and groups that exceed a unit are divided into buckets on
local disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.task.batches import chunked, filter_rows, nullable, table_batches, whole
from firesteel.task.operators.grouping import heavy_rows
from firesteel.task.operators.units import MAX_LEVEL, rehash, spool, unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

CHUNK_ROWS = 1 << 18
"""Rows aggregated at once before the exchange: the hash table stays in the cache."""
LEAST_ROWS = 8192
"""Fewer rows than these say nothing about how well partial aggregation shrinks."""
NO_REDUCTION = 0.8
"""A first chunk that keeps more than this share of its rows: later ones are passed through, but for rows of heavy keys."""
OUTPUT_ROWS = 1 << 16


class Folding(Protocol):
    """Rows that can be merged by key."""

    keys: tuple[str, ...]
    partial_schema: pa.Schema

    def to_partial(self, table: pa.Table) -> pa.Table: ...
    def merge(self, table: pa.Table) -> pa.Table: ...
    def finish(self, merged: pa.Table) -> pa.Table: ...


# --- before the exchange ------------------------------------------------------------------------------------------


class ChunkedState:
    """One task's state of a combiner that takes rows in chunks. ``budget``: bytes of the task; ``passing``: whether rows are not worth combining;
    None: a chunk is to show that."""

    def __init__(self, schema: pa.Schema, budget: int, passing: bool | None = None) -> None:
        self._schema, self._budget, self._passing = schema, budget, passing
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        if batch.num_rows == 0:
            return ()
        self._pending.append(batch.select(self._schema.names))
        self._pending_rows += batch.num_rows
        self._pending_bytes += self._pending[-1].nbytes
        if self._pending_rows < CHUNK_ROWS and self._pending_bytes < self._budget // 4:
            return ()
        return self._flush()

    def finish(self) -> Iterable[pa.RecordBatch]:
        return self._flush()

    def _flush(self) -> Iterable[pa.RecordBatch]:
        if not self._pending:
            return ()
        table = whole(self._pending, self._schema)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        return self._of(table)

    def _of(self, table: pa.Table) -> Iterable[pa.RecordBatch]:
        raise NotImplementedError

    def _decide(self, rows: int, combined: int) -> None:
        if self._passing is None and rows >= LEAST_ROWS:
            self._passing = combined > NO_REDUCTION * rows


class FoldingState(ChunkedState):
    """Holds what it has merged, within the budget."""

    def __init__(self, folding: Folding, schema: pa.Schema, budget: int) -> None:
        super().__init__(schema, budget)
        self._folding = folding
        self._pieces: list[pa.Table] = []
        self._pieces_bytes = 0

    def finish(self) -> Iterable[pa.RecordBatch]:
        yield from self._flush()
        if self._pieces:
            yield from table_batches(self._merged(), OUTPUT_ROWS)
        self._pieces = []

    def _of(self, table: pa.Table) -> Iterable[pa.RecordBatch]:
        rows = self._folding.to_partial(table)
        if self._passing:
            return self._passed(rows)
        merged = self._folding.merge(rows)
        self._decide(rows.num_rows, merged.num_rows)
        return self._kept(merged)

    def _passed(self, rows: pa.Table) -> Iterable[pa.RecordBatch]:
        heavy = heavy_rows(rows, self._folding.keys)
        if heavy is None:
            return table_batches(rows, OUTPUT_ROWS)
        relieved = self._kept(self._folding.merge(filter_rows(rows, heavy)))
        return chain(table_batches(filter_rows(rows, pc.invert(heavy)), OUTPUT_ROWS), relieved)

    def _kept(self, merged: pa.Table) -> Iterable[pa.RecordBatch]:
        """Holds the rows; gives some away where they are too many."""
        self._pieces.append(merged)
        self._pieces_bytes += merged.nbytes
        return self._relieve() if self._pieces_bytes > self._budget // 2 else ()

    def _relieve(self) -> Iterable[pa.RecordBatch]:
        merged = self._merged()
        if merged.nbytes > self._budget // 4:
            self._pieces, self._pieces_bytes = [], 0
            return table_batches(merged, OUTPUT_ROWS)
        self._pieces, self._pieces_bytes = [merged], merged.nbytes
        return ()

    def _merged(self) -> pa.Table:
        return self._pieces[0] if len(self._pieces) == 1 else self._folding.merge(pa.concat_tables(self._pieces))


# --- after the exchange -------------------------------------------------------------------------------------------


def fold(folding: Folding, tables: Iterator[pa.Table], ctx: TaskContext, level: int = 0) -> Iterator[pa.Table]:
    """Output of all groups in ``tables`` of partial rows, whatever their size."""
    limit = unit_limit(ctx)
    pieces: list[pa.Table] = []
    held = 0
    for table in tables:
        pieces.append(folding.merge(table))
        held += pieces[-1].nbytes
        if held > limit:
            merged = folding.merge(pa.concat_tables(pieces))
            if merged.nbytes > limit // 2 and merged.num_rows > 1 and level < MAX_LEVEL:
                yield from _divide(folding, _rest(folding, merged, tables), ctx, level)
                return
            pieces, held = [merged], merged.nbytes
            limit = max(limit, 2 * held)  # a state that nothing divides: merged again when it has doubled
    if len(pieces) != 1:
        rows = pa.concat_tables(pieces) if pieces else folding.partial_schema.empty_table()
        pieces = [folding.merge(rows)]
    yield folding.finish(pieces[0])


def fold_rows(folding: Folding, unit: UnitInput, ctx: TaskContext) -> Batches:
    """Output of all groups in the rows of a unit."""
    return _batches(fold(folding, map(folding.to_partial, _chunks(unit, unit.schema, ctx)), ctx))


def fold_partial(folding: Folding, unit: UnitInput, ctx: TaskContext) -> Batches:
    """Output of all groups in the partial rows of a unit."""
    return _batches(fold(folding, _partial_tables(folding, unit, ctx), ctx))


def _batches(tables: Iterable[pa.Table]) -> Batches:
    return chain.from_iterable(table_batches(table, OUTPUT_ROWS) for table in tables)


def _rest(folding: Folding, merged: pa.Table, tables: Iterator[pa.Table]) -> Batches:
    yield from table_batches(merged)
    for table in tables:
        yield from table_batches(folding.merge(table))


def _divide(folding: Folding, batches: Batches, ctx: TaskContext, level: int) -> Iterator[pa.Table]:
    """Groups that do not fit together: by another hash of the keys, bucket by bucket."""
    spooled = spool(batches, nullable(folding.partial_schema), ctx)
    try:
        if not folding.keys:
            yield from fold(folding, _partial_tables(folding, spooled, ctx), ctx, MAX_LEVEL)
            return
        for (bucket,) in rehash([spooled], [folding.keys], level, ctx):
            divided = bucket.nbytes < 0.9 * spooled.nbytes
            yield from fold(folding, _partial_tables(folding, bucket, ctx), ctx, level + 1 if divided else MAX_LEVEL)
    finally:
        spooled.close()


def _partial_tables(folding: Folding, unit: UnitInput, ctx: TaskContext) -> Iterator[pa.Table]:
    return _chunks(unit, nullable(folding.partial_schema), ctx)


def _chunks(unit: UnitInput, schema: pa.Schema, ctx: TaskContext) -> Iterator[pa.Table]:
    return chunked(unit.batches(), schema, max(unit_limit(ctx) // 2, 1), 1 << 20)
