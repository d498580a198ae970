"""A given session without task retries: the whole Spark job ends with one dying worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.full]


def test_where_spark_ends_the_whole_job_only_the_culprit_has_failed(tmp_path):
    """A given session on a local master has no task retries: Spark gives the job up with the first task that fails."""
    script = Path(__file__).with_name("given_session.py")
    variables = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=variables,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["values"] == list(range(60))
    assert told["failed"] == [0] and told["canceled"] == [1, 2, 3, 4, 5] and told["restarts"] == 1
    lines = [line for line in told["report"].splitlines() if "attempt 1" in line]
    assert len(lines) == 6 and not any("?" in line for line in lines)
    assert "failed after" in lines[0] and "A Python worker died" in lines[0]
    assert "was cancelled after" in lines[1] and lines[1].endswith("Spark ended its whole job when subtask 0 failed")
    # Spark may give the free slot to one more before it has read why the first one failed
    assert all(line.strip().startswith("never") for line in lines[3:]), "these were queued"
    assert "5 subtasks to be sent again, not counted as a restart" in told["explained"]
    assert told["alone"] == [[0], [], 60], "standing tasks are Spark jobs of their own"
    assert "A Python worker died" in told["died"]
    assert told["unix"] == ["True", None], "our workers speak over Unix sockets, those of others as before"
    assert told["preloaded"] == [True, False], "our workers begin with all imported, and what they start does not"
    assert not told["changed"]
