"""``firesteel run --local``: a whole script in this process, without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from firesteel import ExecutionEnvironment

env = ExecutionEnvironment()
numbers = env.from_collection([{"n": n} for n in range(5000)])
print(numbers.count(), len(numbers.take(2)), numbers.first(), len(numbers.collect()))
numbers.filter(lambda row: row.n < 2).write_parquet("out").name("small")
result = env.execute("numbers")
print(result.explain(), result.journal, result.decisions.num_rows, result.vertices.num_rows)
if "spark" in sys.argv:
    env.spark
if "fail" in sys.argv:
    def invert(row):
        return 1 / row.n
    numbers.map(invert, "n double").show()
print([name for name in ("pyspark", "py4j") if name in sys.modules])
"""
SMALL = """\
small would get 2 rows; nothing is written:
+---+
| n |
+---+
| 0 |
| 1 |
+---+
numbers: computed in this process, each step in one subtask; nothing was decided. None 0 0
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "count_numbers.py").write_text(SCRIPT)

    def run(*arguments):
        command = [sys.executable, "-m", "firesteel", "run", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_actions_and_sinks_are_computed_on_the_first_rows(run, tmp_path):
    done = run("--local", "count_numbers.py")
    assert (done.stdout, done.stderr) == ("1000 2 {'n': 0} 1000\n" + SMALL + "[]\n", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_the_rows_are_as_many_as_are_asked_for(run):
    assert run("--local", "--rows", "7", "count_numbers.py").stdout.startswith("7 2 {'n': 0} 7\n")
    assert run("--local", "--rows", "all", "count_numbers.py").stdout.startswith("5000 2 {'n': 0} 5000\n")


def test_a_failing_function_ends_the_script_as_its_own_error(run):
    done = run("--local", "count_numbers.py", "fail")
    assert done.returncode == 1
    assert "in invert\n    return 1 / row.n" in done.stderr
    assert "ZeroDivisionError: division by zero\nfiresteel: The function of step 'map(invert)' raised" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--local", "count_numbers.py", "spark"],
            "This needs a Spark session, which a run with --local does without.",
        ),
        pytest.param(
            ["--rows", "3", "count_numbers.py"],
            "--rows says on how many rows --local computes. Write --local --rows N.",
            marks=pytest.mark.full,
        ),
        pytest.param(
            ["--local", "--rows", "x", "count_numbers.py"],
            "--rows x is not a valid whole number.",
            marks=pytest.mark.full,
        ),
        pytest.param(["--verify", "count_numbers.py"], "Write --accelerate --verify.", marks=pytest.mark.full),
        pytest.param(
            ["--local", "--accelerate", "count_numbers.py"],
            "--accelerate is for scripts of Spark",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_does_not_go_together_is_refused(run, arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
