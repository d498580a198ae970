"""Rows and groups that a user's function cannot do: the job fails, or they are counted and left out, made null, or handed to a second stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import FiresteelError, UsageError, error_words
from firesteel.humanize import plural
from firesteel.model.reports import ERRORS, GROUP_ROWS, MOST_SAMPLES, failed
from firesteel.task.batches import nullable, table_batches, take
from firesteel.task.functions.rows import Row, RowBatcher, rows_of, shown
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.program import Batches, TaskContext

FAIL, NULL, SKIP, ROUTE = "fail", "null", "skip", "route"
ERROR_COLUMN = "error"
SIDES = ("left", "right")
"""Columns of the errors of a step with two inputs."""
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
        """The function cannot do this row of ``batch``, or what it gave back does not fit. Raises TooManyErrors."""
        words = _words(error)
        self._count(words, partial(_row_text, batch, place))
        if self._route is not None:
            self._held.append((batch, place, words))
            if len(self._held) >= _HELD:
                self.flush()

    def add_group(self, keys: Sequence[Sequence[str]], tables: Sequence[pa.Table], error: BaseException) -> None:
        """The function cannot do this group, or what it gave back does not fit: one error. ``keys``, ``tables``: of each input its key columns
        and rows. Raises TooManyErrors."""
        words = _words(error)
        self._report.add(GROUP_ROWS, sum(table.num_rows for table in tables))
        self._count(words, partial(_group_text, keys, tables))
        if self._route is not None:
            for batch in _group_with_error(tables, words):
                self._route(batch)

    def _count(self, words: str, of: Callable[[], str]) -> None:
        """``of``: what could not be done, in words."""
        self._report.add(ERRORS)
        if self._samples and len(self._report.samples) < MOST_SAMPLES:
            self._report.samples.append((of(), words[:MOST_TOLD]))
        most = self._policy.max_errors
        if most is not None and self._report.counts[ERRORS] > most:
            raise TooManyErrors(
                f"The function of step '{self._name}' failed for more than {failed(most, self._report.counts)} (max_errors). The last error was "
                f"{words} for {of()}.",
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
    """True of what a function raises for a row or a group; not of exits, of memory that is out, and of our own errors."""
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


def _group_text(keys: Sequence[Sequence[str]], tables: Sequence[pa.Table]) -> str:
    table, names = next(pair for pair in zip(tables, keys, strict=True) if pair[0].num_rows)
    key = shown(next(rows_of(table.select(list(names)).slice(0, 1))))
    return f"the {plural(sum(table.num_rows for table in tables), 'row')} of {key}"


def error_schema(*inputs: pa.Schema) -> pa.Schema:
    """Of the second stream, by the schemas of the step's inputs: the columns of the only one, or of two sides a struct each.

    Raises UsageError if there is a column of the error's name.
    """
    error = pa.field(ERROR_COLUMN, pa.string())
    if len(inputs) == 2:
        return pa.schema(
            [*(pa.field(side, _struct(schema)) for side, schema in zip(SIDES, inputs, strict=True)), error]
        )
    (schema,) = inputs
    if ERROR_COLUMN in schema.names:
        raise UsageError(
            f"on_error=\"route\" adds a column '{ERROR_COLUMN}' to the rows that failed, and there is one already.",
            hint=f'Give it another name before: rename({{"{ERROR_COLUMN}": ...}}).',
        )
    return pa.schema([*schema, error])


def _struct(schema: pa.Schema) -> pa.DataType:
    return pa.struct(list(nullable(schema)))


def _with_errors(held: Sequence[tuple[pa.RecordBatch, int, str]]) -> pa.RecordBatch:
    """All of one batch."""
    batch = held[0][0]
    rows = pa.array(np.fromiter((place for _, place, _ in held), np.int64, len(held)))
    columns = [take(column, rows) for column in batch.columns]
    words = pa.array([words for _, _, words in held], pa.string())
    return pa.RecordBatch.from_arrays([*columns, words], schema=error_schema(batch.schema))


def _group_with_error(tables: Sequence[pa.Table], words: str) -> Batches:
    """The rows of all tables, as ``error_schema`` says."""
    schema = error_schema(*(table.schema for table in tables))
    for number, table in enumerate(tables):
        for batch in table_batches(table):
            columns = batch.columns
            if len(tables) > 1:
                columns = [pa.nulls(batch.num_rows, schema.field(side).type) for side in SIDES]
                columns[number] = pa.StructArray.from_arrays(batch.columns, fields=list(schema.field(number).type))
            yield pa.RecordBatch.from_arrays([*columns, pa.array([words] * batch.num_rows, pa.string())], schema=schema)
