"""A query is stopped at its commit barrier, whatever it reads, writes and waits for: nothing twice, nothing left half done."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from firesteel.spark.streams.checkpoint_files import CheckpointFiles
from firesteel.spark.streams.commit_barrier import commit_barrier_of
from firesteel.spark.streams.query import inspect
from stream_sources_kit import register_sources, until, write_file

pytestmark = pytest.mark.spark

GAP = {"processingTime": "100 milliseconds"}
BACK_TO_BACK = {"processingTime": "0 seconds"}


def file_source(session, folder):
    for number in range(60):
        write_file(folder / "in", number, [{"value": number * 10 + n} for n in range(10)])
    reader = session.readStream.format("json").schema("value long").option("maxFilesPerTrigger", 1)
    return reader.load(str(folder / "in"))


def rate_source(session, folder):
    return session.readStream.format("rate").option("rowsPerSecond", 500).load().select("value")


def counted_source(session, folder):
    return session.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load().select("value")


def python_source(session, folder):
    return register_sources(session).readStream.format("log").load()


def slow_python_source(session, folder):
    return register_sources(session).readStream.format("log").option("slow", "0.3").load()


def simple_python_source(session, folder):
    return register_sources(session).readStream.format("simple_log").load()


class ForeachBatch:
    def __init__(self, folder):
        self.batches = []

    def __call__(self, writer):
        return writer.foreachBatch(self._take)

    def _take(self, rows, batch):
        self.batches.append((batch, [row[0] for row in rows.collect()]))

    def values(self, session):
        assert len({batch for batch, _ in self.batches}) == len(self.batches), "a batch came twice"
        return [value for _, values in self.batches for value in values]


class Foreach:
    def __init__(self, folder):
        self._path = folder / "rows"

    def __call__(self, writer):
        path = str(self._path)

        def take(row):
            out = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            os.write(out, f"{row[0]}\n".encode())
            os.close(out)

        return writer.foreach(take)

    def values(self, session):
        return [int(line) for line in self._path.read_text().splitlines()]


class Parquet:
    def __init__(self, folder):
        self._path = str(folder / "out")

    def __call__(self, writer):
        return writer.format("parquet").option("path", self._path)

    def values(self, session):
        return [row[0] for row in session.read.parquet(self._path).collect()]


class PythonSink:
    def __init__(self, folder):
        self._path = folder / "commits"

    def __call__(self, writer):
        return writer.format("log").option("path", str(self._path))

    def values(self, session):
        commits = [json.loads(line) for line in self._path.read_text().splitlines()]
        assert len({batch for batch, _ in commits}) == len(commits), "a batch was committed twice, or one was aborted"
        return [value for _, values in commits for value in values]


CASES = [
    (file_source, ForeachBatch, BACK_TO_BACK),
    (file_source, Parquet, GAP),
    (rate_source, Foreach, BACK_TO_BACK),
    (rate_source, Parquet, GAP),
    (counted_source, Foreach, GAP),
    (counted_source, Parquet, BACK_TO_BACK),
    (python_source, PythonSink, BACK_TO_BACK),
    (python_source, ForeachBatch, GAP),
    (slow_python_source, ForeachBatch, BACK_TO_BACK),
    (simple_python_source, PythonSink, GAP),
]


def told(case):
    return case.__name__ if callable(case) else case["processingTime"].replace(" ", "_")


def stop_at_barrier(query, spark):
    barrier = commit_barrier_of(1, query, spark.sparkContext, query.stop, lambda report: None)
    assert barrier.is_available
    began = threading.Event()
    clean = barrier.stop(began.set)
    barrier.close()
    assert clean
    assert began.is_set()
    assert not query.isActive
    assert query.exception() is None


def has_rows(progress, committed):
    """Of a batch after that one; a trigger that finds nothing tells the number of the batch that will come."""
    return progress is not None and progress["batchId"] > committed and progress["numInputRows"] > 0


@pytest.mark.full
@pytest.mark.parametrize(("source", "sink", "trigger"), CASES, ids=told)
def test_a_query_is_stopped_at_its_checkpoint(spark, tmp_path, source, sink, trigger):
    checkpoint, target = str(tmp_path / "chk"), sink(tmp_path)
    committed = -1
    for run in range(3):
        session = spark.newSession()
        writer = target(source(session, tmp_path).writeStream).trigger(**trigger)
        query = writer.option("checkpointLocation", checkpoint).start()
        until(lambda q=query, c=committed: has_rows(q.lastProgress, c), "a batch")
        time.sleep(0.03 * run)  # somewhere in what follows
        stop_at_barrier(query, spark)
        state = CheckpointFiles(spark, checkpoint).read()
        assert state.pending is None, "a batch was begun"
        committed = state.committed
    values = sorted(target.values(spark))
    assert values == list(range(len(values))), "a row is missing, or came twice"


@pytest.mark.full
def test_a_query_that_wakes_up_at_its_barrier_goes_on_to_its_next_checkpoint(spark, tmp_path):
    """Many barriers for a query that sleeps for a moment between its batches: some begin just as it wakes up."""
    checkpoint = str(tmp_path / "chk")
    query = None
    for _ in range(10):
        source = counted_source(spark.newSession(), tmp_path)
        writer = source.writeStream.format("noop").trigger(processingTime="60 milliseconds")
        query = writer.option("checkpointLocation", checkpoint).start()
        until(lambda q=query: q.lastProgress, "a batch")
        stop_at_barrier(query, spark)
        assert CheckpointFiles(spark, checkpoint).read().pending is None


def test_what_cannot_be_started_again_is_not_rescaled(spark):
    session = spark.newSession()
    socket = session.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
    rate = session.readStream.format("rate").load()
    assert "A socket cannot be read again" in inspect(session, socket.writeStream.format("noop")).refusal
    assert "only in complete mode" in inspect(session, rate.writeStream.format("memory").queryName("rows")).refusal
    assert inspect(session, rate.writeStream.format("noop")).refusal == ""
