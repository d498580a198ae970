"""The user's functions on groups: PySpark's applyInArrow, applyInPandas and cogrouped applyInArrow.

Groups are found at once (keys to codes, codes sorted, one take per unit), each is then a zero-copy slice. A group must
fit in memory, as in PySpark; everything else stays within the budget. Null keys are one group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.task.batches import coalesce, table_batches
from firesteel.task.functions.instances import called, ready
from firesteel.task.functions.pandas_conversion import (
    from_dataframe,
    looks_the_same_in_parts,
    require_pandas,
    to_dataframe,
)
from firesteel.task.functions.row_errors import FAILS, OnError, is_of_a_row, row_errors
from firesteel.task.functions.user_code import Conformer, UserFunctionError, call
from firesteel.task.operators.grouping import grouped, paired
from firesteel.task.program import MAX_RECORDS_PER_BATCH, Batches, TaskContext, UnitInput


def positional_arguments(fn: Callable[..., Any], side_inputs: tuple[str, ...] = ()) -> int:
    """Returns the number of arguments that ``fn`` takes besides its side inputs; 1 for callables without a signature."""
    try:
        parameters = inspect.signature(called(fn)).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.name not in side_inputs for p in parameters)


def takes_key(name: str, fn: Callable[..., Any], groups: int, side_inputs: tuple[str, ...] = ()) -> bool:
    """Returns True if ``fn`` takes the key before its ``groups`` tables. Raises UsageError when it fits neither way."""
    count = positional_arguments(fn, side_inputs)
    if count == groups:
        return False
    if count == groups + 1:
        return True
    tables = "table" if groups == 1 else "left, right"
    raise UsageError(
        f"The function of step '{name}' takes {count} arguments.", hint=f"It must take ({tables}) or (key, {tables})."
    )


class _Group(NamedTuple):
    """``tables``: its rows, of each input. ``applied()`` calls the function, and gives all that it returned as batches."""

    tables: tuple[pa.Table, ...]
    applied: Callable[[], Iterable[pa.RecordBatch]]


def _applied(step: _Apply | CoGroupApplyInArrow, groups: Iterator[_Group], ctx: TaskContext) -> Batches:
    """Yields what the function makes of all groups."""
    if step.on_error.fails:
        for group in groups:
            yield from group.applied()
        return
    with row_errors(step.name, step.on_error, ctx) as errors:
        for group in groups:
            try:
                made = group.applied()
            except UserFunctionError as error:
                if not is_of_a_row(error):
                    raise
                errors.add_group(step.keys, group.tables, error)
            else:
                yield from made


@dataclass(frozen=True, slots=True)
class _Apply:
    """A function on the groups of one input."""

    name: str
    fn: Callable[..., Any]
    group_keys: tuple[str, ...]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return coalesce(_applied(self, self._groups(inputs[0], ctx), ctx))

    def _groups(self, unit: UnitInput, ctx: TaskContext) -> Iterator[_Group]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ApplyInArrow(_Apply):
    """``fn(pa.Table)`` or ``fn(key: tuple[pa.Scalar, ...], pa.Table)``, plus side inputs by name, -> ``pa.Table``."""

    def _groups(self, unit: UnitInput, ctx: TaskContext) -> Iterator[_Group]:
        fn = ready(self.name, self.fn, ctx)
        with_key = takes_key(self.name, fn, 1, self.side_inputs)
        conformer = Conformer(self.name, self.schema, by_name=True)
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}

        def applied(table: pa.Table) -> Batches:
            arguments = (_arrow_key(table, self.group_keys), table) if with_key else (table,)
            return _batches_of(conformer.table(call(self.name, ctx, fn, *arguments, **side), ctx))

        for table in _tables(unit, self.group_keys):
            yield _Group((table,), partial(applied, table))


@dataclass(frozen=True, slots=True)
class ApplyInPandas(_Apply):
    """``fn(pd.DataFrame)`` or ``fn(key: tuple, pd.DataFrame)``, plus side inputs by name, -> ``pd.DataFrame``."""

    def __post_init__(self) -> None:
        require_pandas("apply_in_pandas")

    def _groups(self, unit: UnitInput, ctx: TaskContext) -> Iterator[_Group]:
        fn = ready(self.name, self.fn, ctx)
        with_key = takes_key(self.name, fn, 1, self.side_inputs)
        side = {name: to_dataframe(ctx.side_inputs[name]) for name in self.side_inputs}

        def applied(frame: Any) -> list[pa.RecordBatch]:
            key = tuple(frame[name].iloc[0] for name in self.group_keys) if with_key else ()
            arguments = (key, frame) if with_key else (frame,)
            result = call(self.name, ctx, fn, *arguments, **side)
            batch = from_dataframe(self.name, result, self.schema, ctx, truncate=False)
            return [batch] if batch is not None and batch.num_rows else []

        for table, frame in _frames(unit, self.group_keys):
            yield _Group((table,), partial(applied, frame))


@dataclass(frozen=True, slots=True)
class CoGroupApplyInArrow:
    """``fn(left, right)`` or ``fn(key, left, right)`` on tables -> ``pa.Table``, for every key of either side.

    A side without the key gives an empty table of its schema.
    """

    name: str
    fn: Callable[..., pa.Table]
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.left_keys, self.right_keys)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return coalesce(_applied(self, self._groups(inputs, ctx), ctx))

    def _groups(self, inputs: list[UnitInput], ctx: TaskContext) -> Iterator[_Group]:
        fn = ready(self.name, self.fn, ctx)
        with_key = takes_key(self.name, fn, 2, self.side_inputs)
        conformer = Conformer(self.name, self.schema, by_name=True)
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}

        def applied(left: pa.Table, right: pa.Table) -> Batches:
            key = _arrow_key(left, self.left_keys) if left.num_rows else _arrow_key(right, self.right_keys)
            arguments = (key, left, right) if with_key else (left, right)
            return _batches_of(conformer.table(call(self.name, ctx, fn, *arguments, **side), ctx))

        for left, right in self._pairs(inputs):
            yield _Group((left, right), partial(applied, left, right))

    def _pairs(self, inputs: list[UnitInput]) -> Iterator[tuple[pa.Table, pa.Table]]:
        lefts, rights, codes = paired(inputs[0].table(), inputs[1].table(), self.keys)
        for code in codes:
            yield lefts.of(code), rights.of(code)


def _batches_of(result: pa.Table | None) -> Batches:
    return iter(()) if result is None else table_batches(result)


def _tables(unit: UnitInput, keys: tuple[str, ...]) -> Iterator[pa.Table]:
    table = unit.table()
    if table.num_rows:
        groups = grouped(table, keys)
        yield from map(groups.of, groups.codes())


def _frames(unit: UnitInput, keys: tuple[str, ...]) -> Iterator[tuple[pa.Table, Any]]:
    """Every group, and the same as a DataFrame. Many small ones are converted together, where that gives the same types."""
    table = unit.table()
    if table.num_rows == 0:
        return
    for run, bounds in grouped(table, keys).runs(MAX_RECORDS_PER_BATCH):
        if len(bounds) == 1 or not looks_the_same_in_parts(run):
            for low, high in bounds:
                group = run.slice(low, high - low)
                yield group, to_dataframe(group, per_column=True)
            continue
        frame = to_dataframe(run, per_column=True)
        for low, high in bounds:
            yield run.slice(low, high - low), frame.iloc[low:high].reset_index(drop=True)


def _arrow_key(table: pa.Table, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(table.column(key)[0] for key in keys)
