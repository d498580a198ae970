"""Results of earlier jobs are used by later ones, as in a notebook whose last cell is run again; the answer is that of the present script."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from corrected_kit import FAILS, JOB, SCRIPT, Runs, command_of, expected, until, write_input
from firesteel.compile.identity import prints
from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from firesteel.journal.listing import listed
from firesteel.options import Options
from firesteel.recovery.takeover import find_job
from firesteel.recovery.uses import end_uses
from firesteel.spark.recovery import gate, resuming, reused
from firesteel.spark.recovery.gate import LogGate
from firesteel.spark.storage.directories import Place
from firesteel.spark.storage.leftovers import KeptResults

FIXED = SCRIPT.replace(FAILS, "")
LAST = FIXED.replace('"t": [pc.sum(table.column("t")).as_py()]', '"t": [pc.sum(table.column("t")).as_py() + 1]')
OTHER = LAST.replace("as_py() + 1]", "as_py() + 2]")
REUSE = {"firesteel.results.reuse": True}


@pytest.fixture
def runs(session, tmp_path, monkeypatch):
    monkeypatch.setattr(prints, "_SETTLED", 0)  # files that were written just now are known
    write_input(tmp_path)
    return Runs(session, tmp_path, **{**REUSE, "jobmanager.partition.release-during-job-execution": True})


def cell(runs, text, **options):
    """The rows, as a cell of a notebook has them; what it was that ran."""
    _, rows = runs.rows(text, **options)
    found = sorted(rows.collect(), key=lambda row: row["h"])
    return [dict(row) for row in found], set(runs.began())


def plus(number, rows):
    return [{"h": row["h"], "t": row["t"] + number} for row in rows]


def reasons(runs):
    """All that the last job's journal says about results that were used."""
    from firesteel.journal.file import read

    last = max((runs.folder / "journal").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return " ".join(getattr(one, "reason", "") for one in read(last) if getattr(one, "what", "") == "reuse")


def directories(runs):
    return {path.name for path in (runs.folder / "storage").glob("firesteel-job-*") if path.is_dir()}


def test_cells(runs):
    """The last one is changed, run again as it was, and changed back."""
    assert cell(runs, FIXED) == (expected(), {"read", "sum", "bonus", "last"})
    (first,) = runs.jobs
    assert "No results of earlier jobs are used." in reasons(runs)
    assert cell(runs, LAST) == (plus(1, expected()), {"last"})
    assert f"Results of job {first} ('collect') are used for 'read_parquet in -> read', 'sum'" in reasons(runs)
    assert f"4 of 4 subtasks of 'read_parquet in -> read' are kept from job {first}." in reasons(runs)
    assert "'last -> collect' runs: code of last, which has changed." in reasons(runs)
    assert cell(runs, LAST) == (plus(1, expected()), set())
    assert cell(runs, FIXED) == (expected(), set())
    assert cell(runs, FIXED.replace("RATE = 2", "RATE = 3")) == (expected(rate=3), {"sum", "last"})
    assert "'sum' runs: reads global RATE, 2 then, 3 now." in reasons(runs)
    newest = max(listed((runs.folder / "journal").iterdir()), key=lambda one: one.path.stat().st_mtime_ns)
    assert len(newest.uses) == 1 and set(newest.uses) < set(runs.jobs)


def test_input_that_was_changed(runs):
    cell(runs, FIXED)
    write_input(runs.folder, plus=1000)
    assert cell(runs, FIXED) == (expected(plus=1000), {"read", "sum", "last"})
    assert "its input has changed" in reasons(runs)


def test_what_writes_an_output_always_runs(runs):
    for _ in range(2):
        env, rows = runs.rows(FIXED)
        rows.write_parquet(runs.folder / "out", mode="overwrite")
        env.execute("sums")
        found = sorted(pq.read_table(runs.folder / "out").to_pylist(), key=lambda row: row["h"])
        assert found == expected()
    assert set(runs.began()) == {"last"}
    assert re.search("'last -> w[^']*' runs: writes an output, as such steps always do", reasons(runs))
    assert cell(runs, FIXED)[1] == {"last"}
    (finished, *_) = runs.jobs
    env, rows = runs.rows(FIXED)
    rows.write_parquet(runs.folder / "out", mode="overwrite")
    with pytest.raises(UsageError, match="has finished: there is nothing to go on with"):
        env.execute("sums", resume=finished)


def test_a_job_that_failed_is_of_use_without_a_resume(runs):
    with pytest.raises(JobExecutionError):
        cell(runs, SCRIPT)
    assert cell(runs, FIXED) == (expected(), {"last"})
    assert "which did not finish" in reasons(runs)


def test_a_step_that_uses_what_is_not_known_to_be_pure_runs_again(runs, caplog, monkeypatch):
    monkeypatch.setattr(resuming, "_said", set())
    reads = "    import configparser\n\n    configparser.ConfigParser().read('/no/where')\n"
    reading = FIXED.replace("def extra(batches):\n", f"def extra(batches):\n{reads}")
    why = "uses configparser.ConfigParser in extra, which Firesteel does not know to be pure"
    cell(runs, reading)
    assert cell(runs, reading) == (expected(), {"bonus", "last"})
    assert why in reasons(runs)
    said = [one.getMessage() for one in caplog.records if "pure" in one.getMessage()]
    assert said == [f"'from_arrow -> bonus' {why}: its results are computed again in every job."]
    cell(runs, reading, **{"firesteel.results.pure": "configparser,pyarrow.parquet.write_table"})
    assert cell(runs, reading, **{"firesteel.results.pure": "configparser,pyarrow.parquet.write_table"})[1] == set()


def test_a_step_that_is_seen_to_open_a_file_runs_again(runs, caplog, monkeypatch):
    """Of all its subtasks, though one of them does. Its source looks pure."""
    monkeypatch.setattr(gate, "_said", set())
    hidden = """        if batch["h"][0].as_py() == 0:
            getattr(more, "".join(["__buil", "tins__"]))["open"](f"{FOLDER}/in/0.parquet").close()
"""
    marks = '        mark("bonus", batch["h"][0].as_py())\n'
    opening = FIXED.replace(marks, f"{marks}{hidden}")
    cell(runs, opening)
    began = runs.began()["bonus"]
    assert cell(runs, opening) == (expected(), {"bonus", "last"}) and runs.began()["bonus"] == began
    saw = f"opened '{runs.folder}/in/0.parquet' in extra while it ran"
    assert f"'from_arrow -> bonus' runs: {saw}." in reasons(runs)
    said = [one.getMessage() for one in caplog.records if "computed again" in one.getMessage()]
    assert said == [f"'from_arrow -> bonus' {saw}: its results are computed again in every job."]


def waiting(text):
    """``last`` waits for a file."""
    wait = '    from pathlib import Path\n    import time\n    while not Path(f"{FOLDER}/go").exists():\n        time.sleep(0.02)\n'
    return text.replace('    mark("last", key[0].as_py())\n', f'{wait}    mark("last", key[0].as_py())\n')


def removed(runs, job):
    KeptResults(Options(runs.options)).remove(
        next(one for one in KeptResults(Options(runs.options)).jobs() if one.job_id == job)
    )


def test_what_a_running_job_uses_stays_until_it_ends(runs):
    """A clean, and the bound of another job, while it waits in its last step."""
    cell(runs, FIXED)
    (first,) = runs.jobs
    _, rows = runs.rows(waiting(LAST))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(rows.collect)
        until(lambda: "kept from job" in reasons(runs))
        with pytest.raises(FiresteelError, match="a running job uses them"):
            removed(runs, first)
        small = Runs(runs.session, runs.folder, **REUSE, **{"firesteel.results.retain-at-most": 0})
        _, other = small.rows(OTHER)
        assert len(other.collect()) == 4
        assert first in runs.jobs
        (runs.folder / "go").touch()
        found = sorted(map(dict, answer.result()), key=lambda row: row["h"])
    assert found == plus(1, expected())
    removed(runs, first)
    assert first not in runs.jobs
    (runs.folder / "go").unlink()
    assert cell(runs, LAST) == (plus(1, expected()), {"last"})


def test_results_that_are_taken_over_as_a_job_begins_are_made_again(runs, monkeypatch):
    cell(runs, FIXED)
    kept = reused.ReusedJobs.kept

    def taken_over(self, directory):
        for used in self.jobs:
            used.directory.rename(used.directory.with_name(f"{used.directory.name}.e2"))
        return kept(self, directory)

    monkeypatch.setattr(reused.ReusedJobs, "kept", taken_over)
    assert cell(runs, LAST) == (plus(1, expected()), {"read", "sum", "bonus", "last"})


def test_rows_are_held_before_the_log_says_that_the_job_has_ended(runs, monkeypatch):
    """A clean removes what has ended, unless it is held."""
    close, tried = LogGate.close, []

    def closed(self, status):
        close(self, status)
        (job,) = runs.jobs
        tried.append(end_uses(runs.folder / "storage" / f"firesteel-job-{job}"))

    monkeypatch.setattr(LogGate, "close", closed)
    assert cell(runs, FIXED)[0] == expected() and tried == [False]


def test_a_job_that_cannot_begin_holds_nothing(runs, monkeypatch):
    cell(runs, FIXED)
    (name,) = directories(runs)

    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("firesteel.spark.driver.runtime.Journal.create", full)
    with pytest.raises(OSError, match="no space") as raised:
        cell(runs, LAST)
    assert raised and end_uses(runs.folder / "storage" / name)


def test_two_jobs_at_once_use_one(runs):
    cell(runs, FIXED)
    made = [runs.rows(text)[1] for text in (LAST, OTHER)]
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(rows.collect) for rows in made]
        found = [sorted(map(dict, answer.result()), key=lambda row: row["h"]) for answer in answers]
    assert found == [plus(1, expected()), plus(2, expected())]
    assert set(runs.began()) == {"last"}


def test_space_is_bounded_and_what_was_not_used_goes_first(runs):
    """Two inputs: results of one are used again and again, those of the other are not."""
    alien = FIXED.replace("pc.add(v, 1)", "pc.add(v, 5)")
    cell(runs, alien)
    (old,) = runs.jobs
    size = sum(
        path.stat().st_size for path in (runs.folder / "storage" / f"firesteel-job-{old}").rglob("*") if path.is_file()
    )
    bound = {"firesteel.results.retain-at-most": size * 3 // 2}
    cell(runs, FIXED, **bound)
    assert old not in runs.jobs
    for text in (LAST, OTHER):  # nearly all that these have is shared
        assert cell(runs, text, **bound)[1] == {"last"}
    assert cell(runs, alien, **{"firesteel.results.retain-at-most": 1})[1] == {"read", "sum", "last"}
    assert len(directories(runs)) == 1  # whose rows were being read when it ended


def test_jobs_whose_tokens_could_be_mixed_up_are_not_used_together(runs):
    """Of two drivers that drew one base, nobody could tell the objects apart by their tokens."""
    cell(runs, FIXED)
    (job,), root = runs.jobs, runs.folder / "storage"
    present = find_job(root, job).header
    (left,) = reused._left(root, Place("", ""))
    used = reused._used(root, left, present, {})
    (base,) = used.correction.found.origins
    used.use.end()
    assert reused._used(root, left, present, {base: "another"}) is None
    assert end_uses(root / left.name)  # it is held no longer


def test_a_file_system_without_links(runs, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("firesteel.spark.recovery.kept_objects.os.link", refuse)
    cell(runs, FIXED)
    (first,) = runs.jobs
    assert cell(runs, LAST) == (plus(1, expected()), {"last"})
    assert list((runs.folder / "storage" / f"firesteel-job-{first}").glob("d*.fsr"))
    assert not list((runs.folder / "storage").rglob("*.part"))


@pytest.mark.full
def test_lost_and_damaged_results_are_made_again(runs):
    cell(runs, FIXED)
    (first,) = directories(runs)
    stored = sorted((runs.folder / "storage" / first).glob("d1-*.fsr"))
    stored[0].unlink()
    data = bytearray(stored[1].read_bytes())
    data[len(data) // 2] ^= 255
    stored[1].write_bytes(data)
    found, again = cell(runs, LAST, **{"restart-strategy.type": "fixed-delay"})
    assert found == plus(1, expected()) and "last" in again
    assert "read" not in again and 0 < runs.began()["sum"] < 8


@pytest.mark.full
def test_off_and_without_a_place(runs):
    cell(runs, FIXED, **{"firesteel.results.reuse": False})
    assert runs.left == []
    cell(runs, FIXED, **{"firesteel.results.retain-on-success": 0})
    assert runs.left == []
    with pytest.raises(UsageError, match="needs the logs of jobs"):
        cell(runs, FIXED, **{"firesteel.recovery.mode": "off"})


@pytest.mark.full
def test_from_the_command_line(tmp_path):
    """Two runs of a script whose last step was changed: what is used is said beforehand, then told, listed and removed."""
    write_input(tmp_path)
    (tmp_path / "marks").mkdir()
    (tmp_path / "helpers.py").write_text("import pyarrow.compute as pc\n\n\ndef scaled(v):\n    return pc.add(v, 1)\n")
    time.sleep(2.1)  # until the times of files are known to differ

    def run(*words):
        command, environment = command_of(tmp_path, *words)
        environment |= {"FIRESTEEL_RESULTS_REUSE": "true"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False, text=True, timeout=300
        )

    def began():
        names = {path.name.split("-")[0] for path in (tmp_path / "marks").iterdir()}
        shutil.rmtree(tmp_path / "marks")
        (tmp_path / "marks").mkdir()
        return names

    script = (str(tmp_path / "job.py"), str(tmp_path))
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, ""))
    end = run("run", *script)
    assert end.returncode == 0, end.stderr
    assert began() == {"read", "sum", "bonus", "last"}
    (tmp_path / "job.py").write_text(JOB.replace(FAILS, "").replace("RATE = 2", "RATE = 3"))
    said = run("run", "-O", "firesteel.recovery.dry-run=true", *script)
    assert said.returncode == 0, said.stderr
    assert "'read_parquet in -> read' is taken from job" in said.stdout, said.stdout
    assert "'sum' runs: reads global RATE, 2 then, 3 now." in said.stdout, said.stdout
    assert began() == set()
    end = run("run", *script)
    assert end.stdout == "".join(f"{row['h']} {row['t']}\n" for row in expected(rate=3)), end.stderr
    assert began() == {"sum", "last"}
    assert "4 of 4 subtasks are kept from job" in run("explain", "last").stdout
    assert "uses results of job" in run("history").stdout
    place = ("-O", f"firesteel.storage.directory={tmp_path}/storage")
    kept = run("results", *place).stdout
    assert kept.count("finished") >= 2 and "2 jobs, " in kept, kept
    cleaned = run("clean", "--results", "--yes", *place)
    assert "Removed 2 things" in cleaned.stdout, cleaned.stdout + cleaned.stderr
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
