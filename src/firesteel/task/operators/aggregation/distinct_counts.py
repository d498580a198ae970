"""Distinct values counted in two steps, where one task would have to hold too many: each part of the values by itself, then the counts
added up.

What comes between the steps are *counted rows*: partial rows with a number in the place of each value. A value, of a key, is in one
part only, so that numbers of the same key add up; sums, minima and maxima merge as they do anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from firesteel.task.batches import table_batches
from firesteel.task.operators.aggregation.aggregate import (
    OUTPUT_ROWS,
    FinalAggregate,
    Folding,
    FullAggregate,
    fold,
)
from firesteel.task.operators.aggregation.aggregate_plan import Plan
from firesteel.task.program import Batches, TaskContext


class _Counting(Plan):
    """Ends with counted rows."""

    def outputs(self, groups: pa.Table) -> pa.Table:
        return groups


class _Adding:
    """Folding of counted rows."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.keys, self.partial_schema = plan, plan.keys, plan.counted_schema

    def to_partial(self, table: pa.Table) -> pa.Table:
        return table

    def merge(self, table: pa.Table) -> pa.Table:
        return self._plan.merge_counts(table)

    def finish(self, merged: pa.Table) -> pa.Table:
        return self._plan.outputs(merged)


@dataclass(frozen=True)
class CountValues(FinalAggregate):
    """The first step: merges what :class:`PartialAggregate` wrote, and gives counted rows.

    ``read_by``: the columns by whose hash its input lies: the keys, or, of an aggregation without keys, the value. ``divided_by``: the
    columns by whose hash a subpartition may be divided among tasks.
    """

    read_by: tuple[str, ...]

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.read_by,)

    @property
    def divided_by(self) -> tuple[str, ...]:
        return tuple(part.name for part in self._plan.distincts)

    @property
    def counted_schema(self) -> pa.Schema:
        return self._plan.counted_schema

    @cached_property
    def _plan(self) -> Plan:
        return _Counting(self.input_schema, self.group_keys, self.aggregations)


@dataclass(frozen=True)
class AddCounts(FullAggregate):
    """The second step: adds up counted rows, by key. Behind the first step in one task it is an operator of the chain."""

    @property
    def folding(self) -> Folding:
        return _Adding(self._plan)

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        for table in fold(self.folding, tables, ctx):
            yield from table_batches(table, OUTPUT_ROWS)


def in_two_steps(whole: Any, read_by: tuple[str, ...]) -> tuple[CountValues, AddCounts] | None:
    """The two steps that do what ``whole`` does; None where there is nothing to count by parts.

    Of values of several columns, each partial row holds one at most, so that they are parted by all these columns together.
    """
    plan = whole.folding if type(whole) is FinalAggregate else None
    if not isinstance(plan, Plan) or not plan.distincts:
        return None
    given = whole.name, whole.group_keys, whole.aggregations, whole.input_schema
    values = tuple(part.name for part in plan.distincts)
    return CountValues(*given, read_by or values), AddCounts(*given)
