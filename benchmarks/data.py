"""Inputs, generated once under ``.benchdata/`` and kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BASE = Path(__file__).resolve().parent.parent / ".benchdata"


def tpch(scale: float) -> Path:
    """A folder with one Parquet file per TPC-H table."""
    target = BASE / f"tpch-{scale:g}"
    if not (target / "_SUCCESS").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        command = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [command, "parquet", "-s", f"{scale:g}", "-o", target],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (target / "_SUCCESS").touch()
    return target


def events(megabytes: int, *, skewed: bool = False, files: int = 4) -> Path:
    """``k bigint, g bigint, x double, y double, s string``: about ``megabytes`` MB plain, in ``files`` files.

    ``g`` has 1,000 values; skewed: half of all rows share one of them and the rest follow a power law.
    """
    target = BASE / f"events-{megabytes}{'-skewed' if skewed else ''}-{files}"
    if (target / "_SUCCESS").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    rng = np.random.default_rng(7)
    rows = megabytes * 1_000_000 // 48 // files
    for number in range(files):
        pq.write_table(_events(rng, rows, skewed), target / f"part-{number:05d}.parquet", row_group_size=250_000)
    (target / "_SUCCESS").touch()
    return target


def _events(rng: np.random.Generator, rows: int, skewed: bool) -> pa.Table:
    group = rng.integers(0, 1000, rows)
    if skewed:
        group = np.minimum(rng.zipf(1.3, rows), 1000) - 1
        group[rng.random(rows) < 0.5] = 7
    key = rng.integers(0, max(1, rows // 4), rows)
    text = np.char.add("item-", rng.integers(0, 100_000, rows).astype("U6"))
    return pa.table({"k": key, "g": group, "x": rng.random(rows), "y": rng.normal(size=rows), "s": text})


def wide(rows: int = 200_000, columns: int = 60) -> Path:
    target = BASE / f"wide-{rows}-{columns}"
    if (target / "_SUCCESS").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    rng = np.random.default_rng(3)
    data = {"k": rng.integers(0, rows // 3, rows)}
    data |= {f"c{i}": rng.random(rows) for i in range(columns)}
    for number in range(4):
        pq.write_table(pa.table({n: v[number::4] for n, v in data.items()}), target / f"part-{number:05d}.parquet")
    (target / "_SUCCESS").touch()
    return target
