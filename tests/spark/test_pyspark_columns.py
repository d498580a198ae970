"""PySpark's Columns and set operations beside Firesteel's: the same rows and names, or a sentence."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from tests.operators_support import rows

from firesteel import ExecutionEnvironment, agg, col, window
from firesteel import functions as ours
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.errors import UsageError
from graph_kit import run_local

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "k": pa.array(["a", "a", "b", None, "b", "c"]),
        "n": pa.array([1, 2, None, 4, 4, -7], pa.int64()),
        "m": pa.array([1, None, 3, None, 5, 6], pa.int32()),
        "x": pa.array([0.5, math.nan, None, -0.0, 2.0, 0.0]),
        "flag": pa.array([True, False, None, True, None, False]),
    }
)
SAME = {
    "filter, compared": lambda s: s.filter(F.col("n") > 1),
    "filter, both columns": lambda s: s.filter(F.col("n") >= F.col("m")),
    "filter, not equal": lambda s: s.filter(F.col("k") != "a"),
    "filter, not in": lambda s: s.filter(~F.col("n").isin(1, 4)),
    "filter, and or": lambda s: s.filter((F.col("n") > 1) & F.col("m").isNull() | ~F.col("flag")),
    "filter, in nothing": lambda s: s.filter(~F.col("n").isin([])),
    "filter, not in names": lambda s: s.filter(~F.col("k").isin("a", "z") & ~F.col("flag").isin(True)),
    "filter, arithmetic": lambda s: s.filter((F.col("n") + 1) * 2 > 5 - F.col("m")),
    "filter, NaN": lambda s: s.filter(F.col("x") > 1),
    "filter, texts": lambda s: s.filter(F.col("k").like("a%") | F.col("k").rlike("^b") | F.col("k").startswith("c")),
    "filter, null safe": lambda s: s.filter(F.col("n").eqNullSafe(F.lit(None)) | (F.length("k") < 0)),
    "computed": lambda s: s.select(
        F.when(F.col("n") > 1, "big").when(F.col("m") == 3, "three").otherwise(None).alias("w"),
        F.when(F.col("n") != 0, F.col("m") / F.col("n")).alias("q"),
        F.coalesce("n", F.lit(0)).alias("c"),
        (-F.col("m") % 3).alias("r"),
        F.substring(F.concat("k", F.lit("xyz")), 2, 2).alias("s"),
        F.greatest("n", "m", "x").alias("g"),
    ),
    "filter, a constant": lambda s: s.filter(F.lit(True) & (F.col("m") > 1)),
    "constants": lambda s: (
        s.withColumn("i", F.lit(7))
        .withColumn("j", F.lit(1 << 40))
        .select("*", F.lit("t").alias("s"), F.lit(False).alias("f"))
    ),
    "filter, between": lambda s: s.where(F.col("n").between(1, 3) & F.col("k").isNotNull()),
    "select": lambda s: s.select(F.col("k"), F.col("n").alias("z"), (F.col("n") > F.lit(1)).alias("more"), "m"),
    "withColumn": lambda s: s.withColumn("q", F.col("n") < 2).withColumn("r", F.col("x")),
    "named by a Column": lambda s: s.withColumnRenamed("n", "z").dropna(subset=["z"]),
    "drop": lambda s: s.drop(F.col("n"), F.col("x")),
    "sum": lambda s: s.groupBy("k").agg(F.sum("n")),
    "several": lambda s: s.groupBy(F.col("k")).agg(
        F.sum("m").alias("t"), F.avg("n"), F.min("x"), F.max("x"), F.count("*"), F.count("m"), F.countDistinct("n")
    ),
    "of all": lambda s: s.agg(F.sum("x"), F.count(F.lit(1)).alias("rows"), F.count(F.lit(True)), F.count(F.lit(5))),
}


@pytest.fixture
def stream():
    return ExecutionEnvironment().from_arrow(TABLE)


def answer(stream):
    job = compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "columns")
    with tempfile.TemporaryDirectory() as directory:
        return run_local(job, Path(directory))[0]


@pytest.mark.full
@pytest.mark.parametrize("build", SAME.values(), ids=SAME)
def test_what_is_translated_gives_sparks_rows(spark, stream, build):
    theirs, found = build(spark.createDataFrame(TABLE)).toArrow(), answer(build(stream))
    assert found.column_names == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert rows(found) == rows(theirs)


def test_directions_of_a_sort(spark, stream):
    def build(s):
        return s.orderBy(F.col("n").desc(), F.col("k").asc(), F.col("m"))

    theirs = build(spark.createDataFrame(TABLE)).toArrow()
    job = build(stream)._pipeline.node.work.operator.order
    assert [(c.name, c.ascending) for c in job.columns] == [("n", False), ("k", True), ("m", True)]
    assert theirs["n"].to_pylist() == [4, 4, 2, 1, -7, None]


ANALYSED = {
    "upper": lambda s: s.withColumn("u", F.upper(F.concat("k", F.lit("é")))),
    "casts": lambda s: s.withColumn("i", F.lit("Infinity").cast("double") * F.col("n")),
    "arithmetic": lambda s: s.filter(F.col("n") + 1 > 2),
    "NaN": lambda s: s.filter(F.col("x") > 1),
    "SQL text": lambda s: s.filter(F.expr("n > 1 OR k = '{a}'")),
    "null safe": lambda s: s.filter(F.col("n").eqNullSafe(None)),
    "no name": lambda s: s.select(F.col("n") > 1, F.upper("k"), "m"),
    "a name alone": lambda s: s.select(F.expr("n % 3")),
    "when": lambda s: s.withColumn("size", F.when(F.col("n") > 1, "big").otherwise("small")),
    "two of them": lambda s: s.withColumns({"n": F.col("n") * 2, "o": F.col("n") % 3, "p": F.concat_ws("-", "k", "m")}),
    "a plain one beside": lambda s: s.withColumns({"p": F.col("x"), "k": F.lower("k")}),
    "text that is SQL": lambda s: (s.select if hasattr(s, "key_by") else s.selectExpr)("k", "n + 1 AS o", "upper(k) AS u"),
    "a window": lambda s: s.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy("n", "m"))),
    "exploded": lambda s: s.select("k", F.explode(F.array("n", F.col("m").cast("bigint"))).alias("e")),
    "all at once": lambda s: s.select(F.sum("n").alias("s"), F.max("x").alias("x")),
    "an aggregate of an expression": lambda s: s.groupBy("k").agg(F.sum(F.col("n") + 1).alias("s"), F.max("m")),
    "distinct sum": lambda s: s.agg(F.sum_distinct("n")),
    "others": lambda s: s.groupBy("k").agg(F.stddev("n").alias("d"), F.count_if(F.col("m") > 1).alias("c")),
    "of no key": lambda s: s.agg(F.sum(F.col("n") * 2), F.sort_array(F.collect_set("k")).alias("l")),
    "two types": lambda s: s.filter(F.col("m") == "5"),
    "a name with a dot": lambda s: s.withColumnRenamed("n", "n.n").withColumn("k", F.upper("k")),
    "another's filter behind it": lambda s: s.withColumn("u", F.upper("k")).filter(F.col("n") > 1).select("u"),
}  # fmt: skip
"""What Spark's analyser and our own tasks, or Spark, work out."""


@pytest.mark.parametrize(
    "build",
    [pytest.param(b, id=name, marks=() if name in ("when", "distinct sum") else pytest.mark.full) for name, b in ANALYSED.items()],
)  # fmt: skip
def test_any_other_column_has_sparks_meaning(spark, env, build):
    theirs, found = build(spark.createDataFrame(TABLE)).toArrow(), build(env.from_arrow(TABLE))
    assert found.columns == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert rows(found.to_arrow()) == rows(theirs)


@pytest.mark.full
def test_without_ansi_mode_nothing_is_an_error(spark, env):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        found = env.from_arrow(TABLE).select("n", (F.col("n") / 0).alias("q"), (F.col("m") * (1 << 30) * 8).alias("p"))
        theirs = spark.createDataFrame(TABLE).select(
            "n", (F.col("n") / 0).alias("q"), (F.col("m") * (1 << 30) * 8).alias("p")
        )
        assert rows(found.to_arrow()) == rows(theirs.toArrow())
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


REFUSED = {
    "no plain key": (lambda s: s.groupBy(F.upper("k")).count(), r"The PySpark column Column<'.*'> cannot.*Make it a column"),
    "last nulls": (lambda s: s.orderBy(F.col("n").asc_nulls_last()), r"The PySpark column Column<'.*'> "),
    "no condition": (lambda s: s.filter(F.upper("k")), "Spark does not take this: .*DATATYPE_MISMATCH"),
    "no aggregate": (lambda s: s.groupBy("k").agg(F.col("n")), "Spark does not take this: "),
    "not there": (lambda s: s.select(F.upper("kk").alias("u")), "Spark does not take this: .*UNRESOLVED_COLUMN"),
    "no struct": (lambda s: s.select(F.col("n.a").alias("a")), "Spark does not take this: "),
    "another's column": (lambda s: s.select(F.upper(OTHER[0]["k"]).alias("u")), "Spark does not take this: "),
    "an aggregate beside ours": (lambda s: s.select(F.sum("n"), o=col("n") + 1), "Spark does not take this: .*MISSING_GROUP_BY"),
    "ours is not there": (lambda s: s.select(F.upper("k"), o=col("nn") + 1), "There is no column 'nn'"),
    "one name twice": (lambda s: s.select(F.upper("k").alias("o"), o=col("n") + 1), "The column name 'o' is given twice"),
    "aggregates of one name": (lambda s: s.agg(F.count_if("flag").alias("c"), c=agg.count()), "The column name 'c' is given twice"),
}  # fmt: skip
OTHER: list = []


MIXED = {
    "select": (
        lambda s: s.select("k", F.upper("k"), ours.col("n").alias("z"), "m", o=ours.col("n") * 2, p=F.concat_ws("-", "k", "m")),
        lambda s: s.select("k", F.upper("k"), F.col("n").alias("z"), "m", (F.col("n") * 2).alias("o"), F.concat_ws("-", "k", "m").alias("p")),
    ),
    "all and more": (
        lambda s: s.select("*", F.struct("*").alias("row"), o=ours.col("n") + 1),
        lambda s: s.select("*", F.struct("*").alias("row"), (F.col("n") + 1).alias("o")),
    ),
    "SQL text": (
        lambda s: s.select("upper(k) AS u", "x", o=pc.is_null(pc.field("n"))),
        lambda s: s.selectExpr("upper(k) AS u", "x", "n IS NULL AS o"),
    ),
    "with_columns": (
        lambda s: s.with_columns({"n": F.upper("k"), "o": ours.col("n") % 3, "k": ours.coalesce("k", ours.lit("none"))}),
        lambda s: s.withColumns({"n": F.upper("k"), "o": F.col("n") % 3, "k": F.coalesce("k", F.lit("none"))}),
    ),
    "several columns of one": (
        lambda s: s.select(F.posexplode(F.array("n", F.lit(7))), "k", o=ours.col("m") + 1),
        lambda s: s.select(F.posexplode(F.array("n", F.lit(7))), "k", (F.col("m") + 1).alias("o")),
    ),
    "a window": (
        lambda s: s.with_columns({"r": F.row_number().over(Window.partitionBy("k").orderBy("n", "m")), "o": ours.col("n") + 1}),
        lambda s: s.withColumns({"r": F.row_number().over(Window.partitionBy("k").orderBy("n", "m")), "o": F.col("n") + 1}),
    ),
    "a hidden name": (
        lambda s: s.withColumnRenamed("n", "__spark0").select(F.upper("k").alias("u"), o=ours.col("__spark0") + 1),
        lambda s: s.select(F.upper("k").alias("u"), (F.col("n") + 1).alias("o")),
    ),
    "aggregates": (
        lambda s: s.groupBy("k").agg({"n": "sum"}, F.count_if(F.col("m") > 1).alias("c"), most=agg.max("x"), d=F.sum_distinct("m")),
        lambda s: s.groupBy("k").agg(F.sum("n"), F.count_if(F.col("m") > 1).alias("c"), F.max("x").alias("most"), F.sum_distinct("m").alias("d")),
    ),
    "by a float": (
        lambda s: s.groupBy("x", "flag").agg(F.count_if("flag"), rows=agg.count()),
        lambda s: s.groupBy("x", "flag").agg(F.count_if("flag"), F.count("*").alias("rows")),
    ),
    "of no key": (
        lambda s: s.agg(F.sum_distinct("n").alias("d"), {"m": ["min", "max"]}),
        lambda s: s.agg(F.sum_distinct("n").alias("d"), F.min("m").alias("m_min"), F.max("m").alias("m_max")),
    ),
    "of no rows": (
        lambda s: s.filter("n > 100").agg(F.sum_distinct("n").alias("d"), rows=agg.count()),
        lambda s: s.filter("n > 100").agg(F.sum_distinct("n").alias("d"), F.count("*").alias("rows")),
    ),
    "rollup": (
        lambda s: s.rollup("k", "flag").agg(F.count_if(F.col("m") > 1).alias("c"), t=agg.sum("n")),
        lambda s: s.rollup("k", "flag").agg(F.count_if(F.col("m") > 1).alias("c"), F.sum("n").alias("t")),
    ),
    "cube, numbered": (
        lambda s: s.cube("k", "flag", grouping_id="g").agg(F.count_if(F.col("m") > 1).alias("c"), t=agg.sum("n")),
        lambda s: s.cube("k", "flag").agg(F.grouping_id().alias("g"), F.count_if(F.col("m") > 1).alias("c"), F.sum("n").alias("t")),
    ),
    "pivot": (
        lambda s: s.groupBy("flag").pivot("k", ["a", "b"]).agg(F.count_if(F.col("m") > 1).alias("c"), t=agg.sum("n")),
        lambda s: s.groupBy("flag").pivot("k", ["a", "b"]).agg(F.count_if(F.col("m") > 1).alias("c"), F.sum("n").alias("t")),
    ),
    "rollup by Spark": (
        lambda s: s.rollup("k", "flag").agg(F.sum(F.col("n") * 2).alias("t"), F.grouping("k").alias("g")),
        lambda s: s.rollup("k", "flag").agg(F.sum(F.col("n") * 2).alias("t"), F.grouping("k").alias("g")),
    ),
    "sets by Spark": (
        lambda s: s.grouping_sets(("k", "flag"), "flag", ()).agg(F.sum(F.col("n") * 2).alias("t")),
        lambda s: s.groupingSets([["k", "flag"], ["flag"], []], "k", "flag").agg(F.sum(F.col("n") * 2).alias("t")),
    ),
    "pivot by Spark": (
        lambda s: s.groupBy("flag").pivot("k", ["a", "b"]).agg(F.sum(F.col("n") * 2).alias("t")),
        lambda s: s.groupBy("flag").pivot("k", ["a", "b"]).agg(F.sum(F.col("n") * 2).alias("t")),
    ),
}  # fmt: skip
"""Ours beside Columns that only Spark can work out, and the same of Spark alone."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("select", "aggregates") else pytest.mark.full) for n in MIXED],
)
def test_both_kinds_stand_in_one_step(spark, env, name):
    build, by_spark = MIXED[name]
    theirs, found = by_spark(spark.createDataFrame(TABLE)).toArrow(), build(env.from_arrow(TABLE))
    assert found.columns == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert rows(found.to_arrow()) == rows(theirs)


@pytest.mark.full
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_said_as_the_step_is_made(spark, env, name):
    OTHER[:] = [spark.createDataFrame(TABLE)]
    build, said = REFUSED[name]
    with pytest.raises(UsageError, match=rf"(?s)In step '\w+' at test_pyspark_columns.py:\d+: {said}"):
        build(env.from_arrow(TABLE))


def test_columns_where_pyspark_wants_names(spark, stream):
    assert stream.dropna(subset=[F.col("n")]).columns == stream.fillna(0, subset=F.col("n")).columns == stream.columns
    assert stream.withColumnRenamed(F.col("n"), "z").columns == ["k", "z", "m", "x", "flag"]
    assert stream.describe(F.col("n")).columns == ["summary", "n"]
    descending = stream.key_by("k").window(order_by=F.col("n").desc(), row=window.row_number())
    by_name = stream.key_by("k").window(order_by=[("n", False)], row=window.row_number())
    assert rows(answer(descending)) == rows(answer(by_name))
    with pytest.raises(UsageError, match="The name of a column is a string, not Column<'n'>"):
        stream.withColumn(F.col("n"), F.col("m"))


@pytest.mark.full
def test_a_condition_that_is_nested_too_deeply(spark, stream):
    deep = F.col("n") == 0
    for i in range(1, 700):
        deep = deep | (F.col("n") == i)
    with pytest.raises(UsageError, match=r"Spark does not take this|it is nested too deeply"):
        stream.filter(deep)


@pytest.mark.full
def test_a_column_that_is_not_there(spark, stream):
    with pytest.raises(UsageError, match=r"There is no column 'nn' for select\. Did you mean 'n'"):
        stream.select(F.col("nn"))
    with pytest.raises(UsageError, match=r"There is no column 'nn' for aggregate\. Did you mean 'n'"):
        stream.agg(F.sum("nn"))
    with pytest.raises(UsageError, match=r"There is no column 'N' for drop\. Did you mean 'n'"):
        stream.drop(F.col("N"))


A = pa.table({"n": pa.array([1, 1, 2, None]), "x": pa.array([0.0, -0.0, math.nan, None])})
B = pa.table({"n": pa.array([1, None, 2]), "x": pa.array([-0.0, None, math.nan])})


@pytest.mark.full
@pytest.mark.parametrize(
    "step", ["subtract", "exceptAll", "intersect", "intersectAll", "union", "unionAll", "unionByName"]
)
@pytest.mark.parametrize("columns", [["n"], ["n", "x"], ["x"]])
def test_set_operations_are_sparks(spark, step, columns):
    env = ExecutionEnvironment()
    for left, right in ((A, B), (B, A), (A, A), (A.slice(0, 0), B)):
        one, other = left.select(columns), right.select(columns)
        theirs = getattr(spark.createDataFrame(one), step)(spark.createDataFrame(other)).toArrow()
        found = answer(getattr(env.from_arrow(one), step)(env.from_arrow(other)))
        assert rows(found) == rows(theirs)


def test_the_issues_rows(spark):
    env = ExecutionEnvironment()
    a, b = (env.from_arrow(pa.table({"n": pa.array(v)})) for v in ([1, 1, 2, None], [1, None]))
    assert answer(a.subtract(b))["n"].to_pylist() == [2]
    assert sorted(answer(a.exceptAll(b))["n"].to_pylist()) == [1, 2]
    assert sorted(answer(a.intersect(b))["n"].to_pylist(), key=str) == [1, None]


def test_a_filter_needs_types_in_spark_of_the_columns_that_it_uses_only(spark, env):
    table = pa.table(
        {
            "s": ["abc", "xyz", "xbc"],
            "n": [1, 2, 3],
            "u": pa.array([0, None, 2**64 - 1], pa.uint64()),
            "b": pa.array([1, 255, None], pa.uint8()),
            "l": pa.array([[1], [2**32 - 1], None], pa.list_(pa.uint32())),
        }
    )
    stream = env.from_arrow(table)
    wanted = table.slice(1).to_pylist()
    for condition in ("n > 1", "levenshtein(s, 'abc') >= n - 2 AND n <> 1", F.levenshtein("s", F.lit("abc")) > 0):
        kept = stream.filter(condition)
        assert kept.schema.types == table.schema.types
        assert sorted(kept.to_arrow().to_pylist(), key=lambda row: row["n"]) == wanted
    for used in ("u > 1", "hash(*) > 0", "n > `B`"):
        with pytest.raises(UsageError, match="Spark has no type for column"):
            stream.filter(used)
