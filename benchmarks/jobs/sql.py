"""Benchmark 22: the queries of TPC-H, and of TPC-DS, written for Spark: Firesteel in process and in stages, Spark's adaptive execution, DuckDB alone.

Each contender is a process of its own with two cores; each run asks all queries, one after another. Planning by Catalyst counts. Spark comes
with its defaults, and tuned: with four partitions, which fill the cores. All answers must have the same rows. A query that a contender
cannot answer (Spark runs out of memory) is told, and left out of every total.

``groups`` and ``files`` are six queries of TPC-H at scale 10, with one file of many row groups for each table, and with ``lineitem`` in 1,000
files of one row group. There Sail competes in an environment of its own, and Spark only tuned.

``FIRESTEEL_SQL_SCALE`` (1, or 10), ``FIRESTEEL_SQL_QUERIES`` (``1,6,18``; all), ``FIRESTEEL_SQL_WITHOUT`` (``Spark;Spark, tuned``: contenders
that are left out), ``FIRESTEEL_BENCHDATA`` (``.benchdata``: the folder of what ``groups`` and ``files`` read), ``--only tpch``, ``tpcds``,
``groups`` or ``files``.
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

from benchmarks.kit import data as kept
from benchmarks.kit.asking import Asked, asks
from benchmarks.kit.harness import Contender, alternate
from benchmarks.kit.peers import PeerMissing, python_of

SCALE = float(os.environ.get("FIRESTEEL_SQL_SCALE", "1"))
READING_SCALE = float(os.environ.get("FIRESTEEL_SQL_SCALE", "10"))
READING_QUERIES = (1, 3, 6, 9, 13, 18)
CHOSEN = [int(word) for word in os.environ.get("FIRESTEEL_SQL_QUERIES", "").split(",") if word]
WITHOUT = os.environ.get("FIRESTEEL_SQL_WITHOUT", "").split(";")
MASTER = "local[2]"
FIRESTEEL, STAGES, SPARK, TUNED_SPARK, DUCKDB = "Firesteel", "Firesteel, in stages", "Spark", "Spark, tuned", "DuckDB"
TUNED = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
}


def data(suite: str) -> tuple[Path, dict[int, tuple[str, str]]]:
    """The folder of tables, and the queries by number, in DuckDB's and in Spark's SQL."""
    if suite == "tpcds":
        return tpcds(SCALE)
    lines = (Path(__file__).resolve().parents[2] / "tests" / "tpch.sql").read_text().splitlines()[1:]
    queries = {i: (line, line) for i, line in enumerate(lines, 1)}
    if suite == "tpch":
        return tpch(SCALE, parts=8, row_group_bytes="16MB"), queries
    home = kept.tpch(READING_SCALE) if suite == "groups" else kept.tpch_in_files(READING_SCALE)
    return home, {number: queries[number] for number in CHOSEN or READING_QUERIES}


def tables(home: Path) -> dict[str, str]:
    """By name, the file or the folder of each table."""
    return {entry.stem: str(entry) for entry in sorted(home.iterdir()) if entry.is_dir() or entry.suffix == ".parquet"}


def _session(settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    given = {"spark.ui.enabled": "false", "spark.driver.memory": "6g", "spark.sql.session.timeZone": "UTC", **settings}
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.master(MASTER).getOrCreate()


def _with_views(suite: str, settings: dict[str, str]) -> Any:
    return viewed(_session(settings), tables(data(suite)[0]))


def viewed(spark: Any, tables: dict[str, str]) -> Any:
    """``tables``: by name, the place of each."""
    for name, place in tables.items():
        spark.read.parquet(place).createOrReplaceTempView(name)
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
    for name, place in tables(data(suite)[0]).items():
        files = f"{place}/*.parquet" if Path(place).is_dir() else place
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")

    def ask(text: str) -> tuple[pa.Table, float]:
        return con.sql(text).to_arrow_table(), math.nan

    return _run(suite, ask, dialect=0)


def _run(suite: str, ask: Asked, dialect: int = 1) -> Callable[[], list[Any]]:
    return asks(asked(suite, dialect), ask)


def asked(suite: str, dialect: int = 1) -> list[tuple[int, str]]:
    _, queries = data(suite)
    return [(number, queries[number][dialect]) for number in CHOSEN or sorted(queries)]


def contenders(suite: str) -> list[Contender]:
    entered = [
        Contender(STAGES, f"{__name__}:firesteel", {"suite": suite}),
        Contender(TUNED_SPARK, f"{__name__}:pyspark", {"suite": suite, "settings": TUNED}),
        Contender(DUCKDB, f"{__name__}:duckdb", {"suite": suite}),
    ]
    if suite in {"tpch", "tpcds"}:
        entered.insert(0, Contender(FIRESTEEL, f"{__name__}:accelerated", {"suite": suite}))
        entered.insert(2, Contender(SPARK, f"{__name__}:pyspark", {"suite": suite, "settings": {}}))
    else:
        entered += sail(tables=tables(data(suite)[0]), queries=asked(suite))
    return [one for one in entered if one.name not in WITHOUT]


def sail(**work: Any) -> list[Contender]:
    """``work``: what ``sail_queries`` takes. Says why there is none where it cannot be installed."""
    try:
        return [Contender("Sail", "benchmarks.kit.peers:sail_queries", work, python=python_of("sail"))]
    except PeerMissing as error:
        print(f"Sail is missing: {error}", flush=True)
        return []


def main(runs: int, only: str) -> None:
    for suite in ("tpch", "tpcds", "groups", "files"):
        if not only or only == suite:
            _suite(suite, runs)


def _suite(suite: str, runs: int) -> None:
    data(suite)
    entered = contenders(suite)
    answers = alternate(entered, runs=runs, warmup=0, both_orders=True)  # the cold run asks all queries
    names = [c.name for c in entered]
    per_query = {name: medians(answers[name]) for name in names}
    lines = [_line(number, [per_query[name][number] for name in names]) for number in per_query[names[0]]]
    failed = sorted({n for told in per_query.values() for n, one in told.items() if math.isnan(one[0])})
    counted = [number for number in per_query[names[0]] if number not in failed]
    totals = [[sum(per_query[name][number][i] for number in counted) for i in (0, 1)] for name in names]
    planning = statistics.median(per_query[STAGES][number][2] for number in counted) if STAGES in names else math.nan
    expected = next(one for one in (TUNED_SPARK, DUCKDB) if one in names)
    figures = " | ".join(f"{name}: s / CPU s" for name in names)
    head = f"| query | {figures} | {' | '.join(f'to {name}' for name in names[1:])} |"
    scale = SCALE if suite in {"tpch", "tpcds"} else READING_SCALE
    print(f"### sql: {suite}, scale {scale:g}, {MASTER}, medians of {runs}\n\n{head}\n|{'---|' * (2 * len(names))}")
    print("\n".join([*lines, _line("all", totals)]))
    print(
        f"\nPlanning: median {planning * 1000:.0f} ms. Other rows than {expected}'s: {different(answers, names, expected)}. "
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
    ratios = " | ".join(f"{figures[0][0] / wall:.2f}" for wall, *_ in figures[1:])
    return f"| {number} | {told} | {ratios} |"


def different(answers: dict[str, list[list[Any]]], names: list[str], spark: str = SPARK) -> str:
    """Queries of which some contender has other rows than Spark, with the contender. ``spark``: the contender to compare with."""
    theirs = {one[0]: one[4] for one in answers[spark][0]}
    found = [
        f"{one[0]} ({name})"
        for name in names
        for one in answers[name][0]
        if one[4] and theirs[one[0]] and one[4] != theirs[one[0]] and name != spark
    ]
    return ", ".join(found) or "none"
