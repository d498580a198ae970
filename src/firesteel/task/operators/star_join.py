"""Consecutive broadcast joins in one pass: the keys of all are looked up first, then the rows that are left are put together, once.

A row of the stream meets one row at most of a build side whose keys are unique, so each join only filters the stream or looks up
a row for it: in whatever order, the same rows come out in the same order. First comes the join that leaves fewest rows for its
cost, by what it has left of this task's rows so far; one whose key is a column of another's build side follows that one.

A join with rows of several matches, and one whose build side the task cannot hold, is done by itself, between such passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import numpy as np
import pyarrow as pa

from firesteel.results.keys import KeyTypeError
from firesteel.task.batches import chunked, one_chunk, take
from firesteel.task.expressions import column
from firesteel.task.operators.broadcast_join import LEFT, PROBE_BYTES, PROBE_ROWS, BroadcastJoin
from firesteel.task.operators.build_side import BuildSide, loaded
from firesteel.task.operators.join import pairs_at_once, payload, row_indices
from firesteel.task.operators.key_index import Rows
from firesteel.task.operators.relational import Project
from firesteel.task.program import Batches, Operator, TaskContext

Step = BroadcastJoin | Project
STREAM = -1


def composed(operators: Sequence[Operator], wanted: Sequence[str] = ()) -> list[Operator]:
    """The same chain, with consecutive broadcast joins as one operator. ``wanted``: columns to which the last ones may be cut; empty: all."""
    found: list[Operator] = []
    run: list[Step] = []
    for operator in operators:
        if isinstance(operator, BroadcastJoin) or (run and _only_chooses(operator, run[-1])):
            run.append(operator)
        else:
            found += [*_as_one(run), operator]
            run = []
    if run and wanted:
        run.append(_cut(_schema(run[-1]), wanted))
    return found + _as_one(run)


def _as_one(run: Sequence[Step]) -> list[Operator]:
    return [StarJoin(tuple(run))] if len(run) > 1 else list(run)


def _cut(schema: pa.Schema, wanted: Sequence[str]) -> Project:
    return Project("select", tuple((name, column(name)) for name in wanted), pa.schema(map(schema.field, wanted)))


def _only_chooses(operator: Operator, before: Step) -> TypeGuard[Project]:
    """A projection that renames columns, puts them in another order or leaves some out."""
    return isinstance(operator, Project) and operator.chosen(_schema(before)) is not None


def _schema(step: Step) -> pa.Schema:
    return step.join.schema if isinstance(step, BroadcastJoin) else step.schema


@dataclass(frozen=True, slots=True)
class StarJoin:
    """``steps``: begins with a join; the projections behind joins compute nothing."""

    steps: tuple[Step, ...]
    unitwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return ", ".join(step.name for step in self.steps)

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        joins = [step for step in self.steps if isinstance(step, BroadcastJoin)]
        sides = iter(loaded([join.keys for join in joins], ctx))
        planned = [_Planned(step, next(sides) if isinstance(step, BroadcastJoin) else None) for step in self.steps]
        for run in _runs(planned):
            for applied in [_Pass(run)] if len(run) > 1 else run:
                batches = applied.apply(batches, ctx)
        yield from batches


@dataclass(frozen=True, slots=True)
class _Planned:
    """``side``: of a join, what it has loaded; None where the task cannot hold it."""

    step: Step
    side: BuildSide | None

    @property
    def is_lookup(self) -> bool:
        """Each row of the stream has one match at most, and whether it comes out depends on that alone."""
        if not isinstance(self.step, BroadcastJoin) or self.side is None:
            return False
        how = self.step.join.how
        return how in ("semi", "anti") or (how in ("inner", "left") and self.side.index.is_unique)

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        if isinstance(self.step, BroadcastJoin):
            return self.step.against(self.side, batches, ctx)
        return self.step.apply(batches, ctx)


def _runs(planned: Sequence[_Planned]) -> Iterator[list[_Planned]]:
    """Lookups with the projections behind them; all other steps alone."""
    run: list[_Planned] = []
    for each in planned:
        if each.is_lookup or (run and not isinstance(each.step, BroadcastJoin)):
            run.append(each)
            continue
        yield run
        yield [each]
        run = []
    yield run


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the stream, or of the build side of lookup number ``origin``."""

    origin: int
    name: str


@dataclass(frozen=True, slots=True)
class _Lookup:
    """``needs``: the lookups from whose build sides the keys come, and those that these need."""

    how: str
    side: BuildSide
    keys: tuple[_Column, ...]
    needs: frozenset[int]


class _Pass:
    """Lookups of a stream of ``schema``, and the columns of their result."""

    def __init__(self, run: Sequence[_Planned]) -> None:
        first = run[0].step
        assert isinstance(first, BroadcastJoin)
        self._schema = first.probe_schema
        self._lookups: list[_Lookup] = []
        columns = {name: _Column(STREAM, name) for name in self._schema.names}
        before: Step = first
        for each in run:
            columns = self._through(each, columns, before)
            before = each.step
        self._columns = list(columns.values())
        self._output = _schema(run[-1].step)
        self._order = _Order(self._lookups)
        self._at_once = min(lookup.side.at_once for lookup in self._lookups)

    def _through(self, planned: _Planned, columns: dict[str, _Column], before: Step) -> dict[str, _Column]:
        """Adds the lookup of a step, if it is a join; returns its columns, of those of the step before."""
        step, side = planned.step, planned.side
        if not isinstance(step, BroadcastJoin):
            return {name: columns[source] for name, source in (step.chosen(_schema(before)) or {}).items()}
        assert side is not None
        keys, number = tuple(columns[name] for name in step.probe_keys), len(self._lookups)
        origins = {key.origin for key in keys if key.origin != STREAM}
        needs = origins.union(*(self._lookups[origin].needs for origin in origins))
        self._lookups.append(_Lookup(step.join.how, side, keys, frozenset(needs)))
        if step.join.how in ("semi", "anti"):
            return columns
        own = {name: _Column(number, name) for name in side.table.schema.names}
        left, right = (own, columns) if step.build == LEFT else (columns, own)
        rest = [right[field.name] for field in payload(step.join.right_schema, step.join.right_keys)]
        lefts = [left[name] for name in step.join.left_schema.names]
        return dict(zip(step.join.schema.names, lefts + rest, strict=True))

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for probe in chunked(batches, self._schema, PROBE_BYTES, PROBE_ROWS):
            yield from self._gathered(self._selected(probe))

    def _selected(self, probe: pa.Table) -> _Selection:
        written = range(len(self._lookups))
        try:
            return self._looked_up(probe, self._order.best())
        except KeyTypeError:  # of a key that an earlier join would have left out
            return self._looked_up(probe, written)

    def _looked_up(self, probe: pa.Table, order: Sequence[int]) -> _Selection:
        selection = _Selection(probe, self._lookups)
        for number in order:
            if selection.n:
                before = selection.n
                selection.look_up(number)
                self._order.saw(number, before, selection.n)
        return selection

    def _gathered(self, selection: _Selection) -> Batches:
        at_once = min(self._at_once, pairs_at_once(selection.probe)) if selection.n else 1
        for low in range(0, selection.n, at_once):
            part = selection.part(low, at_once)
            columns = [part.column(column) for column in self._columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self._output)


class _Selection:
    """The rows of ``probe`` that are left, and for each of them the row of every build side that was looked up."""

    def __init__(self, probe: pa.Table, lookups: Sequence[_Lookup], n: int | None = None) -> None:
        self.probe = probe
        self.n = probe.num_rows if n is None else n
        self._lookups = lookups
        self._rows: dict[int, Rows] = {}
        """Of the stream, where some of its rows are not left, and of each build side that was looked up."""
        self._indices: dict[int, pa.Array] = {}

    def look_up(self, number: int) -> None:
        lookup = self._lookups[number]
        found = lookup.side.find([self.column(key) for key in lookup.keys])
        if lookup.how in ("inner", "left"):
            self._rows[number] = found
        if lookup.how != "left":
            self._keep(np.flatnonzero(found < 0 if lookup.how == "anti" else found >= 0))

    def _keep(self, kept: Rows) -> None:
        if len(kept) == self.n:
            return
        self.n = len(kept)
        self._rows = {STREAM: kept} | {origin: rows.take(kept) for origin, rows in self._rows.items()}
        self._indices = {}

    def part(self, low: int, n: int) -> _Selection:
        """``n`` rows from ``low`` on, or as many as there are."""
        if not low and n >= self.n:
            return self
        high = min(low + n, self.n)
        part = _Selection(self.probe, self._lookups, high - low)
        part._rows = {STREAM: np.arange(low, high)} | {origin: rows[low:high] for origin, rows in self._rows.items()}
        return part

    def column(self, column: _Column) -> pa.Array:
        """Its values in the rows that are left."""
        table = self.probe if column.origin == STREAM else self._lookups[column.origin].side.table
        whole = one_chunk(table.column(column.name))
        if column.origin == STREAM and STREAM not in self._rows:
            return whole
        return take(whole, self._index(column.origin))

    def _index(self, origin: int) -> pa.Array:
        if origin not in self._indices:
            self._indices[origin] = row_indices(self._rows[origin])
        return self._indices[origin]


class _Order:
    """The order of the lookups that is best by what they left so far."""

    def __init__(self, lookups: Sequence[_Lookup]) -> None:
        self._lookups = lookups
        self._seen, self._left = [0] * len(lookups), [0] * len(lookups)

    def saw(self, number: int, before: int, after: int) -> None:
        self._seen[number] += before
        self._left[number] += after

    def best(self) -> list[int]:
        """All lookups: each time the one that removes most rows for its cost, with those before it that it needs."""
        order: list[int] = []
        while len(order) < len(self._lookups):
            todo = [number for number in range(len(self._lookups)) if number not in order]
            paths = [sorted({number, *self._lookups[number].needs} - set(order)) for number in todo]
            order += max(paths, key=self._gain)  # the first of equal ones
        return order

    def _gain(self, path: Sequence[int]) -> float:
        """The share of the rows that these remove, for each nanosecond that a row takes."""
        left, cost = 1.0, 0.0
        for number in path:
            cost += left * self._lookups[number].side.index.cost
            left *= self._share(number)
        return (1 - left) / cost

    def _share(self, number: int) -> float:
        """Of the rows that a lookup leaves; a half before anything was seen."""
        if self._lookups[number].how == "left":
            return 1.0
        return (self._left[number] + 1) / (self._seen[number] + 2)
