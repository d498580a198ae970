"""Conditions that a column is not null, where its nulls are rejected all the same.

Spark's optimiser writes one below each inner join, for each key. The engine takes each for a filter that leaves few rows, and orders joins by
that: query 25 of TPC-DS takes three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firesteel.plan.expr import Expr
from firesteel.plan.raising import any_raises
from firesteel.plan.relation import Aggregate, Filter, Join, Project, Relation, Shared, Sort, Union, Window
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import renamed_column, with_inputs

_NOTHING = frozenset[str]()


def drop_null_checks(root: Relation, _: Facts) -> Relation:
    shared: dict[Relation, Relation] = {}

    def without(relation: Relation, rejected: frozenset[str]) -> Relation:
        """``rejected``: columns; above, rows with a null in one are dropped before anything that may raise is computed of them."""
        if isinstance(relation, Shared):
            if relation not in shared:
                shared[relation] = with_inputs(relation, lambda one: without(one, _NOTHING))
            return shared[relation]
        relation, below = _checked(relation, rejected)
        known = dict(zip(map(id, relation.children), below, strict=True))
        changed = with_inputs(relation, lambda one: without(one, known.get(id(one), _NOTHING)))
        return changed.child if isinstance(changed, Filter) and not changed.conditions else changed

    return without(root, _NOTHING)


def _checked(relation: Relation, rejected: frozenset[str]) -> tuple[Relation, Sequence[frozenset[str]]]:
    """The relation without such conditions, and what is rejected of each relation right below it."""
    if isinstance(relation, Join):
        return relation, _of_sides(relation, rejected)
    if not isinstance(relation, Filter):
        return relation, [_below(relation, rejected)] * len(relation.children)
    if relation.may_raise:
        return relation, [_NOTHING]
    checks = {i: one["child"].id for i, one in enumerate(relation.conditions) if _is_check(one)}
    others = rejected.union(*(_rejects(one) for i, one in enumerate(relation.conditions) if i not in checks))
    kept = tuple(one for i, one in enumerate(relation.conditions) if checks.get(i) not in others)
    changed = relation if len(kept) == len(relation.conditions) else replace(relation, conditions=kept)
    return changed, [others | set(checks.values())]


def _is_check(condition: Expr) -> bool:
    return condition.cls == "IsNotNull" and condition["child"].cls == "AttributeReference"


def _of_sides(relation: Join, rejected: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """A row with a null key has no partner."""
    known = [(one, pair) for one, pair in zip(relation.equal, relation.pairs, strict=True) if one.cls == "EqualTo"]
    lefts, rights = (frozenset(p[i].id for _, p in known if p[i].cls == "AttributeReference") for i in (0, 1))
    how, passed = relation.how, rejected
    if relation.may_raise:
        return _NOTHING, _NOTHING
    if how in ("inner", "semi"):
        of_rest = frozenset[str]().union(*map(_rejects, relation.rest))
        lefts, rights = lefts | of_rest, rights | of_rest
    return {
        "inner": (lefts | passed, rights | passed),
        "semi": (lefts | passed, rights),
        "left": (passed, rights),
        "right": (lefts, passed),
        "full": (_NOTHING, _NOTHING),
    }.get(how, (passed, rights))


def _below(relation: Relation, rejected: frozenset[str]) -> frozenset[str]:
    """Of an operator that hands rows on, what is rejected of its input."""
    raising = relation.groups if isinstance(relation, Aggregate) else relation.expressions
    if not rejected or any_raises(
        raising
    ):  # a sum that overflows for the group of null ends the query, and Spark answers
        return _NOTHING
    if isinstance(relation, Project):
        items = (renamed_column(item) for name, item in relation.items.items() if name in rejected)
        return frozenset(item for item in items if item is not None)
    if isinstance(relation, Aggregate):
        keys = {key.id for key in relation.groups if key.cls == "AttributeReference"}
        items = (renamed_column(item) for name, item in relation.items.items() if name in rejected)
        return frozenset(item for item in items if item in keys)
    if isinstance(relation, Window):
        return rejected & {key.id for key in relation.keys if key.cls == "AttributeReference"}
    return rejected if isinstance(relation, Sort | Union) else _NOTHING


_STRICT = frozenset(
    [
        "Cast",
        "Alias",
        "Add",
        "Subtract",
        "Multiply",
        "UnaryMinus",
        "Abs",
        "Upper",
        "Lower",
        "StringTrim",
        "Substring",
        "Year",
        "Month",
        "DayOfMonth",
        "KnownNotNull",
    ]
)
"""Null where an operand is."""
_COMPARING = frozenset(
    [
        "EqualTo",
        "LessThan",
        "LessThanOrEqual",
        "GreaterThan",
        "GreaterThanOrEqual",
        "StartsWith",
        "EndsWith",
        "Contains",
        "Like",
        "RLike",
    ]
)


def _rejects(condition: Expr) -> frozenset[str]:
    """Columns with a null in which no row fulfils the condition."""
    if condition.cls == "And":
        return _rejects(condition["left"]) | _rejects(condition["right"])
    if condition.cls == "Or":
        return _rejects(condition["left"]) & _rejects(condition["right"])
    if condition.cls == "Not":
        return _rejects(condition["child"]) if condition["child"].cls in (*_COMPARING, "In", "InSet") else _NOTHING
    if condition.cls == "In":
        return _needed(condition["value"])
    if condition.cls in ("InSet", "IsNotNull"):
        return _needed(condition["child"])
    return _NOTHING.union(*map(_needed, condition.nodes())) if condition.cls in _COMPARING else _NOTHING


def _needed(node: Expr) -> frozenset[str]:
    """Columns with a null in which the value is null."""
    if node.cls == "AttributeReference":
        return frozenset([node.id])
    return _NOTHING.union(*map(_needed, node.nodes())) if node.cls in _STRICT else _NOTHING
