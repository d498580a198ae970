"""Steps that users write and that plans need: joins, orders, first rows, unions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from firesteel.compile.stream_graph import (
    ChainedStep,
    KeyedStep,
    SortStep,
    StepConfig,
    StreamEdge,
    StreamNode,
    UnionStep,
    Work,
)
from firesteel.errors import UsageError
from firesteel.humanize import first_of
from firesteel.model.absorbing import SIDES
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.order import Order
from firesteel.task.expressions import column
from firesteel.task.operators.join import Comparison, HashJoin, build_sides, join_kind, join_schema
from firesteel.task.operators.relational import Limit, Project
from firesteel.task.operators.sort import Sort
from firesteel.task.program import Operator


def unchanged(schema: pa.Schema) -> dict[str, str]:
    """Output column to input column, for a step that passes every column as it is."""
    return {name: name for name in schema.names}


def join(  # noqa: PLR0917
    left: StreamEdge,
    right: StreamEdge,
    how: str,
    suffix: str = "_right",
    broadcast: str | None = None,
    place: str = "",
    conditions: tuple[Comparison, ...] = (),
) -> StreamNode:
    """The rows of two edges by their keys, and by conditions. Raises UsageError."""
    kind = join_kind(how)
    _check_broadcast(kind, broadcast)
    schema = join_schema(left.schema, right.schema, left.keys, right.keys, kind, suffix)
    name = join_name(kind, conditions)
    joined = HashJoin(name, kind, left.keys, right.keys, left.schema, right.schema, schema, conditions)
    return keyed_join(left, right, joined, place, broadcast)


def join_name(kind: str, conditions: Sequence[Comparison]) -> str:
    return f"{kind} join ({first_of(list(map(str, conditions)), 4)})" if conditions else f"{kind} join"


def keyed_join(
    left: StreamEdge, right: StreamEdge, join: HashJoin, place: str, broadcast: str | None = None
) -> StreamNode:
    work, config = KeyedStep(join, join, join.keys, join.left_keys), StepConfig(broadcast=broadcast)
    return StreamNode(join.name, work, join.schema, (left, right), place=place, config=config)


def _check_broadcast(kind: str, broadcast: str | None) -> None:
    if broadcast is None or broadcast == "never":
        return
    if broadcast not in SIDES:
        raise UsageError(f"broadcast={broadcast!r} is not a side of a join.", hint='Say "left", "right" or "never".')
    able = [SIDES[side] for side in build_sides(kind)]
    if broadcast not in able:
        raise UsageError(
            f"The {broadcast} side of a {kind} join cannot be broadcast: its rows without a match come out once, but each task "
            "would give them.",
            hint=f"Broadcast the {able[0]} side, or leave broadcast out." if able else "Leave broadcast out.",
        )


def sort(node: StreamNode, order: Order, place: str = "") -> StreamNode:
    kind = f"sort({said(order)})"
    return ranged(node, kind, SortStep(Sort(kind, order)), order, place)


def ranged(node: StreamNode, kind: str, work: Work, order: Order, place: str) -> StreamNode:
    """The rows in ranges of an order. No pass over the data is made to sample it."""
    edge = StreamEdge(node, ShipStrategy.RANGE, order.names, order=order)
    return StreamNode(kind, work, node.schema, (edge,), place=place)


def said(order: Order) -> str:
    """For people."""
    return ", ".join(one.name if one.ascending else f"{one.name} descending" for one in order.columns)


def limit(rows: StreamEdge, n: int, place: str = "") -> StreamNode:
    return in_two(rows, f"limit({n})", lambda name: Limit(name, n), place)


def in_two(rows: StreamEdge, kind: str, operator: Callable[[str], Operator], place: str) -> StreamNode:
    """In every subtask first, then in one subtask on the rows that these passed on."""
    passed, schema, local = unchanged(rows.schema), rows.schema, f"local {kind}"
    first = StreamNode(local, ChainedStep(operator(local), passed), schema, (rows,), place=place)
    of_first = StreamEdge(first, ShipStrategy.GLOBAL)
    return StreamNode(kind, ChainedStep(operator(kind), passed), schema, (of_first,), place=place)


def union(inputs: Sequence[StreamEdge], place: str = "") -> StreamNode:
    """Raises UsageError for columns that do not agree."""
    schema = same_columns([one.schema for one in inputs], "union")
    return StreamNode("union", UnionStep(), schema, tuple(under(one, schema, place) for one in inputs), place=place)


def same_columns(schemas: Sequence[pa.Schema], kind: str) -> pa.Schema:
    """The schema of a union: names and types must agree, a column is nullable if it is in any. Raises UsageError."""
    first, *others = schemas
    fields: list[Any] = list(first)
    for number, other in enumerate(others, 2):
        if other.names != first.names:
            raise UsageError(
                f"{kind}: stream 1 has the columns {', '.join(first.names)}; stream {number} has {', '.join(other.names)}.",
                hint="Bring them in line with select().",
            )
        for i, field in enumerate(other):
            if field.type != fields[i].type:
                raise UsageError(
                    f"{kind}: column '{field.name}' is {fields[i].type} in stream 1 and {field.type} in stream {number}.",
                    hint=f'Cast one of them: with_column("{field.name}", col("{field.name}").cast(...)).',
                )
            fields[i] = fields[i].with_nullable(fields[i].nullable or field.nullable)
    return pa.schema(fields)


def under(rows: StreamEdge, schema: pa.Schema, place: str) -> StreamEdge:
    """The same rows under a schema that differs in nullability at most."""
    if rows.schema.equals(schema):
        return rows
    columns = tuple((name, column(name)) for name in schema.names)
    work = ChainedStep(Project("select", columns, schema), unchanged(schema), columns)
    return StreamEdge(StreamNode("select", work, schema, (StreamEdge(rows.source),), place=place), rows.ship)
