"""A stream's data plane on a real Spark: stopped at its commit barrier, repartitioned, started again, under a scripted scheduler."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyspark.sql.functions as F
import pytest
from msgspec import structs

from firesteel.journal.file import Instruments
from firesteel.scheduler.streaming.commands import (
    Action,
    Continue,
    EndStream,
    Rescale,
    SetCommitBarrier,
    StartQuery,
    StopQuery,
)
from firesteel.scheduler.streaming.events import (
    BatchCommitted,
    BatchStarted,
    QueryFailed,
    QueryIdle,
    QueryStarted,
    QueryStopped,
    RescaleFailed,
    RescaleStep,
    RescaleStepped,
    StreamSubmitted,
)
from firesteel.spark.streams.driver import StreamDriver
from stream_sources_kit import PATIENCE_SECONDS as SECONDS

STEPS = [step for step in RescaleStep if step is not RescaleStep.BUILD]


class Scripted:
    """Rescales to each of ``targets`` at a commit barrier, and stops at one."""

    def __init__(self, first, targets):
        self.first = first
        self.targets = list(targets)
        self.events = []
        self.run = 1

    def status(self, at=None):
        raise AssertionError("nobody asks")

    def handle(self, event):
        self.events.append(event)
        match event:
            case StreamSubmitted():
                return [StartQuery(run=1, parallelism=self.first)]
            case BatchCommitted(at_barrier=False):
                return [SetCommitBarrier(run=self.run, on=True)]
            case BatchCommitted(at_barrier=True, rows=0):
                return [Continue(run=self.run, batch=event.batch)]
            case BatchCommitted(at_barrier=True) | QueryIdle(at_barrier=True) if self.targets:
                self.run += 1
                target = self.targets.pop(0)
                return [Rescale(rescale=self.run, run=self.run, parallelism=target, action=Action.REPARTITION)]
            case BatchCommitted(at_barrier=True) | QueryIdle(at_barrier=True):
                return [StopQuery(run=self.run, savepoint=True)]
            case QueryStopped():
                return [EndStream(failed=False)]
            case QueryFailed():
                return [EndStream(failed=True, cause=event.cause)]
        return []

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def numbers(folder: Path):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def run(spark, build, checkpoint, scheduler):
    driver = StreamDriver(spark, build, str(checkpoint), scheduler, Instruments(), name="counted", offers=None)
    driver.start()
    assert driver.join(SECONDS), scheduler.events
    return driver.end


@pytest.mark.full
def test_a_running_query_goes_from_2_to_8_to_3_partitions_and_loses_and_doubles_nothing(spark, tmp_path):
    totals, batches = {}, []

    def sink(frame, batch):
        batches.append(batch)
        totals.update({row["k"]: row["count"] for row in frame.collect()})

    def build(session):
        rows = session.readStream.format("rate").option("rowsPerSecond", 500).load()
        counted = rows.groupBy((F.col("value") % 10).alias("k")).count()
        return counted.writeStream.outputMode("update").foreachBatch(sink)

    scheduler = Scripted(2, [8, 3])
    assert not run(spark, build, tmp_path / "c", scheduler).failed
    starts = scheduler.of(QueryStarted)
    assert [start.plan.parallelism for start in starts] == [2, 8, 3]
    assert all(
        start.plan.has_commit_barrier and not start.plan.refusal and start.replayed_rows == 0 for start in starts
    )
    steps = [RescaleStep.COMMIT_BARRIER, RescaleStep.STOP, RescaleStep.REPARTITION, RescaleStep.START]
    assert [event.step for event in scheduler.of(RescaleStepped)] == steps * 2
    assert numbers(tmp_path / "c/offsets") == numbers(tmp_path / "c/commits")
    assert scheduler.of(QueryStopped)[0].committed
    assert sorted(batches) == sorted(set(batches))
    told = [event.batch for event in scheduler.of(BatchCommitted)]
    assert told == sorted(set(told)) == batches
    assert sum(totals.values()) == sum(event.rows for event in scheduler.of(BatchCommitted))
    assert set(totals) == set(range(10))
    assert max(totals.values()) - min(totals.values()) <= 1
    left = {
        t.name
        for t in threading.enumerate()
        if t.name.startswith(("firesteel-commit-barrier", "firesteel-stream", "firesteel-query"))
    }
    assert not left


class Impatient(Scripted):
    """Rescales in the middle of the second batch, and stops after a commit of what runs then."""

    def handle(self, event):
        if isinstance(event, BatchStarted) and event.batch >= 1 and self.run == 1:
            self.events.append(event)
            self.run = 2
            return [Rescale(rescale=1, run=2, parallelism=3, action=Action.REPARTITION, replay=True)]
        if isinstance(event, BatchCommitted) and event.run == 1:
            self.events.append(event)
            return []
        return super().handle(event)


@pytest.mark.full
def test_a_rescale_that_does_not_wait_replays_the_batch_and_counts_its_rows(spark, tmp_path):
    totals = {}

    def build(session):
        @F.udf("long")
        def slowly(value):
            time.sleep(0.05)
            return value % 5

        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
        counted = rows.groupBy(slowly("value").alias("k")).count().writeStream.outputMode("update")
        return counted.foreachBatch(lambda frame, _: totals.update({row["k"]: row["count"] for row in frame.collect()}))

    scheduler = Impatient(2, [])
    assert not run(spark, build, tmp_path / "c", scheduler).failed
    assert [event.step for event in scheduler.of(RescaleStepped)] == [
        step for step in RescaleStep if step is not RescaleStep.BUILD
    ]
    again = scheduler.of(QueryStarted)[1]
    assert (again.plan.parallelism, again.replayed_rows, again.recovered) == (3, 40, "")
    assert numbers(tmp_path / "c/offsets") == numbers(tmp_path / "c/commits")
    assert len(set(totals.values())) == 1
    assert sum(totals.values()) % 40 == 0


class Patient(Impatient):
    """Waits for a tenth of a second for a batch that takes two."""

    def handle(self, event):
        return [
            structs.replace(command, replay=False, within=0.1) if isinstance(command, Rescale) else command
            for command in super().handle(event)
        ]


@pytest.mark.full
def test_a_rescale_whose_patience_ends_replays_the_batch(spark, tmp_path):
    def build(session):
        @F.udf("long")
        def slowly(value):
            time.sleep(0.05)
            return value % 5

        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
        counted = rows.groupBy(slowly("value").alias("k")).count().writeStream.outputMode("update")
        return counted.format("noop")

    scheduler = Patient(2, [])
    assert not run(spark, build, tmp_path / "c", scheduler).failed
    assert [event.step for event in scheduler.of(RescaleStepped)] == STEPS
    again = scheduler.of(QueryStarted)[1]
    assert (again.plan.parallelism, again.replayed_rows) == (3, 40)
    assert numbers(tmp_path / "c/offsets") == numbers(tmp_path / "c/commits")


@pytest.mark.full
def test_a_rescale_that_fails_starts_the_query_as_it_was(spark, tmp_path):
    def build(session):
        return session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().writeStream.format("noop")

    scheduler = Scripted(2, [4])  # stateless: there is nothing to repartition
    assert not run(spark, build, tmp_path / "c", scheduler).failed
    (failed,) = scheduler.of(RescaleFailed)
    assert "no stateful operator" in failed.cause
    assert (failed.parallelism, failed.final) == (2, False)
    assert [(start.run, start.plan.parallelism) for start in scheduler.of(QueryStarted)] == [(1, 2), (2, 2)]
    assert [event.run for event in scheduler.of(BatchCommitted)][-1] == 2


def test_a_query_that_fails_tells_its_users_frames(spark, tmp_path):
    def build(session):
        def broken(frame, batch):
            raise ValueError("my sink is broken")

        return session.readStream.format("rate").load().writeStream.foreachBatch(broken)

    end = run(spark, build, tmp_path / "c", Scripted(2, []))
    assert end.failed
    assert end.cause.startswith("The function of foreachBatch raised ValueError: my sink is broken.")
    assert "test_stream_driver.py" in end.cause
    assert "py4j" not in end.cause


@pytest.mark.full
def test_what_build_must_not_give_back_is_said(spark, tmp_path):
    scheduler = Scripted(2, [])
    end = run(spark, lambda session: session.readStream.format("rate").load(), tmp_path / "c", scheduler)
    assert end.failed
    assert "a DataStreamWriter is needed" in end.cause
    assert scheduler.of(QueryFailed)[0].final
    assert not (tmp_path / "c").exists()
