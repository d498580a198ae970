"""Rows that a user's function cannot do: the job fails, or they are counted and left out, made null, or handed to a second stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from firesteel.errors import FiresteelError, UsageError, error_words
from firesteel.humanize import plural
from firesteel.model.steps.reports import ERRORS, MOST_SAMPLES
from firesteel.task.batches import take
from firesteel.task.functions.rows import Row, RowBatcher, rows_of, shown
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.program import Batches, TaskContext

FAIL, NULL, SKIP, ROUTE = "fail", "null", "skip", "route"
ERROR_COLUMN = "error"
Made = tuple[pa.RecordBatch, int, Sequence[Any]]
"""A row of a batch, and what the function made of it."""
MOST_TOLD = 300
"""Characters of an error in the journal."""
_HELD = 1_000
"""Rows that are gathered before they are written to the second stream."""


@dataclass(frozen=True, slots=True)
class OnError:
    """``max_errors``: of the whole job; None: any number. ``output``: of ROUTE, the number of the output that takes the rows, as it was
    given when the job was compiled; None: nobody reads them."""

    action: str = FAIL
    max_errors: int | None = None
    output: int | None = None

    @property
    def fails(self) -> bool:
        return self.action == FAIL


FAILS = OnError()


class TooManyErrors(UsageError):
    """More rows could not be done than ``max_errors`` allows."""


class RowErrors:
    """The errors of one step in one task."""

    def __init__(self, name: str, policy: OnError, ctx: TaskContext) -> None:
        self._name, self._policy = name, policy
        self._report = ctx.report(name)
        self._report.max_errors = policy.max_errors
        self._samples = ctx.failed_rows
        self._route = None if policy.output is None else ctx.routes.get(policy.output)
        self._held: list[tuple[pa.RecordBatch, int, str]] = []

    def add(self, batch: pa.RecordBatch, place: int, error: BaseException) -> None:
        """The function cannot do this row of ``batch``, or what it gave back does not fit. Raises TooManyErrors; and ``error``,
        unless it is one that a row can be blamed for."""
        words = _words(error)
        self._report.add(ERRORS)
        if self._samples and len(self._report.samples) < MOST_SAMPLES:
            self._report.samples.append((_row_text(batch, place), words[:MOST_TOLD]))
        most = self._policy.max_errors
        if most is not None and self._report.counts[ERRORS] > most:
            self._too_many(batch, place, words, most)
        if self._route is not None:
            self._held.append((batch, place, words))
            if len(self._held) >= _HELD:
                self.flush()

    def _too_many(self, batch: pa.RecordBatch, place: int, words: str, most: int) -> NoReturn:
        raise TooManyErrors(
            f"The function of step '{self._name}' failed for more than {plural(most, 'row')} (max_errors). The last error was {words} for "
            f"{_row_text(batch, place)}.",
            hint="Mend the function or its input, or allow more with max_errors=.",
        )

    def flush(self) -> None:
        """Hands over the rows that are held."""
        held, self._held = self._held, []
        if self._route is None:
            return
        start = 0
        while start < len(held):
            end = start
            while end < len(held) and held[end][0] is held[start][0]:
                end += 1
            self._route(_with_errors(held[start:end]))
            start = end

    def batch_of(self, batcher: RowBatcher, made: Sequence[Made], ctx: TaskContext) -> Batches:
        """Yields what the function made, of each row its rows, as batches. A row of which something does not fit is an error."""

        def work(low: int, high: int) -> Iterable[pa.RecordBatch]:
            return [batcher.batch([item for _, _, items in made[low:high] for item in items], ctx)]

        def failed(place: int, error: UserFunctionError) -> Iterable[pa.RecordBatch]:
            batch, row, _ = made[place]
            self.add(batch, row, error)
            return [batcher.batch([batcher.nulls], ctx)] if self._policy.action == NULL else ()

        if made:
            yield from (batch for batch in bisected(0, len(made), work, failed) if batch.num_rows)

    def instead(self, batcher: RowBatcher) -> list[Any]:
        """The rows in the place of one that failed."""
        return [batcher.nulls] if self._policy.action == NULL else []


@contextmanager
def row_errors(name: str, policy: OnError, ctx: TaskContext) -> Generator[RowErrors]:
    """At the end, also where nobody wants more rows, those for the second stream are handed over."""
    errors = RowErrors(name, policy, ctx)
    try:
        yield errors
    except GeneratorExit:
        errors.flush()
        raise
    errors.flush()


def bisected(
    low: int,
    high: int,
    work: Callable[[int, int], Iterable[pa.RecordBatch]],
    failed: Callable[[int, UserFunctionError], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yields what ``work`` makes of the rows from ``low`` to ``high``, which is called again for halves where it raises UserFunctionError, until
    ``failed`` is called for a row alone. In the order of the rows."""
    try:
        made = list(work(low, high))
    except UserFunctionError as error:
        if not is_of_a_row(error):
            raise
        if high - low > 1:
            middle = (low + high) // 2
            yield from bisected(low, middle, work, failed)
            yield from bisected(middle, high, work, failed)
            return
        made = failed(low, error)
    yield from made


def is_of_a_row(error: BaseException) -> bool:
    """True of what a function raises for a row; not of exits, of memory that is out, and of our own errors."""
    cause = error.__cause__ if isinstance(error, UserFunctionError) and error.__cause__ is not None else error
    if isinstance(cause, UserFunctionError):
        return True
    return isinstance(cause, Exception) and not isinstance(cause, FiresteelError | MemoryError)


def _words(error: BaseException) -> str:
    if isinstance(error, UserFunctionError):
        words = error.message if error.__cause__ is None else error_words(error.__cause__)
    else:
        words = error_words(error)
    return words.encode(errors="replace").decode()  # half of a pair of surrogates is no text


def _row_text(batch: pa.RecordBatch, place: int) -> str:
    return shown(next(rows_of(batch.slice(place, 1)), Row()))


def error_schema(schema: pa.Schema) -> pa.Schema:
    """Of the second stream, by the schema of the step's input. Raises UsageError if that has such a column."""
    if ERROR_COLUMN in schema.names:
        raise UsageError(
            f"on_error=\"route\" adds a column '{ERROR_COLUMN}' to the rows that failed, and there is one already.",
            hint=f'Give it another name before: rename({{"{ERROR_COLUMN}": ...}}).',
        )
    return pa.schema([*schema, pa.field(ERROR_COLUMN, pa.string())])


def _with_errors(held: Sequence[tuple[pa.RecordBatch, int, str]]) -> pa.RecordBatch:
    """All of one batch."""
    batch = held[0][0]
    rows = pa.array(np.fromiter((place for _, place, _ in held), np.int64, len(held)))
    columns = [take(column, rows) for column in batch.columns]
    words = pa.array([words for _, _, words in held], pa.string())
    return pa.RecordBatch.from_arrays([*columns, words], schema=error_schema(batch.schema))
