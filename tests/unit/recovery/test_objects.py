"""Logs on object stores: one sequence of objects, continued by one driver, whoever else tries."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from firesteel.errors import UsageError
from firesteel.recovery.exclusive import exclusive_put, refusal
from firesteel.recovery.files import open_log, read_log
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.log import FencedError, LogLost, Writer
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.takeover import JobsBelow, find_job, find_jobs, take_over
from firesteel.scheduler.recovery.records import Alive, DriverBegan, Ended, encode_records
from takeover_kit import LocalPut, begun, contended, entry, store_of


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.full)])
def root(request, tmp_path, monkeypatch):
    with store_of(request.param, tmp_path, monkeypatch) as made:
        yield made


def moments(log):
    return [record.at for own in log.entries for record in own if isinstance(record, Alive)]


def test_a_job_goes_from_driver_to_driver(root):
    first = begun(root, moments=(1.0, 2.0))
    found = find_job(root, "j")
    assert (found.driver.epoch, moments(found.log)) == (1, [1.0, 2.0])
    taken = take_over(found)
    assert (taken.epoch, taken.driver.pid, moments(taken.log)) == (2, os.getpid(), [1.0, 2.0])
    second = open_log(taken.directory / "log", taken.epoch, taken.log.read)
    second.append(entry(Alive(3.0)))
    for old in (first, first):
        with pytest.raises(FencedError, match="another driver, which has taken the job over"):
            old.append(entry(Alive(9.0)))
    with pytest.raises(FencedError):
        first.remove()
    third = take_over(find_job(root, "j"))
    assert (third.epoch, moments(third.log)) == (3, [1.0, 2.0, 3.0])


def test_a_job_that_has_ended_has_ended_yet_when_another_takes_what_it_left(root):
    """It is gone on with only by a driver that says so."""
    begun(root).append(entry(Ended("FAILED", 5.0)))
    first = take_over(find_job(root, "j"))
    assert (first.epoch, first.ended, first.token_bases) == (2, Ended("FAILED", 5.0), {7})
    again = take_over(find_job(root, "j"))
    assert (again.epoch, again.ended) == (3, first.ended)
    log = open_log(again.directory / "log", again.epoch, again.log.read)
    log.append(entry(DriverBegan(3, 8, "far", 12, "s", "app", 1.0, 0.0)))
    assert find_job(root, "j").ended is None


def test_one_of_many_drivers_wins(root):
    begun(root)
    outcomes = contended(find_job(root, "j"))
    assert outcomes.count(2) == 1
    assert sum("taken over by another driver just now: process" in str(outcome) for outcome in outcomes) == 7


def test_a_log_is_read_again_only_where_another_driver_has_continued_it(root):
    begun(root, "j")
    begun(root, "k")
    jobs = JobsBelow(root)
    before = {job.job_id: job for job in jobs.find()}
    assert all(before[job.job_id] is job for job in jobs.find())
    take_over(before["k"])
    now = {job.job_id: job for job in jobs.find()}
    assert now["j"] is before["j"] and now["k"].log.epoch == 2


def test_what_is_not_there(root):
    log = begun(root, moments=(1.0, 2.0))
    directory = root / "firesteel-job-j" / "log"
    root.fs.delete_file((directory / "s00000002.fsl").path)
    with pytest.raises(DamagedLogError, match="of its 4 objects 3 are there"):
        read_log(directory)
    assert find_jobs(root) == []
    root.fs.delete_file((directory / "s00000000.fsl").path)
    assert read_log(directory).entries == []
    log.remove()
    assert list(directory.iterdir()) == []


def test_a_log_that_was_ended_is_continued_by_nobody(root):
    log = begun(root)
    found = find_job(root, "j")
    log.append(b"")  # it died as it removed the rest
    assert find_jobs(root) == []
    with pytest.raises(UsageError, match="taken over by another driver just now"):
        take_over(found)


def test_a_job_that_another_driver_has_finished_meanwhile(root):
    """Nothing of its log is left, so the old driver's next object finds its place free."""
    log = begun(root)
    taken = take_over(find_job(root, "j"))
    open_log(taken.directory / "log", taken.epoch, taken.log.read).remove()
    log.append(entry(Alive(9.0)))
    with pytest.raises(FencedError, match="The job's log is gone"):
        log.verify()


def test_a_put_that_seemed_to_fail(root):
    place = root / "one"
    assert place.create(b"mine") and place.create(b"mine") and not place.create(b"yours")


def test_small_groups_that_come_one_after_another_are_gathered(root):
    """A stage's end after a quiet time is written at once."""
    groups = []

    class Slow:
        is_dear = True

        def append(self, data):
            groups.append(time.monotonic())

        def close(self):
            pass

    writer = Writer(Slow(), lambda told: None, lambda: encode_records([Alive(0.0)]))
    begin = time.monotonic()
    while time.monotonic() < begin + 2.0:
        writer.append(encode_records([Alive(1.0)]), awaited=True)
        time.sleep(0.002)
    assert 5 < len(groups) < 25
    before = time.monotonic()
    writer.wait(writer.append(encode_records([Alive(1.0)]), awaited=True))
    assert groups[-1] - before < 0.3
    writer.close()


def test_a_log_that_another_driver_has_is_not_removed_when_it_fails(root):
    log = begun(root)
    take_over(find_job(root, "j"))

    class Failing:
        is_dear = False

        def append(self, data):
            raise OSError("the network is gone")

        def remove(self):
            log.remove()

        def close(self):
            pass

    told = []
    writer = Writer(Failing(), told.append, lambda: b"")
    with pytest.raises(FencedError):
        writer.wait(writer.append(encode_records([Alive(1.0)]), awaited=True))
    assert isinstance(told[0], LogLost) and told[0].fenced
    assert find_job(root, "j").epoch == 1


@pytest.mark.parametrize(
    ("url", "why"), [("s3://b/x", ""), ("gs://b/x", "which of two drivers was first"), ("hdfs://n/x", "which of two")]
)
def test_where_a_log_can_lie(url, why):
    assert (why in refusal(url)) and bool(refusal(url)) is bool(why)
    if why:
        with pytest.raises(UsageError, match="A log of jobs cannot lie at "):
            exclusive_put(url)


def test_a_path_is_asked_as_those_of_disks_are(tmp_path):
    root = ObjectPath(pafs.LocalFileSystem(), str(tmp_path), str(tmp_path), LocalPut())
    for name in ("a-1/log", "a-2/log", "b-1/log", "a-3"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_bytes(b"12345")
    for pattern in ("a-*/log", "a-*", "*"):
        assert {Path(place.path) for place in root.glob(pattern)} == set(tmp_path.glob(pattern))
    (entry,) = (root / "a-3").iterdir()
    assert (entry.name, entry.stat().st_size, entry.parent.name) == ("file", 5, "a-3")
    assert abs(entry.stat().st_mtime - time.time()) < 60
    assert not (root / "nothing").is_dir() and (root / "a-1").with_name("b-1").is_dir()
