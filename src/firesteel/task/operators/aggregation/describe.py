"""``describe``: the rows that people read, of what an aggregation of all rows has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.task.program import Batches, TaskContext

STATISTICS = ("count", "mean", "stddev", "min", "max")


def output_schema(columns: tuple[str, ...]) -> pa.Schema:
    """PySpark's: ``summary``, then a string for each column."""
    return pa.schema([pa.field(name, pa.string()) for name in ("summary", *columns)])


@dataclass(frozen=True, slots=True)
class Describe:
    """One row per statistic. Reads one row, with the column ``0_count`` for the number of values of the first column, and so on."""

    name: str
    columns: tuple[str, ...]
    statistics: tuple[str, ...]
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                places = range(len(self.columns))
                columns = [[_text(row.get(f"{place}_{what}")) for what in self.statistics] for place in places]
                arrays = [pa.array(values, pa.string()) for values in (list(self.statistics), *columns)]
                yield pa.RecordBatch.from_arrays(arrays, schema=output_schema(self.columns))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
