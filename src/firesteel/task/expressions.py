"""What the planner must know of expressions of ``pyarrow.compute``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

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
