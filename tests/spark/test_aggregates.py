"""Aggregates, grouping sets, pivots and exploded rows beside PySpark's: the same values, and the same types but where the guide says so."""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.operators_support import value

from firesteel import ExecutionEnvironment, agg, col
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.errors import UsageError
from graph_kit import run_local

pytestmark = [pytest.mark.spark, pytest.mark.full]

random = np.random.default_rng(22)
N = 400


def drawn(values, n=N):
    return [values[place] for place in random.integers(0, len(values), n)]


TABLE = pa.table(
    {
        "k": pa.array(drawn(["a", "b", "c", None, "only nulls"])),
        "g": pa.array(drawn([1, 2, None]), pa.int32()),
        "n": pa.array(drawn([None, 1, 2, 3, -7, 2**40]), pa.int64()),
        "i": pa.array(drawn([None, 5, -6, 127]), pa.int8()),
        "x": pa.array([None if v < -1.5 else v for v in random.normal(size=N).tolist()]),
        "f": pa.array(drawn([None, 0.0, -0.0, math.nan, math.inf, 1.5])),
        "e": pa.array(drawn([None, 1.25, 3.5]), pa.float32()),
        "d": pa.array(drawn([None, Decimal("1.50"), Decimal("-99.25")]), pa.decimal128(12, 2)),
        "s": pa.array(drawn(["", "b", "abc", None])),
        "b": pa.array(drawn([True, False, None])),
        "t": pa.array(range(N), pa.int64()),
    }
)
TABLE = TABLE.append_column(
    "only", pa.array([v if k != "only nulls" else None for k, v in zip(TABLE["k"].to_pylist(), range(N), strict=True)])
)

NUMBERS = ("n", "i", "x", "f", "e", "d", "only")


def same():
    """Ours and theirs; made where Spark runs."""
    of_one = {
        name: (lambda c, name=name: getattr(agg, name)(c), lambda c, name=name: getattr(F, name)(c))
        for name in ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "median")
    }
    return {
        **{f"{name}({c})": (ours(c), theirs(c)) for name, (ours, theirs) in of_one.items() for c in NUMBERS},
        **{
            f"percentile({c})": (agg.percentile(c, [0, 0.3, 0.99, 1]), F.percentile(c, [0.0, 0.3, 0.99, 1.0]))
            for c in NUMBERS
        },
        **{
            f"{name}({c}, n)": (getattr(agg, name)(c, "n"), getattr(F, name)(c, "n"))
            for name in ("covar_samp", "covar_pop", "corr")
            for c in ("x", "e", "d", "only")
        },
        **{
            f"{name}({c})": (getattr(agg, name)(c), getattr(F, name)(c))
            for name in ("bit_and", "bit_or", "bit_xor")
            for c in ("n", "i", "only")
        },
        "bool_and": (agg.bool_and("b"), F.bool_and("b")),
        "bool_or": (agg.bool_or("b"), F.bool_or("b")),
        "collect_list": (agg.collect_list("n"), F.sort_array(F.collect_list("n"))),
        "collect_set": (agg.collect_set("s", sort=True), F.sort_array(F.collect_set("s"))),
        "collect_set of int": (agg.collect_set("i", sort=True), F.sort_array(F.collect_set("i"))),
        "max_by": (agg.max_by("s", "t"), F.max_by("s", "t")),
        "min_by": (agg.min_by("n", "only"), F.min_by("n", "only")),
        "max_by of NaN": (agg.max_by("f", "f"), F.max_by("f", "f")),
        "mode": (agg.mode("i"), F.mode("i", True)),
        "first": (agg.first("s", order_by="t"), F.min_by("s", "t")),
        "last": (agg.last("x", order_by="t"), F.max_by("x", "t")),
        "count_if": (agg.count_if(col("n") > 1), F.count_if(F.col("n") > 1)),
        "filtered": (
            agg.sum("n").where(col("s") == "b"),
            F.expr("sum(n) filter (where s = 'b')"),
        ),
        "an expression": (agg.sum(col("n") + col("t")), F.sum(F.col("n") + F.col("t"))),
        "several distinct": (agg.count_distinct("f"), F.count_distinct("f")),
        "few distinct": (agg.approx_count_distinct("s"), F.approx_count_distinct("s")),
    }


@pytest.fixture
def stream():
    return ExecutionEnvironment().from_arrow(TABLE)


def answer(stream):
    job = compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "aggregates")
    with tempfile.TemporaryDirectory() as directory:
        return run_local(job, Path(directory), memory=1 << 30)[0]


def alike(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) and isinstance(b, float) and not (math.isnan(a) or math.isnan(b)):
        return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return value(a) == value(b)


def check(found, theirs, keys):
    assert found.column_names == theirs.column_names

    def by_key(table):
        return {tuple(value(row[key]) for key in keys): row for row in table.to_pylist()}

    got, want = by_key(found), by_key(theirs)
    assert got.keys() == want.keys()
    assert found.num_rows == theirs.num_rows == len(got)
    wrong = [
        (key, name, got[key][name], row[name])
        for key, row in want.items()
        for name in row
        if not alike(got[key][name], row[name])
    ]
    assert not wrong


@pytest.mark.parametrize("keys", [("k",), ()])
def test_aggregates(spark, stream, keys):
    both = same()
    ours = {name: one for name, (one, _) in both.items()}
    found = answer((stream.key_by(*keys) if keys else stream).aggregate(ours))
    theirs = spark.createDataFrame(TABLE).groupBy(*keys).agg(*[other.alias(n) for n, (_, other) in both.items()])
    theirs = theirs.toArrow()
    listed = pa.table([pa.array([sorted(v) for v in found["collect_list"].to_pylist()], pa.list_(pa.int64()))], ["v"])
    found = found.set_column(found.schema.get_field_index("collect_list"), "collect_list", listed["v"])
    check(found, theirs, keys)
    assert list(map(said, found.schema.types)) == list(map(said, theirs.schema.types))


def said(type_):
    """Without the names of lists' elements, and whether these can be null."""
    return f"list of {type_.value_type}" if pa.types.is_list(type_) else str(type_)


def test_of_no_rows(spark, stream):
    both = same()
    ours = {name: one for name, (one, _) in both.items()}
    theirs = spark.createDataFrame(TABLE).where("t < 0").agg(*[other.alias(n) for n, (_, other) in both.items()])
    check(answer(stream.filter(col("t") < 0).aggregate(ours)), theirs.toArrow(), ())
    assert answer(stream.filter(col("t") < 0).key_by("k").aggregate(ours)).num_rows == 0


def test_columns_of_pyspark(spark, stream):
    translated = [
        F.stddev("n"), F.variance("x"), F.var_pop("e"), F.corr("x", "n"), F.covar_samp("x", "n").alias("c"), F.median("i"),
        F.percentile("x", 0.5).alias("p"), F.max_by("s", "t"), F.min_by("s", "t"), F.bool_and("b"), F.some("b"),
        F.bit_xor("n"), F.approx_count_distinct("s"), F.mode("i", True).alias("m"), F.count_distinct("x"),
    ]  # fmt: skip
    theirs = spark.createDataFrame(TABLE).groupBy("k").agg(*translated).toArrow()
    check(answer(stream.groupBy("k").agg(*translated)), theirs, ("k",))


def test_conditions_in_sql(spark, stream):
    """Of a key, of all rows, behind groups; equal texts are computed once."""
    frame = spark.createDataFrame(TABLE)
    some, few = "n > 1 AND s LIKE 'a%'", "x IS NULL"
    ours = {"some": agg.count().where(some), "total": agg.sum("n").where(some), "few": agg.count_if(few)}
    theirs = [
        F.expr(f"count_if({some}) AS some"),
        F.expr(f"sum(n) FILTER (WHERE {some}) AS total"),
        F.expr(f"count_if({few}) AS few"),
    ]
    check(answer(stream.key_by("k").aggregate(ours)), frame.groupBy("k").agg(*theirs).toArrow(), ("k",))
    check(answer(stream.aggregate(**ours)), frame.agg(*theirs).toArrow(), ())
    found = answer(stream.rollup("k", "g", grouping_id="id").agg(agg.sum("n").where(some).alias("total")))
    wanted = frame.rollup("k", "g").agg(F.grouping_id().alias("id"), theirs[1]).toArrow()
    check(found, wanted, ("k", "g", "id"))
    found = answer(stream.key_by("k").pivot("s", values=["abc"]).agg(total=agg.sum("n").where(some)))
    wanted = frame.groupBy("k").pivot("s", ["abc"]).agg(theirs[1]).toArrow()
    check(found, wanted, ("k",))
    mixed = (F.sum(F.expr("n * 2")).alias("twice"), ours)
    check(answer(stream.key_by("k").agg(*mixed)), frame.groupBy("k").agg(mixed[0], *theirs).toArrow(), ("k",))
    found = answer(stream.rollup("k", "g", grouping_id="id").agg(*mixed))
    wanted = frame.rollup("k", "g").agg(F.grouping_id().alias("id"), mixed[0], *theirs).toArrow()
    check(found, wanted, ("k", "g", "id"))
    with pytest.raises(UsageError, match=r"A filter must be true or false, but 'n [+] 1' is int64"):
        stream.aggregate(x=agg.count().where("n + 1"))
    with pytest.raises(UsageError, match="Spark does not take this"):
        stream.aggregate(x=agg.count().where("n >"))


SETS = {
    "rollup": (
        lambda s: s.rollup("k", "g", grouping_id="id"),
        lambda d: d.rollup("k", "g"),
    ),
    "cube": (lambda s: s.cube("k", "g", grouping_id="id"), lambda d: d.cube("k", "g")),
    "sets": (
        lambda s: s.grouping_sets(("k", "g"), "g", (), grouping_id="id"),
        lambda d: d.groupingSets([["k", "g"], ["g"], []], "k", "g"),
    ),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("rows", ["", "t < 0"])
def test_grouping_sets(spark, stream, name, rows):
    ours, theirs = SETS[name]
    frame = spark.createDataFrame(TABLE)
    stream, frame = (stream.filter(col("t") < 0), frame.where(rows)) if rows else (stream, frame)
    found = answer(ours(stream).agg(total=agg.sum("n"), rows=agg.count(), top=agg.max("k"), m=agg.median("x")))
    want = theirs(frame).agg(
        F.grouping_id().alias("id"), F.sum("n").alias("total"), F.count("*").alias("rows"), F.max("k").alias("top"), F.median("x").alias("m"),
    )  # fmt: skip
    check(found, want.toArrow(), ("k", "g", "id"))


def test_pivot(spark, stream):
    frame = spark.createDataFrame(TABLE)
    values = ["b", "abc", "nowhere"]
    one = frame.groupBy("k").pivot("s", values).agg(F.sum("n")).toArrow()
    check(answer(stream.key_by("k").pivot("s", values).agg({"n": "sum"})), one, ("k",))
    many = frame.groupBy("k").pivot("g", [1, 7]).agg(F.count("n").alias("c"), F.max("s").alias("s")).toArrow()
    check(answer(stream.key_by("k").pivot("g", [1, 7]).agg(c=agg.count("n"), s=agg.max("s"))), many, ("k",))
    lists = frame.groupBy("k").pivot("g", [1, 7]).agg(F.count("n").alias("c"), F.collect_set("b").alias("l"))
    lists = lists.select("k", "1_c", F.sort_array("1_l").alias("1_l"), "7_c", F.sort_array("7_l").alias("7_l"))
    ours = stream.key_by("k").pivot("g", [1, 7]).agg(c=agg.count("n"), l=agg.collect_set("b", sort=True))
    check(answer(ours), lists.toArrow(), ("k",))
    counted = frame.groupBy("k").pivot("s", values).count().toArrow()
    check(answer(stream.key_by("k").pivot("s", values).count()), counted, ("k",))
    booleans = frame.groupBy("k").pivot("b", [True, False]).count().toArrow()
    check(answer(stream.key_by("k").pivot("b", [True, False]).count()), booleans, ("k",))


def test_unpivot_and_explode(spark, stream):
    frame = spark.createDataFrame(TABLE)
    keys = ("t", "variable")
    check(answer(stream.unpivot("t", ["x", "f"])), frame.unpivot("t", ["x", "f"], "variable", "value").toArrow(), keys)
    lists = pa.table(
        {
            "id": [1, 2, 3, 4],
            "xs": pa.array([[1, None], [], None, [4]], pa.list_(pa.int64())),
            "m": pa.array([[("a", 1), ("b", None)], None, [], [("c", 3)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    ours, theirs = ExecutionEnvironment().from_arrow(lists), spark.createDataFrame(lists)
    for step in ("posexplode", "posexplode_outer"):
        function = getattr(F, step)
        elements = theirs.select("id", function("xs").alias("pos", "x")).toArrow()
        check(answer(getattr(ours.drop("m"), step)("xs", into="x")), elements, ("id", "pos"))
        entries = theirs.select("id", function("m").alias("pos", "key", "value")).toArrow()
        check(answer(getattr(ours.drop("xs"), step)("m")), entries, ("id", "pos"))
