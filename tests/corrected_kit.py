"""A script of a few steps, as text, that fails until it is corrected; run in this process on a session, with a mark for each execution that begins.

``read`` reads four files, ``sum`` adds up by key, ``last`` by the key's half, and with what ``bonus`` makes of a table: an exchange between each two
of them.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firesteel import ExecutionEnvironment

SCRIPT = '''
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

RATE = 2
WEIGHTS = pa.table({"k": list(range(8)), "w": [1] * 8})
TERMS = {"fee": 0}


def mark(step, number):
    """Each execution leaves one, whose name says what it had in hand."""
    pq.write_table(pa.table({"n": [number]}), f"{FOLDER}/marks/{step}-{number}")


def more(v):
    return pc.add(v, 1)


def parse(batches, times=1):
    for batch in batches:
        mark("read", batch["v"][0].as_py())
        yield pa.record_batch({"k": batch["k"], "v": pc.multiply(more(batch["v"]), times)})


def summed(key, table):
    k = key[0].as_py()
    mark("sum", k)
    weight = WEIGHTS.column("w")[k].as_py()
    total = pc.sum(table.column("v")).as_py() * RATE * weight + TERMS["fee"]
    return pa.table({"h": [k // 2], "t": [total]})


def extra(batches):
    for batch in batches:
        mark("bonus", batch["h"][0].as_py())
        yield batch


def last(key, table):
    mark("last", key[0].as_py())
    raise ValueError("not written yet")
    return pa.table({"h": [key[0].as_py()], "t": [pc.sum(table.column("t")).as_py()]})


def rows():
    read = env.read_parquet(f"{FOLDER}/in").map_in_arrow(parse, "k bigint, v bigint").name("read")
    sums = read.key_by("k").apply_in_arrow(summed, "h bigint, t bigint").name("sum")
    bonus = env.from_arrow(pa.table({"h": [0, 1, 2, 3], "t": [0, 10, 20, 30]})).map_in_arrow(extra, "h bigint, t bigint").name("bonus")
    return sums.union(bonus).key_by("h").apply_in_arrow(last, "h bigint, t bigint").name("last")
'''
FAILS = '    raise ValueError("not written yet")\n'
ROWS, FILES, KEYS = 400, 4, 8
PURE = {"firesteel.results.pure": "pyarrow.parquet.write_table"}
"""Which leaves the marks: what it writes changes no rows."""
JOB = (
    """
import os, sys
FOLDER = sys.argv[1]
from firesteel import ExecutionEnvironment
from helpers import scaled
"""
    + SCRIPT.replace("pc.add(v, 1)", "scaled(v)")
    + """
if __name__ == "__main__":
    session = None
    if os.environ["ON"] == "plane":
        from plane.session import Session
        session = Session(slots=2)
    env = ExecutionEnvironment(spark=session, options={
        "firesteel.progress": False, "firesteel.journal.directory": f"{FOLDER}/journal", "firesteel.storage.directory": f"{FOLDER}/storage",
        "data-volume-per-task": "1 kb", "firesteel.decider.least-volume-per-slot": 0,
        "jobmanager.partition.release-during-job-execution": False,
    })
    for row in sorted(rows().collect(), key=lambda row: row["h"]):
        print(row["h"], row["t"])
"""
)


def write_input(folder: Path, plus: int = 0) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for file in range(FILES):
        own = range(file, ROWS, FILES)
        pq.write_table(
            pa.table({"k": [v % KEYS for v in own], "v": [v + plus for v in own]}), folder / "in" / f"{file}.parquet"
        )


def expected(*, plus=0, more=1, times=1, rate=2, weights=(1,) * KEYS, fee=0):
    """The rows of the corrected script, computed by hand."""
    sums: Counter[int] = Counter()
    for v in range(ROWS):
        sums[v % KEYS] += (v + plus + more) * times
    halves = Counter({h: 10 * h for h in range(KEYS // 2)})
    for k, total in sums.items():
        halves[k // 2] += total * rate * weights[k] + fee
    return [{"h": h, "t": t} for h, t in sorted(halves.items())]


def forget_marks(folder: Path) -> None:
    """Of executions that have begun: there are none from here on."""
    (folder / "marks").mkdir(exist_ok=True)
    for mark in (folder / "marks").iterdir():
        mark.unlink()


class Runs:
    """Jobs of a script in one folder."""

    def __init__(self, session, folder: Path, **options) -> None:
        self.session, self.folder = session, folder
        self.options = {
            "firesteel.progress": False,
            "firesteel.journal.directory": str(folder / "journal"),
            "firesteel.storage.directory": str(folder / "storage"),
            "firesteel.results.retain-on-failure": "1 d",
            "data-volume-per-task": "1 kb",
            "firesteel.decider.least-volume-per-slot": 0,
            "jobmanager.partition.release-during-job-execution": False,
            "restart-strategy.type": "none",
            **PURE,
            **options,
        }

    def rows(self, text: str, **options):
        """The stream of the script, in a new environment. Forgets the marks of before."""
        shutil.rmtree(self.folder / "marks", ignore_errors=True)
        (self.folder / "marks").mkdir()
        env = ExecutionEnvironment(spark=self.session, options={**self.options, **options})
        names = {"__name__": "__main__", "env": env, "FOLDER": str(self.folder)}
        exec(compile(text, "script.py", "exec"), names)
        return env, names["rows"]()

    def began(self) -> Counter[str]:
        """Executions, or groups of them, of each step that began in the last job."""
        return Counter(path.name.split("-")[0] for path in (self.folder / "marks").iterdir())

    @property
    def left(self) -> list[str]:
        """Names of the files that are on the storage."""
        return [path.name for path in (self.folder / "storage").rglob("*") if path.is_file()]

    @property
    def jobs(self) -> list[str]:
        """Ids of jobs that have left something, in no order."""
        marks = (self.folder / "storage").glob("firesteel-job-*.owner.json")
        return sorted({path.name.removeprefix("firesteel-job-").split(".")[0] for path in marks})


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def command_of(folder, *words, on="plane"):
    """A call of the command line, and its environment."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "ON": on}
    environment |= {
        "FIRESTEEL_RESULTS_RETAIN_ON_FAILURE": "1 d",
        "FIRESTEEL_JOURNAL_DIRECTORY": str(folder / "journal"),
        "FIRESTEEL_RESULTS_PURE": PURE["firesteel.results.pure"],
    }
    return [sys.executable, "-m", "firesteel", *words], environment
