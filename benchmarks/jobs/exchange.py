"""Benchmark 1: read, a Python function, exchange by key, aggregate; against PySpark, Spark SQL and DuckDB."""

from __future__ import annotations

from typing import Any

from benchmarks.kit.harness import Contender, compete, table

TUNED = {"spark.sql.shuffle.partitions": "4", "spark.python.unix.domain.socket.enabled": "true"}


def _ours(case: str) -> Contender:
    return Contender("Firesteel", "benchmarks.kit.cases:firesteel", {"case": case})


def _spark(name: str, case: str, variant: str = "default", conf: dict[str, Any] | None = None) -> Contender:
    return Contender(name, "benchmarks.kit.cases:pyspark", {"case": case, "variant": variant, "conf": conf or {}})


def contenders(case: str) -> list[Contender]:
    pair = [_ours(case), _spark("PySpark, defaults", case), _spark("PySpark, tuned", case, conf=TUNED)]
    if case == "groupby":
        pair += [
            _spark("PySpark, tuned, pre-aggregated by hand", case, "combined", TUNED),
            _spark("Spark SQL, no Python", case, "sql"),
            Contender("DuckDB (the floor)", "benchmarks.kit.cases:duckdb", {"case": case}),
        ]
    return pair


def main(runs: int, only: str) -> None:
    from benchmarks.kit.cases import FIRESTEEL

    for case in FIRESTEEL:
        if only and only != case:
            continue
        entered = compete(contenders(case), runs=runs)
        print(table(f"exchange: {case}", entered, entered[0]), flush=True)
