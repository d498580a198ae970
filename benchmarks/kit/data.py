"""Inputs, generated once under ``FIRESTEEL_BENCHDATA`` (``.benchdata/``) and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BASE = Path(os.environ.get("FIRESTEEL_BENCHDATA", Path(__file__).resolve().parents[2] / ".benchdata"))


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, made by ``make`` if no earlier run has finished it."""
    target = BASE / name
    if not (target / "_SUCCESS").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        make(target)
        (target / "_SUCCESS").touch()
    return target


def tpch(scale: float) -> Path:
    """A folder with one Parquet file per TPC-H table."""
    return _once(f"tpch-{scale:g}", lambda target: _generate(scale, target))


def tpch_in_files(scale: float, files: int = 1000) -> Path:
    """The same, but ``lineitem`` is a folder of so many files of one row group."""

    def make(target: Path) -> None:
        _link_others(scale, target, "lineitem")
        _generate(scale, target, "--tables=lineitem", f"--parts={files}", "--row-group-bytes=1GB")

    return _once(f"tpch-{scale:g}-{files}", make)


def tpch_heavy(scale: float) -> Path:
    """The same, but 60 % of the orders are of one customer, and 60 % of the rows of ``lineitem`` of one part and supplier."""

    def make(target: Path) -> None:
        import duckdb

        plain = tpch(scale)
        with duckdb.connect() as con:
            part, supplier = con.sql(
                f"SELECT ps_partkey, ps_suppkey FROM '{plain}/partsupp.parquet' LIMIT 1"
            ).fetchall()[0]
            of_order, of_line = "hash(o_orderkey) % 10 < 6", "hash(l_orderkey, l_linenumber) % 10 < 6"
            for name, which, keys in (
                ("orders", of_order, {"o_custkey": 7}),
                ("lineitem", of_line, {"l_partkey": part, "l_suppkey": supplier}),
            ):
                changed = ", ".join(f"CASE WHEN {which} THEN {key} ELSE {c} END AS {c}" for c, key in keys.items())
                con.execute(
                    f"COPY (SELECT * REPLACE ({changed}) FROM '{plain}/{name}.parquet') "
                    f"TO '{target}/{name}.parquet' (ROW_GROUP_SIZE 122880)"
                )
        _link_others(scale, target, "orders", "lineitem")

    return _once(f"tpch-heavy-{scale:g}", make)


def _link_others(scale: float, target: Path, *own: str) -> None:
    """``own``: tables that the folder has in another form."""
    for table in tpch(scale).glob("*.parquet"):
        if table.stem not in own:
            (target / table.name).hardlink_to(table)


def _generate(scale: float, target: Path, *more: str) -> None:
    command = [Path(sys.executable).with_name("tpchgen-cli"), "parquet", "-s", f"{scale:g}", "-o", target, *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def without_views(scale: float) -> Path:
    """The table ``lineitem`` as :func:`tpch` has it, with strings in the place of string views: Daft does not read these."""

    def make(target: Path) -> None:
        source = pq.ParquetFile(tpch(scale) / "lineitem.parquet")
        plain = pa.schema([f.with_type(pa.string()) if f.type == pa.string_view() else f for f in source.schema_arrow])
        with pq.ParquetWriter(target / "lineitem.parquet", plain) as writer:
            for group in range(source.num_row_groups):
                writer.write_table(source.read_row_group(group).cast(plain))

    return _once(f"tpch-plain-{scale:g}", make) / "lineitem.parquet"


def events(megabytes: int, *, skewed: bool = False, files: int = 4) -> Path:
    """``k bigint, g bigint, x double, y double, s string``: about ``megabytes`` MB plain, in ``files`` files.

    ``g`` has 1,000 values; skewed: half of all rows share one of them and the rest follow a power law.
    """

    def make(target: Path) -> None:
        rng = np.random.default_rng(7)
        rows = megabytes * 1_000_000 // 48 // files
        for number in range(files):
            pq.write_table(_events(rng, rows, skewed), target / f"part-{number:05d}.parquet", row_group_size=250_000)

    return _once(f"events-{megabytes}{'-skewed' if skewed else ''}-{files}", make)


def _events(rng: np.random.Generator, rows: int, skewed: bool) -> pa.Table:
    group = rng.integers(0, 1000, rows)
    if skewed:
        group = np.minimum(rng.zipf(1.3, rows), 1000) - 1
        group[rng.random(rows) < 0.5] = 7
    key = rng.integers(0, max(1, rows // 4), rows)
    text = np.char.add("item-", rng.integers(0, 100_000, rows).astype("U6"))
    return pa.table({"k": key, "g": group, "x": rng.random(rows), "y": rng.normal(size=rows), "s": text})


def wide(rows: int = 200_000, columns: int = 60) -> Path:
    def make(target: Path) -> None:
        rng = np.random.default_rng(3)
        data = {"k": rng.integers(0, rows // 3, rows)}
        data |= {f"c{i}": rng.random(rows) for i in range(columns)}
        for number in range(4):
            pq.write_table(pa.table({n: v[number::4] for n, v in data.items()}), target / f"part-{number:05d}.parquet")

    return _once(f"wide-{rows}-{columns}", make)
