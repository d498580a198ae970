"""Aggregations: in each subtask first, where the functions can be parted, then of all rows of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, same
from firesteel.plan.raising import any_raises
from firesteel.plan.relation import Aggregate, Columns
from firesteel.plan.types import FLOATS, checked, engine_type
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
from firesteel.sql.steps.rows import Names, Rows, by_keys

if TYPE_CHECKING:
    from firesteel.sql.steps.steps import Steps


@dataclass(slots=True)
class Grouping:
    """An aggregation being written. ``groups``: column by grouping expression."""

    names: Names
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
                name = self.names.new("p")
                self.partial[name] = (text, kind)
            names.append(name)
        return parts.final.format(*names)


class WholeGroups(Exception):
    """An aggregate cannot be parted."""


def aggregate(steps: Steps, relation: Aggregate) -> Rows:
    rows = steps.rows(relation.child)
    try:
        return _aggregated(steps, relation, rows, parted=True)
    except WholeGroups:
        return _aggregated(steps, relation, rows, parted=False)


def _aggregated(steps: Steps, relation: Aggregate, rows: Rows, parted: bool) -> Rows:
    x = Expressions()
    groups: dict[Any, str] = {}
    kinds: Columns = {}
    texts: dict[str, str] = {}
    for expression in relation.groups:
        kind, text = checked(expression.type), x.text(expression)
        column = expression.cls == "AttributeReference" and kind not in FLOATS
        name = expression.id if column else steps.names.new("g")
        groups[same(expression)], kinds[name] = name, kind
        texts[name] = f"({text} + 0)" if kind in FLOATS else text  # -0.0 is in the group of 0.0, and that is its name
    grouping = Grouping(steps.names, x, groups, parted=parted)
    columns = relation.columns
    behind = Expressions(grouping.given)
    out = [
        f"CAST({behind.text(item)} AS {engine_type(columns[name])}) AS {name}" for name, item in relation.items.items()
    ]
    groups_raise = any_raises(relation.groups)
    raises = groups_raise or any_raises(relation.items.values())
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
