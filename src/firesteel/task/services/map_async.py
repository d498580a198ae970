"""The user's coroutine functions on rows: many rows are waited for at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.errors import FiresteelError, error_words
from firesteel.task.batches import reslice
from firesteel.task.functions.row_errors import FAILS, Made, OnError, RowErrors, is_of_a_row, row_errors
from firesteel.task.functions.rows import Row, RowBatcher, rows_of, shown
from firesteel.task.functions.user_code import UserFunctionError, user_frames
from firesteel.task.program import Batches, TaskContext
from firesteel.task.services.calls import ONE_CALL, Answer, CallPolicy, Calls
from firesteel.task.services.rates import rate_of

MOST_ROWS = 1_000
"""Rows that are made Python values at once, and rows of a batch that goes on."""
LONGEST_HELD = 1.0
"""Seconds after which rows go on, however few they are."""


@dataclass(frozen=True, slots=True)
class MapAsync:
    """``await fn(row) -> row`` of ``schema``. ``ordered``: rows leave in the order in which they came; else as they are answered.
    ``rate``: calls a second of the whole job."""

    name: str
    fn: Callable[..., Awaitable[Any]]
    schema: pa.Schema
    side_inputs: tuple[str, ...] = ()
    on_error: OnError = FAILS
    calls: CallPolicy = ONE_CALL
    ordered: bool = False
    rate: float | None = None
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        side = {name: ctx.side_inputs[name] for name in self.side_inputs}
        function = partial(self.fn, **side) if side else self.fn
        seed = f"{ctx.job_id}/{ctx.vertex}/{ctx.subtask}/{ctx.attempt}"
        rate = rate_of(self.name, self.rate, ctx)
        batcher = RowBatcher(self.name, self.schema)
        with (
            row_errors(self.name, self.on_error, ctx) as errors,
            Calls(function, self.calls, rate, ctx.report(self.name), seed) as calls,
        ):
            for made in self._gathered(_Answered(calls, batches, self.ordered), batcher, errors, ctx):
                if self.on_error.fails:
                    yield batcher.batch([item for _, _, items in made for item in items], ctx)
                else:
                    yield from errors.batch_of(batcher, made, ctx)

    def _gathered(
        self, answered: _Answered, batcher: RowBatcher, errors: RowErrors, ctx: TaskContext
    ) -> Iterator[list[Made]]:
        """Yields what the function made, as many rows as go on together."""
        held: list[Made] = []
        since = time.monotonic()
        for found in answered:
            since = since if held else time.monotonic()
            for batch, place, row, answer in found:
                if answer.error is None:
                    held.append((batch, place, [answer.value]))
                    continue
                error = self._told(answer.error, row, ctx)
                if self.on_error.fails or not is_of_a_row(error):
                    raise error
                errors.add(batch, place, error)
                held.append((batch, place, errors.instead(batcher)))
            if len(held) >= MOST_ROWS or (held and time.monotonic() - since >= LONGEST_HELD):
                yield held
                held = []
        if held:
            yield held

    def _told(self, error: BaseException, row: Row, ctx: TaskContext) -> BaseException:
        if isinstance(error, FiresteelError):
            return error
        times = f" in each of {self.calls.retries + 1} tries" if self.calls.retries else ""
        text = f"The function of step '{self.name}' raised {error_words(error)} for {shown(row)}{times}."
        told = UserFunctionError(text, trace=user_frames(error), place=ctx.place)
        told.__cause__ = error
        return told


_Row = tuple[pa.RecordBatch, int, Row]


class _Answered:
    """The rows of the input with their answers, some at a time. Input is read only as there is room for it."""

    def __init__(self, calls: Calls, batches: Batches, ordered: bool) -> None:
        self._calls, self._ordered = calls, ordered
        self._input = _rows(batches)
        self._open: dict[int, _Row] = {}
        """By number: rows that did not leave yet."""
        self._numbers = itertools.count()
        self._waiting: dict[int, Answer] = {}
        """Ordered: answers whose turn has not come."""
        self._next = 0

    def __iter__(self) -> Iterator[list[tuple[pa.RecordBatch, int, Row, Answer]]]:
        more = True
        while True:
            while more and (room := self._room()):
                taken = list(itertools.islice(self._input, room))
                more = len(taken) == room
                numbered = {next(self._numbers): row for row in taken}
                self._open.update(numbered)
                self._calls.submit([(number, row) for number, (_, _, row) in numbered.items()])
            if not self._open:
                return
            found = self._calls.answers(LONGEST_HELD)
            yield [(*self._open.pop(answer.number), answer) for answer in self._leaving(found)]

    def _room(self) -> int:
        """Ordered: one row that is waited for long must not fill the memory with the rows behind it."""
        return max(0, min(self._calls.room, self._calls.most_outstanding + MOST_ROWS - len(self._open)))

    def _leaving(self, found: list[Answer]) -> Iterator[Answer]:
        if not self._ordered:
            yield from found
            return
        self._waiting.update((answer.number, answer) for answer in found)
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1


def _rows(batches: Batches) -> Iterator[_Row]:
    for batch in reslice(batches, MOST_ROWS):
        for place, row in enumerate(rows_of(batch)):
            yield batch, place, row
