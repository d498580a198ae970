"""Aggregations: in each subtask first, where the functions can be parted, then of all rows of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported, same, walk
from firesteel.plan.raising import any_raises
from firesteel.plan.types import FLOATS, carried, checked, engine_type
from firesteel.render.expressions.aggregates import (
    Parts,
    collected,
    decimal_sum,
    parts_of,
    sum_of_decimals,
    whole,
    whole_sum_of_decimals,
)
from firesteel.render.expressions.statistics import unordered_list
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.operators.distincts import picked_by_max
from firesteel.sql.operators.relational import projected
from firesteel.sql.operators.rows import Columns, Rows, by_keys
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner


@dataclass(slots=True)
class Grouping:
    """An aggregation being written. ``groups``: column by grouping expression."""

    planner: Planner
    x: Expressions
    """On the input."""
    groups: dict[Any, str]
    partial: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """(text, type) of each column of partial aggregates."""
    found: dict[Any, str] = field(default_factory=dict)
    """Final text by aggregate."""
    parted: bool = True

    def given(self, node: Expr) -> str | None:
        """The text, behind the exchange, of a group or an aggregate."""
        key = same(node)
        if key in self.groups:
            return self.groups[key]
        if node.cls == "MakeDecimal" and decimal_sum(node) is not None:
            if key not in self.found:
                self.found[key] = self._sum(node)
            return self.found[key]
        unordered = unordered_list(node)
        if unordered is not None:
            return self._of_list(node, unordered)
        if node.cls != "AggregateExpression":
            return None
        if key not in self.found:
            self.found[key] = self._final(parts_of(node, self.x)) if self.parted else whole(node, self.x)
        return self.found[key]

    def _sum(self, node: Expr) -> str:
        inner, kind = decimal_sum(node), checked(node.type)
        assert inner is not None
        return (
            self._final(sum_of_decimals(inner, self.x, kind))
            if self.parted
            else whole_sum_of_decimals(inner, self.x, kind)
        )

    def _of_list(self, node: Expr, aggregate: Expr) -> str:
        """A function of a list that is collected."""
        key = same(aggregate)
        if key not in self.found:
            column, parts = collected(aggregate, self.x)
            self.found[key] = self._final(parts) if self.parted else column
        text = self.found[key]
        return Expressions(lambda one: text if one is aggregate else self.given(one)).by_rule(node)

    def _final(self, parts: Parts | None) -> str:
        if parts is None:
            raise WholeGroups
        names: list[str] = []
        for text, kind in parts.partial:
            name = next((n for n, known in self.partial.items() if known == (text, kind)), None)
            if name is None:
                name = self.planner.names.new("p")
                self.partial[name] = (text, kind)
            names.append(name)
        return parts.final.format(*names)


class WholeGroups(Exception):
    """An aggregate cannot be parted."""


def aggregate(planner: Planner, node: Operator) -> Rows:
    return aggregate_of(planner, node, planner.rows(node["child"]))


def aggregate_of(planner: Planner, node: Operator, rows: Rows) -> Rows:
    """The aggregation of these rows."""
    node = picked_by_max(node)
    if any(map(_has_subquery, node["aggregateExpressions"])):
        return _with_subqueries(planner, node, rows)
    try:
        return _aggregated(planner, node, rows, parted=True)
    except WholeGroups:
        return _aggregated(planner, node, rows, parted=False)


def _aggregated(planner: Planner, node: Operator, rows: Rows, parted: bool) -> Rows:
    x = Expressions()
    groups: dict[Any, str] = {}
    kinds: Columns = {}
    texts: dict[str, str] = {}
    for expression in node["groupingExpressions"]:
        kind, text = checked(expression.type), x.text(expression)
        column = expression.cls == "AttributeReference" and kind not in FLOATS
        name = expression.id if column else planner.names.new("g")
        groups[same(expression)], kinds[name] = name, kind
        texts[name] = f"({text} + 0)" if kind in FLOATS else text  # -0.0 is in the group of 0.0, and that is its name
    grouping = Grouping(planner, x, groups, parted=parted)
    out: list[str] = []
    columns: Columns = {}
    behind = Expressions(grouping.given)
    for item in node["aggregateExpressions"]:
        if item.id in columns:  # Spark may name a group twice
            continue
        kind = carried(item.type)
        columns[item.id] = kind
        out.append(f"CAST({behind.text(item)} AS {engine_type(kind)}) AS {item.id}")
    groups_raise = any_raises(node["groupingExpressions"])
    if not columns:
        return _rows_of_groups(planner, rows, kinds, texts, groups_raise)
    raises = groups_raise or any_raises(node["aggregateExpressions"])
    by = f" GROUP BY {', '.join(kinds)}" if kinds else ""
    keys = tuple(kinds)
    kept = keys if set(keys) <= set(columns) else None
    if parted:
        before = {**kinds, **{name: kind for name, (_, kind) in grouping.partial.items()}}
        items = [f"{text} AS {name}" for name, text in texts.items()]
        items += [f"CAST({text} AS {engine_type(kind)}) AS {name}" for name, (text, kind) in grouping.partial.items()]
        if not before:
            return _constants(planner, rows, out, columns)
        tail = f"GROUP BY {', '.join(texts.values())}" if kinds else ""
        passed = {name: name for name, text in texts.items() if text == name}
        local = rows.selecting(", ".join(items), before, "partial aggregate", tail, passed=passed, raises=raises)
    else:
        local = _with_groups(rows, kinds, texts, groups_raise)
    query = f"SELECT {', '.join(out)} FROM input0{by}"
    return by_keys([local.step()], [keys], query, columns, "sql(aggregate)", kept, raises=raises)


def _with_subqueries(planner: Planner, node: Operator, rows: Rows) -> Rows:
    """Groups and aggregates first; what is computed of them and of subqueries in a step behind."""
    inner: dict[Any, Expr] = {}
    groups = {same(one) for one in node["groupingExpressions"]}

    def apart(part: Expr) -> Expr | None:
        key = same(part)
        if part.cls != "AggregateExpression" and key not in groups:
            return None
        if key not in inner:
            number = planner.names.new("a")
            inner[key] = Expr("Alias", {"child": part, "exprId": number, "name": number}, part.type)
        return inner[key]

    for item in node["aggregateExpressions"]:
        _find(item, apart)
    items = list(inner.values())
    if not items or any(map(_has_subquery, items)):
        raise Unsupported("a subquery inside of an aggregate is not taken over")
    fields = {**node.fields, "aggregateExpressions": items}
    grouped = aggregate_of(planner, Operator(node.cls, fields, handle=node.handle), rows)

    def given(part: Expr) -> str | None:
        found = inner.get(same(part))
        return None if found is None else found.id

    return projected(planner, grouped, node["aggregateExpressions"], given)


def _has_subquery(node: Expr) -> bool:
    return any(part.cls == "ScalarSubquery" for part in walk(node))


def _find(node: Expr, visit: Callable[[Expr], Expr | None]) -> None:
    if node.cls != "ScalarSubquery" and visit(node) is None:
        for child in node.nodes():
            _find(child, visit)


def _with_groups(rows: Rows, kinds: Columns, texts: dict[str, str], raises: bool) -> Rows:
    return rows.adding({n: (texts[n], kind) for n, kind in kinds.items() if n not in rows.columns}, "groups", raises)


def _rows_of_groups(planner: Planner, rows: Rows, kinds: Columns, texts: dict[str, str], raises: bool) -> Rows:
    """One row for each group, of which nothing is wanted but the number."""
    name = planner.names.new("one")
    one = f"CAST(1 AS INTEGER) AS {name}"
    if not kinds:
        return _constants(planner, rows, [one], {name: "integer"})
    items = ", ".join(f"{text} AS {n}" for n, text in texts.items())
    by = f"GROUP BY {', '.join(texts.values())}"
    local = rows.selecting(items, kinds, "partial aggregate", by, raises=raises)
    names = ", ".join(kinds)
    query = f"SELECT {names}, {one} FROM input0 GROUP BY {names}"
    columns = {**kinds, name: "integer"}
    return by_keys([local.step()], [tuple(kinds)], query, columns, "sql(aggregate)", tuple(kinds), raises=raises)


def _constants(planner: Planner, rows: Rows, out: list[str], columns: Columns) -> Rows:
    """One row of constants, whatever the input has. The input is read all the same: it may raise an error of Spark's."""
    name = planner.names.new("rows")
    local = rows.selecting(f"count(*) AS {name}", {name: "long"}, "partial aggregate")
    query = f"SELECT {', '.join(out)} FROM input0 HAVING count(*) > 0"
    return by_keys([local.step()], [()], query, columns, "sql(one row)", None)
