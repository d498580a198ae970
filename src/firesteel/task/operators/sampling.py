"""Rows drawn at random, the same ones whenever a subtask reads the same rows in the same order again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from firesteel.task.batches import filter_rows, take_rows
from firesteel.task.program import Batches, TaskContext


@dataclass(frozen=True, slots=True)
class Sample:
    """Each row with probability ``fraction``; ``replacement``: as often as Poisson's distribution with that mean says.

    One draw a row, in the order of the rows, so that it does not matter how they are cut into batches. Subtasks draw
    from streams of their own of ``seed``.
    """

    name: str
    fraction: float
    seed: int
    replacement: bool
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, ctx.subtask])))
        for batch in batches:
            drawn = self._drawn(batch, random)
            if drawn.num_rows:
                yield drawn

    def _drawn(self, batch: pa.RecordBatch, random: np.random.Generator) -> pa.RecordBatch:
        if not self.replacement:
            return filter_rows(batch, pa.array(random.random(batch.num_rows) < self.fraction))
        times = random.poisson(self.fraction, batch.num_rows)
        rows = np.repeat(np.arange(batch.num_rows), times)
        if not len(rows):
            return batch.slice(0, 0)
        return take_rows(pa.Table.from_batches([batch]), rows).to_batches()[0]
