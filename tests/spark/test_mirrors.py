"""A mirror starts within one task's time while its own job's work is queued, whatever way the session serves its jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.spark.placement.pools import ALL, BOUNDED
from mirrors_kit import check_that_the_mirror_did_not_queue, run_with_a_slow_one
from runtime_support import left_behind

pytestmark = [pytest.mark.spark, pytest.mark.full]

SPLITS = 10


def check(told, queue):
    assert told["queue"] == queue
    assert told["mirrors"][0][1:] == [0, 1]
    check_that_the_mirror_did_not_queue(told)
    assert [0, 0] not in [name for _, *name, _ in told["launches"]], "the slow one was waited for"


def test_in_a_session_of_ours_it_passes_all_that_is_queued(spark, tmp_path):
    check(json.loads(json.dumps(run_with_a_slow_one(spark, tmp_path, SPLITS))), ALL)


def test_in_a_fifo_session_nothing_is_queued_before_it(tmp_path):
    command = [sys.executable, __file__, str(tmp_path)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    check(json.loads(done.stdout.splitlines()[-1]), BOUNDED)
    assert not [name for name in left_behind(tmp_path) if name.endswith(".fsr")]


if __name__ == "__main__":
    from firesteel.spark.session.sessions import create_session

    given = create_session("local[2]", conf={"spark.scheduler.mode": "FIFO"})
    print(json.dumps(run_with_a_slow_one(given, Path(sys.argv[1]), SPLITS)))
    given.stop()
