"""Aggregation by key: before the exchange (a combiner), after it, or all at once; and distinct rows.

State is bounded everywhere: partial aggregation gives rows away when they do not shrink, and the final one divides groups that
exceed a unit into buckets on local disk, in partial form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.task.batches import chunked, filter_rows, nullable, table_batches, take_rows, whole
from firesteel.task.operators.aggregation.aggregate_plan import AGGREGATES, Aggregation, Plan, check_aggregations
from firesteel.task.operators.aggregation.aggregates.aggregate import depends_on_order
from firesteel.task.operators.aggregation.heavy import heavy_rows
from firesteel.task.operators.grouping import encode, first_rows, key_columns
from firesteel.task.operators.units import MAX_LEVEL, rehash, spool, unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

__all__ = [
    "AGGREGATES", "Aggregation", "Distinct", "DistinctCombiner", "FinalAggregate", "FullAggregate", "PartialAggregate",
    "aggregate_schema", "check_aggregations", "partial_schema",
]  # fmt: skip

CHUNK_ROWS = 1 << 18
"""Rows aggregated at once before the exchange: the hash table stays in the cache."""
SAMPLE_ROWS = 8192
"""Fewer rows than these say nothing about how well partial aggregation shrinks."""
NO_REDUCTION = 0.8
"""A first chunk that keeps more than this share of its rows: later ones are passed through, but for rows of heavy keys."""
OUTPUT_ROWS = 1 << 16


def aggregate_schema(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> pa.Schema:
    """Output of the aggregation: the keys, then the aggregates. Raises UsageError."""
    return Plan(schema, keys, aggs).output_schema


def partial_schema(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> pa.Schema:
    """Returns the schema that :class:`PartialAggregate` writes and :class:`FinalAggregate` reads."""
    return Plan(schema, keys, aggs).partial_schema


class Folding(Protocol):
    """Rows that can be merged by key."""

    keys: tuple[str, ...]
    partial_schema: pa.Schema

    def to_partial(self, table: pa.Table) -> pa.Table: ...
    def merge(self, table: pa.Table) -> pa.Table: ...
    def finish(self, merged: pa.Table) -> pa.Table: ...


# --- before the exchange ------------------------------------------------------------------------------------------


class FoldingState:
    """One task's state of a combiner; ``budget`` bytes bound what it holds."""

    def __init__(self, folding: Folding, schema: pa.Schema, budget: int) -> None:
        self._folding, self._schema, self._budget = folding, schema, budget
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._pieces: list[pa.Table] = []
        self._pieces_bytes = 0
        self._passing: bool | None = None
        values = folding.distincts if isinstance(folding, Plan) else ()
        self._merged_by = [*folding.keys, *(value.name for value in values)]
        self._spread = folding.spread if isinstance(folding, Plan) else None

    def add(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        if batch.num_rows == 0:
            return ()
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_rows < CHUNK_ROWS and self._pending_bytes < self._budget // 4:
            return ()
        return self._flush()

    def finish(self) -> Iterable[pa.RecordBatch]:
        yield from self._flush()
        if self._pieces:
            yield from table_batches(self._merged(), OUTPUT_ROWS)
        self._pieces = []

    def _flush(self) -> Iterable[pa.RecordBatch]:
        if not self._pending:
            return ()
        rows = self._folding.to_partial(whole(self._pending, self._schema))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if self._passing:
            return self._passed(rows)
        merged = self._folding.merge(rows)
        if self._passing is None and rows.num_rows >= SAMPLE_ROWS:
            self._passing = merged.num_rows > NO_REDUCTION * rows.num_rows
        return self._kept(merged)

    def _passed(self, rows: pa.Table) -> Iterable[pa.RecordBatch]:
        heavy = heavy_rows(rows, self._merged_by)
        if heavy is None:
            return self._given(rows)
        relieved = self._kept(self._folding.merge(filter_rows(rows, heavy)))
        return chain(self._given(filter_rows(rows, pc.invert(heavy))), relieved)

    def _given(self, rows: pa.Table) -> Iterable[pa.RecordBatch]:
        return table_batches(rows if self._spread is None else self._spread(rows), OUTPUT_ROWS)

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


@dataclass(frozen=True)
class PartialAggregate:
    """Combiner: aggregates a task's rows before they are exchanged. Writes rows of :func:`partial_schema`."""

    group_keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    input_schema: pa.Schema

    def new(self, ctx: TaskContext) -> FoldingState:
        plan = Plan(self.input_schema, self.group_keys, self.aggregations)
        return FoldingState(plan, self.input_schema, ctx.memory_budget)


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


def _rest(folding: Folding, merged: pa.Table, tables: Iterator[pa.Table]) -> Batches:
    yield from table_batches(merged)
    for table in tables:
        yield from table_batches(folding.merge(table))


def _divide(folding: Folding, batches: Batches, ctx: TaskContext, level: int) -> Iterator[pa.Table]:
    """Groups that do not fit together: by another hash of the keys, bucket by bucket."""
    spooled = spool(batches, nullable(folding.partial_schema), ctx)
    try:
        if not folding.keys:
            yield from _fold_values(folding, spooled, ctx, level)
            return
        for (bucket,) in rehash([spooled], [folding.keys], level, ctx):
            if bucket.nbytes < 0.9 * spooled.nbytes:
                yield from fold(folding, _partial_tables(folding, bucket, ctx), ctx, level + 1)
            else:
                yield from _fold_values(folding, bucket, ctx, level + 1)
    finally:
        spooled.close()


def _fold_values(folding: Folding, rows: UnitInput, ctx: TaskContext, level: int) -> Iterator[pa.Table]:
    """One giant group: its distinct values are counted bucket by bucket of the values, and the counts added."""
    if not isinstance(folding, Plan) or not folding.distincts:
        yield from fold(folding, _partial_tables(folding, rows, ctx), ctx, MAX_LEVEL)
        return
    counted: pa.Table | None = None
    for piece in _counted(folding, rows, ctx, level):
        counted = piece if counted is None else folding.merge_counts(pa.concat_tables([counted, piece]))
    if counted is not None:
        yield folding.outputs(counted)


def _counted(plan: Plan, rows: UnitInput, ctx: TaskContext, level: int) -> Iterator[pa.Table]:
    """Counts over disjoint sets of values; a bucket that is too large still is divided again."""
    names = [*plan.keys, *(part.name for part in plan.distincts)]
    for (bucket,) in rehash([rows], [names], level, ctx):
        if bucket.nbytes > unit_limit(ctx) and bucket.nbytes < 0.9 * rows.nbytes and level < MAX_LEVEL:
            yield from _counted(plan, bucket, ctx, level + 1)
            continue
        merged = nullable(plan.partial_schema).empty_table()
        for table in _partial_tables(plan, bucket, ctx):
            merged = plan.merge(pa.concat_tables([merged, table]))
        yield plan.merge_counts(plan.count_values(merged))


def _partial_tables(folding: Folding, unit: UnitInput, ctx: TaskContext) -> Iterator[pa.Table]:
    return chunked(unit.batches(), nullable(folding.partial_schema), max(unit_limit(ctx) // 2, 1), 1 << 20)


@dataclass(frozen=True)
class _Folded:
    """A keyed operator on one input whose rows fold by key; takes units of any size."""

    unitwise: ClassVar[bool] = False

    @property
    def folding(self) -> Folding:
        raise NotImplementedError

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        return True

    def _tables(self, unit: UnitInput, ctx: TaskContext) -> Iterator[pa.Table]:
        tables = chunked(unit.batches(), unit.schema, max(unit_limit(ctx) // 2, 1), 1 << 20)
        return (self.folding.to_partial(table) for table in tables)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        for table in fold(self.folding, self._tables(inputs[0], ctx), ctx):
            yield from table_batches(table, OUTPUT_ROWS)


@dataclass(frozen=True)
class FullAggregate(_Folded):
    """Aggregates raw rows, all of a key in one unit. ``group_keys`` empty: one row, also of no rows (behind ``global_``)."""

    name: str
    group_keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    input_schema: pa.Schema

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    @property
    def folding(self) -> Folding:
        return self._plan

    @property
    def order_dependent(self) -> list[str]:
        """Outputs that may be others where the same rows come in another order."""
        return [agg.output for agg in self.aggregations if agg.by is not None and depends_on_order(agg.by)]

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.input_schema, self.group_keys, self.aggregations)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_plan"}


@dataclass(frozen=True)
class FinalAggregate(FullAggregate):
    """Merges what :class:`PartialAggregate` wrote. ``input_schema`` is that of the raw rows."""

    def _tables(self, unit: UnitInput, ctx: TaskContext) -> Iterator[pa.Table]:
        return _partial_tables(self.folding, unit, ctx)


# --- distinct -------------------------------------------------------------------------------------------------------


class OneRowPerKey:
    """Folding that keeps one row of each key, of those that it has seen: which, says ``_chosen``."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        self.keys, self.partial_schema = keys, nullable(schema)
        self._schema = schema

    def to_partial(self, table: pa.Table) -> pa.Table:
        return pa.Table.from_arrays(table.columns, schema=self.partial_schema)

    def merge(self, table: pa.Table) -> pa.Table:
        if table.num_rows <= 1:
            return table
        codes, n = encode(key_columns(table, self.keys), nulls_match=True)
        rows = self._chosen(table, codes, n)
        return table if len(rows) == table.num_rows else take_rows(table, rows)

    def finish(self, merged: pa.Table) -> pa.Table:
        return pa.Table.from_arrays(merged.columns, schema=self._schema)

    def _chosen(self, table: pa.Table, codes: Any, keys: int) -> Any:
        """Ascending places of the rows to keep. ``codes``: the number of each row's key, below ``keys``."""
        return first_rows(codes, keys)


@dataclass(frozen=True)
class Distinct(_Folded):
    """One row per key: the first met. ``distinct_keys``: all columns for SQL's DISTINCT."""

    name: str
    distinct_keys: tuple[str, ...]
    schema: pa.Schema

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.distinct_keys,)

    @property
    def folding(self) -> Folding:
        return OneRowPerKey(self.schema, self.distinct_keys)


@dataclass(frozen=True)
class DistinctCombiner:
    """Combiner: drops a task's duplicates before the exchange. The schema stays."""

    distinct_keys: tuple[str, ...]
    schema: pa.Schema

    def new(self, ctx: TaskContext) -> FoldingState:
        return FoldingState(OneRowPerKey(self.schema, self.distinct_keys), self.schema, ctx.memory_budget)
