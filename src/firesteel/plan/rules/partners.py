"""Semi and anti joins whose left side is small: queries 4 and 21 of TPC-H.

Where the right side is too large for one task, both sides are exchanged. The keys of the left side fit into a task. So the tasks that make the right
side get these keys, and drop all other rows before the exchange.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from firesteel.plan.relation import Join, Relation, Shared
from firesteel.plan.rules.estimates import Estimates
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import renamed_column, rewritten, with_keys_of

_LESS = 8
"""Rows of the right side for each row of the left one, at least."""
_MANY = 1 << 20
"""Rows of the right side, at least."""


def reduce_partners(root: Relation, facts: Facts) -> Relation:
    estimates = Estimates(facts)
    return rewritten(root, lambda one: _reduced(one, estimates, facts) if isinstance(one, Join) else one)


def _reduced(join: Join, estimates: Estimates, facts: Facts) -> Join:
    keys = [(renamed_column(theirs), renamed_column(mine)) for mine, theirs in join.pairs]
    if join.how not in ("semi", "anti") or not keys or any(one.cls != "EqualTo" for one in join.equal):
        return join
    small = _looked_up(join)
    few, many = estimates.rows(small), estimates.rows(join.right)
    if few is None or many is None or many < max(few * _LESS, _MANY):
        return join
    if few >= prod(estimates.values(join.right, theirs)[0] for _, theirs in join.pairs):
        return join  # it likely has all of the keys
    known = [(theirs, mine) for theirs, mine in keys if mine is not None and theirs is not None]
    if len(known) < len(keys):
        return join
    shared = small if isinstance(small, Shared) else Shared(small)
    right = with_keys_of(join.right, shared, known, facts.names)
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
