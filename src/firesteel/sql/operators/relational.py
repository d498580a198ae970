"""Operators of one input, unions, and rows that the driver has: each a function from Spark's operator to rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from firesteel.api.connectors import reading
from firesteel.api.steps import ordering
from firesteel.api.steps.combining.set_operations import union_of
from firesteel.api.steps.pipeline import Pipeline
from firesteel.plan.expr import Expr, Unsupported, conjuncts
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.types import arrow_type, carried, checked, engine_type, quoted
from firesteel.render.expressions.texts import undivided
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.operators.rows import Columns, Rows, by_keys
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner

# --- leaves ---------------------------------------------------------------------------------------------------------


def stream(planner: Planner, node: Operator) -> Rows:
    """A stream of the environment, which an RDD without rows stands for in the plan."""
    rdd = node["rdd"]
    pipeline = planner.streams.get(rdd.get("rdd", -1)) if isinstance(rdd, dict) else None
    if pipeline is None:
        raise Unsupported("rows that the driver or Python has are Spark's")
    columns: Columns = {}
    items: list[str] = []
    for attribute, name in zip(node["output"], pipeline.names, strict=True):
        columns[attribute.id] = carried(attribute.type)
        items.append(f"CAST({quoted(name)} AS {engine_type(attribute.type)}) AS {attribute.id}")
    planner.taken += 1
    passed = {a.id: name for a, name in zip(node["output"], pipeline.names, strict=True)}
    same = {a: name for a, name in passed.items() if pipeline.schema.field(name).type == arrow_type(columns[a])}
    return Rows(pipeline, columns).selecting(", ".join(items), columns, "select", passed=same)


def local(planner: Planner, node: Operator) -> Rows:
    """Rows that the plan itself holds: of ``VALUES``, of a small pandas DataFrame, or none because a condition is never true."""
    columns = {a.id: carried(a.type) for a in node["output"]}
    if len(columns) < len(node["output"]) or node["isStreaming"]:
        raise Unsupported("local rows with a column twice")
    if not columns:  # for their number
        return _numbered(planner, node["data"])
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    table = planner.catalyst.table_of(node, list(columns)).cast(schema) if node["data"] else schema.empty_table()
    return Rows(reading.from_arrow(planner.env, table), columns)  # type: ignore[arg-type]


def one_row(planner: Planner, node: Operator) -> Rows:
    return _numbered(planner, 1)


def _numbered(planner: Planner, count: int) -> Rows:
    name = planner.names.new("one")
    rows = pa.table({name: pa.array([1] * count, pa.int32())})
    return Rows(reading.from_arrow(planner.env, rows), {name: "integer"})  # type: ignore[arg-type]


def unchanged(planner: Planner, node: Operator) -> Rows:
    """Of an operator that only says how rows are spread, or a hint that they are cut behind it. An order below it stays."""
    return planner.rows(node["child"])


# --- operators that only wrap the query ------------------------------------------------------------------------------


def project(planner: Planner, node: Operator) -> Rows:
    rows = planner.rows(node["child"])
    return projected(planner, rows, node["projectList"])


def projected(
    planner: Planner, rows: Rows, items: list[Expr], given: Callable[[Expr], str | None] | None = None
) -> Rows:
    sides: list[tuple[str, Pipeline]] = []
    x = planner.expressions(sides, given)
    texts, columns, passed = [], {}, {}
    for item in items:
        if item.id in columns:  # Spark may name a column twice
            continue
        kind = carried(item.type)
        columns[item.id] = kind
        text = x.text(item)
        texts.append(text if text == item.id else f"CAST({text} AS {engine_type(kind)}) AS {item.id}")
        if rows.columns.get(text) == kind:
            passed[item.id] = text
    if not columns:  # rows without columns: one is kept, for their number
        kept = next(iter(rows.columns))
        return rows.settled().selecting(kept, {kept: rows.columns[kept]}, "project")
    return rows.selecting(", ".join(texts), columns, "project", "", tuple(sides), passed, raises=any_raises(items))


def filter(planner: Planner, node: Operator) -> Rows:
    return filtered(planner, planner.rows(node["child"]), conjuncts(node["condition"]))


def filtered(planner: Planner, rows: Rows, conditions: list[Expr]) -> Rows:
    """The rows for which all conditions hold. Spark computes a condition for the rows for which those before it hold.

    The engine has an order of its own. So conditions among which one may raise are one condition for it. Those before the first that may
    raise are also given one by one: by them the engine leaves out rows of files."""
    sides: list[tuple[str, Pipeline]] = []
    texts = planner.expressions(sides).texts(conditions)
    selective = any(one.cls != "IsNotNull" for one in conditions)
    raising = any_raises(conditions)
    if raising:
        sure = next(i for i, one in enumerate(conditions) if may_raise(one))
        texts = [*texts[:sure], undivided(texts)]
    where = f"WHERE {' AND '.join(texts)}"
    rows = rows.settled()
    return rows.selecting("*", rows.columns, "filter", where, tuple(sides), rows.unchanged, selective, raising)


def expand(planner: Planner, node: Operator) -> Rows:
    rows = planner.rows(node["child"])
    x = Expressions()
    columns = {a.id: carried(a.type) for a in node["output"]}
    items = []
    for i, (name, kind) in enumerate(columns.items()):
        ways = [x.text(projection[i]) for projection in node["projections"]]
        whens = " ".join(f"WHEN {k} THEN {way}" for k, way in enumerate(ways))
        text = ways[0] if len(set(ways)) == 1 else f"CASE fs_way {whens} END"
        items.append(f"CAST({text} AS {engine_type(kind)}) AS {name}")
    if not columns:  # rows without columns: one is kept, for their number
        columns[planner.names.new("way")] = "integer"
        items.append(f"fs_way AS {next(iter(columns))}")
    ways = ", ".join(f"({k})" for k in range(len(node["projections"])))
    raises = any(map(any_raises, node["projections"]))
    return rows.selecting(", ".join(items), columns, "expand", f"CROSS JOIN (VALUES {ways}) w(fs_way)", raises=raises)


# --- order ---------------------------------------------------------------------------------------------------------


def order_text(order: list[Expr]) -> str:
    x = Expressions()
    texts: list[str] = []
    for one in order:
        child = one["child"]
        kind, text = checked(child.type), x.text(child)
        if child.cls == "Literal":  # the engine takes none as it is: it might be a column's number
            text = f"CAST({text} AS {engine_type(kind)})"
        direction = "ASC" if one["direction"].cls == "Ascending" else "DESC"
        nulls = "FIRST" if one["nullOrdering"].cls == "NullsFirst" else "LAST"
        texts.append(f"{text} {direction} NULLS {nulls}")
    return ", ".join(texts)


def sort(planner: Planner, node: Operator) -> Rows:
    """All rows in order. What Firesteel's own order has (nulls as the smallest) is sorted in ranges, else in one subtask."""
    if node["global"] is not True:
        raise Unsupported("an order within partitions is Spark's")
    rows = planner.rows(node["child"])
    by = [
        (one["child"], one["direction"].cls == "Ascending", one["nullOrdering"].cls == "NullsFirst")
        for one in node["order"]
    ]
    for child, _, _ in by:
        checked(child.type)
    plain = all(child.cls == "AttributeReference" and first == ascending for child, ascending, first in by)
    if plain and len({child.id for child, _, _ in by}) == len(by):
        pairs = [(child.id, ascending) for child, ascending, _ in by]
        return Rows(ordering.sort(rows.step(), pairs, True), rows.columns)
    text = order_text(node["order"])
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 ORDER BY {text}", rows.columns, "sql(sort)", None)


# --- several inputs --------------------------------------------------------------------------------------------------


def union(planner: Planner, node: Operator) -> Rows:
    if node.get("byName"):
        raise Unsupported("a union by names is Spark's")
    columns: Columns = {a.id: carried(a.type) for a in planner.catalyst.output_of(node)}
    streams: list[Pipeline] = []
    if not columns:  # rows without columns: they get one, for their number
        name, kind = planner.names.new("one"), "integer"
        ones = f"CAST(1 AS {engine_type(kind)}) AS {name}"
        streams += [planner.rows(child).selecting(ones, {name: kind}, "union").step() for child in node["children"]]
        return Rows(union_of(streams), {name: kind})
    for child in node["children"]:
        mine = planner.catalyst.output_of(child)
        if [engine_type(a.type) for a in mine] != [engine_type(kind) for kind in columns.values()]:
            raise Unsupported("a union of different types, or with a column twice, is not taken over")
        rows, named = planner.rows(child), list(zip(mine, columns.items(), strict=True))
        items = ", ".join(f"{a.id} AS {name}" for a, (name, _) in named)
        passed = {name: a.id for a, (name, kind) in named if rows.columns.get(a.id) == kind}
        streams.append(rows.selecting(items, columns, "union", passed=passed).step())
    return Rows(union_of(streams), columns)
