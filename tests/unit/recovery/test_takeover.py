"""A job is taken over by one driver; a living one keeps it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from firesteel.errors import UsageError
from firesteel.recovery import takeover
from firesteel.recovery.files import FileLog, read_log
from firesteel.recovery.log import Writer
from firesteel.recovery.takeover import JobsBelow, check_dead, check_nobody_goes_on, find_job, find_jobs, take_over
from firesteel.recovery.uses import end_uses
from firesteel.results.storage.owner import myself, process_start
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.recovery.records import Alive, DriverBegan, Ended, LogHeader, encode_records
from firesteel.spark.recovery import corrected
from firesteel.spark.recovery.corrected import Taking
from firesteel.spark.storage.directories import Place
from takeover_kit import begun, contended, store_of

FAR = {"host": "far", "pid": 11, "started": "s"}


def left(root, job_id, epoch=1, wall=0.0, after="", by=FAR):
    """A job's directory with a log, as a driver leaves it."""
    name = f"firesteel-job-{job_id}" + (f".e{epoch}" if epoch > 1 else "")
    (root / name).mkdir(exist_ok=True)
    plan = JobPlanned(at=0.0, job_id=job_id, job_name="job", vertices=[], datasets=[], options={}, after=after)
    header = LogHeader(1, "1", {}, job_id, "job", "run", 0, "job.py", [], plan, b"", b"", [])
    writer = Writer(FileLog(root / name / "log", epoch), lambda item: None, lambda: encode_records([Alive(0.0)]))
    writer.append(encode_records([DriverBegan(epoch, 7, **by, application="app", wall=wall, at=0.0)]), awaited=False)
    writer.wait(writer.append(encode_records([header]), awaited=True))
    return writer


def mark(root, name, owner):
    (root / f"{name}.owner.json").write_text(json.dumps(owner))


def test_jobs_are_found_in_the_order_in_which_they_began(tmp_path):
    for job_id, wall in (("b", 2.0), ("a", 3.0), ("c", 1.0)):
        left(tmp_path, job_id, wall=wall).close()
    (tmp_path / "firesteel-job-none").mkdir()
    (tmp_path / "firesteel-job-bad" / "log").mkdir(parents=True)
    (tmp_path / "firesteel-job-bad" / "log" / "e0001.fsl").write_bytes(b"something else")
    assert [job.job_id for job in find_jobs(tmp_path)] == ["c", "b", "a"]
    assert find_job(tmp_path, "a").driver.pid == 11
    with pytest.raises(UsageError, match="nothing of job z"):
        find_job(tmp_path, "z")


@pytest.fixture
def read(monkeypatch):
    """The directories whose logs were read."""
    read = []

    def counting(log):
        read.append(log.parent.name)
        return read_log(log)

    monkeypatch.setattr(takeover, "read_log", counting)
    return read


def test_logs_are_read_once_and_again_only_where_somebody_wrote(tmp_path, read):
    writers = [left(tmp_path, job_id, wall=wall) for job_id, wall in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    jobs = JobsBelow(tmp_path)
    assert [job.job_id for job in jobs.find()] == ["a", "b", "c"] and len(read) == 3
    check_nobody_goes_on(jobs, jobs.find()[0])
    assert len(read) == 3
    writers[1].wait(writers[1].append(encode_records([Alive(5.0)]), awaited=True))
    take_over(jobs.find()[2])
    read.clear()
    assert [job.epoch for job in jobs.find()] == [1, 1, 2]
    assert sorted(read) == ["firesteel-job-c.e2"] and len(jobs.find()[1].log.entries) == 3
    for writer in writers:
        writer.close()


def test_a_driver_that_took_the_job_over_and_began_since_the_logs_were_read_is_seen(tmp_path):
    left(tmp_path, "old").close()
    jobs = JobsBelow(tmp_path)
    (found,) = jobs.find()
    left(tmp_path, "second", wall=1.0, after="old").close()
    mark(tmp_path, "firesteel-job-second", {**myself(), "started": "1"})  # broke off as well
    writer = left(tmp_path, "third", wall=2.0, after="second", by=myself())
    mark(tmp_path, "firesteel-job-third", myself())
    grow = threading.Timer(0.3, lambda: writer.append(encode_records([Alive(2.0)]), awaited=True))
    grow.start()
    with pytest.raises(UsageError, match=r"Job third \('job'\) still runs"):
        check_nobody_goes_on(jobs, found)
    grow.join()
    writer.close()


@pytest.fixture
def moves(monkeypatch, tmp_path):
    """Another driver takes the job 'j' over when its log is about to be read for the first time."""
    find = {"moved": partial(find_job, tmp_path, "j")}

    def moved(log):
        if "moved" in find:
            take_over(find.pop("moved")())
        return read_log(log)

    monkeypatch.setattr(takeover, "read_log", moved)
    return find


@pytest.mark.parametrize("look", [find_jobs, JobsBelow.find, partial(find_job, job_id="j")])
def test_a_job_that_is_taken_over_just_as_it_is_looked_for_is_found(tmp_path, moves, look):
    """Else the one that looks would begin anew."""
    left(tmp_path, "j").close()
    found = look(JobsBelow(tmp_path) if look is JobsBelow.find else tmp_path)
    assert moves == {} and [job.epoch for job in (found if isinstance(found, list) else [found])] == [2]


def test_a_job_that_a_listing_misses_as_it_gets_another_name_is_found(tmp_path, monkeypatch):
    left(tmp_path, "j").close()
    listings = [[]]
    monkeypatch.setattr(
        Path, "glob", lambda path, name, real=Path.glob: iter(listings.pop()) if listings else real(path, name)
    )
    assert [job.job_id for job in find_jobs(tmp_path)] == ["j"] and listings == []


def test_one_of_many_drivers_wins(tmp_path):
    left(tmp_path, "j").close()
    outcomes = contended(find_job(tmp_path, "j"))
    assert outcomes.count(2) == 1
    assert sum("taken over by another driver" in str(outcome) for outcome in outcomes) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["firesteel-job-j.e2"]
    assert take_over(find_job(tmp_path, "j")).epoch == 3


def test_what_is_taken_over_by_a_corrected_job_is_held_before(tmp_path, monkeypatch):
    left(tmp_path, "j").close()
    held = []

    def taken(job):
        held.append(not end_uses(job.directory))
        return take_over(job)

    monkeypatch.setattr(corrected, "take_over", taken)
    job, use = Taking(tmp_path, 3600.0, Place("script", "process")).take(find_job(tmp_path, "j"))
    assert held == [True] and job.epoch == 2 and not end_uses(job.directory)
    use.end()
    assert end_uses(job.directory)


def test_the_loser_is_told_who_was_faster(tmp_path):
    left(tmp_path, "j").close()
    found = find_job(tmp_path, "j")
    take_over(found)
    left(tmp_path, "j", epoch=2).close()
    with pytest.raises(UsageError, match="just now: process 11 on far"):
        take_over(found)


def test_a_process_that_is_gone_is_dead_at_once(tmp_path):
    writer = left(tmp_path, "j")
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    mark(tmp_path, "firesteel-job-j", {**myself(), "pid": gone.pid, "started": "1"})
    check_dead(find_job(tmp_path, "j"), watch_seconds=3600)
    writer.close()


def test_a_driver_whose_log_grows_lives(tmp_path):
    writer = left(tmp_path, "j", by=myself())
    found = find_job(tmp_path, "j")
    mark(tmp_path, "firesteel-job-j", myself())
    grow = threading.Timer(0.3, lambda: writer.append(encode_records([Alive(2.0)]), awaited=True))
    grow.start()
    with pytest.raises(UsageError, match=r"Job j \('job'\) still runs: its driver, process \d+ on "):
        check_dead(found, watch_seconds=600)
    grow.join()
    writer.close()
    check_dead(found, watch_seconds=0.5)


def other():
    """Another process that lives."""
    return {**myself(), "pid": os.getppid(), "started": process_start(os.getppid())}


def test_who_has_taken_the_job_over_and_prepares_keeps_it(tmp_path):
    """It may look at Spark, or wait for another job, before it writes to the log."""
    left(tmp_path, "j").close()
    taken = take_over(find_job(tmp_path, "j"))
    mark(tmp_path, "firesteel-job-j.e2", other())
    (found,) = find_jobs(tmp_path)
    assert found.directory == taken.directory
    with pytest.raises(
        UsageError, match=rf"Job j \('job'\) was taken over by process {os.getppid()}, which begins with it"
    ):
        check_dead(found, watch_seconds=0.3)
    left(tmp_path, "j", epoch=2, by=other()).close()  # it has begun, and is frozen
    assert check_dead(find_job(tmp_path, "j"), watch_seconds=0.3)


def test_a_process_tries_again_what_it_has_taken_over_and_could_not_begin_with(tmp_path):
    left(tmp_path, "j").close()
    take_over(find_job(tmp_path, "j"))
    mark(tmp_path, "firesteel-job-j.e2", myself())
    assert check_dead(find_job(tmp_path, "j"), watch_seconds=0.3)


def test_on_an_object_store_the_log_tells_first_who_has_the_job(tmp_path, monkeypatch):
    with store_of("disk", tmp_path, monkeypatch) as root:
        begun(root)
        mark(tmp_path, "firesteel-job-j", {**myself(), "started": "1", "epoch": 1})
        assert not check_dead(find_job(root, "j"))
        monkeypatch.setattr(takeover, "myself", other)
        take_over(find_job(root, "j"))  # and has not marked it yet
        with pytest.raises(UsageError, match=rf"was taken over by process {os.getppid()}, which begins with it"):
            check_dead(find_job(root, "j"))


@pytest.fixture
def late(monkeypatch):
    """What happens each time a driver has looked at the job's mark, as if it was slow."""
    late = []

    def marked(directory, real=takeover.mark_beside):
        mark = real(directory)
        if late:
            late.pop(0)()
        return mark

    monkeypatch.setattr(takeover, "mark_beside", marked)
    return late


def test_who_has_taken_the_job_over_just_before_keeps_it_though_its_log_does_not_grow(tmp_path, late):
    left(tmp_path, "j").close()
    found = take_over(find_job(tmp_path, "j"))
    (found,) = find_jobs(tmp_path)
    late.append(lambda: left(tmp_path, "j", epoch=2).close())
    with pytest.raises(
        UsageError, match=r"Job j \('job'\) was taken over by another driver just now: process 11 on far"
    ):
        check_dead(found, watch_seconds=0.5)
    (found,) = find_jobs(tmp_path)
    late.append(lambda: shutil.rmtree(found.directory))
    with pytest.raises(UsageError, match="taken over by another driver, or removed, just now"):
        check_dead(found, watch_seconds=0.5)


def test_who_has_taken_over_what_a_job_left_keeps_it_though_its_log_does_not_grow(tmp_path, late):
    writer = left(tmp_path, "j")
    writer.wait(writer.append(encode_records([Ended("FAILED", 1.0)]), awaited=True))
    writer.close()
    found = take_over(find_job(tmp_path, "j"))
    (found,) = find_jobs(tmp_path)
    late += [lambda: None, lambda: mark(tmp_path, "firesteel-job-j.e2", myself())]
    with pytest.raises(UsageError, match=f"has ended, and process {os.getpid()} goes on from what it left"):
        check_dead(found, watch_seconds=0.5)
