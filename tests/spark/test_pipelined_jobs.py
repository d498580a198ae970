"""A pipelined job that cannot be is refused by the command line."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.spark
PIPELINED = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}


@pytest.mark.full
def test_an_all_to_all_exchange_is_refused_by_the_command_line(tmp_path):
    (tmp_path / "job.py").write_text(
        textwrap.dedent(
            """
            from firesteel import ExecutionEnvironment

            env = ExecutionEnvironment.get_or_create()
            rows = env.from_collection([{"k": 1}]).name("numbers")
            rows.key_by("k").aggregate({"n": ("k", "count")}).name("counts").write_parquet("out")
            env.execute("refused")
            """
        )
    )
    options = [word for key, value in PIPELINED.items() for word in ("-O", f"{key}={value}")]
    shown = subprocess.run(
        [sys.executable, "-m", "firesteel", "run", "job.py", *options],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        check=False,
        timeout=600,
    )
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr and shown.stdout == ""
    assert "The exchange from 'numbers' (job.py:5) to 'counts -> write_parquet(out)' (job.py:6) (hash)" in shown.stderr
    assert "Set execution.batch-shuffle-mode = ALL_EXCHANGES_BLOCKING" in shown.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / ".firesteel").exists()
