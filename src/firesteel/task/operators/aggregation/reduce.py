"""``reduce``: the rows of a key folded into one by the user's function, before the exchange and after it.

The function must not care about order: rows come in none that is fixed. It gets two rows and gives one of the same
schema and the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from firesteel.task.batches import nullable, table_batches, take_rows
from firesteel.task.functions.row_errors import FAILS, OnError, RowErrors, bisected, is_of_a_row, row_errors
from firesteel.task.functions.rows import Row, RowBatcher, row_type, rows_of, shown
from firesteel.task.functions.user_code import UserFunctionError, call, complaint
from firesteel.task.operators.aggregation.folding import OUTPUT_ROWS, FoldingState, fold_rows
from firesteel.task.operators.grouping import Groups, encode, grouped, key_columns
from firesteel.task.program import MAX_RECORDS_PER_BATCH, Batches, TaskContext, UnitInput

Reducer = Callable[[Any, Any], Any]


class _Reducing:
    """Folding by the user's function. Rows alone in their group are not looked at in Python."""

    def __init__(self, name: str, fn: Reducer, keys: tuple[str, ...], schema: pa.Schema, ctx: TaskContext) -> None:
        self.keys, self.partial_schema = keys, nullable(schema)
        self._name, self._fn, self._schema, self._ctx = name, fn, schema, ctx
        self._batcher = RowBatcher(name, schema)
        self._make = row_type(tuple(schema.names))
        self._places = [schema.names.index(key) for key in keys]

    def to_partial(self, table: pa.Table) -> pa.Table:
        return pa.Table.from_arrays(table.columns, schema=self.partial_schema)

    def merge(self, table: pa.Table) -> pa.Table:
        if table.num_rows <= 1:
            return table
        groups = grouped(table, self.keys)
        several = np.flatnonzero(groups.counts > 1)
        if not len(several):
            return table
        made = self.made(groups, several, [self.folded(groups.of(code)) for code in several.tolist()])
        alone = take_rows(groups.table, groups.starts[np.flatnonzero(groups.counts == 1)])
        return pa.concat_tables([alone, self.to_partial(pa.Table.from_batches([made]))])

    def made(self, groups: Groups, codes: Any, folded: Sequence[Any]) -> pa.RecordBatch:
        """The function's results for these groups as rows, which must have their keys."""
        batch = self._batcher.batch(folded, self._ctx)
        self._check_keys(groups, codes, batch)
        return batch

    def finish(self, merged: pa.Table) -> pa.Table:
        return pa.Table.from_arrays(merged.columns, schema=self._schema)

    def folded(self, group: pa.Table) -> Any:
        rows = rows_of(group)
        result: Any = next(rows)
        for row in rows:
            if not isinstance(result, Row):
                result = self._as_row(result)
            result = call(self._name, self._ctx, self._fn, result, row)
        return result

    def _as_row(self, result: Any) -> Row:
        """Returns the function's result as the row that it is called with next."""
        if isinstance(result, tuple) and len(result) == len(self._schema.names):
            return self._make(result)
        if isinstance(result, dict) and result.keys() == set(self._schema.names):
            return self._make([result[name] for name in self._schema.names])
        return next(rows_of(self._batcher.batch([result], self._ctx)))

    def _check_keys(self, groups: Groups, codes: Any, made: pa.RecordBatch) -> None:
        """A row of another key would be where nobody looks for it."""
        if not self.keys:
            return
        first = take_rows(groups.table.select(list(self.keys)), groups.starts[codes])
        both = pa.concat_tables([first, self.to_partial(pa.Table.from_batches([made])).select(list(self.keys))])
        all_codes, _ = encode(key_columns(both, self.keys))
        half = len(codes)
        wrong = np.flatnonzero(all_codes[:half] != all_codes[half:])
        if len(wrong):
            before, after = next(rows_of(first.slice(wrong[0], 1))), next(rows_of(both.slice(half + wrong[0], 1)))
            raise complaint(
                self._name,
                f"returned a row of the key {shown(after)} when it was given two of {shown(before)}",
                self._ctx,
                "Let it give back the key of its rows.",
            )


@dataclass(frozen=True)
class ReduceCombiner:
    """Combiner: folds a task's rows before they are exchanged. The schema stays."""

    name: str
    fn: Reducer
    group_keys: tuple[str, ...]
    schema: pa.Schema

    def new(self, ctx: TaskContext) -> FoldingState:
        folding = _Reducing(self.name, self.fn, self.group_keys, self.schema, ctx)
        return FoldingState(folding, self.schema, ctx.memory_budget)


@dataclass(frozen=True)
class Reduce:
    """Keyed operator: one row per key; ``group_keys`` empty: one of all rows, none of none."""

    name: str
    fn: Reducer
    group_keys: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False
    any_size: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return fold_rows(_Reducing(self.name, self.fn, self.group_keys, self.schema, ctx), inputs[0], ctx)


@dataclass(frozen=True)
class ReduceGroups:
    """Keyed operator: the same, where a key whose rows the function cannot fold is no end (``on_error``).

    All rows of a key are in hand then, none folded before the exchange, and must fit in memory: what fails in one place has to go in all.
    """

    name: str
    fn: Reducer
    group_keys: tuple[str, ...]
    schema: pa.Schema
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        table = inputs[0].table()
        if not table.num_rows:
            return
        folding = _Reducing(self.name, self.fn, self.group_keys, self.schema, ctx)
        groups = grouped(table, folding.keys)
        yield from table_batches(
            take_rows(groups.table, groups.starts[np.flatnonzero(groups.counts == 1)]), OUTPUT_ROWS
        )
        with row_errors(self.name, self.on_error, ctx) as errors:
            several = np.flatnonzero(groups.counts > 1)
            for start in range(0, len(several), MAX_RECORDS_PER_BATCH):
                yield from self._reduced(folding, groups, several[start : start + MAX_RECORDS_PER_BATCH], errors)

    def _reduced(self, folding: _Reducing, groups: Groups, codes: Any, errors: RowErrors) -> Batches:
        """Yields a row for each of these groups, but for those that fail."""
        folded: dict[int, Any] = {}
        for code in codes.tolist():
            try:
                folded[code] = folding.folded(groups.of(code))
            except UserFunctionError as error:
                if not is_of_a_row(error):
                    raise
                errors.add_group(self.keys, [groups.of(code)], error)
        done, results = np.fromiter(folded, np.int64, len(folded)), list(folded.values())

        def made(low: int, high: int) -> list[pa.RecordBatch]:
            return [folding.made(groups, done[low:high], results[low:high])]

        def failed(place: int, error: UserFunctionError) -> list[pa.RecordBatch]:
            errors.add_group(self.keys, [groups.of(int(done[place]))], error)
            return []

        if results:
            yield from bisected(0, len(results), made, failed)
