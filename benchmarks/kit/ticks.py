"""Work that only waits, in pieces of a millisecond, and sessions to do it in on a standalone cluster.

Pieces so small that a process which is stopped nine tenths of the time takes ten times as long, and so idle that three
nodes fit on two cores. Equal by construction: the same number of pieces for each subtask.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.kit.data import BASE
from firesteel import Split

ROOT = Path(__file__).resolve().parents[2]
PIECE = 0.001
BYTES = 1 << 16
"""Plain bytes that a source of ticks says one tick has."""
SCHEMA = pa.schema([("v", pa.int64())])
QUIET = {"firesteel.progress": "false", "firesteel.storage.directory": str(BASE / "storage")}
"""Options of every environment on a cluster."""


def tick(count: int) -> None:
    for _ in range(count):
        time.sleep(PIECE)


class Ticks:
    """A source: subtask ``i`` ticks ``counts[i]`` times and gives one row, its number.

    ``stamps``: a directory in which each attempt leaves a file when it starts, named ``subtask attempt host``, with the
    time of day in it. ``stuck``: attempts below this number of subtask 0 never end by themselves.
    """

    name = "ticks"
    schema = SCHEMA
    supports_concurrent_execution_attempts = True

    def __init__(self, counts: Sequence[int], stamps: Path | None = None, stuck: int = 0) -> None:
        self.counts, self.stamps, self.stuck = list(counts), stamps, stuck

    def infer_parallelism(self, upper_bound: int, data_volume: int) -> int:
        return len(self.counts)

    def list_splits(self, data_volume: int) -> list[Split]:
        return [Split((i, n), n * BYTES, f"{n} ticks") for i, n in enumerate(self.counts)]

    def read(self, split: tuple[int, int], ctx: Any) -> Iterator[pa.RecordBatch]:
        subtask, count = split
        if self.stamps is not None:
            name = f"{subtask} {ctx.attempt} {os.environ.get('SPARK_LOCAL_IP')}"
            hidden = self.stamps / f".{name}"
            hidden.write_text(str(time.time()))
            hidden.rename(self.stamps / name)
        if subtask == 0 and ctx.attempt < self.stuck:
            time.sleep(3600)
        tick(count)
        yield pa.RecordBatch.from_arrays([pa.array([subtask], pa.int64())], schema=SCHEMA)


def per_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same work for PySpark: column ``id`` numbers the subtask, ``ticks`` says how often."""
    for batch in batches:
        for subtask, count in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            tick(count)
            yield pa.RecordBatch.from_arrays([pa.array([subtask], pa.int64())], schema=SCHEMA)


def conf(slots: int) -> dict[str, str]:
    """One slot on each of ``slots`` nodes; nothing starts before all are there."""
    return {
        "spark.cores.max": str(slots),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }


def environment(master: str, slots: int, options: Mapping[str, Any], more: Mapping[str, str] | None = None) -> Any:
    """An ExecutionEnvironment on a session of its own."""
    from firesteel import ExecutionEnvironment
    from firesteel.spark.session.sessions import create_session

    session = create_session(master, "firesteel benchmark", {**conf(slots), **(more or {})})
    return ExecutionEnvironment(spark=session, options={**QUIET, **options})


def spark_session(master: str, slots: int, settings: Mapping[str, str]) -> Any:
    """PySpark as it comes, but for where it runs and what it prints."""
    import sys

    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.showConsoleProgress", "false")
    for key, value in {**conf(slots), **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def answer(rows: Sequence[int]) -> list[float]:
    return [float(len(rows)), float(sum(rows))]
