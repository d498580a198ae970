"""Corrected scripts whose results lie on an object store: what is as it was is copied there, whatever happens to the driver meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from corrected_kit import FAILS, SCRIPT, expected, forget_marks, until, write_input
from dying_kit import PATHS, begun, ended, firesteel
from firesteel.cli.main import app
from firesteel.results.storage import owner
from s3_server import files_of, new_bucket

pytestmark = pytest.mark.full

ALL = {"read", "sum", "bonus", "last"}
JOB = f"""
import itertools, os, sys

from dying_kit import dies_at
from firesteel import ExecutionEnvironment
from firesteel.compile.identity import prints
from firesteel.recovery.objects import ObjectPath
from plane.session import Session

FOLDER, STORAGE = sys.argv[1:]
prints._SETTLED = 0  # files that were written just now are known
copies = itertools.count(1)
if os.environ.get("DIES"):
    when, number = os.environ["DIES"].split()
    dies_at(ObjectPath, "copy_to", when, lambda *_: next(copies) == int(number))
{SCRIPT}

if __name__ == "__main__":
    env = ExecutionEnvironment(spark=Session(slots=2), options={{
        "firesteel.progress": False,
        "firesteel.journal.directory": f"{{FOLDER}}/journal",
        "firesteel.storage.directory": STORAGE,
        "firesteel.recovery.mode": "on-request",
        "firesteel.results.pure": "pyarrow.parquet.write_table",
        "firesteel.decider.least-volume-per-slot": 0,
        "data-volume-per-task": "1 kb",
        "jobmanager.partition.release-during-job-execution": False,
        "restart-strategy.type": "none",
    }})
    env.read_parquet(f"{{FOLDER}}/in").name("copied").write_parquet(f"{{FOLDER}}/copy")
    rows().write_parquet(f"{{FOLDER}}/out")
    env.execute("sums")
"""
FIXED = JOB.replace(FAILS, "")


class Bucket:
    """A script, its input, and the place of its results."""

    def __init__(self, folder):
        self.folder, self.script = folder, folder / "job.py"
        name, self.fs = new_bucket()
        self.url, self.path = f"s3://{name}/r", f"{name}/r"

    def begin(self, text, *flags, **environment):
        """A driver in a process of its own. Forgets the marks of the one before."""
        forget_marks(self.folder)
        self.script.write_text(text)
        return begun(self.script, self.folder, self.url, flags=flags, **environment)

    def fails(self, text=JOB, *flags):
        end = ended(self.begin(text, *flags))
        assert end.returncode == 1 and "not written yet" in end.stderr, end.stderr

    def answers(self, text=FIXED, **terms):
        """Goes on: the answer is right, and nothing is left."""
        end = ended(self.begin(text, "--resume"))
        assert end.returncode == 0, end.stderr
        self.check(**terms)
        assert self.left() == []
        return end

    def check(self, **terms):
        found = sorted(pq.read_table(self.folder / "out").to_pylist(), key=lambda row: row["h"])
        assert found == expected(**terms)
        assert sorted(pq.read_table(self.folder / "copy").column("v").to_pylist()) == list(range(400))
        assert [path.name for path in self.folder.glob(".*firesteel*")] == []

    def began(self):
        return {path.name.split("-")[0] for path in (self.folder / "marks").iterdir()}

    def left(self):
        return files_of(self.fs, self.path)

    def said(self, *words):
        """By a command in a process of its own, as one that runs a script must be."""
        environment = {**os.environ, "PYTHONPATH": PATHS}
        command = [sys.executable, "-m", "firesteel", *words]
        end = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, check=False, text=True)
        assert end.returncode == 0, end.stderr
        return end.stdout

    def clean(self):
        assert "Removed 1 thing" in firesteel(
            "clean", "--results", "--yes", "-O", f"firesteel.storage.directory={self.url}"
        )
        assert self.left() == []

    def ids(self):
        """Of jobs that have left something."""
        names = [path.removeprefix(f"{self.path}/") for path in self.left()]
        return {name.removeprefix("firesteel-job-").split(".")[0] for name in names if name.endswith(".owner.json")}


@pytest.fixture
def bucket(s3, tmp_path):
    write_input(tmp_path)
    return Bucket(tmp_path)


def test_what_is_as_it_was_is_kept_over_several_failures(bucket):
    """Files that a sink had staged, too. It is said beforehand, and told as one story."""
    bucket.fails()
    assert bucket.began() == ALL
    (job,) = bucket.ids()
    bucket.fails(JOB.replace("RATE = 2", "RATE = 3"), "--resume")
    assert bucket.began() == {"sum", "last"} and len(bucket.ids()) == 2
    bucket.script.write_text(FIXED)
    place = ("-O", f"firesteel.storage.directory={bucket.url}", "-O", "firesteel.recovery.mode=on-request")
    assert "failed" in firesteel("results", job, *place[:2])
    said = bucket.said("resume", job, "--dry-run", *place)
    assert "which ended as FAILED" in said and "'sum' is kept: 8 of 8 subtasks." in said, said
    bucket.answers(FIXED.replace("RATE = 2", "RATE = 3"), rate=3)
    assert bucket.began() == {"last"}
    (journal, *_) = sorted((bucket.folder / "journal").iterdir(), key=lambda path: -path.stat().st_mtime)
    explained = firesteel("explain", journal)
    assert "are kept from job" in explained and "which ended as FAILED" in explained, explained


def test_results_that_are_gone_are_made_again(bucket):
    bucket.fails()
    of_sum = [path for path in bucket.left() if "/d" in path and path.endswith(".fsr")]
    for path in of_sum[::3]:
        bucket.fs.delete_file(path)
    bucket.answers(FIXED.replace("RATE = 2", "RATE = 3"), rate=3)


def test_a_driver_that_is_killed_as_it_copies(bucket):
    bucket.fails()
    assert ended(bucket.begin(FIXED, "--resume", DIES="after 5")).returncode == -9
    assert len(bucket.ids()) == 2
    bucket.answers()
    assert "last" in bucket.began()


def test_what_a_killed_driver_has_not_copied_is_kept_by_the_next_correction(bucket):
    """It has read's results by then, and some of sum's."""
    bucket.fails()
    assert ended(bucket.begin(FIXED, "--resume", DIES="before 12")).returncode == -9
    bucket.answers(FIXED.replace('mark("last", key[0].as_py())', 'mark("last", int(key[0].as_py()))'))
    assert bucket.began() == {"last"}


def test_a_driver_that_is_frozen_as_it_copies_and_wakes_up_when_another_has_finished(bucket):
    """Of its job nothing is left, and what it had the copies from stays for its time."""
    bucket.fails()
    (first,) = bucket.ids()
    frozen = bucket.begin(FIXED, "--resume", DIES="stops 5")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    end = ended(bucket.begin(FIXED, "--resume"))
    assert end.returncode == 0, end.stderr
    os.kill(frozen.pid, signal.SIGCONT)
    end = ended(frozen)
    assert end.returncode == 1 and "another driver" in end.stderr, end.stderr
    bucket.check()
    assert {path.split("/")[2].split(".")[0] for path in bucket.left()} == {f"firesteel-job-{first}"}
    bucket.clean()


def test_what_is_kept_is_removed(bucket):
    bucket.fails()
    bucket.clean()


def test_a_clean_on_another_machine_leaves_what_a_correction_goes_on_from(bucket, monkeypatch):
    """While it waits in its last step."""
    bucket.fails()
    (first,) = bucket.ids()
    wait = "    while not os.path.exists(f'{FOLDER}/go'):\n        time.sleep(0.02)\n"
    mark = '    mark("last", key[0].as_py())\n'
    waits = FIXED.replace(mark, f"{wait}{mark}").replace("import itertools, os, sys", "import itertools, os, sys, time")
    going_on = bucket.begin(waits, "--resume")
    until(lambda: any(f"{first}/used/" in path for path in bucket.left()) and len(bucket.ids()) == 2)
    monkeypatch.setattr(owner, "_host", lambda: "another boot pid")
    end = CliRunner().invoke(
        app, ["clean", "--results", "--yes", first, "-O", f"firesteel.storage.directory={bucket.url}"]
    )
    assert end.exit_code and "a running job uses them" in str(end.exception), end.output
    (bucket.folder / "go").touch()
    end = ended(going_on)
    assert end.returncode == 0, end.stderr
    bucket.check()
    assert bucket.left() == []
