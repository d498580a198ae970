"""The work of benchmark 1, once per engine. Every run answers (output rows, checksum), so that all can be compared.

Each factory returns ``run``; Spark sessions are made by the factory, so the cold run pays for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.kit import data
from benchmarks.kit.functions import NEEDED, revenue

Run = Callable[[], list[float]]
CODEC = "lz4"
HEAP = "2g"


# --- inputs and functions shared by all engines -----------------------------------------------------------------


def revenue_combined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same with a partial aggregation by hand, as a careful PySpark user writes it."""
    for batch in revenue(batches):
        grouped = (
            pa.Table.from_batches([batch]).group_by("k", use_threads=False).aggregate([("v", "sum"), ("v", "count")])
        )
        yield from grouped.select(["k", "v_sum", "v_count"]).rename_columns(["k", "s", "n"]).to_batches()


def costly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """About 10 us of pure Python per row: the bytes say little about the work."""
    for batch in batches:
        out = [sum(math.sin(x * i) for i in range(150)) for x in batch.column("x").to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column("g"), pa.array(out, pa.float64())], names=["k", "v"])


def wide_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.set_column(1, "c0", pc.add(batch.column("c0"), 1.0))


def pick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column("g"), batch.column("x")], names=["k", "v"])


def group_total(table: pa.Table) -> pa.Table:
    total = pc.sum(table.column("v")).as_py() or 0.0
    return pa.table(
        {
            "k": table.column("k").slice(0, 1),
            "s": pa.array([total], pa.float64()),
            "n": pa.array([table.num_rows], pa.int64()),
        }
    )


def _order_prices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [pc.cast(batch.column("o_orderkey"), pa.int64()), pc.cast(batch.column("o_totalprice"), pa.float64())],
            names=["o", "p"],
        )


# --- Firesteel --------------------------------------------------------------------------------------------------


class ChecksumSink:
    """Takes everything, keeps (rows, sum of a column)."""

    name = "checksum"
    supports_concurrent_execution_attempts = True

    def __init__(self, column: str) -> None:
        self.column = column
        self.answer: list[float] = []

    def check(self, schema: pa.Schema) -> None: ...
    def begin(self, job_id: str) -> None: ...
    def abort(self, attempts: Any) -> None: ...

    def write(self, subtask: int, attempt: int) -> _ChecksumWriter:
        return _ChecksumWriter(self.column)

    def commit(self, winners: Any) -> None:
        self.answer[:] = [sum(w[0] for w in winners), math.fsum(w[1] for w in winners)]


class _ChecksumWriter:
    def __init__(self, column: str) -> None:
        self.column, self.rows, self.total = column, 0, 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.total += float(pc.sum(batch.column(self.column)).as_py() or 0)

    def finish(self) -> tuple[int, float]:
        return self.rows, self.total

    def abort(self) -> None: ...


def _environment(options: dict[str, Any] | None, master: str = "local[*]") -> Any:
    from firesteel import ExecutionEnvironment

    return ExecutionEnvironment(
        master=master, options={"firesteel.progress": "false", "firesteel.results.codec": CODEC, **(options or {})}
    )


def firesteel(case: str, options: dict[str, Any] | None = None) -> Run:
    env = _environment(options)
    build = FIRESTEEL[case]

    def run() -> list[float]:
        stream, column = build(env)
        sink = ChecksumSink(column)
        stream.write_to(sink)
        env.execute(case)
        return sink.answer

    return run


SUMS = {"s": ("v", "sum"), "n": ("v", "count")}


def _fs_groupby(env: Any) -> Any:
    lines = env.read_parquet(str(data.tpch(1) / "lineitem.parquet")).select(*NEEDED)
    return lines.map_in_arrow(revenue, "k bigint, v double").key_by("k").aggregate(SUMS), "s"


def _fs_all_columns(env: Any) -> Any:
    lines = env.read_parquet(str(data.tpch(1) / "lineitem.parquet"))
    return lines.map_in_arrow(revenue, "k bigint, v double").key_by("k").aggregate(SUMS), "s"


def _fs_apply(env: Any) -> Any:
    return env.read_parquet(str(data.events(100))).map_in_arrow(pick, "k bigint, v double").key_by("k").apply_in_arrow(
        group_total, "k bigint, s double, n bigint"
    ), "s"


def _fs_join(env: Any) -> Any:
    lines = (
        env.read_parquet(str(data.tpch(1) / "lineitem.parquet"))
        .select(*NEEDED)
        .map_in_arrow(revenue, "k bigint, v double")
    )
    orders = (
        env.read_parquet(str(data.tpch(1) / "orders.parquet"))
        .select("o_orderkey", "o_totalprice")
        .map_in_arrow(_order_prices, "o bigint, p double")
    )
    return lines.key_by("k").join(orders.key_by("o"), how="inner"), "p"


def _fs_events(name: str, megabytes: int, *, files: int = 4, function: Any = pick) -> Callable[[Any], Any]:
    def build(env: Any) -> Any:
        path = data.events(megabytes, skewed=name == "skewed", files=files)
        return env.read_parquet(str(path)).map_in_arrow(function, "k bigint, v double").key_by("k").aggregate(SUMS), "s"

    return build


def _fs_wide(env: Any) -> Any:
    path = data.wide()
    stream = env.read_parquet(str(path))
    mapped = stream.map_in_arrow(wide_rows, stream.schema)
    return mapped.key_by("k").aggregate({f"c{i}": (f"c{i}", "sum") for i in range(60)}), "c0"


FIRESTEEL: dict[str, Callable[[Any], Any]] = {
    "groupby": _fs_groupby,
    "all columns": _fs_all_columns,
    "apply": _fs_apply,
    "join": _fs_join,
    "skewed": _fs_events("skewed", 100),
    "small files": _fs_events("files", 20, files=500),
    "tiny": _fs_events("tiny", 1),
    "costly": _fs_events("costly", 20, function=costly),
    "wide": _fs_wide,
}


# --- PySpark ----------------------------------------------------------------------------------------------------


def _session(conf: dict[str, str]) -> Any:
    import os
    import sys

    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    builder = builder.config("spark.io.compression.codec", CODEC).config("spark.driver.memory", HEAP)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def pyspark(case: str, variant: str = "default", conf: dict[str, str] | None = None) -> Run:
    spark = _session(conf or {})
    build = PYSPARK[case]

    def run() -> list[float]:
        from pyspark.sql import functions as F

        frame, column = build(spark, variant)
        row = frame.agg(F.count(F.lit(1)), F.sum(column)).first()
        return [row[0], row[1]]

    return run


def accelerated(case: str) -> Run:
    """The same calls of PySpark, in a session that Firesteel accelerates."""
    import firesteel as package

    run = pyspark(case)
    package.accelerate(_session({}), {"firesteel.progress": False})
    return run


def _read(spark: Any, path: Any) -> Any:
    return spark.read.parquet(str(path))


def _totals(frame: Any) -> Any:
    from pyspark.sql import functions as F

    return frame.groupBy("k").agg(F.sum("v").alias("s"), F.count("v").alias("n"))


def _ps_groupby(spark: Any, variant: str) -> Any:
    from pyspark.sql import functions as F

    lines = _read(spark, data.tpch(1) / "lineitem.parquet")
    if variant == "sql":
        value = F.col("l_extendedprice").cast("double") * (1.0 - F.col("l_discount").cast("double"))
        return _totals(lines.select(F.col("l_orderkey").alias("k"), value.alias("v"))), "s"
    needed = lines.select(*NEEDED)
    if variant == "combined":
        partial = needed.mapInArrow(revenue_combined, "k bigint, s double, n bigint")
        return partial.groupBy("k").agg(F.sum("s").alias("s"), F.sum("n").alias("n")), "s"
    return _totals(needed.mapInArrow(revenue, "k bigint, v double")), "s"


def _ps_all_columns(spark: Any, variant: str) -> Any:
    lines = _read(spark, data.tpch(1) / "lineitem.parquet")
    return _totals(lines.mapInArrow(revenue, "k bigint, v double")), "s"


def _ps_apply(spark: Any, variant: str) -> Any:
    frame = _read(spark, data.events(100)).mapInArrow(pick, "k bigint, v double")
    return frame.groupBy("k").applyInArrow(group_total, "k bigint, s double, n bigint"), "s"


def _ps_join(spark: Any, variant: str) -> Any:
    lines = _read(spark, data.tpch(1) / "lineitem.parquet").select(*NEEDED).mapInArrow(revenue, "k bigint, v double")
    orders = (
        _read(spark, data.tpch(1) / "orders.parquet")
        .select("o_orderkey", "o_totalprice")
        .mapInArrow(_order_prices, "o bigint, p double")
    )
    return lines.join(orders, lines["k"] == orders["o"]), "p"


def _ps_events(name: str, megabytes: int, *, files: int = 4, function: Any = pick) -> Callable[[Any, str], Any]:
    def build(spark: Any, variant: str) -> Any:
        frame = _read(spark, data.events(megabytes, skewed=name == "skewed", files=files))
        return _totals(frame.mapInArrow(function, "k bigint, v double")), "s"

    return build


def _ps_wide(spark: Any, variant: str) -> Any:
    from pyspark.sql import functions as F

    frame = _read(spark, data.wide())
    mapped = frame.mapInArrow(wide_rows, frame.schema)
    return mapped.groupBy("k").agg(*[F.sum(f"c{i}").alias(f"c{i}") for i in range(60)]), "c0"


PYSPARK: dict[str, Callable[[Any, str], Any]] = {
    "groupby": _ps_groupby,
    "all columns": _ps_all_columns,
    "apply": _ps_apply,
    "join": _ps_join,
    "skewed": _ps_events("skewed", 100),
    "small files": _ps_events("files", 20, files=500),
    "tiny": _ps_events("tiny", 1),
    "costly": _ps_events("costly", 20, function=costly),
    "wide": _ps_wide,
}


# --- DuckDB: the floor --------------------------------------------------------------------------------------------


def duckdb(case: str) -> Run:
    import duckdb as engine

    assert case == "groupby"
    connection = engine.connect()
    connection.execute("SET threads = 2")
    path = data.tpch(1) / "lineitem.parquet"
    query = f"""
        SELECT count(*), sum(s) FROM (
            SELECT l_orderkey, sum(l_extendedprice::DOUBLE * (1.0 - l_discount::DOUBLE)) AS s, count(*) AS n
            FROM '{path}' GROUP BY l_orderkey)
    """

    def run() -> list[float]:
        row = connection.execute(query).fetchone()
        assert row is not None
        return [float(row[0]), float(row[1])]

    return run
