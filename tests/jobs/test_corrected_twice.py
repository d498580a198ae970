"""Two drivers that go on from one job: one of them does, and the outputs are published once."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from corrected_kit import FAILS, SCRIPT, Runs, expected, until, write_input
from firesteel.compile.identity import prints
from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from firesteel.recovery.takeover import find_job, is_held, take_over

WAITS = SCRIPT.replace(
    FAILS,
    "    import os, time\n\n    while not os.path.exists(f'{FOLDER}/go'):\n        time.sleep(0.02)\n",
)


@pytest.fixture
def runs(session, tmp_path, monkeypatch):
    monkeypatch.setattr(prints, "_SETTLED", 0)  # files that were written just now are known
    write_input(tmp_path)
    return Runs(session, tmp_path)


def failed(runs):
    """The id of the job."""
    env, rows = runs.rows(SCRIPT)
    rows.write_parquet(runs.folder / "out")
    with pytest.raises(JobExecutionError, match="not written yet"):
        env.execute("sums")
    (job,) = runs.jobs
    return job


def going_on(runs, job):
    """A corrected job, which waits in its last step."""
    env, rows = runs.rows(WAITS)
    rows.write_parquet(runs.folder / "out")
    client = env.execute_async("sums", resume=job)
    until(lambda: runs.began()["last"])
    return client


def test_the_second_one_is_told_of_the_first(runs):
    job = failed(runs)
    first = going_on(runs, job)
    env, rows = runs.rows(SCRIPT.replace(FAILS, ""))
    rows.write_parquet(runs.folder / "other")
    with pytest.raises(UsageError, match=r"has ended, and process .* goes on from what it left"):
        env.execute("sums", resume=job)
    (runs.folder / "go").touch()
    first.wait()
    assert sorted(pq.read_table(runs.folder / "out").to_pylist(), key=lambda row: row["h"]) == expected()
    assert runs.left == []


def test_one_from_which_another_has_taken_it_does_not_publish(runs):
    """As a driver on another machine would, which saw nobody write to the job's log."""
    job = failed(runs)
    first = going_on(runs, job)
    taken = take_over(find_job(runs.folder / "storage", job))
    (runs.folder / "go").touch()
    with pytest.raises(FiresteelError, match=f"Job {job} .* was taken over by another driver"):
        first.wait()
    assert not (runs.folder / "out").exists()
    assert is_held(taken), "it is the other driver's"
