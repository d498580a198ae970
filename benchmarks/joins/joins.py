"""Benchmark 17: a join where one key holds 60 % of the rows, with a step behind it that waits 2 us a row.

On ``local[8]``: waiting needs no core, so that scheduling alone shows. Against the same rows without skew, against one subtask
for the heavy key (``firesteel.join.skew: none``), and against Spark's adaptive execution with its thresholds set so that it splits the key.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.kit import data
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

ROWS = 4_000_000
KEYS = 100_000
FILES = 16
SHARE = 0.6
WAIT = 2e-6
"""Seconds a row."""
MASTER = "local[8]"
SPLITTING = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "2m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "8",
}
Run = Callable[[], list[float]]


def orders(*, skewed: bool) -> Path:
    """``k bigint, v bigint``: keys evenly, or six of ten rows of one of them."""

    def make(target: Path) -> None:
        rng = np.random.default_rng(11)
        for number in range(FILES):
            keys = rng.integers(0, KEYS, ROWS // FILES)
            if skewed:
                keys[rng.random(len(keys)) < SHARE] = 7
            table = pa.table({"k": keys, "v": np.arange(len(keys))})
            pq.write_table(table, target / f"part-{number:05d}.parquet")

    return data._once(f"join-{'skewed' if skewed else 'even'}-{ROWS}", make)  # pyright: ignore[reportPrivateUsage]


def customers() -> Path:
    def make(target: Path) -> None:
        pq.write_table(pa.table({"k": np.arange(KEYS), "w": np.arange(KEYS)}), target / "part-0.parquet")

    return data._once(f"join-customers-{KEYS}", make)  # pyright: ignore[reportPrivateUsage]


def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(WAIT * batch.num_rows)
        total = pc.sum(batch.column("v")).as_py() or 0
        yield pa.record_batch({"n": pa.array([batch.num_rows]), "s": pa.array([total])})


def firesteel(skewed: bool, skew: str) -> Run:
    from firesteel import ExecutionEnvironment

    env = ExecutionEnvironment(
        master=MASTER,
        options={"firesteel.progress": False, "firesteel.join.skew": skew, "firesteel.join.adaptive": False},
    )

    def run() -> list[float]:
        began = cpu_seconds()
        left, right = env.read_parquet(str(orders(skewed=skewed))), env.read_parquet(str(customers()))
        joined = left.key_by("k").join(right.key_by("k")).map_in_arrow(waits, "n bigint, s bigint")
        told = joined.to_arrow()
        return [*(pc.sum(told.column(name)).as_py() for name in ("n", "s")), cpu_seconds() - began]

    return run


def pyspark(skewed: bool) -> Run:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    for key, value in {**SPLITTING, "spark.ui.enabled": "false", "spark.driver.memory": "2g"}.items():
        builder = builder.config(key, value)
    spark = builder.master(MASTER).getOrCreate()

    def run() -> list[float]:
        began = cpu_seconds()
        left, right = spark.read.parquet(str(orders(skewed=skewed))), spark.read.parquet(str(customers()))
        row = left.join(right, "k").mapInArrow(waits, "n bigint, s bigint").agg(F.sum("n"), F.sum("s")).first()
        return [row[0], row[1], cpu_seconds() - began]

    return run


def contenders() -> list[Contender]:
    return [
        Contender("Firesteel, skewed", f"{__name__}:firesteel", {"skewed": True, "skew": "auto"}),
        Contender("Firesteel, the same rows without skew", f"{__name__}:firesteel", {"skewed": False, "skew": "auto"}),
        Contender("Firesteel, skewed, not divided", f"{__name__}:firesteel", {"skewed": True, "skew": "none"}),
        Contender("Spark, adaptive, skewed", f"{__name__}:pyspark", {"skewed": True}),
        Contender("Spark, adaptive, without skew", f"{__name__}:pyspark", {"skewed": False}),
    ]


def main(runs: int, only: str) -> None:
    if only and only not in "skew":
        return
    for skewed in (True, False):
        orders(skewed=skewed)
    customers()
    entered = contenders()
    answers = alternate(entered, runs=runs)
    sums = {tuple(answer[:2]) for each in answers.values() for answer in each if each}
    rows = {n for n, _ in sums}
    if rows != {ROWS}:
        raise AssertionError(f"The joins gave {sorted(rows)} rows.")
    base = entered[1].median
    lines = [
        f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {c.median / base:.2f} | "
        f"{statistics.median(answer[2] for answer in answers[c.name]):.2f} |"
        for c in entered
    ]
    head = "| contender | cold s | warm median s | min - max | ratio to no skew | CPU s |\n|---|---|---|---|---|---|"
    print("\n".join([f"### joins: one key with 60 % of the rows, {MASTER}", "", head, *lines, ""]), flush=True)
