"""The expressions of an aggregation: of groups and aggregates, in parts or of whole groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from firesteel.plan.expr import Expr, same
from firesteel.plan.relation import Columns, Names
from firesteel.plan.types import FLOATS, checked
from firesteel.render.expressions.aggregates import (
    Parts,
    collected,
    decimal_sum,
    parts_of,
    sum_of_decimals,
    whole,
    whole_sum_of_decimals,
)
from firesteel.render.expressions.statistics import unordered_list
from firesteel.render.expressions.translator import Expressions


def group_columns(
    groups: Iterable[Expr], x: Expressions, names: Names
) -> tuple[dict[Any, str], Columns, dict[str, str]]:
    """The column of each grouping expression, by what it computes; the types of these columns; the texts of their values."""
    columns: dict[Any, str] = {}
    kinds: Columns = {}
    texts: dict[str, str] = {}
    for one in groups:
        kind, text = checked(one.type), x.text(one)
        name = one.id if one.cls == "AttributeReference" and kind not in FLOATS else names.new("g")
        columns[same(one)], kinds[name] = name, kind
        texts[name] = f"({text} + 0)" if kind in FLOATS else text  # -0.0 is in the group of 0.0, and that is its name
    return columns, kinds, texts


@dataclass(slots=True)
class Grouping:
    """An aggregation being written. ``groups``: column by grouping expression."""

    names: Names
    x: Expressions
    """On the input."""
    groups: dict[Any, str]
    partial: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """(text, type) of each column of partial aggregates."""
    found: dict[Any, str] = field(default_factory=dict)
    """Final text by aggregate."""
    parted: bool = True

    def given(self, node: Expr) -> str | None:
        """The text, behind the exchange, of a group or an aggregate."""
        key = same(node)
        if key in self.groups:
            return self.groups[key]
        if node.cls == "MakeDecimal" and decimal_sum(node) is not None:
            if key not in self.found:
                self.found[key] = self._sum(node)
            return self.found[key]
        unordered = unordered_list(node)
        if unordered is not None:
            return self._of_list(node, unordered)
        if node.cls != "AggregateExpression":
            return None
        if key not in self.found:
            self.found[key] = self._final(parts_of(node, self.x)) if self.parted else whole(node, self.x)
        return self.found[key]

    def _sum(self, node: Expr) -> str:
        inner, kind = decimal_sum(node), checked(node.type)
        assert inner is not None
        return (
            self._final(sum_of_decimals(inner, self.x, kind))
            if self.parted
            else whole_sum_of_decimals(inner, self.x, kind)
        )

    def _of_list(self, node: Expr, aggregate: Expr) -> str:
        """A function of a list that is collected."""
        key = same(aggregate)
        if key not in self.found:
            column, parts = collected(aggregate, self.x)
            self.found[key] = self._final(parts) if self.parted else column
        text = self.found[key]
        return Expressions(lambda one: text if one is aggregate else self.given(one)).by_rule(node)

    def _final(self, parts: Parts | None) -> str:
        if parts is None:
            raise WholeGroups
        names: list[str] = []
        for text, kind in parts.partial:
            name = next((n for n, known in self.partial.items() if known == (text, kind)), None)
            if name is None:
                name = self.names.new("p")
                self.partial[name] = (text, kind)
            names.append(name)
        return parts.final.format(*names)


class WholeGroups(Exception):
    """An aggregate cannot be parted."""
