"""Scripts of several jobs whose driver is killed in one of them, or between two: no output is published twice, and none is missing."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dying_kit import begun, ended, firesteel

SCRIPT = """
import os, sys, time
from pathlib import Path

import pyarrow.parquet as pq

from dying_kit import dies_as_it_writes
from firesteel import ExecutionEnvironment
from plane.session import Session

FOLDER = Path(sys.argv[1])
dies_as_it_writes()


def waits(batches):
    while not (FOLDER / "go").exists():
        (FOLDER / "waits").touch()
        time.sleep(0.05)
    yield from batches


def main():
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(FOLDER / "journal"),
        "firesteel.storage.directory": str(FOLDER / "storage"),
    }
    env = ExecutionEnvironment(spark=Session(slots=1), options=options)

    def rows(*values):
        return env.from_collection([(value,) for value in values], "x bigint")

    rows(1, 2).write_parquet(FOLDER / "out", mode="append")
    first = env.execute("first")
    print(first.job_name, rows(5).collect())
    rows(3).write_parquet(FOLDER / "new")
    env.execute("second")
    if "FAILS" in os.environ:
        raise ValueError("after the second")
    many = rows(4)
    if "WAITS" in os.environ:
        many = many.map_in_arrow(waits, "x bigint")
    many.write_parquet(FOLDER / "out", mode="append")
    env.execute("third")


if __name__ == "__main__":
    main()
    for name in ("out", "new"):
        print(name, sorted(pq.read_table(FOLDER / name)["x"].to_pylist()))
"""
EXPECTED = "first [{'x': 5}]\nout [1, 2, 4]\nnew [3]\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path


def run(folder, *flags, **environment):
    return ended(begin(folder, *flags, **environment))


def begin(folder, *flags, **environment):
    return begun(folder / "job.py", folder, flags=flags, **environment)


def kept(folder, command, *arguments):
    """Of what is kept there, as the command line tells."""
    return firesteel(command, *arguments, "-O", f"firesteel.storage.directory={folder / 'storage'}")


def goes_on(folder, **environment):
    end = run(folder, "--resume", **environment)
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr
    assert [path for path in (folder / "storage").rglob("*") if path.is_file()] == []
    assert [path.name for path in folder.glob(".*")] == []
    return end


@pytest.mark.full
@pytest.mark.parametrize("dies", ["after over 1", "before over 2", "after over 3"])
def test_a_killed_driver(folder, dies):
    assert run(folder, DIES=dies).returncode == -9
    end = goes_on(folder)
    assert "Job 1 of the script ('first'" in end.stderr and "nothing is computed or published again" in end.stderr


@pytest.mark.full
@pytest.mark.parametrize("when", ["before", "torn", "after"])
def test_killed_at_any_group_of_any_log(folder, when, tmp_path_factory):
    for number in range(1 + ["before", "torn", "after"].index(when), 1000, 3):  # each way looks at other groups
        own = tmp_path_factory.mktemp("own")
        (own / "job.py").write_text(SCRIPT)
        end = run(own, DIES=f"{when} group {number}")
        if end.returncode == 0:
            assert end.stdout == EXPECTED
            break
        assert end.returncode == -9, end.stderr
        goes_on(own)
    assert number > 10


@pytest.mark.full
def test_drivers_killed_one_after_another(folder):
    assert run(folder, DIES="after published 1").returncode == -9
    for number in range(3, 60, 3):
        end = run(folder, "--resume", DIES=f"after group {number}")
        if end.returncode == 0:
            break
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr


@pytest.mark.full
def test_a_script_that_failed_after_it_had_published(folder):
    end = run(folder, FAILS="1")
    assert end.returncode == 1 and "after the second" in end.stderr
    assert "the jobs 'first', 'second' began to publish" in kept(folder, "results")
    goes_on(folder)
    assert "There are no results" in kept(folder, "results")


@pytest.mark.parametrize("changed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_job_that_had_published(folder, changed):
    """Its outputs stay, and the job that was publishing publishes once. ``changed``: it is refused until it is again what it was."""
    assert run(folder, DIES="torn publishing 2").returncode == -9
    if changed:
        script = folder / "job.py"
        script.write_text(SCRIPT.replace("rows(1, 2)", "rows(1, 7)"))
        end = run(folder, "--resume")
        assert end.returncode == 2, end.stderr
        assert "Job 1 of the script ('first'" in end.stderr and "is not what it was" in end.stderr
        script.write_text(SCRIPT)
    end = goes_on(folder)
    assert "Job 1 of the script ('first'" in end.stderr and "nothing is computed or published again" in end.stderr


@pytest.mark.full
def test_what_a_job_was_publishing_is_gone(folder):
    assert run(folder, DIES="after publishing 2").returncode == -9
    listed = kept(folder, "results", "--json")
    assert '"step"' not in listed and '"out": "began"' in listed, listed
    assert "'firesteel recover' takes back" in kept(folder, "clean", "--results", "--yes")
    end = run(folder, "--resume")
    assert end.returncode == 2 and "what was kept of it is gone" in end.stderr, end.stderr


@pytest.mark.full
def test_a_run_that_goes_on_elsewhere_is_left_alone(folder):
    living = begin(folder, WAITS="1")
    while not (folder / "waits").exists():
        assert living.poll() is None, living.communicate()
    end = run(folder, "--resume", WAITS="1")
    assert end.returncode == 2 and "still runs: its driver, process" in end.stderr, end.stderr
    (folder / "go").touch()
    end = ended(living)
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr


@pytest.mark.full
def test_two_go_on_at_once(folder):
    """One wins, the other one says who."""
    assert run(folder, DIES="after over 2").returncode == -9
    both = [begin(folder, "--resume", WAITS="1") for _ in range(2)]
    while all(process.poll() is None for process in both):
        time.sleep(0.1)
    lost, won = sorted(both, key=lambda process: process.poll() is None)
    end = ended(lost)
    said = (
        "was taken over by another driver just now",
        "goes on in process",
        "still runs: its driver, process",
        "which begins with it",
    )
    assert end.returncode == 2 and any(words in end.stderr for words in said), end.stderr
    (folder / "go").touch()
    end = ended(won)
    assert (end.returncode, end.stdout) == (0, EXPECTED), end.stderr


@pytest.mark.full
def test_a_frozen_process_that_wakes_up_when_another_has_the_run(folder):
    frozen = begin(folder, DIES="stops publishing 3", WAITS="1")
    (folder / "go").touch()
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    goes_on(folder, WAITS="1")
    os.kill(frozen.pid, signal.SIGCONT)
    end = ended(frozen)
    assert end.returncode == 1 and "another driver has taken the job over" in end.stderr, end.stderr
