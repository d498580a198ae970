"""Columns of intervals: microseconds or months in the engine, compared with Spark at the ends of their types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException

from firesteel import accelerate
from sql_scans_kit import assert_as_spark, assert_left_to_spark

pytestmark = pytest.mark.spark

SECOND, HOUR, DAY = 10**6, 3600 * 10**6, 86400 * 10**6
LENGTHS = (
    0,
    1,
    -1,
    SECOND // 2,
    60 * SECOND - 1,
    HOUR,
    10 * HOUR,
    DAY - 1,
    DAY,
    -DAY - 1,
    100 * HOUR,
    2**63 - 1,
    -(2**63),
    None,
)
MONTHS = (0, 1, -1, 11, 12, 13, -12, -25, 1200, 2**31 - 1, -(2**31), None)
FIELDS = ("day", "day to hour", "day to minute", "day to second", "hour", "hour to minute", "hour to second", "minute", "minute to second", "second")  # fmt: skip


@pytest.fixture(scope="module")
def spans(spark, tmp_path_factory):
    home = tmp_path_factory.mktemp("spans")
    wide = pa.table(
        {
            "k": [i % 3 for i, _ in enumerate(LENGTHS)],
            **{f"c{i}": pa.array(LENGTHS, pa.int64()) for i, _ in enumerate(FIELDS)},
        }
    )
    pq.write_table(wide, home / "days.parquet")
    kinds = ", ".join(f"c{i} INTERVAL {fields}" for i, fields in enumerate(FIELDS))
    spark.read.schema(f"k BIGINT, {kinds}").parquet(str(home / "days.parquet")).createOrReplaceTempView("days")
    months = pa.table(
        {"k": [i % 3 for i, _ in enumerate(MONTHS)], **{name: pa.array(MONTHS, pa.int32()) for name in "ymb"}}
    )
    pq.write_table(months, home / "months.parquet")
    kinds = "y INTERVAL YEAR, m INTERVAL MONTH, b INTERVAL YEAR TO MONTH"
    spark.read.schema(f"k BIGINT, {kinds}").parquet(str(home / "months.parquet")).createOrReplaceTempView("months")


QUERIES = [
    "SELECT c3, c6 FROM days",
    f"SELECT {', '.join(f'CAST(c{i} AS STRING) AS c{i}' for i, _ in enumerate(FIELDS))} FROM days",
    "SELECT CAST(y AS STRING) AS y, CAST(m AS STRING) AS m, CAST(b AS STRING) AS b FROM months",
    "SELECT c3, count(*) AS n, count(DISTINCT c0) AS d FROM days GROUP BY c3",
    "SELECT k, min(c3) AS a, max(c6) AS b, max_by(k, c3) AS c FROM days GROUP BY k",
    "SELECT k, sum(c3) AS s, sum(c9) AS t FROM days WHERE abs(extract(day FROM c3)) < 1000 GROUP BY k",
    "SELECT k, median(c3) AS a, percentile_cont(0.3) WITHIN GROUP (ORDER BY c6 DESC) AS b, percentile_disc(0.3) WITHIN GROUP (ORDER BY c0) AS c, percentile(c9, array(0.1, 0.7)) AS d FROM days WHERE abs(extract(day FROM c3)) < 1000 GROUP BY k",
    "SELECT CAST(median(b) AS STRING) AS a, CAST(percentile_disc(0.7) WITHIN GROUP (ORDER BY m) AS STRING) AS b, CAST(mode(y, true) AS STRING) AS c FROM months",
    "SELECT CAST(sum(b) AS STRING) AS s FROM months WHERE abs(extract(year FROM b)) < 1000",
    "SELECT CAST(max(b) AS STRING) AS s, count(DISTINCT m) AS n FROM months",
    "SELECT a.k, b.c3 FROM days a JOIN days b ON a.c3 = b.c3",
    "SELECT a.k FROM days a LEFT ANTI JOIN days b ON a.c3 < b.c3",
    "SELECT k, row_number() OVER (ORDER BY c3) AS r FROM days",
    "SELECT c3 > INTERVAL '1' HOUR AS a, c3 IN (INTERVAL '1' HOUR) AS b, coalesce(c3, INTERVAL '1' SECOND) AS c FROM days",
    "SELECT array(c3) AS a, named_struct('x', c3) AS s FROM days",
    "SELECT sort_array(collect_list(c3)) AS l, sort_array(collect_set(c0)) AS t FROM days",
    "SELECT timestamp'2020-01-01 00:00:00' - timestamp'2019-12-31 23:59:59.5' + c3 AS d FROM days WHERE k = 0 AND c3 < INTERVAL '2' DAY",
]  # fmt: skip


@pytest.mark.parametrize(
    "query", [*QUERIES[::2], *(pytest.param(query, marks=pytest.mark.full) for query in QUERIES[1::2])]
)
def test_intervals(spark, env, spans, query):
    assert_as_spark(env, spark.sql(query))


def test_the_order_of_intervals(spark, env, spans):
    frame = spark.sql("SELECT c3 FROM days ORDER BY c3 DESC")
    assert env.from_dataframe(frame).to_arrow()["c3"].to_pylist() == [row.c3 for row in frame.collect()]


def test_sums_that_overflow_are_sparks(spark, spans):
    with accelerate(spark) as acceleration, pytest.raises(ArithmeticException, match="INTERVAL_ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT sum(c3) FROM days").collect()
    assert "overflow" in acceleration.queries[0].left[0].lower()


@pytest.mark.parametrize("call", ["avg(c3)", pytest.param("to_json(named_struct('x', c3))", marks=pytest.mark.full)])
def test_what_spark_computes_of_intervals(spark, env, spans, call):
    assert_left_to_spark(
        env, spark.sql(f"SELECT {call} AS r FROM days WHERE c3 < INTERVAL '2' DAY"), "interval day to second"
    )
