"""Expressions as plain Python, under the names of Catalyst's resolved ones in the newest Spark: the class, its fields, its type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import is_
from typing import Any


class Unsupported(Exception):
    """A part of a plan that is not taken over, with the reason in words. ``at``: the expression, if it is one."""

    def __init__(self, reason: str, at: Expr | None = None) -> None:
        super().__init__(reason)
        self.at = at


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """An expression, or a part of one.

    ``fields``: by the names of Scala's parameters: nodes, lists, strings, numbers, booleans, None. ``type``: as in Spark's JSON (``"long"``,
    ``"decimal(7,2)"``, a dict for nested ones); None for what has no value. ``place``: where the user wrote it, as far as Spark knows.
    ``name``: what the user calls it, where that is not its class.
    """

    cls: str
    fields: dict[str, Any]
    type: Any = None
    place: str = ""
    name: str = ""

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

    def nodes(self) -> list[Expr]:
        """Every node right below, in the order of the fields."""
        found: list[Expr] = []
        _collect(self.fields.values(), found)
        return found


def _collect(values: Iterable[Any], into: list[Expr]) -> None:
    for value in values:
        if isinstance(value, Expr):
            into.append(value)
        elif isinstance(value, list) and value and not isinstance(value[0], str):
            _collect(value, into)


def walk(node: Expr) -> list[Expr]:
    """The node and all below it, subqueries among them."""
    found, stack = [], [node]
    while stack:
        one = stack.pop()
        found.append(one)
        stack.extend(reversed(one.nodes()))
    return found


def eval_mode(node: Expr) -> str:
    """ANSI, LEGACY or TRY."""
    context = node.get("evalContext")
    mode = context["evalMode"] if isinstance(context, Expr) else node.get("evalMode")
    if isinstance(mode, Expr):
        mode = mode.cls
    if not isinstance(mode, str):
        raise Unsupported(f"the eval mode of {node.cls} is not known")
    return mode


_IGNORED = ("qualifier", "metadata", "resultId", "nullable", "name")


def same(node: Any) -> Any:
    """Equal for expressions that compute the same, as a hashable key."""
    if isinstance(node, Expr):
        if node.cls == "AttributeReference":
            return node.id
        fields = tuple((name, same(value)) for name, value in node.fields.items() if name not in _IGNORED)
        return (node.cls, str(node.type), fields)
    if isinstance(node, list):
        return tuple(same(item) for item in node)
    return repr(node) if isinstance(node, dict) else node


def attributes(node: Expr) -> set[str]:
    """The columns that an expression reads, those inside of its subqueries left out."""
    if node.cls == "AttributeReference":
        return {node.id}
    if node.cls == "ScalarSubquery":
        return set()
    return set().union(*(attributes(child) for child in node.nodes()))


def integer(value: int | None) -> Expr:
    """A constant."""
    return Expr("Literal", {"value": value}, "integer")


def conjuncts(node: Expr | None) -> list[Expr]:
    if node is None:
        return []
    if node.cls == "And":
        return [*conjuncts(node["left"]), *conjuncts(node["right"])]
    return [node]


def column(id: str, kind: Any) -> Expr:
    """An expression that is a column of its input."""
    return Expr("AttributeReference", {"exprId": id.removeprefix("c")}, kind)


def replaced(value: Any, by: Callable[[Expr], Expr | None]) -> Any:
    """An expression, or a list of them, with some parts replaced. ``by``: what takes a part's place; None: it is looked into."""
    if isinstance(value, list):
        items = [replaced(one, by) for one in value]
        return value if all(map(is_, items, value)) else items
    if not isinstance(value, Expr):
        return value
    other = by(value)
    if other is not None:
        return other
    fields = {name: replaced(field, by) for name, field in value.fields.items()}
    return (
        value if all(fields[name] is field for name, field in value.fields.items()) else replace(value, fields=fields)
    )
