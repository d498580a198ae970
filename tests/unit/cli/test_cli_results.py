"""Results that are kept for a resume: listed, described, removed; never those of a running job."""

from __future__ import annotations

import json
import os
import time
from functools import partial

import pytest
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.errors import FiresteelError, UsageError
from firesteel.options import Options
from firesteel.recovery.files import FileLog
from firesteel.recovery.frames import frame
from firesteel.recovery.takeover import check_dead, find_job, take_over
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.recovery.records import (
    FORMAT,
    Deployed,
    DriverBegan,
    LogHeader,
    SinkStep,
    encode_records,
)
from firesteel.spark.recovery import header
from firesteel.spark.storage.directories import JobStorage
from firesteel.spark.storage.leftovers import KeptResults

DEAD = {"pid": 2**22 + 1, "started": "1"}
FAR = {"host": "far 1 2", "pid": 11, "started": "1"}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "storage").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").touch()
    return tmp_path / "storage"


def leave(root, job_id, *, owner=DEAD, retain=3600.0, steps=(), script="job.py", versions=None, age=0.0):
    """A job of two steps, the second with a sink, as a driver leaves it. ``steps``: of the sink."""
    storage = JobStorage(str(root), job_id, "app", retain=retain)
    storage.create()
    vertices = [{"id": k, "name": name, "parallelism": -1} for k, name in enumerate(("parse", "sum"))]
    plan = JobPlanned(
        at=0.0, job_id=job_id, job_name="sums", vertices=vertices, datasets=[{"id": 0, "producer": 0}], options={}
    )
    mine = {"firesteel": header._version("firesteel"), **header._versions(), **(versions or {})}
    written = LogHeader(
        FORMAT,
        mine.pop("firesteel"),
        mine,
        job_id,
        "sums",
        "run",
        0,
        str(root.parent / script),
        ["a b"],
        plan,
        b"",
        b"",
        [],
    )
    log = FileLog(storage.directory / "log", 1)
    columns = {"subtasks": bytes(8), "attempts": bytes(8), "inputs": bytes(32)}
    entries = [
        [DriverBegan(1, 7, "far", 11, "s", "app", time.time(), 0.0)],
        [written],
        [Deployed(vertex=0, parallelism=2, outputs=(4,), **columns)],
        *([SinkStep(1, 0, step, b"{}" if step == "begun" else b"")] for step in steps),
    ]
    log.append(frame([encode_records(entry) for entry in entries]))
    log.close()
    (storage.directory / "d0-p0-a0-t1.fsr").write_bytes(bytes(3000))
    mark = root / f"firesteel-job-{job_id}.owner.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **owner}))
    for path in [*root.glob(f"firesteel-job-{job_id}*"), *storage.directory.rglob("*")]:
        os.utime(path, (time.time() - age,) * 2)
    return storage


def invoke(root, *arguments):
    return CliRunner().invoke(app, [*arguments, "-O", f"firesteel.storage.directory={root}"])


def listed(root):
    lines = invoke(root, "results", "--json").stdout.splitlines()
    return {one["job"]: one for one in map(json.loads, lines)}


def test_of_all_jobs(root):
    assert "There are no results of jobs that could be resumed or used" in invoke(root, "results").stdout
    leave(root, "dead", steps=("begun",))
    leave(root, "living", owner={})
    leave(root, "far", owner=FAR)
    leave(root, "old", age=4000.0)
    leave(root, "other", versions={"pyarrow": "1.0"})
    leave(root, "gone", script="gone.py")
    damaged = leave(root, "bad")
    (damaged.directory / "log" / "e0001.fsl").write_bytes(b"something else")
    JobStorage(str(root), "without", "app").create()
    found = listed(root)
    assert {job_id: one["state"] for job_id, one in found.items()} == {
        "dead": "driver died",
        "living": "running",
        "far": "elsewhere",
        "old": "no longer kept",
        "other": "driver died",
        "gone": "driver died",
        "bad": "driver died",
    }
    assert {job_id for job_id, one in found.items() if one["resumable"]} == {"dead", "far", "old"}
    dead = found["dead"]
    assert 3400 < dead["until"] - time.time() < 3600 and found["living"]["until"] is None
    assert dead["bytes"] > 3000 and (dead["finished"], dead["subtasks"], dead["drivers"]) == (0, 2, 1)
    assert found["other"]["why_not"].startswith("pyarrow 1.0 then, ")
    assert found["gone"]["why_not"].startswith("its script is not at ")
    assert "is no log of a job" in found["bad"]["why_not"]
    said = invoke(root, "results").stdout.splitlines()
    assert said[0].split()[:3] == ["job", "name", "state"] and said[-1].startswith("7 jobs, 24")
    assert any(line.endswith("job.py 'a b'") and line.startswith("dead") for line in said)


def test_of_one_job(root):
    leave(root, "dead1", steps=("begun", "publishing"))
    leave(root, "dead2")
    said = invoke(root, "results", "dead1").stdout
    assert "Job dead1 'sums'" in said and "output    'sum': publishing" in said
    assert f"firesteel run --resume dead1 {root.parent}/job.py 'a b', with the options that it had (-O)" in said
    assert [line.split() for line in said.splitlines()[-2:]] == [
        ["[0]", "parse", "0", "of", "2", "1", "2.93", "KiB"],
        ["[1]", "sum", "0", "of", "?", "0", "0", "B"],
    ]
    (one,) = map(json.loads, invoke(root, "results", "dead1", "--json").stdout.splitlines())
    assert one["steps"][0] == {
        "vertex": 0, "name": "parse", "finished": 0, "subtasks": 2, "objects": 1, "bytes": 3000,
    }  # fmt: skip
    for wanted, message in (("dead", "begin with dead: "), ("x", "no results of job x")):
        error = invoke(root, "results", wanted).exception
        assert isinstance(error, UsageError) and message in str(error)


def test_a_sink_that_cannot_say_what_it_has_published(root):
    leave(root, "dead", steps=("publishing",))
    assert "'sum' was being published when its driver died" in listed(root)["dead"]["why_not"]


def test_all_that_is_kept_is_removed(root):
    leave(root, "dead", steps=("begun", "publishing"))
    leave(root, "old", age=4000.0)
    leave(root, "living", owner={})
    leave(root, "far", owner=FAR)
    young = invoke(root, "clean", "--results", "--older-than", "1h", "--dry-run").stdout
    assert "job old" in young and "job dead" not in young
    shown = invoke(root, "clean", "--results", "--dry-run").stdout
    assert "Stays:" in shown and "of job living: it still runs" in shown and "clean --results far" in shown
    assert "'sum' may be half published, which 'firesteel recover' takes back" in shown
    assert set(listed(root)) == {"dead", "old", "living", "far"}
    shown = invoke(root, "clean", "--results", "--yes").stdout
    assert "Removed 2 things" in shown
    assert {path.name.split(".")[0] for path in root.iterdir()} == {"firesteel-job-living", "firesteel-job-far"}
    assert isinstance(invoke(root, "clean", "dead", "--yes").exception, UsageError)


def test_one_job_is_removed(root, monkeypatch):
    monkeypatch.setattr("firesteel.spark.storage.leftovers.check_dead", partial(check_dead, watch_seconds=0.3))
    leave(root, "living", owner={})
    leave(root, "far", owner=FAR)
    bad = leave(root, "bad")
    (bad.directory / "log" / "e0001.fsl").write_bytes(b"something else")
    error = invoke(root, "clean", "--results", "living", "--yes").exception
    assert isinstance(error, UsageError) and "its driver still runs" in str(error)
    for job_id in ("bad", "far"):
        assert "Removed 1 thing" in invoke(root, "clean", "--results", job_id, "--yes").stdout
    assert {path.name.split(".")[0] for path in root.iterdir()} == {"firesteel-job-living"}


def test_results_that_another_driver_has_just_taken_over_stay(root):

    leave(root, "dead")
    places = KeptResults(Options({"firesteel.storage.directory": str(root)}))
    job = places.job("dead")
    take_over(find_job(root, "dead"))
    with pytest.raises(FiresteelError, match="taken over by another driver, or removed, just now"):
        places.remove(job)
    assert (root / "firesteel-job-dead.e2" / "log" / "e0001.fsl").exists()
