"""Spark's operators as relations, but those of files (``scans``) and of Python functions (``python``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firesteel.plan.expr import Expr, Unsupported, attributes, column, conjuncts, integer, replaced, same, walk
from firesteel.plan.relation import (
    Aggregate,
    Columns,
    Expand,
    Filter,
    Generate,
    Join,
    Limit,
    Project,
    Relation,
    Sort,
    Stream,
    Union,
    Values,
    Window,
    only,
    type_of_column,
    with_columns,
)
from firesteel.plan.types import FLOATS, arrow_type, engine_type, fields_of, grouped
from firesteel.render.expressions.statistics import LISTS, UNORDERED
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.reader import Reader

# --- leaves ---------------------------------------------------------------------------------------------------------


def stream(reader: Reader, node: Operator) -> Relation:
    """A stream of the environment, which an RDD without rows stands for in the plan."""
    rdd = node["rdd"]
    rows = reader.streams.get(rdd.get("rdd", -1)) if isinstance(rdd, dict) else None
    if rows is None:
        if not isinstance(rdd, dict) or not rdd.get("driver"):
            raise Unsupported("rows of an RDD, or of a checkpoint, are Spark's")
        return reader.held(node)
    reader.taken += 1
    return Stream({a.id: type_of_column(a) for a in node["output"]}, rows)


_FEW = 64 << 20
"""Most bytes of a cached DataFrame that Spark hands over."""


def cached(reader: Reader, node: Operator) -> Relation:
    """Rows that a user has cached: Spark keeps them, or keeps them from now on."""
    if reader.catalyst.sizes[node.handle] > _FEW:
        raise Unsupported(f"a cached DataFrame of more than {_FEW >> 20} MiB is Spark's")
    return reader.held(node)


def local(reader: Reader, node: Operator) -> Relation:
    """Rows that the plan itself holds: of ``VALUES``, of a small pandas DataFrame, or none because a condition is never true."""
    columns: Columns = {a.id: type_of_column(a) for a in node["output"]}
    if len(columns) < len(node["output"]) or node["isStreaming"]:
        raise Unsupported("local rows with a column twice")
    if not columns:  # for their number
        return _numbered(reader, node["data"])
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    table = reader.catalyst.table_of(node, list(columns)).cast(schema) if node["data"] else schema.empty_table()
    reader.handed += bool(node["data"])
    return Values(columns, table)


def one_row(reader: Reader, node: Operator) -> Relation:
    return _numbered(reader, 1)


def _numbered(reader: Reader, count: int) -> Relation:
    name = reader.new_name()
    return Values({name: "integer"}, pa.table({name: pa.array([1] * count, pa.int32())}))


def unchanged(reader: Reader, node: Operator) -> Relation:
    """Of an operator that only says how rows are spread, or a hint that they are cut behind it. An order below it stays."""
    return reader.relation(node["child"])


def sample(reader: Reader, node: Operator) -> Relation:
    """Only where it takes each row."""
    if node["withReplacement"] is not False or float(node["lowerBound"]) > 0 or float(node["upperBound"]) < 1:
        raise Unsupported("sample() is not taken over")
    return unchanged(reader, node)


# --- one input --------------------------------------------------------------------------------------------------------


def project(reader: Reader, node: Operator) -> Relation:
    return projected(reader, reader.relation(_unordered(node["child"], node["projectList"])), node["projectList"])


_BETWEEN = {
    "Filter": ("condition",),
    "Project": ("projectList",),
    "Window": ("windowExpressions", "partitionSpec", "orderSpec"),
}
"""Operators between a projection and a window, with the fields that read columns."""


def _unordered(node: Operator, readers: list[Expr]) -> Operator:
    """The operator, in which lists of windows are marked if no order of theirs shows in ``readers``, all that reads the rows."""
    if node.cls not in _BETWEEN:
        return node
    read = [
        one for field in _BETWEEN[node.cls] for one in (node[field] if isinstance(node[field], list) else [node[field]])
    ]
    if node.cls == "Project":  # the other columns only pass it
        read = [one for one in read if one.cls != "AttributeReference"]
    fields = {**node.fields, "child": _unordered(node["child"], [*readers, *read])}
    if node.cls == "Window":
        shown = set[str]().union(*map(_ordered, readers))
        fields["windowExpressions"] = [
            one if one.id in shown else replaced(one, _marked) for one in node["windowExpressions"]
        ]
    return replace(node, fields=fields)


def _ordered(node: Expr) -> set[str]:
    """The columns that are read by more than a function of a list in which its order does not show."""
    if node.cls == "AttributeReference":
        return {node.id}
    inside = node[UNORDERED[node.cls]] if node.cls in UNORDERED else None
    nodes = (one for one in node.nodes() if one is not inside or one.cls != "AttributeReference")
    return set[str]().union(*map(_ordered, nodes))


def _marked(node: Expr) -> Expr | None:
    return replace(node, fields={**node.fields, "unordered": True}) if node.cls in LISTS else None


def projected(reader: Reader, rows: Relation, items: list[Expr]) -> Relation:
    """The values of these named expressions; of none of them, a constant for the number of rows."""
    return Project(rows, {item.id: item for item in reader.expressions(items)} or {reader.new_name(): integer(1)})


def filtered(reader: Reader, node: Operator) -> Relation:
    child = reader.relation(node["child"])
    # dynamic pruning only saves reading: the join above drops the same rows
    wanted = [one for one in conjuncts(node["condition"]) if one.cls != "DynamicPruningSubquery"]
    return Filter(child, reader.expressions(wanted)) if wanted else child


def expand(reader: Reader, node: Operator) -> Relation:
    child, ways = reader.relation(node["child"]), node["projections"]
    columns: Columns = {a.id: type_of_column(a) for a in node["output"]}
    if not columns:  # for the number of rows
        ways = [[integer(0)] for _ in ways]
        columns = {reader.new_name(): "integer"}
    return Expand(child, tuple(map(tuple, ways)), columns)


def generate(reader: Reader, node: Operator) -> Relation:
    child, generator = reader.relation(node["child"]), node["generator"]
    output: Columns = {a.id: type_of_column(a) for a in node["generatorOutput"]}
    if generator.cls == "ReplicateRows" and not node["outer"]:
        kept = tuple(name for name in child.columns if name not in output)
        return Generate(child, generator, kept, output, False)
    before, places = reader.catalyst.output_of(node["child"]), node["unrequiredChildIndex"]
    unwanted = {
        before[i].id for i in places if i < len(before)
    }  # some places are of columns that Spark has since left out
    if set(output) & set(child.columns):
        raise Unsupported("a generator whose columns are there already is not taken over")
    kept = tuple(name for name in child.columns if name not in unwanted)
    return Generate(child, generator, kept, output, node["outer"] is True)


def sort(reader: Reader, node: Operator) -> Relation:
    if node["global"] is not True:
        raise Unsupported("an order within partitions is Spark's")
    return _in_order(reader, node, Sort)


def orders(order: list[Expr]) -> tuple[Expr, ...]:
    """The same order, by the fields of structs instead of structs: inside of them null is the smallest value."""
    return tuple(part for one in order for part in _orders_of(one))


def _orders_of(order: Expr) -> list[Expr]:
    by = order["child"]
    if not fields_of(by.type):
        return [order]
    ascending = order["direction"].cls == "Ascending"
    null_first = Expr("Descending" if order["nullOrdering"].cls == "NullsFirst" else "Ascending", {})
    inside = Expr("NullsFirst" if ascending else "NullsLast", {})
    first = Expr("IsNull", {"child": by}, "boolean")
    parts = [
        replace(order, fields={"child": one, "direction": order["direction"], "nullOrdering": inside})
        for one in _fields(by)
    ]
    found = [replace(order, fields={"child": first, "direction": null_first, "nullOrdering": inside})]
    return [*found, *(part for one in parts for part in _orders_of(one))]


def window(reader: Reader, node: Operator) -> Relation:
    child = reader.relation(node["child"])
    keys = tuple(part for one in node["partitionSpec"] for part in parts_of(one))
    return Window(child, keys, {item.id: item for item in node["windowExpressions"]})


# --- the first rows, and those behind an offset -----------------------------------------------------------------------


def limit(reader: Reader, node: Operator) -> Relation:
    """The first rows, of an order where there is one."""
    most, child = _constant(node["limitExpr"]), _cut(node["child"])
    if child.cls == "Offset":
        return _first(reader, most, _constant(child["offsetExpr"]), _cut(child["child"]))
    return _first(reader, most, 0, child)


def offset(reader: Reader, node: Operator) -> Relation:
    """All rows but the first ones."""
    return _first(reader, None, _constant(node["offsetExpr"]), _cut(node["child"]))


def _first(reader: Reader, most: int | None, skipped: int, child: Operator) -> Relation:
    chosen, ordered = None, child
    if child.cls == "Project" and child["child"].cls == "Sort":
        chosen, ordered = child["projectList"], child["child"]
    if ordered.cls != "Sort" or ordered["global"] is not True:
        return Limit(reader.relation(child), most, skipped)
    first = _in_order(reader, ordered, lambda rows, order: Limit(rows, most, skipped, order))
    return projected(reader, first, chosen) if chosen is not None else first


def _cut(node: Operator) -> Operator:
    """The operator below limits of single partitions, which are only ever hints."""
    while node.cls == "LocalLimit":
        node = node["child"]
    return node


def _constant(node: Expr) -> int:
    if node.cls != "Literal" or not isinstance(node["value"], int):
        raise Unsupported("a limit that is no constant is not taken over")
    return node["value"]


# --- groups -----------------------------------------------------------------------------------------------------------


def aggregate(reader: Reader, node: Operator) -> Relation:
    node = picked_by_max(node)
    items = _of_first_rows(reader, node)
    keys = node["groupingExpressions"]
    inside = [*keys, *(part for item in items for part in walk(item) if part.cls == "AggregateExpression")]
    child, [keys, items] = _subqueries_first(reader, reader.relation(node["child"]), [keys, items], inside)
    groups, items = _by_fields(keys, items)
    if any(map(_has_subquery, items)):
        return _with_subqueries(reader, child, groups, items)
    return Aggregate(child, groups, {item.id: item for item in items} or {reader.new_name(): integer(1)})


def _of_first_rows(reader: Reader, node: Operator) -> list[Expr]:
    """The items with ``first`` and ``last`` as values of the keys, or of one row of the group, always the same one.

    Spark promises no row of ``dropDuplicates`` and ``any_value``. All their columns are of one row. The user's own ``first`` stays: it often takes
    the first row, so it is only computed where all rows have one value (``statistics.only_value``). After an order it is left to Spark.
    """
    items, keys = node["aggregateExpressions"], node["groupingExpressions"]
    known = {one.id for one in keys if one.cls == "AttributeReference" and not _has_floats(one.type)}
    found: dict[Any, Expr] = {}
    rows: dict[Any, list[Expr]] = {}
    for call in (part for item in items for part in walk(item) if _is_end(part)):
        value = call["aggregateFunction"]["child"]
        if keys and attributes(value) <= known and call["filter"] is None:
            found[same(call)] = value
        elif _has_order(node["child"]):
            raise Unsupported("which row first(), last() or dropDuplicates() takes of an order is Spark's", call)
        elif not reader.catalyst.asks_first:
            rows.setdefault(_row_of(call), []).append(call)
    for calls in rows.values():
        found |= _of_one(calls)
    return replaced(items, lambda part: found.get(same(part)) if _is_end(part) else None) if found else items


def _has_order(node: Operator) -> bool:
    while node.cls in ("Project", "Filter", "GlobalLimit", "LocalLimit", "Offset"):
        node = node["child"]
    return node.cls in ("Sort", "Window")


def _has_floats(kind: Any) -> bool:
    """A group may have zeros of two signs then."""
    return kind in FLOATS or any(_has_floats(part) for _, part in fields_of(kind) or [])


def _is_end(node: Expr) -> bool:
    return node.cls == "AggregateExpression" and node["aggregateFunction"].cls in ("First", "Last")


def _row_of(call: Expr) -> Any:
    """The same for calls that give values of one row."""
    function = call["aggregateFunction"]
    nulls = same(function["child"]) if function["ignoreNulls"] else None
    return nulls, call["filter"] and same(call["filter"])


def _of_one(calls: list[Expr]) -> dict[Any, Expr]:
    """Values of one row: the fields of a struct."""
    values = {same(call): call["aggregateFunction"]["child"] for call in calls}
    fields = [
        {"name": f"f{i}", "type": one.type, "nullable": True, "metadata": {}} for i, one in enumerate(values.values())
    ]
    names = [Expr("Literal", {"value": field["name"]}, "string") for field in fields]
    parts = [part for pair in zip(names, values.values(), strict=True) for part in pair]
    row = Expr("CreateNamedStruct", {"children": parts}, {"type": "struct", "fields": fields})
    call, function = calls[0], calls[0]["aggregateFunction"]
    where: Expr | None = call["filter"]
    if function["ignoreNulls"]:
        known = Expr("IsNotNull", {"child": function["child"]}, "boolean")
        where = known if where is None else Expr("And", {"left": known, "right": where}, "boolean")
    picked = Expr("AnyRow", {"child": row}, row.type)
    whole = replace(call, fields={**call.fields, "aggregateFunction": picked, "filter": where}, type=row.type)
    return dict(zip(values, _fields(whole), strict=True))


def _by_fields(groups: list[Expr], items: list[Expr]) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Groups by the fields of structs instead of the structs, which are made again of the fields."""
    whole = {same(one): _whole(one) for one in groups if fields_of(one.type)}
    parts = [part for one in groups for part in parts_of(one)]
    known = set(map(same, parts)) if whole else set[Any]()

    def made(node: Expr) -> Expr | None:
        key = same(node)
        return node if node.cls == "AggregateExpression" or key in known else whole.get(key)

    if whole:
        items = [Expr("Alias", {"child": replaced(item, made), "exprId": item["exprId"]}, item.type) for item in items]
    return tuple(parts), items


def parts_of(node: Expr) -> list[Expr]:
    """Plain values that are the same where the values of an expression are: of a struct, whether it is null, and its fields."""
    fields = fields_of(node.type)
    if fields is None:
        return [node]
    return [Expr("IsNull", {"child": node}, "boolean"), *(part for one in _fields(node) for part in parts_of(one))]


def _fields(struct: Expr) -> list[Expr]:
    return [
        Expr("GetStructField", {"child": struct, "ordinal": place, "name": name}, kind)
        for place, (name, kind) in enumerate(fields_of(struct.type) or [])
    ]


def _whole(node: Expr) -> Expr:
    """The expression, made of its :func:`parts_of`."""
    if not fields_of(node.type):
        return node
    pairs = [(Expr("Literal", {"value": one["name"]}, "string"), _whole(one)) for one in _fields(node)]
    struct = Expr("CreateNamedStruct", {"children": [part for pair in pairs for part in pair]}, node.type)
    is_null = Expr("IsNull", {"child": node}, "boolean")
    null = Expr("Literal", {"value": None}, node.type)
    return Expr("If", {"predicate": is_null, "trueValue": null, "falseValue": struct}, node.type)


def _with_subqueries(reader: Reader, child: Relation, groups: tuple[Expr, ...], items: list[Expr]) -> Relation:
    """Groups and aggregates first; what is computed of them and of subqueries in a projection of them."""
    inner: dict[Any, tuple[str, Expr]] = {}
    known = set(map(same, groups))

    def apart(part: Expr) -> Expr | None:
        if part.cls == "ScalarSubquery":
            return part
        key = same(part)
        if part.cls != "AggregateExpression" and key not in known:
            return None
        if key not in inner:
            inner[key] = reader.new_name(), part
        return column(inner[key][0], part.type)

    outer = replaced(items, apart)
    if not inner:
        raise Unsupported("a group of subqueries alone is not taken over")
    first = Aggregate(child, groups, dict(inner.values()))
    return Project(first, {item.id: one for item, one in zip(items, reader.expressions(outer), strict=True)})


def _subqueries_first(
    reader: Reader, rows: Relation, nodes: Any, inside: list[Expr] | None = None
) -> tuple[Relation, Any]:
    """The rows with a column for each subquery in ``inside`` (None: in the expressions), and the expressions that read these columns."""
    found: dict[tuple[int, int | None], tuple[str, Expr]] = {}

    def read(part: Expr, known: bool = True) -> Expr | None:
        plan = part["child"] if part.cls == "GetStructField" else part  # of several subqueries in one
        if plan.cls != "ScalarSubquery":
            return None
        key = plan["exprId"], part.get("ordinal")
        if not known:
            found.setdefault(key, (reader.new_name(), part))
        return column(found[key][0], part.type) if key in found else None

    replaced(nodes if inside is None else inside, partial(read, known=False))
    if not found:
        return rows, nodes
    names, values = zip(*found.values(), strict=True)
    new = dict(zip(names, reader.expressions(values), strict=True))
    return with_columns(rows, new), replaced(nodes, read)


def _in_order(reader: Reader, node: Operator, made: Callable[[Relation, tuple[Expr, ...]], Relation]) -> Relation:
    """Of rows and their order, of an operator that has both; without the columns that only their order reads."""
    rows = reader.relation(node["child"])
    before, order = _subqueries_first(reader, rows, node["order"])
    return only(made(before, orders(order)), list(rows.columns))


def _has_subquery(node: Expr) -> bool:
    return any(part.cls == "ScalarSubquery" for part in walk(node))


def picked_by_max(node: Operator) -> Operator:
    """Of aggregates of several distinct columns the second grouping, with ``max`` where it has ``first``; any other operator as it is.

    Spark's optimiser leaves them so: each row once for each set of columns, numbered by ``gid``; grouped by all of them; then grouped as was
    asked. What is not distinct is computed in the first grouping, in the rows of ``gid`` 0, and picked by ``first`` in the second. Each
    group has one such row, so ``max`` picks the same, and can be parted.
    """
    gid = _gid(node["child"])
    if gid is None:
        return node
    items = replaced(node["aggregateExpressions"], lambda part: _of_one_row(part, gid))
    return replace(node, fields={**node.fields, "aggregateExpressions": items})


def _gid(child: Operator) -> str | None:
    """The column of ``gid`` of the first grouping; None: it is another operator."""
    if child.cls != "Aggregate" or child["child"].cls != "Expand":
        return None
    names = [one for one in child["groupingExpressions"] if one.cls == "AttributeReference" and one["name"] == "gid"]
    return names[0].id if len(names) == 1 else None


def _of_one_row(node: Expr, gid: str) -> Expr | None:
    if node.cls != "AggregateExpression":
        return None
    function: Expr = node["aggregateFunction"]
    if function.cls != "First" or function["ignoreNulls"] is not True or not _is_of_zero(node["filter"], gid):
        return node
    largest = Expr("Max", {"child": function["child"]}, function.type)
    return replace(node, fields={**node.fields, "aggregateFunction": largest})


def _is_of_zero(where: Expr | None, gid: str) -> bool:
    """True for the condition ``gid = 0``."""
    if where is None or where.cls != "EqualTo":
        return False
    left, number = where["left"], where["right"]
    return left.cls == "AttributeReference" and left.id == gid and number.cls == "Literal" and number["value"] == 0


# --- several inputs ---------------------------------------------------------------------------------------------------

_HOWS = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "exists",
}


def union(reader: Reader, node: Operator) -> Relation:
    if node.get("byName"):
        raise Unsupported("a union by names is Spark's")
    columns: Columns = {a.id: type_of_column(a) for a in reader.catalyst.output_of(node)}
    if not columns:  # for the number of rows
        name = reader.new_name()
        return Union(tuple(Project(reader.relation(child), {name: integer(1)}) for child in node["children"]))
    branches: list[Relation] = []
    for child in node["children"]:
        mine = reader.catalyst.output_of(child)
        if [engine_type(a.type) for a in mine] != [engine_type(kind) for kind in columns.values()]:
            raise Unsupported("a union of different types, or with a column twice, is not taken over")
        named = zip(columns.items(), mine, strict=True)
        branches.append(Project(reader.relation(child), {name: column(a.id, kind) for (name, kind), a in named}))
    return Union(tuple(branches))


def join(reader: Reader, node: Operator) -> Relation:
    how = _HOWS.get(node["joinType"].cls)
    if how is None:
        raise Unsupported("a join with a subquery that may give several rows is not taken over")
    left, right = reader.relation(node["left"]), reader.relation(node["right"])
    if set(left.columns) & set(right.columns):
        raise Unsupported("a join whose sides share a column is not taken over")
    equal: list[Expr] = []
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for one in conjuncts(node["condition"]):
        pair = _pair(one, set(left.columns), set(right.columns))
        if pair is None:
            rest.append(one)
        else:
            equal.append(one)
            pairs.append(pair)
    found = f"c{node['joinType']['exists']['exprId']}" if how == "exists" else ""
    return Join(left, right, how, tuple(equal), tuple(pairs), reader.expressions(rest), found)


def _pair(one: Expr, left: set[str], right: set[str]) -> tuple[Expr, Expr] | None:
    """The sides of an equality of the left rows and the right ones, in this order; None: it is something else."""
    if one.cls not in ("EqualTo", "EqualNullSafe") or engine_type(one["left"].type) != engine_type(one["right"].type):
        return None
    for a, b in ((one["left"], one["right"]), (one["right"], one["left"])):
        reads_a, reads_b = attributes(a), attributes(b)
        if reads_a and reads_b and reads_a <= left and reads_b <= right:
            if grouped(a.type) == "void":
                raise Unsupported("a join by nulls without a type is Spark's, which finds none of them the same")
            return a, b
    return None
