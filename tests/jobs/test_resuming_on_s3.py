"""Jobs whose results and log lie on an object store: killed, taken over by one driver, and gone on with; a frozen driver that wakes up."""

from __future__ import annotations

import os
import signal

import pytest

from dying_kit import begun, ended, firesteel
from s3_server import files_of, new_bucket

pytestmark = pytest.mark.full

SCRIPT = """
import sys
from pathlib import Path

import pyarrow.parquet as pq

from dying_kit import dies_as_it_writes
from firesteel import ExecutionEnvironment
from firesteel.recovery.objects import SegmentLog
from plane.session import Session

FOLDER, STORAGE = Path(sys.argv[1]), sys.argv[2]
dies_as_it_writes(SegmentLog)


def began(batches):
    with open(FOLDER / "began", "a") as file:
        file.write("x")
    yield from batches


if __name__ == "__main__":
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(FOLDER / "journal"),
        "firesteel.storage.directory": STORAGE,
        "firesteel.recovery.mode": "on-request",
        "firesteel.decider.least-volume-per-slot": 0,
        "data-volume-per-task": "100 b",
    }
    env = ExecutionEnvironment(spark=Session(slots=2), options=options)
    for name in ("first", "second"):
        rows = env.from_collection([(k, k % 7) for k in range(70)], "x bigint, k bigint")
        sums = rows.key_by("k").aggregate({"x": "sum"}).map_in_arrow(began, "k bigint, x bigint")
        sums.write_parquet(FOLDER / "out", mode="append")
        env.execute(name)
    print(sorted(pq.read_table(FOLDER / "out")["x"].to_pylist()))
"""
EXPECTED = f"{sorted(2 * [sum(range(k, 70, 7)) for k in range(7)])}\n"


@pytest.fixture
def run(s3, tmp_path):
    """Begins a driver in a process of its own."""
    bucket, fs = new_bucket()
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)

    def begin(*flags, **environment):
        return begun(script, tmp_path, f"s3://{bucket}/r", flags=flags, **environment)

    begin.url = f"s3://{bucket}/r"
    begin.left = lambda: files_of(fs, f"{bucket}/r")
    return begin


def kept(run, command, *arguments):
    """Of what is kept there, as the command line tells."""
    return firesteel(command, *arguments, "-O", f"firesteel.storage.directory={run.url}")


@pytest.mark.parametrize(
    "dies", ["after group 3", "before group 7", "after publishing 1", "after over 1", "before published 2"]
)
def test_a_killed_driver(run, dies):
    assert ended(run(DIES=dies)).returncode == -9
    listed = kept(run, "results")
    assert "driver died" in listed or "began to publish" in listed, listed
    end = ended(run("--resume"))
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert run.left() == []


def test_a_frozen_driver_that_wakes_up_when_another_has_the_job(run):
    frozen = run(DIES="stops publishing 1")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    end = ended(run("--resume"))
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    os.kill(frozen.pid, signal.SIGCONT)
    end = ended(frozen)
    assert end.returncode == 1 and "another driver has taken the job over" in end.stderr, end.stderr


def test_what_is_kept_is_removed(run):
    assert ended(run(DIES="after group 3")).returncode == -9
    assert "Removed 1 thing" in kept(run, "clean", "--results", "--yes")
    assert run.left() == []


def test_an_undisturbed_run(run):
    end = ended(run())
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert run.left() == []
