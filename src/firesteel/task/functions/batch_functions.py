"""The user's batch functions: PySpark's mapInArrow and mapInPandas.

Called once per subtask, also when it has no rows, with an iterator of batches: of the size that was asked for, else of
at most 10,000 rows and 64 MiB, small ones joined. Where a row that cannot be done
is no end (``on_error``), called for each batch alone, and again for halves of one that fails, down to the row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.task.batches import DEFAULT_SIZE, BatchSize, closing, sized
from firesteel.task.functions.instances import ready
from firesteel.task.functions.pandas_conversion import from_dataframe, require_pandas, to_dataframe
from firesteel.task.functions.row_errors import FAILS, OnError, RowErrors, bisected, row_errors
from firesteel.task.functions.rows import RowBatcher
from firesteel.task.functions.user_code import Conformer, UserFunctionError, call_on_batches
from firesteel.task.overlap import ahead
from firesteel.task.program import Batches, TaskContext


def input_batches(batches: Batches, size: BatchSize, ctx: TaskContext) -> Batches:
    """The same rows in batches of this size, ``ctx.place`` being that of each: several places, where they were joined."""
    arrived: deque[tuple[str, int]] = deque()

    def noted() -> Batches:
        for batch in batches:
            if batch.num_rows:
                arrived.append((ctx.place, batch.num_rows))
                yield batch

    for batch in sized(noted(), size):
        reading, ctx.place = ctx.place, _place_of(batch.num_rows, arrived)
        yield batch
        ctx.place = reading


def _place_of(rows: int, arrived: deque[tuple[str, int]]) -> str:
    """Returns the places that so many rows are from, and takes them off those that have arrived."""
    first = last = arrived[0][0]
    while rows:
        last, there = arrived.popleft()
        if there > rows:
            arrived.appendleft((last, there - rows))
        rows -= min(rows, there)
    return last if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class MapInArrow:
    """``fn(Iterator[pa.RecordBatch], **side inputs as pa.Table) -> Iterator[pa.RecordBatch]``."""

    name: str
    fn: Callable[..., Iterable[pa.RecordBatch]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    by_position: bool = False
    on_error: OnError = FAILS
    size: BatchSize = DEFAULT_SIZE
    prefetch: int = 0
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        conformer = Conformer(self.name, self.schema, by_name=not self.by_position)
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}
        fn = ready(self.name, self.fn, ctx)

        def called(source: Iterator[Any]) -> Batches:
            for item in call_on_batches(self.name, ctx, fn, source, side):
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
    size: BatchSize = DEFAULT_SIZE
    prefetch: int = 0
    unitwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_pandas("map_in_pandas")

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        side = {name: to_dataframe(ctx.side_inputs[name]) for name in self.side_inputs}
        fn = ready(self.name, self.fn, ctx)

        def called(source: Iterator[Any]) -> Batches:
            for item in call_on_batches(self.name, ctx, fn, source, side):
                batch = from_dataframe(self.name, item, self.schema, ctx, truncate=True)
                if batch is not None and batch.num_rows:
                    yield batch

        return _on_batches(self, called, batches, ctx, to_dataframe)


def _on_batches(
    step: MapInArrow | MapInPandas,
    called: Callable[[Iterator[Any]], Batches],
    batches: Batches,
    ctx: TaskContext,
    converted: Callable[[pa.RecordBatch], Any] | None = None,
) -> Batches:
    """Yields what the function gives for all batches; ``called`` calls it on some, as they are ``converted`` for it."""
    source: Iterator[Any] = input_batches(batches, step.size, ctx)
    if not step.on_error.fails:
        source = ahead(source, step.prefetch, ctx)
        return _closed(_tolerant(step, called, source, ctx, converted), source)
    source = ahead(source if converted is None else map(converted, source), step.prefetch, ctx)
    return _closed(called(source), source)


def _closed(made: Batches, source: Iterator[Any]) -> Batches:
    """The same batches; then nothing reads the source any more."""
    try:
        yield from made
    finally:
        closing(source)


def _tolerant(
    step: MapInArrow | MapInPandas,
    called: Callable[[Iterator[Any]], Batches],
    batches: Batches,
    ctx: TaskContext,
    converted: Callable[[pa.RecordBatch], Any] | None,
) -> Batches:
    def on_some(some: Batches) -> Batches:
        return called(some if converted is None else map(converted, some))

    nulls = RowBatcher(step.name, step.schema)
    with row_errors(step.name, step.on_error, ctx) as errors:
        for batch in batches:
            yield from _bisected(batch, on_some, errors, nulls, ctx)


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
