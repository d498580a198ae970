"""The expressions of an aggregation: of groups and aggregates, in parts or of whole groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firesteel.plan.expr import Expr, attributes, same, walk
from firesteel.plan.relation import Aggregate, Columns, Expand, Names, Project, Relation
from firesteel.plan.types import FLOATS, checked, grouped
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
        kind, text = grouped(one.type, maps=True), x.text(one)  # Spark sorts the maps first
        name = one.id if one.cls == "AttributeReference" and kind not in FLOATS else names.new("g")
        columns[same(one)], kinds[name] = name, kind
        texts[name] = f"({text} + 0)" if kind in FLOATS else text  # -0.0 is in the group of 0.0, and that is its name
    return columns, kinds, texts


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """What groups rows in several ways at once: ``rows`` by those of the ``keys`` that are in one of the ``sets``.

    ``numbers``: columns with a constant for each of the sets, in their order.
    """

    rows: Relation
    keys: tuple[Expr, ...]
    sets: tuple[tuple[Expr, ...], ...]
    numbers: tuple[tuple[Expr, tuple[Expr, ...]], ...]

    def number(self, constants: Sequence[Expr], columns: Mapping[Any, str], x: Expressions) -> str:
        """The text of such a column. ``columns``: of the keys."""
        names = [columns[same(key)] for key in self.keys]
        whens: list[str] = []
        for chosen, constant in zip(self.sets, constants, strict=True):
            kept = {columns[same(key)] for key in chosen}
            mask = sum(1 << i for i, name in enumerate(reversed(names)) if name not in kept)
            whens.append(f"WHEN {mask} THEN {x.text(constant)}")
        return f"(CASE GROUPING({', '.join(names)}) {' '.join(whens)} END)"


def grouping_sets(relation: Aggregate) -> GroupingSets | None:
    """The aggregation of a ROLLUP, a CUBE or GROUPING SETS, of which Spark makes one of rows that are each there once for each set.

    None: it is another one.
    """
    expand = relation.child
    if not isinstance(expand, Expand) or any(one.cls != "AttributeReference" for one in relation.groups):
        return None
    values = dict(zip(expand.columns, zip(*expand.ways, strict=True), strict=True))
    if not {one.id for one in relation.groups} <= set(values):
        return None
    items: dict[str, Expr] = {}
    numbers: list[tuple[Expr, tuple[Expr, ...]]] = []
    keys: list[Expr] = []
    for one in relation.groups:
        of_ways = values.pop(one.id)
        known = [value for value in of_ways if value.cls != "Literal"]
        if not known:
            numbers.append((one, of_ways))
        elif len(set(map(same, known))) > 1 or any(v.cls == "Literal" and v["value"] is not None for v in of_ways):
            return None
        else:
            items[one.id] = known[0]
            keys.append(one)
    for name, of_ways in values.items():
        if len(set(map(same, of_ways))) > 1:
            return None
        items[name] = of_ways[0]
    names = {key.id for key in keys}
    ways = [dict(zip(expand.columns, way, strict=True)) for way in expand.ways]
    sets = tuple(tuple(key for key in keys if way[key.id].cls != "Literal") for way in ways)
    rows = Project(expand.child, items)
    fits = (
        len({same(items[name]) for name in names}) == len(keys)
        and len({tuple(key.id for key in one) for one in sets}) == len(sets)
        and all(rows.columns[name] == expand.columns[name] for name in items)
        and all(names.isdisjoint(attributes(one)) for one in _aggregates(relation))  # there they are null for some sets
    )
    return GroupingSets(rows, tuple(keys), sets, tuple(numbers)) if keys and fits else None


def _aggregates(relation: Aggregate) -> list[Expr]:
    return [part for item in relation.items.values() for part in walk(item) if part.cls == "AggregateExpression"]


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
