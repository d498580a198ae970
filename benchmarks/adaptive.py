"""Benchmark 2: adaptive against fixed parallelism and against Spark's AQE, uniform and skewed, 1 MB to 1 GB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import cases, data
from benchmarks.harness import Contender, compete, table

FIXED = (1, 2, 8, 32, 200)


def _total(table_: pa.Table) -> pa.Table:
    """Needs the whole group: nothing can be aggregated before the exchange."""
    spread = pc.quantile(table_.column("x"), q=[0.5]).to_pylist()[0]
    return pa.table({"g": table_.column("g").slice(0, 1), "m": pa.array([spread], pa.float64())})


def firesteel(megabytes: int, skewed: bool, parallelism: int | None = None) -> cases.Run:
    env = cases._environment(None)
    path = str(data.events(megabytes, skewed=skewed))

    def run() -> list[float]:
        stream = env.read_parquet(path).key_by("g").apply_in_arrow(_total, "g bigint, m double")
        if parallelism is not None:
            stream = stream.set_parallelism(parallelism)
        sink = cases.ChecksumSink("m")
        stream.write_to(sink)
        env.execute("adaptive")
        return sink.answer

    return run


def pyspark(megabytes: int, skewed: bool, conf: dict[str, str] | None = None) -> cases.Run:
    spark = cases._session(conf or {})
    path = str(data.events(megabytes, skewed=skewed))

    def run() -> list[float]:
        from pyspark.sql import functions as F

        frame = spark.read.parquet(path).groupBy("g").applyInArrow(_total, "g bigint, m double")
        row = frame.agg(F.count(F.lit(1)), F.sum("m")).first()
        return [row[0], row[1]]

    return run


def main(runs: int, only: str) -> None:
    for megabytes in (1, 100, 1000):
        for skewed in (False, True):
            title = f"{megabytes} MB, {'skewed' if skewed else 'uniform'}"
            if only and only != title:
                continue
            shape: dict[str, Any] = {"megabytes": megabytes, "skewed": skewed}
            entered = [Contender("Firesteel, adaptive", "adaptive:firesteel", shape)]
            entered += [
                Contender(f"Firesteel, fixed {n}", "adaptive:firesteel", {**shape, "parallelism": n}) for n in FIXED
            ]
            entered += [Contender("PySpark applyInArrow, AQE", "adaptive:pyspark", shape)]
            compete(entered, runs=runs)
            print(table(f"adaptive: {title}", entered, entered[0]), flush=True)
