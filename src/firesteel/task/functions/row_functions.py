"""The user's functions on single rows: map, flat_map and filter. Rows go in and come out as ``operators.rows`` says."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.errors import FiresteelError, error_words
from firesteel.task.batches import coalesce, filter_rows, reslice
from firesteel.task.functions.instances import ready
from firesteel.task.functions.row_errors import FAILS, Made, OnError, RowErrors, is_of_a_row, row_errors
from firesteel.task.functions.rows import Row, RowBatcher, rows_of, shown
from firesteel.task.functions.user_code import UserFunctionError, complaint, user_frames
from firesteel.task.program import MAX_RECORDS_PER_BATCH, Batches, TaskContext


class _Current:
    """The row that the function has in hand, for what is said when it raises."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row: Row | None = None


@contextmanager
def _users(name: str, ctx: TaskContext, current: _Current) -> Generator[None]:
    """Turns what is raised inside into the user's error, told with the row; our own errors pass."""
    try:
        yield
    except (FiresteelError, GeneratorExit):
        raise
    except BaseException as error:  # sys.exit() too
        raise _told(name, error, current.row, ctx) from error


def _told(name: str, error: BaseException, row: Row | None, ctx: TaskContext) -> UserFunctionError:
    of = "" if row is None else f" for {shown(row)}"
    where = f" while working on {ctx.place}" if ctx.place else ""
    text = f"The function of step '{name}' raised {error_words(error)}{of}{where}."
    return UserFunctionError(text, trace=user_frames(error), place=ctx.place)


@dataclass(frozen=True, slots=True)
class _Careful:
    """Calls the function of a step where a row that it cannot do is no end."""

    step: _OnRows
    function: Callable[[Row], Any]
    batcher: RowBatcher
    errors: RowErrors
    ctx: TaskContext

    def items(self, batch: pa.RecordBatch, place: int, row: Row) -> list[Any]:
        """All rows that the function gives for this one; those in its place if it cannot do it."""
        try:
            return self.step.rows_of_result(self.function(row), self.ctx)
        except BaseException as error:  # sys.exit() too
            if is_of_a_row(error):
                self.errors.add(batch, place, error)
                return self.errors.instead(self.batcher)
            if isinstance(error, FiresteelError):
                raise
            raise _told(self.step.name, error, row, self.ctx) from error

    def batches(self, made: Sequence[Made]) -> Batches:
        return self.errors.batch_of(self.batcher, made, self.ctx)


@dataclass(frozen=True, slots=True)
class _OnRows:
    """``fn`` gets a row, and side inputs (tables) by name."""

    name: str
    fn: Callable[..., Any]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    on_error: OnError = FAILS
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        rows = reslice(coalesce(batches), MAX_RECORDS_PER_BATCH)
        return self._applied(rows, ctx) if self.on_error.fails else self._tolerant(rows, ctx)

    def _applied(self, batches: Batches, ctx: TaskContext) -> Batches:
        raise NotImplementedError

    def _tolerant(self, batches: Batches, ctx: TaskContext) -> Batches:
        """The same, where a row that cannot be done is no end."""
        with row_errors(self.name, self.on_error, ctx) as errors:
            careful = _Careful(self, self._function(ctx), RowBatcher(self.name, self.schema), errors, ctx)
            for batch in batches:
                yield from self._tolerated(batch, careful)

    def _tolerated(self, batch: pa.RecordBatch, careful: _Careful) -> Batches:
        """Yields what becomes of one batch."""
        made: list[Made] = []
        count = 0
        for place, row in enumerate(rows_of(batch)):
            items = careful.items(batch, place, row)
            made.append((batch, place, items))
            count += len(items)
            if count >= MAX_RECORDS_PER_BATCH:
                yield from careful.batches(made)
                made, count = [], 0
        yield from careful.batches(made)

    def rows_of_result(self, result: Any, ctx: TaskContext) -> list[Any]:
        """All rows that the function gave for one."""
        return [result]

    def _function(self, ctx: TaskContext) -> Callable[[Row], Any]:
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}
        fn = ready(self.name, self.fn, ctx)
        return partial(fn, **side) if side else fn


@dataclass(frozen=True, slots=True)
class MapRows(_OnRows):
    """``fn(row) -> row`` of ``schema``."""

    def _applied(self, batches: Batches, ctx: TaskContext) -> Batches:
        function, batcher, current = self._function(ctx), RowBatcher(self.name, self.schema), _Current()
        for batch in batches:
            with _users(self.name, ctx, current):
                made: list[Any] = []
                for row in rows_of(batch):
                    current.row = row
                    made.append(function(row))
            yield batcher.batch(made, ctx)


@dataclass(frozen=True, slots=True)
class FlatMapRows(_OnRows):
    """``fn(row) -> Iterable of rows`` of ``schema``; a generator is read while rows are made of it."""

    def _applied(self, batches: Batches, ctx: TaskContext) -> Batches:
        function, batcher, current = self._function(ctx), RowBatcher(self.name, self.schema), _Current()
        held: list[Any] = []
        for batch in batches:
            for row in rows_of(batch):
                current.row = row
                made = self._made(function, row, current, ctx)
                while True:
                    with _users(self.name, ctx, current):
                        held.extend(_some(made, MAX_RECORDS_PER_BATCH - len(held)))
                    if len(held) < MAX_RECORDS_PER_BATCH:
                        break
                    yield batcher.batch(held, ctx)
                    held = []
        if held:
            yield batcher.batch(held, ctx)

    def _made(self, function: Callable[[Row], Any], row: Row, current: _Current, ctx: TaskContext) -> Iterator[Any]:
        with _users(self.name, ctx, current):
            return self._iterated(function(row), ctx)

    def rows_of_result(self, result: Any, ctx: TaskContext) -> list[Any]:
        return list(self._iterated(result, ctx))

    def _iterated(self, result: Any, ctx: TaskContext) -> Iterator[Any]:
        if isinstance(result, Iterable) and not isinstance(result, str | bytes | dict | Row):
            return iter(result)  # pyright: ignore[reportUnknownVariableType]
        what = "nothing (None)" if result is None else f"{shown(result)} (a {type(result).__name__})"
        raise complaint(
            self.name, f"returned {what} instead of the rows", ctx, "Return a list of rows, or write 'yield'."
        )


def _some(iterator: Iterator[Any], most: int) -> Iterator[Any]:
    """Up to ``most`` items; ``islice`` would take the iterator's errors for its own frames."""
    for _ in range(most):
        try:
            yield next(iterator)
        except StopIteration:
            return


@dataclass(frozen=True, slots=True)
class FilterRows(_OnRows):
    """Keeps the rows for which ``fn(row)`` is true, as Python understands it (None is not)."""

    def _applied(self, batches: Batches, ctx: TaskContext) -> Batches:
        function, current = self._function(ctx), _Current()
        for batch in batches:
            with _users(self.name, ctx, current):
                mask: list[bool] = []
                for row in rows_of(batch):
                    current.row = row
                    mask.append(bool(function(row)))
            kept = filter_rows(batch, pa.array(mask, pa.bool_()))
            if kept.num_rows:
                yield kept

    def _tolerated(self, batch: pa.RecordBatch, careful: _Careful) -> Batches:
        mask = [any(careful.items(batch, place, row)) for place, row in enumerate(rows_of(batch))]
        kept = filter_rows(batch, pa.array(mask, pa.bool_()))
        if kept.num_rows:
            yield kept

    def rows_of_result(self, result: Any, ctx: TaskContext) -> list[Any]:
        return [bool(result)]
