"""A sink that was made and never executed is told of as the script ends, and nowhere else."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from firesteel import ExecutionEnvironment

def main(how):
    env = ExecutionEnvironment()
    env.from_collection([(1,)], "n int").write_parquet("out")
    if how == "raise":
        raise ValueError("no")
    if how == "close":
        env.close()

main(sys.argv[1])
"""
SENTENCE = (
    "firesteel: warning: step 'write_parquet(out)' at script.py:7 was never executed, so nothing was written. "
    "Call execute() after the last sink.\n"
)


@pytest.mark.parametrize(
    ("how", "command", "code", "said"),
    [
        ("forget", [], 0, SENTENCE),
        ("raise", ["-m", "firesteel", "run"], 1, ""),
        pytest.param("close", [], 0, "", marks=pytest.mark.full),
    ],
)
def test_a_sink_that_was_forgotten(tmp_path, how, command, code, said):
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, *command, "script.py", how], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr == said or (not said and "never executed" not in ended.stderr)
