"""Operators of Spark's plan that call Python functions, as relations: no row passes through the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firesteel.compile.relations.rows import Rows
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StepConfig, StreamEdge, StreamNode
from firesteel.model.job_graph import ShipStrategy
from firesteel.plan.expr import Expr, Unsupported, column, replaced, same, walk
from firesteel.plan.relation import Columns, Python, Relation, schema_of, with_columns
from firesteel.plan.types import FLOATS, arrow_type, checked, decimal_of
from firesteel.sql import operators
from firesteel.sql.plans.catalyst import Operator
from firesteel.sql.plans.python_functions import PythonSettings, broadcasts_of, command_of, python_settings
from firesteel.task.functions.spark_functions import (
    PICKLED_ROWS,
    AggregateBySpark,
    CoGroupsBySpark,
    EvaluateBySpark,
    GroupsBySpark,
    MapBySpark,
    PickledFunction,
    Seen,
    SparkFunctions,
    WindowBySpark,
)

if TYPE_CHECKING:
    from firesteel.compile.relations.steps import Steps
    from firesteel.sql.reader import Reader

# PySpark's numbers of the kinds of functions
_ROW_BY_ROW = 101
_PANDAS_MAP, _ARROW_MAP = 205, 207
_SCALARS = (PICKLED_ROWS, _ROW_BY_ROW, 200, 204, 250, 251)
_GROUPS = (201, 216, 209, 215)
_COGROUPS = (206, 210)
_AGGREGATES = (202, 217, 252, 254)
_WINDOWS = {202: 203, 252: 253}
"""By the kind of an aggregate, that of the same in a window."""
_STRUCT_IN = (_PANDAS_MAP, _ARROW_MAP, 209, 215)
_STRUCT_OUT = (_PANDAS_MAP, _ARROW_MAP, *_GROUPS, *_COGROUPS)
_PLAIN_SCALE = 6
"""Decimals of more places may have exponents in Java's text, by which they are pickled."""
_METHOD = {
    **dict.fromkeys((_ARROW_MAP,), "mapInArrow"),
    **dict.fromkeys((_PANDAS_MAP,), "mapInPandas"),
    **dict.fromkeys((201, 216, 206), "applyInPandas"),
    **dict.fromkeys((209, 215, 210), "applyInArrow"),
}
_Grouped = GroupsBySpark | CoGroupsBySpark | AggregateBySpark | WindowBySpark


# --- functions of rows ----------------------------------------------------------------------------------------------------------


def map_batches(reader: Reader, node: Operator) -> Relation:
    """``mapInArrow``, ``mapInPandas``."""
    if node["isBarrier"] or node["profile"] is not None:
        raise Unsupported("a stage of its own kind (barrier, profile) is Spark's")
    udf = node["functionExpr"]
    if udf.cls != "PythonUDF" or udf["evalType"] not in (_PANDAS_MAP, _ARROW_MAP):
        raise Unsupported("this kind of Python function is not taken over")
    caller = _Caller.of(reader)
    child, columns = reader.relation(node["child"]), _columns(node["output"])
    functions = caller.functions([udf], [PickledFunction(caller.commands(udf))], _answer(node["output"]))
    name, schema = f"{_METHOD[udf['evalType']]}({udf['name']})", schema_of(columns)
    step = MapBySpark(name, functions, caller.seen(udf["children"]), schema)
    return Python((child,), columns, _calling(step, [udf], columns))


def evaluate(reader: Reader, node: Operator) -> Relation:
    """Scalar UDFs: their arguments by the engine, then their results beside the rows."""
    udfs, results = node["udfs"], node["resultAttrs"]
    if any(udf.cls != "PythonUDF" or udf["evalType"] not in _SCALARS for udf in udfs):
        raise Unsupported("this kind of Python function is not taken over")
    caller = _Caller.of(reader)
    child = reader.relation(node["child"])
    called = [caller.called(udf) for udf in udfs]
    columns = {**child.columns, **_columns(results)}
    functions = caller.functions(udfs, called, _answer(results))
    if functions.kind == PICKLED_ROWS:
        caller.check_pickled()
    step = EvaluateBySpark(
        f"udf({functions.name})", functions, caller.seen_arguments(), tuple(child.columns), schema_of(columns)
    )
    kept = {name: name for name in child.columns}
    return Python((caller.beside(child),), columns, _calling(step, udfs, columns, kept))


def _calling(
    step: MapBySpark | EvaluateBySpark, udfs: list[Expr], columns: Columns, kept: Columns | None = None
) -> Callable[[Steps, Rows], Rows]:
    """This step behind others; of functions that may give other rows when they run again, it says so."""

    def made(_: Steps, rows: Rows) -> Rows:
        config = StepConfig(deterministic=all(udf["udfDeterministic"] for udf in udfs))
        before = StreamEdge(_seen_all(rows).step())
        return Rows(StreamNode(step.name, ChainedStep(step, kept), step.schema, (before,), config=config), columns)

    return made


def _seen_all(rows: Rows) -> Rows:
    """The same, of which no row is left out before the function has seen it."""
    return rows if rows.query is None else replace(rows, origins={}, raises=True)


# --- functions of groups ----------------------------------------------------------------------------------------------------------


def map_groups(reader: Reader, node: Operator) -> Relation:
    """``applyInPandas``, ``applyInArrow``."""
    udf, keys = node["functionExpr"], node["groupingAttributes"]
    if udf.cls != "PythonUDF" or udf["evalType"] not in _GROUPS:
        raise Unsupported("this kind of Python function is not taken over")
    caller = _Caller.of(reader)
    child = reader.relation(node["child"])
    columns, offsets = _group_columns(reader, node["child"], len(keys))
    called = PickledFunction(caller.commands(udf), offsets)
    functions = caller.functions([udf], [called], _answer(node["output"]))
    out = _columns(node["output"])
    step = GroupsBySpark(
        f"{_METHOD[udf['evalType']]}({udf['name']})", functions, caller.seen(columns), _keys(keys), schema_of(out)
    )
    return _by_groups((child,), step, out, None)


def map_cogroups(reader: Reader, node: Operator) -> Relation:
    """``cogroup(...).applyInPandas``, ``.applyInArrow``."""
    udf = node["functionExpr"]
    if udf.cls != "PythonUDF" or udf["evalType"] not in _COGROUPS:
        raise Unsupported("this kind of Python function is not taken over")
    caller = _Caller.of(reader)
    sides = [(node["left"], node["leftGroupingLen"]), (node["right"], node["rightGroupingLen"])]
    inputs = tuple(reader.relation(side) for side, _ in sides)
    seen = [_group_columns(reader, side, n) for side, n in sides]
    keys = [reader.catalyst.output_of(side)[:n] for side, n in sides]
    if [checked(key.type) for key in keys[0]] != [checked(key.type) for key in keys[1]]:
        raise Unsupported("groups by keys of two types are not taken over")
    called = PickledFunction(caller.commands(udf), seen[0][1] + seen[1][1])
    functions = caller.functions([udf], [called], _answer(node["output"]))
    out = _columns(node["output"])
    step = CoGroupsBySpark(
        f"cogroup.{_METHOD[udf['evalType']]}({udf['name']})",
        functions,
        (caller.seen(seen[0][0]), caller.seen(seen[1][0])),
        (_keys(keys[0]), _keys(keys[1])),
        schema_of(out),
    )
    return _by_groups(inputs, step, out, None)


def aggregate(reader: Reader, node: Operator) -> Relation:
    """Aggregating UDFs; other aggregations are the engine's."""
    found = {same(part): part for item in node["aggregateExpressions"] for part in _calls(item, "AggregateExpression")}
    if not found:
        return operators.aggregate(reader, node)
    caller = _Caller.of(reader)
    child = reader.relation(node["child"])
    known: dict[Any, Expr] = {}
    kinds: Columns = {}
    new: dict[str, Expr] = {}
    for one in node["groupingExpressions"]:
        name, kind = one.id if one.cls == "AttributeReference" else reader.new_name(), checked(one.type)
        if kind in FLOATS:
            raise Unsupported("groups by floating-point numbers are Spark's")
        known[same(one)], kinds[name] = column(name, kind), kind
        if name not in child.columns:
            new[name] = one
    udfs = [_aggregating(part) for part in found.values()]
    results = {key: column(reader.new_name(), part.type) for key, part in found.items()}
    called = [caller.called(udf) for udf in udfs]
    answer = pa.schema([pa.field(one.id, arrow_type(one.type)) for one in results.values()])
    functions = caller.functions(udfs, called, answer)
    out = {**kinds, **{one.id: checked(one.type) for one in results.values()}}
    step = AggregateBySpark(
        f"aggregate({functions.name})", functions, caller.seen_arguments(), tuple(kinds), schema_of(out)
    )
    grouped = _by_groups((caller.beside(with_columns(child, new)),), step, out, tuple(kinds))
    known |= results
    return operators.projected(reader, grouped, _named(node["aggregateExpressions"], known))


def _named(items: list[Expr], known: dict[Any, Expr]) -> list[Expr]:
    """The items, with columns in the place of what is known by then, each under its own name."""
    found: list[Expr] = []
    for item in items:
        value = replaced(item["child"] if item.cls == "Alias" else item, lambda part: known.get(same(part)))
        found.append(Expr("Alias", {"child": value, "exprId": item["exprId"]}, item.type))
    return found


def window(reader: Reader, node: Operator) -> Relation:
    """Aggregating UDFs over whole partitions; other windows are the engine's."""
    calls = [part for item in node["windowExpressions"] for part in _calls(item, "WindowExpression")]
    if not calls:
        return operators.window(reader, node)
    items = [item["child"] for item in node["windowExpressions"]]
    if any(item.cls != "WindowExpression" for item in items) or len(calls) != len(items):
        raise Unsupported("Python functions beside others in a window are not taken over")
    frames = [item["windowSpec"]["frameSpecification"] for item in items]
    ends = {(frame["lower"].cls, frame["upper"].cls) for frame in frames if frame.cls == "SpecifiedWindowFrame"}
    if ends != {("UnboundedPreceding", "UnboundedFollowing")} or node["orderSpec"]:
        raise Unsupported("a Python function of a part of a window, or of one in an order, is not taken over")
    caller = _Caller.of(reader)
    child = reader.relation(node["child"])
    udfs = [_aggregating(item["windowFunction"]) for item in items]
    called = [caller.called(udf) for udf in udfs]
    answer = pa.schema([pa.field(item.id, arrow_type(item.type)) for item in node["windowExpressions"]])
    functions = caller.functions(udfs, called, answer, window=True)
    out = {**child.columns, **{item.id: checked(item.type) for item in node["windowExpressions"]}}
    keys = _keys(node["partitionSpec"])
    step = WindowBySpark(
        f"window({functions.name})", functions, caller.seen_arguments(), keys, schema_of(out), tuple(child.columns)
    )
    return _by_groups((caller.beside(child),), step, out, keys)


def _calls(node: Expr, cls: str) -> list[Expr]:
    """The expressions of a class that call a Python function."""
    return [part for part in walk(node) if part.cls == cls and any(inner.cls == "PythonUDAF" for inner in walk(part))]


def _aggregating(node: Expr) -> Expr:
    """The Python function of an aggregate."""
    if node.cls != "AggregateExpression" or node["isDistinct"] or node["filter"] is not None:
        raise Unsupported("this call of a Python function is not taken over")
    udf = node["aggregateFunction"]
    if udf.cls != "PythonUDAF" or udf["evalType"] not in _AGGREGATES or not udf["udfDeterministic"]:
        raise Unsupported("this kind of Python function is not taken over")
    return udf


def _group_columns(reader: Reader, child: Operator, n: int) -> tuple[list[Expr], tuple[int, ...]]:
    """The columns that a function of groups gets, and how PySpark is told which are keys: the first ``n`` of the child's."""
    output = reader.catalyst.output_of(child)
    keys, values = output[:n], output[n:]
    ids = [one.id for one in values]
    apart = [key for key in keys if key.id not in ids]
    columns = [*apart, *values]
    numbers = [one.id for one in columns]
    offsets = [*(numbers.index(key.id) for key in keys), *range(len(apart), len(columns))]
    return columns, (len(offsets) + 1, n, *offsets)


def _keys(nodes: list[Expr]) -> tuple[str, ...]:
    if any(node.cls != "AttributeReference" or checked(node.type) in FLOATS for node in nodes):
        raise Unsupported("groups by floating-point numbers, or by expressions, are Spark's")
    return tuple(dict.fromkeys(node.id for node in nodes))


def _by_groups(
    inputs: tuple[Relation, ...], step: _Grouped, columns: Columns, kept: tuple[str, ...] | None
) -> Relation:
    """A step on whole groups; without keys one subtask has all rows."""
    ship = ShipStrategy.HASH if step.keys[0] else ShipStrategy.GLOBAL

    def made(_: Steps, *rows: Rows) -> Rows:
        before = [_seen_all(one).step() for one in rows]
        edges = tuple(StreamEdge(one, ship, names) for one, names in zip(before, step.keys, strict=True))
        work = KeyedStep(step, step, step.keys, kept or None)
        return Rows(StreamNode(step.name, work, step.schema, edges), columns)

    return Python(inputs, columns, made)


# --- what all have in common ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Caller:
    """Functions of one operator on their way into a step. ``arguments``: each distinct argument, and its column."""

    reader: Reader
    known: PythonSettings
    arguments: dict[Any, tuple[str, Expr]]

    @classmethod
    def of(cls, reader: Reader) -> _Caller:
        return cls(reader, python_settings(reader.catalyst.session), {})

    def commands(self, udf: Expr) -> tuple[bytes, ...]:
        return (command_of(udf["func"], self.reader.catalyst.session),)

    def called(self, udf: Expr) -> PickledFunction:
        """The function with its arguments, which are columns of the engine; of one that is called on another, both."""
        inner = udf["children"]
        if len(inner) == 1 and inner[0].cls == "PythonUDF":
            first = self.called(inner[0])
            return replace(first, commands=(*first.commands, *self.commands(udf)))
        named: list[tuple[str, int]] = []
        numbers: list[int] = []
        for one in inner:
            if one.cls == "NamedArgumentExpression":
                named.append((one["key"], self._number(one["value"])))
            else:
                numbers.append(self._number(one))
        return PickledFunction(self.commands(udf), tuple(numbers), tuple(named))

    def _number(self, node: Expr) -> int:
        key = same(node)
        if key not in self.arguments:
            checked(node.type)
            self.arguments[key] = self.reader.new_name(), node
        return list(self.arguments).index(key)

    def check_pickled(self) -> None:
        """Raises Unsupported for arguments of which pickling would make something else than we do."""
        kinds = [checked(one.type) for _, one in self.arguments.values()]
        if any((decimal_of(kind) or (0, 0))[1] > _PLAIN_SCALE for kind in kinds):
            raise Unsupported(f"a Python function of decimals with more than {_PLAIN_SCALE} places is not taken over")
        if "binary" in kinds and self.known.settings.get("spark.sql.execution.pyspark.binaryAsBytes") != "true":
            raise Unsupported("a Python function of bytearrays is not taken over")

    def beside(self, child: Relation) -> Relation:
        """The rows with the arguments behind their own columns."""
        return with_columns(child, dict(self.arguments.values()))

    def seen_arguments(self) -> Seen:
        arguments = self.arguments.values()
        fields = [pa.field(f"_{i}", self._shown(checked(one.type))) for i, (_, one) in enumerate(arguments)]
        return Seen(tuple(name for name, _ in arguments), pa.schema(fields))

    def seen(self, attributes: list[Expr]) -> Seen:
        """These columns, under their names."""
        fields = [pa.field(one["name"], self._shown(checked(one.type)), one["nullable"]) for one in attributes]
        if not fields:
            raise Unsupported("a Python function of rows without columns is not taken over")
        return Seen(tuple(one.id for one in attributes), pa.schema(fields))

    def _shown(self, kind: str) -> pa.DataType:
        """The type in which a function sees a column."""
        wide = self.known.settings.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
        if kind == "timestamp":
            return pa.timestamp("us", self.known.settings["spark.sql.session.timeZone"])
        return (
            {"string": pa.large_string(), "binary": pa.large_binary()}.get(kind, arrow_type(kind))
            if wide
            else arrow_type(kind)
        )

    def functions(
        self, udfs: list[Expr], called: list[PickledFunction], gives: pa.Schema, *, window: bool = False
    ) -> SparkFunctions:
        """The functions ready to be called. Raises Unsupported for kinds that cannot be called together."""
        if len({udf["evalType"] for udf in udfs}) != 1:
            raise Unsupported("Python functions of several kinds at once are not taken over")
        kind, settings = udfs[0]["evalType"], dict(self.known.settings)
        if window:
            if kind not in _WINDOWS:
                raise Unsupported("this kind of Python function is not taken over in a window")
            kind, settings["window_bound_types"] = _WINDOWS[kind], ",".join(["unbounded"] * len(called))
        inner = [part["func"] for udf in udfs for part in walk(udf) if part.cls in ("PythonUDF", "PythonUDAF")]
        return SparkFunctions(
            ", ".join(udf["name"] for udf in udfs),
            kind,
            tuple(called),
            gives,
            settings,
            {"input_type": self._input_type()} if kind == _ROW_BY_ROW else {},
            struct_in=kind in _STRUCT_IN,
            struct_out=kind in _STRUCT_OUT,
            by_name=self.known.by_name and kind in (_PANDAS_MAP, _ARROW_MAP),
            max_rows=self.known.max_rows,
            max_bytes=self.known.max_bytes,
            broadcasts=broadcasts_of(inner, self.reader.catalyst.session),
        )

    def _input_type(self) -> str:
        """Spark's JSON of the arguments' types."""
        fields = [
            {"name": f"_{i}", "type": checked(one.type), "nullable": True, "metadata": {}}
            for i, (_, one) in enumerate(self.arguments.values())
        ]
        return json.dumps({"type": "struct", "fields": fields})


def _columns(attributes: list[Expr]) -> Columns:
    return {one.id: checked(one.type) for one in attributes}


def _answer(attributes: list[Expr]) -> pa.Schema:
    """The columns that a function is to give, under the names that were declared."""
    return pa.schema([pa.field(one["name"], arrow_type(one.type), one["nullable"]) for one in attributes])
