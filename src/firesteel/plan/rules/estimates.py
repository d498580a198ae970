"""How many rows relations have, about: by the rows of their scans. What is not known in any other way is guessed, as engines do without statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from firesteel.plan.expr import Expr
from firesteel.plan.relation import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Project,
    Relation,
    Scan,
    Shared,
    Sort,
    Union,
    Values,
    Window,
)
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import renamed_column

KEPT = 0.2
"""Of rows, the part that fulfils a condition."""
PAIRED = 0.5
"""Of rows, the part that a semi join or an anti join keeps."""
GROUPS = 0.25
"""Of rows, the part that are groups."""


class Estimates:
    """Of the relations of one plan. Numbers are None where nothing is known of a source."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rows: dict[Relation, float | None] = {}

    def rows(self, relation: Relation) -> float | None:
        if relation not in self._rows:
            self._rows[relation] = self._of(relation)
        return self._rows[relation]

    def _of(self, relation: Relation) -> float | None:
        if isinstance(relation, Scan):
            return self._facts.count(relation)
        if isinstance(relation, Values):
            return relation.rows.num_rows
        below = [self.rows(child) for child in relation.children]
        known = [rows for rows in below if rows is not None]
        return self._made(relation, known) if known and len(known) == len(below) else None

    def _made(self, relation: Relation, below: Sequence[float]) -> float | None:
        """``below``: the rows of its children."""
        match relation:
            case Filter():
                return below[0] * kept(relation.conditions)
            case Aggregate():
                return max(below[0] * GROUPS, 1.0) if relation.groups else 1.0
            case Limit():
                return below[0] if relation.most is None else min(below[0], relation.most)
            case Join():
                return self._joined(relation, *below)
            case Project() | Window() | Sort() | Shared() | Union():
                return sum(below)
            case _:
                return None

    def _joined(self, join: Join, left: float, right: float) -> float:
        if join.how in ("semi", "anti"):
            return left * PAIRED
        sides = [[self.values(side, pair[i]) for pair in join.pairs] for i, side in enumerate(join.children)]
        fewest = prod(min(a, b) for (a, _), (b, _) in zip(*sides, strict=True))
        distinct = min(fewest, *(max(rows for _, rows in side) for side in sides)) if join.pairs else 1.0
        inner = left * right / max(distinct, 1.0) * kept(join.rest)
        least = {"left": left, "right": right, "full": left + right}.get(join.how, 0.0)
        return left if join.how == "exists" else max(inner, least)

    def values(self, relation: Relation, key: Expr) -> tuple[float, float]:
        """Distinct values of a key, at most, and rows of the scan that it comes from, before any condition."""
        name = renamed_column(key)
        while name is not None and not isinstance(relation, Scan):
            if isinstance(relation, Project | Aggregate):
                name = renamed_column(relation.items[name])
            below = next((child for child in relation.children if name in child.columns), None)
            if below is None:
                break
            relation = below
        rows = self.rows(relation) or 1.0
        told = self._facts.values(relation, name) if isinstance(relation, Scan) and name is not None else None
        return (rows if told is None else min(rows, told)), rows


def kept(conditions: Iterable[Expr]) -> float:
    """The part of rows that fulfils all of them."""
    return prod(1.0 if one.cls == "IsNotNull" else KEPT for one in conditions)
