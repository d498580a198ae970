"""The jobs that are profiled. Each factory starts Spark with a sampler in every Python process, and returns ``run``, which answers
``[tasks, bytes of results between steps, rows into the sources]`` of one job.

``FIRESTEEL_BENCH_MIB`` (1024): of the exchange; ``FIRESTEEL_BENCH_QUERY`` (9): of TPC-H; ``FIRESTEEL_BENCH_MASTER`` (``local[2]``);
``FIRESTEEL_BENCH_UNSAMPLED`` (unset): no samplers, to see what they cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.jobs import sql, tasks
from benchmarks.kit import cases, data
from benchmarks.profile.daemon import DIRECTORY
from benchmarks.profile.sampler import start_in_driver

MIB = int(os.environ.get("FIRESTEEL_BENCH_MIB", "1024"))
QUERY = int(os.environ.get("FIRESTEEL_BENCH_QUERY", "9"))
MASTER = os.environ.get("FIRESTEEL_BENCH_MASTER", "local[2]")
OFF = bool(os.environ.get("FIRESTEEL_BENCH_UNSAMPLED"))
FILES = 16
ROW_BYTES = 8 + 4 + 8 + 8 + 16 + (4 + 10) + (4 + 6)
"""Plain, of ``mixed``."""
Build = Callable[[Any], tuple[Any, str]]
"""From an environment to a stream and the column whose sum is the answer."""


def setup(case: str, directory: str, codec: str) -> cases.Run:
    """``codec``: of the results between steps."""
    from firesteel import ExecutionEnvironment

    options = {"firesteel.progress": "false", "firesteel.results.codec": codec}
    env = ExecutionEnvironment(_session(directory), options | OPTIONS.get(case, {}))
    build = WORK[case]

    def run() -> list[float]:
        stream, column = build(env)
        stream.write_to(cases.ChecksumSink(column))
        steps = env.execute(case).vertices
        return [
            sum(steps.column(name).fill_null(0).to_pylist()) for name in ("parallelism", "bytes_produced", "rows_in")
        ]

    return run


def _session(directory: str) -> Any:
    from firesteel.spark.session.sessions import create_session

    if OFF:
        return create_session(MASTER)
    os.environ[DIRECTORY] = directory
    start_in_driver(directory)
    root = Path(__file__).resolve().parents[2]
    settings = {
        "spark.python.daemon.module": "benchmarks.profile.daemon",
        "spark.executorEnv.PYTHONPATH": f"{root / 'src'}:{root}",
    }
    return create_session(MASTER, conf=settings)


def mixed(mib: int) -> Path:
    """About ``mib`` MiB of plain integers, doubles, decimals and strings, in files that Spark may have written."""

    def make(target: Path) -> None:
        rng = np.random.default_rng(11)
        rows = (mib << 20) // ROW_BYTES // FILES
        for number in range(FILES):
            pq.write_table(_mixed(rng, rows), target / f"part-{number:05d}.parquet", row_group_size=250_000)

    return data._once(f"mixed-{mib}-{FILES}", make)


def _mixed(rng: np.random.Generator, rows: int) -> pa.Table:
    cents = np.zeros((rows, 2), np.int64)
    cents[:, 0] = rng.integers(0, 10_000_000, rows)
    words = pa.array([f"word-{n}" for n in range(10, 99)])
    return pa.table({
        "k": rng.integers(0, 1 << 40, rows),
        "i": rng.integers(0, 1000, rows, dtype=np.int32),
        "x": rng.random(rows),
        "y": np.round(rng.normal(size=rows), 3),
        "d": pa.Array.from_buffers(pa.decimal128(12, 2), rows, [None, pa.py_buffer(cents)]),
        "s": pc.binary_join_element_wise("item", pc.cast(pa.array(rng.integers(0, 1_000_000, rows)), pa.string()), ""),
        "t": words.take(pa.array(rng.integers(0, len(words), rows))),
    })  # fmt: skip


def _exchange(env: Any) -> tuple[Any, str]:
    return env.read_parquet(str(mixed(MIB))).repartition("k"), "x"


def _tiny(env: Any) -> tuple[Any, str]:
    return tasks.pipeline(env, *tasks.SHAPES[0]), "v"


def _query(env: Any) -> tuple[Any, str]:
    """A query of TPC-H as a Spark DataFrame; planned by Catalyst in each run, as a user's is."""
    home, queries = sql.data("tpch")
    stream = env.from_dataframe(sql.viewed(env.spark, sql.tables(home)).sql(queries[QUERY][1]))
    return stream, next(field.name for field in stream.schema if _is_number(field.type))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


WORK: dict[str, Build] = {
    "exchange": _exchange,
    "groupby": cases.FIRESTEEL["groupby"],
    "tiny": _tiny,
    "query": _query,
}
OPTIONS = {"tiny": {"max-parallelism": 1000}}
