"""Plans for people: what rules have changed, as short trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import is_
from typing import Any

from firesteel.humanize import first_of
from firesteel.plan.expr import Expr, walk
from firesteel.plan.relation import Aggregate, Filter, Join, Limit, Project, Relation, Scan, Sort, Window
from firesteel.plan.rules import Applied
from firesteel.plan.rules.trees import relations

_MOST_PLACES, _MOST_LEVELS, _MOST_NAMES = 3, 5, 4
_SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "and",
    "Or": "or",
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
}


_Pair = tuple[Relation, Relation]


def explain_rules(record: Iterable[Applied]) -> str:
    """Of each rule whether it changed the plan, and the places where it did: before and after it."""
    return "\n".join(line for one in record for line in _of_rule(one))


def _of_rule(one: Applied) -> Iterator[str]:
    if not one.changed:
        yield f"{one.rule.name}: changed nothing"
        return
    yield f"{one.rule.name}: {one.rule.why}"
    names = {**_names(one.before), **_names(one.after)}
    places = list(dict.fromkeys(_changes((one.before, one.after), None, set())))
    for before, after in places[:_MOST_PLACES]:
        for said, tree, other in (("before", before, after), ("after", after, before)):
            yield f"  {said}:"
            yield from _tree(tree, set(relations(other)), names, 2)
    if len(places) > _MOST_PLACES:
        yield f"  and in {len(places) - _MOST_PLACES} more places"


def _changes(pair: _Pair, above: _Pair | None, met: set[_Pair]) -> Iterator[_Pair]:
    """What is right above the highest relations that are not the same in themselves."""
    before, after = pair
    if before is after or pair in met:
        return
    met.add(pair)
    if type(before) is type(after) and all(map(is_, _own(before), _own(after))):
        for below in zip(before.children, after.children, strict=True):
            yield from _changes(below, pair, met)
    else:
        yield above or pair


def _own(relation: Relation) -> list[Any]:
    """What it is but for its inputs."""
    values = [getattr(relation, field.name) for field in fields(relation)]
    inputs = relation.children
    return [value for value in values if value not in inputs and value is not inputs]


def _names(root: Relation) -> dict[str, str]:
    """What people call columns."""
    found: dict[str, str] = {}
    for relation in relations(root):
        if isinstance(relation, Scan):
            found.update(relation.names)
        for part in (part for one in relation.expressions for part in walk(one)):
            if part.cls in ("AttributeReference", "Alias") and isinstance(part.get("name"), str):
                found[part.id] = part["name"]
    return found


def _tree(relation: Relation, others: set[Relation], names: dict[str, str], level: int) -> Iterator[str]:
    """``others``: relations that the other tree has, too."""
    below = relation.children
    cut = below and (relation in others or level > 1 + _MOST_LEVELS)
    yield f"{'  ' * level}{_line(relation, names)}{' ...' if cut else ''}"
    if not cut:
        for child in below:
            yield from _tree(child, others, names, level + 1)


def _line(relation: Relation, names: dict[str, str]) -> str:
    def said(expressions: Iterable[Expr], between: str) -> str:
        return between.join(_said(one, names) for one in expressions)

    def items(of: Mapping[str, Expr]) -> str:
        return _few(_item(name, one, names) for name, one in of.items())

    what = type(relation).__name__.lower()
    match relation:
        case Scan():
            what += f" {relation.source.name}: {_few(relation.names.values())}"
        case Filter():
            what += f" {said(relation.conditions, ' and ')}"
        case Project():
            what += f" {items(relation.items)}"
        case Aggregate() | Window():
            by = relation.groups if isinstance(relation, Aggregate) else relation.keys
            what += (f" by {said(by, ', ')}" if by else "") + f": {items(relation.items)}"
        case Join():
            what = f"{relation.how} join on {said((*relation.equal, *relation.rest), ' and ')}"
        case Sort() | Limit():
            what += f" {said((one['child'] for one in relation.order), ', ')}"
        case _:
            pass
    return what


def _few(texts: Iterable[str]) -> str:
    return first_of(list(texts), _MOST_NAMES)


def _item(name: str, item: Expr, names: dict[str, str]) -> str:
    text, called = _said(item, names), names.get(name, name)
    return text if text == called else f"{text} as {called}"


def _said(node: Expr, names: dict[str, str]) -> str:
    if node.cls == "AttributeReference":
        return names.get(node.id, node.id)
    if node.cls == "Literal":
        return repr(node["value"])
    parts: Sequence[str] = [_said(one, names) for one in node.nodes() if one.type is not None]
    if node.cls in ("Alias", "AggregateExpression", "Cast"):
        return parts[0] if parts else node.cls
    if node.cls in _SIGNS:
        return f"({f' {_SIGNS[node.cls]} '.join(parts)})"
    return f"{node.cls}({', '.join(parts)})"
