"""What goes wrong on Spark, each case as it was once seen: dying workers, retries, cancellation, other people's jobs."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.api.job_client import JobClient
from firesteel.errors import JobCancelledError, JobExecutionError
from firesteel.report.explain import attempts_report
from firesteel.report.fold import JobHistory
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.spark.driver import channel
from firesteel.spark.driver.runtime import submit
from firesteel.spark.storage.cleaning import late
from runtime_support import (
    NUMBERS,
    DiesBeside,
    Numbers,
    RecordingSink,
    Seen,
    collected,
    left_behind,
    options,
    two_steps,
)


@dataclass(frozen=True)
class Dies:
    """The worker of split ``split`` exits as if killed, in the first ``times`` attempts."""

    split: int
    times: int

    def read(self, split, ctx):
        if split == self.split and ctx.attempt < self.times:
            os._exit(137)
        yield from Numbers(10).read(split, ctx)


@dataclass(frozen=True)
class Waits:
    """Each subtask says that it runs (a file in ``folder``), then waits until the file ``go`` is there."""

    folder: str
    write_late: bool = False

    def read(self, split, ctx):
        folder = Path(self.folder)
        (folder / f"running-{split}-{ctx.attempt}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        yield from Numbers(10).read(split, ctx)


def until(condition, seconds=600.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def free_slots(session) -> bool:
    return all(e.numRunningTasks == 0 for e in _executors(session))


def _executors(session):
    return session.sparkContext.statusTracker().getExecutorInfos()


def test_a_worker_that_dies_counts_for_its_execution_and_not_for_its_siblings(session, tmp_path):
    outcome = submit(two_steps(splits=6, source=Dies(4, times=1)), session, options(tmp_path)).result()
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(60))


def test_in_our_session_a_worker_that_dies_takes_nobody_along(session, tmp_path):
    seen = Seen()
    source = DiesBeside(str(tmp_path))
    outcome = submit(two_steps(splits=6, source=source), session, options(tmp_path), [seen]).result()
    assert outcome.error is None and sorted(collected(outcome)["v"].to_pylist()) == list(range(60))
    assert len(seen.states("FINISHED", 0)) == 6 and seen.states("FAILED", 0) == [0]
    assert seen.states("CANCELED", 0) == []
    history = JobHistory(seen.records)
    assert history.metrics["numRestarts"] == 1
    (attempt, again) = attempts_report(seen.records, all_of_them=False).splitlines()[1:]
    assert "?" not in attempt and "failed after" in attempt
    assert "A Python worker died in the middle of the task" in attempt and "attempt 2" in again


def test_a_worker_that_always_dies_fails_the_job_with_a_sentence(session, tmp_path):
    given = options(tmp_path).with_values({"restart-strategy.fixed-delay.attempts": 1})
    outcome = submit(two_steps(splits=4, source=Dies(2, times=99)), session, given).result()
    assert isinstance(outcome.error, JobExecutionError)
    assert "subtask 2" in str(outcome.error)
    assert "worker" in str(outcome.error)
    assert "died" in str(outcome.error)
    late.run_all()
    assert left_behind(tmp_path) == []


def test_cancel_frees_slots_and_leaves_nothing(session, tmp_path):
    sink = RecordingSink()
    job = submit(two_steps(splits=4, source=Waits(str(tmp_path)), sink=sink), session, options(tmp_path))
    until(lambda: list(tmp_path.glob("running-*")))
    assert job.status() is JobStatus.RUNNING
    job.cancel()
    outcome = job.result()
    assert isinstance(outcome.error, JobCancelledError)
    assert outcome.status is JobStatus.CANCELED
    until(lambda: free_slots(session))
    assert ("abort", []) in sink.calls
    assert "commit" not in [call[0] for call in sink.calls]
    assert left_behind(tmp_path) == []
    late.run_all()
    assert left_behind(tmp_path) == []


def test_a_sink_object_that_is_used_again_at_once_is_not_harmed_by_the_job_before(session, tmp_path):
    """Its job's last clean-up comes seconds after that job, and must not touch what the next one has begun."""
    sink = RecordingSink()
    first = submit(two_steps(splits=2, source=Waits(str(tmp_path)), sink=sink), session, options(tmp_path))
    until(lambda: list(tmp_path.glob("running-*")))
    first.cancel()
    second = submit(two_steps(splits=2, sink=sink), session, options(tmp_path))
    assert second.result().error is None
    first.result()
    late.run_all()
    begun = [first.job_id, second.job_id]
    assert [call for call in sink.calls if call[0] == "begin"] == [("begin", job) for job in begun]
    assert [name for name, _ in sink.calls] == ["begin", "abort", "begin", "commit"]


def test_a_job_that_waits_for_its_sink_says_so_and_can_be_cancelled(session, tmp_path):
    sink = RecordingSink()
    first = submit(two_steps(splits=2, source=Waits(str(tmp_path)), sink=sink), session, options(tmp_path))
    second = submit(two_steps(splits=2, sink=sink), session, options(tmp_path))
    assert "same sink object" in second.waiting_for()[0]
    second.cancel()
    assert second.result().status is JobStatus.CANCELED
    (tmp_path / "go").touch()
    assert first.result().error is None
    assert [name for name, _ in sink.calls] == ["begin", "commit"]


def test_ctrl_c_cancels_our_job_only(session, tmp_path):
    """PySpark's own handler would cancel every job of the context; it is in place, as in a given session."""
    context = session.sparkContext
    before = signal.getsignal(signal.SIGINT)

    def pysparks(_signal, _frame):
        context.cancelAllJobs()
        raise KeyboardInterrupt

    pysparks.__module__ = "pyspark.core.context"
    signal.signal(signal.SIGINT, pysparks)
    theirs: list[object] = []
    folder = str(tmp_path)

    def their_task(numbers):
        list(numbers)
        Path(folder, "theirs").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
        return [1]

    def their_job():
        try:
            theirs.append(context.runJob(context.parallelize([0], 1), their_task))
        except Exception as error:
            theirs.append(error)

    thread = threading.Thread(target=their_job)
    try:
        thread.start()
        until((tmp_path / "theirs").exists)
        client = JobClient(submit(two_steps(splits=2, source=Waits(folder)), session, options(tmp_path)))
        until(lambda: list(tmp_path.glob("running-*")))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt, match="interrupted and is being cancelled"):
            client.wait()
        assert signal.getsignal(signal.SIGINT) is pysparks
        with pytest.raises(JobCancelledError):
            client.wait()
        assert not theirs
        Path(folder, "go").touch()
        thread.join(600)
        assert theirs == [[1]]
    finally:
        signal.signal(signal.SIGINT, before)
        Path(folder, "go").touch()
        thread.join(600)


def test_a_job_cancelled_in_spark_itself_is_cancelled(session, tmp_path):
    job = submit(two_steps(splits=2, source=Waits(str(tmp_path))), session, options(tmp_path))
    until(lambda: list(tmp_path.glob("running-*")))
    session.sparkContext.cancelAllJobs()
    outcome = job.result()
    assert outcome.status is JobStatus.CANCELED
    assert left_behind(tmp_path) == []


def test_a_job_submitted_while_another_runs_gets_its_share(session, tmp_path):
    """FAIR: with both slots taken by a long batch, a short job must not wait for all of that batch's tasks."""
    folder = tmp_path / "long"
    folder.mkdir()
    long = submit(two_steps(splits=8, source=Slow()), session, options(tmp_path))
    short = submit(two_steps(splits=1, rows=10), session, options(tmp_path))
    assert short.result().error is None
    assert long.status() is JobStatus.RUNNING
    assert long.result().error is None


@dataclass(frozen=True)
class Slow:
    def read(self, split, ctx):
        time.sleep(0.4)
        yield from Numbers(10).read(split, ctx)


def test_messages_that_never_come_through_the_channel_are_taken_from_the_results(session, tmp_path, monkeypatch):
    monkeypatch.setattr(channel.MessageParam, "addInPlace", _lose)
    given = options(tmp_path, **{"firesteel.standing-tasks": False})
    outcome = submit(two_steps(splits=4, rows=10), session, given).result()
    assert outcome.error is None
    assert collected(outcome).num_rows == 40


def _lose(self, value1, value2):
    return value1


def test_the_channel_survives_a_receiver_that_raises():
    channel_ = _Opened()
    param = channel.MessageParam(channel_.name)
    assert param.addInPlace([], [b"one"]) == []
    assert param.addInPlace([], [b"two"]) == []
    assert channel_.received == [b"one", b"two"]


class _Opened:
    def __init__(self):
        self.received: list[bytes] = []
        self.name = "raising"
        channel._opened_here = True
        channel._receivers[self.name] = self.receive

    def receive(self, message):
        self.received.append(message)
        raise RuntimeError("a receiver must never do this")


def test_a_given_session_is_left_as_it_was(session, tmp_path):
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "theirs")
    context.addJobTag("theirs")
    try:
        before = (
            sorted(context.getConf().getAll()),
            context.getJobTags(),
            signal.getsignal(signal.SIGINT),
            list(sys.path),
        )
        threads = {t.name for t in threading.enumerate() if t.name.startswith("firesteel-job")}
        outcome = submit(two_steps(splits=2, rows=10), session, options(tmp_path)).result()
        assert outcome.error is None
        after = (
            sorted(context.getConf().getAll()),
            context.getJobTags(),
            signal.getsignal(signal.SIGINT),
            list(sys.path),
        )
        assert after == before
        assert context.getLocalProperty("spark.scheduler.pool") == "theirs"
        until(lambda: {t.name for t in threading.enumerate() if t.name.startswith("firesteel-job")} <= threads)
        assert not [name for name in channel._receivers if name == outcome.job_id]
    finally:
        context.removeJobTag("theirs")
        context.setLocalProperty("spark.scheduler.pool", None)


@dataclass(frozen=True)
class WorkerIds:
    """One row a split: the process that read it."""

    def read(self, split, ctx):
        yield pa.RecordBatch.from_arrays([pa.array([split]), pa.array([os.getpid()])], schema=NUMBERS)


def test_workers_are_used_again(session, tmp_path):
    """A task that leaves its input unread would cost its worker: there would be as many processes as subtasks."""
    outcome = submit(two_steps(splits=12, source=WorkerIds()), session, options(tmp_path)).result()
    assert outcome.error is None
    assert len(set(collected(outcome)["v"].to_pylist())) <= 4


def test_what_runs_is_told_before_it_ends(session, tmp_path):
    seen = Seen()
    job = submit(two_steps(splits=3, source=Waits(str(tmp_path))), session, options(tmp_path), [seen])
    until(lambda: len(seen.states("DEPLOYING", 0)) == 2)  # as many as there are slots
    (tmp_path / "go").touch()
    assert job.result().error is None


def test_a_function_that_closes_standard_files_harms_no_later_one(session):
    """As libraries do that make a daemon of their process."""
    env = ExecutionEnvironment(spark=session, options={"firesteel.progress": False})
    rows = env.from_collection([(n,) for n in range(4)], "fd bigint").rebalance()

    def closes(batches):
        yield from batches
        for fd in (0, 1, 2):
            os.close(fd)

    def prints(batches):
        for batch in batches:
            print("x" * 100_000, flush=True)
            kinds = [stat.S_IFMT(os.fstat(fd).st_mode) for fd in (0, 1, 2)]
            yield pa.record_batch({"fd": batch["fd"], "kinds": [kinds] * len(batch)})

    assert rows.map_in_arrow(closes, "fd bigint").count() == 4
    harmless = {stat.S_IFREG, stat.S_IFCHR, stat.S_IFIFO}
    found = rows.map_in_arrow(prints, "fd bigint, kinds array<bigint>").collect()
    assert len(found) == 4 and all(harmless.issuperset(row["kinds"]) for row in found)
