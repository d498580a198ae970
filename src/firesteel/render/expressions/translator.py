"""The allow-list: each class of expression, with the types and modes in which the engine gives Spark's answer.

A class that is not in ``RULES``, or a type or mode that its rule does not name, raises Unsupported: then Spark computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import carried, checked_inside, element_of
from firesteel.render.expressions import (
    arithmetic,
    arrays,
    binaries,
    calls,
    casts,
    exponents,
    hashes,
    json,
    lambdas,
    logic,
    maps,
    near,
    regexes,
    strings,
)
from firesteel.render.expressions.times import dates, intervals, patterns, timestamps


class Expressions:
    """Spark's expressions in the engine's SQL. ``given``: the text of an expression that is computed already, else None;
    ``subqueries``: text of a column of a scalar subquery."""

    def __init__(
        self, given: Callable[[Expr], str | None] | None = None, subqueries: Callable[[Expr, int], str] | None = None
    ) -> None:
        self._given = given
        self._subqueries = subqueries

    def text(self, node: Expr) -> str:
        """Raises Unsupported."""
        try:
            given = self._given(node) if self._given else None
            return self.by_rule(node) if given is None else given
        except Unsupported as reason:
            reason.at = reason.at or node
            raise

    def by_rule(self, node: Expr) -> str:
        """As ``text``, without asking for what is computed already."""
        rule = arrays.OF_TEXTS_TOO.get(node.cls) if element_of(node.type) is not None else RULES.get(node.cls)
        rule = rule or RULES.get(node.cls)
        if rule is None:
            raise Unsupported(f"{said_function(node)} is not taken over")
        if node.cls not in _UNTYPED:
            (carried if isinstance(node.type, dict) else checked_inside)(node.type)
        text = rule(self, node)
        if len(text) > _LONGEST:
            raise Unsupported("an expression as long as this is not taken over")
        return text

    def texts(self, nodes: Iterable[Expr]) -> list[str]:
        return [self.text(node) for node in nodes]

    def inside(self, variables: dict[int, str]) -> Expressions:
        """For the body of a lambda: with the text of its variables, by their numbers, and without subqueries."""

        def given(node: Expr) -> str | None:
            if node.cls == "NamedLambdaVariable" and node["exprId"] in variables:
                return variables[node["exprId"]]
            return self._given(node) if self._given else None

        return Expressions(given)

    def subquery(self, node: Expr, ordinal: int = 0) -> str:
        if self._subqueries is None:
            raise Unsupported("a subquery stands where none is taken over")
        return self._subqueries(node, ordinal)


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    **logic.RULES,
    **arithmetic.RULES,
    **casts.RULES,
    **strings.RULES,
    **dates.RULES,
    **timestamps.RULES,
    **patterns.RULES,
    **intervals.RULES,
    **binaries.RULES,
    **hashes.RULES,
    **regexes.RULES,
    **exponents.RULES,
    **near.RULES,
    **json.RULES,
    **calls.RULES,
    **arrays.RULES,
    **maps.RULES,
    **lambdas.RULES,
}
_LONGEST = 1 << 17
_UNTYPED = {"ScalarSubquery"}
