"""What the planner must know of expressions of ``pyarrow.compute``, and the row whose value one cannot compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from firesteel.masking import MASK, looks_secret
from firesteel.task.functions.rows import shown
from firesteel.task.functions.user_code import UserFunctionError, complaint
from firesteel.task.program import TaskContext

_CALL = re.compile(r"\b(\w+)\(")
_SAFE_CALLS = {"is_in", "is_null", "is_valid", "is_nan", "invert", "and", "or"}
_WORD = re.compile(r"\w+")
_MOST_TRIED = 64
"""Columns of one expression that are tried one by one; of one with more, all that its text names are taken."""


def all_of(expressions: Sequence[pc.Expression]) -> pc.Expression:
    """True where all are (at least one is given)."""
    return _folded(expressions, and_)


def any_of(expressions: Sequence[pc.Expression]) -> pc.Expression:
    """True where one is (at least one is given)."""
    return _folded(expressions, or_)


def _folded(expressions: Sequence[pc.Expression], join: Callable[[Any, Any], Any]) -> pc.Expression:
    """By halves: Arrow walks an expression by recursion, and a chain of 10,000 ends the process."""
    if len(expressions) == 1:
        return expressions[0]
    middle = len(expressions) // 2
    return join(_folded(expressions[:middle], join), _folded(expressions[middle:], join))


@lru_cache(1 << 15)
def column(name: str) -> pc.Expression:
    """The column of this name, the same object each time: known again at once in a wide projection."""
    return pc.field(name)


def plain_column(expression: pc.Expression, schema: pa.Schema) -> str | None:
    """The column that the expression merely names, or None."""
    text = str(expression)
    return text if schema.get_field_index(text) >= 0 and expression.equals(pc.field(text)) else None


def passed_columns(columns: Iterable[tuple[str, pc.Expression]], schema: pa.Schema) -> dict[str, str]:
    """Output name to input name, for the columns that a projection hands through unchanged."""
    known = set(schema.names)
    found: dict[str, str] = {}
    for name, expression in columns:
        source = name if name in known and expression is column(name) else plain_column(expression, schema)
        if source is not None:
            found[name] = source
    return found


def referenced_columns(expressions: Iterable[pc.Expression], schema: pa.Schema) -> set[str]:
    """Columns of ``schema`` that the expressions read; of an expression that names very many, perhaps more than these."""
    found: set[str] = set()
    named: _Named | None = None
    for expression in expressions:
        simple = plain_column(expression, schema)
        if simple is not None:
            found.add(simple)
            continue
        if "FieldPath(" in str(expression):  # by its place, which is that of another column where one is left out
            return set(schema.names)
        named = named or _Named(schema)
        candidates = named.in_text(str(expression))
        if len(candidates) <= _MOST_TRIED:
            there = pa.schema([schema.field(name) for name in candidates])
            candidates = {n for i, n in enumerate(there.names) if n in found or not _binds(expression, there.remove(i))}
        found |= candidates
    return found


class _Named:
    """Finds the columns of a schema in the text of expressions, which has their names as they are: never too few."""

    def __init__(self, schema: pa.Schema) -> None:
        self._all: set[str] = set(schema.names)
        self._odd: dict[str, list[tuple[str, set[str]]]] = {}
        """Names of several words or none, by the word that fewest of them have, each with all its words."""
        odd = [
            (name, set(_WORD.findall(name)))
            for name in schema.names
            if not (name.isidentifier() or _WORD.fullmatch(name))
        ]
        counts: dict[str, int] = {}
        for _, words in odd:
            for word in words:
                counts[word] = counts.get(word, 0) + 1
        for name, words in odd:
            self._odd.setdefault(min(words, key=counts.__getitem__, default=""), []).append((name, words))

    def in_text(self, text: str) -> set[str]:
        words = {*_WORD.findall(text), ""}
        found = words & self._all
        if self._odd:
            for word in words:
                found |= {name for name, whole in self._odd.get(word, ()) if whole <= words and name in text}
        return found


def cannot_fail(expression: pc.Expression, schema: pa.Schema) -> bool:
    """Returns True if the expression only compares and combines values of one type, so that no row can make it raise.

    A division could, and so could a comparison of two types: Arrow brings them to one, and a number that does not fit there
    is an error. In doubt it could.
    """
    if any(call not in _SAFE_CALLS for call in _CALL.findall(str(expression))):
        return False
    reads = referenced_columns([expression], schema)
    schema = pa.schema([schema.field(name) for name in schema.names if name in reads])
    try:  # Substrait has no word for a cast that can raise; is_in becomes comparisons there, so these are looked at as well
        there: Any = pc.Expression  # whose stubs lack it
        there.from_substrait(expression.to_substrait(schema)).to_substrait(schema)
    except pa.ArrowException:
        return False
    return True


def _binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        _ = ds.dataset(schema.empty_table()).scanner(columns={"x": expression}).projected_schema
    except pa.ArrowException:
        return False
    return True


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
