"""Errors of expressions that cannot be computed: of which column, for which row, and what may be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.masking import MASK, looks_secret
from firesteel.task.expressions import referenced_columns
from firesteel.task.functions.rows import shown
from firesteel.task.functions.user_code import UserFunctionError, complaint
from firesteel.task.program import TaskContext

_NO_TEXT = re.compile(r"Failed to parse string: '(.*)' as a scalar of type (.+)", re.S)
_VALUES = re.compile(r"'.*'|(?<!\w)[-+]?\d[\d.eE+-]*", re.S)
_MOST_COLUMNS = 6
_HINTS = (
    ("divide by zero", 'say what they are: F.when(F.col("b") != 0, F.col("a") / F.col("b")).'),
    (" is no ", 'cast only the others: F.when(F.col("t").rlike("^[0-9]+$"), F.col("t").cast("bigint")).'),
    ("overflow", "cast to a wider type before it: bigint, double, a decimal."),
    ("not in range", "cast to a wider type: bigint, double, a decimal."),
    ("truncated", "round before the cast, or cast to double."),
)


def cannot_compute(  # noqa: PLR0917
    name: str,
    what: str,
    batch: pa.RecordBatch,
    expression: pc.Expression,
    compute: Callable[[pa.RecordBatch], object],
    ctx: TaskContext,
) -> UserFunctionError | None:
    """The error of step ``name``, which cannot do ``what`` ("compute the column 'x'"); None: it can. ``compute``: does it for any rows of
    the batch, or raises what Arrow does. Values of columns whose names tell of secrets are masked."""
    bad, error = first_bad(batch, compute)
    if error is None:
        return None
    words = _words(error)
    hint = next(
        (f"Leave such rows out by a filter() before, or {hint}" for said, hint in _HINTS if said in words), None
    )
    reads = referenced_columns((expression,), batch.schema)
    return complaint(name, f"cannot {what}: {with_row(words, bad, reads)}", ctx, hint=hint)


def with_row(words: str, row: pa.RecordBatch | None, reads: Collection[str]) -> str:
    """Returns the message about a row, with the values of these columns. ``row``: None if it is unknown."""
    if any(map(looks_secret, reads)):
        words = _VALUES.sub(MASK, words)
    columns = [] if row is None else [name for name in row.schema.names if name in reads]
    return f"{words}, of the row {_row(row, columns)}" if row is not None and columns else words


def first_bad(
    batch: pa.RecordBatch, compute: Callable[[pa.RecordBatch], object], kind: type[Exception] = pa.ArrowException
) -> tuple[pa.RecordBatch | None, Exception | None]:
    """The first row for which it raises an error of this kind, and that error; None in its place where it raises for no row alone."""

    def raised(rows: pa.RecordBatch) -> Exception | None:
        try:
            compute(rows)
        except kind as error:
            return error
        return None

    error = raised(batch)
    while error is not None and batch.num_rows > 1:
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            own = raised(half)
            if own is not None:
                batch, error = half, own
                break
        else:
            return None, error
    return batch, error


def _words(error: Exception) -> str:
    """Arrow's words."""
    first = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    found = _NO_TEXT.fullmatch(first)
    return f"'{found[1]}' is no {found[2]}" if found else first


def _row(row: pa.RecordBatch, columns: list[str]) -> str:
    """``a = 1, b = 0``"""
    told = [
        f"{name} = {MASK if looks_secret(name) else shown(row[name][0].as_py())}" for name in columns[:_MOST_COLUMNS]
    ]
    more = len(columns) - len(told)
    return ", ".join(told) + (f" and {more} columns more" if more > 0 else "")
