"""Sorting: Parquet to sorted Parquet, Firesteel's sort against Spark's orderBy, and how even the ranges come out.

Spark samples its input to find the ranges, so it reads it twice; Firesteel's producers sketch the keys of what they write.
Both are asked for eight ranges; with uniform keys also each as it decides by default.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kit import cases, data
from benchmarks.kit.harness import Contender, alternate, table

MEGABYTES = 150
RANGES = 8
OUTPUT = data.BASE / "sorted"
Run = Callable[[], list[float]]


def rows(kind: str, files: int = 4) -> Path:
    """``k bigint, x double, y double, s string``, about ``MEGABYTES`` MB plain. ``kind``: how k is distributed."""

    def make(target: Path) -> None:
        rng = np.random.default_rng(11)
        n = MEGABYTES * 1_000_000 // 44 // files
        for number in range(files):
            keys = _keys(rng, kind, n)
            words = pa.array([f"row {value:012d}" for value in rng.integers(0, 1 << 40, n)])
            columns = {"k": keys, "x": rng.random(n), "y": rng.random(n), "s": words}
            pq.write_table(pa.table(columns), target / f"part-{number:05d}.parquet", row_group_size=250_000)

    return data._once(f"sort-{kind}-{MEGABYTES}-{files}", make)  # pyright: ignore[reportPrivateUsage]


def _keys(rng: np.random.Generator, kind: str, n: int) -> Any:
    if kind == "zipf":
        return np.minimum(rng.zipf(1.3, n), 1_000_000)
    keys = rng.integers(0, 1 << 40, n)
    if kind == "heavy":
        keys[rng.random(n) < 0.6] = 1 << 39
    return keys


def firesteel(kind: str, ranges: int) -> Run:
    env = cases._environment({}, "local[2]")  # pyright: ignore[reportPrivateUsage]

    def run() -> list[float]:
        out = OUTPUT / f"firesteel-{ranges}"
        shutil.rmtree(out, ignore_errors=True)
        stream = env.read_parquet(str(rows(kind))).sort("k")
        (stream.set_parallelism(ranges) if ranges else stream).write_parquet(str(out))
        env.execute("sort")
        return []

    return run


def pyspark(kind: str, ranges: int) -> Run:
    fixed = {"spark.sql.shuffle.partitions": str(ranges), "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    spark = cases._session({"spark.master": "local[2]", **(fixed if ranges else {})})  # pyright: ignore[reportPrivateUsage]

    def run() -> list[float]:
        out = OUTPUT / f"pyspark-{ranges}"
        spark.read.parquet(str(rows(kind))).orderBy("k").write.mode("overwrite").parquet(str(out))
        return []

    return run


def main(runs: int, only: str) -> None:
    lines = [
        "| keys | contender | files | rows of the largest, times the mean |",
        "|---|---|---:|---:|",
    ]
    for kind in ("uniform", "zipf", "heavy"):
        if only and only != kind:
            continue
        rows(kind)
        for ranges in (0, RANGES) if kind == "uniform" else (RANGES,):
            asked = f"{ranges} ranges" if ranges else "defaults"
            entered = [
                Contender(f"Firesteel, {asked}", f"{__name__}:firesteel", {"kind": kind, "ranges": ranges}),
                Contender(f"Spark orderBy, {asked}", f"{__name__}:pyspark", {"kind": kind, "ranges": ranges}),
            ]
            alternate(entered, runs=runs)
            print(table(f"sort: {kind} keys, {asked}", entered, entered[0]), flush=True)
            for contender, name in zip(entered, ("firesteel", "pyspark"), strict=True):
                sizes = check(OUTPUT / f"{name}-{ranges}", kind)
                ratio = max(sizes) * len(sizes) / sum(sizes)
                lines.append(f"| {kind} | {contender.name} | {len(sizes)} | {ratio:.2f} |")
    print("\n".join(["### sort: how even the files are", "", *lines]), flush=True)
    shutil.rmtree(OUTPUT, ignore_errors=True)


def check(folder: Path, kind: str) -> list[int]:
    """Rows of each file. Raises AssertionError unless the files, in order, hold all keys of the input, ascending."""
    files = sorted(folder.glob("*.parquet"))
    keys = [pq.read_table(path, columns=["k"])["k"].to_numpy() for path in files]
    found = np.concatenate(keys)
    given = np.concatenate([pq.read_table(p, columns=["k"])["k"].to_numpy() for p in rows(kind).glob("*.parquet")])
    assert (found == np.sort(given)).all(), f"{folder} is not the input in order"
    return [len(part) for part in keys if len(part)]
