"""``python -m benchmarks.soak --kills 200 [--spark SHARE] [--cluster] [--first SEED]``: TPC-H pipelines whose drivers are killed (SIGKILL), and gone on with.

Each job writes its answer to files. Its driver dies before, in, after or a moment behind a write to its log that the dice choose, as does the next one, up to
three times; the last one ends. Then the answer must be DuckDB's, in one output, and nothing may be left beside it or in the storage. Most jobs run on the
tests' plane, without a JVM; a share of them on ``local[2]``, or on a standalone cluster of three nodes. A seed repeats what is drawn, not the machine's timing.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("kills_script.py")
SCALE = 0.01
WRITES = 12
"""To the log of a job of which nothing is known yet."""
MOST_SECONDS = 0.5
QUIET_AFTER = 20.0
"""Seconds after the last driver until nothing may lie there: workers of killed drivers write for some more."""
PATIENCE = 600.0
Say = Callable[[str], None]


class Wrong(Exception):
    """A sentence on what must not be."""


@dataclass
class Kills:
    """``share``: of the jobs on Spark; ``spark``: where that is, as ``kills_script`` takes it."""

    share: float
    spark: str
    done: Counter[str] = field(default_factory=Counter[str])
    _writes: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def job(self, seed: int, folder: Path) -> None:
        """Raises Wrong."""
        from tests.oracle import TPCH_SQL, tpch

        dice = random.Random(f"kills of {seed}")
        query, where = dice.choice(sorted(TPCH_SQL)), self.spark if dice.random() < self.share else "plane"
        driver = Driver(folder, tpch(SCALE), query, where)
        deaths = dice.choice((1, 1, 2, 3))
        flags: tuple[str, ...] = ()
        for _ in range(deaths):
            code, said = driver.run(*flags, dies=self._moment(dice, query, where))
            if code == 0 or self._had_ended(code, said):  # it was faster, or the one before was
                break
            if code != -9:
                raise Wrong(f"the driver of {query} ended with {code}: {said[-2000:]}")
            self.done[f"kills on {_named(where)}"] += 1
            flags = ("--resume",)
        else:
            code, said = driver.run(*flags)
            if code and not self._had_ended(code, said):
                raise Wrong(f"the driver that went on with {query} ended with {code}: {said[-2000:]}")
        driver.check()
        self.done[f"jobs on {_named(where)}"] += 1
        self._writes[where, query] = max(self._writes.get((where, query), 0), driver.writes)

    def _had_ended(self, code: int, said: str) -> bool:
        """The driver before was killed behind the last word of its run: nothing is left to go on with, and the output is there."""
        found = code == 2 and "begins anew" in said and "exists already" in said
        self.done["killed behind the last word of their run"] += found
        return found

    def _moment(self, dice: random.Random, query: str, where: str) -> str:
        number = dice.randint(1, self._writes.get((where, query), WRITES))
        when = dice.choice(("before", "torn", "after", "later", "later"))
        return f"{when} {number}" + (f" {dice.uniform(0, MOST_SECONDS):.3f}" if when == "later" else "")


@dataclass(frozen=True)
class Driver:
    """Drivers of one job, one after another."""

    folder: Path
    data: Path
    query: str
    where: str

    def run(self, *flags: str, dies: str = "never 0") -> tuple[int, str]:
        """Returns its exit code, and what it said."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}",
            "FIRESTEEL_RESULTS_RETAIN_ON_FAILURE": "1 d",
            "DIES": dies,
        }
        on = ("--master", "local[2]") if self.where == "spark" else ()
        arguments = (str(self.folder), str(self.data), self.query, self.where)
        command = [sys.executable, "-m", "firesteel", "run", *on, *flags, str(SCRIPT), *arguments]
        with (self.folder / "said").open("w+") as said:  # no pipe, which workers that outlive the driver would hold
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=said, stderr=said)
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Wrong(f"{self.query} does not end after {PATIENCE:g} s; it was to die {dies}") from None
            said.seek(0)
            return code, said.read()

    @property
    def writes(self) -> int:
        return int((self.folder / "writes").read_text() or 0)  # it may have died as it wrote that

    def check(self) -> None:
        """Raises Wrong where the answer is not DuckDB's, or something is left."""
        from tests.oracle import TPCH_SQL, assert_same_rows, duckdb_answer
        from tests.tpch_kit import QUANTITY

        expected = duckdb_answer(TPCH_SQL[self.query].replace("{quantity}", str(QUANTITY)), self.data)
        try:
            assert_same_rows(pq.read_table(self.folder / "out"), expected)
        except (AssertionError, OSError) as error:
            raise Wrong(f"{self.query} has another answer: {error}") from error
        until = time.monotonic() + QUIET_AFTER
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.2)
        if left:
            raise Wrong(f"{self.query} has left {', '.join(left[:5])}")

    def _left(self) -> list[str]:
        stored = [path for path in (self.folder / "storage").rglob("*") if path.is_file()]
        beside = list(self.folder.glob(".out*"))
        return [str(path.relative_to(self.folder)) for path in (*stored, *beside)]


def _named(where: str) -> str:
    return "a cluster" if "://" in where else where


def run(kills: int, first: int, share: float, say: Say, *, cluster: bool = False) -> int:
    """Jobs until so many drivers were killed. Returns how many jobs were wrong, whose folders stay. ``cluster``: the share on Spark runs on one."""
    from tools.standalone import StandaloneCluster

    with StandaloneCluster() if cluster else nullcontext() as made:
        return _run(kills, first, Kills(share, made.url if made is not None else "spark"), say)


def _run(kills: int, first: int, soak: Kills, say: Say) -> int:
    wrong, seed = 0, first
    while sum(count for what, count in soak.done.items() if what.startswith("kills")) < kills:
        folder = Path(tempfile.mkdtemp(prefix="firesteel-kills-"))
        try:
            soak.job(seed, folder)
            shutil.rmtree(folder, ignore_errors=True)
        except Wrong as found:
            wrong += 1
            say(f"seed {seed}, in {folder}: {found}")
        say(f"seed {seed}: {', '.join(f'{count} {what}' for what, count in sorted(soak.done.items()))}; {wrong} wrong")
        seed += 1
    return wrong
