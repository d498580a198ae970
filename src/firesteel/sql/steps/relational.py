"""Relations of one input, unions, and rows that come from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firesteel.api.connectors import reading
from firesteel.api.steps import ordering
from firesteel.api.steps.combining.set_operations import union_of
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import SourceStep, StreamNode
from firesteel.plan.expr import Expr, attributes
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.relation import BySpark, Expand, Filter, Limit, Project, Scan, Sort, Stream, Union, Values
from firesteel.plan.types import arrow_type, checked, engine_type, quoted
from firesteel.render.expressions.nested.fitting import fitted
from firesteel.render.expressions.texts import undivided
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.steps.rows import Rows, by_keys

if TYPE_CHECKING:
    from firesteel.sql.steps.steps import Steps

# --- leaves ---------------------------------------------------------------------------------------------------------


def scan(steps: Steps, relation: Scan) -> Rows:
    source = relation.source
    begun = Pipeline(steps.env, StreamNode(source.name, SourceStep(source), source.schema))
    kinds, names = relation.columns, relation.names
    items = ", ".join(f"{_value(source.schema, names[column], kind)} AS {column}" for column, kind in kinds.items())
    # without a projection in between, so that the engine may read the files itself
    plain = {column: name for column, name in names.items() if not isinstance(kinds[column], dict)}
    return Rows(begun, kinds).selecting(items, kinds, "scan", passed=plain)


def _value(schema: pa.Schema, name: str, kind: Any) -> str:
    """A column of the source; of a nested one those fields that are wanted."""
    return fitted(quoted(name), schema.field(name).type, kind) if isinstance(kind, dict) else quoted(name)


def values(steps: Steps, relation: Values) -> Rows:
    return Rows(reading.from_arrow(steps.env, relation.rows), relation.columns)


def stream(steps: Steps, relation: Stream) -> Rows:
    pipeline, columns = relation.step, relation.columns
    passed = dict(zip(columns, pipeline.names, strict=True))
    items = [f"CAST({quoted(name)} AS {engine_type(columns[column])}) AS {column}" for column, name in passed.items()]
    same = {a: name for a, name in passed.items() if pipeline.schema.field(name).type == arrow_type(columns[a])}
    return Rows(pipeline, columns).selecting(", ".join(items), columns, "select", passed=same)


def by_spark(steps: Steps, relation: BySpark) -> Rows:
    return Rows(reading.from_spark(steps.env, "spark", relation.frame), relation.columns)


# --- what only wraps the query --------------------------------------------------------------------------------------


def project(steps: Steps, relation: Project) -> Rows:
    rows, columns = steps.rows(relation.child), relation.columns
    sides: list[tuple[str, Pipeline]] = []
    x = steps.expressions(sides)
    texts, passed = [], {}
    for name, item in relation.items.items():
        text = x.text(item)
        same = rows.columns.get(text) == columns[name]
        if same:
            passed[name] = text
        texts.append(text if text == name else f"{text if same else _cast(text, columns[name])} AS {name}")
    raises = any_raises(relation.items.values())
    if not any(
        map(attributes, relation.items.values())
    ):  # the engine would compute nothing of the rows but their number
        rows = rows.settled()
    return rows.selecting(", ".join(texts), columns, "project", "", tuple(sides), passed, raises=raises)


def _cast(text: str, kind: Any) -> str:
    return f"CAST({text} AS {engine_type(kind)})"


def filtered(steps: Steps, relation: Filter) -> Rows:
    return where(steps, steps.rows(relation.child), relation.conditions)


def where(steps: Steps, rows: Rows, conditions: tuple[Expr, ...]) -> Rows:
    """The rows for which all conditions hold. Spark computes a condition for the rows for which those before it hold.

    The engine has an order of its own. So conditions among which one may raise are one condition for it. Those before the first that may
    raise are also given one by one: by them the engine leaves out rows of files."""
    sides: list[tuple[str, Pipeline]] = []
    texts = steps.expressions(sides).texts(conditions)
    selective = any(one.cls != "IsNotNull" for one in conditions)
    raising = any_raises(conditions)
    if raising:
        sure = next(i for i, one in enumerate(conditions) if may_raise(one))
        texts = [*texts[:sure], undivided(texts)]
    tail = f"WHERE {' AND '.join(texts)}"
    rows = rows.settled()
    return rows.selecting("*", rows.columns, "filter", tail, tuple(sides), rows.unchanged, selective, raising)


def expand(steps: Steps, relation: Expand) -> Rows:
    rows, columns = steps.rows(relation.child), relation.columns
    x = Expressions()
    items = []
    for i, (name, kind) in enumerate(columns.items()):
        ways = [x.text(way[i]) for way in relation.ways]
        whens = " ".join(f"WHEN {k} THEN {way}" for k, way in enumerate(ways))
        text = ways[0] if len(set(ways)) == 1 else f"CASE fs_way {whens} END"
        items.append(f"{_cast(text, kind)} AS {name}")
    numbers = ", ".join(f"({k})" for k in range(len(relation.ways)))
    raises = any(map(any_raises, relation.ways))
    return rows.selecting(
        ", ".join(items), columns, "expand", f"CROSS JOIN (VALUES {numbers}) w(fs_way)", raises=raises
    )


# --- order ----------------------------------------------------------------------------------------------------------


def order_text(order: tuple[Expr, ...] | list[Expr]) -> str:
    x = Expressions()
    texts: list[str] = []
    for one in order:
        child = one["child"]
        kind, text = checked(child.type), x.text(child)
        if child.cls == "Literal":  # the engine takes none as it is: it might be a column's number
            text = _cast(text, kind)
        direction = "ASC" if one["direction"].cls == "Ascending" else "DESC"
        nulls = "FIRST" if one["nullOrdering"].cls == "NullsFirst" else "LAST"
        texts.append(f"{text} {direction} NULLS {nulls}")
    return ", ".join(texts)


def sort(steps: Steps, relation: Sort) -> Rows:
    """All rows in order. What Firesteel's own order has (nulls as the smallest) is sorted in ranges, else in one subtask."""
    rows = steps.rows(relation.child)
    by = [
        (one["child"], one["direction"].cls == "Ascending", one["nullOrdering"].cls == "NullsFirst")
        for one in relation.order
    ]
    for child, _, _ in by:
        checked(child.type)
    plain = all(child.cls == "AttributeReference" and first == ascending for child, ascending, first in by)
    if plain and len({child.id for child, _, _ in by}) == len(by):
        pairs = [(child.id, ascending) for child, ascending, _ in by]
        return Rows(ordering.sort(rows.step(), pairs, True), rows.columns)
    text = order_text(relation.order)
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 ORDER BY {text}", rows.columns, "sql(sort)", None)


def limit(steps: Steps, relation: Limit) -> Rows:
    """In each subtask first, as many as are needed of it, then in one."""
    rows, most, skipped = steps.rows(relation.child), relation.most, relation.skipped
    if not relation.order and not skipped and most is not None:
        return Rows(ordering.limit(rows.step(), most), rows.columns)
    cut = [f"LIMIT {most}"] if most is not None else []
    cut += [f"OFFSET {skipped}"] if skipped else []
    if relation.order:
        order = f"ORDER BY {order_text(relation.order)}"
        cut.insert(0, order)
        if most is not None:
            first = most + skipped
            rows = rows.settled().selecting("*", rows.columns, f"top {first}", f"{order} LIMIT {first}", selective=True)
    kind = f"sql(top {most})" if not skipped else f"sql(from {skipped})"
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 {' '.join(cut)}", rows.columns, kind, None)


# --- several inputs -------------------------------------------------------------------------------------------------


def union(steps: Steps, relation: Union) -> Rows:
    return Rows(union_of([steps.rows(branch).step() for branch in relation.branches]), relation.columns)
