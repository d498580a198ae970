"""The rows of an operator on their way to steps: a pipeline, and a query on it that is no step yet.

Operators that need no exchange only wrap the query; the first one that needs its rows makes one step of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.model.job_graph import ShipStrategy
from firesteel.sql.expressions.types import arrow_type
from firesteel.task.engine.fragments import INPUT, SqlFragment, SqlOfKeys

Columns = dict[str, Any]
"""Spark's type by column."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``query``: on ``INPUT``, the rows of ``pipeline``; None: these rows themselves. ``sides``: what the query reads besides."""

    pipeline: Pipeline
    columns: Columns
    query: str | None = None
    what: tuple[str, ...] = ()
    """The operators in the query, for people."""
    sides: tuple[tuple[str, Pipeline], ...] = ()

    @property
    def relation(self) -> str:
        return f"({self.query}) t" if self.query else INPUT

    def selecting(
        self, items: str, columns: Columns, what: str, tail: str = "", sides: tuple[tuple[str, Pipeline], ...] = ()
    ) -> Rows:
        """A query on this one: ``SELECT items FROM it tail``."""
        query = f"SELECT {items} FROM {self.relation}{' ' + tail if tail else ''}"
        return replace(self, columns=columns, query=query, what=(*self.what, what), sides=(*self.sides, *sides))

    def step(self, schema: pa.Schema | None = None, place: str = "") -> Pipeline:
        """The pipeline that ends with these rows. ``schema``: their names and types for users; ``place``: where the user asked."""
        if schema is None and self.query is None and list(self.columns) == self.pipeline.names:
            return self.pipeline
        query = self.query or f"SELECT {', '.join(self.columns)} FROM {INPUT}"
        schema = schema_of(self.columns) if schema is None else schema
        kind = f"sql({', '.join(dict.fromkeys(self.what)) or 'select'})"
        work = ChainedStep(SqlFragment(kind, query, self.pipeline.schema, schema, tuple(n for n, _ in self.sides)))
        edges = tuple((name, StreamEdge(side.node, ShipStrategy.BROADCAST)) for name, side in self.sides)
        before = Pipeline(self.pipeline.env, self.pipeline.node, self.pipeline.ship, edges)
        return before.then(kind, work, schema, place, with_sides=True)


def schema_of(columns: Columns) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


def by_keys(  # noqa: PLR0917
    inputs: list[Pipeline],
    keys: list[tuple[str, ...]],
    query: str,
    columns: Columns,
    kind: str,
    kept: tuple[str, ...] | None,
) -> Rows:
    """A step on all rows of its keys: ``query`` reads ``input0``, ``input1``. Without keys: one subtask reads all."""
    schema = schema_of(columns)
    ship = ShipStrategy.HASH if keys[0] else ShipStrategy.GLOBAL
    edges = tuple(StreamEdge(one.node, ship, names) for one, names in zip(inputs, keys, strict=True))
    operator = SqlOfKeys(kind, query, tuple(keys), tuple(one.schema for one in inputs), schema)
    work = KeyedStep(operator, operator, tuple(keys), kept if keys[0] else None)
    return Rows(inputs[0].at(StreamNode(kind, work, schema, edges)), columns)
