"""Column expressions: ``col`` and ``lit`` are ``pyarrow.compute`` expressions, and what the planner must know of them.

Any function of ``pyarrow.compute`` takes them: ``pc.utf8_lower(col("word"))``, ``(col("n") > 3) & col("word").is_valid()``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from firesteel.errors import UsageError

_CALL = re.compile(r"\b(\w+)\(")
_SAFE_CALLS = {"is_in", "is_null", "is_valid", "is_nan", "invert", "and", "or"}


def col(name: str, *nested: str) -> pc.Expression:
    """A column by its name; further names go into structs: ``col("address", "city")``."""
    for part in (name, *nested):
        if not isinstance(part, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"col() wants a column name, not {part!r}.", hint="For a constant write lit(value).")
    return pc.field(name, *nested) if nested else pc.field(name)


def lit(value: Any) -> pc.Expression:
    """A constant: a Python value or a ``pyarrow.Scalar``."""
    if isinstance(value, pc.Expression):
        return value
    try:
        return pc.scalar(value)
    except pa.ArrowException as error:
        raise UsageError(f"lit() cannot make a constant of {value!r}: {error}.") from None


def plain_column(expression: pc.Expression, schema: pa.Schema) -> str | None:
    """The column that the expression merely names, or None."""
    text = str(expression)
    return text if text in schema.names and expression.equals(pc.field(text)) else None


def passed_columns(columns: Iterable[tuple[str, pc.Expression]], schema: pa.Schema) -> dict[str, str]:
    """Output name to input name, for the columns that a projection hands through unchanged."""
    pairs = ((name, plain_column(expression, schema)) for name, expression in columns)
    return {name: source for name, source in pairs if source is not None}


def referenced_columns(expressions: Iterable[pc.Expression], schema: pa.Schema) -> set[str]:
    """Columns of ``schema`` that the expressions read: those without which one of them cannot be bound."""
    found: set[str] = set()
    for expression in expressions:
        simple = plain_column(expression, schema)
        if simple is not None:
            found.add(simple)
            continue
        for index, name in enumerate(schema.names):
            if name not in found and not _binds(expression, schema.remove(index)):
                found.add(name)
    return found


def cannot_fail(expression: pc.Expression) -> bool:
    """Whether the expression only compares and combines, so that no row can make it raise (a division could).

    Decided by its text, in doubt against it.
    """
    return all(call in _SAFE_CALLS for call in _CALL.findall(str(expression)))


def _binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        _ = ds.dataset(schema.empty_table()).scanner(columns={"x": expression}).projected_schema
    except pa.ArrowException:
        return False
    return True
