"""Benchmark 19: a star of five dimensions behind a Python step, on TPC-H: lineitem with part, orders, customer, supplier and nation.

Joins that adapt, against the hash joins of ``firesteel.join.adaptive: false``, and against Spark's adaptive execution, which broadcasts what is
below its threshold of 10 MiB (as it comes, and with a threshold of 100 MiB), with the same Python step.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.oracle import tpch

from benchmarks.kit.harness import Contender, alternate, cpu_seconds

SCALE = float(os.environ.get("FIRESTEEL_TPCH_SCALE", "1"))
MASTER = "local[2]"
LINES = "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, revenue double"
Run = Callable[[], list[Any]]


def revenue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The Python step: what each line brings in."""
    for batch in batches:
        price, discount = (pc.cast(batch.column(name), pa.float64()) for name in ("l_extendedprice", "l_discount"))
        keys = [pc.cast(batch.column(name), pa.int64()) for name in ("l_orderkey", "l_partkey", "l_suppkey")]
        yield pa.RecordBatch.from_arrays(
            [*keys, pc.multiply(price, pc.subtract(1.0, discount))],
            names=["l_orderkey", "l_partkey", "l_suppkey", "revenue"],
        )


def firesteel(adaptive: bool) -> Run:
    from firesteel import ExecutionEnvironment, col

    env = ExecutionEnvironment(
        master=MASTER, options={"firesteel.progress": False, "firesteel.join.adaptive": adaptive}
    )
    data = tpch(SCALE, parts=8, row_group_bytes="16MB")

    def table(name: str, *columns: str) -> Any:
        return env.read_parquet(str(data / name)).select(*columns)

    def run() -> list[Any]:
        began = cpu_seconds()
        lines = table("lineitem", "l_orderkey", "l_partkey", "l_suppkey", "l_extendedprice", "l_discount")
        fact = lines.map_in_arrow(revenue, LINES)
        parts = table("part", "p_partkey", "p_brand", "p_size").filter(col("p_size") <= 25)
        orders = table("orders", "o_orderkey", "o_custkey", "o_orderpriority")
        orders = orders.filter(col("o_orderpriority") == "1-URGENT")
        fact = fact.key_by("l_partkey").join(parts.key_by("p_partkey"))
        fact = fact.key_by("l_orderkey").join(orders.key_by("o_orderkey"))
        fact = fact.key_by("o_custkey").join(table("customer", "c_custkey", "c_mktsegment").key_by("c_custkey"))
        fact = fact.key_by("l_suppkey").join(table("supplier", "s_suppkey", "s_nationkey").key_by("s_suppkey"))
        fact = fact.key_by("s_nationkey").join(table("nation", "n_nationkey", "n_name").key_by("n_nationkey"))
        told = fact.key_by("n_name", "c_mktsegment").aggregate({"revenue": "sum"}).to_arrow()
        return [told.num_rows, round(pc.sum(told.column("revenue")).as_py(), 0), cpu_seconds() - began]

    return run


def pyspark(threshold: str) -> Run:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.autoBroadcastJoinThreshold": threshold}
    settings |= {"spark.sql.adaptive.autoBroadcastJoinThreshold": threshold, "spark.sql.shuffle.partitions": "8"}
    for key, value in {**settings, "spark.ui.enabled": "false", "spark.driver.memory": "4g"}.items():
        builder = builder.config(key, value)
    spark = builder.master(MASTER).getOrCreate()
    data = tpch(SCALE, parts=8, row_group_bytes="16MB")

    def table(name: str, *columns: str) -> Any:
        return spark.read.parquet(str(data / name)).select(*columns)

    def run() -> list[Any]:
        began = cpu_seconds()
        lines = table("lineitem", "l_orderkey", "l_partkey", "l_suppkey", "l_extendedprice", "l_discount")
        fact = lines.mapInArrow(revenue, LINES)
        parts = table("part", "p_partkey", "p_brand", "p_size").filter("p_size <= 25")
        orders = table("orders", "o_orderkey", "o_custkey", "o_orderpriority").filter("o_orderpriority = '1-URGENT'")
        fact = fact.join(parts, F.col("l_partkey") == F.col("p_partkey"))
        fact = fact.join(orders, F.col("l_orderkey") == F.col("o_orderkey"))
        fact = fact.join(table("customer", "c_custkey", "c_mktsegment"), F.col("o_custkey") == F.col("c_custkey"))
        fact = fact.join(table("supplier", "s_suppkey", "s_nationkey"), F.col("l_suppkey") == F.col("s_suppkey"))
        fact = fact.join(table("nation", "n_nationkey", "n_name"), F.col("s_nationkey") == F.col("n_nationkey"))
        told = fact.groupBy("n_name", "c_mktsegment").agg(F.sum("revenue").alias("revenue")).collect()
        return [len(told), round(sum(row["revenue"] for row in told), 0), cpu_seconds() - began]

    return run


def contenders() -> list[Contender]:
    return [
        Contender("Firesteel, joins adapt", f"{__name__}:firesteel", {"adaptive": True}),
        Contender("Firesteel, hash joins", f"{__name__}:firesteel", {"adaptive": False}),
        Contender("Spark, adaptive, as it comes", f"{__name__}:pyspark", {"threshold": "10m"}),
        Contender("Spark, adaptive, threshold 100 MiB", f"{__name__}:pyspark", {"threshold": "100m"}),
    ]


def main(runs: int, only: str) -> None:
    if only and only not in "star":
        return
    tpch(SCALE, parts=8, row_group_bytes="16MB")
    entered = contenders()
    answers = alternate(entered, runs=runs)
    found = {tuple(answer[:2]) for each in answers.values() for answer in each if each}
    if len({n for n, _ in found}) != 1:
        raise AssertionError(f"The contenders gave different answers: {sorted(found)}.")
    base = entered[0].median
    lines = [
        f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {c.median / base:.2f} | "
        f"{statistics.median(answer[2] for answer in answers[c.name]):.2f} |"
        for c in entered
    ]
    head = "| contender | cold s | warm median s | min - max | ratio | CPU s |\n|---|---|---|---|---|---|"
    print("\n".join([f"### star: five dimensions, TPC-H scale {SCALE:g}, {MASTER}", "", head, *lines, ""]), flush=True)
