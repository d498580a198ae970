"""Results in use: whoever removes them looks first, also at other processes; how much of them goes when there is no room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.recovery.places import MARK, directory_name
from firesteel.recovery.retention import BYTES, FINISHED, LINES, RETAIN
from firesteel.recovery.takeover import FoundJob
from firesteel.recovery.uses import USED, begin_use, end_uses, last_use
from firesteel.results.storage.owner import ENDED, myself
from firesteel.spark.recovery.corrected import CorrectedJob, Taken
from firesteel.spark.storage.directories import JobStorage, Place, Space, superseded

HOLDS = """
import sys
from pathlib import Path
from firesteel.recovery.uses import begin_use
held = begin_use(Path(sys.argv[1]))
print(held is not None, flush=True)
sys.stdin.read()
"""


def made(root, name="job"):
    (root / name / "log").mkdir(parents=True)
    (root / name / "log" / USED).touch()
    return root / name


def test_several_hold_one_and_nobody_does_once_it_goes(tmp_path):
    job = made(tmp_path)
    os.utime(job / "log" / USED, (1.0, 1.0))
    first, second = begin_use(job), begin_use(job)
    assert first is not None and second is not None and last_use(job) > 1.0
    first.end()
    first.end()
    assert not end_uses(job)
    second.end()
    assert end_uses(job) and begin_use(job) is None and end_uses(job)
    assert begin_use(tmp_path / "none") is None and last_use(tmp_path / "none") == 0.0


def test_whoever_has_a_job_holds_it_though_it_is_not_for_others(tmp_path):
    (tmp_path / "log").mkdir()
    assert begin_use(tmp_path) is None
    use = begin_use(tmp_path, own=True)
    assert use is not None and not end_uses(tmp_path)
    use.end()
    assert end_uses(tmp_path) and list((tmp_path / "log").iterdir()) == []


@pytest.mark.parametrize("kill", [False, True])
def test_another_process_holds_it_until_its_end(tmp_path, kill):
    job = made(tmp_path)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "True\n"
    assert not end_uses(job) and begin_use(job) is not None
    other.kill() if kill else other.communicate("")
    other.wait()
    assert end_uses(job)


def test_a_forked_child_holds_nothing(tmp_path):
    job = made(tmp_path)
    held, (begun, begins), (awaited, ends) = begin_use(job), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(ends)
        os.write(begins, b"!")
        os.read(awaited, 1)  # until the parent has looked
        os._exit(0)
    assert os.read(begun, 1) == b"!" and not end_uses(job)
    held.end()
    assert end_uses(job)
    os.close(ends)
    assert os.waitpid(child, 0)[1] == 0


def filled(root, name, *, used, own=1000, shares=None):
    job = made(root, name)
    (job / "own").write_bytes(bytes(own))
    if shares is not None:
        os.link(shares / "own", job / "shared")
    os.utime(job / "log" / USED, (used, used))
    return job


def test_what_was_not_used_for_the_longest_time_goes_first_and_shared_files_count_once(tmp_path):
    a = filled(tmp_path, "a", used=1.0)
    b = filled(tmp_path, "b", used=2.0, own=10, shares=a)
    jobs = {"a": a, "b": b, "c": filled(tmp_path, "c", used=3.0), "d": filled(tmp_path, "d", used=0.0)}
    space = Space(jobs)
    assert space.bytes == 3010
    gone: list[str] = []
    space.shrink(1500, lambda name: gone.append(name) or True)
    assert gone == ["d", "a", "b"] and space.bytes == 1000  # without b, what a has is still there


@pytest.mark.parametrize(("most", "expected"), [(2000, ["large"]), (1999, ["large", "held", "old"])])
def test_what_is_in_use_stays_and_what_has_no_room_alone_goes_first(tmp_path, most, expected):
    jobs = {"old": filled(tmp_path, "old", used=1.0), "large": filled(tmp_path, "large", used=9.0, own=5000)}
    jobs["held"] = filled(tmp_path, "held", used=0.0)
    tried: list[str] = []
    space = Space(jobs)
    space.shrink(most, lambda name: tried.append(name) or name != "held")
    assert tried == expected and space.bytes <= most


def test_jobs_that_have_nothing_of_their_own():
    kept = {
        "new": {"lines": ["a", "b"], "at": 2.0},
        "same": {"lines": ["a", "b"], "at": 1.0},
        "part": {"lines": ["b"], "at": 3.0},
        "own": {"lines": ["b", "c"], "at": 1.0},
    }
    assert superseded(kept, "new") == ["same", "part"]
    assert superseded(kept, "same") == ["part"]  # of two that end at once one stays
    assert superseded(kept, "gone") == []


def finished(root, name, lines=(), **entries):
    """What a finished job leaves: 1,000 bytes for others."""
    directory = filled(root, directory_name(name, 1), used=1.0)
    mark = {**myself(), ENDED: True, FINISHED: True, RETAIN: 1e9, BYTES: 1000, LINES: list(lines), **entries}
    directory.with_name(directory.name + MARK).write_text(json.dumps(mark))
    return directory


def test_room_is_left_by_what_is_half_removed_and_taken_from_nobody_else(tmp_path, monkeypatch):
    """A process was killed as it removed one; two are another user's."""
    half, own, held = finished(tmp_path, "half"), finished(tmp_path, "own"), finished(tmp_path, "held")
    assert end_uses(half)
    use, others, stat = begin_use(held), [finished(tmp_path, "alien"), finished(tmp_path, "same", ["a"])], Path.stat

    def by_whom(self, **words):
        found = list(stat(self, **words))
        found[4] = 12345 if self in others else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", by_whom)
    newest = finished(tmp_path, "new", ["a", "b"])
    storage = JobStorage(str(tmp_path), "new", "")
    storage.leave_room(3000)  # what others have does not count: these have 4,000 bytes
    there = [one for one in (half, own, held, *others, newest) if one.exists()]
    assert there == [held, *others, newest]
    assert use is not None


def test_what_another_job_uses_of_one_that_was_taken_over_stays(tmp_path):
    jobs = [FoundJob(name, 1, finished(tmp_path, name), None, None) for name in ("used", "free")]
    use = begin_use(jobs[0].directory)
    taken = [Taken(job, None, JobStorage(str(tmp_path), job.job_id, "", retain=60.0), None) for job in jobs]
    CorrectedJob(None, taken).leave(finished=True)
    assert [job.directory.exists() for job in jobs] == [True, False]
    assert use is not None


def test_what_is_used_stays_also_where_the_root_is_a_url(tmp_path):
    job = finished(tmp_path, "used", at=1.0)
    mark = job.with_name(job.name + MARK)
    mark.write_text(json.dumps({**json.loads(mark.read_text()), RETAIN: 0.0}))
    use, storage = begin_use(job), JobStorage(tmp_path.as_uri(), "new", "")
    assert storage.sweep() == [] and job.exists()
    use.end()
    assert storage.sweep() == ["used"] and not job.exists()
    assert JobStorage(tmp_path.as_uri(), "new", "", epoch=2).folder == tmp_path / directory_name("new", 2)


ENDS = """
import atexit, sys
import pyarrow.fs as pafs
from firesteel.spark.storage.directories import JobStorage, marks_in

@atexit.register
def tidy_up():
    print(len(list(marks_in(pafs.SubTreeFileSystem(sys.argv[1], pafs.LocalFileSystem()), ""))))
    JobStorage(sys.argv[1], "new", "").leave_room(0)
"""


def test_room_is_left_as_a_process_ends(tmp_path):
    """No thread can be started then."""
    jobs = [finished(tmp_path, "one", ["a"]), finished(tmp_path, "two", ["b"])]
    end = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (end.stdout, end.stderr) == ("2\n", "") and not any(one.exists() for one in jobs)


def test_tidying_up_does_not_raise_where_something_else_lies(tmp_path):
    (tmp_path / f"{directory_name('odd', 1)}{MARK}").write_text('{"finished": true}')
    storage = JobStorage(str(tmp_path), "new", "", place=Place("script", "process"))
    storage.supersede(finished=True)
    storage.leave_room(0)
