"""Benchmark 21: a join and the step by its key that follows, decided when the job runs, against both made one step beforehand.

4 million rows joined with few, with two million, and with one key that has 60 % of the rows, each then aggregated by the key; and three joins by one key.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.kit import data
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

ROWS, KEYS = 4_000_000, 200_000
BEFOREHAND = {
    "firesteel.join.adaptive": False,
    "firesteel.join.skew": "none",
    "firesteel.join.runtime-filter.enabled": False,
}
CASES = ("few", "many, exchanged", "heavy key", "three joins")
Run = Callable[[], list[Any]]


def tables() -> Path:
    def make(target: Path) -> None:
        rng = np.random.default_rng(1)
        keys = rng.integers(0, KEYS, ROWS)
        heavy = np.where(rng.random(ROWS) < 0.6, 7, keys)
        counted = {"v": rng.integers(0, 100, ROWS), "x": rng.random(ROWS)}
        write(target, "even", {"k": keys, **counted})
        write(target, "heavy", {"k": heavy, **counted})
        write(target, "few", {"k": np.arange(0, KEYS, 4), "a": np.arange(0, KEYS, 4) % 10})
        write(target, "many", {"k": np.repeat(np.arange(KEYS), 10), "p": rng.random(10 * KEYS)})
        for name in ("b", "c"):
            write(target, name, {"k": np.arange(KEYS), name: np.arange(KEYS) % 7})

    return data._once(f"chains-{ROWS}", make)  # pyright: ignore[reportPrivateUsage]


def write(target: Path, name: str, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), target / f"{name}.parquet", row_group_size=100_000)


def pipeline(env: Any, case: str) -> Any:
    def read(name: str) -> Any:
        return env.read_parquet(str(tables() / f"{name}.parquet")).key_by("k")

    if case == "three joins":
        joined = read("even").join(read("few")).key_by("k").join(read("b")).key_by("k").join(read("c"))
    elif case == "few":
        joined = read("even").join(read("few"))
    else:
        joined = read("heavy" if case == "heavy key" else "even").join(read("many"), broadcast="never")
    return joined.key_by("k").aggregate(n=("*", "count"), v=("v", "sum"))


def firesteel(case: str, beforehand: bool) -> Run:
    from firesteel import ExecutionEnvironment

    options = {"firesteel.progress": False, **(BEFOREHAND if beforehand else {})}
    env, out = ExecutionEnvironment(master="local[2]", options=options), tempfile.mkdtemp()

    def run() -> list[Any]:
        began = cpu_seconds()
        pipeline(env, case).write_parquet(out, mode="overwrite")
        env.execute(case)
        spent, table = cpu_seconds() - began, pq.read_table(out)
        return [table.num_rows, pc.sum(table["n"]).as_py(), pc.sum(table["v"]).as_py(), spent]

    return run


def main(runs: int, only: str) -> None:
    tables()
    for case in CASES:
        if only in case:
            compare(case, runs)


def compare(case: str, runs: int) -> None:
    entered = [
        Contender(name, f"{__name__}:firesteel", {"case": case, "beforehand": beforehand})
        for name, beforehand in (("decided when it runs", False), ("one step beforehand", True))
    ]
    answers = alternate(entered, runs=runs)
    assert len({tuple(answer[:3]) for each in answers.values() for answer in each if each}) == 1, "the same rows"
    base = entered[1].median
    lines = [
        f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {c.median / base:.2f} | "
        f"{statistics.median(answer[-1] for answer in answers[c.name]):.2f} |"
        for c in entered
    ]
    head = "| contender | cold s | warm median s | min - max | ratio | CPU s |\n|---|---|---|---|---|---|"
    print("\n".join([f"### chains: {case}, local[2]", "", head, *lines, ""]), flush=True)
