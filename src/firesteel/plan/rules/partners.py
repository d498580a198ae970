"""Semi joins whose left side is small: of the right side only rows count whose keys it has: queries 4 and 21 of TPC-H.

A semi join is by the hash of its keys where the right side is too large for one task. The keys of the left side are not: the right side's tasks
drop what has no partner before it is exchanged.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from firesteel.plan.expr import Expr, column
from firesteel.plan.relation import Join, Project, Relation, Shared
from firesteel.plan.rules.estimates import Estimates
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import renamed_column, rewritten

_LESS = 8
"""The left side has at most one row for so many of the right one,"""
_MANY = 1 << 20
"""which has so many at least."""


def reduce_partners(root: Relation, facts: Facts) -> Relation:
    estimates = Estimates(facts)
    return rewritten(root, lambda one: _reduced(one, estimates, facts) if isinstance(one, Join) else one)


def _reduced(join: Join, estimates: Estimates, facts: Facts) -> Join:
    keys = [(renamed_column(mine), renamed_column(theirs)) for mine, theirs in join.pairs]
    if join.how not in ("semi", "anti") or not keys or any(one.cls != "EqualTo" for one in join.equal):
        return join
    few, many = estimates.rows(_looked_up(join)), estimates.rows(join.right)
    if few is None or many is None or many < max(few * _LESS, _MANY):
        return join
    if few >= prod(estimates.values(join.right, theirs)[0] for _, theirs in join.pairs):
        return join  # it likely has all of the keys
    small = _looked_up(join)
    shared = small if isinstance(small, Shared) else Shared(small)
    names = {facts.names.new("cr"): (mine, theirs) for mine, theirs in keys if mine is not None and theirs is not None}
    if len(names) < len(keys):
        return join
    given = Project(shared, {new: column(mine, shared.columns[mine]) for new, (mine, _) in names.items()})
    pairs = [
        (column(theirs, join.right.columns[theirs]), column(new, given.columns[new]))
        for new, (_, theirs) in names.items()
    ]
    equal = tuple(Expr("EqualTo", {"left": a, "right": b}, "boolean") for a, b in pairs)
    right = Join(join.right, given, "semi", equal, tuple(pairs), ())
    return replace(join, left=_with(join.left, small, shared), right=right)


def _looked_up(join: Join) -> Relation:
    """The rows that it looks up, before the semi joins right below it drop some."""
    below = join.left
    while isinstance(below, Join) and below.how in ("semi", "anti"):
        below = below.left
    return below


def _with(relation: Relation, old: Relation, new: Relation) -> Relation:
    if relation is old:
        return new
    assert isinstance(relation, Join)
    return replace(relation, left=_with(relation.left, old, new))
