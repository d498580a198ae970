"""All values of a group as a list, or each different one once. Nulls are left out, and of no values the list is empty, as in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from firesteel.model.arrays import Ints
from firesteel.results.keys import normal_type
from firesteel.task.batches import stable_order, take
from firesteel.task.operators.aggregation.aggregates.aggregate import (
    Mask,
    Members,
    elements,
    lists_of,
    plain_type,
    require,
    singles,
)
from firesteel.task.operators.aggregation.duplicates import content_hashes
from firesteel.task.operators.grouping import encode, first_rows, normalised, order_codes, sorted_rows
from firesteel.task.operators.relational import order_type


@dataclass(frozen=True, slots=True)
class Lists:
    """A list of each column, of the rows in which the last one, the value, is not null. ``distinct``: equal values once."""

    columns: tuple[str, ...]
    kept: tuple[pa.DataType, ...]
    distinct: bool = False

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(pa.list_(type_) for type_ in self.kept)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        taken = taken & np.asarray(inputs[-1].is_valid())
        if self.distinct and pa.types.is_floating(inputs[-1].type):  # one zero, one NaN
            inputs = [normalised(inputs[-1]).cast(inputs[-1].type)]
        return [singles(column, taken) for column in inputs]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        flat = [elements(state, members) for state in states]
        codes = flat[0][1].codes
        rows = stable_order(codes)
        if self.distinct:
            different, n = encode([pa.array(codes), normalised(flat[-1][0])], nulls_match=True)
            first = first_rows(different, n)
            rows = first[stable_order(codes[first])]
        return [lists_of(take(values, pa.array(rows)), codes[rows], members.n) for values, _ in flat]


def _by_hash(lists: pa.Array) -> pa.Array:
    """Each list in an order that depends on its values only."""
    groups = Members(np.arange(len(lists)), len(lists))
    values, of = elements(lists, groups)
    rows = np.argsort(content_hashes(pa.table([values], ["value"])), kind="stable")
    rows = rows[stable_order(of.codes[rows])]
    return lists_of(take(values, pa.array(rows)), of.codes, groups.n)


def _sorted(states: Sequence[pa.Array], ascending: Sequence[bool]) -> pa.Array:
    """The last of these columns of lists, each list in the order of the others and then of itself."""
    groups = Members(np.arange(len(states[-1])), len(states[-1]))
    flat = [elements(state, groups) for state in states]
    codes = flat[-1][1].codes
    by: list[tuple[Ints, int]] = [(codes, groups.n)]
    by += [order_codes(values, up) for (values, _), up in zip(flat, ascending, strict=False)]
    if order_type(flat[-1][0].type) is not None and len(ascending) < len(flat):
        by.append(order_codes(flat[-1][0], True))
    rows = sorted_rows(by)
    return lists_of(take(flat[-1][0], pa.array(rows)), codes, groups.n)


@dataclass(frozen=True, slots=True)
class CollectedList:
    """All values; in this order, (column, ascending), if there is one, equal ones by the value."""

    column: str
    order: tuple[tuple[str, bool], ...] = ()

    @property
    def depends_on_order(self) -> bool:
        return not self.order

    def state(self, schema: pa.Schema) -> Lists:
        for name, _ in self.order:
            fits = order_type(schema.field(name).type) is not None
            require(fits, "The order of collect_list", name, schema, "values that have an order")
        names = (*(name for name, _ in self.order), self.column)
        return Lists(names, tuple(plain_type(schema.field(name).type) for name in names))

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(plain_type(schema.field(self.column).type))

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        return _sorted(states, [up for _, up in self.order]) if self.order else states[-1]


@dataclass(frozen=True, slots=True)
class CollectedSet:
    """Each different value; ``sort``: in their order, else in one that is the same whenever the values are."""

    column: str
    sort: bool = False

    def state(self, schema: pa.Schema) -> Lists:
        type_ = plain_type(schema.field(self.column).type)
        fits = order_type(type_) is not None or not self.sort
        require(fits, "collect_set(sort=True)", self.column, schema, "values that have an order")
        normal_type(type_)
        return Lists((self.column,), (type_,), distinct=True)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(plain_type(schema.field(self.column).type))

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        return _sorted(states, [True]) if self.sort else _by_hash(states[-1])
