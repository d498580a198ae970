"""A job whose driver is killed goes on in another process: nothing that had finished runs again, and the answer is the same."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter

import pytest

from dying_kit import begun, ended, firesteel
from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError
from firesteel.recovery.files import read_log
from firesteel.scheduler.kernel.events import ExecutionsFinished
from firesteel.scheduler.recovery.codec import decode
from firesteel.scheduler.recovery.records import Told

SCRIPT = '''
import os, sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dying_kit import dies_as_it_writes, dies_at
from firesteel import ExecutionEnvironment
from firesteel.results.storage.store import ResultStore

FOLDER = Path(sys.argv[1])
dies_as_it_writes()
if "REMOVES" in os.environ:
    dies_at(ResultStore, "delete_all", "after", lambda: True)


def began(step):
    """Leaves a mark for each subtask that begins."""
    with open(FOLDER / "began", "a") as file:
        file.write(f"{step}\\n")


def parse(batches):
    began("parse")
    for batch in batches:
        v = pc.cast(batch.column(0), pa.int64())
        yield pa.record_batch({"k": pc.bit_wise_and(v, 15), "v": v})


def same(batches):
    began("sum")
    yield from batches


def summed(key, table):
    return pa.table({"k": [key[0].as_py()], "v": [pc.sum(table.column("v")).as_py()]})


def main(spark):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(FOLDER / "journal"),
        "firesteel.storage.directory": str(FOLDER / "storage"),
        "data-volume-per-task": "1 kb",
        "firesteel.decider.least-volume-per-slot": 0,
    }
    env = ExecutionEnvironment(spark=spark, options=options)
    rows = env.read_text(str(FOLDER / "in" / "*.txt")).map_in_arrow(parse, "k bigint, v bigint")
    sums = rows.key_by("k").apply_in_arrow(summed, "k bigint, v bigint").map_in_arrow(same, "k bigint, v bigint")
    if "OUT" in os.environ:
        sums.write_parquet(FOLDER / "out")
        env.execute("sums")
        found = pq.read_table(FOLDER / "out").to_pylist()
    else:
        found = sums.collect()
    for row in sorted(found, key=lambda row: row["k"]):
        print(row["k"], row["v"])


if __name__ == "__main__":
    if os.environ["ON"] == "plane":
        from plane.session import Session

        main(Session(slots=2))
    else:
        main(None)
'''
ROWS = 2000


def slow(value):
    return pytest.param(value, marks=pytest.mark.full)


MANY = map(
    slow,
    [
        "after group 1",
        "before group 2",
        "torn group 3",
        "after finish 1",
        "after finish 3",
        "before finish 5",
        "after finish 6",
    ],
)
SUBTASKS = Counter(parse=9, sum=16)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for k in range(4):
        (tmp_path / "in" / f"{k}.txt").write_text("".join(f"{v}\n" for v in range(ROWS) if v % 4 == k))
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path


EXPECTED = "".join(f"{k} {sum(range(k, ROWS, 16))}\n" for k in range(16))


def begin(folder, *flags, on="plane", dies="", **environment):
    """A driver, begun in a process of its own."""
    return begun(folder / "job.py", folder, flags=flags, DIES=dies, ON=on, **environment)


def run(folder, *flags, **given):
    return ended(begin(folder, *flags, **given))


def began(folder):
    """How many subtasks of each step have begun."""
    path = folder / "began"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def finished(folder):
    """How many subtasks of each step are in the log as finished."""
    (log,) = folder.glob("storage/firesteel-job-*/log")
    told = [entry[0] for entry in read_log(log).entries if isinstance(entry[0], Told)]
    events = [decode(one.event) for one in told]
    found = Counter()
    for event in events:
        if isinstance(event, ExecutionsFinished):
            found[("parse", "sum")[event.vertex]] += len(event.subtasks)
    return found


def goes_on(folder, *flags, **given):
    """In another process: runs just what was not in the log as finished. Returns how many executions were."""
    before, kept = began(folder), finished(folder)
    end = run(folder, *(flags or ("--resume",)), **given)
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert began(folder) - before == SUBTASKS - kept
    assert [p for p in (folder / "storage").rglob("*") if p.is_file()] == []
    return kept.total()


@pytest.mark.full
def test_an_undisturbed_run_leaves_nothing(folder):
    end = run(folder)
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert [p for p in (folder / "storage").rglob("*") if p.is_file()] == []
    assert began(folder) == SUBTASKS


@pytest.mark.full
def test_a_resume_of_what_has_finished_says_that_nothing_was_left(folder):
    assert run(folder, OUT="1").returncode == 0
    end = run(folder, "--resume", OUT="1")
    assert end.returncode == 2
    assert "begins anew: no job at its place in this script was left unfinished. The output" in end.stderr
    assert "exists already" in end.stderr


@pytest.mark.parametrize("dies", ["torn finish 2", *MANY])
def test_a_killed_driver(folder, dies):
    killed = run(folder, dies=dies)
    if killed.returncode == 0:  # on so slow a machine that fewer events told of all
        assert killed.stdout == EXPECTED
        return
    assert killed.returncode == -9, killed.stderr
    goes_on(folder)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("dies", ["after group 2", "torn finish 2", "after finish 4"])
def test_a_killed_driver_on_spark(folder, dies):
    on_spark = {"on": "spark"}
    killed = run(folder, "--master", "local[2]", dies=dies, **on_spark)
    assert killed.returncode == -9, killed.stderr
    goes_on(folder, "--resume", "--master", "local[2]", **on_spark)


@pytest.mark.full
@pytest.mark.parametrize("dies", ["before publishing 1", "after group 2", "after finish 2"])
def test_a_killed_driver_whose_job_writes_files(folder, dies):
    """What it had staged is published with the rest."""
    killed = run(folder, dies=dies, OUT="1")
    assert killed.returncode == -9, killed.stderr
    assert not (folder / "out").exists()
    goes_on(folder, OUT="1")
    assert [path.name for path in folder.glob(".out*")] == []


@pytest.mark.full
def test_staged_files_that_another_job_has_removed_are_made_again(folder):
    assert run(folder, dies="after finish 2", OUT="1").returncode == -9
    for staging in folder.glob(".out.firesteel-*"):
        shutil.rmtree(staging)
    before, kept = began(folder), finished(folder)
    end = run(folder, "--resume", OUT="1")
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert began(folder) - before == SUBTASKS - Counter(parse=kept["parse"])


@pytest.mark.full
def test_staged_files_that_are_gone_as_they_are_to_be_published(folder):
    """It says so, and leaves all as it is."""
    assert run(folder, dies="before publishing 1", OUT="1").returncode == -9
    (staging,) = folder.glob(".out.firesteel-*")
    staging.rename(folder / "aside")
    end = run(folder, "--resume", OUT="1")
    assert end.returncode == 1 and "what it had staged for 'write out' is gone" in end.stderr, end.stderr
    (folder / "aside").rename(staging)
    goes_on(folder, OUT="1")


@pytest.mark.full
@pytest.mark.parametrize("dies", ["before published 1", "after publishing 1", "after published 1"])
def test_a_killed_driver_that_published(folder, dies):
    """It is published once, whatever was done of it."""
    assert run(folder, dies=dies, OUT="1").returncode == -9
    goes_on(folder, OUT="1")
    assert [path.name for path in folder.glob(".out*")] == []


@pytest.mark.full
def test_a_killed_driver_of_whose_job_only_the_mark_is_left(folder):
    assert run(folder, OUT="1", REMOVES="1").returncode == -9
    assert list((folder / "storage").glob("firesteel-job-*.owner.json"))
    end = run(folder, "--resume", OUT="1")
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert [p for p in (folder / "storage").rglob("*") if p.is_file()] == []


@pytest.mark.full
def test_a_job_goes_on_by_its_id_over_several_drivers(folder):
    assert run(folder, dies="after finish 1").returncode == -9
    (directory,) = folder.glob("storage/firesteel-job-*.scratch")
    job_id = directory.name.removeprefix("firesteel-job-").removesuffix(".scratch")
    assert run(folder, f"--resume={job_id}", dies="torn finish 2").returncode == -9
    assert goes_on(folder) > 0
    (last, *_) = sorted((folder / "journal").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    assert f"Driver 3 goes on with job {job_id} ('collect') of process" in firesteel("explain", last)
    end = run(folder, "--resume", job_id)
    assert end.returncode == 2 and f"There is nothing of job {job_id}" in end.stderr


@pytest.mark.full
def test_a_script_may_go_on_by_itself(folder):
    auto = ("-O", "firesteel.recovery.mode=auto")
    assert run(folder, *auto, dies="after finish 1").returncode == -9
    assert goes_on(folder, *auto) > 0
    end = run(folder, *auto)
    assert (end.returncode, end.stdout, end.stderr) == (0, EXPECTED, "")


@pytest.mark.full
def test_a_frozen_driver_that_wakes_up_when_another_has_the_job(folder):
    frozen = begin(folder, dies="stops finish 2")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    end = run(folder, "--resume")
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    os.kill(frozen.pid, signal.SIGCONT)
    end = ended(frozen)
    assert end.returncode == 1 and end.stdout == ""
    assert "another driver has taken the job over" in end.stderr
    assert [p for p in (folder / "storage").rglob("*") if p.is_file()] == []


def test_without_a_log_there_is_nothing_to_resume_from(session, tmp_path):
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    env = ExecutionEnvironment(spark=session, options={**places, "firesteel.recovery.mode": "off"})
    env.from_collection([1]).write_parquet(tmp_path / "out")
    with pytest.raises(UsageError, match="no log of jobs is written"):
        env.execute("ones", resume=True)


@pytest.mark.full
def test_a_script_that_was_changed_begins_anew(folder):
    assert run(folder, dies="after finish 1").returncode == -9
    script = folder / "job.py"
    script.write_text(script.read_text().replace("bit_wise_and(v, 15)", "bit_wise_and(v, 7)"))
    end = run(folder, "--resume")
    assert end.stdout == "".join(f"{k} {sum(range(k, ROWS, 8))}\n" for k in range(8)), end.stderr
    assert "begins anew: job" in end.stderr and "code of parse, which has changed" in end.stderr
