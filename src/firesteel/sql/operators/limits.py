"""The first rows, and those behind an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.api.steps import ordering
from firesteel.plan.expr import Expr, Unsupported
from firesteel.sql.operators.relational import order_text, projected
from firesteel.sql.operators.rows import Rows, by_keys
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner


def limit(planner: Planner, node: Operator) -> Rows:
    """The first rows, of an order where there is one."""
    most, child = _constant(node["limitExpr"]), _cut(node["child"])
    if child.cls == "Offset":
        return _first(planner, most, _constant(child["offsetExpr"]), _cut(child["child"]))
    return _first(planner, most, 0, child)


def offset(planner: Planner, node: Operator) -> Rows:
    """All rows but the first ones."""
    return _first(planner, None, _constant(node["offsetExpr"]), _cut(node["child"]))


def _first(planner: Planner, most: int | None, skipped: int, child: Operator) -> Rows:
    """In each subtask first, as many as are needed of it, then in one. ``most``: None: all behind the skipped ones."""
    chosen, sort = None, child
    if child.cls == "Project" and child["child"].cls == "Sort":
        chosen, sort = child["projectList"], child["child"]
    if sort.cls == "Sort" and sort["global"] is True:
        rows = planner.rows(sort["child"])
        order = f"ORDER BY {order_text(sort['order'])}"
        if most is not None:
            rows = rows.settled().selecting(
                "*", rows.columns, f"top {most + skipped}", f"{order} LIMIT {most + skipped}", selective=True
            )
        first = _in_one(rows, f"{order} {_limit(most, skipped)}", most, skipped)
        return projected(planner, first, chosen) if chosen is not None else first
    rows = planner.rows(child)
    if not skipped and most is not None:
        return Rows(ordering.limit(rows.step(), most), rows.columns)
    return _in_one(rows, _limit(most, skipped), most, skipped)


def _in_one(rows: Rows, tail: str, most: int | None, skipped: int) -> Rows:
    kind = f"sql(top {most})" if not skipped else f"sql(from {skipped})"
    return by_keys([rows.step()], [()], f"SELECT * FROM input0 {tail}", rows.columns, kind, None)


def _limit(most: int | None, skipped: int) -> str:
    texts = [f"LIMIT {most}"] if most is not None else []
    return " ".join([*texts, f"OFFSET {skipped}"] if skipped else texts)


def _cut(node: Operator) -> Operator:
    """The operator below limits of single partitions, which are only ever hints."""
    while node.cls == "LocalLimit":
        node = node["child"]
    return node


def _constant(node: Expr) -> int:
    if node.cls != "Literal" or not isinstance(node["value"], int):
        raise Unsupported("a limit that is no constant is not taken over")
    return node["value"]
