"""Expressions resolved without Spark beside Spark's analyser: the same classes, casts and types, with ANSI and without."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from firesteel.errors import UsageError
from firesteel.plan.analysis import Analysis, attribute, call, literal
from firesteel.plan.expr import Expr
from firesteel.plan.functions import FUNCTIONS
from firesteel.plan.types import said
from firesteel.sql.plans.catalyst import read_plan

pytestmark = [pytest.mark.spark, pytest.mark.full]

_OPTIMISER = """
BooleanSimplification CollapseProject ColumnPruning CombineConcats CombineFilters ConstantFolding ConstantPropagation ConvertToLocalRelation
EliminateSorts FoldablePropagation LikeSimplification NullPropagation OptimizeIn OptimizeUpdateFields PruneFilters PushFoldableIntoBranches
RemoveNoopOperators RemoveRedundantAliases ReorderAssociativeOperator ReplaceNullWithFalseInPredicate SimplifyBinaryComparison
SimplifyCaseConversionExpressions SimplifyCasts SimplifyConditionals SimplifyConditionalsInPredicate SimplifyDateTimeConversions
SimplifyExtractValueOps UnwrapCastInBinaryComparison
"""
"""Rules that would change what the analyser gave. Spark keeps those that put one function in the place of another."""
KINDS = {
    **{f"i{i}": kind for i, kind in enumerate(("byte", "short", "integer", "long"))},
    "f": "float", "x": "double", "s": "string", "d": "date", "t": "timestamp", "z": "timestamp_ntz", "o": "boolean", "y": "binary",
    **{f"m{p}_{s}": f"decimal({p},{s})" for p, s in ((1, 0), (3, 0), (5, 5), (9, 2), (10, 0), (19, 0), (20, 0), (20, 5), (38, 0), (38, 10), (38, 38))},
    "a": {"type": "array", "elementType": "integer", "containsNull": True},
    "w": {"type": "array", "elementType": "string", "containsNull": True},
}  # fmt: skip
CONSTANTS = [literal(None), literal(1), literal(-12), literal(1 << 40), literal(1.5), literal("2"), literal(True)]
PLAIN = [attribute(name) for name, kind in KINDS.items() if isinstance(kind, str)]
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "pmod",
    "div",
    "=",
    "<",
    "<=>",
    ">=",
    "coalesce",
    "greatest",
    "least",
    "when",
    "in",
    "nullif",
    "array",
]
NOT_IN_SQL = frozenset([
    "&", "|", "^", "~", "!", "==", "when", "in", "negate", "iff", "toDegrees", "toRadians", "bitwise_not", "bitwiseNOT", "encode", "decode", "base64", "pi", "e",
    "extract", "timestamp_add", "typeof", "regexp_substr",
])  # fmt: skip
"""Or of another class since Spark 4: encode, decode, base64; or folded: pi, e, typeof; or with a common expression: regexp_substr."""


def trees() -> list[Expr]:
    found = [call(name, *_arguments(name, pair)) for pair in itertools.product(PLAIN, PLAIN) for name in OPERATORS]
    found += [
        call(name, *_arguments(name, pair))
        for one, constant in itertools.product(PLAIN, CONSTANTS)
        for pair in ((one, constant), (constant, one))
        for name in OPERATORS
        if name != "nullif"  # which takes the least decimal for a constant elsewhere alone
    ]
    chosen = random.Random(7).sample(found, 1500)
    columns = [attribute(name) for name in KINDS]
    for name, function in FUNCTIONS.items():
        if name in OPERATORS or name in NOT_IN_SQL or any(one.function for one in function.parameters):
            continue
        wanted = [one for one in function.parameters if not one.several]
        for one in columns:
            if (name, one["name"]) == ("overlay", "y"):
                continue  # of texts and bytes, which the engine does not take either
            rest = [_fitting(other.name) for other in wanted[1:] if not other.default]
            first = [literal(_FIRST[wanted[0].name])] if wanted and wanted[0].name in _FIRST else []
            chosen.append(call(name, *first, one, *rest[len(first) :]))
    return chosen


_FIRST = {"sep": "-", "format": "-", "substr": "-", "field": "year", "sourceTz": "Europe/Vienna"}


def _arguments(name: str, pair: tuple[Expr, Expr]) -> list[Expr]:
    return [attribute("o"), *pair] if name == "when" else list(pair)


def _fitting(name: str) -> Expr:
    texts = {
        "pattern": "a",
        "regexp": "a",
        "delim": ",",
        "dayOfWeek": "MO",
        "format": "year",
        "pad": "x",
        "path": "$.a",
        "replacement": "b",
        "matching": "a",
        "tz": "Asia/Tokyo",
        "targetTz": "Asia/Tokyo",
    }
    if name in texts:
        return literal(texts[name])
    columns = {"right": "s", "search": "s", "replace": "s", "substr": "s", "prefix": "s", "suffix": "s", "str": "s", "date2": "t", "timestamp": "t",
               "start": "d", "end": "d", "col2": "i2", "col3": "i2", "month": "i2", "day": "i2"}  # fmt: skip
    return attribute(columns[name]) if name in columns else literal(256 if name == "numBits" else 1)


def sql(node: Expr) -> str:
    match node.cls:
        case "UnresolvedAttribute":
            return f"`{node['name']}`"
        case "Literal":
            value = node["value"]
            if node.type == "string":
                return f"'{value}'"
            return (
                "NULL"
                if value is None
                else f"{value}{ {'double': 'D', 'long': 'L'}.get(node.type, '') }".replace(" ", "")
            )
        case _:
            name, given = node["name"], [sql(one) for one in node["arguments"]]
    if name in ("+", "-", "*", "/", "%", "div", "=", "<", ">", "<=", "<=>", ">=", "and", "or", "like", "rlike"):
        return f"({given[0]} {name} {given[1]})"
    if name == "when":
        return f"CASE WHEN {given[0]} THEN {given[1]} ELSE {given[2]} END"
    if name == "in":
        return f"({given[0]} IN ({given[1]}))"
    if name == "log" and len(given) == 1:
        return f"ln({given[0]})"  # as PySpark writes it
    return (
        f"({name} {given[0]})"
        if name == "not"
        else f"{ {'create_map': 'map'}.get(name, name) }({', '.join(given)})".replace("( ", "(")
    )


def shape(value: Any) -> Any:
    """What is compared of a tree."""
    if isinstance(value, list):
        return [shape(one) for one in value]
    if isinstance(value, dict):
        return {
            k: True if k in ("nullable", "containsNull", "valueContainsNull") else shape(v) for k, v in value.items()
        }
    if not isinstance(value, Expr):
        return value
    if value.cls == "AttributeReference":
        return value.get("name") or value["exprId"]
    if value.cls == "NamedLambdaVariable":
        return (value.cls, shape(value.type))
    if value.cls == "Cast" and shape(value["child"]) == ("Literal", "void", None):
        return ("Literal", value.type, None)
    if value.cls == "Literal":
        known = value["value"]
        return ("Literal", value.type, float(known) if value.type == "double" and known is not None else known)
    if value.cls == "Cast" and value.type == value["child"].type:  # Spark leaves some of these in
        return shape(value["child"])
    fields = {name: shape(field) for name, field in value.fields.items() if name not in ("dataType", "name")}
    if value.cls == "Mask" and fields["otherChar"] is None:  # Spark says this as a null of its own
        fields["otherChar"] = ("Literal", "string", None)
    return (value.cls, shape(value.type), fields)


def of_spark(frame: Any, texts: list[str]) -> list[Any]:
    """The tree of each; in the place of one that Spark refuses, None."""
    try:
        root = read_plan(frame.selectExpr(*(f"{text} AS v{i}" for i, text in enumerate(texts)))).root
        return [one["child"] for one in root["projectList"]]
    except Exception:
        if len(texts) == 1:
            return [None]
        middle = len(texts) // 2
        return of_spark(frame, texts[:middle]) + of_spark(frame, texts[middle:])


@pytest.mark.parametrize("ansi", [True, False])
def test_trees_are_those_of_sparks_analyser(spark, ansi):
    rules = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in _OPTIMISER.split())
    settings = {"spark.sql.optimizer.excludedRules": rules, "spark.sql.ansi.enabled": str(ansi).lower()}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = spark.createDataFrame([], ", ".join(f"{name} {_ddl(kind)}" for name, kind in KINDS.items()))
        zone = spark.conf.get("spark.sql.session.timeZone")
        analysis = Analysis(lambda name: Expr("AttributeReference", {"exprId": name}, KINDS[name]), ansi, zone)
        ours: dict[str, Expr | None] = {}
        for tree in trees():
            try:
                ours[sql(tree)] = analysis.resolved(tree)
            except UsageError:
                ours[sql(tree)] = None
        taken = [text for text, tree in ours.items() if tree is not None]
        theirs = dict(zip(taken, of_spark(frame, taken), strict=True))
        refused = [text for text, tree in ours.items() if tree is None]
        refused = [text for text in refused if not text.startswith("try_")]  # of texts: left to Spark
        if not ansi:  # then Spark has booleans equal to numbers, which is left to it
            refused = [text for text in refused if "`o`" not in text and "True" not in text]
        answered = [text for text in refused[::10] if of_spark(frame, [text])[0] is not None]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value) if value is not None else spark.conf.unset(name)
    wrong = [
        f"{text}\n  ours   {shape(ours[text])}\n  Spark's {shape(theirs[text])}"
        for text in taken
        if theirs[text] is None or shape(ours[text]) != shape(theirs[text])
    ]
    assert not wrong, f"{len(wrong)} of {len(taken)}\n" + "\n".join(wrong[:40])
    assert len(taken) > 1500
    assert not answered, f"{len(answered)} of {len(refused) // 10}\n" + "\n".join(answered[:100])


def _ddl(kind: Any) -> str:
    return f"array<{said(kind['elementType'])}>" if isinstance(kind, dict) else said(kind)
