"""AdaptiveStream as a user has it: on a real Spark, with the real scheduler."""

from __future__ import annotations

import json
import threading
import time

import pyspark.sql.functions as F
import pytest

from firesteel.streaming import AdaptiveStream, JobExecutionError, ResourceRequirements, UsageError
from stream_sources_kit import PATIENCE_SECONDS as SECONDS

AS = "jobmanager.adaptive-scheduler."


@pytest.fixture
def options(tmp_path):
    return {
        AS + "executing.cooldown-after-rescaling": 0,
        "restart-strategy.fixed-delay.delay": "10 ms",
        "restart-strategy.fixed-delay.attempts": 1,
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
    }


class Counted:
    """Counts by ``value % 10``; knows what its sink got."""

    def __init__(self, rows=400):
        self.rows = rows
        self.totals = {}
        self.batches = []
        self.active = []
        """Of each session that it was built for: is it the active one then?"""
        self.came = threading.Condition()

    def sink(self, frame, batch):
        rows = {row["k"]: row["count"] for row in frame.collect()}
        with self.came:
            self.totals.update(rows)
            self.batches.append(batch)
            self.came.notify_all()

    def __call__(self, session):
        active = session._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession()
        self.active.append(active.get().equals(session._jsparkSession))
        rows = session.readStream.format("rate").option("rowsPerSecond", self.rows).load()
        counted = rows.groupBy((F.col("value") % 10).alias("k")).count()
        return counted.writeStream.outputMode("update").foreachBatch(self.sink)

    def wait_for(self, batches):
        with self.came:
            assert self.came.wait_for(lambda: len(self.batches) >= batches, SECONDS), self.batches


def until(stream, said):
    end = time.monotonic() + SECONDS
    while not said(stream.status()):
        if time.monotonic() >= end:
            raise TimeoutError(f"gave up on {stream.status()}")
        assert not stream.await_termination(0.02), stream.status()


def test_a_stream_is_rescaled_by_its_users_word_and_goes_on_from_its_checkpoint(spark, tmp_path, options):
    query = Counted()
    with AdaptiveStream.start(
        query, tmp_path / "chk", ResourceRequirements(1, 2), options=options, spark=spark
    ) as stream:
        query.wait_for(2)
        for n in (4, 3):
            done = len(stream.history())
            stream.rescale(n)
            until(stream, lambda status, done=done: status.rescales > done)
            assert stream.status().parallelism == n
    records = stream.history()
    assert [(r.before, r.requested, r.granted, r.end, r.replayed_rows) for r in records] == [
        (2, 4, 4, "completed", 0),
        (4, 3, 3, "completed", 0),
    ]
    assert all(record.downtime and record.downtime < SECONDS for record in records)
    assert len(query.active) == 3 and all(query.active)
    assert stream.status().state == "Finished"
    assert ": Finished" in stream._repr_html_()
    assert sorted(set(query.batches)) == sorted(query.batches)
    assert max(query.totals.values()) - min(query.totals.values()) <= 1
    assert "2 -> 4 partitions" in stream.explain()

    before = sum(query.totals.values())
    again = Counted()
    with AdaptiveStream.start(again, tmp_path / "chk", options=options, spark=spark) as stream:
        again.wait_for(1)
    assert stream.status().parallelism == 3
    assert min(again.batches) == max(query.batches) + 1
    assert sum(again.totals.values()) > before


@pytest.mark.full
def test_two_streams_on_one_checkpoint_are_refused(spark, tmp_path, options):
    with AdaptiveStream.start(Counted(), tmp_path / "chk", options=options, spark=spark, name="first") as stream:
        with pytest.raises(UsageError, match="'first'"):
            AdaptiveStream.start(Counted(), tmp_path / "chk", options=options, spark=spark)
        stream.cancel()


@pytest.mark.full
def test_a_function_that_raises_fails_the_stream_with_its_frames_when_its_restarts_are_used_up(
    spark, tmp_path, options
):
    calls = []

    def build(session):
        calls.append(session)

        @F.udf("long")
        def share(value):
            return 1 // (value - value)

        return session.readStream.format("rate").load().select(share("value")).writeStream.format("noop")

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    with pytest.raises(JobExecutionError, match="raised ZeroDivisionError") as failed:
        stream.await_termination(SECONDS)
    assert "in share" in (failed.value.cause_trace or "")
    assert "pyspark" not in (failed.value.cause_trace or "")
    assert len(calls) == 2
    assert len(set(map(id, calls))) == 2
    with pytest.raises(JobExecutionError):
        stream.stop()


@pytest.mark.full
def test_a_stream_whose_source_ends_finishes_by_itself(spark, tmp_path, options):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.json").write_text(json.dumps({"k": number}))
    seen = []

    def build(session):
        rows = session.readStream.schema("k long").option("maxFilesPerTrigger", 1).json(str(folder))
        counted = rows.groupBy("k").count().writeStream.outputMode("update")
        return counted.foreachBatch(lambda frame, batch: seen.append(frame.count())).trigger(availableNow=True)

    stream = AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark)
    assert stream.await_termination(SECONDS)
    assert (stream.status().state, stream.status().batches, seen) == ("Finished", 3, [1, 1, 1])


@pytest.mark.full
def test_an_idle_query_is_rescaled_at_once(spark, tmp_path, options):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"k": 1}))

    def build(session):
        counted = session.readStream.schema("k long").json(str(folder)).groupBy("k").count()
        return counted.writeStream.outputMode("update").format("noop").trigger(processingTime="1 hour")

    with AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark) as stream:
        until(stream, lambda status: status.batches == 1)
        stream.rescale(3)
        until(stream, lambda status: status.rescales == 1 or status.parallelism == 3)


@pytest.mark.full
def test_what_cannot_be_rescaled_is_refused_with_what_would_help(spark, tmp_path, options):
    def build(session):
        rows = session.readStream.format("rate").load().groupBy().count()
        return rows.writeStream.outputMode("complete").format("noop")

    with AdaptiveStream.start(build, tmp_path / "chk", options=options, spark=spark) as stream:
        until(stream, lambda status: status.state == "Executing")
        with pytest.raises(UsageError, match="group by a key"):
            stream.rescale(4)
        for number in (0, 2.5, "4", True, 10**9):
            with pytest.raises(UsageError, match=r"cannot have .* partitions.*whole number from 1 to 32,768"):
                stream.rescale(number)
        stream.cancel()
