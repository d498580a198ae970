"""Jobs on a real Spark whose results and log lie on an object store: killed and gone on with, corrected, frozen, and results used again."""

from __future__ import annotations

import os
import signal
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corrected_kit import forget_marks
from dying_kit import begun, ended, firesteel
from s3_server import files_of, new_bucket

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.patience(600)]

SCRIPT = """
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corrected_kit import forget_marks
from dying_kit import dies_as_it_writes
from firesteel import ExecutionEnvironment
from firesteel.compile.identity import prints
from firesteel.recovery.objects import SegmentLog

FOLDER, STORAGE = sys.argv[1:]
prints._SETTLED = 0  # files that were written just now are known
dies_as_it_writes(SegmentLog)


def mark(step, number):
    pq.write_table(pa.table({"n": [number]}), f"{FOLDER}/marks/{step}-{number}")


def parsed(batches):
    for batch in batches:
        mark("read", batch["v"][0].as_py())
        yield pa.record_batch({"k": batch["k"], "v": pc.add(batch["v"], 1)})


def summed(key, table):
    k = key[0].as_py()
    mark("sum", k)
    return pa.table({"h": [k % 3], "t": [pc.sum(table["v"]).as_py()]})


def last(key, table):
    h = key[0].as_py()
    mark("last", h)
    return pa.table({"h": [h], "t": [pc.sum(table["t"]).as_py() + 0]})


if __name__ == "__main__":
    env = ExecutionEnvironment(options={
        "firesteel.progress": False,
        "firesteel.journal.directory": f"{FOLDER}/journal",
        "firesteel.storage.directory": STORAGE,
        "firesteel.recovery.mode": "on-request",
        "firesteel.results.pure": "pyarrow.parquet.write_table",
        "firesteel.decider.least-volume-per-slot": 0,
        "data-volume-per-task": "2 kb",
        "jobmanager.partition.release-during-job-execution": False,
        "restart-strategy.type": "none",
    })
    rows = env.read_parquet(f"{FOLDER}/in").map_in_arrow(parsed, "k bigint, v bigint").name("read")
    sums = rows.key_by("k").apply_in_arrow(summed, "h bigint, t bigint").name("sum")
    sums.key_by("h").apply_in_arrow(last, "h bigint, t bigint").name("last").write_parquet(f"{FOLDER}/out")
    env.execute("sums")
"""
FAILS = SCRIPT.replace('    mark("last", h)\n', '    mark("last", h)\n    raise ValueError("not written yet")\n')
PLUS = SCRIPT.replace("as_py() + 0]", "as_py() + 7]")
FILES, KEYS = 4, 40


class Jobs:
    """Jobs of one script, each a ``firesteel run`` of its own on two slots; input and output lie in ``folder``, results in a bucket."""

    def __init__(self, folder, endpoint):
        self.folder, self.script = folder, folder / "job.py"
        name, self.fs = new_bucket()
        self.path = f"{name}/r"
        how = f"endpoint_override={endpoint.partition('://')[2]}&scheme=http"
        self.url = f"s3://{self.path}?{how}"
        self.place = ("-O", f"firesteel.storage.directory={self.url}")
        (folder / "in").mkdir()
        for file in range(FILES):
            own = range(file, 4000, FILES)
            pq.write_table(pa.table({"k": [v % KEYS for v in own], "v": [*own]}), folder / "in" / f"{file}.parquet")

    def begin(self, text, *flags, **environment):
        """Forgets the marks of before."""
        forget_marks(self.folder)
        return self.also(text, *flags, **environment)

    def also(self, text, *flags, **environment):
        """Beside another driver."""
        self.script.write_text(text)
        return begun(self.script, self.folder, self.url, flags=("--master", "local[2]", *flags), **environment)

    def began(self):
        """Executions, or groups of them, of each step since the marks were forgotten."""
        return Counter(path.name.split("-")[0] for path in (self.folder / "marks").iterdir())

    def check(self, plus=0):
        """The answer is DuckDB's, in one output, and nothing lies beside it."""
        query = f"SELECT k % 3 AS h, sum(v + 1)::BIGINT + {plus} AS t FROM '{self.folder}/in/*.parquet' GROUP BY 1 ORDER BY 1"
        found = sorted(pq.read_table(self.folder / "out").to_pylist(), key=lambda row: row["h"])
        assert found == duckdb.sql(query).to_arrow_table().to_pylist()
        assert [path.name for path in self.folder.glob(".*firesteel*")] == []

    def left(self):
        return files_of(self.fs, self.path)


@pytest.fixture
def jobs(s3, tmp_path, monkeypatch):
    """The endpoint is told by the URL alone."""
    made = Jobs(tmp_path, s3["AWS_ENDPOINT_URL"])
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    return made


def test_a_driver_that_is_killed_behind_its_first_step_and_as_it_publishes(jobs):
    """The second one goes on with what the first had finished, and the third publishes what the second was about to."""
    assert ended(jobs.begin(SCRIPT, DIES=f"after finish {FILES}")).returncode == -9
    assert "driver died" in firesteel("results", *jobs.place)
    assert ended(jobs.begin(SCRIPT, "--resume", DIES="after publishing 1")).returncode == -9
    assert jobs.began()["read"] == 0 and jobs.began()["sum"] == KEYS
    end = ended(jobs.begin(SCRIPT, "--resume"))
    assert end.returncode == 0, end.stderr
    jobs.check()
    assert not jobs.began() and jobs.left() == []


def test_a_frozen_driver_and_two_that_go_on_at_once(jobs):
    """One of the two does, and of the others nothing is left when they have ended."""
    frozen = jobs.begin(SCRIPT, DIES="stops publishing 1")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    pair = [jobs.also(SCRIPT, "--resume") for _ in range(2)]
    ends = sorted((ended(one) for one in pair), key=lambda end: end.returncode)
    assert [end.returncode for end in ends] == [0, 2], [end.stderr for end in ends]
    assert "Traceback" not in ends[1].stderr
    jobs.check()
    os.kill(frozen.pid, signal.SIGCONT)
    end = ended(frozen)
    assert end.returncode == 1 and "another driver has taken the job over" in end.stderr, end.stderr
    jobs.check()
    assert jobs.left() == []


def test_a_corrected_script_keeps_what_is_as_it_was(jobs):
    end = ended(jobs.begin(FAILS))
    assert end.returncode == 1 and "not written yet" in end.stderr, end.stderr
    assert "failed" in firesteel("results", *jobs.place)
    end = ended(jobs.begin(PLUS, "--resume"))
    assert end.returncode == 0, end.stderr
    jobs.check(plus=7)
    assert set(jobs.began()) == {"last"} and jobs.left() == []


def test_results_are_used_by_another_script_and_removed_by_clean(jobs, monkeypatch):
    monkeypatch.setenv("FIRESTEEL_RESULTS_REUSE", "true")
    assert ended(jobs.begin(SCRIPT)).returncode == 0
    jobs.check()
    (jobs.folder / "out").rename(jobs.folder / "before")
    end = ended(jobs.begin(PLUS))
    assert end.returncode == 0, end.stderr
    jobs.check(plus=7)
    assert set(jobs.began()) == {"last"}
    assert "finished" in firesteel("results", *jobs.place)
    firesteel("clean", "--results", "--yes", *jobs.place)
    assert jobs.left() == []
