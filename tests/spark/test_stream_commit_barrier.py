"""The commit barrier on a real query: at each checkpoint nothing is pending, and the lock is free again whatever happens."""

from __future__ import annotations

import queue
import threading
import time

import pyspark.sql.functions as F
import pytest

from firesteel.spark.streams import commit_barrier as barrier_module
from firesteel.spark.streams.checkpoint_files import CheckpointFiles
from firesteel.spark.streams.commit_barrier import AtBarrier, CommitBarrier, EngineCommitBarrier, commit_barrier_of
from stream_sources_kit import PATIENCE_SECONDS as SECONDS


@pytest.fixture
def started(spark, tmp_path):
    """Starts a query of many small batches, and its commit barrier; what that reports is in ``reports``."""
    queries = []

    def start(sink=lambda frame, batch: frame.count(), trigger=None):
        session = spark.newSession()
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "chk"))
        if trigger is not None:
            writer = writer.trigger(**trigger)
        query = writer.start()
        reports = queue.SimpleQueue()
        barrier = commit_barrier_of(7, query, spark.sparkContext, query.stop, reports.put)
        queries.append((query, barrier))
        return query, barrier, reports

    yield start
    for query, barrier in queries:
        barrier.close()
        query.stop()


@pytest.fixture
def files(spark, tmp_path):
    return CheckpointFiles(spark, str(tmp_path / "chk"))


def test_each_checkpoint_waits_for_an_answer_and_nothing_is_pending_there(started, files):
    query, barrier, reports = started()
    assert isinstance(barrier, EngineCommitBarrier)
    barrier.arm(True)
    seen = []
    for _ in range(5):
        waiting = reports.get(timeout=SECONDS)
        assert isinstance(waiting, AtBarrier)
        state = files.read()
        assert (state.planned, state.committed) == (waiting.found.batch, waiting.found.batch)
        progress = waiting.found.of_batch()
        seen.append((waiting.run, waiting.found.batch, None if progress is None else progress.rows))
        barrier.go_on(waiting.found.batch)
    first = seen[0][1]
    assert [batch for _, batch, _ in seen] == list(range(first, first + 5))
    assert {rows for _, _, rows in seen[1:]} == {10}
    barrier.arm(False)
    before = query.lastProgress.batchId
    query_goes_on(query, before)


def query_goes_on(query, batch):
    end = time.monotonic() + SECONDS
    while query.lastProgress.batchId <= batch + 1:
        if time.monotonic() >= end:
            raise TimeoutError(f"gave up on a batch after {batch}")
        time.sleep(0.01)


@pytest.mark.full
def test_a_query_that_is_stopped_at_its_barrier_has_begun_nothing(started, files):
    for _ in range(3):
        query, barrier, reports = started()
        barrier.arm(True)
        waiting = reports.get(timeout=SECONDS)
        begun = []
        assert barrier.stop(lambda begun=begun: begun.append(True))
        assert (begun, query.isActive, query.exception()) == ([True], False, None)
        assert files.read().planned == files.read().committed == waiting.found.batch


@pytest.mark.full
def test_a_query_is_stopped_at_its_next_checkpoint_without_being_armed(started, files):
    runs = threading.Event()
    query, barrier, _ = started(lambda frame, batch: runs.set() or time.sleep(0.3))
    assert runs.wait(SECONDS)
    assert barrier.stop(lambda: None)
    assert not query.isActive
    assert files.read().pending is None
    assert files.read().committed >= 0


@pytest.mark.full
def test_a_query_in_its_triggers_gap_is_at_its_barrier_at_once(started, files):
    done = threading.Event()
    _, barrier, reports = started(lambda frame, batch: done.set(), {"processingTime": "1 hour"})
    assert done.wait(SECONDS)
    barrier.arm(True)
    assert reports.get(timeout=SECONDS).found.batch == 0
    assert barrier.stop(lambda: None)
    assert files.read().pending is None


@pytest.mark.full
def test_a_query_that_fails_while_armed_ends_as_if_there_were_no_barrier(started):
    failing = threading.Event()

    def sink(frame, batch):
        if failing.is_set():
            raise ValueError("broken")

    query, barrier, reports = started(sink)
    barrier.arm(True)
    waiting = reports.get(timeout=SECONDS)
    failing.set()
    barrier.go_on(waiting.found.batch)
    with pytest.raises(Exception, match="broken"):
        query.awaitTermination(SECONDS)
    assert not barrier.stop(lambda: None)
    assert query.exception() is not None


@pytest.mark.full
def test_without_an_answer_the_query_goes_on(started, monkeypatch, caplog):
    monkeypatch.setattr(barrier_module, "ANSWER_SECONDS", 0.2)
    _, barrier, reports = started()
    barrier.arm(True)
    first = reports.get(timeout=SECONDS).found.batch
    assert reports.get(timeout=SECONDS).found.batch == first + 1
    assert "got no answer" in caplog.text


@pytest.mark.full
def test_a_barrier_that_is_closed_lets_go(started):
    query, barrier, reports = started()
    barrier.arm(True)
    batch = reports.get(timeout=SECONDS).found.batch
    barrier.close()
    query_goes_on(query, batch)


@pytest.mark.full
def test_a_query_without_micro_batches_has_no_barrier_and_is_just_stopped(spark, tmp_path):
    rows = spark.newSession().readStream.format("rate").option("rowsPerSecond", 1).load()
    query = (
        rows.writeStream.format("console")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(continuous="1 second")
    ).start()
    barrier = commit_barrier_of(1, query, spark.sparkContext, query.stop, lambda report: None)
    assert type(barrier) is CommitBarrier
    assert not barrier.stop(lambda: None)
    assert not query.isActive


@pytest.mark.full
def test_the_batch_that_a_watermark_makes_due_comes_before_the_checkpoint_that_is_told(spark, tmp_path):
    folder, closed, seen = tmp_path / "in", [], threading.Event()
    folder.mkdir()

    def put(name, text):
        (tmp_path / name).write_text(f'{{"t": "{text}"}}')
        (tmp_path / name).rename(folder / name)

    def sink(frame, batch):
        closed.extend(row["count"] for row in frame.collect())
        seen.set()

    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", 2)
    rows = session.readStream.schema("t timestamp").json(str(folder)).withWatermark("t", "1 second")
    writer = rows.groupBy(F.window("t", "10 seconds")).count().writeStream.outputMode("append").foreachBatch(sink)
    put("0.json", "2020-01-01T00:00:01")
    query = writer.option("checkpointLocation", str(tmp_path / "chk")).start()
    reports = queue.SimpleQueue()
    barrier = commit_barrier_of(7, query, spark.sparkContext, query.stop, reports.put)
    try:
        query.processAllAvailable()
        assert closed == []
        barrier.arm(True)
        barrier.go_on(reports.get(timeout=SECONDS).found.batch)
        put("1.json", "2020-01-01T00:01:00")
        before = CheckpointFiles(spark, str(tmp_path / "chk")).read().committed
        waiting = reports.get(timeout=SECONDS).found.batch
        assert (waiting, closed) == (before + 2, [1])
        assert barrier.stop(lambda: None)
    finally:
        barrier.close()
        query.stop()
