"""Aggregates that are joined on their own keys: query 17 of TPC-H."""

from __future__ import annotations

from dataclasses import replace

from firesteel.plan.relation import Aggregate, Filter, Join, Project, Relation, Scan, Sort
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import renamed_column, rewritten, with_keys_of

_LESS = 4
"""The other side has at most one row for so many of the aggregate's input."""


def reduce_aggregates(root: Relation, facts: Facts) -> Relation:
    return rewritten(root, lambda one: _reduced(one, facts) if isinstance(one, Join) else one)


_READ = {"inner": (0, 1), "left": (1,), "right": (0,), "semi": (1,), "anti": (1,), "exists": (1,), "full": ()}
"""By kind of join, the sides whose rows count only where they have a partner: 0 is the left one."""


def _reduced(join: Join, facts: Facts) -> Join:
    sides = (join.left, join.right)
    for i in _READ[join.how]:
        for one, pair in zip(join.equal, join.pairs, strict=True):
            mine, theirs = renamed_column(pair[i]), renamed_column(pair[1 - i])
            if one.cls != "EqualTo" or mine is None or theirs is None:
                continue
            keys = _selective(sides[1 - i], theirs)
            changed = keys and _with_fewer_groups(sides[i], mine, *keys, facts)
            if changed:
                return replace(join, **{("left", "right")[i]: changed})
    return join


def _selective(relation: Relation, name: str) -> tuple[Relation, str] | None:
    """A scan with a condition that leaves few rows, and its column that has all values of the column ``name`` of a relation."""
    chosen = False
    top, its = relation, name
    while not isinstance(relation, Scan):
        if isinstance(relation, Filter):
            if relation.may_raise:
                return None
            chosen = chosen or any(one.cls != "IsNotNull" for one in relation.conditions)
            relation = relation.child
        elif isinstance(relation, Project):
            below = renamed_column(relation.items[name])
            if below is None or relation.may_raise:
                return None
            relation, name = relation.child, below
        elif isinstance(relation, Join) and not chosen:
            side = _side_of(relation, name)
            if side is None:
                return None
            other = _partner(relation, name)
            found = other and _selective(*other)
            if found:
                return found
            relation = top = side
            its = name
        else:
            return None
    return (top, its) if chosen else None


def _side_of(join: Join, name: str) -> Relation | None:
    """The side whose rows are all there is of a column's values, none added."""
    if name in join.left.columns:
        return join.left if join.how in ("inner", "left", "semi", "anti") else None
    return join.right if name in join.right.columns and join.how in ("inner", "right") else None


def _partner(join: Join, name: str) -> tuple[Relation, str] | None:
    """The other side of an inner join, and its column that is equal to the column ``name``."""
    if join.how not in ("inner", "semi"):
        return None
    for one, (a, b) in zip(join.equal, join.pairs, strict=True):
        left, right = renamed_column(a), renamed_column(b)
        if one.cls == "EqualTo" and left is not None and right is not None and name in (left, right):
            return (join.right, right) if name == left else (join.left, left)
    return None


def _with_fewer_groups(relation: Relation, name: str, other: Relation, key: str, facts: Facts) -> Relation | None:
    """The relation, whose column ``name`` is a key of an aggregate, without groups whose key the column ``key`` of another relation does not
    have. None: it is another column, or a group that is left out may raise."""
    if relation.may_raise:
        return None
    if isinstance(relation, Filter | Sort):
        changed = _with_fewer_groups(relation.child, name, other, key, facts)
        return changed and replace(relation, child=changed)
    if isinstance(relation, Project):
        below = renamed_column(relation.items[name])
        changed = None if below is None else _with_fewer_groups(relation.child, below, other, key, facts)
        return changed and replace(relation, child=changed)
    if not isinstance(relation, Aggregate):
        return None
    below = renamed_column(relation.items[name])
    if below is None or below not in map(renamed_column, relation.groups):
        return None
    changed = _with_fewer_rows(relation.child, below, other, key, facts)
    return changed and replace(relation, child=changed)


def _with_fewer_rows(relation: Relation, name: str, other: Relation, key: str, facts: Facts) -> Relation | None:
    """The input of an aggregate without rows whose value of the column ``name`` another relation does not have. None: it does not pay, or a row
    that is left out may raise."""
    if relation.may_raise:
        return None
    if isinstance(relation, Project):
        below = renamed_column(relation.items[name])
        changed = None if below is None else _with_fewer_rows(relation.child, below, other, key, facts)
        return changed and replace(relation, child=changed)
    if isinstance(relation, Join) and relation.how in ("inner", "semi"):
        if relation.how == "semi" and any(renamed_column(mine) == name for mine, _ in relation.pairs):
            return None  # it has few keys already
        side = "left" if name in relation.left.columns else "right"
        changed = _with_fewer_rows(getattr(relation, side), name, other, key, facts)
        return changed and replace(relation, **{side: changed})
    scan = relation.child if isinstance(relation, Filter) else relation
    if not isinstance(scan, Scan) or not _is_smaller(other, scan, facts):
        return None
    again = rewritten(other, replace)  # in stages, a scan for two would be exchanged before its conditions
    return with_keys_of(relation, again, [(name, key)], facts.names)


def _is_smaller(other: Relation, scan: Scan, facts: Facts) -> bool:
    while not isinstance(other, Scan):
        other = other.children[0]
    few, many = facts.count(other), facts.count(scan)
    return few is not None and many is not None and few * _LESS <= many
