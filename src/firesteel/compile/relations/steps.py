"""Relations as steps, with a rule for each class in ``RULES``. Raises Unsupported where the engine cannot compute one as Spark does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.compile.relations import joins, relational
from firesteel.compile.relations.rows import Rows
from firesteel.compile.stream_graph import StreamNode
from firesteel.plan.expr import Expr
from firesteel.plan.relation import (
    Aggregate,
    BySpark,
    Expand,
    Filter,
    Generate,
    Join,
    Limit,
    Names,
    Project,
    Python,
    Relation,
    Scan,
    Shared,
    Sort,
    Stream,
    Union,
    Values,
    Window,
)
from firesteel.plan.types import fields_of
from firesteel.render.expressions.translator import Expressions


@dataclass(slots=True)
class Steps:
    """The steps of one query. Each relation is made once, however many read it."""

    names: Names = field(default_factory=Names)
    likely: Callable[[Relation], float | None] = lambda _: None
    """How many rows a relation has, guessed."""
    _made: dict[Relation, Rows] = field(default_factory=dict)
    _scalars: dict[Relation, str] = field(default_factory=dict)
    """By the plan of a scalar subquery, the name of its side input."""

    def guessing(self, likely: Callable[[Relation], float | None]) -> Steps:
        """Steps for the same names that know how many rows a relation likely has: those made before do not."""
        return Steps(self.names, likely)

    def rows(self, relation: Relation) -> Rows:
        """Raises Unsupported."""
        if relation not in self._made:
            made = RULES[type(relation)](self, relation)
            self._made[relation] = replace(made, likely=self.likely(relation))
        return self._made[relation]

    def expressions(self, sides: list[tuple[str, StreamNode]]) -> Expressions:
        """A translator that puts the subqueries it meets into ``sides``."""

        def subquery(node: Expr, ordinal: int) -> str:
            rows, packed = self.rows(node["plan"]), node["packed"]
            name = self._scalars.setdefault(node["plan"], f"scalar_{len(self._scalars)}")
            if name not in (known for known, _ in sides):
                sides.append((name, rows.node))
            text = f"(SELECT {list(rows.columns)[ordinal if packed else 0]} FROM {name})"
            return text if packed or fields_of(node.type) is None else f"struct_extract_at({text}, {ordinal + 1})"

        return Expressions(None, subquery)


def _shared(steps: Steps, relation: Shared) -> Rows:
    rows = steps.rows(relation.child)
    return Rows(rows.step(), rows.columns)


def _python(steps: Steps, relation: Python) -> Rows:
    return relation.step(steps, *map(steps.rows, relation.inputs))


RULES: dict[type[Relation], Callable[[Steps, Any], Rows]] = {
    Scan: relational.scan,
    Values: relational.values,
    Stream: relational.stream,
    BySpark: relational.by_spark,
    Shared: _shared,
    Project: relational.project,
    Filter: relational.filtered,
    Expand: relational.expand,
    Sort: relational.sort,
    Limit: relational.limit,
    Union: relational.union,
    Generate: relational.generate,
    Aggregate: relational.aggregate,
    Window: relational.window,
    Join: joins.join,
    Python: _python,
}
