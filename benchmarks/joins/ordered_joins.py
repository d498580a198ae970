"""Joins by order: trades with the last quote before each (as-of), and with the session that each falls into (a range).

Firesteel against pandas' ``merge_asof`` and DuckDB, each from Parquet to two sums, with two cores. The other two read all into one process; Firesteel
exchanges both sides by their key, or gives a small right side whole to each task (``small``: one quote in fifty).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kit import cases, data
from benchmarks.kit.harness import Contender, compete, table

TRADES, QUOTES, KEYS, FILES = 2_000_000, 4_000_000, 1_000, 4
SPAN = QUOTES * 10
"""Times are from 0 up to this."""
RANGES = {"range": 10, "ranges": 1_000}
"""Sessions of a key."""
Run = Callable[[], list[float]]


def _written(name: str, columns: Callable[[np.random.Generator], dict[str, Any]]) -> Path:
    def make(target: Path) -> None:
        rows = pa.table(columns(np.random.default_rng(11)))
        size = -(-rows.num_rows // FILES)
        for number in range(FILES):
            pq.write_table(
                rows.slice(number * size, size), target / f"part-{number:05d}.parquet", row_group_size=1 << 18
            )

    return data._once(f"ordered-{name}", make)  # pyright: ignore[reportPrivateUsage]


def trades() -> Path:
    """``k bigint, t bigint, amount bigint``, in no order."""

    def columns(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "k": rng.integers(0, KEYS, TRADES),
            "t": rng.integers(0, SPAN, TRADES),
            "amount": rng.integers(1, 100, TRADES),
        }

    return _written(f"trades-{TRADES}", columns)


def quotes(count: int) -> Path:
    """``k bigint, t bigint, price bigint``, in no order; no two have one time."""

    def columns(rng: np.random.Generator) -> dict[str, Any]:
        step = SPAN // count
        times = rng.permutation(np.arange(count) * step + rng.integers(0, step, count))
        return {"k": rng.integers(0, KEYS, count), "t": times, "price": rng.integers(1, 1000, count)}

    return _written(f"quotes-{count}", columns)


def sessions(each: int) -> Path:
    """``k bigint, low bigint, high bigint, price bigint``: so many a key, of half the time together."""

    def columns(rng: np.random.Generator) -> dict[str, Any]:
        begins = np.tile(np.arange(each) * (SPAN // each), KEYS)
        keys = np.repeat(np.arange(KEYS), each)
        order = rng.permutation(len(keys))
        lows = (begins + rng.integers(0, SPAN // each // 2, len(keys)))[order]
        return {
            "k": keys[order],
            "low": lows,
            "high": lows + SPAN // each // 2,
            "price": rng.integers(1, 1000, len(keys)),
        }

    return _written(f"sessions-{KEYS}-{each}", columns)


def _right(case: str) -> Path:
    return sessions(RANGES[case]) if case in RANGES else quotes(QUOTES // 50 if case == "small" else QUOTES)


def firesteel(case: str) -> Run:
    env = cases._environment({}, "local[2]")  # pyright: ignore[reportPrivateUsage]

    def run() -> list[float]:
        left, right = env.read_parquet(str(trades())), env.read_parquet(str(_right(case)))
        if case in RANGES:
            joined = left.join(right, ["k", ("t", ">=", "low"), ("t", "<", "high")])
        else:
            joined = left.join_asof(right, "t", "k", how="inner")
        (row,) = joined.aggregate(n=("*", "count"), s=("price", "sum")).collect()
        return [row["n"], row["s"]]

    return run


def pandas(case: str) -> Run:
    import pandas as pd

    def run() -> list[float]:
        left, right = (pd.read_parquet(path).sort_values("t") for path in (trades(), _right(case)))
        joined = pd.merge_asof(left, right, on="t", by="k").dropna(subset=["price"])
        return [len(joined), float(joined["price"].sum())]

    return run


def duckdb(case: str) -> Run:
    import duckdb as engine

    connection: Any = engine.connect(config={"threads": 2})
    joined = "l JOIN r ON l.k = r.k AND l.t >= r.low AND l.t < r.high"
    if case not in RANGES:
        joined = "l ASOF JOIN r ON l.k = r.k AND l.t >= r.t"

    def run() -> list[float]:
        sides = ", ".join(
            f"{name} AS (SELECT * FROM read_parquet('{path}/*.parquet'))"
            for name, path in (("l", trades()), ("r", _right(case)))
        )
        row = connection.execute(f"WITH {sides} SELECT count(*), sum(price) FROM {joined}").fetchone()
        return [float(row[0]), float(row[1])]

    return run


def main(runs: int, only: str) -> None:
    said = {
        "as-of": f"{TRADES:,} trades, the last of {QUOTES:,} quotes before each",
        "small": f"{TRADES:,} trades, the last of {QUOTES // 50:,} quotes before each",
        **{
            case: f"{TRADES:,} trades, the session of {KEYS * each:,} that each falls into"
            for case, each in RANGES.items()
        },
    }
    for case, words in said.items():
        if only and only != case:
            continue
        trades(), _right(case)
        entered = [Contender("Firesteel", f"{__name__}:firesteel", {"case": case})]
        if case not in RANGES:
            entered.append(Contender("pandas merge_asof", f"{__name__}:pandas", {"case": case}))
        entered.append(Contender("DuckDB", f"{__name__}:duckdb", {"case": case}))
        compete(entered, runs=runs)
        print(table(f"ordered joins: {words}", entered, entered[0]), flush=True)
