"""Benchmark 22: the queries of TPC-H, and of TPC-DS, written for Spark: our tasks, Spark's adaptive execution, DuckDB alone.

Each contender is a process of its own with two cores; each run asks all queries, one after another. Planning by Catalyst counts. Spark comes
with its defaults, and tuned: with four partitions, which fill the cores. All answers must have the same rows. A query that a contender
cannot answer (Spark runs out of memory) is told, and left out of every total.

``FIRESTEEL_SQL_SCALE`` (1), ``FIRESTEEL_SQL_QUERIES`` (``1,6,18``; all), ``--only tpch`` or ``--only tpcds``.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.oracle import tpch
from tests.tpcds_kit import tpcds

from benchmarks.kit.asking import Asked, asks
from benchmarks.kit.harness import Contender, alternate

SCALE = float(os.environ.get("FIRESTEEL_SQL_SCALE", "1"))
CHOSEN = [int(word) for word in os.environ.get("FIRESTEEL_SQL_QUERIES", "").split(",") if word]
MASTER = "local[2]"
TUNED = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
}


def data(suite: str) -> tuple[Path, dict[int, tuple[str, str]]]:
    """The folder of tables, and the queries by number, in DuckDB's and in Spark's SQL."""
    if suite == "tpch":
        lines = (Path(__file__).resolve().parents[2] / "tests" / "tpch.sql").read_text().splitlines()[1:]
        return tpch(SCALE, parts=8, row_group_bytes="16MB"), {i: (line, line) for i, line in enumerate(lines, 1)}
    return tpcds(SCALE)


def tables(home: Path) -> list[Path]:
    return sorted(folder for folder in home.iterdir() if folder.is_dir())


def _session(settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    given = {"spark.ui.enabled": "false", "spark.driver.memory": "6g", "spark.sql.session.timeZone": "UTC", **settings}
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.master(MASTER).getOrCreate()


def _with_views(suite: str, settings: dict[str, str]) -> Any:
    spark = _session(settings)
    for folder in tables(data(suite)[0]):
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    return spark


def firesteel(suite: str) -> Callable[[], list[Any]]:
    from firesteel import ExecutionEnvironment

    spark = _with_views(suite, {})
    env = ExecutionEnvironment(spark=spark, options={"firesteel.progress": False})

    def ask(text: str) -> tuple[pa.Table, float]:
        began = time.perf_counter()
        stream = env.from_dataframe(spark.sql(text))
        planned = time.perf_counter() - began
        return stream.to_arrow(), planned

    return _run(suite, ask)


def accelerated(suite: str) -> Callable[[], list[Any]]:
    """The text as it is, in a session that Firesteel accelerates."""
    import firesteel as package

    spark = _with_views(suite, {})
    package.accelerate(spark, {"firesteel.progress": False})
    return _run(suite, lambda text: (spark.sql(text).toArrow(), math.nan))


def pyspark(suite: str, settings: dict[str, str]) -> Callable[[], list[Any]]:
    spark = _with_views(suite, settings)
    return _run(suite, lambda text: (spark.sql(text).toArrow(), math.nan))


def duckdb(suite: str) -> Callable[[], list[Any]]:
    import duckdb as engine

    con = engine.connect(config={"threads": 2})
    for folder in tables(data(suite)[0]):
        con.execute(f"CREATE VIEW {folder.name} AS SELECT * FROM read_parquet('{folder}/*.parquet')")

    def ask(text: str) -> tuple[pa.Table, float]:
        return con.sql(text).to_arrow_table(), math.nan

    return _run(suite, ask, dialect=0)


def _run(suite: str, ask: Asked, dialect: int = 1) -> Callable[[], list[Any]]:
    _, queries = data(suite)
    return asks([(number, queries[number][dialect]) for number in CHOSEN or sorted(queries)], ask)


def contenders(suite: str) -> list[Contender]:
    return [
        Contender("Firesteel", f"{__name__}:firesteel", {"suite": suite}),
        Contender("Spark", f"{__name__}:pyspark", {"suite": suite, "settings": {}}),
        Contender("Spark, tuned", f"{__name__}:pyspark", {"suite": suite, "settings": TUNED}),
        Contender("DuckDB", f"{__name__}:duckdb", {"suite": suite}),
    ]


def main(runs: int, only: str) -> None:
    for suite in ("tpch", "tpcds"):
        if not only or only == suite:
            _suite(suite, runs)


def _suite(suite: str, runs: int) -> None:
    data(suite)
    entered = contenders(suite)
    answers = alternate(entered, runs=runs, warmup=0, both_orders=True)  # the cold run asks all queries
    names = [c.name for c in entered]
    per_query = {name: medians(answers[name]) for name in names}
    lines = [_line(number, [per_query[name][number] for name in names]) for number in per_query["Firesteel"]]
    failed = sorted({n for told in per_query.values() for n, one in told.items() if math.isnan(one[0])})
    counted = [number for number in per_query["Firesteel"] if number not in failed]
    totals = [[sum(per_query[name][number][i] for number in counted) for i in (0, 1)] for name in names]
    planning = statistics.median(per_query["Firesteel"][number][2] for number in counted)
    head = "| query | " + " | ".join(f"{name}: s / CPU s" for name in names) + " | to Spark | to tuned |"
    print(f"### sql: {suite}, scale {SCALE:g}, {MASTER}, medians of {runs}\n\n{head}\n|{'---|' * (len(names) + 3)}")
    print("\n".join([*lines, _line("all", totals)]))
    print(
        f"\nPlanning: median {planning * 1000:.0f} ms. Other rows than Spark's: {different(answers, names)}. "
        f"Not answered by all: {', '.join(map(str, failed)) or 'none'}.\n",
        flush=True,
    )


def medians(runs: list[list[Any]]) -> dict[int, list[float]]:
    """[wall, CPU, planning] by query."""
    found: dict[int, list[list[float]]] = {}
    for run in runs:
        for number, *figures, _ in run:
            found.setdefault(number, []).append(figures)
    return {number: [_median(column) for column in zip(*rows, strict=True)] for number, rows in found.items()}


def _median(figures: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, figures)) else statistics.median(figures)


def _line(number: object, figures: list[list[float]]) -> str:
    told = " | ".join(f"{wall:.2f} / {cpu:.2f}" for wall, cpu, *_ in figures)
    return f"| {number} | {told} | {figures[0][0] / figures[1][0]:.2f} | {figures[0][0] / figures[2][0]:.2f} |"


def different(answers: dict[str, list[list[Any]]], names: list[str], spark: str = "Spark") -> str:
    """Queries of which some contender has other rows than Spark, with the contender. ``spark``: the contender to compare with."""
    theirs = {one[0]: one[4] for one in answers[spark][0]}
    found = [
        f"{one[0]} ({name})"
        for name in names
        for one in answers[name][0]
        if one[4] and theirs[one[0]] and one[4] != theirs[one[0]] and name != spark
    ]
    return ", ".join(found) or "none"
