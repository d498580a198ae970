"""Two sets of aggregates of the same groups, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from firesteel.errors import FiresteelError
from firesteel.task.batches import stable_order, table_batches, take_rows
from firesteel.task.operators.aggregation.aggregate import OUTPUT_ROWS
from firesteel.task.operators.grouping import encode, paired_columns
from firesteel.task.program import Batches, TaskContext, UnitInput


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Keyed operator: beside each row of the left input the other columns of the right input's row of the same keys, nulls being equal.

    Each input has one row for each key, and both have the same keys (none: one row each); else the rows that were grouped differ
    from reading to reading.
    """

    name: str
    key_columns: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.key_columns, self.key_columns)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        left, right = (one.table() for one in inputs)
        if left.num_rows != right.num_rows:
            raise self._differ()
        if self.key_columns and left.num_rows:
            left, right = self._in_one_order(left, right)
        columns = [*left.columns, *(right.column(name) for name in right.schema.names if name not in self.key_columns)]
        yield from table_batches(pa.Table.from_arrays(columns, schema=self.schema), OUTPUT_ROWS)

    def _in_one_order(self, left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
        codes, _ = encode(paired_columns(left, self.key_columns, right, self.key_columns), nulls_match=True)
        one, other = codes[: left.num_rows], codes[left.num_rows :]
        rows, others = stable_order(one), stable_order(other)
        if not np.array_equal(one[rows], other[others]):
            raise self._differ()
        return take_rows(left, rows), take_rows(right, others)

    def _differ(self) -> FiresteelError:
        return FiresteelError(
            f"Step '{self.name}' groups its rows twice, by Spark's aggregates and by others, and found other groups the second time.",
            hint="Its input gives other rows each time: cache() it, or write all aggregates with pyspark.sql.functions.",
        )
