"""The examples of docs/fine-grained-resources.md, as they stand."""

from __future__ import annotations

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


def test_a_pandas_step_has_its_own_memory(spark, folder, capsys):
    set_defaults(options={"firesteel.progress": False})
    assert run_script(EXAMPLES / "pandas_memory.py", []) == 0
    told = capsys.readouterr().out
    assert pq.read_table(folder / "out/trends").num_rows == 6
    assert "    group        streams: 1 core, 256 MiB heap" in told and "; [0]." in told
    assert "    group        wide: 1 core, 1 GiB heap, 128 MiB managed" in told and "; [1]." in told


def test_each_gpu_is_given_to_one_subtask_at_a_time(folder):
    command = [sys.executable, "-m", "firesteel", "run", "--quiet", str(EXAMPLES / "gpu_step.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    per_gpu = {row["gpu"]: row["documents"] for row in pq.read_table(folder / "out/documents-per-gpu").to_pylist()}
    assert sum(per_gpu.values()) == 8
    assert len(per_gpu) == 2, "both are used"
    assert "    group        gpu: 1 core, 1 GiB heap" in done.stdout
    assert "2 slots held at once at most" in done.stdout
