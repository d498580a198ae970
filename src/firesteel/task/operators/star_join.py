"""Consecutive broadcast joins in one pass: the keys of all are looked up first, then the rows that are left are put together, once.

A row of the stream meets one row at most of a build side whose keys are unique, so each join only filters the stream or looks up
a row for it: in whatever order, the same rows come out in the same order. First comes the join that leaves fewest rows for its
cost, by what it has left of this task's rows so far; one whose key is a column of another's build side follows that one.

A join with rows of several matches, and one whose build side the task cannot hold, is done by itself, between such passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

import numpy as np
import pyarrow as pa

from firesteel.results.keys import KeyTypeError
from firesteel.task.batches import chunked, one_chunk, take
from firesteel.task.expressions import passed_columns
from firesteel.task.operators.broadcast_join import LEFT, PROBE_BYTES, PROBE_ROWS, BroadcastJoin
from firesteel.task.operators.build_side import BuildSide, loaded
from firesteel.task.operators.join import pairs_at_once, payload, row_indices
from firesteel.task.operators.key_index import Numbers, Rows
from firesteel.task.operators.relational import Project
from firesteel.task.program import Batches, Operator, TaskContext

Step = BroadcastJoin | Project
STREAM = -1


def composed(operators: Sequence[Operator]) -> list[Operator]:
    """The same chain, with consecutive broadcast joins as one operator."""
    found: list[Operator] = []
    run: list[Step] = []
    for operator in operators:
        if isinstance(operator, BroadcastJoin) or (run and _only_chooses(operator, run[-1])):
            run.append(operator)
        else:
            found += [*_as_one(run), operator]
            run = []
    return found + _as_one(run)


def _as_one(run: Sequence[Step]) -> list[Operator]:
    several = sum(isinstance(step, BroadcastJoin) for step in run) > 1
    return [StarJoin(tuple(run))] if several else list(run)


def _only_chooses(operator: Operator, before: Step) -> TypeGuard[Project]:
    """A projection that renames columns, puts them in another order or leaves some out."""
    return isinstance(operator, Project) and len(passed_columns(operator.columns, _schema(before))) == len(
        operator.columns
    )


def _schema(step: Step) -> pa.Schema:
    return step.schema if isinstance(step, Project) else step.join.schema


@dataclass(frozen=True, slots=True)
class StarJoin:
    """``steps``: begins with a join; the projections in it compute nothing."""

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
            several = sum(isinstance(each.step, BroadcastJoin) for each in run) > 1
            for applied in [_Pass(run)] if several else run:
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
        if isinstance(self.step, Project) or self.side is None:
            return False
        how = self.step.join.how
        return how in ("semi", "anti") or (how in ("inner", "left") and self.side.index.is_unique)

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        if isinstance(self.step, Project):
            return self.step.apply(batches, ctx)
        return self.step.against(self.side, batches, ctx)


def _runs(planned: Sequence[_Planned]) -> Iterator[list[_Planned]]:
    """Lookups with the projections behind them; all other steps alone."""
    run: list[_Planned] = []
    for each in planned:
        if each.is_lookup or (run and isinstance(each.step, Project)):
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
        for each in run:
            columns = self._through(each, columns)
        self._columns = list(columns.values())
        self._output = _schema(run[-1].step)
        self._order = _Order(self._lookups)
        self._at_once = min(lookup.side.at_once for lookup in self._lookups)

    def _through(self, planned: _Planned, columns: dict[str, _Column]) -> dict[str, _Column]:
        """Adds the lookup of a step; returns its columns."""
        step, side = planned.step, planned.side
        if isinstance(step, Project):
            chosen = passed_columns(step.columns, pa.schema([(name, pa.null()) for name in columns]))
            return {name: columns[chosen[name]] for name, _ in step.columns}
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
        self._rows: Rows | None = None
        """Of the stream; None: all."""
        self._found: dict[int, Numbers] = {}
        self._indices: dict[int, pa.Array] = {}

    def look_up(self, number: int) -> None:
        lookup = self._lookups[number]
        numbers = lookup.side.find([self.column(key) for key in lookup.keys])
        if lookup.how in ("inner", "left"):
            self._found[number] = numbers
        if lookup.how != "left":
            self._keep(np.flatnonzero(numbers < 0 if lookup.how == "anti" else numbers >= 0))

    def _keep(self, kept: Rows) -> None:
        if len(kept) == self.n:
            return
        self.n = len(kept)
        self._rows = kept if self._rows is None else self._rows.take(kept)
        self._found = {number: rows.take(kept) for number, rows in self._found.items()}
        self._indices = {}

    def part(self, low: int, n: int) -> _Selection:
        """``n`` rows from ``low`` on, or as many as there are."""
        if not low and n >= self.n:
            return self
        high = min(low + n, self.n)
        part = _Selection(self.probe, self._lookups, high - low)
        part._rows = np.arange(low, high) if self._rows is None else self._rows[low:high]
        part._found = {number: rows[low:high] for number, rows in self._found.items()}
        return part

    def column(self, column: _Column) -> Any:
        """Its values in the rows that are left."""
        if column.origin == STREAM and self._rows is None:
            return one_chunk(self.probe.column(column.name))
        table = self.probe if column.origin == STREAM else self._lookups[column.origin].side.table
        return take(one_chunk(table.column(column.name)), self._index(column.origin))

    def _index(self, origin: int) -> pa.Array:
        if origin not in self._indices:
            rows = self._rows if origin == STREAM else self._found[origin]
            self._indices[origin] = row_indices(rows)
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
