"""Relations on the rows of a step, as steps: groups (partial rows before the exchange, the groups after it), windows, distinct rows, set
operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from firesteel.compile.stream_graph import KeyedStep, StreamEdge, StreamNode
from firesteel.engine.convert import carrier, not_taken
from firesteel.engine.files import by_place
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.plan.expr import Expr, column
from firesteel.plan.relation import Aggregate, Relation, Stream, Window
from firesteel.plan.types import handed_on, type_of
from firesteel.render.groups import counted_rows, one_per_key, texts_of, windowed
from firesteel.render.groups import set_operation as set_operation_text
from firesteel.render.query import Query
from firesteel.task.operators.aggregation.aggregate import plain_type
from firesteel.task.operators.fragments import INPUT, SqlFragment, SqlOfKeys
from firesteel.task.operators.groups import AddCounts, CountValues, PartialRows, SqlGroups


def stream_of(
    node: StreamNode, reads: Sequence[str], kind: str, to: Callable[[pa.DataType], pa.DataType] = carrier
) -> Stream:
    """These columns of the rows of a step, by their places. ``to``: the type in which the engine takes values of a type. Raises UsageError for
    types that it does not take."""
    schema = narrowed(node.schema, reads)
    check_types(schema, kind, to)
    kinds = [type_of(to(field.type)) for field in schema]
    return Stream(dict(zip(by_place(schema), kinds, strict=True)), StreamEdge(node))


def check_types(schema: pa.Schema, kind: str, to: Callable[[pa.DataType], pa.DataType] = carrier) -> None:
    """``to``: as of :func:`stream_of`. Raises UsageError."""
    refused = not_taken(schema, to)
    if refused is not None:
        raise UsageError(
            f"{kind} does not work on column '{refused.name}' of type {refused.type}.", hint="Cast the column before."
        )


def columns_of(stream: Stream, reads: Sequence[str]) -> dict[str, Expr]:
    """The columns of :func:`stream_of` these ``reads``, by their names for users."""
    return dict(zip(reads, map(column, stream.kinds, stream.kinds.values()), strict=True))


def narrowed(schema: pa.Schema, reads: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in reads])


def key_fields(schema: pa.Schema, keys: Sequence[str]) -> list[pa.Field]:
    """The keys of groups: plain values, and a null where rows had one."""
    return [pa.field(key, plain_type(schema.field(key).type)) for key in keys]


def groups(  # noqa: PLR0917
    rows: StreamNode,
    relation: Aggregate,
    keys: tuple[str, ...],
    reads: Sequence[str],
    out: pa.Schema,
    kind: str,
    made: Mapping[str, tuple[str, ...]],
    by_order: tuple[str, ...],
    place: str,
) -> StreamNode:
    """``relation``: on :func:`stream_of` these ``reads``; ``keys``: the names of its groups; ``made``, ``by_order``: as of
    :class:`KeyedStep`."""
    texts = texts_of(relation)
    schema = narrowed(rows.schema, reads)
    hidden = {name: f"__{name}" for name in texts.kinds}
    while set(hidden.values()) & set(keys):
        hidden = {name: f"_{shown}" for name, shown in hidden.items()}
    values = tuple(hidden[name] for name in texts.values)
    partial = pa.schema([*key_fields(schema, keys), *(pa.field(hidden[n], kind) for n, kind in texts.kinds.items())])
    names = ((*texts.keys, *texts.kinds),)
    ids = dict(zip(by_place(schema), reads, strict=True))
    by = [ids[one] for one in texts.merged_by]
    combiner = PartialRows(SqlFragment(f"partial {kind}", texts.partial, schema, partial), texts.single, tuple(by))
    final = SqlGroups(SqlOfKeys(kind, texts.final, (keys,), (partial,), out, names=names))
    if texts.counted:
        fields = [pa.field(f.name, pa.int64()) if f.name in values else f for f in partial]
        counted = pa.schema(fields)
        count = SqlOfKeys(kind, texts.counted, (keys or values,), (partial,), counted, names=names)
        add = SqlOfKeys(kind, texts.added, (keys,), (counted,), out, names=names)
        two = CountValues(count, divided_by=values, group_keys=keys), AddCounts(add)
        final = replace(final, in_two=two)
    direct = SqlGroups(SqlOfKeys(kind, texts.whole, (keys,), (schema,), out))
    return _keyed(rows, keys, combiner, KeyedStep(final, direct, (keys,), keys, made, by_order), place)


def sort_order(by: Expr, ascending: bool, nulls_first: bool) -> Expr:
    direction, nulls = "Ascending" if ascending else "Descending", "NullsFirst" if nulls_first else "NullsLast"
    return Expr("SortOrder", {"child": by, "direction": Expr(direction, {}), "nullOrdering": Expr(nulls, {})})


def ties(columns: Iterable[Expr]) -> Expr:
    """An order of rows that are equal in those before, by their values alone: of a hash."""
    row = Expr("HashOfRow", {"children": list(columns)}, handed_on(pa.uint64()))
    return sort_order(row, ascending=True, nulls_first=True)


def text_of(relation: Relation) -> str:
    """As of :class:`SqlFragment`. ``relation``: on :func:`stream_of` all columns."""
    return Query(lambda leaf: INPUT).text(relation)


def window(  # noqa: PLR0917
    rows: StreamNode,
    relation: Window,
    keys: tuple[str, ...],
    out: pa.Schema,
    kind: str,
    alone: bool,
    made: Mapping[str, tuple[str, ...]],
    ordered_by: tuple[str, ...],
    place: str,
) -> StreamNode:
    """``relation``: on :func:`stream_of` all columns, in the types in which they are only handed on; ``alone``: its text holds for these types
    only, or may raise; ``made``, ``ordered_by``: as of :class:`KeyedStep`. Raises Unsupported."""
    passed = {} if alone else {key: key for key in keys}
    text = windowed(relation, "input0")
    query = SqlOfKeys(kind, text, (keys,), (rows.schema,), out, (passed,), raises=alone, computes=False)
    operator = SqlGroups(query) if alone else query
    work = KeyedStep(operator, operator, (keys,), keys, made, ordered_by=ordered_by)
    ship = ShipStrategy.HASH if keys else ShipStrategy.GLOBAL
    return StreamNode(kind, work, out, (StreamEdge(rows, ship, keys),), place=place)


def distinct(rows: StreamNode, keys: tuple[str, ...], kind: str, place: str) -> StreamNode:
    """One row of those that agree in ``keys``: the first one in the order of the other columns."""
    stream = stream_of(rows, rows.schema.names, kind)
    places = [rows.schema.names.index(key) for key in keys]
    plain = [field.with_type(plain_type(field.type)) for field in rows.schema]
    out = pa.schema(plain)
    text, single = one_per_key(stream, places, "input"), "SELECT * FROM input"
    combiner = PartialRows(SqlFragment(f"partial {kind}", text, rows.schema, out), single, keys)
    text = one_per_key(stream, places, "input0")
    both = (SqlOfKeys(kind, text, (keys,), (schema,), out) for schema in (out, rows.schema))
    final, direct = map(SqlGroups, both)
    return _keyed(rows, keys, combiner, KeyedStep(final, direct, (keys,), keys), place)


def set_operation(sides: Sequence[StreamNode], kind: str, schema: pa.Schema, place: str) -> StreamNode:
    """Of two inputs: ``subtract``, ``except_all``, ``intersect`` or ``intersect_all``. Equal rows travel as one row with their number."""
    stream = stream_of(sides[0], schema.names, kind)
    keys, number = tuple(schema.names), "rows"
    while number in keys:
        number = f"_{number}"
    out = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    counted = out.append(pa.field(number, pa.int64()))
    names = ((*stream.kinds, "n"),) * 2
    text = counted_rows(stream, "input")
    combiners = [PartialRows(SqlFragment("counted rows", text, one.schema, counted)) for one in sides]
    rows = [f"({counted_rows(stream, f'input{side}')})" for side in (0, 1)]
    texts = set_operation_text(stream, kind, "input0", "input1"), set_operation_text(stream, kind, *rows)
    final = SqlGroups(SqlOfKeys(kind, texts[0], (keys, keys), (counted, counted), out, names=names))
    direct = SqlGroups(SqlOfKeys(kind, texts[1], (keys, keys), tuple(one.schema for one in sides), out))
    edges = tuple(
        StreamEdge(one, ShipStrategy.HASH, keys, combiner, counted)
        for one, combiner in zip(sides, combiners, strict=True)
    )
    work = KeyedStep(final, direct, (keys, keys), keys)
    return StreamNode(kind, work, out, edges, place=place)


def side_by_side(left: StreamNode, right: StreamNode, keys: tuple[str, ...], place: str) -> StreamNode:
    """The columns of both, which have one row for each of the same keys. Without keys: one row each."""
    rest = [field for field in right.schema if field.name not in keys]
    out = pa.schema([*left.schema, *rest])
    sides = [dict(zip(one.schema.names, by_place(one.schema), strict=True)) for one in (left, right)]
    equal = " AND ".join(f"l.{sides[0][key]} IS NOT DISTINCT FROM r.{sides[1][key]}" for key in keys) or "true"
    differ = (
        "A step groups its rows twice, by Spark''s aggregates or of another kind, and found other groups the second time. "
        "Its input gives other rows each time: cache() it"
    )
    whole = f"CASE WHEN l.there AND r.there THEN {{}} ELSE error('{differ}') END"
    items = [f"l.{name}" for name in sides[0].values()] + [f"r.{sides[1][field.name]}" for field in rest]
    items[0] = whole.format(items[0])
    rows = [f"(SELECT *, true AS there FROM input{number})" for number in (0, 1)]
    text = f"SELECT {', '.join(items)} FROM {rows[0]} AS l FULL JOIN {rows[1]} AS r ON {equal}"
    operator = SqlGroups(SqlOfKeys("aggregate", text, (keys, keys), (left.schema, right.schema), out))
    ship = ShipStrategy.HASH if keys else ShipStrategy.GLOBAL
    edges = tuple(StreamEdge(one, ship, keys) for one in (left, right))
    work = KeyedStep(operator, operator, (keys, keys), keys or None)
    return StreamNode("aggregate", work, out, edges, place=place)


def _keyed(rows: StreamNode, keys: tuple[str, ...], combiner: PartialRows, work: KeyedStep, place: str) -> StreamNode:
    ship = ShipStrategy.HASH if keys else ShipStrategy.GLOBAL
    reads = tuple(combiner.reads.names)
    edge = StreamEdge(rows, ship, keys, combiner, combiner.schema, reads=reads)
    out = work.operator
    assert isinstance(out, SqlGroups)
    return StreamNode(out.name, work, out.schema, (edge,), place=place)
