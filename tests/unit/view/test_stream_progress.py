"""What Spark tells of batches: read, and each commit told once and in order, whoever heard of it first."""

from __future__ import annotations

import pytest

from firesteel.scheduler.streaming.events import BatchCommitted, QueryIdle
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.streams.commit_barrier import Place, place_of
from firesteel.spark.streams.driver import Timers
from firesteel.spark.streams.offers import Cluster
from firesteel.spark.streams.progress import Commits, Progress
from firesteel.spark.streams.protocol import described

KAFKA = {
    "batchId": 7,
    "numInputRows": 1200,
    "inputRowsPerSecond": 300.0,
    "processedRowsPerSecond": "Infinity",
    "durationMs": {"triggerExecution": 2500, "addBatch": 2000},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 999, "customMetrics": {"rocksdbSstFileSize": 4096}},
        {"numRowsTotal": 5, "memoryUsedBytes": 77, "customMetrics": {}},
    ],
    "sources": [
        {"endOffset": {"t": {"0": 10, "1": 20}}, "latestOffset": {"t": {"0": 15, "1": 20, "2": 4}}},
        {"endOffset": {"logOffset": 3}, "latestOffset": None, "metrics": {"numFilesOutstanding": "6"}},
    ],
}


def test_the_numbers_of_a_batch():
    read = Progress.of(KAFKA)
    assert read == Progress(
        batch=7, rows=1200, duration=2.5, state_rows=15, state_bytes=4096 + 77, backlog=9 + 6, input_rate=300.0
    )


def test_a_source_that_does_not_say_what_waits_leaves_the_backlog_open():
    assert Progress.of({"batchId": 0, "sources": [{"endOffset": "x", "latestOffset": "y"}]}).backlog is None


def batches(events):
    return [(type(event).__name__, event.batch, event.at_barrier) for event in events]


def test_commits_are_told_as_they_are_heard_of():
    commits = Commits(1, 3)
    assert batches(commits.heard(Progress(4), 0.0)) == [("BatchCommitted", 4, False)]
    assert commits.heard(Progress(4), 1.0) == []
    assert commits.heard(Progress(2), 1.0) == []


def test_a_commit_at_the_barrier_is_told_by_the_barrier_whoever_comes_first():
    commits = Commits(1, 3)
    commits.set_barrier(True)
    assert commits.heard(Progress(4, rows=40), 0.0) == []
    (event,) = commits.at_barrier(4, None, 0.1)
    assert isinstance(event, BatchCommitted)
    assert (event.batch, event.rows, event.at_barrier) == (4, 40, True)
    assert batches(commits.at_barrier(5, Progress(5), 0.2)) == [("BatchCommitted", 5, True)]
    assert commits.heard(Progress(5), 0.3) == []


def test_a_checkpoint_that_was_told_before_is_at_the_barrier_as_an_idle_query():
    commits = Commits(1, 3)
    commits.heard(Progress(4), 0.0)
    commits.set_barrier(True)
    (event,) = commits.at_barrier(4, None, 0.1)
    assert isinstance(event, QueryIdle)
    assert (event.batch, event.at_barrier) == (4, True)


def test_what_waited_for_a_barrier_that_ends_is_told():
    commits = Commits(1, 3)
    commits.set_barrier(True)
    commits.heard(Progress(4), 0.0)
    commits.heard(Progress(5), 0.0)
    assert batches(commits.at_barrier(5, None, 0.1)) == [("BatchCommitted", 4, False), ("BatchCommitted", 5, True)]
    commits.heard(Progress(6), 0.2)
    commits.set_barrier(False)
    assert batches(commits.release(0.3)) == [("BatchCommitted", 6, False)]


def test_at_a_querys_end_commits_nobody_heard_of_are_told_and_triggers_that_did_nothing_are_not():
    commits = Commits(1, 3)
    told = commits.ended([Progress(6), Progress(5), Progress(4), Progress(3)], 5, 0.0)
    assert batches(told) == [("BatchCommitted", 4, False), ("BatchCommitted", 5, False)]


FRAMES = """java.lang.Throwable
	at java.base/java.util.concurrent.locks.ReentrantLock.lock(ReentrantLock.java:322)
	at org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.withProgressLocked(MicroBatchExecution.scala:1)
	at org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.{caller}(MicroBatchExecution.scala:2)
	at org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.$anonfun$executeOneBatch$2(X.scala:3)
	at org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.executeOneBatch(MicroBatchExecution.scala:3)
"""


@pytest.mark.parametrize("place", [Place.PLANNING, Place.RUNNING, Place.CHECKPOINT])
def test_where_the_engine_waits_for_the_lock(place):
    assert place_of(FRAMES.format(caller=place.value), queued=True) is place


def test_an_engine_that_ends_waits_elsewhere():
    trace = "\tat java.base/java.util.concurrent.locks.ReentrantLock.lock(R.java:1)\n\tat x.StreamExecution.runStream(S.scala:1)"
    assert place_of(trace, queued=True) is Place.ELSEWHERE


SINK = """[STREAM_FAILED] Query [id = 4507, runId = 4658] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error \
occurred. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^
  File "/usr/lib/python3/site-packages/pyspark/sql/utils.py", line 166, in call
    raise e
  File "/home/me/job.py", line 16, in bad
    raise ValueError("my sink is broken")
ValueError: my sink is broken
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 4507a150]"""


def test_a_failure_shows_the_users_frames_and_no_others():
    told = described(SINK)
    assert told.counted
    assert not told.final
    assert told.cause.split("\n") == [
        "The function of foreachBatch raised ValueError: my sink is broken.",
        "Traceback (most recent call last):",
        '  File "/home/me/job.py", line 16, in bad',
        '    raise ValueError("my sink is broken")',
    ]


def test_a_lost_executor_is_not_charged_and_a_checkpoint_that_does_not_fit_is_final():
    lost = described(
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)\nDriver stacktrace:"
    )
    assert (lost.counted, lost.final) == (False, False)
    other = described(
        "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful operator name does not match."
    )
    assert other.final
    assert other.cause == "Streaming stateful operator name does not match."


def test_timers_come_due_in_order_and_a_new_time_replaces_the_old_one():
    timers = Timers()
    assert timers.pause(0.0) is None
    timers.set("b", 2.0)
    timers.set("a", 1.0)
    timers.set("c", 9.0)
    timers.set("c", 1.5)
    timers.set("d", 1.2)
    timers.cancel("d")
    timers.cancel("never set")
    assert timers.pause(0.5) == 0.5
    assert timers.take_due(0.5) is None
    assert [timers.take_due(5.0) for _ in range(4)] == ["a", "c", "b", None]


def test_what_changed_in_a_cluster_is_said_with_names():
    one, two = ExecutorInfo("h1", 4, 4), ExecutorInfo("h2", 2, 2)
    before = Cluster({"1": one, "2": two})
    assert before.cores == 6
    assert Cluster({"1": one}).compared(before) == "executor 2 on h2 was lost"
    assert before.compared(Cluster({"1": one})) == "executor 2 on h2 came"
    shut = Cluster({"1": one, "2": two}, frozenset({"1"}))
    assert (shut.cores, shut.compared(before)) == (2, "Spark excluded executor 1")
    assert before.compared(shut) == "Spark uses executor 1 again"
    assert before.compared(before) == ""


def test_a_commit_that_the_listener_has_not_told_of_is_known_from_what_spark_has_kept():
    commits = Commits(1, 3)
    assert commits.misses(6) and not commits.misses(4)
    commits.set_barrier(True)
    commits.heard(Progress(4, rows=4), 0.0)
    assert commits.misses(6) and not commits.misses(5)
    told = commits.at_barrier(6, Progress(6), 0.1, [Progress(6), Progress(5, rows=5), Progress(4, rows=9)])
    assert [(event.batch, event.rows) for event in told] == [(4, 4), (5, 5), (6, 0)]
    assert not commits.heard(Progress(5), 0.2), "late"
