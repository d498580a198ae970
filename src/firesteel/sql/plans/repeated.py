"""Subtrees that a plan has several times: of a common table expression, of a view, of a subquery. They are computed once."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.plan.expr import Expr, conjuncts, walk
from firesteel.sql.plans.catalyst import Operator

_COSTLY = ("Aggregate", "Join", "Window", "Sort", "GlobalLimit", "Generate")
"""A subtree without any of these is cheaper to compute again than to store."""
_FEWER = ("Aggregate", "GlobalLimit")
_WHOLE = ("Aggregate", "Project")
"""Give all of their columns whoever reads them; of others only those are there that something above them reads."""


def repeated(root: Operator, firsts: Sequence[int]) -> dict[int, int]:
    """By handle of the operators on top of such subtrees, the handle of the first of each. ``firsts``: of :class:`Catalyst`."""
    met: set[int] = set()
    found: dict[int, int] = {}
    stack: list[Expr] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Operator):
            first = firsts[node.handle]
            if first in met and node.cls in _WHOLE and _is_worth_storing(node):
                found[node.handle] = first
                found[first] = first
                continue  # what is below is computed with the first
            met.add(first)
        stack.extend(reversed(node.nodes()))
    return found


def _is_worth_storing(node: Expr) -> bool:
    """Returns False also where tables are joined whole: that may give far more than it reads, of which each reader then wants a part; of
    what is computed for it alone only this part is read."""
    parts = list(walk(node))
    return any(part.cls in _COSTLY for part in parts) and any(map(_leaves_less, parts))


def _leaves_less(node: Expr) -> bool:
    if node.cls == "Filter":
        return any(one.cls != "IsNotNull" for one in conjuncts(node["condition"]))
    return node.cls in _FEWER or (node.cls == "Join" and node["joinType"].cls in ("LeftSemi", "LeftAnti"))
