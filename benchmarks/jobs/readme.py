"""The README's table: Firesteel, Spark, Sail, Daft and DuckDB in three cases, in one run on this machine.

``./dev bench readme --write`` puts the table into README.md, between its marks. On a machine with more cores all contenders get two of
them (``FIRESTEEL_README_CORES``). ``FIRESTEEL_SQL_SCALE``, ``FIRESTEEL_SQL_QUERIES``: as for the benchmark ``sql``. ``--only tpch`` or
``--only function``: this half alone, which is not written.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tools.docs import replace_part

from benchmarks.jobs import exchange, sql
from benchmarks.kit import data
from benchmarks.kit.functions import NEEDED
from benchmarks.kit.harness import Contender, alternate, compete
from benchmarks.kit.peers import PACKAGES, PeerMissing, python_of

CORES = int(os.environ.get("FIRESTEEL_README_CORES", "2"))
README = Path(__file__).resolve().parents[2] / "README.md"
MARK = "bench readme"
SCRIPT, STEPS, TUNED, SPARK = (
    "Firesteel, the script unchanged",
    "Firesteel's own steps",
    "Spark, tuned",
    "Spark, defaults",
)
SAIL, DAFT, DUCKDB = "Sail", "Daft", "DuckDB"
ROWS = (SCRIPT, STEPS, TUNED, SPARK, SAIL, DAFT, DUCKDB)
ONE_SCAN = 6


class Spent(NamedTuple):
    """Medians in seconds. ``failed``: queries without an answer, which count nowhere."""

    wall: float
    cpu: float
    failed: int = 0

    def __str__(self) -> str:
        left = f", without {self.failed} of the queries" if self.failed else ""
        return f"{_number(self.wall)} ({_number(self.cpu)}){left}"


def _number(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 20 else f"{seconds:.1f}" if seconds >= 2 else f"{seconds:.2f}"


def main(runs: int, only: str, *, write: bool = False) -> None:
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, usable[:CORES])
    missing: dict[str, str] = {}
    pythons = {name: _python(peer, missing) for name, peer in ((SAIL, "sail"), (DAFT, "daft"))}
    half = {"tpch": {}, "function": {}}
    if only in ("", "tpch"):
        half["tpch"] = _tpch(runs, pythons[SAIL])
    if only in ("", "function"):
        half["function"] = _function(runs, pythons)
    told = table(half["tpch"], half["function"], missing, runs)
    print(told, flush=True)
    if write and not only:
        README.write_text(replace_part(README.read_text(), MARK, told))


def _python(peer: str, missing: dict[str, str]) -> str | None:
    try:
        return python_of(peer)
    except PeerMissing as error:
        missing[peer] = str(error)
        return None


def _tpch(runs: int, sail: str | None) -> dict[str, list[Spent]]:
    """By contender: all queries, and the one of a single scan."""
    home, _ = sql.data("tpch")
    entered = [
        Contender(SCRIPT, "benchmarks.jobs.sql:accelerated", {"suite": "tpch"}),
        Contender(TUNED, "benchmarks.jobs.sql:pyspark", {"suite": "tpch", "settings": sql.TUNED}),
        Contender(SPARK, "benchmarks.jobs.sql:pyspark", {"suite": "tpch", "settings": {}}),
        Contender(DUCKDB, "benchmarks.jobs.sql:duckdb", {"suite": "tpch"}),
    ]
    if sail is not None:
        work = {"tables": sql.tables(home), "queries": sql.asked("tpch")}
        entered.append(Contender(SAIL, "benchmarks.kit.peers:sail_queries", work, python=sail))
    answers = alternate(entered, runs=runs, warmup=0, both_orders=True)  # the cold run asks all queries
    print(f"Other rows than Spark's: {sql.different(answers, [c.name for c in entered], SPARK)}.\n", flush=True)
    return {c.name: [total(sql.medians(answers[c.name]), only) for only in (None, ONE_SCAN)] for c in entered}


def total(queries: dict[int, list[float]], only: int | None) -> Spent:
    chosen = [one for number, one in queries.items() if only in (None, number)]
    counted = [one for one in chosen if not math.isnan(one[0])]
    return Spent(sum(one[0] for one in counted), sum(one[1] for one in counted), len(chosen) - len(counted))


def _function(runs: int, pythons: dict[str, str | None]) -> dict[str, list[Spent]]:
    case = {"case": "groupby"}
    entered = [
        Contender(SCRIPT, "benchmarks.kit.cases:accelerated", case),
        Contender(STEPS, "benchmarks.kit.cases:firesteel", case),
        Contender(TUNED, "benchmarks.kit.cases:pyspark", {**case, "conf": exchange.TUNED}),
        Contender(SPARK, "benchmarks.kit.cases:pyspark", case),
        Contender(DUCKDB, "benchmarks.kit.cases:duckdb", case),
    ]
    for name, target in ((SAIL, "sail_function"), (DAFT, "daft_function")):
        python = pythons[name]
        if python is not None:
            path = str(data.without_views(1) if name == DAFT else data.tpch(1) / "lineitem.parquet")
            work = {"path": path, "columns": list(NEEDED)}
            entered.append(Contender(name, f"benchmarks.kit.peers:{target}", work, python=python))
    compete(entered, runs=runs)
    return {c.name: [Spent(c.median, statistics.median(c.cpu))] for c in entered}


def table(tpch: dict[str, list[Spent]], function: dict[str, list[Spent]], missing: dict[str, str], runs: int) -> str:
    """Markdown. ``missing``: why a peer is not installed."""
    lines = [
        f"| seconds (CPU seconds) | TPC-H at scale {sql.SCALE:g}: {_asked()} | query {ONE_SCAN} of them: a single scan "
        "| a Python function on the rows of `lineitem`, then sums by key |",
        "|---|---|---|---|",
    ]
    for name in ROWS:
        cells = [*tpch.get(name, [None, None]), *function.get(name, [None])]
        why = missing.get(name.lower())
        shown = [str(cell) if cell is not None else "not installed" if why else "-" for cell in cells]
        if name == DUCKDB and function:
            shown[2] += ", as SQL"
        lines.append(f"| {_named(name)} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", _machine(runs), *missing.values()])


def _asked() -> str:
    return f"{len(sql.CHOSEN)} queries" if sql.CHOSEN else "22 queries of SQL"


def _named(name: str) -> str:
    packages: Sequence[str] = PACKAGES.get(name.lower(), ())
    if packages:
        return f"{name} {packages[0].partition('==')[2]}"
    return {SCRIPT: f"**{name}**", STEPS: f"**{name}**", DUCKDB: f"{name} {version('duckdb')}"}.get(name, name)


def _machine(runs: int) -> str:
    cores, all_cores = len(os.sched_getaffinity(0)), os.cpu_count()
    return (
        f"Medians of {runs} warm runs in turns, {date.today():%Y-%m-%d}: {cores} of {all_cores} cores ({_processor()}), "
        f"Spark {version('pyspark')}, Python {platform.python_version()}."
    )


def _processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return names[0] if names else platform.machine()
