"""Names and structural identity of expressions."""

from __future__ import annotations

from itertools import count
from typing import Any

from firesteel.sql.plans.nodes import Node

_IGNORED = ("qualifier", "metadata", "resultId", "nullable", "name")


def same(node: Any) -> Any:
    """Equal for expressions that compute the same, as a hashable key."""
    if isinstance(node, Node):
        if node.cls == "AttributeReference":
            return node.id
        fields = tuple((name, same(value)) for name, value in node.fields.items() if name not in _IGNORED)
        return (node.cls, str(node.type), fields)
    if isinstance(node, list):
        return tuple(same(item) for item in node)
    return repr(node) if isinstance(node, dict) else node


def attributes(node: Node) -> set[str]:
    """The columns that an expression reads, those inside of its subqueries left out."""
    if node.cls == "AttributeReference":
        return {node.id}
    if node.cls == "ScalarSubquery":
        return set()
    return set().union(*(attributes(child) for child in node.nodes()))


def conjuncts(node: Node | None) -> list[Node]:
    if node is None:
        return []
    if node.cls == "And":
        return [*conjuncts(node["left"]), *conjuncts(node["right"])]
    return [node]


class Names:
    """New names of columns and side inputs, unique in a query."""

    def __init__(self) -> None:
        self._numbers = count()

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"
