"""Buckets as Spark reads them: its own hash on all its types, and tables that it joins without an exchange."""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.operators_support import rows

from firesteel import functions as ours
from firesteel.engine.hashes import bucket_numbers, spark_hash, xxhash64

pytestmark = pytest.mark.spark

TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "Ärger", "\U0001f600 and more than a word", "x" * 100, "y" * 1001]
VALUES = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int16": (pa.int16(), [-32768, 0, 7]),
    "int32": (pa.int32(), [-(1 << 31), -1, 0, 42, (1 << 31) - 1]),
    "int64": (pa.int64(), [-(1 << 63), -1, 0, 42, 1 << 32, (1 << 63) - 1]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -math.inf, math.nan, 1e-40]),
    "double": (pa.float64(), [0.0, -0.0, 1.5, math.inf, math.nan, -math.nan, 5e-324]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "time": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 456789, UTC)]),
    "local": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29)]),
    "millis": (pa.timestamp("ms"), [datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2024, 2, 29)]),
    "small": (pa.decimal128(18, 3), [Decimal("-1.000"), Decimal("0.001"), Decimal("999999999999999.999")]),
    "large": (pa.decimal128(38, 2), [Decimal(f"{v}E-2") for v in (0, -1, 127, 128, -128, -129, 255, 256, 1 << 63, -(1 << 63), 10**37, -(10**38) + 1)]),
    "text": (pa.string(), TEXTS),
    "coded": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "viewed": (pa.string_view(), TEXTS),
    "bytes": (pa.binary(), [text.encode() for text in TEXTS] + [b"\x80\xff\x00", b"\xff\xfe"]),
    "fixed": (pa.binary(5), [b"\x80\xff\x00\x01\x02", b"abcde"]),
}  # fmt: skip


def drawn(name, count):
    type_, values = VALUES[name]
    draw = random.Random(name)
    chosen = [draw.choice([None, *values]) for _ in range(count - len(values))] + values
    array = pa.array(chosen, type_.value_type if pa.types.is_dictionary(type_) else type_)
    return array.dictionary_encode().cast(type_) if pa.types.is_dictionary(type_) else array


def test_the_hashes_are_sparks(spark, tmp_path):
    """Over files that pyarrow wrote, as buckets are."""
    import pyarrow.parquet as pq

    table = pa.table({name: drawn(name, 60) for name in VALUES})
    pq.write_table(table, tmp_path / "values.parquet")
    for names in [[name] for name in VALUES] + [["text", "int32", "large"], list(VALUES)]:
        frame = spark.read.parquet(str(tmp_path / "values.parquet"))
        hashes = {"h": F.hash(*names), "x": F.xxhash64(*names), "b": F.pmod(F.hash(*names), F.lit(7))}
        theirs = frame.select(*(one.alias(name) for name, one in hashes.items())).toArrow()
        columns = [table.column(name).combine_chunks() for name in names]
        assert spark_hash(columns, 60).tolist() == theirs["h"].to_pylist(), names
        assert xxhash64(columns, 60).tolist() == theirs["x"].to_pylist(), names
        assert bucket_numbers(columns, 60, 7).tolist() == theirs["b"].to_pylist(), names
        sliced = [column.slice(13, 30) for column in columns]
        assert spark_hash(sliced, 30).tolist() == theirs["h"].to_pylist()[13:43], names


def registered(spark, name, path, columns, clustered):
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet {clustered} LOCATION '{path}'")


@pytest.fixture
def no_broadcast(spark):
    """Joins of small tables by a sort, as of large ones."""
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    for name in ("bucketed_orders", "bucketed_users", "bucketed_plain"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def exchanges(frame):
    frame.collect()
    return len(re.findall(r"\bExchange\b", frame._jdf.queryExecution().executedPlan().toString()))


def test_spark_joins_two_tables_without_an_exchange(spark, env, tmp_path, no_broadcast):
    numbers = np.arange(3000)
    users = [None if n % 97 == 0 else f"user {n % 101}" for n in numbers.tolist()]
    orders = env.from_arrow(pa.table({"user": users, "n": numbers, "day": [f"d{n % 3}" for n in numbers.tolist()]}))
    people = env.from_arrow(pa.table({"user": [f"user {n}" for n in range(120)], "town": [n % 7 for n in range(120)]}))
    orders.repartition(3).write_parquet(tmp_path / "orders", bucket_by=(8, "user"), sort_by="n")
    people.write_parquet(tmp_path / "people", bucket_by=(8, "user"))
    orders.write_parquet(tmp_path / "plain")
    env.execute("buckets")
    registered(
        spark,
        "bucketed_orders",
        tmp_path / "orders",
        "user STRING, n BIGINT, day STRING",
        "CLUSTERED BY (user) SORTED BY (n) INTO 8 BUCKETS",
    )
    registered(
        spark, "bucketed_users", tmp_path / "people", "user STRING, town BIGINT", "CLUSTERED BY (user) INTO 8 BUCKETS"
    )
    registered(spark, "bucketed_plain", tmp_path / "plain", "user STRING, n BIGINT, day STRING", "")
    joined = spark.table("bucketed_orders").join(spark.table("bucketed_users"), "user", "full")
    plain = spark.table("bucketed_plain").join(spark.table("bucketed_users"), "user", "full")
    assert exchanges(joined) == 0 < exchanges(plain)
    assert rows(joined.toArrow()) == rows(plain.toArrow())
    counted = spark.table("bucketed_orders").groupBy("user").agg(F.sum("n"))
    assert exchanges(counted) == 0
    assert rows(counted.toArrow()) == rows(spark.table("bucketed_plain").groupBy("user").agg(F.sum("n")).toArrow())
    one = spark.table("bucketed_orders").filter("user = 'user 5'")
    assert one.count() == orders.filter(ours.col("user") == "user 5").count()
    assert env.read_parquet(tmp_path / "orders").columns == ["user", "n", "day"]


@pytest.mark.full
def test_partitions_and_buckets_and_what_is_appended(spark, env, tmp_path, no_broadcast):
    rows_of = [
        {"k": n % 11 - 5, "at": datetime(2024, 1, 1) + timedelta(hours=n), "part": n % 2, "n": n} for n in range(500)
    ]
    schema = pa.schema({"k": pa.int32(), "at": pa.timestamp("us"), "part": pa.int32(), "n": pa.int64()})
    for low, high in ((0, 200), (200, 500)):
        some = env.from_arrow(pa.Table.from_pylist(rows_of[low:high], schema))
        some.write_parquet(
            tmp_path / "out", mode="append", partition_by="part", bucket_by=(4, "k", "at"), sort_by=["k", "n"]
        )
        env.execute("append")
    columns = "k INT, at TIMESTAMP_NTZ, n BIGINT, part INT"
    clustered = "PARTITIONED BY (part) CLUSTERED BY (k, at) SORTED BY (k, n) INTO 4 BUCKETS"
    registered(spark, "bucketed_orders", tmp_path / "out", columns, clustered)
    spark.sql("MSCK REPAIR TABLE bucketed_orders")
    table = spark.table("bucketed_orders")
    grouped = table.groupBy("k", "at").agg(F.count("*").alias("c"))
    assert exchanges(grouped) == 0
    assert grouped.count() == 500
    assert sorted(row["n"] for row in table.filter("k = 3 AND part = 1").collect()) == [
        row["n"] for row in rows_of if row["k"] == 3 and row["part"] == 1
    ]


@pytest.mark.full
def test_no_rows_are_a_table_too(spark, env, tmp_path, no_broadcast):
    env.from_arrow(pa.table({"k": pa.array([], pa.int64())})).write_parquet(tmp_path / "none", bucket_by=(4, "k"))
    env.execute("nothing")
    registered(spark, "bucketed_orders", tmp_path / "none", "k BIGINT", "CLUSTERED BY (k) INTO 4 BUCKETS")
    assert spark.table("bucketed_orders").groupBy("k").count().count() == 0
