"""Walking and changing plans, with the plans of their subqueries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import is_
from typing import Any

from firesteel.plan.expr import Expr, column, replaced
from firesteel.plan.relation import Join, Names, Project, Relation


def relations(root: Relation) -> list[Relation]:
    """The relation and all below it, each once."""
    found: dict[Relation, None] = {}
    stack = [root]
    while stack:
        one = stack.pop()
        if one not in found:
            found[one] = None
            stack.extend(reversed((*one.children, *one.subqueries)))
    return list(found)


def with_inputs(relation: Relation, of: Callable[[Relation], Relation]) -> Relation:
    """The relation with others right below it, those of subqueries among them; itself if they are the same."""
    changes: dict[str, Any] = {}
    if not relation.children and not relation.subqueries:
        return relation
    for field in fields(relation):
        value = getattr(relation, field.name)
        if isinstance(value, Mapping | Expr) and not relation.subqueries:
            continue
        changed = _changed(value, of)
        if changed is not value:
            changes[field.name] = changed
    return replace(relation, **changes) if changes else relation


def _changed(value: Any, of: Callable[[Relation], Relation]) -> Any:
    if isinstance(value, Relation):
        return of(value)
    if isinstance(value, tuple):  # of relations or expressions, or of pairs
        items = tuple(_changed(item, of) for item in value)
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        values = {name: _changed(item, of) for name, item in value.items()}
        return value if all(map(is_, values.values(), value.values())) else values
    return replaced(value, lambda part: _with_plan(part, of)) if isinstance(value, Expr) else value


def _with_plan(part: Expr, of: Callable[[Relation], Relation]) -> Expr | None:
    if part.cls != "ScalarSubquery":
        return None
    plan = of(part["plan"])
    return part if plan is part["plan"] else replace(part, fields={**part.fields, "plan": plan})


def rewritten(root: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """The plan with ``change`` of each relation, from below. One that is read several times is changed once."""
    done: dict[Relation, Relation] = {}

    def of(relation: Relation) -> Relation:
        if relation not in done:
            done[relation] = change(with_inputs(relation, of))
        return done[relation]

    return of(root)


def renamed_column(item: Expr) -> str | None:
    """The column whose value this is, under whatever name; None: it is computed."""
    while item.cls == "Alias":
        item = item["child"]
    return item.id if item.cls == "AttributeReference" else None


def equality(a: Expr, b: Expr) -> Expr:
    return Expr("EqualTo", {"left": a, "right": b}, "boolean")


def with_keys_of(relation: Relation, other: Relation, keys: Sequence[tuple[str, str]], names: Names) -> Join:
    """The rows whose values of some columns a row of another relation has as well. ``keys``: pairs of a column of the relation and one of the other."""
    new = {names.new("cr"): pair for pair in keys}
    given = Project(other, {name: column(theirs, other.columns[theirs]) for name, (_, theirs) in new.items()})
    pairs = tuple(
        (column(mine, relation.columns[mine]), column(name, given.columns[name])) for name, (mine, _) in new.items()
    )
    return Join(relation, given, "semi", tuple(equality(*pair) for pair in pairs), pairs, ())
