"""The requests that a job makes at its start, of an object store with many jobs that have finished, do not grow with their number."""

from __future__ import annotations

import json
import os

import pyarrow.fs as pafs
import pytest

from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import MARK, REMOVER, directory_name
from firesteel.recovery.retention import FINISHED, LINES, RETAIN
from firesteel.recovery.takeover import JobsBelow
from firesteel.results.storage.owner import ENDED, myself
from firesteel.spark.storage.directories import JobStorage
from takeover_kit import LocalPut

JOBS = 20


class Asked:
    """A file system that is not known to be one of this machine, and what it was asked to list or to look for, below its root."""

    def __init__(self, root):
        self._fs, self._root, self.told = pafs.LocalFileSystem(), str(root), []

    def get_file_info(self, what):
        path = what if isinstance(what, str) else what.base_dir
        if "firesteel-time-" not in path:
            self.told.append(path.removeprefix(self._root).strip("/"))
        return self._fs.get_file_info(what)

    def __getattr__(self, name):
        return getattr(self._fs, name)


@pytest.fixture
def finished(tmp_path):
    """Directories of jobs."""
    jobs = [tmp_path / directory_name(f"j{number}", 1) for number in range(JOBS)]
    for job in jobs:
        for name in ("log", "used"):
            (job / name).mkdir(parents=True)
            (job / name / "s00000000.fsl").touch()
        mark = {**myself(), ENDED: True, FINISHED: True, RETAIN: 60.0, LINES: []}
        job.with_name(job.name + MARK).write_text(json.dumps(mark))
    return jobs


def test_what_was_left_a_while_ago_is_not_asked_for_its_last_use(tmp_path, finished):
    storage, fs = JobStorage(str(tmp_path), "new", ""), Asked(tmp_path)
    storage._fs = fs
    assert storage.sweep() == [] and fs.told == [""]
    for job in finished:
        os.utime(job.with_name(job.name + MARK), (1.0, 1.0))
    os.utime(finished[0] / "log" / "s00000000.fsl", (1.0, 1.0))
    os.utime(finished[0] / "used" / "s00000000.fsl", (1.0, 1.0))
    (finished[0] / "used" / f"{REMOVER}1").touch()  # of one that died
    fs.told.clear()
    assert storage.sweep() == ["j0"] and len(fs.told) == 1 + 2 * JOBS


def test_jobs_that_have_finished_are_told_by_their_marks(tmp_path, finished):
    fs = Asked(tmp_path)
    jobs = JobsBelow(ObjectPath(fs, str(tmp_path), "", LocalPut()))
    assert jobs.find() == [] == jobs.find() and fs.told == ["", ""]
    finished[0].with_name(finished[0].name + MARK).unlink()
    others = JobsBelow(jobs.root)
    fs.told.clear()
    assert others.find() == [] and set(fs.told) == {"", f"{finished[0].name}/log"}
