"""Drivers that are interrupted or killed, as processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firesteel.spark.driver.runtime import submit
from runtime_support import left_behind, options, two_steps

pytestmark = pytest.mark.spark


def start(folder: Path) -> subprocess.Popen:
    script = Path(__file__).with_name("interrupted.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 600
    while not list(folder.glob("running-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


@pytest.mark.full
def test_ctrl_c_ends_the_driver_soon_with_a_sentence_and_leaves_nothing(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "told: The job 'two steps' was interrupted" in out
    assert "Traceback" not in err
    assert left_behind(tmp_path) == []


@pytest.mark.full
def test_what_a_killed_driver_left_is_removed_by_the_next_job(spark, tmp_path):
    process = start(tmp_path)
    process.kill()
    process.communicate(timeout=600)
    assert any(name.endswith(".owner.json") for name in left_behind(tmp_path))
    outcome = submit(two_steps(splits=1, rows=10), spark, options(tmp_path)).result()
    assert outcome.error is None
    outcome.close()
    assert left_behind(tmp_path) == []


@pytest.mark.full
def test_a_setting_that_spark_refuses_is_told_in_its_words():
    code = 'from firesteel.spark.session.sessions import create_session as c; c("local[1]", conf={"spark.network.timeout": "30s"})'
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (
        "UsageError: Spark did not start on 'local[1]': requirement failed: spark.network.timeoutInterval" in ran.stderr
    )
