"""What must not pass in silence: another session, a stop from outside, a second query, a stop that Spark gives up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

import stream_sources_kit as kit
from firesteel.journal.file import read
from firesteel.report.fold import StreamFold
from firesteel.spark.streams import protocol
from firesteel.spark.streams.query import _path_refusal, writer_option
from firesteel.streaming import AdaptiveStream, JobExecutionError, UsageError
from stream_sources_kit import PATIENCE_SECONDS as SECONDS

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
        if time.monotonic() >= end:
            raise TimeoutError(f"gave up on {stream.status()}")
        assert not stream.await_termination(0.02), stream.status()


@pytest.mark.full
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


@pytest.mark.full
def test_a_query_that_is_stopped_from_outside_has_failed(spark, tmp_path, options):
    stream = AdaptiveStream.start(counted, tmp_path / "chk", options=options, spark=spark)
    until(stream, lambda status: status.batches >= 1)
    stream._driver._run.query.stop()
    with pytest.raises(JobExecutionError, match="stopped from outside"):
        stream.await_termination(SECONDS)


@pytest.mark.full
def test_a_checkpoint_on_which_a_query_of_this_process_runs_is_refused(spark, tmp_path, options):
    place = str(tmp_path / "chk")
    query = counted(spark.newSession()).option("checkpointLocation", place).queryName("plain").start()
    try:
        with pytest.raises(UsageError, match="'plain', runs on the checkpoint"):
            AdaptiveStream.start(counted, place, options=options, spark=spark)
        assert query.isActive
    finally:
        query.stop()


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("name", ["my work ü", "100%20 of #1? [a] {b}"])
def test_state_below_a_path_that_spark_escapes_is_rescaled(spark, tmp_path, options, name):
    counts, batches = {}, set()

    def sink(frame, batch):
        counts.update(map(tuple, frame.collect()))
        batches.add(batch)

    place = tmp_path / name / "chk"
    with AdaptiveStream.start(lambda session: counted(session, sink), place, options=options, spark=spark) as stream:
        until(stream, lambda status: status.batches >= 2)
        stream.rescale(5)
        until(stream, lambda status: status.parallelism == 5 and status.state == "Executing")
        before = stream.status().batches
        until(stream, lambda status: status.batches > before)
        stream.stop(SECONDS)
    (record,) = stream.history()
    assert record.end == "completed", record
    assert sum(counts.values()) == 10 * len(batches), "the state came along: no row is lost or counted twice"


@pytest.mark.full
def test_where_no_link_leads_to_such_a_path_the_stream_says_why_it_is_not_rescaled(spark, tmp_path):
    writer = counted(spark).option("checkpointLocation", str(tmp_path / "a b#c"))
    elsewhere = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://elsewhere:7077"), conf=spark.conf)
    assert "a blank, '#': stop the stream, rename" in _path_refusal(
        elsewhere, writer_option(writer, "checkpointLocation")
    )
    assert _path_refusal(spark, writer_option(writer, "checkpointLocation")) == ""


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_a_view_of_another_session_is_missed_with_what_would_help(spark, tmp_path, options):
    spark.range(3).createOrReplaceTempView("only_of_the_parent")

    def build(session):
        rows = session.readStream.format("rate").load()
        return rows.join(session.table("only_of_the_parent"), F.col("value") == F.col("id")).writeStream.format("noop")

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    with pytest.raises(JobExecutionError, match="'build' gets a session of its own"):
        stream.await_termination(SECONDS)


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_the_first_batch_that_tells_the_downtime_is_the_checkpoint_of_the_rescale(spark, tmp_path, options):
    """Of an old checkpoint nothing is known before that batch, and a batch that follows it would have to be waited for."""
    with AdaptiveStream.start(counted, tmp_path / "chk", options=options, spark=spark) as stream:
        until(stream, lambda status: status.batches >= 1)
    inside, go, seen = threading.Event(), threading.Event(), []

    def sink(frame, batch):
        frame.count()
        seen.append(batch)
        if len(seen) == 1:
            inside.set()
            assert go.wait(SECONDS)

    known = {**options, "firesteel.stream.max-downtime": "1 h", AS + "max-delay-for-scale-trigger": "1 h"}
    stream = AdaptiveStream.start(lambda session: counted(session, sink), tmp_path / "chk", options=known, spark=spark)
    assert inside.wait(SECONDS)
    stream.update_requirements(lower=3, upper=3)
    until(stream, lambda status: "is not known before a batch" in status.waits_for)
    go.set()
    until(stream, lambda status: status.rescales >= 1)
    stream.stop(SECONDS)
    record = stream.history()[-1]
    assert (record.before, record.granted, record.end, record.replayed_rows) == (8, 3, "completed", 0)
    assert (record.checkpoint, record.trigger) == (seen[0], f"checkpoint {seen[0]}")


class Deaf:
    """A listener that comes too late for every word: Spark's bus makes no promise."""

    def __init__(self, *_):
        pass

    def close(self):
        pass


@pytest.mark.full
@pytest.mark.parametrize("end", ["stop", "rescale", "replay"])
def test_every_committed_batch_is_counted_though_the_listener_was_late(spark, tmp_path, options, monkeypatch, end):
    """What history says of a stream that was stopped is what its sink was given: the last batches too."""
    monkeypatch.setattr(protocol, "ProgressListener", Deaf)
    given, inside, go = {}, threading.Event(), threading.Event()

    def sink(frame, batch):
        given[batch] = sum(row["count"] for row in frame.collect())
        if batch == 3 and not go.is_set():
            inside.set()
            assert go.wait(SECONDS)

    def build(session):
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        return rows.groupBy("value").count().writeStream.outputMode("update").foreachBatch(sink)

    delay = {"replay": "50 ms", "rescale": "10 min"}.get(end)
    patience = {} if delay is None else {AS + "max-delay-for-scale-trigger": delay}
    stream = AdaptiveStream.start(build, tmp_path / "chk", options={**options, **patience}, spark=spark)
    assert inside.wait(SECONDS)
    if end == "stop":
        stopping = threading.Thread(target=stream.stop, args=(SECONDS,))
        stopping.start()
        kit.until(lambda: stream.status().state == "StopWithSavepoint", "the stop")
        go.set()
        stopping.join(SECONDS)
    else:
        stream.rescale(3)
        kit.until(
            lambda: stream.status().state == "Restarting" if end == "replay" else "3" in stream.status().waits_for,
            "the wish",
        )
        go.set()
        until(stream, lambda status: status.parallelism == 3 and status.state == "Executing" and max(given) > 5)
        stream.stop(SECONDS)
    committed = {int(path.name) for path in (tmp_path / "chk/commits").iterdir() if path.name.isdigit()}
    size = StreamFold(read(stream.journal)).totals
    assert set(given) <= committed
    assert (size.count, size.rows) == (len(given), 10 * len(given))
    assert set(given.values()) == {10}
