"""A slow execution on a real Spark gets a mirror, and the mirror's rows are the ones that count."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.journal.file import read
from firesteel.report.fold import JobFold

pytestmark = pytest.mark.spark

SPECULATION = {
    "jobmanager.adaptive-batch-scheduler.speculative.enabled": True,
    "slow-task-detector.check-interval": "100 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
    "slow-task-detector.execution-time.baseline-ratio": 0.5,
}
SLEEP = 600.0
"""Seconds that only a mirror, or a killed Python worker, can spare the job."""


def sleeps_once(marker: Path):
    """Doubles ``n``; whoever is first to see row 0 stands still."""

    def double(batches):
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column("n").to_pylist()
            if 0 in numbers:
                try:
                    marker.touch(exist_ok=False)
                    time.sleep(SLEEP)
                except FileExistsError:
                    pass
            yield pa.record_batch({"n": pa.array([2 * n for n in numbers], pa.int64())})

    return double


@pytest.fixture
def speculating(spark, tmp_path):
    """An environment; at the end nothing of its jobs is left on the storage."""
    where = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    yield ExecutionEnvironment(spark, {**SPECULATION, **where, "firesteel.progress": False})
    assert [path for path in (tmp_path / "storage").rglob("*") if path.is_file()] == []


def test_the_mirror_of_a_subtask_that_stands_still_wins(speculating, tmp_path):
    numbers = speculating.from_collection([{"n": n} for n in range(40)], "n bigint").set_parallelism(4)
    doubled = numbers.map_in_arrow(sleeps_once(tmp_path / "marker"), "n bigint").set_parallelism(4)
    doubled.write_parquet(tmp_path / "out")
    began = time.monotonic()
    result = speculating.execute("one stands still")
    assert time.monotonic() - began < SLEEP
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == [2 * n for n in range(40)]
    (attempts,) = JobFold(read(result.journal)).lives().values()
    original, *mirrors = attempts
    (winner,) = [attempt for attempt in attempts if attempt.won]
    assert winner in mirrors and winner.is_mirror and original.state in ("CANCELING", "CANCELED")
    assert "(a mirror) on " in result.explain() and "and won" in result.explain()
