"""Benchmark 2: adaptive against fixed parallelism and against Spark's AQE, uniform and skewed, 1 MB to 1 GB."""

from __future__ import annotations

import math
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.kit import cases, data
from benchmarks.kit.harness import Contender, alternate, table

FIXED = (1, 2, 8, 32, 200)


def _total(table_: pa.Table) -> pa.Table:
    """Needs the whole group: nothing can be aggregated before the exchange."""
    spread = pc.quantile(table_.column("x"), q=[0.5]).to_pylist()[0]
    return pa.table({"g": table_.column("g").slice(0, 1), "m": pa.array([spread], pa.float64())})


def firesteel(megabytes: int, skewed: bool) -> cases.Run:
    """One run is a round of all parallelisms, adaptive first, in one Spark; it answers the seconds of each."""
    env = cases._environment(None)
    path = str(data.events(megabytes, skewed=skewed))
    answers: list[list[float]] = []

    def once(parallelism: int | None) -> float:
        started = time.perf_counter()
        stream = env.read_parquet(path).key_by("g").apply_in_arrow(_total, "g bigint, m double")
        if parallelism is not None:
            stream = stream.set_parallelism(parallelism)
        sink = cases.ChecksumSink("m")
        stream.write_to(sink)
        env.execute("adaptive")
        answers.append(sink.answer)
        return time.perf_counter() - started

    def run() -> list[float]:
        once(None)  # not counted: whoever comes first finds caches that the other contender has emptied
        seconds = [once(parallelism) for parallelism in (None, *FIXED)]
        assert all(
            math.isclose(a, b, rel_tol=1e-9) for given in answers for a, b in zip(given, answers[0], strict=True)
        )
        return seconds

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
            ours = Contender("Firesteel", f"{__name__}:firesteel", shape)
            theirs = Contender("PySpark applyInArrow, AQE", f"{__name__}:pyspark", shape)
            rounds = alternate([ours, theirs], runs=runs)
            names = ["Firesteel, adaptive", *(f"Firesteel, fixed {n}" for n in FIXED)]
            entered = [
                Contender(name, "", warm=[answer[k] for answer in rounds["Firesteel"]]) for k, name in enumerate(names)
            ]
            print(table(f"adaptive: {title}", [*entered, theirs], entered[0]), flush=True)
