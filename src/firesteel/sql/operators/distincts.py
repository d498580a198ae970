"""Aggregates of several distinct columns, as Spark's optimiser leaves them: each row once for each set of columns, numbered
by ``gid``; grouped by all of them; then grouped as was asked.

What is not distinct is computed in the first grouping, in the rows of ``gid`` 0, and picked by ``first`` in the second. Each
group has one such row, so ``max`` picks the same, and can be parted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from firesteel.plan.expr import Expr
from firesteel.sql.plans.catalyst import Operator


def picked_by_max(node: Operator) -> Operator:
    """The second grouping with ``max`` where it has ``first``; any other operator as it is."""
    gid = _gid(node["child"])
    if gid is None:
        return node
    items = [_picked(item, gid) for item in node["aggregateExpressions"]]
    return replace(node, fields={**node.fields, "aggregateExpressions": items})


def _gid(child: Operator) -> str | None:
    """The column of ``gid`` of the first grouping; None: it is another operator."""
    if child.cls != "Aggregate" or child["child"].cls != "Expand":
        return None
    names = [one for one in child["groupingExpressions"] if one.cls == "AttributeReference" and one["name"] == "gid"]
    return names[0].id if len(names) == 1 else None


def _picked(part: Any, gid: str) -> Any:
    if isinstance(part, list):
        return [_picked(one, gid) for one in part]
    if not isinstance(part, Expr):
        return part
    if part.cls == "AggregateExpression":
        return _of_one_row(part, gid)
    return replace(part, fields={name: _picked(field, gid) for name, field in part.fields.items()})


def _of_one_row(node: Expr, gid: str) -> Expr:
    function: Expr = node["aggregateFunction"]
    if function.cls != "First" or function["ignoreNulls"] is not True or not _is_of_zero(node["filter"], gid):
        return node
    largest = Expr("Max", {"child": function["child"]}, function.type)
    return replace(node, fields={**node.fields, "aggregateFunction": largest})


def _is_of_zero(where: Expr | None, gid: str) -> bool:
    """True for the condition ``gid = 0``."""
    if where is None or where.cls != "EqualTo":
        return False
    column, number = where["left"], where["right"]
    return column.cls == "AttributeReference" and column.id == gid and number.cls == "Literal" and number["value"] == 0
