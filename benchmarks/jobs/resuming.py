"""A job of 10,000 subtasks whose driver is killed (SIGKILL) when nine tenths of them are in its log, and gone on with; and what the log costs meanwhile.

Each run is a process of its own, begun by ``firesteel run``. ``--only spark`` (``local[2]``), ``plane`` (the tests' plane, without a JVM) or ``cost``.
``FIRESTEEL_BENCH_SIZE``: another number of subtasks.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.kit.harness import ROOT, temporary_folder

SCRIPT = Path(__file__).with_name("resuming_script.py")
SIZE = int(os.environ.get("FIRESTEEL_BENCH_SIZE", "10000"))
SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds. ``first``: from the beginning of the process to the first subtask's program; ``rest``: from the moment at which the share was in the log to
    the end of the process; ``cpu``: of the process and those that it has waited for, Python workers and JVM left out; ``subtasks``: how many began."""

    total: float
    first: float
    rest: float
    cpu: float
    subtasks: int

    @property
    def work(self) -> float:
        """From the first subtask on."""
        return self.total - self.first


def main(runs: int, only: str) -> None:
    for where in ("spark", "plane"):
        if only in ("", where):
            _print(where, [_once(where) for _ in range(runs)])
    if only in ("", "cost"):
        _cost(runs)


def _once(where: str) -> tuple[Took, Took]:
    """A job that nothing happens to, and one that goes on with a killed one."""
    with temporary_folder("resuming") as folder:
        plain = _run(folder, where, dies=False)
        _check(folder)
    with temporary_folder("resuming") as folder:
        _run(folder, where, dies=True)
        goes_on = _run(folder, where, "--resume")
        _check(folder)
    return plain, goes_on


def _run(folder: Path, where: str, *flags: str, dies: bool | None = None, mode: str = "on-request") -> Took:
    """``dies``: None: nobody looks for the share."""
    (folder / "marks").unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "FIRESTEEL_RESULTS_RETAIN_ON_FAILURE": "1 d"}
    environment["MODE"] = mode
    if dies is not None:
        environment |= {"DIES_AT": str(SHARE), **({"DIES": "1"} if dies else {})}
    on = ("--master", "local[2]") if where == "spark" else ()
    command = [sys.executable, "-m", "firesteel", "run", *on, *flags, str(SCRIPT), str(folder), str(SIZE), where]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    end = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    total, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if end.returncode != (-9 if dies else 0):
        raise RuntimeError(f"the driver ended with {end.returncode}:\n{end.stderr}")
    marks = [float(line) for line in (folder / "marks").read_text().split()]
    reached = folder / "reached"
    rest = began + total - float(reached.read_text()) if reached.exists() else math.nan
    return Took(total, min(marks) - began, rest, cpu, len(marks))


def _check(folder: Path) -> None:
    """The answer is there, once, and nothing else."""
    out = pq.read_table(folder / "out")
    rows = 20 * SIZE
    expected = 2 * (rows * (rows - 1) // 2 + rows)
    if (out.num_rows, sum(out["v"].to_pylist())) != (rows // 2, expected):
        raise AssertionError(f"{out.num_rows} rows with a sum of {sum(out['v'].to_pylist())}, not {expected}")
    left = [path for path in (folder / "storage").rglob("*") if path.is_file()] + list(folder.glob(".out*"))
    if left:
        raise AssertionError(f"left behind: {left[:5]}")


def _print(where: str, took: list[tuple[Took, Took]]) -> None:
    def median(values: Iterable[float]) -> str:
        found = list(values)
        return f"{_median(found):.2f} | {min(found):.2f} - {max(found):.2f}"

    aims = [1.1 * plain.rest + plain.first for plain, _ in took]
    name = "`local[2]`" if where == "spark" else "the tests' plane, 2 slots"
    rows = {
        "uninterrupted: all of it": (plain.total for plain, _ in took),
        "... to the first subtask (a plain start)": (plain.first for plain, _ in took),
        f"... from {SHARE:.0%} to the end (the missing tenth)": (plain.rest for plain, _ in took),
        "gone on with: to the first new subtask": (on.first for _, on in took),
        "... beyond a plain start (aim: 2)": (on.first - plain.first for plain, on in took),
        "... all of it": (on.total for _, on in took),
        "... to 1.1 of the missing tenth and a plain start (aim: 1)": (
            on.total / aim for (_, on), aim in zip(took, aims, strict=True)
        ),
    }
    print(f"### resuming: {SIZE:,} subtasks, killed at {SHARE:.0%}, {name}, medians of {len(took)}\n")
    print("| | median s | min - max |\n|---|---:|---|")
    print(*(f"| {title} | {median(values)} |" for title, values in rows.items()), sep="\n")
    print(
        f"\nSubtasks with a mark that began: {took[-1][0].subtasks:,} uninterrupted, {took[-1][1].subtasks:,} gone on with.\n",
        flush=True,
    )


# --- what the log costs ----------------------------------------------------------------------------------------------


def _cost(runs: int) -> None:
    """Runs in turn, every other turn backwards; a first one of each is not counted."""
    took: dict[str, list[Took]] = {"off": [], "on-request": []}
    for turn in range(runs + 1):
        for mode in list(took)[:: -1 if turn % 2 else 1]:
            with temporary_folder("resuming") as folder:
                one = _run(folder, "spark", mode=mode)
            took[mode] += [one] if turn else []
    print(f"### resuming: the same job with a log and without, `local[2]`, medians of {runs}\n")
    print(
        "| `firesteel.recovery.mode` | first subtask to the end, s | min - max | CPU s of the process | to off | CPU, to off |"
    )
    print("|---|---:|---|---:|---:|---:|")
    medians = {
        mode: (_median(one.work for one in all_), _median(one.cpu for one in all_)) for mode, all_ in took.items()
    }
    for mode, all_ in took.items():
        (work, cpu), (base, base_cpu) = medians[mode], medians["off"]
        spread = f"{min(one.work for one in all_):.2f} - {max(one.work for one in all_):.2f}"
        print(f"| {mode} | {work:.2f} | {spread} | {cpu:.2f} | {work / base:.3f} | {cpu / base_cpu:.3f} |")
    print(flush=True)


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))
