"""``firesteel recover``: drivers that are killed between two steps of publishing, and who else may own what lies there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.results.storage.owner import myself

TESTS = Path(__file__).parents[1]

_DRIVER = """
import os, signal, sys
sys.path[:0] = [sys.argv[1]]
from plane.session import Session
from firesteel import ExecutionEnvironment
from firesteel.connectors.files.writing.in_place import Moves

if __name__ == "__main__":
    _, _, folder, kind, steps = sys.argv
    env = ExecutionEnvironment(spark=Session(slots=1), options={
        "firesteel.progress": False, "firesteel.journal.directory": f"{folder}/journal",
        "firesteel.storage.directory": f"{folder}/storage",
    })
    rows = env.from_collection([(1, 11), (3, 31), (4, 41)], "k bigint, x bigint")
    if kind == "merge":
        rows.merge_parquet(f"{folder}/out", "k")
    else:
        rows.write_parquet(f"{folder}/out", mode=kind, partition_by=() if kind == "error" else "k")
    if steps != "all":
        left, move = [int(steps)], Moves.move

        def dying(self, source, target):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            move(self, source, target)

        Moves.move = dying
    env.execute(kind)
"""


def drive(folder, kind, steps="all"):
    script = folder / "driver.py"
    script.write_text(_DRIVER)
    command = [sys.executable, str(script), str(TESTS), str(folder), kind, str(steps)]
    return subprocess.run(command, check=False, capture_output=True, timeout=300).returncode


def recover(*arguments):
    return CliRunner().invoke(app, ["recover", *map(str, arguments)])


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def begun(folder, kind):
    """An output as a job before left it."""
    out = folder / "out"
    if kind == "merge":
        assert drive(folder, "error") == 0
    else:
        for k in (1, 2, 3):
            (out / f"k={k}").mkdir(parents=True)
            pq.write_table(pa.table({"x": [k * 10]}), out / f"k={k}" / "part-old.parquet")
        (out / "_SUCCESS").touch()
    return out


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("overwrite_partitions", 4),
        pytest.param("overwrite_partitions", 0, marks=pytest.mark.full),
        pytest.param("overwrite_partitions", 6, marks=pytest.mark.full),
        pytest.param("merge", 1, marks=pytest.mark.full),
        pytest.param("overwrite", 4, marks=pytest.mark.full),
    ],
)
def test_a_killed_driver_is_recovered_from(tmp_path, kind, steps):
    out = begun(tmp_path, kind)
    before = files(out)
    assert drive(tmp_path, kind, steps) == -9
    said = recover(out, "--dry-run")
    assert said.exit_code == 0, said.output
    assert "would be taken back" in said.output
    if steps:
        assert files(out) != before
    said = recover(out)
    assert said.exit_code == 0, said.output
    assert "had changed and not completed was taken back" in said.output
    assert files(out) == before
    assert not list(tmp_path.glob(".out*"))
    assert "nothing is left over" in recover(out).output


def test_nothing_of_others_is_touched(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    owners = {"alive": myself(), "far": {"host": "far away", "pid": 1, "started": "1"}, "unknown": None}
    for name, owner in owners.items():
        (tmp_path / f".out.firesteel-{name}").mkdir()
        if owner is not None:
            (tmp_path / f".out.firesteel-{name}" / "_owner.json").write_text(json.dumps(owner))
    said = recover(out)
    assert said.exit_code == 1
    assert "job alive left is kept: it still runs, or is just ending." in said.output
    assert "job far left is kept: of another machine. Nobody can tell" in said.output
    assert len(list(tmp_path.iterdir())) == 4
    said = recover(out, "--dead")
    assert said.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.firesteel-alive", "out"]
    said = CliRunner().invoke(app, ["recover", str(tmp_path / "nowhere")])
    assert "nothing beside it that a job left" in str(said.exception)
