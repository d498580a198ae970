"""Operators of Spark's plan to rows and steps: one rule for each class, in ``RULES``.

A class without a rule, or a rule that raises Unsupported, leaves the operator and what is below it to Spark, whose rows come in as a
source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from firesteel.api.connectors import reading
from firesteel.api.steps.pipeline import Pipeline
from firesteel.connectors.files.paths import InputFile
from firesteel.connectors.formats.parquet import Footer
from firesteel.errors import FiresteelError, failure
from firesteel.plan.expr import Expr, Unsupported, walk
from firesteel.plan.types import carried, fields_of
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.operators import generating, joins, limits, python, relational
from firesteel.sql.operators.rows import Names, Rows
from firesteel.sql.plans.catalyst import Catalyst, Operator
from firesteel.sql.plans.repeated import repeated
from firesteel.sql.plans.wanted import Wanted, wanted_columns
from firesteel.sql.scans.chosen import Chosen, chosen
from firesteel.sql.scans.ranges import range_of
from firesteel.sql.scans.relation import relation


class _LeftWith(Unsupported):
    """A relation goes to Spark together with the operators above it that choose from its rows. ``top``: the last of them."""

    def __init__(self, top: int, reason: Unsupported) -> None:
        super().__init__(str(reason))
        self.top = top


@dataclass(slots=True)
class Planner:
    """One query on its way into an environment. ``left``: what goes to Spark, and why."""

    catalyst: Catalyst
    env: object
    streams: dict[int, Pipeline] = field(default_factory=dict)
    """Streams of the environment, by the number of the RDD that stands for them."""
    names: Names = field(default_factory=Names)
    left: list[str] = field(default_factory=list)
    taken: int = 0
    """Relations that are read without Spark."""
    _wanted: Wanted = field(init=False)
    _repeated: dict[int, int] = field(init=False)
    _computed: dict[int, tuple[list[Expr], Rows]] = field(default_factory=dict)
    """By the number of the first of equal subtrees: what it gives, as a step."""
    _subqueries: dict[int, Rows] = field(default_factory=dict)
    """By the number of the first plan of equal subqueries, each a step."""
    footers: dict[InputFile, Footer] = field(default_factory=dict)
    """Of Parquet files, once read."""
    chosen: dict[int, Chosen] = field(init=False)
    """By the number of a relation."""
    _settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = wanted_columns(self.catalyst.root)
        self._repeated = repeated(self.catalyst.root, self.catalyst.firsts())
        self.chosen = chosen(self.catalyst.root)

    def wanted(self, relation: Operator) -> list[Expr]:
        """The attributes of a relation that anything above it reads."""
        return self._wanted.of(relation)

    def rows(self, node: Operator) -> Rows:
        """Raises Unsupported where neither we nor Spark's rows can serve."""
        first = self._repeated.get(node.handle)
        if first is None:
            return self._rows(node)
        output = self.catalyst.output_of(node)
        if first not in self._computed:
            rows = self._rows(node)
            self._computed[first] = output, Rows(rows.step(), rows.columns)
        return _renamed(*self._computed[first], output)

    def _rows(self, node: Operator) -> Rows:
        taken = self.taken
        try:
            return self._by_rule(node)
        except _LeftWith as left:  # Spark reads only what is chosen of it
            if left.top != node.handle:
                raise
        except Unsupported as reason:
            self.left.append(f"{node.cls}: {reason}")
            top = self.chosen[node.handle].top if node.handle in self.chosen else node.handle
            if top != node.handle:
                raise _LeftWith(top, reason) from reason
        self.taken = taken  # what is below goes to Spark with it
        return self._by_spark(node)

    def _by_rule(self, node: Operator) -> Rows:
        rule = RULES.get(node.cls)
        if rule is None:
            raise Unsupported(f"the operator {node.cls} is not taken over")
        try:
            return rule(self, node)
        except (Unsupported, FiresteelError):
            raise
        except Exception as error:
            raise Unsupported(failure(error)) from error

    def expressions(
        self, sides: list[tuple[str, Pipeline]], given: Callable[[Expr], str | None] | None = None
    ) -> Expressions:
        """A translator that puts the subqueries it meets into ``sides``."""

        def subquery(node: Expr, ordinal: int) -> str:
            if node["outerAttrs"]:
                raise Unsupported("a correlated subquery that Spark has not made a join of is not taken over")
            plan = unpacked(node["plan"])
            packed = plan is not node["plan"]
            number = self._repeated.get(plan.handle, plan.handle)
            if number not in self._subqueries:
                rows = self._rows(plan)
                self._subqueries[number] = Rows(rows.step(), rows.columns)
            rows = self._subqueries[number]
            name = f"scalar_{number}"
            if name not in (known for known, _ in sides):
                sides.append((name, rows.pipeline))
            text = f"(SELECT {list(rows.columns)[ordinal if packed else 0]} FROM {name})"
            return text if packed or fields_of(node.type) is None else f"struct_extract_at({text}, {ordinal + 1})"

        return Expressions(given, subquery)

    def setting(self, name: str) -> str:
        """Of the session."""
        if name not in self._settings:
            self._settings[name] = str(self.catalyst.session.conf.get(name))
        return self._settings[name]

    def _by_spark(self, node: Operator) -> Rows:
        for part in walk(node):
            rdd = part.get("rdd") if part.cls == "LogicalRDD" else None
            if isinstance(rdd, dict) and rdd.get("rdd") in self.streams:
                raise Unsupported("; ".join(self.left))  # Spark knows no rows of it
        output = self.catalyst.output_of(node)
        columns = {a.id: carried(a.type) for a in output}
        if not columns or len(columns) < len(output):
            raise Unsupported(f"{node.cls} has no columns, or one twice")
        frame = self.catalyst.dataframe_of(node, list(columns))
        return Rows(reading.from_spark(self.env, "spark", frame), columns)  # type: ignore[arg-type]


def _renamed(output: list[Expr], rows: Rows, wanted: list[Expr]) -> Rows:
    """The rows of an equal subtree, under the names of this one's columns."""
    names = {there.id: here.id for here, there in zip(output, wanted, strict=True) if here.id in rows.columns}
    if all(there == here for there, here in names.items()):
        return rows
    items = ", ".join(f"{here} AS {there}" for there, here in names.items())
    return rows.selecting(items, {there: rows.columns[here] for there, here in names.items()}, "select", passed=names)


def unpacked(plan: Operator) -> Operator:
    """The plan of a subquery, with the fields of its struct, if it gives one, as columns."""
    items = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(plan.cls)
    only = plan[items][0] if items and len(plan[items]) == 1 else None
    if items is None or only is None or only.cls != "Alias" or only["child"].cls != "CreateNamedStruct":
        return plan
    values = only["child"]["children"][1::2]
    columns = [
        Expr("Alias", {"child": value, "exprId": f"{only['exprId']}_{i}"}, value.type) for i, value in enumerate(values)
    ]
    return Operator(plan.cls, {**plan.fields, items: columns}, handle=plan.handle)


RULES: dict[str, Callable[[Planner, Operator], Rows]] = {
    "LogicalRelation": relation,
    "Range": range_of,
    "OneRowRelation": relational.one_row,
    "LocalRelation": relational.local,
    "LogicalRDD": relational.stream,
    "Project": relational.project,
    "Filter": relational.filter,
    "Expand": relational.expand,
    "Sort": relational.sort,
    "GlobalLimit": limits.limit,
    "LocalLimit": relational.unchanged,
    "Offset": limits.offset,
    "Repartition": relational.unchanged,
    "RepartitionByExpression": relational.unchanged,
    "RebalancePartitions": relational.unchanged,
    "Union": relational.union,
    "Aggregate": python.aggregate,
    "Join": joins.join,
    "Generate": generating.generate,
    "Window": python.window,
    "WindowGroupLimit": relational.unchanged,
    "MapInArrow": python.map_batches,
    "MapInPandas": python.map_batches,
    "ArrowEvalPython": python.evaluate,
    "BatchEvalPython": python.evaluate,
    "FlatMapGroupsInPandas": python.map_groups,
    "FlatMapGroupsInArrow": python.map_groups,
    "FlatMapCoGroupsInPandas": python.map_cogroups,
    "FlatMapCoGroupsInArrow": python.map_cogroups,
}
