"""cache() and what lives on beside it: a lazy DataFrame, and nothing after the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from caching_kit import counted
from firesteel import ExecutionEnvironment

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(tmp_path):
    return tmp_path / "storage"


@pytest.fixture
def calls(tmp_path):
    """Counts how often the counted function below ran, over all processes."""
    folder = tmp_path / "calls"
    folder.mkdir()
    return folder


def doubled(env, calls, rows=10, until=None):
    numbers = env.from_collection([{"n": i} for i in range(rows)])
    return numbers.map_in_arrow(counted(calls, until), "n bigint")


def test_a_dataframe_outlives_the_cache_that_its_job_filled(env, calls, tmp_path):
    options = {**env.options, "firesteel.storage.directory": str(tmp_path / "until the process ends")}
    stream = doubled(ExecutionEnvironment(spark=env.spark, options=options), calls).cache()
    frame = stream.to_dataframe()
    assert stream.is_cached
    stream.uncache()
    assert frame.count() == 10


@pytest.mark.full
def test_nothing_is_left_when_the_process_ends(tmp_path):
    storage = tmp_path / "left"
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        from firesteel import ExecutionEnvironment
        env = ExecutionEnvironment(master="local[1]", options={{
            "firesteel.storage.directory": {str(storage)!r}, "firesteel.progress": False,
            "firesteel.journal.directory": {str(tmp_path / "journal")!r}}})
        stream = env.from_collection([1, 2, 3]).cache()
        assert stream.count() == 3 and stream.is_cached
        from pathlib import Path
        print(sum(p.is_file() for p in Path({str(storage)!r}).rglob("*")))
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 2  # its mark and an object
    assert [p for p in storage.rglob("*") if p.is_file()] == []
