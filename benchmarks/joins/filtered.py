"""Benchmark 20: a join that a filter on its small side empties to 1 % of the large side's rows.

The large side lies in its files by day, so that whole row groups have no row of the days that are wanted, or its keys are spread over
all row groups. Firesteel with and without runtime filters; Spark's adaptive execution with its runtime Bloom filter allowed for sides of
this size.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kit import data
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

ROWS = 16_000_000
FILES = 8
DAYS, CUSTOMERS = 1000, 200_000
MASTER = "local[2]"
KEYS = {"by day": ("day", "days"), "spread": ("cust", "customers")}
"""By case: the key, and the small side."""
Run = Callable[[], list[Any]]


def sales() -> Path:
    def make(target: Path) -> None:
        rng = np.random.default_rng(5)
        rows = ROWS // FILES
        for number in range(FILES):
            days = np.sort(rng.integers(number * DAYS // FILES, (number + 1) * DAYS // FILES, rows)).astype(np.int32)
            table = {
                "day": days,
                "cust": rng.integers(0, CUSTOMERS, rows),
                "paid": rng.random(rows),
                "tax": rng.random(rows),
            }
            pq.write_table(pa.table(table), target / f"part-{number:05d}.parquet", row_group_size=100_000)
        (target / "small").mkdir()
        days = {"day": np.arange(DAYS), "week": np.arange(DAYS) // 7, "wanted": np.arange(DAYS) // 10 == 42}
        pq.write_table(pa.table(days), target / "small" / "days.parquet")
        names = {
            "cust": np.arange(CUSTOMERS),
            "week": np.arange(CUSTOMERS) % 50,
            "wanted": np.arange(CUSTOMERS) % 100 == 42,
        }
        pq.write_table(pa.table(names), target / "small" / "customers.parquet")

    return data._once(f"filtered-{ROWS}", make)  # pyright: ignore[reportPrivateUsage]


def firesteel(case: str, filters: bool, broadcast: str | None) -> Run:
    from firesteel import ExecutionEnvironment, col

    options = {"firesteel.progress": False, "firesteel.join.runtime-filter.enabled": filters}
    env = ExecutionEnvironment(master=MASTER, options=options)
    folder, (key, name) = sales(), KEYS[case]
    out = tempfile.mkdtemp()

    def run() -> list[Any]:
        began = cpu_seconds()
        small = env.read_parquet(str(folder / "small" / f"{name}.parquet")).filter(col("wanted")).select(key, "week")
        joined = env.read_parquet(str(folder / "*.parquet")).key_by(key).join(small.key_by(key), broadcast=broadcast)
        joined.key_by("week").aggregate(n=("*", "count"), paid=("paid", "sum")).write_parquet(out, mode="overwrite")
        result = env.execute("filtered")
        (read,) = [
            d.inputs["bytes"]
            for d in result.decision_records
            if d.what == "source parallelism" and d.inputs["splits"] > 1
        ] or [0]
        table = pq.read_table(out)
        return [int(np.sum(table.column("n"))), cpu_seconds() - began, read]

    return run


def pyspark(case: str) -> Run:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "1m",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
    }
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    spark = builder.master(MASTER).getOrCreate()
    folder, (key, name) = sales(), KEYS[case]
    out = tempfile.mkdtemp()

    def run() -> list[Any]:
        began = cpu_seconds()
        small = spark.read.parquet(str(folder / "small" / f"{name}.parquet")).filter("wanted").select(key, "week")
        joined = spark.read.parquet(str(folder / "*.parquet")).join(small, key)
        told = joined.groupBy("week").agg(F.count("*").alias("n"), F.sum("paid").alias("paid"))
        told.write.mode("overwrite").parquet(out)
        return [int(np.sum(pq.read_table(out).column("n"))), cpu_seconds() - began, 0]

    return run


def contenders(case: str) -> list[Contender]:
    def ours(name: str, filters: bool, broadcast: str | None = None) -> Contender:
        return Contender(name, f"{__name__}:firesteel", {"case": case, "filters": filters, "broadcast": broadcast})

    return [
        ours("Firesteel, runtime filters", True),
        ours("Firesteel, none", False),
        ours("Firesteel, hash join, runtime filters", True, "never"),
        ours("Firesteel, hash join, none", False, "never"),
        Contender("Spark, adaptive", f"{__name__}:pyspark", {"case": case}),
    ]


def main(runs: int, only: str) -> None:
    if only and only not in "filtered":
        return
    sales()
    for case in KEYS:
        entered = contenders(case)
        answers = alternate(entered, runs=runs)
        found = {answer[0] for each in answers.values() for answer in each if each}
        if len(found) != 1:
            raise AssertionError(f"The contenders gave different answers: {sorted(found)}.")
        base = entered[0].median
        lines = [
            f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {c.median / base:.2f} | "
            f"{statistics.median(a[1] for a in answers[c.name]):.2f} | {answers[c.name][0][2] / (1 << 20):.0f} |"
            for c in entered
        ]
        head = "| contender | cold s | warm median s | min - max | ratio | CPU s | MiB of splits read |\n|---|---|---|---|---|---|---|"
        print(
            "\n".join([f"### filtered to 1 %, keys {case}, {ROWS:,} rows, {MASTER}", "", head, *lines, ""]), flush=True
        )
