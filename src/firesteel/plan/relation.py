"""What rows are wanted: relations with Spark's types and meaning. Each has at least one column; one that is read several times is one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Expr, Unsupported, column, walk
from firesteel.plan.raising import any_raises
from firesteel.plan.types import arrow_type, carried

Columns = dict[str, Any]
"""Spark's type by column. The name of a column is unique in its plan."""


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows. ``columns``: theirs, in order; ``children``: the relations that they are made of."""

    @cached_property
    def columns(self) -> Columns:
        return self._columns()

    def _columns(self) -> Columns:
        raise NotImplementedError

    @property
    def children(self) -> tuple[Relation, ...]:
        return ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Those that it computes itself."""
        return ()

    @cached_property
    def may_raise(self) -> bool:
        """Computing them may raise an error of Spark's."""
        return any_raises(self.expressions)

    @cached_property
    def subqueries(self) -> tuple[Relation, ...]:
        """The plans of the subqueries in its expressions."""
        return tuple(part["plan"] for one in self.expressions for part in walk(one) if part.cls == "ScalarSubquery")


def typed(items: Mapping[str, Expr]) -> Columns:
    """The columns that expressions give. Raises Unsupported for types that no column has."""
    return {name: type_of_column(item) for name, item in items.items()}


def type_of_column(item: Expr) -> Any:
    """Raises Unsupported for types that no column has."""
    try:
        return carried(item.type)
    except Unsupported as reason:
        reason.at = item
        raise


def schema_of(columns: Columns) -> pa.Schema:
    """In Arrow."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


class Names:
    """New names of columns and side inputs, unique in a query."""

    def __init__(self) -> None:
        self._numbers = count()

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"


# --- leaves ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Leaf(Relation):
    """Rows from outside of the plan. ``kinds``: the types of their columns."""

    kinds: Columns

    def _columns(self) -> Columns:
        return self.kinds


@dataclass(frozen=True, eq=False)
class Scan(Leaf):
    """Rows of a source. ``names``: the source's name of each column. A nested column may have more fields in the source."""

    source: Any
    names: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Values(Leaf):
    """Rows that the driver has, under the names of their columns."""

    rows: pa.Table


@dataclass(frozen=True, eq=False)
class Stream(Leaf):
    """The rows of a step, whose columns are these in their order. ``step``: the edge on which they come."""

    step: Any


@dataclass(frozen=True, eq=False)
class BySpark(Leaf):
    """Rows that Spark computes. ``step``: reads them, with columns of these names.

    ``rows``: gives all of them to the driver, where they are few and Spark only hands them over; else None.
    """

    step: Any
    rows: Callable[[], pa.Table] | None = None


# --- of one relation --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OfOne(Relation):
    """Made of the rows of ``child``. It has the columns of ``child`` unless its class overrides them."""

    child: Relation

    def _columns(self) -> Columns:
        return self.child.columns

    @property
    def children(self) -> tuple[Relation, ...]:
        return (self.child,)


@dataclass(frozen=True, eq=False)
class Shared(OfOne):
    """Is read in several places, and computed once."""


@dataclass(frozen=True, eq=False)
class Project(OfOne):
    """The values of these expressions for each row."""

    items: Mapping[str, Expr]

    def _columns(self) -> Columns:
        return typed(self.items)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(self.items.values())


def with_columns(relation: Relation, new: Mapping[str, Expr]) -> Relation:
    """The rows with their own columns, then these."""
    if not new:
        return relation
    return Project(relation, {**{name: column(name, kind) for name, kind in relation.columns.items()}, **new})


def only(relation: Relation, names: Sequence[str]) -> Relation:
    """The rows with these columns; with one of theirs where none is named."""
    chosen = names or list(relation.columns)[:1]
    if list(chosen) == list(relation.columns):
        return relation
    return Project(relation, {name: column(name, relation.columns[name]) for name in chosen})


@dataclass(frozen=True, eq=False)
class Filter(OfOne):
    """The rows for which all conditions are true. A condition is computed only for rows for which none before it is false."""

    conditions: tuple[Expr, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.conditions


@dataclass(frozen=True, eq=False)
class Expand(OfOne):
    """Each row once in each of these ways. ``kinds``: the types of the columns."""

    ways: tuple[tuple[Expr, ...], ...]
    kinds: Columns

    def _columns(self) -> Columns:
        return self.kinds

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(one for way in self.ways for one in way)


@dataclass(frozen=True, eq=False)
class Generate(OfOne):
    """A row for each value of ``generator``, with the columns of the row that are in ``kept``.

    ``output``: the types of the generator's columns. ``outer``: a row without a value is there all the same.
    """

    generator: Expr
    kept: tuple[str, ...]
    output: Columns
    outer: bool

    def _columns(self) -> Columns:
        return {**{name: self.child.columns[name] for name in self.kept}, **self.output}

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.generator,)


@dataclass(frozen=True, eq=False)
class Aggregate(OfOne):
    """A row for each group; one row if ``groups`` is empty. ``items`` are made of the expressions in ``groups`` and of aggregates."""

    groups: tuple[Expr, ...]
    items: Mapping[str, Expr]

    def _columns(self) -> Columns:
        return typed(self.items)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.groups, *self.items.values())


@dataclass(frozen=True, eq=False)
class Window(OfOne):
    """The columns of each row, and ``items``: functions of the rows whose ``keys`` are the same."""

    keys: tuple[Expr, ...]
    items: Mapping[str, Expr]

    def _columns(self) -> Columns:
        return {**self.child.columns, **typed(self.items)}

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.keys, *self.items.values())


@dataclass(frozen=True, eq=False)
class Sort(OfOne):
    """All rows in the order of these ``SortOrder``."""

    order: tuple[Expr, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.order


@dataclass(frozen=True, eq=False)
class Limit(OfOne):
    """``most`` rows (None: all) after the first ``skipped`` ones, in the order of these ``SortOrder`` if there are any."""

    most: int | None
    skipped: int
    order: tuple[Expr, ...] = ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.order


# --- of several relations ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Union(Relation):
    """The rows of all branches, whose columns are the same."""

    branches: tuple[Relation, ...]

    def _columns(self) -> Columns:
        return self.branches[0].columns

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.branches


@dataclass(frozen=True, eq=False)
class Join(Relation):
    """Pairs of rows. ``how``: ``inner``, ``left``, ``right``, ``full``; ``semi``, ``anti``: the left rows that have, or have no, right row;
    ``exists``: all left rows, and whether there is a right one, in the column ``found``.

    ``equal``: equalities of an expression of the left rows and one of the right ones; ``pairs``: their sides, in this order. ``rest``: what
    else holds, as of :class:`Filter`.
    """

    left: Relation
    right: Relation
    how: str
    equal: tuple[Expr, ...]
    pairs: tuple[tuple[Expr, Expr], ...]
    rest: tuple[Expr, ...]
    found: str = ""

    def _columns(self) -> Columns:
        if self.how in ("semi", "anti"):
            return self.left.columns
        if self.how == "exists":
            return {**self.left.columns, self.found: "boolean"}
        return {**self.left.columns, **self.right.columns}

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.left, self.right

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.equal, *self.rest)


@dataclass(frozen=True, eq=False)
class Python(Relation):
    """The rows that a Python function makes of its inputs.

    ``step``: takes the query's steps and the rows of each input, and returns the rows of the function's step.
    """

    inputs: tuple[Relation, ...]
    kinds: Columns
    step: Callable[..., Any]

    def _columns(self) -> Columns:
        return self.kinds

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.inputs
