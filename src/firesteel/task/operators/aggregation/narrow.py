"""A combiner that sees only the columns it needs, whatever else the chain before it carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from firesteel.task.program import Combiner, CombinerState, TaskContext


@dataclass(frozen=True, slots=True)
class NarrowCombiner:
    """``columns`` of every batch go to ``inner``."""

    columns: tuple[str, ...]
    inner: Combiner

    def new(self, ctx: TaskContext) -> CombinerState:
        return _NarrowState(self.columns, self.inner.new(ctx))


@dataclass(slots=True)
class _NarrowState:
    columns: tuple[str, ...]
    inner: CombinerState

    def add(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return self.inner.add(batch.select(self.columns))

    def finish(self) -> Iterable[pa.RecordBatch]:
        return self.inner.finish()
