"""The examples of docs/fine-grained-resources.md and docs/speculation.md, as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firesteel.api.environment import set_defaults
from firesteel.cli.main import given_options
from firesteel.cli.script import run_script

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTSIDE = ["-O", "slot-sharing-group.default.cpu-cores=1", "-O", "slot-sharing-group.default.task-heap-memory=1g"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The scripts write into the directory they are started in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield tmp_path
    set_defaults()


@pytest.mark.full
@pytest.mark.parametrize("outside", ["YAML", "command line"])
def test_a_pipeline_that_names_no_group_gets_resources_from_outside(spark, folder, capsys, outside):
    (folder / "code.py").write_text("one two\ntwo\n")
    if outside == "YAML":
        options = given_options(None, quiet=True, configs=[str(EXAMPLES / "resources.yaml")])
    else:
        options = given_options(OUTSIDE[1::2], quiet=True)
    set_defaults(options=options)
    assert run_script(EXAMPLES / "word_count.py", ["code.py"]) == 0
    assert pq.read_table(folder / "out/words").sort_by("word").to_pylist() == [
        {"word": "one", "n": 1},
        {"word": "two", "n": 2},
    ]
    needs = "512 MiB heap, 128 MiB managed" if outside == "YAML" else "1 GiB heap"
    told = capsys.readouterr().out
    assert f"    group        default: 1 core, {needs}" in told
    assert "core-seconds" in told and "that a worker may hold" in told


@pytest.mark.full
def test_a_pandas_step_has_its_own_memory(spark, folder, capsys):
    set_defaults(options={"firesteel.progress": False})
    assert run_script(EXAMPLES / "pandas_memory.py", []) == 0
    told = capsys.readouterr().out
    assert pq.read_table(folder / "out/trends").num_rows == 6
    assert "    group        streams: 1 core, 256 MiB heap" in told and "; [0]." in told
    assert "    group        wide: 1 core, 1 GiB heap, 128 MiB managed" in told and "; [1]." in told


def gpu_step(folder, addresses):
    command = [sys.executable, "-m", "firesteel", "run", "--quiet", str(EXAMPLES / "gpu_step.py")]
    variables = {**os.environ, "GPU_ADDRESSES": addresses}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, check=False, timeout=600)


@pytest.mark.full
def test_one_gpu_is_enough_and_without_any_a_sentence_says_so(folder):
    done = gpu_step(folder, "7")
    assert done.returncode == 0, done.stderr
    per_gpu = {row["gpu"]: row["documents"] for row in pq.read_table(folder / "out/documents-per-gpu").to_pylist()}
    assert per_gpu == {"7": 8} and "1 slot held at once at most" in done.stdout
    none = gpu_step(folder, "")
    assert none.returncode == 1 and none.stderr.startswith("There is no GPU here: nvidia-smi lists none.")
    assert "Traceback" not in none.stderr and "at org.apache" not in none.stderr


@pytest.mark.full
def test_each_gpu_is_given_to_one_subtask_at_a_time(folder):
    done = gpu_step(folder, "0 1")
    assert done.returncode == 0, done.stderr
    per_gpu = {row["gpu"]: row["documents"] for row in pq.read_table(folder / "out/documents-per-gpu").to_pylist()}
    assert sum(per_gpu.values()) == 8
    assert len(per_gpu) == 2, "both are used"
    assert "    group        gpu: 1 core, 1 GiB heap" in done.stdout
    assert "    held         external resources " in done.stdout and "the function of " in done.stdout
    assert "2 slots held at once at most" in done.stdout


@pytest.mark.full
def test_a_slow_task_detector_of_ones_own(folder):
    (folder / "code.py").write_text("one two\ntwo\n")
    command = [sys.executable, "-m", "firesteel", "run", "--quiet", str(EXAMPLES / "slow_tasks.py"), "code.py"]
    own = ["-O", "slow-task-detector.check-interval=10 ms", "-O", "firesteel.journal.directory=journal"]
    done = subprocess.run(
        [*command[:4], *own, *command[4:]], capture_output=True, text=True, cwd=folder, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "two" in done.stdout
    # its errors are its author's, and end the job, whose subtask runs until the detector has been asked
    asked = folder / "asked"
    own_error = f"import pathlib; pathlib.Path({str(asked)!r}).touch(); step.nothing"
    waits = f"import os, time\n    while not os.path.exists({str(asked)!r}): time.sleep(0.01)"
    broken = (EXAMPLES / "slow_tasks.py").read_text()
    broken = broken.replace("def baseline(self, step):", f"def baseline(self, step):\n        {own_error}")
    broken = broken.replace("def tokenize(batches):", f"def tokenize(batches):\n    {waits}")
    (folder / "broken.py").write_text(broken)
    done = subprocess.run(
        [*command[:4], *own, "broken.py", "code.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1
    assert "firesteel.slow-task-detector.function = '__main__:Throughput' raised AttributeError" in done.stderr
    assert "step.nothing" in done.stderr and "scheduler" not in done.stderr
