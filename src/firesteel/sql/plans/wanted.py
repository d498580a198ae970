"""Columns of relations that are read: Spark's optimised plan leaves it to its scans to drop the others."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.plan.expr import Expr
from firesteel.sql.plans.catalyst import Operator

_CHOOSING = ("Project", "Aggregate", "Expand")
"""Give columns of their own making, so that of what is below only those that they name are read."""
_PASSING = (
    *("Filter", "Join", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Window", "WindowGroupLimit", "Generate"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
)
"""Give the columns of what is below by their names. Any other operator may look at all of them, by their places."""
_READ = ("LogicalRelation", "LogicalRDD", "InMemoryRelation")
_WIDTHS = {"boolean": 0, "byte": 1, "short": 2, "integer": 4, "date": 4, "long": 8}


@dataclass(frozen=True, slots=True)
class Wanted:
    """``whole``: relations of which all columns are read, by handle; ``read``: attributes that some expression reads."""

    whole: set[int]
    read: set[str]

    def of(self, relation: Operator) -> list[Expr]:
        """The attributes of a relation that anything above it reads; at least one."""
        output: list[Expr] = relation["output"]
        if relation.handle in self.whole:
            return output
        return [a for a in output if a.id in self.read] or [min(output, key=_width)] if output else []


def wanted_columns(root: Operator) -> Wanted:
    """Of a whole plan, subqueries among it."""
    wanted = Wanted(set(), set())
    _walk(root, True, wanted)
    return wanted


def _width(attribute: Expr) -> int:
    """For the one column that is read where only the number of rows counts."""
    return _WIDTHS.get(str(attribute.type), 16)


def _walk(node: Expr, whole: bool, wanted: Wanted) -> None:
    if isinstance(node, Operator) and node.cls in _READ:
        if whole:
            wanted.whole.add(node.handle)
        return
    if node.cls == "AttributeReference":
        wanted.read.add(node.id)
    operator = isinstance(node, Operator)
    for child in node.nodes():
        below = node.cls not in _CHOOSING and (node.cls not in _PASSING or whole) if operator else True
        _walk(child, below, wanted)
