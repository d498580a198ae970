"""Benchmark 18: distinct values counted by key, where one key has 60 % of them, and of all rows.

Against the same rows without skew, against one step (``firesteel.join.skew: none``), in which one subtask counts all values of the heavy
key, or of all rows, and against Spark, which always exchanges by key and value first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.kit import data
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

ROWS = 8_000_000
KEYS = 10_000
FILES = 16
SHARE = 0.6
MASTER = "local[2]"
VOLUME = "16 MiB"
Run = Callable[[], list[float]]


def visits(*, skewed: bool) -> Path:
    """``k bigint, v bigint``: keys evenly, or six of ten rows of one of them; nearly all values are different ones."""

    def make(target: Path) -> None:
        rng = np.random.default_rng(5)
        for number in range(FILES):
            keys = rng.integers(0, KEYS, ROWS // FILES)
            if skewed:
                keys[rng.random(len(keys)) < SHARE] = 7
            table = pa.table({"k": keys, "v": rng.integers(0, 1 << 40, len(keys))})
            pq.write_table(table, target / f"part-{number:05d}.parquet")

    return data._once(f"distinct-{'skewed' if skewed else 'even'}-{ROWS}", make)  # pyright: ignore[reportPrivateUsage]


def firesteel(skewed: bool, by_key: bool, skew: str) -> Run:
    from firesteel import ExecutionEnvironment

    options = {"firesteel.progress": False, "firesteel.join.skew": skew, "data-volume-per-task": VOLUME}
    # Costs of earlier runs would count too, and these jobs have one name.
    env = ExecutionEnvironment(master=MASTER, options={**options, "firesteel.decider.target-task-duration": 0})

    def run() -> list[float]:
        began = cpu_seconds()
        rows = env.read_parquet(str(visits(skewed=skewed)))
        told = (rows.key_by("k") if by_key else rows).aggregate({"d": ("v", "count_distinct")}).to_arrow()
        return [told.num_rows, pc.sum(told.column("d")).as_py(), cpu_seconds() - began]

    return run


def pyspark(skewed: bool, by_key: bool) -> Run:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder: Any = SparkSession.builder
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "8",
    }.items():
        builder = builder.config(key, value)
    spark = builder.master(MASTER).getOrCreate()

    def run() -> list[float]:
        began = cpu_seconds()
        rows = spark.read.parquet(str(visits(skewed=skewed)))
        told = (rows.groupBy("k") if by_key else rows).agg(F.count_distinct("v").alias("d"))
        row = told.agg(F.count("d"), F.sum("d")).first()
        return [row[0], row[1], cpu_seconds() - began]

    return run


def contenders() -> list[Contender]:
    def one(name: str, target: str, **arguments: Any) -> Contender:
        return Contender(name, f"{__name__}:{target}", arguments)

    return [
        one("Firesteel, one key with 60 %", "firesteel", skewed=True, by_key=True, skew="auto"),
        one("Firesteel, without skew", "firesteel", skewed=False, by_key=True, skew="auto"),
        one("Firesteel, one key with 60 %, one step", "firesteel", skewed=True, by_key=True, skew="none"),
        one("Spark, one key with 60 %", "pyspark", skewed=True, by_key=True),
        one("Spark, without skew", "pyspark", skewed=False, by_key=True),
        one("Firesteel, of all rows", "firesteel", skewed=False, by_key=False, skew="auto"),
        one("Firesteel, of all rows, one step", "firesteel", skewed=False, by_key=False, skew="none"),
        one("Spark, of all rows", "pyspark", skewed=False, by_key=False),
    ]


def main(runs: int, only: str) -> None:
    if only and only not in "distinct":
        return
    for skewed in (True, False):
        visits(skewed=skewed)
    entered = contenders()
    answers = alternate(entered, runs=runs)
    for kind in ("one key with 60 %", "without skew", "of all rows"):
        found = {tuple(answer[:2]) for c in entered if kind in c.name for answer in answers[c.name]}
        if len(found) != 1:
            raise AssertionError(f"The counts {kind} differ: {sorted(found)}.")
    base = entered[1].median
    lines = [
        f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {c.median / base:.2f} | "
        f"{statistics.median(answer[2] for answer in answers[c.name]):.2f} |"
        for c in entered
    ]
    head = "| contender | cold s | warm median s | min - max | ratio to no skew | CPU s |\n|---|---|---|---|---|---|"
    print("\n".join([f"### distinct: {ROWS:,} values by {KEYS:,} keys, {MASTER}", "", head, *lines, ""]), flush=True)
