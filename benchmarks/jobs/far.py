"""Benchmark 22 once more: queries of TPC-H on Parquet files behind an S3 server on loopback that answers each request after 20 ms.

Firesteel, in stages, and Sail read from the store. Tuned Spark reads the same files from the disk, without a pause. The
package lacks Spark's S3 client, and the store would take Spark longer than the disk.

``FIRESTEEL_SQL_SCALE`` (10; 1), ``FIRESTEEL_SQL_QUERIES`` (``1,6,9``), ``FIRESTEEL_BENCHDATA``. The seconds are medians;
requests are those of one query.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.jobs.sql import (
    CHOSEN,
    READING_SCALE,
    TUNED,
    TUNED_SPARK,
    _session,
    data,
    different,
    medians,
    sail,
    tables,
    viewed,
)
from benchmarks.kit import data as kept
from benchmarks.kit.asking import asks
from benchmarks.kit.far import BUCKET, counted, far_store
from benchmarks.kit.harness import Contender, alternate

SECONDS = 0.02
QUERIES = (1, 6, 9)
MOUNTED = {
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
    "spark.hadoop.fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
}
"""Spark knows no S3 here. It finds the names and the schemas of ``s3:`` files in the folder that the store serves."""


def spark_of(home: str, settings: dict[str, str]) -> Any:
    """A session with a view for each table, by its URL in the store."""
    folder = {f"spark.hadoop.fs.viewfs.mounttable.{BUCKET}.linkFallback": f"file://{home}"}
    return viewed(_session(settings | MOUNTED | folder), places(home))


def places(home: str) -> dict[str, str]:
    return {name: f"s3://{BUCKET}/{Path(place).name}" for name, place in tables(Path(home)).items()}


def texts() -> list[tuple[int, str]]:
    CHOSEN[:] = CHOSEN or QUERIES
    return [(number, pair[1]) for number, pair in data("groups")[1].items()]


def firesteel(home: str) -> Callable[[], list[Any]]:
    from firesteel import ExecutionEnvironment

    spark = spark_of(home, {})
    env = ExecutionEnvironment(spark=spark, options={"firesteel.progress": False, "firesteel.run.in-process": "never"})
    return asks(texts(), counted(lambda text: env.from_dataframe(spark.sql(text)).to_arrow()))


def pyspark(home: str) -> Callable[[], list[Any]]:
    spark = spark_of(home, TUNED)
    return asks(texts(), lambda text: (spark.sql(text).toArrow(), math.nan))


def main(runs: int, only: str) -> None:
    home = str(kept.tpch(READING_SCALE))
    entered = [
        Contender("Firesteel", f"{__name__}:firesteel", {"home": home}),
        Contender(TUNED_SPARK, f"{__name__}:pyspark", {"home": home}),
        *sail(tables=places(home), queries=texts(), far=True),
    ]
    with far_store(Path(home), SECONDS) as variables:
        os.environ.update(variables)
        answers = alternate([one for one in entered if only in ("", one.name)], runs=runs, warmup=0, both_orders=True)
    print(_table(runs, answers), flush=True)


def _table(runs: int, answers: dict[str, list[list[Any]]]) -> str:
    names = list(answers)
    found = {name: medians(answers[name]) for name in names}
    lines = [
        f"### far: TPC-H at scale {READING_SCALE:g}, {SECONDS * 1000:.0f} ms a request, medians of {runs}",
        "",
        f"| query | {' | '.join(f'{name}: s / CPU s / requests' for name in names)} |",
        "|---" * (1 + len(names)) + "|",
    ]
    for number in found[names[0]]:
        lines.append(f"| {number} | {' | '.join(_figures(found[name][number]) for name in names)} |")
    lines.append(f"| all | {' | '.join(_figures(_sums(found[name].values())) for name in names)} |")
    return "\n".join([*lines, "", f"Other rows: {different(answers, names, names[0])}.", ""])


def _sums(rows: Iterable[list[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*rows, strict=True)]


def _figures(told: list[float]) -> str:
    wall, cpu, requests = told
    return f"{wall:.2f} / {cpu:.2f} / {'no store' if math.isnan(requests) else format(requests, '.0f')}"
