"""Steps that call functions of PySpark's DataFrames: on streams of batches, on arguments of rows, on groups, on pairs of groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from firesteel.task.batches import coalesce, one_chunk, take_rows
from firesteel.task.functions.spark_functions import SparkFunctions, left_to_spark, viewed
from firesteel.task.operators.grouping import Groups, encode, key_columns, paired_columns
from firesteel.task.program import Batches, TaskContext, UnitInput


@dataclass(frozen=True, slots=True)
class Seen:
    """``columns``: those of the input that the function gets, in order; ``schema``: as it sees them."""

    columns: tuple[str, ...]
    schema: pa.Schema

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return viewed(batch, self.columns, self.schema)


@dataclass(frozen=True, slots=True)
class MapBySpark:
    """``mapInArrow``, ``mapInPandas``: rows to other rows, called once for each subtask, also of no rows."""

    name: str
    functions: SparkFunctions
    seen: Seen
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        inputs = (self.functions.shown(self.seen.of(batch)) for batch in self.functions.cut(batches))
        for answer in self.functions.answers(inputs, ctx):
            if answer.num_rows:
                yield relabelled(answer, self.schema)


@dataclass(frozen=True, slots=True)
class EvaluateBySpark:
    """Scalar UDFs: their results as columns behind ``kept`` ones. Called once for each subtask."""

    name: str
    functions: SparkFunctions
    seen: Seen
    kept: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        waiting: deque[pa.RecordBatch] = deque()

        def arguments() -> Iterator[pa.RecordBatch]:
            for batch in self.functions.cut(batches):
                waiting.append(batch.select(list(self.kept)))
                yield self.seen.of(batch)

        for answer in self.functions.answers(arguments(), ctx):
            yield from self._beside(waiting, answer)
        if any(batch.num_rows for batch in waiting):
            raise left_to_spark(self.functions.name, "gave too few rows")

    def _beside(self, waiting: deque[pa.RecordBatch], answer: pa.RecordBatch) -> Batches:
        """The answer's rows beside those they are of: a function of iterators may cut them anew."""
        while answer.num_rows:
            if not waiting:
                raise left_to_spark(self.functions.name, "gave too many rows")
            batch = waiting.popleft()
            n = min(batch.num_rows, answer.num_rows)
            if n < batch.num_rows:
                waiting.appendleft(batch.slice(n))
            columns = [*batch.slice(0, n).columns, *answer.slice(0, n).columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            answer = answer.slice(n)


@dataclass(frozen=True, slots=True)
class _OfGroups:
    name: str
    functions: SparkFunctions
    seen: Seen
    group_keys: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)


@dataclass(frozen=True, slots=True)
class GroupsBySpark(_OfGroups):
    """``applyInPandas``, ``applyInArrow``: each group to rows."""

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = _grouped(inputs[0].table(), self.group_keys)
        answers = self.functions.answers(_batches(groups, self.seen, self.functions), ctx)
        return coalesce(relabelled(answer, self.schema) for answer in answers)


def _results(groups: Groups, seen: Seen, functions: SparkFunctions, ctx: TaskContext) -> pa.Table:
    """All that aggregating UDFs give of the groups."""
    return pa.Table.from_batches(list(functions.answers(_batches(groups, seen, functions), ctx)), functions.gives)


@dataclass(frozen=True, slots=True)
class AggregateBySpark(_OfGroups):
    """Aggregating UDFs: a row for each group, of its keys and results. Of no rows there is none, also without keys."""

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = _grouped(inputs[0].table(), self.group_keys)
        results = _results(groups, self.seen, self.functions, ctx)
        first = groups.starts[groups.codes()]
        if len(first) != results.num_rows:
            raise left_to_spark(self.functions.name, "gave no row for each group")
        keys = take_rows(groups.table.select(list(self.group_keys)), first)
        yield from pa.Table.from_arrays([*keys.columns, *results.columns], schema=self.schema).to_batches()


@dataclass(frozen=True, slots=True)
class WindowBySpark(_OfGroups):
    """Aggregating UDFs over whole partitions: their results behind the ``kept`` columns of each row."""

    kept: tuple[str, ...]

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = _grouped(inputs[0].table(), self.group_keys)
        results = _results(groups, self.seen, self.functions, ctx)
        if groups.table.num_rows != results.num_rows:
            raise left_to_spark(self.functions.name, "gave no result for each row")
        rows = groups.table.select(list(self.kept))
        yield from pa.Table.from_arrays([*rows.columns, *results.columns], schema=self.schema).to_batches()


@dataclass(frozen=True, slots=True)
class CoGroupsBySpark:
    """``cogroup``: the groups of a key on two sides to rows. A side without the key gives no rows."""

    name: str
    functions: SparkFunctions
    seen: tuple[Seen, Seen]
    keys: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        answers = self.functions.answers(self._pairs(inputs), ctx)
        return coalesce(relabelled(answer, self.schema) for answer in answers)

    def _pairs(self, inputs: list[UnitInput]) -> Iterator[tuple[list[pa.RecordBatch], list[pa.RecordBatch]]]:
        left, right = inputs[0].table(), inputs[1].table()
        codes, n = encode(paired_columns(left, self.keys[0], right, self.keys[1]), nulls_match=True)
        sides = Groups(left, codes[: left.num_rows], n), Groups(right, codes[left.num_rows :], n)
        batches = [seen.of(_one(groups.table)) for groups, seen in zip(sides, self.seen, strict=True)]
        for code in np.flatnonzero(sides[0].counts + sides[1].counts).tolist():
            a, b = (
                _cut(batch, groups, code, self.functions.max_rows) for groups, batch in zip(sides, batches, strict=True)
            )
            yield a, b


def relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, which have these types, under the schema."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _grouped(table: pa.Table, keys: tuple[str, ...]) -> Groups:
    if not keys or not table.num_rows:
        return Groups(table, np.zeros(table.num_rows, dtype=np.int64), 1)
    return Groups(table, *encode(key_columns(table, keys), nulls_match=True))


def _batches(groups: Groups, seen: Seen, functions: SparkFunctions) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches of each group."""
    batch = functions.shown(seen.of(_one(groups.table)))
    for code in groups.codes():
        yield iter(_cut(batch, groups, code, functions.max_rows))


def _cut(batch: pa.RecordBatch, groups: Groups, code: int, rows: int) -> list[pa.RecordBatch]:
    """The rows of a group; an empty batch of no rows."""
    start, end = int(groups.starts[code]), int(groups.starts[code + 1])
    return [batch.slice(low, min(rows, end - low)) for low in range(start, max(end, start + 1), rows)]


def _one(table: pa.Table) -> Any:
    if not table.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], part.type) for part in table.schema], schema=table.schema)
    return pa.RecordBatch.from_arrays([one_chunk(column) for column in table.columns], schema=table.schema)
