"""The demo of TPC-H: its third query (the unshipped orders worth most), on tables that tpchgen-cli makes or that you have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel import DataStream, ExecutionEnvironment, col
from firesteel.cli.demos.words import with_volume
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import format_bytes, format_seconds, printable

TABLES = ("customer", "orders", "lineitem")
SCALE = "0.2"
VOLUME = "4 MiB"
_DAY = date(1995, 3, 15)


def run(out: Path, master: str | None, options: Mapping[str, Any], data: Path | None) -> None:
    """Writes ``out/q3`` and prints its first rows. ``data``: where the tables are; None: they are made in ``out/data`` once.

    Raises UsageError without tables and without a generator, FiresteelError where it fails.
    """
    tables = data or out / "data"
    if data is None and not all(_path(tables, name) for name in TABLES):
        generate(tables)
    missing = [name for name in TABLES if _path(tables, name) is None]
    if missing:
        raise UsageError(
            f"There is no table {' and no table '.join(missing)} in '{tables}'.",
            hint="It must hold customer.parquet, orders.parquet and lineitem.parquet, or directories of these names.",
        )
    env = ExecutionEnvironment(master=master, options=with_volume(options, VOLUME))
    size = sum(file.stat().st_size for name in TABLES for file in _files(_path(tables, name)))
    print(f"TPC-H query 3 on {format_bytes(size)} of Parquet in {tables}.", flush=True)
    query({name: env.read_parquet(str(_path(tables, name))) for name in TABLES}).write_parquet(
        str(out / "q3"), mode="overwrite"
    )
    result = env.execute("TPC-H query 3")
    print(f"\nDone in {format_seconds(result.duration)}. The unshipped orders worth most are in {out / 'q3'}.")
    print(printable(f"\nWhat was decided, and why:\n\n{result.explain()}"))


def query(tables: Mapping[str, DataStream]) -> DataStream:
    """The ten orders, not shipped by 15 March 1995, that are worth most to the market segment BUILDING."""
    customers = tables["customer"].filter(col("c_mktsegment") == "BUILDING").select("c_custkey")
    orders = tables["orders"].filter(col("o_orderdate") < _DAY)
    orders = orders.select("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority")
    revenue = col("l_extendedprice") * (1 - col("l_discount").cast(pa.decimal128(4, 2)))
    lines = tables["lineitem"].filter(col("l_shipdate") > _DAY).select("l_orderkey", revenue=revenue)
    wanted = orders.key_by("o_custkey").join(customers.key_by("c_custkey"), how="semi")
    sold = lines.key_by("l_orderkey").join(wanted.key_by("o_orderkey"))
    worth = sold.key_by("l_orderkey", "o_orderdate", "o_shippriority").aggregate(revenue=("revenue", "sum"))
    return worth.top_k(10, ("revenue", False), ("o_orderdate", True))


def _path(folder: Path, table: str) -> Path | None:
    """A directory of Parquet files, or one file."""
    return next((path for path in (folder / table, folder / f"{table}.parquet") if path.exists()), None)


def _files(path: Path | None) -> list[Path]:
    return [] if path is None else [path] if path.is_file() else sorted(path.rglob("*.parquet"))


def generate(folder: Path, scale: str = SCALE) -> None:
    """The tables, as Parquet. Raises UsageError without a generator, FiresteelError where it fails."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = shutil.which("tpchgen-cli") or (str(beside) if beside.exists() else None)
    if program is None:
        raise UsageError(
            "There are no TPC-H tables yet, and no tpchgen-cli to make them with.",
            hint="pip install tpchgen-cli, or say where tables as Parquet are: --data DIR.",
        )
    print(f"Making TPC-H tables (scale factor {scale}) in {folder}.", flush=True)
    command = [program, "parquet", "-s", scale, "-o", str(folder), "--tables", ",".join(TABLES)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise FiresteelError(f"tpchgen-cli failed: {(made.stderr.strip() or made.stdout.strip()).splitlines()[-1]}")
