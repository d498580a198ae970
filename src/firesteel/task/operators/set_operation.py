"""SQL's set operations on two inputs: rows are equal when all their columns are, nulls and NaN among them.

Equal rows travel as one row with their number, as an aggregation's do; what is left of it is a matter of two numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.task.batches import chunked, one_chunk, table_batches, take_rows
from firesteel.task.operators.aggregation.aggregate import OUTPUT_ROWS, PartialAggregate, partial_schema
from firesteel.task.operators.aggregation.aggregate_plan import Aggregation, Plan
from firesteel.task.operators.grouping import encode, paired_columns
from firesteel.task.operators.units import unit_limit
from firesteel.task.program import Batches, TaskContext, UnitInput

Counts = NDArray[np.int64]

KEPT: dict[str, Callable[[Counts, Counts], Counts]] = {
    "subtract": lambda left, right: np.minimum(left, 1) * (right == 0),
    "except_all": lambda left, right: np.maximum(left - right, 0),
    "intersect": lambda left, right: np.minimum(np.minimum(left, right), 1),
    "intersect_all": np.minimum,
}
"""Number of equal rows in the result, from their numbers on the left and on the right, by operation."""
_NUMBER = (Aggregation(None, "count", "rows"),)


def counting(schema: pa.Schema) -> tuple[PartialAggregate, pa.Schema]:
    """The combiner that counts equal rows before the exchange, and the schema of what it writes."""
    keys = tuple(schema.names)
    return PartialAggregate(keys, _NUMBER, schema), partial_schema(schema, keys, _NUMBER)


@dataclass(frozen=True)
class SetOperation:
    """One of :data:`KEPT` on rows of ``schema``; ``counted``: on what the combiner of :func:`counting` writes.

    Both inputs are folded chunk by chunk, so that it holds the different rows of a unit, however often they occur.
    """

    name: str
    kind: str
    schema: pa.Schema
    counted: bool
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.schema.names), tuple(self.schema.names))

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        plan = Plan(self.schema, self.schema.names, _NUMBER)
        left, right = (self._folded(plan, unit, ctx) for unit in inputs)
        names: list[str] = self.schema.names
        codes, n = encode(paired_columns(left, names, right, names), nulls_match=True)
        others = np.zeros(n, dtype=np.int64)
        np.add.at(others, codes[left.num_rows :], _numbers(right))
        times = KEPT[self.kind](_numbers(left), others[codes[: left.num_rows]])
        yield from self._repeated(left.select(names), times)

    def _folded(self, plan: Plan, unit: UnitInput, ctx: TaskContext) -> pa.Table:
        """Each different row once, and behind its columns how often it is there."""
        folded = plan.partial_schema.empty_table()
        for table in chunked(unit.batches(), unit.schema, max(unit_limit(ctx) // 2, 1), 1 << 20):
            partial = table.cast(plan.partial_schema) if self.counted else plan.to_partial(table)
            folded = plan.merge(pa.concat_tables([folded, partial]))
        return folded

    def _repeated(self, rows: pa.Table, times: Counts) -> Batches:
        ends = np.cumsum(times)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, OUTPUT_ROWS):
            places = np.searchsorted(ends, np.arange(start, min(start + OUTPUT_ROWS, total)), side="right")
            part = take_rows(rows, places)
            yield from table_batches(pa.Table.from_arrays(part.columns, schema=self.schema))


def _numbers(folded: pa.Table) -> Any:
    return np.asarray(one_chunk(folded.column(folded.num_columns - 1)))
