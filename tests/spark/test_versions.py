"""What every combination of the matrix has to show: the package that was installed, this Spark, and streams or a sentence."""

from __future__ import annotations

import threading

import pyspark
import pytest

import firesteel
from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError
from firesteel.spark.session.versions import LEAST_STREAMING, version_of
from firesteel.streaming import AdaptiveStream


def test_the_session_runs_the_spark_that_is_installed(spark, env):
    assert spark.version == pyspark.__version__
    rows = env.from_collection([(k, f"ä{k}") for k in range(20)], "n int, s string").rebalance().collect()
    assert sorted((row["n"], row["s"]) for row in rows) == [(k, f"ä{k}") for k in range(20)]
    assert firesteel.__file__


def test_what_is_not_utf8_is_replaced_and_not_lost(spark, tmp_path):
    from firesteel.spark.session.versions import valid_text

    rows = spark.createDataFrame([(bytearray(b"a\xffb"),), (bytearray("ä".encode()),)], "v binary")
    found = rows.selectExpr("cast(v as string) as v").select(valid_text("v").alias("v")).collect()
    assert sorted(row["v"] for row in found) == ["a\ufffdb", "ä"]


def test_zoned_timestamps_have_the_sessions_zone_in_nested_types_too(spark, env):
    frame = spark.sql("select timestamp'2024-05-01 12:00:00' t, array(timestamp'2024-05-01 12:00:00') ts, 1 as n")
    stream = env.from_dataframe(frame)
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert stream.schema.field("t").type.tz == zone
    assert stream.schema.field("ts").type.value_type.tz == zone
    assert stream.to_arrow().column("t")[0].as_py() == frame.collect()[0]["t"].astimezone(tz=None)


@pytest.mark.full
def test_streams_run_or_say_that_they_cannot(spark, tmp_path):
    found = version_of(spark.version)
    assert found is not None
    seen: list[int] = []
    enough = threading.Event()

    def take(frame, _batch):
        seen.append(frame.count())
        if len(seen) > 1:
            enough.set()

    def build(session):
        return (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 5)
            .load()
            .writeStream.foreachBatch(take)
        )

    def start():
        options = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "journal")}
        return AdaptiveStream.start(build, tmp_path / "checkpoint", spark=spark, options=options)

    if found < LEAST_STREAMING:
        with pytest.raises(UsageError, match=r"Streams need Spark 4\.0 or newer"):
            start()
        assert ExecutionEnvironment(spark).spark is spark
        return
    with start():
        assert enough.wait(600)
    assert seen[:2] == [5, 5]
