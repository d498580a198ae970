"""What a dead driver left is kept as long as it was said, and no longer; names of directories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firesteel.options import Options
from firesteel.recovery.places import directory_name, job_and_epoch
from firesteel.results.storage.owner import Owner, myself
from firesteel.spark.storage.directories import JobStorage
from firesteel.spark.storage.leftovers import Leftovers


@pytest.fixture(scope="module")
def dead():
    """The mark of a process that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    return {**myself(), "pid": gone.pid, "started": "1"}


def leave(root, dead, job_id, *, retain, log=True, age=0.0, epoch=1):
    storage = JobStorage(str(root), job_id, "app", retain=retain, epoch=epoch)
    storage.create()
    mark = root / f"{directory_name(job_id, epoch)}.owner.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **dead}))
    (storage.directory / "d0-p0-a0-t1.fsr").write_bytes(b"rows")
    if log:
        (storage.directory / "log").mkdir()
        part = storage.directory / "log" / "e0001.fsl"
        part.write_bytes(b"log")
        os.utime(part, (time.time() - age,) * 2)
    return storage


def test_names():
    for epoch in (1, 2, 12):
        assert job_and_epoch(directory_name("ab.c", epoch)) == ("ab.c", epoch)
    assert directory_name("x", 1) == "firesteel-job-x"
    assert job_and_epoch("firesteel-else") is None


@pytest.mark.parametrize(
    ("given", "stays"),
    [
        ({"retain": 3600.0}, True),
        ({"retain": 3600.0, "age": 3500.0}, True),
        ({"retain": 3600.0, "age": 3700.0}, False),
        ({"retain": 0.0}, False),
        ({"retain": 3600.0, "log": False}, False),
        ({"retain": 3600.0, "epoch": 3}, True),
    ],
)
def test_the_next_job_leaves_alone_what_is_kept(tmp_path, dead, given, stays):
    left = leave(tmp_path, dead, "old", **given)
    assert JobStorage(str(tmp_path), "new", "app").sweep() == ([] if stays else ["old"])
    assert left.directory.exists() is stays
    assert (list(tmp_path.iterdir()) != []) is stays
    everywhere = Leftovers(Options({"firesteel.storage.directory": str(tmp_path)})).found()
    found = [(one.owner, one.may_go) for one in everywhere if one.job_id == "old"]
    assert found == ([(Owner.KEPT, False)] if stays else [])


def test_a_driver_that_takes_over_marks_the_directory_as_its_own(tmp_path, dead):
    old = leave(tmp_path, dead, "j", retain=3600.0)
    old.directory.rename(tmp_path / directory_name("j", 2))
    again = JobStorage(str(tmp_path), "j", "app", retain=60.0, epoch=2)
    again.claim()
    assert not Path(old.scratch).exists()
    assert [path.name for path in Path(tmp_path).glob("*.owner.json")] == ["firesteel-job-j.e2.owner.json"]
    assert again.store.list() == ["d0-p0-a0-t1.fsr"]
    assert JobStorage(str(tmp_path), "new", "app").sweep() == []
    old.remove()
    assert again.store.list() == ["d0-p0-a0-t1.fsr"]
    again.remove()
    assert list(tmp_path.iterdir()) == []
