"""Checkpoints of real queries, read, repartitioned and taken back; queries, looked at before they start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time

import pytest

from firesteel.errors import UsageError
from firesteel.spark.streams.checkpoint_files import PROVIDER, STATE_FORMAT, CheckpointFiles
from firesteel.spark.streams.protocol import describe
from firesteel.spark.streams.query import STREAM_SETTINGS, inspect
from firesteel.spark.streams.repartition import (
    RepartitionError,
    cancel_repartition,
    recover,
    repartition_state,
    replay_pending,
)

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
SCHEMA = "k long, v long, t timestamp"


class Counting:
    """A count of rows by key over a folder of files; ``counts`` is what the sink was told last of each key."""

    def __init__(self, spark, folder, settings=None):
        self.spark, self.folder = spark, folder
        self.checkpoint = str(folder / "checkpoint")
        self.source = folder / "source"
        self.settings = {**STREAM_SETTINGS, **(settings or {})}
        self.counts, self.batches, self.fails = {}, [], False
        self.source.mkdir(parents=True)
        self.fed = 0

    def feed(self, rows=60, width=0):
        self.fed += 1
        lines = (json.dumps({"k": i % 17, "v": i, "w": os.urandom(width).hex()}) for i in range(rows))
        (self.source / f"{self.fed}.json").write_text("\n".join(lines))

    def session(self, partitions=2):
        session = self.spark.newSession()
        for key, value in {**self.settings, "spark.sql.shuffle.partitions": str(partitions)}.items():
            session.conf.set(key, value)
        return session

    def rows(self, session):
        return session.readStream.format("json").schema("k long, v long, w string").load(str(self.source))

    def frame(self, session):
        return self.rows(session).groupBy("k").count()

    def writer(self, partitions=2):
        return self.frame(self.session(partitions)).writeStream.outputMode("update").foreachBatch(self._sink)

    def _sink(self, frame, batch):
        if self.fails:
            raise ValueError("no sink today")
        self.batches.append((batch, frame.rdd.getNumPartitions()))
        self.counts |= {row[0]: row[-1] for row in frame.collect()}

    def run(self, partitions=2):
        """Feeds a file and runs until it is read."""
        self.feed()
        query = self.writer(partitions).option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def state(self):
        return CheckpointFiles(self.spark, self.checkpoint).read()

    def is_right(self):
        return sum(self.counts.values()) == 60 * self.fed and len(self.counts) == 17

    def block(self, partition):
        """A file where a partition's state is to go: writing there fails."""
        path = self.folder / "checkpoint" / "state" / "0" / str(partition)
        shutil.rmtree(path, ignore_errors=True)
        path.write_text("not a directory")
        return path


@pytest.fixture
def counting(spark, tmp_path):
    spark.sparkContext.setLogLevel("OFF")
    yield Counting(spark, tmp_path)
    spark.sparkContext.setLogLevel("WARN")


def test_a_checkpoint_says_what_was_committed_and_what_hangs_in_the_air(counting):
    assert counting.state().planned == -1
    assert counting.state().parallelism is None
    assert recover(counting.spark, counting.checkpoint).sentence == ""
    counting.run()
    state = counting.state()
    assert (state.planned, state.committed, state.parallelism, state.pending) == (0, 0, 2, None)
    assert [(o.name, o.stores, o.partitions) for o in state.operators] == [("stateStoreSave", ("default",), 2)]

    counting.fails = True
    with pytest.raises(Exception, match="no sink today"):
        counting.run()
    state = counting.state()
    assert (state.planned, state.committed, state.pending, state.unfinished) == (1, 0, 1, None)
    with pytest.raises(RepartitionError, match="batch 1 was not committed"):
        repartition_state(counting.spark, counting.checkpoint, 5)
    counting.fails = False
    counting.feed()  # what came later is not part of the replay
    assert recover(counting.spark, counting.checkpoint).sentence.startswith("Batch 1 was begun before")
    replayed = replay_pending(counting.writer(), counting.spark, counting.checkpoint)
    assert (replayed.batch, replayed.rows) == (1, 60)
    assert repartition_state(counting.spark, counting.checkpoint, 5) == 2
    assert counting.state().parallelism == 5
    counting.run()
    assert counting.is_right()
    assert counting.batches[-1] == (3, 5)


@pytest.mark.full
@pytest.mark.parametrize(
    "settings", [{}, {CHANGELOG: "true"}, {CHANGELOG: "true", STATE_FORMAT: "2"}], ids=["snapshots", "changelog", "v2"]
)
def test_a_repartition_that_fails_is_taken_back(spark, tmp_path, settings):
    counting = Counting(spark, tmp_path, settings)
    counting.run()
    in_the_way = counting.block(partition=3)  # while others are still being written
    with pytest.raises(RepartitionError, match="could not be rewritten to 8 partitions") as caught:
        repartition_state(spark, counting.checkpoint, 8)
    assert not caught.value.unfinished
    assert (counting.state().planned, counting.state().parallelism) == (0, 2)
    version = [p for p in (tmp_path / "checkpoint" / "state").rglob("2[._]*") if p.is_file()]
    assert version == []
    in_the_way.unlink()
    counting.run()
    counting.run()  # loads the version whose number the failed attempt had
    repartition_state(spark, counting.checkpoint, 8)
    assert counting.state().parallelism == 8
    counting.run()
    assert counting.is_right()


@pytest.mark.full
def test_a_repartition_that_is_cancelled_is_taken_back(counting):
    counting.run()
    before = set((counting.folder / "checkpoint" / "state").rglob("*.zip"))
    caught = []

    def repartition():
        with pytest.raises(RepartitionError) as error:
            repartition_state(counting.spark, counting.checkpoint, 200)
        caught.append(error.value)

    thread = threading.Thread(target=repartition)
    thread.start()
    while not list((counting.folder / "checkpoint" / "state" / "0").glob("*/2.zip")):
        assert thread.is_alive()
        time.sleep(0.01)
    cancel_repartition(counting.spark, counting.checkpoint)
    thread.join()
    assert "it was cancelled" in str(caught[0])
    assert counting.state().planned == 0
    assert set((counting.folder / "checkpoint" / "state").rglob("*.zip")) == before
    counting.run()
    assert counting.is_right()


@pytest.mark.full
def test_a_full_disk_in_a_repartition(spark, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no small disk can be made here: {made.stderr.strip()}")
    try:
        counting = Counting(spark, disk)
        counting.frame = lambda session: counting.rows(session).dropDuplicates(["w"]).select("k", "v")
        counting.feed(rows=4000, width=200)
        counting.run()
        usage = shutil.disk_usage(disk)
        (disk / "filler").write_bytes(bytes(usage.free - 300_000))
        with pytest.raises(RepartitionError, match="the disk is full") as caught:
            repartition_state(spark, counting.checkpoint, 6)
        assert not caught.value.unfinished
        assert "Make room" in str(caught.value)
        assert counting.state().pending is None
        (disk / "filler").unlink()
        counting.run()
        repartition_state(spark, counting.checkpoint, 6)
        assert counting.state().parallelism == 6
        rows = spark.read.format("statestore").load(counting.checkpoint).count()
        assert rows == 4001  # as many as there were, and the one of all files without a 'w'
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.full
def test_what_cannot_be_repartitioned_is_said_before_anything_is_touched(counting):
    counting.run()
    before = sorted(p for p in counting.folder.rglob("*"))
    for number, words in (
        (0, "whole number from 1 to 32,768"),
        (10**9, "1000000000"),
        (2, "has that many partitions already"),
    ):
        with pytest.raises(RepartitionError, match=words):
            repartition_state(counting.spark, counting.checkpoint, number)
    assert sorted(p for p in counting.folder.rglob("*")) == before
    with pytest.raises(RepartitionError, match="no batch was committed yet"):
        repartition_state(counting.spark, str(counting.folder / "nowhere"), 4)
    assert not (counting.folder / "nowhere").exists()
    with pytest.raises(UsageError, match="cannot be read or changed"):
        CheckpointFiles(counting.spark, "nonsense://there/checkpoint")
    (counting.folder / "checkpoint" / "offsets" / "0").write_text("my notes")
    (counting.folder / "checkpoint" / "offsets" / ".0.crc").unlink()
    with pytest.raises(UsageError, match="offsets/0 is not what Spark writes there"):
        counting.state()


@pytest.mark.full
def test_damaged_files_of_a_checkpoint_are_named(counting):
    """Hadoop makes an array of the size that a checksum's file names: junk there is called a lack of memory."""
    counting.run()
    counting.run()
    checkpoint = counting.folder / "checkpoint"
    checksum = checkpoint / "commits" / ".1.crc"
    sound = checksum.read_bytes()
    for junk in (b"crc\0\x7f\xff\xff\xff", b"crc\0\xff\xff\0\0", b"crc\0\0\0\x02\0abcd"):
        checksum.write_bytes(junk)
        with pytest.raises(UsageError, match=r"commits/1 and its checksum, commits/\.1\.crc, do not fit each other"):
            counting.state()
    checksum.write_bytes(sound)
    (checkpoint / "offsets" / "0").unlink()
    with pytest.raises(UsageError, match="offsets/0 is missing, from which batch 1 goes on"):
        counting.state()


@pytest.mark.full
def test_a_file_that_spark_cannot_read_is_blamed_and_not_the_function(counting):
    (counting.source / "bad.json.gz").write_bytes(b"not gzip")
    with pytest.raises(Exception) as caught:
        counting.run()
    said = describe(caught.value).cause
    assert re.match(r"The file file:\S+bad\.json\.gz cannot be read: java\.io\.EOFException", said), said
    assert "foreachBatch" not in said


@pytest.mark.full
def test_state_that_is_kept_in_memory_is_refused_with_what_would_help(spark, tmp_path):
    counting = Counting(spark, tmp_path, {PROVIDER: HDFS})
    counting.run()
    with pytest.raises(RepartitionError, match="HDFSBackedStateStoreProvider"):
        repartition_state(spark, counting.checkpoint, 5)
    counting.settings = STREAM_SETTINGS  # as a stream of ours would start it
    plan = inspect(counting.session(), counting.writer(), counting.state())
    assert "begin a new checkpoint with" in plan.refusal
    assert plan.parallelism == 2


@pytest.mark.full
def test_a_checkpoint_of_another_query_is_not_touched(counting):
    counting.run()
    other = Counting(counting.spark, counting.folder / "other")
    frame = other.rows(other.session()).dropDuplicates(["k"])
    with pytest.raises(UsageError, match="belongs to another query: it holds the state of 'aggregation'"):
        inspect(other.session(), frame.writeStream, counting.state())


@pytest.mark.full
def test_a_stateless_query_takes_another_number_at_its_next_start(counting):
    """Spark goes on writing the first number into the offsets, and shuffles with the session's."""
    counting.settings = {"spark.sql.adaptive.enabled": "false"}
    counting.frame = lambda session: counting.rows(session).repartition("k")
    counting.run(2)
    counting.run(5)
    assert [partitions for _, partitions in counting.batches] == [2, 5]
    assert counting.state().unfinished is None
    plan = inspect(counting.session(7), counting.writer(7), counting.state())
    assert (plan.stateful, plan.parallelism, plan.refusal) == ((), 7, "")
    with pytest.raises(RepartitionError, match="holds no stateful operator"):
        repartition_state(counting.spark, counting.checkpoint, 5)


@pytest.fixture(scope="module")
def plans(spark, tmp_path_factory):
    """From what makes a stream of the rows and of those with a watermark, to the plan of its query."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    folder = tmp_path_factory.mktemp("plans")
    session = spark.newSession()
    for key, value in STREAM_SETTINGS.items():
        session.conf.set(key, value)
    rows = session.readStream.format("json").schema(SCHEMA).load(str(folder))
    timed = rows.withWatermark("t", "1 hour")

    def plan(make, trigger=None, **options):
        writer = make(rows, timed).writeStream.options(**options)
        return inspect(session, writer.trigger(**trigger) if trigger else writer)

    plan.session, plan.no_timeout = session, GroupStateTimeout.NoTimeout
    return plan


@pytest.mark.full
def test_stateful_operators_are_found_by_name(plans):
    from pyspark.sql import functions as f

    def nothing(_key, _rows, _state):
        yield from ()

    cases = [
        (("aggregation",), lambda rows, timed: rows.groupBy("k").count()),
        (("aggregation",), lambda rows, timed: timed.groupBy(f.window("t", "1 minute")).count()),
        (("session window",), lambda rows, timed: timed.groupBy(f.session_window("t", "1 minute"), "k").count()),
        (("deduplication",), lambda rows, timed: rows.dropDuplicates(["k"])),
        (("deduplication",), lambda rows, timed: rows.distinct()),
        (("deduplication within the watermark",), lambda rows, timed: timed.dropDuplicatesWithinWatermark(["k"])),
        (("stream-stream join",), lambda rows, timed: timed.alias("a").join(timed.alias("b"), "k")),
        ((), lambda rows, timed: rows.join(plans.session.range(3).withColumnRenamed("id", "k"), "k")),
        ((), lambda rows, timed: rows.select("k")),
        (
            ("applyInPandasWithState",),
            lambda rows, timed: rows.groupBy("k").applyInPandasWithState(
                nothing, "k long", "k long", "update", plans.no_timeout
            ),
        ),
        (
            ("deduplication within the watermark", "aggregation"),
            lambda rows, timed: timed.dropDuplicatesWithinWatermark(["k"]).groupBy(f.window("t", "1 minute")).count(),
        ),
    ]
    for names, make in cases:
        plan = plans(make)
        assert (plan.stateful, plan.refusal) == (names, "")


@pytest.mark.full
def test_queries_that_cannot_be_rescaled_are_refused_with_what_would_help(plans):
    def counted(rows, timed):
        return rows.groupBy("k").count()

    assert "group by a key" in plans(lambda rows, timed: rows.groupBy().count()).refusal
    assert "take the first rows downstream" in plans(lambda rows, timed: rows.limit(3)).refusal
    assert "no micro-batches" in plans(counted, trigger={"continuous": "1 second"}).refusal
    assert "real-time mode" in plans(counted, trigger={"realTime": "5 minutes"}).refusal
    assert "asyncProgressTrackingEnabled" in plans(counted, asyncProgressTrackingEnabled="true").refusal
    assert plans(counted, asyncProgressTrackingEnabled="false").refusal == ""


@pytest.mark.full
def test_a_plan_knows_its_trigger(plans):
    def counted(rows, timed):
        return rows.groupBy("k").count()

    assert plans(counted, trigger={"processingTime": "3 seconds"}).trigger_interval == 3.0
    assert plans(counted).trigger_interval is None
    assert plans(counted).continuous
    assert not plans(counted, trigger={"availableNow": True}).continuous
