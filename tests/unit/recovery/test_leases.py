"""Results in use on an object store: whoever removes them looks first; a driver that was parted from the store takes nothing from its successor."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from firesteel.errors import UsageError
from firesteel.recovery import exclusive, leases
from firesteel.recovery.leases import end_own, is_own
from firesteel.recovery.log import FencedError
from firesteel.recovery.objects import ObjectPath, first_segment
from firesteel.recovery.places import MARK, REMOVER
from firesteel.recovery.retention import EPOCH, FINISHED, RETAIN, mark_beside
from firesteel.recovery.takeover import end_job, find_job, take_over
from firesteel.recovery.uses import begin_use, end_uses, last_use
from firesteel.results.storage.owner import ENDED, myself
from firesteel.results.storage.store import StorageError
from firesteel.scheduler.recovery.records import Alive, Ended
from firesteel.spark.recovery import corrected
from firesteel.spark.recovery.corrected import Taking
from firesteel.spark.storage import directories
from firesteel.spark.storage.directories import JobStorage, Place
from takeover_kit import begun, entry, store_of


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.full)])
def root(request, tmp_path, monkeypatch):
    with store_of(request.param, tmp_path, monkeypatch) as made:
        yield made


def ended(root, job_id="j", **entries):
    """A job that has left its results, and a log of two objects and its end."""
    log = begun(root, job_id)
    log.append(entry(Ended("FAILED", 5.0)))
    directory = root / f"firesteel-job-{job_id}"
    root.fs.create_dir((directory / "used").path)
    (directory / "d0-p0-a0-t1.fsr").write_bytes(b"rows")
    marked(directory, **entries)
    return directory


def marked(directory, **entries):
    mark = {**myself(), ENDED: True, **entries}
    directory.with_name(directory.name + MARK).write_bytes(json.dumps(mark).encode())


def names(directory):
    return {place.name for place in directory.files_below()}


def test_several_hold_one_and_nobody_does_once_it_goes(root):
    job = ended(root)
    first, second = begin_use(job), begin_use(job)
    assert first is not None and second is not None and abs(last_use(job) - time.time()) < 60
    first.end()
    first.end()
    assert not end_uses(job)
    second.end()
    assert end_uses(job) and begin_use(job) is None and end_uses(job)
    assert begin_use(root / "none") is None and end_uses(root / "none") and last_use(root / "none") == 0.0


def test_a_lease_is_over_when_it_is_not_renewed_and_comes_back_nowhere(root, monkeypatch):
    job = ended(root)
    use = begin_use(job)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
    time.sleep(2.1)  # some stores tell whole seconds
    leases._keeper.renew_all()
    assert not end_uses(job)
    time.sleep(2.1)
    assert end_uses(job)
    root.fs.delete_dir(job.path)
    root.fs.create_dir((job / "used").path)
    leases._keeper.renew_all()
    assert names(job) == set()
    use.end()
    assert names(job) == set()


@pytest.mark.parametrize("here", [True, False])
def test_a_lease_goes_with_a_process_of_this_machine(root, here, monkeypatch):
    """What became of one on another machine, nobody can tell before its time is over."""
    job = ended(root)
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    scope = leases._process().split("-")[0] if here else 16 * "0"
    monkeypatch.setattr(leases, "_process", lambda: f"{scope}-{gone.pid}-1")
    use = begin_use(job)
    assert end_uses(job) is here and use is not None


@pytest.fixture
def keeper(monkeypatch):
    """One that has held nothing yet."""
    made = leases._Keeper()
    monkeypatch.setattr(leases, "_keeper", made)
    yield made
    made.end_all()


def test_a_lease_that_is_forgotten_is_given_back(root, keeper):
    job = ended(root)
    use = begin_use(job)
    del use
    keeper.renew_all()
    assert end_uses(job)


def test_a_lease_holds_though_no_thread_can_be_started(root, keeper, monkeypatch):
    job = ended(root)

    def unstarted(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(leases.threading.Thread, "start", unstarted)
        first = begin_use(job)
    assert first is not None and keeper._thread is None and not end_uses(job)
    second = begin_use(job)
    assert keeper._thread.is_alive()
    first.end()
    second.end()
    assert end_uses(job)


def test_a_lease_that_was_given_back_is_not_kept_in_mind(root, keeper):
    use = begin_use(ended(root))
    use.end()
    del use
    assert not keeper.dropped


def test_what_is_not_a_lease_holds_nothing(root):
    job = ended(root)
    for name in ("notes.txt", "a-b-c-d", "1-2"):
        (job / "used" / name).write_bytes(b"")
    assert end_uses(job)


def test_a_process_ends_though_the_store_does_not_answer(root, keeper, monkeypatch):
    uses, asked = [begin_use(ended(root, name)) for name in ("one", "two", "three")], []

    def unanswered(self, target):
        asked.append(target)
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectPath, "copy_to", unanswered)
        keeper.end_all()
    assert len(asked) == 1 and None not in uses


def test_whoever_comes_while_results_are_removed_does_not_hold_them(root, monkeypatch):
    """The remover has looked, and is frozen before it removes anything."""
    job, come, end_log = ended(root), [], leases.end_log

    def while_another_comes(log, number):
        come.append(begin_use(job))
        return end_log(log, number)

    monkeypatch.setattr(leases, "end_log", while_another_comes)
    monkeypatch.setattr(leases, "rest", lambda seconds: None)
    assert end_uses(job) and come == [None]


def test_a_holder_waits_for_a_remover_that_draws_back(root, monkeypatch):
    job = ended(root)
    held, come = begin_use(job), []
    remove = ObjectPath.remove

    def after_another_has_come(self):
        if self.name.startswith("remover-"):
            monkeypatch.setattr(leases, "rest", lambda seconds: remove(self))
            come.append(begin_use(job))
        remove(self)

    monkeypatch.setattr(ObjectPath, "remove", after_another_has_come)
    assert not end_uses(job) and come[0] is not None
    held.end()
    come[0].end()


def test_a_remover_that_was_interrupted_draws_back(root, monkeypatch):
    job, before = ended(root), names(root)

    def interrupted(log, number):
        raise KeyboardInterrupt

    monkeypatch.setattr(leases, "end_log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        end_uses(job)
    assert names(root) == before


def test_a_remover_that_died_keeps_nobody_from_holding_the_results(root, monkeypatch):
    job = ended(root)
    (job / "used" / f"{REMOVER}1").write_bytes(b"")
    monkeypatch.setattr(leases, "rest", lambda seconds: None)
    assert begin_use(job) is None
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
    time.sleep(2.1)
    assert begin_use(job) is not None


def test_a_driver_that_has_just_taken_a_job_over_keeps_it(root):
    """It has not marked the results yet: their owner is said to be dead."""
    job = ended(root)
    found = find_job(root, "j")
    taken = take_over(found)
    assert not end_uses(job) and end_job(found) is None
    assert not end_own(job, 1) and end_own(job, taken.epoch)
    assert {"d0-p0-a0-t1.fsr"} < names(job) and not any(name.startswith("remover-") for name in names(job))


def test_a_driver_that_died_as_it_took_a_job_over_is_forgotten(root, monkeypatch):
    job = ended(root)
    take_over(find_job(root, "j"))
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.0)
    time.sleep(1.1)
    assert end_uses(job)


def test_nobody_goes_on_with_a_job_that_is_being_removed(root):
    job = ended(root)
    found = find_job(root, "j")
    assert end_job(found).epoch == 2
    with pytest.raises(UsageError, match="taken over by another driver just now"):
        take_over(found)
    assert not (job / "log" / "s00000000.fsl").is_file()


def test_nobody_goes_on_with_a_job_that_has_just_been_removed(root):
    """Nothing is left that would refuse the next object of its log."""
    job = ended(root)
    found = find_job(root, "j")
    for place in job.files_below():
        place.remove()
    with pytest.raises(UsageError, match="or removed, just now"):
        take_over(found)
    assert names(job) == set()


@pytest.mark.parametrize("held", [True, False])
def test_a_job_that_is_removed_as_it_is_taken_over_is_not_gone_on_with(root, held, monkeypatch):
    """Held before that, it is not removed."""
    job, place = ended(root), Place("script", "process")
    found = find_job(root, "j")

    def while_it_is_removed(job):
        end_uses(job.directory)
        return take_over(job)

    monkeypatch.setattr(corrected, "take_over", while_it_is_removed)
    monkeypatch.setattr(corrected.JobStorage, "claim", lambda self: None)
    if held:
        taken, use = Taking(root, 60.0, place).take(found)
        assert (taken.epoch, use is None) == (2, False)
        return
    monkeypatch.setattr(corrected, "begin_use", lambda directory, own: None)
    with pytest.raises(UsageError, match="just now"):
        Taking(root, 60.0, place).take(found)
    assert not (job / "log" / "s00000000.fsl").is_file()


def test_a_removal_between_the_take_and_a_look_at_it_is_seen(root, monkeypatch):
    ended(root)

    def taken(job):
        found = take_over(job)
        first_segment(job.directory / "log").remove()
        return found

    monkeypatch.setattr(corrected, "take_over", taken)
    monkeypatch.setattr(corrected, "begin_use", lambda directory, own: None)
    with pytest.raises(UsageError, match="or removed, just now"):
        Taking(root, 60.0, Place("script", "process")).take(find_job(root, "j"))


@pytest.mark.parametrize("marks", [True, False])
def test_a_job_whose_owner_lives_is_not_removed(root, marks):
    """Without a mark it is nobody's."""
    job = ended(root, **{ENDED: False})
    assert not end_uses(job)
    if marks:
        marked(job)
    else:
        job.with_name(job.name + MARK).remove()
    assert end_uses(job)


@pytest.fixture
def mute(monkeypatch):
    """Called, it makes the store give no marks."""
    read = ObjectPath.read_bytes

    def unanswered(self):
        if self.name.endswith(MARK):
            raise OSError("no answer")
        return read(self)

    return lambda: monkeypatch.setattr(ObjectPath, "read_bytes", unanswered)


def test_what_nobody_can_tell_the_owner_of_is_left_alone(root, mute):
    job = ended(root)
    mute()
    before = names(job)
    assert not end_uses(job)
    for ask in (end_own, is_own):
        with pytest.raises(OSError, match="no answer"):
            ask(job, 1)
    assert names(job) == before


# --- a job's storage -------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(monkeypatch):
    with store_of("s3", None, monkeypatch) as made:
        yield made


def storage(root, job_id="j", *, epoch=1):
    return JobStorage(root.url, job_id, "app", epoch=epoch, retain=3600.0)


@pytest.mark.full
def test_what_a_parted_driver_does_at_its_end_is_not_done_to_its_successor(bucket):
    """It was frozen when it had written its end."""
    job, old = ended(bucket), storage(bucket)
    old._mark()
    taken = take_over(find_job(bucket, "j"))
    new = storage(bucket, epoch=taken.epoch)
    new.claim()
    assert old.keep() and mark_beside(job)[EPOCH] == 2 and ENDED not in mark_beside(job)
    old.remove()
    assert (job / "d0-p0-a0-t1.fsr").is_file() and find_job(bucket, "j").log.epoch == 2
    new.remove()
    assert bucket.files_below() == []


@pytest.mark.full
@pytest.mark.parametrize("told", ["by its log", "by nothing"])
def test_a_parted_driver_marks_and_removes_nothing_that_may_be_its_successors(bucket, mute, told):
    """The successor has only continued the log; or it is marked, and the old driver cannot read that."""
    job, old = ended(bucket), storage(bucket)
    old._mark()
    taken = take_over(find_job(bucket, "j"))
    if told == "by nothing":
        storage(bucket, epoch=taken.epoch).claim()
        mute()
    marks, before = job.with_name(job.name + MARK), names(job)
    mark = marks.fs.open_input_stream(marks.path).read()
    assert old.keep() and marks.fs.open_input_stream(marks.path).read() == mark
    old.remove()
    assert names(job) == before


@pytest.mark.full
@pytest.mark.parametrize("does", ["keep", "claim"])
def test_a_driver_that_freezes_before_it_marks_writes_over_no_mark_of_its_successor(bucket, monkeypatch, does):
    """It has just seen that the job is its own."""
    job, old = ended(bucket), storage(bucket)
    old._mark()
    found = find_job(bucket, "j")

    def frozen(directory, epoch):
        monkeypatch.setattr(directories, "is_own", is_own)
        was_own = is_own(directory, epoch)
        taken = take_over(found)
        storage(bucket, epoch=taken.epoch).claim()
        return was_own

    monkeypatch.setattr(directories, "is_own", frozen)
    getattr(old, does)()
    assert mark_beside(job)[EPOCH] == 2 and ENDED not in mark_beside(job)


@pytest.fixture
def replaced(monkeypatch):
    """Has the store answer, to drivers that write over marks, what is given: a function of what replaces, and of how often it was asked before."""
    replace, asked = exclusive.ExclusivePut.replace, []

    def answered(answer):
        def replace_mark(self, path, data, tag):
            asked.append(tag)
            return answer(lambda data, tag=tag: replace(self, path, data, tag), data, len(asked))

        monkeypatch.setattr(exclusive.ExclusivePut, "replace", replace_mark)
        return asked

    return answered


@pytest.mark.full
@pytest.mark.parametrize(
    ("answer", "times"),
    [
        (lambda put, data, asked: asked > 1 and put(data), 2),  # as S3 may, where it asks for another try
        (lambda put, data, asked: False, 4),
        (lambda put, data, asked: put(data) and False, 1),  # the answer to the first try was lost
    ],
)
def test_a_refusal_of_the_store_alone_leaves_no_mark_unwritten(bucket, replaced, answer, times):
    job, old = ended(bucket), storage(bucket)
    old._mark()
    asked = replaced(answer)
    assert old.keep() and mark_beside(job)[ENDED] and len(asked) == times
    asked.clear()
    new = storage(bucket, epoch=take_over(find_job(bucket, "j")).epoch)
    new.claim()
    assert mark_beside(job)[EPOCH] == 2 and ENDED not in mark_beside(job) and len(asked) == times


@pytest.mark.full
def test_a_driver_whose_predecessor_marks_its_end_at_the_same_time_marks_the_job_as_its_own(bucket, replaced):
    """The other one had seen that the job was its own, and was faster."""
    job = ended(bucket)
    late = json.dumps({**myself(), EPOCH: 1, ENDED: True}).encode()
    replaced(lambda put, data, asked: (asked > 1 or put(late)) and put(data))
    storage(bucket, epoch=take_over(find_job(bucket, "j")).epoch).claim()
    assert mark_beside(job)[EPOCH] == 2 and ENDED not in mark_beside(job)


@pytest.mark.full
def test_a_driver_that_cannot_mark_the_job_as_its_own_says_so(bucket, replaced):
    job = ended(bucket)
    new = storage(bucket, epoch=take_over(find_job(bucket, "j")).epoch)
    replaced(lambda put, data, asked: put(json.dumps({EPOCH: 1, "at": asked}).encode()) and False)
    with pytest.raises(StorageError, match="mark is written by others again and again"):
        new.claim()
    assert mark_beside(job)[EPOCH] == 1


@pytest.mark.full
def test_marks_on_a_store_that_has_no_such_condition(bucket, monkeypatch):
    job, own = ended(bucket), storage(bucket)
    own._mark()
    asked = exclusive.ExclusivePut._asked

    def refusing(self, what, path, refused, **given):
        if "IfMatch" in given:
            raise OSError("An error occurred (NotImplemented) when calling the PutObject operation")
        return asked(self, what, path, refused, **given)

    monkeypatch.setattr(exclusive.ExclusivePut, "_asked", refusing)
    assert own.keep() and mark_beside(job)[ENDED]


def test_what_is_left_of_a_job_as_it_is_removed_is_no_shorter_log(root):
    """Whoever removes it dies when the last objects of the log are gone, its end among them."""
    job = ended(root)
    found = find_job(root, "j")
    assert end_own(job, 1)
    for name in sorted(names(job / "log"))[-2:]:
        (job / "log" / name).remove()
    with pytest.raises(UsageError, match="There is nothing of job j"):
        find_job(root, "j")
    with pytest.raises(UsageError, match="taken over by another driver, or removed, just now"):
        take_over(found)


@pytest.mark.full
def test_what_goes_on_is_not_swept(bucket):
    """A sweep has seen that the time of a job is over, when another driver takes it over."""
    job = ended(bucket, **{RETAIN: 3600.0})
    log = find_job(bucket, "j")
    other = storage(bucket, "other")
    assert other.sweep() == []
    marked(job)
    taken = take_over(log)
    assert other.sweep() == [] and (job / "d0-p0-a0-t1.fsr").is_file()
    storage(bucket, epoch=taken.epoch).claim()
    assert other.sweep() == [] and find_job(bucket, "j").log.epoch == 2
    storage(bucket, epoch=taken.epoch).keep()
    marked(job, **{EPOCH: 2})
    assert other.sweep() == ["j"] and bucket.files_below() == []


@pytest.mark.full
def test_a_driver_whose_job_was_removed_writes_no_more(bucket):
    log = begun(bucket)
    storage(bucket)._mark()
    storage(bucket).remove()
    with pytest.raises(FencedError):
        log.append(entry(Alive(1.0)))
        log.verify()
    assert bucket.files_below() == []


@pytest.mark.full
def test_room_is_left_by_what_was_not_used_for_the_longest_time(bucket):
    sizes = {"old": 1000, "used": 1000, "held": 1000}
    jobs = {
        name: ended(bucket, name, **{FINISHED: True, RETAIN: 1e9, "bytes": 9000, "lines": [name]}) for name in sizes
    }
    for job in jobs.values():
        (job / "d1-p0-a0-t1.fsr").write_bytes(bytes(5000))
    held = begin_use(jobs["held"])
    time.sleep(1.1)
    begin_use(jobs["used"]).end()
    storage(bucket, "new").leave_room(13000)
    assert [name for name, job in jobs.items() if job.is_dir()] == ["used", "held"]
    storage(bucket, "new").leave_room(0)
    assert [name for name, job in jobs.items() if job.is_dir()] == ["held"]
    held.end()
    storage(bucket, "new").leave_room(0)
    assert bucket.files_below() == []
