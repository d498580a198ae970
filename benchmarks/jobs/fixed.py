"""Benchmark 22, too: queries of TPC-H in stages, adaptive against every step with one fixed parallelism; uniform, and with one key of 60 %.

Joins, runtime filters and all else stay adaptive, so that the parallelism alone is compared.

``FIRESTEEL_SQL_SCALE`` (10; 1), ``FIRESTEEL_SQL_QUERIES`` (``3,9,13,18,21``), ``--only uniform`` or ``heavy``, ``FIRESTEEL_BENCHDATA``.
All settings take turns within one Spark, which is warm after the first, uncounted, round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.jobs.sql import CHOSEN, READING_SCALE, _session, data, tables, viewed
from benchmarks.kit import data as kept
from benchmarks.kit.harness import Contender, alternate

FIXED = (2, 4, 8)
QUERIES = (3, 9, 13, 18, 21)
BOUNDS = [
    f"jobmanager.adaptive-batch-scheduler.{name}"
    for name in ("min-parallelism", "max-parallelism", "default-source-parallelism")
]


def settings() -> dict[str, dict[str, object]]:
    return {"adaptive": {}} | {f"fixed {n}": dict.fromkeys(BOUNDS, n) for n in FIXED}


def firesteel(shape: str) -> Callable[[], list[Any]]:
    """A run is a round of all settings for each query; it gives [query, setting, seconds] of each."""
    from firesteel import ExecutionEnvironment

    spark = _session({})
    home = kept.tpch(READING_SCALE) if shape == "uniform" else kept.tpch_heavy(READING_SCALE)
    viewed(spark, tables(home))
    common = {"firesteel.progress": False, "firesteel.run.in-process": "never"}
    environments = {
        name: ExecutionEnvironment(spark=spark, options=common | options) for name, options in settings().items()
    }
    turns = list(environments.items())
    CHOSEN[:] = CHOSEN or QUERIES
    texts = data("groups")[1]

    def run() -> list[Any]:
        told: list[Any] = []
        for query in CHOSEN:
            expected = None
            turns.reverse()  # the first one finds caches that another query has emptied
            for name, env in turns:
                began = time.perf_counter()
                answer = env.from_dataframe(spark.sql(texts[query][1])).to_arrow()
                told.append([query, name, time.perf_counter() - began])
                expected = answer.num_rows if expected is None else expected
                assert answer.num_rows == expected, f"query {query}, {name}: other rows"
        return told

    return run


def main(runs: int, only: str) -> None:
    for shape in ("uniform", "heavy"):
        if only in {"", shape}:
            answers = alternate(
                [Contender("Firesteel", f"{__name__}:firesteel", {"shape": shape})], runs=runs, warmup=0
            )
            print(_table(shape, runs, answers["Firesteel"]), flush=True)


def _table(shape: str, runs: int, answers: list[list[Any]]) -> str:
    names, queries = list(settings()), CHOSEN or QUERIES
    medians = {
        (query, name): statistics.median(s for run in answers for q, n, s in run if (q, n) == (query, name))
        for query in queries
        for name in names
    }
    totals = {name: sum(medians[query, name] for query in queries) for name in names}
    lines = [f"### fixed: {shape}, scale {READING_SCALE:g}, medians of {runs}", ""]
    lines += [f"| query | {' | '.join(names)} | adaptive to the best fixed |", f"|{'---|' * (len(names) + 2)}"]
    rows = {str(query): {name: medians[query, name] for name in names} for query in queries} | {"all": totals}
    for label, row in rows.items():
        best = min(row[name] for name in names[1:])
        told = " | ".join(f"{row[name]:.2f}" for name in names)
        lines.append(f"| {label} | {told} | {row['adaptive'] / best:.2f} |")
    return "\n".join([*lines, ""])
