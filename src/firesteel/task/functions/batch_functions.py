"""The user's batch functions: PySpark's mapInArrow and mapInPandas.

Called once per subtask, also when it has no rows, with an iterator of batches of at most 10,000 rows. Where a row that cannot be done
is no end (``on_error``), called for each batch alone, and again for halves of one that fails, down to the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.task.batches import reslice
from firesteel.task.functions.pandas_conversion import from_dataframe, require_pandas, to_dataframe
from firesteel.task.functions.row_errors import FAILS, OnError, RowErrors, bisected, row_errors
from firesteel.task.functions.rows import RowBatcher
from firesteel.task.functions.user_code import Conformer, UserFunctionError, call_on_batches
from firesteel.task.program import MAX_RECORDS_PER_BATCH, Batches, TaskContext


@dataclass(frozen=True, slots=True)
class MapInArrow:
    """``fn(Iterator[pa.RecordBatch], **side inputs as pa.Table) -> Iterator[pa.RecordBatch]``."""

    name: str
    fn: Callable[..., Iterable[pa.RecordBatch]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    by_position: bool = False
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        conformer = Conformer(self.name, self.schema, by_name=not self.by_position)
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}

        def called(source: Batches) -> Batches:
            for item in call_on_batches(self.name, ctx, self.fn, source, side):
                batch = conformer.batch(item, ctx)
                if batch is not None and batch.num_rows:
                    yield batch

        return _on_batches(self, called, batches, ctx)


@dataclass(frozen=True, slots=True)
class MapInPandas:
    """``fn(Iterator[pd.DataFrame], **side inputs as pd.DataFrame) -> Iterator[pd.DataFrame]``."""

    name: str
    fn: Callable[..., Iterable[Any]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_pandas("map_in_pandas")

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        side = {name: to_dataframe(ctx.side_inputs[name]) for name in self.side_inputs}

        def called(source: Batches) -> Batches:
            for item in call_on_batches(self.name, ctx, self.fn, map(to_dataframe, source), side):
                batch = from_dataframe(self.name, item, self.schema, ctx, truncate=True)
                if batch is not None and batch.num_rows:
                    yield batch

        return _on_batches(self, called, batches, ctx)


def _on_batches(
    step: MapInArrow | MapInPandas, called: Callable[[Batches], Batches], batches: Batches, ctx: TaskContext
) -> Batches:
    """Yields what the function gives for all batches; ``called`` calls it on some."""
    source = reslice(batches, MAX_RECORDS_PER_BATCH)
    return called(source) if step.on_error.fails else _tolerant(step, called, source, ctx)


def _tolerant(
    step: MapInArrow | MapInPandas, called: Callable[[Batches], Batches], batches: Batches, ctx: TaskContext
) -> Batches:
    nulls = RowBatcher(step.name, step.schema)
    with row_errors(step.name, step.on_error, ctx) as errors:
        for batch in batches:
            yield from _bisected(batch, called, errors, nulls, ctx)


def _bisected(
    batch: pa.RecordBatch,
    called: Callable[[Batches], Batches],
    errors: RowErrors,
    nulls: RowBatcher,
    ctx: TaskContext,
) -> Batches:
    def work(low: int, high: int) -> Batches:
        return called(iter([batch.slice(low, high - low)]))

    def failed(place: int, error: UserFunctionError) -> list[pa.RecordBatch]:
        errors.add(batch, place, error)
        instead = errors.instead(nulls)
        return [nulls.batch(instead, ctx)] if instead else []

    return bisected(0, batch.num_rows, work, failed)
