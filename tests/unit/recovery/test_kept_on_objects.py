"""What an earlier job has left on an object store is copied there: what has gone is told, and nothing comes once the present job is over."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow.fs as pafs
import pytest

from firesteel.recovery.log import FencedError
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.uses import end_uses
from firesteel.results.storage.store import object_name
from firesteel.scheduler.recovery.earlier import EarlierJob, FinishedExecution
from firesteel.spark.recovery.kept_objects import KeptObjects, LeftJob

MANY = 100


class NoPut:
    def create(self, path, data):
        raise AssertionError("nothing is put")


@pytest.fixture
def root(tmp_path):
    """A store on a disk, which copies files as an object store does."""
    return ObjectPath(pafs.LocalFileSystem(), str(tmp_path), str(tmp_path), NoPut())


def left_in(root, count):
    """Executions of one vertex, each with an object."""
    own = root / "then"
    root.fs.create_dir(own.path)
    root.fs.create_dir((root / "now").path)
    event = SimpleNamespace(reports=SimpleNamespace(commits=()))
    finished = [FinishedExecution(0, k, 0, k, b"%d" % k, (7,), event, k) for k in range(count)]
    for one in finished:
        (own / name_of(one)).write_bytes(b"rows %d" % one.subtask)
    return LeftJob("x", own, EarlierJob(finished, {0: count}))


def name_of(one):
    return object_name(7, one.subtask, one.attempt, one.token)


def links(job):
    return [(one, 7, f"{one.subtask}.fsr") for one in job.earlier.finished]


def test_all_are_copied_and_each_is_told_in_its_turn(root):
    job = left_in(root, MANY)
    gone = [3, 50]
    for k in gone:
        root.fs.delete_file((job.directory / name_of(job.earlier.finished[k])).path)
    told = list(KeptObjects([job], root / "now").link_all(links(job)))
    assert [k for k, there in enumerate(told) if not there] == gone
    found = {place.name: place.read_bytes() for place in (root / "now").iterdir()}
    assert found == {f"{k}.fsr": b"rows %d" % k for k in range(MANY) if k not in gone}


def test_what_goes_as_it_is_copied_is_told_as_gone(root):
    """The time of the earlier job is over, and somebody removes it."""
    job = left_in(root, 2)
    kept = KeptObjects([job], root / "now")
    root.fs.delete_dir(job.directory.path)
    assert list(kept.link_all(links(job))) == [False, False]
    with pytest.raises(FileNotFoundError):
        (job.directory / "none").copy_to(root / "now" / "none")


def test_nothing_comes_any_more_once_the_job_is_over(root):
    """Its directory may have been removed: a store would make it anew."""
    job = left_in(root, MANY)
    kept = KeptObjects([job], root / "now")
    there = kept.link_all(links(job)[:1])
    assert next(there)
    kept.close()
    with pytest.raises(FencedError):
        list(kept.link_all(links(job)[1:]))
    assert [place.name for place in (root / "now").iterdir()] == ["0.fsr"]


def test_a_job_without_objects(root):
    job = left_in(root, 0)
    assert list(KeptObjects([job], root / "now").link_all([])) == []
    assert end_uses(job.directory)
