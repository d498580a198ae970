"""The user's batch functions: PySpark's mapInArrow and mapInPandas.

Called once per subtask, also when it has no rows, with an iterator of batches of at most 10,000 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.task.batches import reslice
from firesteel.task.functions.pandas_conversion import from_dataframe, require_pandas, to_dataframe
from firesteel.task.functions.user_code import Conformer, call_on_batches
from firesteel.task.program import MAX_RECORDS_PER_BATCH, Batches, TaskContext


@dataclass(frozen=True, slots=True)
class MapInArrow:
    """``fn(Iterator[pa.RecordBatch], **side inputs as pa.Table) -> Iterator[pa.RecordBatch]``."""

    name: str
    fn: Callable[..., Iterable[pa.RecordBatch]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    by_position: bool = False
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        conformer = Conformer(self.name, self.schema, by_name=not self.by_position)
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}
        source = reslice(batches, MAX_RECORDS_PER_BATCH)
        for item in call_on_batches(self.name, ctx, self.fn, source, side):
            batch = conformer.batch(item, ctx)
            if batch is not None and batch.num_rows:
                yield batch


@dataclass(frozen=True, slots=True)
class MapInPandas:
    """``fn(Iterator[pd.DataFrame], **side inputs as pd.DataFrame) -> Iterator[pd.DataFrame]``."""

    name: str
    fn: Callable[..., Iterable[Any]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    unitwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_pandas("map_in_pandas")

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        side = {name: to_dataframe(ctx.side_inputs[name]) for name in self.side_inputs}
        for item in call_on_batches(self.name, ctx, self.fn, self._frames(batches), side):
            batch = from_dataframe(self.name, item, self.schema, ctx, truncate=True)
            if batch is not None and batch.num_rows:
                yield batch

    @staticmethod
    def _frames(batches: Batches) -> Iterator[Any]:
        for batch in reslice(batches, MAX_RECORDS_PER_BATCH):
            yield to_dataframe(batch)
