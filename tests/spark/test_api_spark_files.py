"""Paths that pyarrow cannot open and Spark can: viewfs stands for s3a and dbfs, which nobody has here."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import col
from firesteel.connectors.files.paths import only_spark_opens
from firesteel.errors import JobExecutionError, UsageError

pytestmark = pytest.mark.spark


@pytest.fixture
def view(spark, tmp_path):
    """A URL for ``tmp_path`` that only Spark opens."""
    table = tmp_path.name.replace("_", "-")  # Spark keeps a filesystem once it has opened it
    spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{table}.link./here", tmp_path.as_uri())
    return f"viewfs://{table}/here"


ROWS = [{"k": i % 7, "s": f"s{i}", "d": decimal.Decimal(i)} for i in range(200)]
SCHEMA = pa.schema([("k", pa.int32()), ("s", pa.string()), ("d", pa.decimal128(12, 2))])


def by(rows):
    return sorted(rows, key=lambda row: row["s"])


def test_parquet_is_written_and_read_by_spark(env, view, tmp_path):
    assert only_spark_opens(f"{view}/out")
    stream = env.from_collection(ROWS, SCHEMA)
    stream.filter(col("k") < 5).write_parquet(f"{view}/out", compression="zstd")
    env.execute("write")
    assert (tmp_path / "out" / "_SUCCESS").exists()
    expected = [row for row in ROWS if row["k"] < 5]
    assert by(pq.read_table(tmp_path / "out").to_pylist()) == by(expected)
    back = env.read_parquet(f"{view}/out")
    assert back.schema.types == SCHEMA.types
    assert by(back.collect()) == by(expected)
    with pytest.raises(UsageError, match="exists already"):
        stream.write_parquet(f"{view}/out")
        env.execute("again")
    stream.write_parquet(f"{view}/out", mode="overwrite")
    env.execute("again")
    assert by(env.read_parquet(f"{view}/out").collect()) == by(ROWS)


@pytest.mark.full
def test_text_is_written_and_read_by_spark(env, view, tmp_path):
    env.from_collection([{"value": "ä"}, {"value": None}, {"value": "b c"}]).write_text(f"{view}/lines")
    env.execute("write")
    assert sorted(env.read_text(str(tmp_path / "lines")).to_arrow()["value"].to_pylist()) == ["", "b c", "ä"]
    (tmp_path / "raw.txt").write_bytes(b"one\r\n\xfftwo")
    found = env.read_text(f"{view}/raw.txt", path_column="file").collect()
    assert [row["value"] for row in found] == ["one", "\ufffdtwo"]
    assert all(row["file"].endswith("raw.txt") for row in found)


@pytest.mark.full
def test_no_rows_still_make_an_output(env, view):
    env.from_collection(ROWS, SCHEMA).filter(col("k") > 100).write_parquet(f"{view}/empty")
    env.execute("nothing")
    assert env.read_parquet(f"{view}/empty").count() == 0


@pytest.mark.full
def test_a_failed_job_writes_nothing(env, view, tmp_path):
    def fail(batches):
        for batch in batches:
            yield batch
            raise ValueError("no")

    env.from_collection(ROWS, SCHEMA).map_in_arrow(fail, SCHEMA).write_parquet(f"{view}/out")
    with pytest.raises(JobExecutionError, match="no"):
        env.execute("fails")
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_what_cannot_be_is_said_before_the_job(env, view):
    with pytest.raises(UsageError, match=r"Spark cannot read .*missing"):
        env.read_parquet(f"{view}/missing")
    with pytest.raises(UsageError, match="needs exactly one column of strings"):
        env.from_collection(ROWS, SCHEMA).write_text(f"{view}/t")
        env.execute()
    with pytest.raises(UsageError, match="column 'u' of type uint64"):
        env.from_arrow(pa.table({"u": pa.array([1], pa.uint64())})).write_parquet(f"{view}/u")
        env.execute()
    with pytest.raises(UsageError, match=r"Spark cannot (read|look at) s3a://"):  # its classes are not there
        env.read_parquet("s3a://bucket/x")
