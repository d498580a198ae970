"""Relations of one input, unions, and rows that come from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.compile import nodes
from firesteel.compile.relations.rows import Rows, by_keys
from firesteel.compile.stream_graph import SourceStep, StreamEdge, StreamNode
from firesteel.connectors.memory import TableSource
from firesteel.model.order import Order, OrderColumn
from firesteel.plan.expr import Expr, attributes
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.relation import (
    Aggregate,
    BySpark,
    Columns,
    Expand,
    Filter,
    Generate,
    Limit,
    Project,
    Scan,
    Sort,
    Stream,
    Union,
    Values,
    Window,
)
from firesteel.plan.types import arrow_type, checked_inside, engine_type
from firesteel.render.expressions.grouping import Grouping, WholeGroups, group_columns
from firesteel.render.expressions.texts import order_text
from firesteel.render.expressions.translator import Expressions
from firesteel.render.expressions.windows import function_text
from firesteel.render.relations import all_of, copies_text, expand_text, generate_text, scan_items, window_keys
from firesteel.results.order.ordering import can_order

if TYPE_CHECKING:
    from firesteel.compile.relations.steps import Steps


# --- leaves ---------------------------------------------------------------------------------------------------------


def scan(_: Steps, relation: Scan) -> Rows:
    source = relation.source
    begun = StreamNode(source.name, SourceStep(source), source.schema)
    kinds, names = relation.columns, relation.names
    items = scan_items(relation)
    # without a projection in between, so that the engine may read the files itself
    plain = {column: name for column, name in names.items() if not isinstance(kinds[column], dict)}
    return Rows(begun, kinds, by_place=True).selecting(items, kinds, "scan", passed=plain)


def values(_: Steps, relation: Values) -> Rows:
    source = TableSource(relation.rows)
    return Rows(StreamNode(source.name, SourceStep(source), source.schema), relation.columns)


def stream(_: Steps, relation: Stream) -> Rows:
    rows: StreamEdge = relation.step
    columns = relation.columns
    passed = dict(zip(columns, rows.schema.names, strict=True))
    items = [f"CAST(c{i} AS {engine_type(kind)}) AS {column}" for i, (column, kind) in enumerate(columns.items())]
    same = {a: name for a, name in passed.items() if rows.schema.field(name).type == arrow_type(columns[a])}
    whole = Rows(rows.source, columns, by_place=True, ship=rows.ship)
    return whole.selecting(", ".join(items), columns, "select", passed=same)


def by_spark(_: Steps, relation: BySpark) -> Rows:
    return Rows(relation.step, relation.columns)


# --- what only wraps the query --------------------------------------------------------------------------------------


def project(steps: Steps, relation: Project) -> Rows:
    rows, columns = steps.rows(relation.child), relation.columns
    sides: list[tuple[str, StreamNode]] = []
    x = steps.expressions(sides)
    texts, passed = [], {}
    for name, item in relation.items.items():
        text = x.text(item)
        same = rows.columns.get(text) == columns[name]
        if same:
            passed[name] = text
        texts.append(text if text == name else f"{text if same else _cast(text, columns[name])} AS {name}")
    if not any(map(attributes, relation.expressions)):  # the engine would compute only the number of rows
        rows = rows.settled()
    raises = any_raises(relation.expressions)
    return rows.selecting(", ".join(texts), columns, "project", "", tuple(sides), passed, raises=raises)


def _cast(text: str, kind: Any) -> str:
    return f"CAST({text} AS {engine_type(kind)})"


def filtered(steps: Steps, relation: Filter) -> Rows:
    return where(steps, steps.rows(relation.child), relation.conditions)


def where(steps: Steps, rows: Rows, conditions: tuple[Expr, ...]) -> Rows:
    """The rows for which all conditions hold."""
    sides: list[tuple[str, StreamNode]] = []
    tail = f"WHERE {all_of(conditions, steps.expressions(sides))}"
    selective = any(one.cls != "IsNotNull" for one in conditions)
    raising = any_raises(conditions)
    rows = rows.settled()
    return rows.selecting("*", rows.columns, "filter", tail, tuple(sides), rows.unchanged, selective, raising)


def expand(steps: Steps, relation: Expand) -> Rows:
    items, tail = expand_text(relation)
    raises = any_raises(relation.expressions)
    return steps.rows(relation.child).selecting(items, relation.columns, "expand", tail, raises=raises)


# --- order ----------------------------------------------------------------------------------------------------------


def sort(steps: Steps, relation: Sort) -> Rows:
    """All rows in order. What Firesteel's own order has (nulls as the smallest) is sorted in ranges, else in one subtask."""
    rows = steps.rows(relation.child)
    by = [
        (one["child"], one["direction"].cls == "Ascending", one["nullOrdering"].cls == "NullsFirst")
        for one in relation.order
    ]
    for child, _, _ in by:
        checked_inside(child.type)
    plain = all(
        child.cls == "AttributeReference" and first == ascending and can_order(arrow_type(child.type))
        for child, ascending, first in by
    )
    if plain and len({child.id for child, _, _ in by}) == len(by):
        order = Order(tuple(OrderColumn(child.id, ascending) for child, ascending, _ in by), split_equal=True)
        return Rows(nodes.sort(rows.step(), order), rows.columns)
    text = order_text(relation.order, Expressions())
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 ORDER BY {text}", rows.columns, "sql(sort)", None)


def limit(steps: Steps, relation: Limit) -> Rows:
    """In each subtask first, as many as are needed of it, then in one."""
    rows, most, skipped = steps.rows(relation.child), relation.most, relation.skipped
    if not relation.order and not skipped and most is not None:
        return Rows(nodes.limit(StreamEdge(rows.step()), most), rows.columns)
    cut = [f"LIMIT {most}"] if most is not None else []
    cut += [f"OFFSET {skipped}"] if skipped else []
    if relation.order:
        order = f"ORDER BY {order_text(relation.order, Expressions())}"
        cut.insert(0, order)
        if most is not None:
            first = most + skipped
            rows = rows.settled().selecting("*", rows.columns, f"top {first}", f"{order} LIMIT {first}", selective=True)
    kind = f"sql(top {most})" if not skipped else f"sql(from {skipped})"
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 {' '.join(cut)}", rows.columns, kind, None)


# --- windows ---------------------------------------------------------------------------------------------------------


def window(steps: Steps, relation: Window) -> Rows:
    before = steps.rows(relation.child)
    rows, keys = _with_keys(steps, before, relation.keys)
    columns, items = relation.columns, list(before.columns)
    x = Expressions(lambda part: function_text(part, keys))
    items += [
        f"CAST({x.text(item)} AS {engine_type(columns[name])}) AS {name}" for name, item in relation.items.items()
    ]
    query = f"SELECT {', '.join(items)} FROM input0"
    kept, raises = keys if set(keys) <= set(columns) else None, any_raises(relation.items.values())
    return by_keys([rows.step()], [keys], query, columns, "sql(window)", kept, raises=raises)


def _with_keys(steps: Steps, rows: Rows, parts: tuple[Expr, ...]) -> tuple[Rows, tuple[str, ...]]:
    """The rows with a column for each expression by which they are parted."""
    texts, kinds = window_keys(parts, steps.names)
    new = {name: (text, kinds[name]) for name, text in texts.items() if name not in rows.columns}
    return rows.adding(new, "keys", any_raises(parts)), tuple(texts)


# --- several inputs -------------------------------------------------------------------------------------------------


def union(steps: Steps, relation: Union) -> Rows:
    return Rows(nodes.union([StreamEdge(steps.rows(one).step()) for one in relation.branches]), relation.columns)


def generate(steps: Steps, relation: Generate) -> Rows:
    """Rows of the values of arrays and maps: ``explode``, ``posexplode``, ``inline``, ``stack``, each with ``LATERAL VIEW`` or without; and copies of rows."""
    rows, kept = steps.rows(relation.child).settled(), relation.kept
    if relation.generator.cls == "ReplicateRows":
        items, copied = copies_text(relation)
        columns = {**relation.output, **{name: rows.columns[name] for name in kept}}
        raises = any_raises(relation.generator["children"])
        return rows.selecting(items, columns, "copies", copied, raises=raises)
    lists, walked, items = generate_text(relation, steps.names)
    new = {name: (text, "generated") for name, text in lists.items()}
    rows = rows.adding(new, "generate", may_raise(relation.generator))
    passed = {name: name for name in kept}
    rows = rows.selecting(walked, rows.columns, "generate", passed=passed)
    return rows.selecting(items, relation.columns, "generate", passed=passed)


def aggregate(steps: Steps, relation: Aggregate) -> Rows:
    """In each subtask first, where the functions can be parted, then of all rows of a group."""
    rows = steps.rows(relation.child)
    try:
        return _aggregated(steps, relation, rows, parted=True)
    except WholeGroups:
        return _aggregated(steps, relation, rows, parted=False)


def _aggregated(steps: Steps, relation: Aggregate, rows: Rows, parted: bool) -> Rows:
    x = Expressions()
    groups, kinds, texts = group_columns(relation.groups, x, steps.names)
    grouping = Grouping(steps.names, x, groups, parted=parted)
    columns = relation.columns
    behind = Expressions(grouping.given)
    out = [
        f"CAST({behind.text(item)} AS {engine_type(columns[name])}) AS {name}" for name, item in relation.items.items()
    ]
    groups_raise = any_raises(relation.groups)
    raises = any_raises(relation.expressions)
    by = f" GROUP BY {', '.join(kinds)}" if kinds else ""
    keys = tuple(kinds)
    kept = keys if set(keys) <= set(columns) else None
    if parted:
        before = {**kinds, **{name: kind for name, (_, kind) in grouping.partial.items()}}
        items = [f"{text} AS {name}" for name, text in texts.items()]
        items += [f"CAST({text} AS {engine_type(kind)}) AS {name}" for name, (text, kind) in grouping.partial.items()]
        if not before:
            return _constants(steps, rows, out, columns)
        tail = f"GROUP BY {', '.join(texts.values())}" if kinds else ""
        passed = {name: name for name, text in texts.items() if text == name}
        local = rows.selecting(", ".join(items), before, "partial aggregate", tail, passed=passed, raises=raises)
    else:
        local = _with_groups(rows, kinds, texts, groups_raise)
    query = f"SELECT {', '.join(out)} FROM input0{by}"
    return by_keys([local.step()], [keys], query, columns, "sql(aggregate)", kept, raises=raises)


def _with_groups(rows: Rows, kinds: Columns, texts: dict[str, str], raises: bool) -> Rows:
    return rows.adding({n: (texts[n], kind) for n, kind in kinds.items() if n not in rows.columns}, "groups", raises)


def _constants(steps: Steps, rows: Rows, out: list[str], columns: Columns) -> Rows:
    """One row of constants, whatever the input has. The input is read all the same: it may raise an error of Spark's."""
    name = steps.names.new("rows")
    local = rows.selecting(f"count(*) AS {name}", {name: "long"}, "partial aggregate")
    query = f"SELECT {', '.join(out)} FROM input0 HAVING count(*) > 0"
    return by_keys([local.step()], [()], query, columns, "sql(one row)", None)
