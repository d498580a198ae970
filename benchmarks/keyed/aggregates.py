"""Benchmark 25: aggregates beside PySpark's, by key and of all rows, over local Parquet.

Each contender runs all queries, one after another, in a process and a session of its own, and they take turns. The answers of exact aggregates must agree.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.kit import data
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

ROWS = 2_000_000
KEYS = 10_000
FILES = 8
MASTER = "local[2]"
Run = Callable[[], dict[str, list[float]]]


def readings() -> Path:
    """``k bigint, g int, x double, n bigint, s string, t bigint``: keys evenly, 5,000 texts, times all different."""

    def make(target: Path) -> None:
        rng = np.random.default_rng(11)
        for number in range(FILES):
            rows = ROWS // FILES
            table = pa.table(
                {
                    "k": rng.integers(0, KEYS, rows),
                    "g": pa.array(rng.integers(0, 20, rows), pa.int32()),
                    "x": rng.lognormal(0, 1, rows),
                    "n": rng.integers(0, 1000, rows),
                    "s": pa.array(rng.integers(0, 5000, rows)).cast(pa.string()),
                    "t": np.arange(rows) * FILES + number,
                }
            )
            pq.write_table(table, target / f"part-{number:05d}.parquet")

    return data._once(f"aggregates-{ROWS}", make)  # pyright: ignore[reportPrivateUsage]


class GeometricMean:
    def create(self):
        return 0.0, 0

    def update(self, state, batch):
        return state[0] + pc.sum(pc.ln(batch.column("x"))).as_py(), state[1] + batch.num_rows

    def merge(self, state, other):
        return state[0] + other[0], state[1] + other[1]

    def finish(self, state):
        return math.exp(state[0] / state[1])


def ours(query: str, rows: Any) -> Any:
    from firesteel import agg, col

    match query:
        case "deviations":
            return rows.key_by("k").aggregate(a=agg.stddev("x"), b=agg.corr("x", "n"), c=agg.var_pop("n"))
        case "of expressions":
            dear = agg.count().where(col("x") > 1)
            return rows.key_by("k").aggregate(a=agg.sum(col("x") * col("n").cast("double")), b=dear)
        case "max_by and min_by":
            return rows.key_by("k").aggregate(a=agg.max_by("n", "t"), b=agg.min_by("x", "t"))
        case "percentiles":
            return rows.key_by("k").aggregate(a=agg.median("x"), b=agg.percentile("x", 0.99))
        case "percentiles of all":
            return rows.aggregate(a=agg.median("n"), b=agg.percentile("n", 0.99))
        case "approximate":
            return rows.key_by("g").aggregate(a=agg.percentile_approx("x", 0.5), b=agg.approx_count_distinct("s"))
        case "several distinct":
            return rows.key_by("g").aggregate(a=agg.count_distinct("n"), b=agg.count_distinct("s"))
        case "lists and sets":
            lists = rows.key_by("k").aggregate(p=agg.collect_list("n"), q=agg.collect_set("g"))
            return lists.select(a=pc.list_value_length(col("p")), b=pc.list_value_length(col("q")))
        case "rollup":
            return rows.rollup("g", "n").aggregate(a=agg.sum("t"), b=agg.count())
        case "one's own":
            return rows.key_by("g").aggregate(a=agg.user(GeometricMean(), "x", type="double"))
    raise ValueError(query)


def theirs(query: str, rows: Any) -> Any:
    from pyspark.sql import functions as F

    match query:
        case "deviations":
            return rows.groupBy("k").agg(
                F.stddev("x").alias("a"), F.corr("x", "n").alias("b"), F.var_pop("n").alias("c")
            )
        case "of expressions":
            dear = F.count_if(F.col("x") > 1).alias("b")
            return rows.groupBy("k").agg(F.sum(F.col("x") * F.col("n")).alias("a"), dear)
        case "max_by and min_by":
            return rows.groupBy("k").agg(F.max_by("n", "t").alias("a"), F.min_by("x", "t").alias("b"))
        case "percentiles":
            return rows.groupBy("k").agg(F.median("x").alias("a"), F.percentile("x", 0.99).alias("b"))
        case "percentiles of all":
            return rows.agg(F.median("n").alias("a"), F.percentile("n", 0.99).alias("b"))
        case "approximate":
            return rows.groupBy("g").agg(
                F.percentile_approx("x", 0.5).alias("a"), F.approx_count_distinct("s").alias("b")
            )
        case "several distinct":
            return rows.groupBy("g").agg(F.count_distinct("n").alias("a"), F.count_distinct("s").alias("b"))
        case "lists and sets":
            lists = rows.groupBy("k").agg(F.collect_list("n").alias("p"), F.collect_set("g").alias("q"))
            return lists.select(F.size("p").alias("a"), F.size("q").alias("b"))
        case "rollup":
            return rows.rollup("g", "n").agg(F.sum("t").alias("a"), F.count("*").alias("b"))
        case "one's own":

            def geometric(x):  # the way in PySpark: all rows of a group go to Python, behind the exchange
                return float(np.exp(np.log(x).mean()))

            mean: Any = F.pandas_udf(geometric, "double", F.PandasUDFType.GROUPED_AGG)
            return rows.groupBy("g").agg(mean("x").alias("a"))  # beside which Spark takes no aggregate of its own
    raise ValueError(query)


QUERIES = (
    "deviations", "of expressions", "max_by and min_by", "percentiles", "percentiles of all", "approximate",
    "several distinct", "lists and sets", "rollup", "one's own",
)  # fmt: skip


def firesteel(queries: list[str]) -> Run:
    from firesteel import ExecutionEnvironment

    env = ExecutionEnvironment(master=MASTER, options={"firesteel.progress": False})
    return _all(queries, lambda query: ours(query, env.read_parquet(str(readings()))).to_arrow())


def pyspark(queries: list[str]) -> Run:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    given = {"spark.ui.enabled": "false", "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.master(MASTER).getOrCreate()
    return _all(queries, lambda query: theirs(query, spark.read.parquet(str(readings()))).toArrow())


def _all(queries: list[str], told: Callable[[str], pa.Table]) -> Run:
    """Of each query: rows, two sums, seconds, CPU seconds."""

    def run() -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for query in queries:
            began, worked = time.perf_counter(), cpu_seconds()
            answer = told(query)
            took = time.perf_counter() - began
            found[query] = [*_summary(answer), took, cpu_seconds() - worked]
        return found

    return run


def _summary(told: pa.Table) -> list[float]:
    """Rows, and the sums of the first two results, of which there may be only one."""
    columns = [name for name in ("a", "b") if name in told.column_names]
    sums = [pc.sum(told.column(name).cast(pa.float64())).as_py() for name in columns]
    return [told.num_rows, *(float(f"{total:.9g}") for total in (*sums, 0.0)[:2])]


def main(runs: int, only: str) -> None:
    named = only.split(",")
    queries = [query for query in QUERIES if only in ("", "aggregates") or query in named]
    if not queries:
        return
    readings()
    pair = [Contender(who, f"{__name__}:{who}", {"queries": queries}) for who in ("firesteel", "pyspark")]
    answers = alternate(pair, runs=runs)
    lines = [_line(query, *([answer[query] for answer in answers[one.name]] for one in pair)) for query in queries]
    head = (
        "| aggregates | Firesteel s | PySpark s | ratio | CPU s, Firesteel | CPU s, PySpark | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    print("\n".join([f"### aggregates: {ROWS:,} rows by {KEYS:,} keys, {MASTER}", "", head, *lines, ""]), flush=True)


def _line(query: str, own: list[list[float]], spark: list[list[float]]) -> str:
    found = {tuple(answer[:3]) for answer in (*own, *spark)}
    if len(found) != 1 and query != "approximate":
        raise AssertionError(f"The answers of {query} differ: {sorted(found)}.")
    seconds = [sorted(answer[3] for answer in given) for given in (own, spark)]
    cpu = [statistics.median(answer[4] for answer in given) for given in (own, spark)]
    middle = [statistics.median(given) for given in seconds]
    said = [f"{m:.2f} ({given[0]:.2f} - {given[-1]:.2f})" for m, given in zip(middle, seconds, strict=True)]
    return f"| {query} | {' | '.join(said)} | {middle[0] / middle[1]:.2f} | {cpu[0]:.2f} | {cpu[1]:.2f} | {cpu[0] / cpu[1]:.2f} |"
