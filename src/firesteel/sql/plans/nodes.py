"""Spark's plan as plain Python: operators and expressions by the names of their classes, with their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Unsupported(Exception):
    """A part of a plan that is not taken over, with the reason in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operator or an expression, or a part of one.

    ``fields``: by the names of Scala's parameters: nodes, lists, strings, numbers, booleans, None. ``type``: of an
    expression, as in Spark's JSON (``"long"``, ``"decimal(7,2)"``, a dict for nested ones); None for operators.
    ``handle``: of an operator, its number among the reader's Java objects.
    """

    cls: str
    fields: dict[str, Any]
    type: Any = None
    handle: int = -1

    def __getitem__(self, name: str) -> Any:
        """Raises Unsupported for a field that this version of Spark does not have."""
        if name not in self.fields:
            raise Unsupported(f"{self.cls} has no field '{name}' in this Spark")
        return self.fields[name]

    def get(self, name: str) -> Any:
        return self.fields.get(name)

    @property
    def id(self) -> str:
        """The column of an attribute or alias: unique in a plan."""
        return f"c{self['exprId']}"

    def nodes(self) -> list[Node]:
        """Every node right below, in the order of the fields."""
        found: list[Node] = []
        _collect(list(self.fields.values()), found)
        return found


def _collect(values: list[Any], into: list[Node]) -> None:
    for value in values:
        if isinstance(value, Node):
            into.append(value)
        elif isinstance(value, list):
            _collect(value, into)


def walk(node: Node) -> list[Node]:
    """The node and all below it, subqueries among them."""
    found, stack = [], [node]
    while stack:
        one = stack.pop()
        found.append(one)
        stack.extend(reversed(one.nodes()))
    return found
