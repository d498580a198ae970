"""What must not pass in silence: another session, a stop from outside, a second query, a stop that Spark gives up."""

from __future__ import annotations

import threading
import time

import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

from firesteel.streaming import AdaptiveStream, JobExecutionError, UsageError

SECONDS = 60.0
AS = "jobmanager.adaptive-scheduler."


@pytest.fixture
def options(tmp_path):
    return {
        AS + "executing.cooldown-after-rescaling": 0,
        AS + "executing.resource-stabilization-timeout": 0,
        "restart-strategy.fixed-delay.delay": "10 ms",
        "restart-strategy.fixed-delay.attempts": 1,
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
    }


def counted(session, sink=lambda frame, batch: frame.count()):
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.groupBy((F.col("value") % 5).alias("k")).count().writeStream.outputMode("update").foreachBatch(sink)


def until(stream, said):
    end = time.monotonic() + SECONDS
    while not said(stream.status()):
        assert time.monotonic() < end, stream.status()
        assert not stream.await_termination(0.02), stream.status()


@pytest.mark.parametrize("other", ["a closure's", "getOrCreate", "getActiveSession"])
def test_a_query_of_another_session_is_refused(spark, tmp_path, options, other):
    def build(session):
        sessions = {
            "a closure's": lambda: spark,
            "getOrCreate": SparkSession.builder.getOrCreate,
            "getActiveSession": SparkSession.getActiveSession,
        }
        return counted(sessions[other]())

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    with pytest.raises(JobExecutionError, match="another session than the one it is given"):
        stream.await_termination(SECONDS)
    assert not (tmp_path / "chk/offsets").exists()


def test_the_session_of_build_is_the_active_one_while_it_is_called(spark, tmp_path, options):
    seen = []

    def build(session):
        active = session._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession()
        seen.append(active.get().equals(session._jsparkSession))
        return counted(session)

    with AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark) as stream:
        until(stream, lambda status: status.batches >= 1)
        stream.cancel()
    assert seen == [True]


def test_a_query_that_is_stopped_from_outside_has_failed(spark, tmp_path, options):
    stream = AdaptiveStream.start(counted, tmp_path / "chk", options=options, spark=spark)
    until(stream, lambda status: status.batches >= 1)
    stream._driver._run.query.stop()
    with pytest.raises(JobExecutionError, match="stopped from outside"):
        stream.await_termination(SECONDS)


def test_a_checkpoint_on_which_a_query_of_this_process_runs_is_refused(spark, tmp_path, options):
    place = str(tmp_path / "chk")
    query = counted(spark.newSession()).option("checkpointLocation", place).queryName("plain").start()
    try:
        with pytest.raises(UsageError, match="'plain', runs on the checkpoint"):
            AdaptiveStream.start(counted, place, options=options, spark=spark)
        assert query.isActive
    finally:
        query.stop()


def test_a_stop_that_spark_gives_up_is_waited_for(spark, tmp_path, options):
    inside, batches, over = threading.Event(), [], []

    def sink(frame, batch):
        batches.append(batch)
        frame.count()
        if batch == 1:
            inside.set()
            time.sleep(0.8)
        over.append(batch)

    def build(session):
        session.conf.set("spark.sql.streaming.stopTimeout", "100ms")
        return counted(session, sink)

    stream = AdaptiveStream.start(
        build, tmp_path / "chk", options={**options, AS + "max-delay-for-scale-trigger": "50 ms"}, spark=spark
    )
    assert inside.wait(SECONDS)
    stream.rescale(3)
    until(stream, lambda status: status.parallelism == 3 and status.state == "Executing")
    assert 1 in over
    stream.stop(SECONDS)
    (record,) = stream.history()
    assert record.end == "completed", record


def test_state_below_a_path_that_spark_would_not_find_is_not_rescaled(spark, tmp_path, options):
    with AdaptiveStream.start(counted, tmp_path / "a b#c", options=options, spark=spark) as stream:
        until(stream, lambda status: status.batches >= 1)
        with pytest.raises(UsageError, match=r"a blank, '#'.*rename"):
            stream.rescale(5)
        assert stream.status().state == "Executing"
        stream.cancel()


def test_a_build_that_hangs_is_told_and_does_not_keep_a_cancelled_stream(spark, tmp_path, options):
    calls, go = [], threading.Event()

    def build(session):
        calls.append(session)
        if len(calls) > 1:
            go.wait(SECONDS)
        return counted(session)

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    until(stream, lambda status: status.batches >= 1)
    stream.rescale(3)
    until(stream, lambda status: "'build'" in status.waits_for)
    threads = [thread for thread in threading.enumerate() if thread.name == "firesteel-build"]
    assert [thread.daemon for thread in threads] == [True]
    stream.cancel()
    assert stream.await_termination(SECONDS)
    assert not go.is_set()
    go.set()


def test_a_batch_that_fails_while_a_rescale_waits_for_it_takes_the_rescale_along(spark, tmp_path, options):
    inside, fail, totals = threading.Event(), threading.Event(), {}

    def sink(frame, batch):
        totals.update({row["k"]: row["count"] for row in frame.collect()})
        if batch >= 1 and not fail.is_set():
            inside.set()
            assert fail.wait(SECONDS)
            raise ValueError("once")

    stream = AdaptiveStream.start(
        lambda session: counted(session, sink),
        tmp_path / "chk",
        options={**options, AS + "scale-on-failed-checkpoints-count": 1},
        spark=spark,
    )
    assert inside.wait(SECONDS)
    stream.rescale(3)
    until(stream, lambda status: "checkpoint" in status.waits_for)
    fail.set()
    until(stream, lambda status: status.rescales >= 1 and status.state == "Executing")
    batches = stream.status().batches
    until(stream, lambda status: status.batches > batches)
    stream.stop(SECONDS)
    (record,) = stream.history()
    assert (record.before, record.granted, record.end, record.replayed_rows) == (8, 3, "completed", 10)
    assert len(set(totals.values())) == 1


def test_a_view_of_another_session_is_missed_with_what_would_help(spark, tmp_path, options):
    spark.range(3).createOrReplaceTempView("only_of_the_parent")

    def build(session):
        rows = session.readStream.format("rate").load()
        return rows.join(session.table("only_of_the_parent"), F.col("value") == F.col("id")).writeStream.format("noop")

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    with pytest.raises(JobExecutionError, match="'build' gets a session of its own"):
        stream.await_termination(SECONDS)


def test_a_cancel_breaks_off_a_replay(spark, tmp_path, options):
    begun = []

    def build(session):
        begun.append(session)

        @F.udf("long")
        def slowly(value):
            time.sleep(0.5 if value >= 40 else 0)
            return value % 5

        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
        counted = rows.groupBy(slowly("value").alias("k")).count()
        return counted.writeStream.outputMode("update").format("noop")

    patience = {AS + "max-delay-for-scale-trigger": "50 ms"}
    stream = AdaptiveStream.start(build, tmp_path / "chk", options={**options, **patience}, spark=spark)
    until(stream, lambda status: status.batches >= 1)
    stream.rescale(3)
    until(stream, lambda status: "'replay'" in status.waits_for and len(begun) == 3)
    stream.cancel()
    assert stream.await_termination(SECONDS)
    assert not (tmp_path / "chk/commits/1").exists()


def test_the_checkpoint_is_given_back_even_if_something_cannot_be_tidied_up(spark, tmp_path, options, caplog):
    for _ in range(2):
        stream = AdaptiveStream.start(counted, tmp_path / "chk", options=options, spark=spark)
        tidy = stream._driver._protocol.end

        def fail(tidy=tidy):
            tidy()
            raise OSError("no space left")

        stream._driver._protocol.end = fail
        until(stream, lambda status: status.batches >= 1)
        stream.cancel()
        assert stream.await_termination(SECONDS)
    assert "no space left" in caplog.text
