"""A job that failed is corrected: what is as it was is kept, all behind a change runs again, and the answer is that of the new script."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from corrected_kit import FAILS, JOB, SCRIPT, Runs, command_of, expected, until, write_input
from firesteel.compile.identity import prints
from firesteel.errors import FiresteelError, JobCancelledError, JobExecutionError
from firesteel.recovery import takeover
from firesteel.spark.recovery.header import JobIdentity

ALL = {"read", "sum", "bonus", "last"}
BEHIND_READ = ALL - {"bonus"}
FIXED = SCRIPT.replace(FAILS, "")


@pytest.fixture
def settled(monkeypatch):
    """Files that were written just now are known."""
    monkeypatch.setattr(prints, "_SETTLED", 0)


@pytest.fixture
def runs(session, tmp_path, settled):
    write_input(tmp_path)
    return Runs(session, tmp_path)


def failed(runs, text=SCRIPT, resume=None, **options):
    """The id of the job, which failed."""
    before = set(runs.jobs)
    env, rows = runs.rows(text, **options)
    rows.write_parquet(runs.folder / "out")
    with pytest.raises(JobExecutionError, match="not written yet"):
        env.execute("sums", resume=resume)
    (job,) = set(runs.jobs) - before
    return job


def resumed(runs, job, text=FIXED, **options):
    """The answer of the corrected script's job, which keeps what it can of the other."""
    import pyarrow.parquet as pq

    env, rows = runs.rows(text, **options)
    rows.write_parquet(runs.folder / "out")
    result = env.execute("sums", resume=job)
    assert job not in runs.jobs and not (runs.folder / f".out.firesteel-{job}").exists()
    found = sorted(pq.read_table(runs.folder / "out").to_pylist(), key=lambda row: row["h"])
    return result, found


def edited(old, new):
    assert old in FIXED
    return FIXED.replace(old, new)


CHANGES = {
    "only what failed": (FIXED, {}, {"last"}),
    "comments and lines": (edited("def more(v):", "# of all\n\n\ndef more(v):"), {}, {"last"}),
    "a constant": (edited("RATE = 2", "RATE = 3"), {"rate": 3}, {"sum", "last"}),
    "a table that is captured": (
        edited('"w": [1] * 8', '"w": [1, 2, 3, 4, 5, 6, 7, 8]'),
        {"weights": (1, 2, 3, 4, 5, 6, 7, 8)},
        {"sum", "last"},
    ),
    "a value in a dict": (edited('"fee": 0', '"fee": 7'), {"fee": 7}, {"sum", "last"}),
    "a default": (edited("times=1", "times=2"), {"times": 2}, BEHIND_READ),
    "a function within another": (edited("pc.add(v, 1)", "pc.add(v, 5)"), {"more": 5}, BEHIND_READ),
    "the schema between": (edited('parse, "k bigint, v bigint"', 'parse, "k bigint, v double"'), {}, BEHIND_READ),
    "more subtasks": (edited('.name("sum")', '.name("sum").set_parallelism(3)'), {}, None),
}


def test_a_resume_reads_the_log_of_the_job_once_before_it_takes_it_over(runs, monkeypatch):
    identity, read, read_log = JobIdentity.of_next_job(), [], takeover.read_log
    monkeypatch.setattr(JobIdentity, "of_next_job", lambda: identity)  # one place in the script for both
    job = failed(runs)
    monkeypatch.setattr(takeover, "read_log", lambda log: read.append(log.parent.name) or read_log(log))
    resumed(runs, True)
    assert job not in runs.jobs and read.count(f"firesteel-job-{job}") == 1


def test_a_job_that_goes_on_says_at_its_beginning_what_is_kept_as_a_dry_run_does(runs, capsys):
    job = failed(runs)
    text = edited("RATE = 2", "RATE = 3")
    env, rows = runs.rows(text, **{"firesteel.recovery.dry-run": True})
    rows.write_parquet(runs.folder / "out")
    with pytest.raises(SystemExit):
        env.execute("sums", resume=job)
    told, *steps = capsys.readouterr().out.splitlines()
    assert told.startswith(f"The job goes on from job {job} ('sums'), which ended as FAILED: "), told
    assert "subtasks known by then had finished, and are kept as far as their results are there; 'sum', 'last" in told
    assert told.endswith(" run. 'sum': reads global RATE, 2 then, 3 now.") and len(steps) == 4
    resumed(runs, job, text, **{"firesteel.progress": True})
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("firesteel") and first.endswith(": 4 vertices")
    assert second.startswith("firesteel") and second.endswith(f" s  {told}")


@pytest.mark.parametrize(
    "change", [name if name == "a constant" else pytest.param(name, marks=pytest.mark.full) for name in CHANGES]
)
def test_just_what_is_behind_a_change_runs_again(runs, change):
    text, terms, again = CHANGES[change]
    if change == "the schema between":
        text = text.replace(
            'pc.multiply(more(batch["v"]), times)', 'pc.cast(pc.multiply(more(batch["v"]), times), "float64")'
        )
        text = text.replace('pc.sum(table.column("v")).as_py()', 'int(pc.sum(table.column("v")).as_py())')
    job = failed(runs)
    assert set(runs.began()) == ALL
    result, found = resumed(runs, job, text)
    assert found == expected(**terms)
    if again is not None:
        assert set(runs.began()) == again
    else:
        assert {"sum", "last"} <= set(runs.began())
    told = " ".join(decision.reason for decision in result.decision_records if decision.what == "resume")
    assert f"are kept from job {job}" in told


@pytest.mark.full
@pytest.mark.parametrize("keeps_time", [True, False])
def test_input_that_was_changed(runs, keeps_time):
    """Bytes of one file, with its size, and its time kept or not."""
    job = failed(runs)
    path = runs.folder / "in" / "0.parquet"
    before = path.stat()
    write_input(runs.folder, plus=1000)
    assert path.stat().st_size == before.st_size
    if keeps_time:
        for file in path.parent.iterdir():
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    result, found = resumed(runs, job)
    assert found == expected(plus=1000) and set(runs.began()) == BEHIND_READ
    assert any("its input has changed" in decision.reason for decision in result.decision_records)


@pytest.mark.full
@pytest.mark.parametrize("request_time", ["0 s", "1 s"])  # of which the latter has small outputs merged
def test_results_that_were_released_are_made_again_where_they_are_needed(session, tmp_path, settled, request_time):
    """They are not, as long as nobody reads them anew."""
    write_input(tmp_path)
    released = {"jobmanager.partition.release-during-job-execution": True}
    runs = Runs(session, tmp_path, **released, **{"firesteel.merge.request-time": request_time})
    job = failed(runs)
    _, found = resumed(runs, job)
    assert found == expected() and set(runs.began()) == {"last"}
    shutil.rmtree(tmp_path / "out")
    job = failed(runs)
    _, found = resumed(runs, job, edited("RATE = 2", "RATE = 3"))
    assert found == expected(rate=3) and set(runs.began()) == BEHIND_READ


def test_a_step_that_had_finished_in_part_is_kept_in_part(runs):
    text = SCRIPT.replace(FAILS, "").replace(
        '    mark("sum", k)\n', '    if k == 5:\n        raise ValueError("not written yet")\n    mark("sum", k)\n'
    )
    job = failed(runs, text)
    _, found = resumed(runs, job)
    assert found == expected()
    assert "read" not in runs.began()


def test_a_corrected_job_that_fails_again_is_gone_on_with(runs):
    """Over several failures; what the first one had finished is kept in the last, although the second never came so far."""
    first = failed(runs)
    worse = SCRIPT.replace("def more(v):\n", 'def more(v):\n    raise ValueError("not written yet")\n')
    second = failed(runs, worse, first)
    assert set(runs.began()) <= {"read"}
    third = failed(runs, SCRIPT.replace("not written yet", "not written yet, either"), second)
    assert set(runs.began()) == {"last"}
    _, found = resumed(runs, third)
    assert found == expected() and set(runs.began()) == {"last"}
    assert runs.left == []


@pytest.mark.full
def test_lost_and_damaged_results_are_made_again(runs):
    job = failed(runs)
    (directory,) = (runs.folder / "storage").glob(f"firesteel-job-{job}")
    of_sum = sorted(directory.glob("d1-*.fsr"))
    of_sum[0].unlink()
    data = bytearray(of_sum[1].read_bytes())
    data[len(data) // 2] ^= 255
    of_sum[1].write_bytes(data)
    _, found = resumed(runs, job, **{"restart-strategy.type": "fixed-delay"})
    assert found == expected()
    assert "read" not in runs.began() and runs.began()["sum"] < 8


@pytest.mark.full
def test_of_jobs_that_fail_only_the_last_are_kept_and_none_when_one_finishes(runs):
    for _ in range(4):
        failed_job = failed(runs)
    assert len(runs.jobs) <= 3 and failed_job in runs.jobs
    _, found = resumed(runs, failed_job)
    assert found == expected() and failed_job not in runs.jobs


@pytest.mark.full
def test_of_a_chain_of_corrections_the_last_are_kept(runs):
    job = None
    for number in range(5):
        job = failed(runs, SCRIPT.replace("not written yet", f"not written yet {number}"), job)
        assert set(runs.began()) == (ALL if number == 0 else {"last"})
    assert len(runs.jobs) <= 3 and job in runs.jobs
    _, found = resumed(runs, job)
    assert found == expected() and runs.left == []


@pytest.mark.full
def test_a_job_that_keeps_nothing(runs):
    _, rows = runs.rows(SCRIPT, **{"firesteel.results.retain-on-failure": 0})
    with pytest.raises(FiresteelError):
        rows.collect()
    assert runs.left == []


@pytest.mark.full
def test_other_codecs_and_orders_of_steps_do_not_matter(runs):
    job = failed(runs)
    _, found = resumed(runs, job, **{"firesteel.results.codec": "zstd", "firesteel.memory.per-task": "64 mb"})
    assert found == expected() and set(runs.began()) == {"last"}


def test_staged_files_are_taken_over(runs):
    """One sink had all of its files staged, and another failed."""
    import pyarrow.parquet as pq

    def written(text, resume=None):
        env, rows = runs.rows(text)
        sums = env.read_parquet(f"{runs.folder}/in").name("copied")
        sums.write_parquet(runs.folder / "copy")
        rows.write_parquet(runs.folder / "out")
        env.execute("both", resume=resume)

    with pytest.raises(JobExecutionError):
        written(SCRIPT)
    (job,) = runs.jobs
    staged = {path.name for path in runs.folder.glob(".copy.firesteel-*/**/*.parquet")}
    assert staged and not (runs.folder / "copy").exists()
    written(FIXED, job)
    assert set(runs.began()) == {"last"}
    assert sorted(pq.read_table(runs.folder / "copy").column("v").to_pylist()) == list(range(400))
    found = sorted(pq.read_table(runs.folder / "out").to_pylist(), key=lambda row: row["h"])
    assert found == expected()
    assert runs.left == [] and [path.name for path in runs.folder.glob(".*firesteel*")] == []


WAITS = SCRIPT.replace(FAILS, "    import time\n\n    time.sleep(600)\n")


@pytest.mark.full
def test_a_job_that_was_cancelled(runs):
    env, rows = runs.rows(WAITS)
    rows.write_parquet(runs.folder / "out")
    client = env.execute_async("sums")
    until(lambda: runs.began()["last"])
    client.cancel()
    with pytest.raises(JobCancelledError):
        client.wait()
    _, found = resumed(runs, client.job_id)
    assert found == expected() and set(runs.began()) == {"last"}


@pytest.mark.full
def test_a_script_that_is_corrected_after_its_driver_was_killed(tmp_path):
    write_input(tmp_path)
    (tmp_path / "marks").mkdir()
    (tmp_path / "helpers.py").write_text("import pyarrow.compute as pc\n\n\ndef scaled(v):\n    return pc.add(v, 1)\n")
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, "    import time\n\n    time.sleep(600)\n"))
    time.sleep(2.1)  # until the times of files are known to differ
    command, environment = command_of(tmp_path, "run", str(tmp_path / "job.py"), str(tmp_path))
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment)
    until(lambda: any(path.name.startswith("last") for path in (tmp_path / "marks").iterdir()))
    time.sleep(0.5)  # the log is written ten times a second
    driver.kill()
    driver.wait()
    for path in (tmp_path / "marks").iterdir():
        path.unlink()
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, ""))
    command, environment = command_of(tmp_path, "run", "--resume", str(tmp_path / "job.py"), str(tmp_path))
    end = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=False, text=True, timeout=300
    )
    assert end.stdout == "".join(f"{row['h']} {row['t']}\n" for row in expected()), end.stderr
    assert {path.name.split("-")[0] for path in (tmp_path / "marks").iterdir()} == {"last"}
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []


@pytest.mark.full
@pytest.mark.parametrize("on", ["plane", pytest.param("spark", marks=pytest.mark.spark)])
def test_from_the_command_line(tmp_path, on):
    """A script and its module: what would be kept is said, then done, and told as one story."""
    write_input(tmp_path)
    (tmp_path / "marks").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "helpers.py").write_text("import pyarrow.compute as pc\n\n\ndef scaled(v):\n    return pc.add(v, 1)\n")
    time.sleep(2.1)  # until the times of files are known to differ

    def run(*words):
        command, environment = command_of(tmp_path, *words, on=on)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False, text=True, timeout=300
        )

    def began():
        names = {path.name.split("-")[0] for path in (tmp_path / "marks").iterdir()}
        for path in (tmp_path / "marks").iterdir():
            path.unlink()
        return names

    script = (str(tmp_path / "job.py"), str(tmp_path))
    end = run("run", "-O", "max-parallelism=7", *script)  # an option of the command line, which ``resume`` knows
    assert end.returncode == 1 and "not written yet" in end.stderr, end.stderr
    assert began() == ALL
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, "").replace("RATE = 2", "RATE = 3"))
    said = run("resume", "last", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert "'read_parquet in -> read' is kept: 4 of 4 subtasks." in said.stdout, said.stdout
    assert "'sum' runs again: reads global RATE, 2 then, 3 now." in said.stdout, said.stdout
    assert began() == set()
    end = run("resume", "last")
    assert end.returncode == 0, end.stderr
    assert end.stdout == "".join(f"{row['h']} {row['t']}\n" for row in expected(rate=3))
    assert began() == {"sum", "last"}
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    explained = run("explain", "last").stdout
    assert "The job goes on from job" in explained and "4 of 4 subtasks are kept from job" in explained, explained
    (tmp_path / "job.py").write_text(JOB)
    assert run("run", *script).returncode == 1
    began()
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, ""))
    (tmp_path / "helpers.py").write_text("import pyarrow.compute as pc\n\n\ndef scaled(v):\n    return pc.add(v, 2)\n")
    end = run("run", "--resume", *script)
    assert end.stdout == "".join(f"{row['h']} {row['t']}\n" for row in expected(more=2)), end.stderr
    assert began() == BEHIND_READ
