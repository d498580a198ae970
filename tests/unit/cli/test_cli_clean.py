"""What is left over: found, listed, asked about, removed; and what a living job owns."""

from __future__ import annotations

import json
import os
import time

import pytest
from typer.testing import CliRunner

from firesteel.cli.leftovers import age_of
from firesteel.cli.main import app
from firesteel.errors import FiresteelError, UsageError
from firesteel.journal.file import Journal
from firesteel.options import Options
from firesteel.results.storage.owner import myself
from firesteel.spark.storage.directories import JobStorage
from firesteel.spark.storage.leftovers import Leftovers, Owner

DEAD = {**myself(), "pid": 2**22 + 1, "started": "1"}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "storage").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "storage"


def job(root, job_id: str, owner=None, size: int = 1000):
    storage = JobStorage(str(root), job_id, "app")
    storage.create()
    (root / f"firesteel-job-{job_id}" / "object").write_bytes(bytes(size))
    if owner is not None:
        (root / f"firesteel-job-{job_id}.owner.json").write_text(json.dumps(owner))
    return storage


def leftovers(root) -> Leftovers:
    return Leftovers(Options({"firesteel.storage.directory": str(root)}))


def clean(root, *arguments: str, **more):
    return CliRunner().invoke(app, ["clean", "-O", f"firesteel.storage.directory={root}", *arguments], **more)


def test_results_of_dead_jobs_go_and_those_of_living_ones_stay(root):
    job(root, "living")
    job(root, "dead", DEAD, 5000)
    job(root, "elsewhere", {"host": "other 1 2", "pid": 1, "started": "1"})
    places = leftovers(root)
    found = {each.job_id: each for each in places.found()}
    assert {name: each.owner for name, each in found.items()} == {
        "living": Owner.ALIVE,
        "dead": Owner.DEAD,
        "elsewhere": Owner.ELSEWHERE,
    }
    assert found["dead"].bytes >= 5000 and len(found["dead"].paths) == 3
    places.remove(found["dead"])
    with pytest.raises(FiresteelError, match="it still runs"):
        places.remove(found["living"])
    assert {path.name.split(".")[0] for path in root.iterdir()} == {"firesteel-job-living", "firesteel-job-elsewhere"}


def test_a_job_that_took_the_place_meanwhile_is_left_alone(root):
    job(root, "again", DEAD)
    places = leftovers(root)
    (found,) = places.found()
    (root / "firesteel-job-again.owner.json").write_text(json.dumps(myself()))
    with pytest.raises(FiresteelError):
        places.remove(found)
    assert (root / "firesteel-job-again" / "object").exists()


def test_a_directory_without_its_mark_goes_after_a_while(root):
    directory = root / "firesteel-job-x.scratch.removed"
    directory.mkdir()
    (found,) = leftovers(root).found()
    assert (found.job_id, found.owner) == ("x", Owner.UNKNOWN)
    os.utime(directory, (1, 1))
    (found,) = leftovers(root).found()
    assert found.owner is Owner.DEAD


def test_scratch_of_workers_that_are_gone(root, tmp_path):
    for job_id, pid in (("old", 2**22 + 1), ("used", os.getpid())):
        scratch = tmp_path / "tmp" / f"firesteel-scratch-{job_id}"
        (scratch / str(pid)).mkdir(parents=True)
        (scratch / str(pid) / "spill").write_bytes(bytes(100))
        os.utime(scratch, (1, 1))
    places = leftovers(root)
    assert {each.job_id: (each.owner, each.bytes) for each in places.found()} == {
        "old": (Owner.DEAD, 100),
        "used": (Owner.ALIVE, 100),
    }
    places.remove(next(each for each in places.found() if each.may_go))
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["firesteel-scratch-used"]


def test_after_a_reboot_the_private_directory_is_this_machines(root, tmp_path):
    host, boot, namespace = myself()["host"].split(" ")
    private = tmp_path / "tmp" / f"firesteel-{os.getuid()}"
    private.mkdir()
    for place in (private, root):
        job(place, "before", {"host": f"{host} {boot[::-1]} {namespace}", "pid": 1, "started": "1"})
    assert [each.owner for each in Leftovers(Options()).found()] == [Owner.DEAD]
    assert [each.owner for each in leftovers(root).found()] == [Owner.ELSEWHERE], "other machines may have this name"


def test_the_command_lists_asks_and_removes(root):
    assert clean(root).stdout == "Nothing is left over.\n"
    job(root, "living")
    job(root, "dead", DEAD, 5000)
    shown = clean(root, "--dry-run")
    assert shown.exit_code == 0
    assert "of 1 job: it still runs, or is just ending." in shown.stdout
    assert "results of job dead in " in shown.stdout and "Left over: 1 thing, 4.9" in shown.stdout
    assert (root / "firesteel-job-dead").exists()
    asked = clean(root)
    assert isinstance(asked.exception, UsageError) and "--yes" in str(asked.exception), "nobody to ask"
    shown = clean(root, "--yes")
    assert (shown.exit_code, "Removed 1 thing, 4.9" in shown.stdout) == (0, True)
    assert sorted(path.name for path in root.iterdir() if "dead" in path.name) == []
    assert (root / "firesteel-job-living" / "object").exists()


@pytest.mark.parametrize(
    ("answer", "goes"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_a_user_is_asked(root, monkeypatch, answer, goes):
    job(root, "dead", DEAD)
    monkeypatch.setattr("firesteel.cli.leftovers._agreed", lambda: answer.strip() in ("y", "yes"))
    shown = clean(root)
    assert (shown.exit_code == 0) is goes
    assert (root / "firesteel-job-dead").exists() is not goes


def test_old_journals_go_when_asked_for_and_none_that_is_being_written(root, tmp_path):
    folder = tmp_path / "journals"
    options = Options({"firesteel.journal.directory": str(folder)})
    living, dead = Journal.create(options, "a", "a"), Journal.create(options, "b", "b")
    dead.close()
    for journal in (living, dead):
        os.utime(journal.path, (time.time() - 40 * 86400,) * 2)
    young = Journal.create(options, "c", "c")
    young.close()
    given = ("-O", f"firesteel.journal.directory={folder}", "--yes")
    assert clean(root, *given).stdout == "Nothing is left over.\n", "not without an age"
    shown = clean(root, *given, "--older-than", "30d")
    assert f"journal {dead.path}, 960 h old" in shown.stdout
    assert sorted(folder.iterdir()) == sorted([living.path, young.path])
    living.close()


def test_files_that_are_no_journals_stay(root, tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"a": 1}\n')
    (folder / "nothing.jsonl").touch()
    Journal(folder / "mine.jsonl").close()
    (folder / "20260102-030405_name_id.jsonl").write_text('{"type": "Journ')
    (tmp_path / "outside.jsonl").write_text('{"a": 1}\n')
    (folder / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    run = clean(root, "--yes", "--older-than", "1d", "-O", f"firesteel.journal.directory={folder}")
    assert run.exit_code == 0, run.output
    assert sorted(path.name for path in folder.iterdir()) == ["link.jsonl", "nothing.jsonl", "rows.jsonl"]


def test_a_link_in_a_jobs_place_is_not_followed(root, tmp_path):
    job(root, "dead", DEAD)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (root / "firesteel-job-dead" / "link").symlink_to(tmp_path / "precious")
    (root / "firesteel-job-link").symlink_to(tmp_path / "precious")
    (root / "firesteel-job-link.owner.json").write_text(json.dumps(DEAD))
    clean(root, "--yes")
    assert (tmp_path / "precious" / "file").exists()
    assert not (root / "firesteel-job-dead").exists()


def test_ages():
    assert [age_of(text) for text in ("30d", "12 h", "1.5w", "10min", "5s")] == [
        2592000,
        43200,
        907200,
        600,
        5,
    ]
    for text in ("30", "d", "3 months", "-1d"):
        with pytest.raises(UsageError, match="is not an age"):
            age_of(text)
