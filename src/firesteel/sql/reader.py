"""Operators of Spark's plan as relations: one rule for each class, in ``RULES``.

A class without a rule, or a rule that raises Unsupported, leaves the operator and what is below it to Spark, whose rows come in as a
relation of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

from firesteel.compile.stream_graph import DataFrameStep, StreamEdge, StreamNode
from firesteel.connectors.files.paths import InputFile
from firesteel.connectors.formats.parquet import Footer
from firesteel.errors import FiresteelError, failure
from firesteel.plan.expr import Expr, Unsupported, column, replaced, walk
from firesteel.plan.functions import about, said_function
from firesteel.plan.relation import BySpark, Columns, Project, Relation, Shared, type_of_column
from firesteel.render.expressions.near import is_near
from firesteel.sql import operators, python
from firesteel.sql.plans.catalyst import Catalyst, Operator, collected, few_rows
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
class Reader:
    """One query on its way to relations. ``left``: what goes to Spark, and why.

    ``judge``: takes each relation when its inputs have been judged, and raises Unsupported where it cannot be computed without Spark.
    ``streams``: of the environment, by the number of the RDD that stands for them.
    """

    catalyst: Catalyst
    judge: Callable[[Relation], object]
    streams: Mapping[int, StreamEdge] = field(default_factory=dict[int, StreamEdge])
    whole: bool = False
    """Nothing is to be left to Spark, but rows that it only hands over."""
    near: bool = False
    """Functions whose last digit may differ from Spark's are taken over."""
    left: list[str] = field(default_factory=list)
    taken: int = 0
    """Relations that are read without Spark."""
    handed: int = 0
    """Relations of few rows that Spark hands over, or that the plan holds."""
    footers: dict[InputFile, Footer] = field(default_factory=dict)
    """Of Parquet files, once read."""
    chosen: dict[int, Chosen] = field(init=False)
    """By the number of a relation."""
    _wanted: Wanted = field(init=False)
    _repeated: dict[int, int] = field(init=False)
    _computed: dict[int, tuple[list[str], Relation]] = field(default_factory=dict)
    """By the number of the first of equal subtrees: its columns, and what it gives."""
    _subqueries: dict[int, Relation] = field(default_factory=dict)
    """By the number of the first plan of equal subqueries."""
    _names: int = 0

    def __post_init__(self) -> None:
        self._wanted = wanted_columns(self.catalyst.root)
        self._repeated = repeated(self.catalyst.root, self.catalyst.firsts)
        self.chosen = chosen(self.catalyst.root)

    def wanted(self, relation: Operator) -> list[Expr]:
        """The attributes of a relation that anything above it reads."""
        return self._wanted.of(relation)

    def new_name(self) -> str:
        """The name of a column that Spark's plan does not have."""
        self._names += 1
        return f"cn{self._names}"

    # --- relations ----------------------------------------------------------------------------------------------------

    def relation(self, node: Operator) -> Relation:
        """Raises Unsupported where neither we nor Spark's rows can serve."""
        first = self._repeated.get(node.handle)
        if first is None:
            return self._relation(node)
        output = _computed_by(node)
        if first not in self._computed:
            self._computed[first] = output, self._judged(Shared(self._relation(node)))
        return self._judged(_renamed(*self._computed[first], output))

    def _relation(self, node: Operator) -> Relation:
        taken = self.taken
        try:
            return self._by_rule(node)
        except _LeftWith as left:  # Spark reads only what is chosen of it
            if left.top != node.handle:
                raise
        except Unsupported as reason:
            if (told := _told(reason, node)) not in "; ".join(self.left):
                self.left.append(told)
            top = self.chosen[node.handle].top if node.handle in self.chosen else node.handle
            if top != node.handle:
                raise _LeftWith(top, reason) from reason
        self.taken = taken  # what is below goes to Spark with it
        return self._by_spark(node)

    def _by_rule(self, node: Operator) -> Relation:
        rule = RULES.get(node.cls)
        if rule is None:
            raise Unsupported(f"{_SAID.get(node.cls) or f'the operator {node.cls}'} is not taken over")
        try:
            return self._judged(rule(self, node))
        except (Unsupported, FiresteelError):
            raise
        except Exception as error:
            raise Unsupported(failure(error)) from error

    def _judged(self, relation: Relation) -> Relation:
        for part in (part for one in relation.expressions for part in walk(one)):
            if not self.near and is_near(part):
                raise Unsupported(
                    f"the last digit of {said_function(part)} may differ: firesteel.sql.near=true takes it over", part
                )
            if (
                part.cls == "Cast"
                and part["child"].type == "date"
                and part.type == "string"
                and self.catalyst.is_of_spark_2
            ):
                raise Unsupported("texts of dates as Spark 2 wrote them are not taken over", part)
            setting, value = _SETTINGS.get(part.cls, ("", ""))
            if setting and self.catalyst.setting(setting) != value:
                raise Unsupported(f"JSON with another value of {setting} is not taken over", part)
        self.judge(relation)
        return relation

    def held(self, node: Operator) -> Relation:
        """Few rows that Spark has: it hands them over, without columns that nothing reads. Raises Unsupported unless ``whole``."""
        if not self.whole:
            raise Unsupported("rows of a list or of a cached DataFrame are Spark's")
        self.handed += 1
        return self._from_spark(node, [a.id for a in self.wanted(node)])

    def _by_spark(self, node: Operator) -> Relation:
        for part in walk(node):
            rdd = part.get("rdd") if part.cls == "LogicalRDD" else None
            if isinstance(rdd, dict) and rdd.get("rdd") in self.streams:
                raise Unsupported("; ".join(self.left))  # Spark knows no rows of it
        try:
            return self._from_spark(node, [])
        except Unsupported as reason:  # types that only Spark has
            raise Unsupported("; ".join(self.left)) from reason

    def _from_spark(self, node: Operator, held: list[str]) -> Relation:
        """``held``: the columns of rows that Spark only hands over."""
        output = self.catalyst.output_of(node)
        columns: Columns = {a.id: type_of_column(a) for a in output if not held or a.id in held}
        if not columns or len({a.id for a in output}) < len(output):
            raise Unsupported("rows without columns, or with one twice, are Spark's")
        from firesteel.spark.dataframes import dataframe_schema, dataframe_source  # loads pyspark

        frame = self.catalyst.dataframe_of(node, [a.id for a in output])
        if held:
            frame = frame.select(*columns)
        collect = few_rows if node.cls == "LogicalRDD" else collected
        step = StreamNode("spark", DataFrameStep(lambda: dataframe_source(frame)), dataframe_schema(frame))
        return self._judged(BySpark(columns, step, partial(collect, frame) if held else None))

    # --- expressions --------------------------------------------------------------------------------------------------

    def expressions(self, nodes: Sequence[Expr]) -> tuple[Expr, ...]:
        """The same, with relations in the place of the plans of their scalar subqueries."""
        return tuple(replaced(one, self._of_subquery) for one in nodes)

    def _of_subquery(self, node: Expr) -> Expr | None:
        if node.cls != "ScalarSubquery":
            return None
        if node["outerAttrs"]:
            raise Unsupported("a correlated subquery that Spark has not made a join of is not taken over")
        plan = unpacked(node["plan"])
        number = self._repeated.get(plan.handle, plan.handle)
        if number not in self._subqueries:
            self._subqueries[number] = self._judged(Shared(self._relation(plan)))
        return Expr(node.cls, {"plan": self._subqueries[number], "packed": plan is not node["plan"]}, node.type)


def _told(reason: Unsupported, operator: Operator) -> str:
    """The reason, what it is about, and where the user wrote that: the part itself, what is inside of it, or else what is around it."""
    at = reason.at
    if at is None:
        return str(reason)
    parts = [part for one in operator.nodes() if not isinstance(one, Operator) for part in walk(one)]
    around = (part for part in reversed(parts) if any(one is at for one in walk(part)))
    place = next((one.place for one in (*walk(at), *around) if one.place), "")
    said = about(at, str(reason))
    return f"{said} ({PurePath(place.splitlines()[0]).name})" if place else said


_SAID = {
    "ArrowEvalPythonUDTF": "a table function of Python",
    "AttachDistributedSequence": "the index of pandas on Spark",
    "BatchEvalPythonUDTF": "a table function of Python",
    "CollectMetrics": "observe()",
    "CommandResult": "the answer of a command",
    "DataSourceV2ScanRelation": "a table of another catalog or data source",
    "HiveTableRelation": "a table of Hive",
    "ScriptTransformation": "TRANSFORM",
    "UnionLoop": "a recursive query",
}
"""What users call operators without a rule."""
_SETTINGS = {
    "StructsToJsonEvaluator": ("spark.sql.jsonGenerator.ignoreNullFields", "true"),
    "JsonToStructs": ("spark.sql.columnNameOfCorruptRecord", "_corrupt_record"),
}
"""By class, the setting that an expression goes by, and the value for which its rule holds."""


def _computed_by(node: Operator) -> list[str]:
    """The columns of a Project or an Aggregate, in order."""
    items: list[Expr] = node["projectList" if node.cls == "Project" else "aggregateExpressions"]
    return [item.id for item in items]


def _renamed(output: list[str], rows: Relation, wanted: list[str]) -> Relation:
    """The rows of an equal subtree, under the names of this one's columns."""
    names = {there: here for here, there in zip(output, wanted, strict=True) if here in rows.columns}
    if all(there == here for there, here in names.items()):
        return rows
    return Project(rows, {there: column(here, rows.columns[here]) for there, here in names.items()})


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


RULES: dict[str, Callable[[Reader, Operator], Relation]] = {
    "LogicalRelation": relation,
    "Range": range_of,
    "OneRowRelation": operators.one_row,
    "LocalRelation": operators.local,
    "LogicalRDD": operators.stream,
    "InMemoryRelation": operators.cached,
    "Project": operators.project,
    "Filter": operators.filtered,
    "Expand": operators.expand,
    "Sort": operators.sort,
    "GlobalLimit": operators.limit,
    "LocalLimit": operators.unchanged,
    "Offset": operators.offset,
    "Sample": operators.sample,
    "Repartition": operators.unchanged,
    "RepartitionByExpression": operators.unchanged,
    "RebalancePartitions": operators.unchanged,
    "Union": operators.union,
    "Aggregate": python.aggregate,
    "Join": operators.join,
    "Generate": operators.generate,
    "Window": python.window,
    "WindowGroupLimit": operators.unchanged,
    "MapInArrow": python.map_batches,
    "MapInPandas": python.map_batches,
    "ArrowEvalPython": python.evaluate,
    "BatchEvalPython": python.evaluate,
    "FlatMapGroupsInPandas": python.map_groups,
    "FlatMapGroupsInArrow": python.map_groups,
    "FlatMapCoGroupsInPandas": python.map_cogroups,
    "FlatMapCoGroupsInArrow": python.map_cogroups,
}
