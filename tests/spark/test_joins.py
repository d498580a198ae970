"""A join with a heavy key on a real Spark where one of those that share the key stands still: its mirror reads the same part."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from oracle import assert_same_rows, duckdb_answer

pytestmark = [pytest.mark.spark, pytest.mark.full]

HEAVY = 7
SLEEP = 120.0
"""Seconds that only a mirror can spare the job."""
OPTIONS = {
    "jobmanager.adaptive-batch-scheduler.speculative.enabled": True,
    "slow-task-detector.check-interval": "100 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
    "slow-task-detector.execution-time.baseline-ratio": 0.5,
    "data-volume-per-task": "60 kb",
    "firesteel.decider.least-volume-per-slot": 0,
    "max-parallelism": 12,
    "firesteel.progress": False,
}


def stands_still_once(marker: Path):
    """The same rows; whoever is first to see the heavy key waits."""

    def same(batches):
        for batch in batches:
            if HEAVY in batch.column("k").to_pylist():
                try:
                    marker.touch(exist_ok=False)
                    time.sleep(SLEEP)
                except FileExistsError:
                    pass
            yield batch

    return same


@pytest.mark.parametrize(("how", "kind"), [("inner", "JOIN"), ("left", "LEFT JOIN")])
def test_a_mirror_reads_the_part_of_the_one_that_stands_still(spark, tmp_path, how, kind):
    rng = np.random.default_rng(5)
    keys = np.where(rng.random(25_000) < 0.6, HEAVY, rng.integers(100, 400, 25_000))
    left = pa.table({"k": keys, "v": np.arange(25_000)})
    right = pa.table({"k": [HEAVY, HEAVY, *range(90, 300)], "w": np.arange(212)})
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    env = ExecutionEnvironment(spark, {**OPTIONS, **places})
    sides = [env.from_arrow(table).key_by("k") for table in (left, right)]
    joined = sides[0].join(sides[1], how)
    joined.map_in_arrow(stands_still_once(tmp_path / "marker"), joined.schema).write_parquet(tmp_path / "out")
    began = time.monotonic()
    result = env.execute("one stands still")
    assert time.monotonic() - began < SLEEP / 2
    assert any("divided: subpartition" in d.reason for d in result.decision_records)
    assert "(a mirror) on " in result.explain()
    wanted = duckdb_answer(f"SELECT l.k, l.v, r.w FROM l {kind} r ON l.k = r.k", l=left, r=right)
    assert_same_rows(pq.read_table(tmp_path / "out"), wanted)
