"""The note of a script's run on which jobs have published: kept, taken over, and never missing where it matters."""

from __future__ import annotations

import json
import os
import resource
import time
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest

from firesteel.errors import FiresteelError, UsageError
from firesteel.recovery import takeover
from firesteel.recovery.files import FileLog
from firesteel.recovery.frames import DamagedLogError, frame
from firesteel.recovery.log import FencedError
from firesteel.recovery.takeover import JobsBelow, check_dead, find_runs, take_over
from firesteel.results.storage.owner import Owner
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.recovery.records import Alive, DriverBegan, LogHeader, encode_records
from firesteel.spark.recovery import runs
from firesteel.spark.recovery.header import JobIdentity
from firesteel.spark.recovery.runs import ALL, BEGAN, NO_RUN, NONE, ScriptRun

ME = JobIdentity("/job.py", ("a",), "mine", 0)


def header(job_id, ordinal, size=0):
    plan = JobPlanned(at=0.0, job_id=job_id, job_name="job", vertices=[], datasets=[], options={"x": "y" * size})
    return LogHeader(1, "1", {}, job_id, "job", "?", ordinal, "/job.py", ["a"], plan, b"", b"given", [1])


def published(run, *jobs, size=0):
    for ordinal, job_id in enumerate(jobs):
        place = run.place(header(job_id, ordinal, size), ordinal, 3600.0)
        place.publishing()
        place.over(ALL, None)


def dies(root, name, age=0.0):
    """The process that began a run is gone."""
    (mark,) = root.glob(f"firesteel-run-{name}*.owner.json")
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "pid": 2**22 + 1, "started": "1"}))
    (log,) = root.glob(f"firesteel-run-{name}*/log")
    for part in log.iterdir():
        os.utime(part, (time.time() - age,) * 2)


def goes_on(root, **given):
    run = ScriptRun(root, "mine")
    jobs = given.pop("jobs_below", JobsBelow(root))
    run.goes_on(ME, 3600.0, jobs, **{"job_id": None, "by_itself": False, **given})
    return run


def outs(run):
    return {ordinal: past.out for ordinal in range(4) if (past := run.past(ordinal)) is not None}


def test_what_was_published_is_known_to_the_next_process(tmp_path):
    first = ScriptRun(tmp_path, "first")
    published(first, "a", "b")
    taken_back = first.place(header("c", 2), 2, 3600.0)
    taken_back.publishing()
    taken_back.over(NONE, None)
    frozen = first.place(header("d", 3), 3, 3600.0)
    frozen.publishing()
    dies(tmp_path, "first")
    second = goes_on(tmp_path)
    assert (second.name, outs(second)) == ("first", {0: ALL, 1: ALL, 3: BEGAN})
    assert second.past(1).header.given == b"" and second.past(1).header.run == "first"
    with pytest.raises(FencedError):
        frozen.over(ALL, None)
    second.place(header("d", 3), 3, 3600.0).over(ALL, None)  # it had begun in the process before
    dies(tmp_path, "first")
    third = goes_on(tmp_path, by_itself=True)
    assert outs(third) == {0: ALL, 1: ALL, 3: ALL}
    third.close(well=True)
    assert list(tmp_path.iterdir()) == []


def test_no_note_of_what_is_no_script(tmp_path):
    run = ScriptRun(tmp_path, "first")
    assert run.place(msgspec.structs.replace(header("a", 0), script=""), 0, 3600.0) is NO_RUN
    run.close(well=False)
    assert list(tmp_path.iterdir()) == []


def test_a_living_process_keeps_its_run(tmp_path):
    published(ScriptRun(tmp_path, "first"), "a")
    assert outs(goes_on(tmp_path, by_itself=True)) == {}
    with pytest.raises(UsageError, match=f"The run of /job.py goes on in process {os.getpid()} on "):
        goes_on(tmp_path)
    assert [path.name for path in tmp_path.glob("*.owner.json")] == ["firesteel-run-first.owner.json"]


def test_two_go_on_at_once_and_the_slow_one_finds_what_the_other_has_not_told_of_yet(tmp_path, monkeypatch):
    """It waits, and takes nothing from who was faster, which writes nothing for hours."""
    published(ScriptRun(tmp_path, "first"), "a")
    dies(tmp_path, "first")
    seen = []

    def taken(found):
        taken = take_over(found)
        seen[:] = find_runs(tmp_path)
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(runs, "take_over", taken)
        fast = goes_on(tmp_path)
    monkeypatch.setattr(runs, "find_runs", lambda root: seen)
    monkeypatch.setattr(runs, "owner", lambda found: Owner.UNKNOWN)
    monkeypatch.setattr(runs, "check_dead", partial(check_dead, watch_seconds=0.3))
    with pytest.raises(UsageError, match=f"was taken over by another driver just now: process {os.getpid()} on "):
        goes_on(tmp_path)
    published(fast, "a", "b")


def unfinished(root, job_id, run, ordinal):
    """A job of the run, of a process that is gone."""
    (root / f"firesteel-job-{job_id}").mkdir()
    log = FileLog(root / f"firesteel-job-{job_id}" / "log", 1)
    began = DriverBegan(1, 7, "far", 11, "s", "app", 1.0, 0.0)
    log.append(
        frame([encode_records([began]), encode_records([msgspec.structs.replace(header(job_id, ordinal), run=run)])])
    )
    return log


def test_a_run_that_is_taken_over_just_as_it_is_looked_for_is_found(tmp_path, monkeypatch):
    published(ScriptRun(tmp_path, "first"), "a")
    dies(tmp_path, "first")
    (before,) = find_runs(tmp_path)
    find = [before]

    def moved(log, real=takeover.read_log):
        while find:
            take_over(find.pop())
        return real(log)

    monkeypatch.setattr(takeover, "read_log", moved)
    (found,) = find_runs(tmp_path)
    assert (before.epoch, found.epoch) == (1, 2)


def test_an_older_run_does_not_take_the_place_of_the_last_one_that_another_process_takes_over(tmp_path, monkeypatch):
    for name, age in (("old", 60.0), ("new", 30.0)):
        published(ScriptRun(tmp_path, name), name)
        dies(tmp_path, name, age)

    def raced(root, real=find_runs):
        found = real(root)
        take_over(next(run for run in found if run.header.run == "new"))
        return found

    monkeypatch.setattr(runs, "find_runs", raced)
    with pytest.raises(UsageError, match=r"The run of /job\.py was taken over by another driver, or removed, just now"):
        goes_on(tmp_path)


def test_a_job_that_finishes_as_its_run_is_looked_for_is_not_missed(tmp_path):
    """Its driver has made the run's log before."""
    unfinished(tmp_path, "a", "first", 0).close()

    class Jobs(JobsBelow):
        def find(self):
            found = super().find()
            if found:
                published(ScriptRun(tmp_path, "first"), "a")
                (tmp_path / "firesteel-job-a").rename(tmp_path / "gone")
            return found

    with pytest.raises(UsageError, match=r"Job a \('job'\) was taken over by another driver, or removed, just now"):
        goes_on(tmp_path, jobs_below=Jobs(tmp_path))


def test_a_run_is_not_taken_whose_driver_writes_to_a_job_while_the_run_is_watched(tmp_path, monkeypatch):
    """From afar only logs tell, and a run's own does not grow."""
    published(ScriptRun(tmp_path, "first"), "a")
    (mark,) = tmp_path.glob("*.owner.json")
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "host": "far"}))
    log = unfinished(tmp_path, "b", "first", 1)

    def watched(found):
        assert check_dead(found, watch_seconds=0.3)
        if found.header.run == found.job_id.removeprefix("run-"):
            log.append(frame([encode_records([Alive(2.0)])]))
        return True

    monkeypatch.setattr(runs, "check_dead", watched)
    with pytest.raises(UsageError, match=r"Job b \('job'\) goes on: its log has changed just now"):
        goes_on(tmp_path)
    assert [path.name for path in tmp_path.glob("firesteel-run-*/log")] == ["log"] and mark.exists()


def test_a_script_that_failed_goes_on_only_when_asked(tmp_path):
    first = ScriptRun(tmp_path, "first")
    published(first, "a")
    first.close(well=False)
    dies(tmp_path, "first")
    assert outs(goes_on(tmp_path, by_itself=True)) == {}
    assert outs(goes_on(tmp_path)) == {0: ALL}


def test_the_run_that_was_written_last_goes_on_whatever_clocks_say(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:  # a machine whose clock is an hour ahead
        patched.setattr(runs.time, "time", lambda real=time.time: real() + 3600)
        published(ScriptRun(tmp_path, "early"), "a")
    published(ScriptRun(tmp_path, "late"), "b")
    dies(tmp_path, "early", age=60.0)
    dies(tmp_path, "late", age=30.0)
    assert goes_on(tmp_path).name == "late"


def test_a_note_that_cannot_be_read_refuses(tmp_path):
    published(ScriptRun(tmp_path, "first"), "a", "b")
    dies(tmp_path, "first")
    (part,) = tmp_path.glob("firesteel-run-*/log/*")
    data = bytearray(part.read_bytes())
    data[60] ^= 1
    part.write_bytes(data)
    with pytest.raises(DamagedLogError):
        goes_on(tmp_path)


@contextmanager
def full_disk(size):
    """Files of this process grow no larger than this, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_before_anything_was_noted(tmp_path):
    """Nobody could be misled by it."""
    run = ScriptRun(tmp_path, "first")
    with full_disk(1000):
        published(run, "a", size=2000)
    published(run, "b")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_after_that(tmp_path):
    run = ScriptRun(tmp_path, "first")
    published(run, "a")
    last = run.place(header("b", 1, 2000), 1, 3600.0)
    with full_disk(1000), pytest.raises(FiresteelError, match="does not publish its own: a resume might publish"):
        last.publishing()
    with pytest.raises(FiresteelError, match="does not publish its own"):
        last.publishing()  # behind a record that is not whole
    dies(tmp_path, "first")
    assert outs(goes_on(tmp_path)) == {0: ALL}


def test_two_names_of_a_directory_are_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert runs.script_run(tmp_path / "link", "mine") is runs.script_run(tmp_path / "real", "mine")


def test_a_process_that_runs_jobs_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MOST_NOTED", 1)
    published(ScriptRun(tmp_path, "first"), "a", "b")
    dies(tmp_path, "first")
    found = goes_on(tmp_path)
    assert (found.past(0).header.prints, found.past(1).header.prints) == ([1], [])
