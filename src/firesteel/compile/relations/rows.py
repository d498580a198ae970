"""The rows of a relation on their way to steps: a step, and a query on it that is not a step yet.

Operators that need no exchange only wrap the query; the first one that needs its rows makes one step of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from firesteel.compile.nodes import unchanged
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.model.job_graph import ShipStrategy
from firesteel.plan.relation import Columns, schema_of
from firesteel.task.operators.fragments import INPUT, SqlFragment, SqlOfKeys


@dataclass(frozen=True, slots=True)
class Rows:
    """``query``: on ``INPUT``, the rows of ``node``; None: these rows themselves. ``sides``: what the query reads besides."""

    node: StreamNode
    columns: Columns
    query: str | None = None
    what: tuple[str, ...] = ()
    """The operators in the query, for people."""
    sides: tuple[tuple[str, StreamNode], ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    """Of the query: by column that of ``node`` which it is, if rows of one value are made of rows of this value alone."""
    selective: bool = False
    """The query is there to drop rows, too."""
    raises: bool = False
    """Something in the query may raise an error of Spark's."""
    by_place: bool = False
    """The query names the columns of ``node`` by their places, since a user has named them."""
    ship: ShipStrategy | None = None
    """How the rows of ``node`` travel to the query; None: as it needs them."""
    likely: float | None = None
    """How many rows these are, guessed."""

    @property
    def unchanged(self) -> dict[str, str]:
        """Of a query on this one that looks at row by row: all columns, as they are."""
        return {name: name for name in self.columns}

    @property
    def relation(self) -> str:
        return f"({self.query}) t" if self.query else INPUT

    def selecting(  # noqa: PLR0917
        self,
        items: str,
        columns: Columns,
        what: str,
        tail: str = "",
        sides: tuple[tuple[str, StreamNode], ...] = (),
        passed: Mapping[str, str] | None = None,
        selective: bool = False,
        raises: bool = False,
    ) -> Rows:
        """A query on this one: ``SELECT items FROM it tail``.

        ``passed``: by column that of this one which it is, if rows of one value are made of rows of this value alone: they need not
        be read where the value is not wanted. ``selective``: it is there to drop rows. ``raises``: it computes what may raise an error of
        Spark's: then each row is read."""
        if items == ", ".join(self.columns) and columns == self.columns and not tail:
            return self
        query = f"SELECT {items} FROM {self.relation}{' ' + tail if tail else ''}"
        before = unchanged(self.node.schema) if self.query is None else self.origins
        passed = {} if raises or passed is None else passed
        origins = {name: before[there] for name, there in passed.items() if name in columns and there in before}
        named, sides, selective = (*self.what, what), (*self.sides, *sides), selective or self.selective
        raises = raises or self.raises
        return Rows(
            self.node, columns, query, named, sides, origins, selective, raises, self.by_place, self.ship, self.likely
        )

    def settled(self) -> Rows:
        """These rows, for a query that drops some of them. What may raise an error is a step of its own before it: no rule of the engine's
        optimiser drops rows of another statement."""
        return Rows(self.step(), self.columns) if self.raises else self

    def adding(self, new: Mapping[str, tuple[str, Any]], what: str, raises: bool = False) -> Rows:
        """The same rows with these columns behind their own: text and type by name."""
        if not new:
            return self
        items = ", ".join(["*", *(f"{text} AS {name}" for name, (text, _) in new.items())])
        columns = {**self.columns, **{name: kind for name, (_, kind) in new.items()}}
        copies = {name: text for name, (text, _) in new.items() if text in self.columns}
        return self.selecting(items, columns, what, passed={**self.unchanged, **copies}, raises=raises)

    def _as_query(self) -> Rows:
        names = ", ".join(self.columns)
        return replace(self, query=f"SELECT {names} FROM {INPUT}", what=("select",), origins=self.unchanged)

    def step(self, schema: pa.Schema | None = None, place: str = "") -> StreamNode:
        """The step that gives these rows. ``schema``: their names and types for users; ``place``: where the user asked."""
        if schema is None and self.query is None and list(self.columns) == self.node.schema.names:
            return self.node
        if self.query is None:
            return self._as_query().step(schema, place)
        out = schema_of(self.columns) if schema is None else schema
        kind = f"sql({', '.join(dict.fromkeys(self.what)) or 'select'})"
        given = dict(zip(self.columns, out.names, strict=True))
        passed = {given[name]: there for name, there in self.origins.items()}
        sides = tuple(name for name, _ in self.sides)
        names = () if self.by_place else tuple(self.node.schema.names)
        work = ChainedStep(
            SqlFragment(kind, self.query, self.node.schema, out, sides, passed, self.selective, (), names, self.raises)
        )
        edges = tuple((name, StreamEdge(side, ShipStrategy.BROADCAST)) for name, side in self.sides)
        likely = None if self.likely is None else round(self.likely * sum(map(_width, out.types)))
        return StreamNode(kind, work, out, (StreamEdge(self.node, self.ship),), edges, place, likely_bytes=likely)


def _width(kind: pa.DataType) -> int:
    """About the plain bytes of a value."""
    return max(kind.bit_width // 8, 1) if pa.types.is_primitive(kind) else 16


def by_keys(  # noqa: PLR0917
    inputs: list[StreamNode],
    keys: list[tuple[str, ...]],
    query: str,
    columns: Columns,
    kind: str,
    kept: tuple[str, ...] | None,
    passed: tuple[Mapping[str, str], ...] | None = None,
    raises: bool = False,
) -> Rows:
    """A step on all rows of its keys: ``query`` reads ``input0``, ``input1``. Without keys: one subtask reads all.

    ``kept``: the keys, if they are columns of what comes out. ``passed``: as of :class:`SqlOfKeys`; None: the kept keys. ``raises``: the
    query computes what may raise an error of Spark's: then all rows are read."""
    schema = schema_of(columns)
    ship = ShipStrategy.HASH if keys[0] else ShipStrategy.GLOBAL
    edges = tuple(StreamEdge(one, ship, names) for one, names in zip(inputs, keys, strict=True))
    passed = ({key: key for key in kept or ()},) if passed is None else passed
    passed = tuple({} for _ in passed) if raises else passed
    operator = SqlOfKeys(
        kind,
        query,
        tuple(keys),
        tuple(one.schema for one in inputs),
        schema,
        passed,
        tuple(tuple(one.schema.names) for one in inputs),
        raises,
    )
    work = KeyedStep(operator, operator, tuple(keys), kept if keys[0] else None)
    return Rows(StreamNode(kind, work, schema, edges), columns)
