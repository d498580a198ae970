"""Partitions replaced and rows merged, on Spark: the folders as Spark reads them, and as Spark's own dynamic overwrite makes them."""

from __future__ import annotations

import datetime

import duckdb
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROWS = [
    {"n": i, "day": datetime.date(2024, 1, 1 + i % 5), "who": ["a/b=c", "50% é:", None][i % 3], "v": f"old{i}"}
    for i in range(300)
]
DDL = "n bigint, day date, who string, v string"
AGAIN = [{**row, "v": "new"} for row in ROWS if row["day"].day <= 2 and row["who"] != "a/b=c"][:40]


def by_spark(spark, folder):
    rows = spark.read.schema(DDL).parquet(str(folder)).collect()
    return sorted((row["n"], row["day"], row["who"], row["v"]) for row in rows)


def test_partitions_are_replaced_as_spark_does_it(spark, env, tmp_path):
    for name in ("ours", "theirs"):
        frame = spark.createDataFrame(ROWS, DDL).repartition(3)
        frame.write.partitionBy("day", "who").parquet(str(tmp_path / name))
    again = env.from_collection(AGAIN, DDL).repartition(4)
    again.write_parquet(tmp_path / "ours", mode="overwrite_partitions", partition_by=["day", "who"], file_size="1 MiB")
    env.execute("ours")
    theirs = spark.createDataFrame(AGAIN, DDL).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    theirs.partitionBy("day", "who").parquet(str(tmp_path / "theirs"))
    ours = by_spark(spark, tmp_path / "ours")
    assert ours == by_spark(spark, tmp_path / "theirs")
    replaced = {(row["day"], row["who"]) for row in AGAIN}
    assert len(ours) == len(AGAIN) + sum((row["day"], row["who"]) not in replaced for row in ROWS)


@pytest.mark.parametrize("partition_by", [[], ["day", "who"]])
def test_rows_are_merged_as_sql_says(spark, env, tmp_path, partition_by):
    frame = spark.createDataFrame(ROWS, DDL).repartition(5)
    frame.write.partitionBy(*partition_by).parquet(str(tmp_path / "t"))
    new = [{"n": n, "day": datetime.date(2024, 1, 2), "who": "x", "v": "new"} for n in range(290, 310)]
    env.from_collection(new, DDL).merge_parquet(tmp_path / "t", "n", partition_by=partition_by)
    env.execute("merge")
    sql = duckdb.sql(
        "SELECT i AS n, 'old' || i AS v FROM range(290) t(i) UNION ALL SELECT i, 'new' FROM range(290, 310) t(i) ORDER BY n"
    )
    found = by_spark(spark, tmp_path / "t")
    assert [(n, v) for n, _, _, v in found] == sql.fetchall()
    assert {(day, who) for n, day, who, _ in found if n >= 290} == {(datetime.date(2024, 1, 2), "x")}
