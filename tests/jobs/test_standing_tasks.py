"""Small executions in standing tasks: what they are spared, and what happens where one of these dies, is killed, or is never reached."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Listener
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway

from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver import channel, loop
from firesteel.spark.driver.runtime import submit
from firesteel.spark.standing import crew, small
from firesteel.spark.storage import blob_server
from firesteel.task.executor.blobs import put_blob
from firesteel.task.executor.standing import UnixAddress
from runtime_support import DiesBeside, Numbers, Seen, collected, left_behind, options, two_steps

OFF = {"firesteel__standing-tasks": False}
ALL = list(range(60))


def told(seen):
    return [record for record in seen.records if isinstance(record, Decision) and record.what == "deployment"]


def values(outcome):
    assert outcome.error is None
    return sorted(collected(outcome)["v"].to_pylist())


@dataclass(frozen=True)
class Tags:
    """A row a split: the name of the Spark job that reads it, as a number, and what Spark's context says to it."""

    folder: str

    def read(self, split, ctx):
        from pyspark import TaskContext

        task = TaskContext.get()
        Path(self.folder, f"{task.stageId()}.{task.taskAttemptId()}.{task.partitionId()}.{split}").touch()
        yield from Numbers(10).read(split, ctx)


@pytest.mark.parametrize("off", [{}, OFF, {"firesteel__standing-tasks__max-input": 100}], ids=["on", "off", "large"])
def test_small_executions_share_spark_tasks_and_seem_to_have_their_own(session, tmp_path, off, monkeypatch):
    monkeypatch.setattr(small, "WORKING_SECONDS", 60.0)
    seen = Seen()
    job = two_steps(splits=6, rows=10, source=Tags(str(tmp_path)))
    run = submit(job, session, options(tmp_path, **off), [seen])
    assert values(run.result()) == ALL
    found = [path.name.split(".") for path in tmp_path.glob("*.*.*.*")]
    jobs, ids, partitions, splits = (len({one[column] for one in found}) for column in range(4))
    assert (ids, partitions, splits) == (6, 6, 6), "no two say the same of themselves"
    if off:
        assert jobs == 1 and 0 not in run.ran_standing
        assert not [record for record in told(seen) if record.vertex == 0]
    else:
        assert jobs <= 2, "as many as slots"
        assert [record.result for record in told(seen)] == ["standing tasks"] * 2
        assert sorted(run.ran_standing) == [0, 1], "their pages lead to the stages of these Spark jobs"
        assert all(tag.startswith(f"firesteel-{run.job_id}-standing-") for tag in run.ran_standing.values())


@pytest.mark.parametrize("splits", [2, 6])
def test_where_spark_would_start_executors_for_a_step_it_is_asked_to(session, tmp_path, monkeypatch, splits):
    """Two slots are there."""
    monkeypatch.setattr(small, "grows", lambda context: True)
    seen = Seen()
    job = two_steps(splits=splits, rows=10, parallelism=2)
    assert values(submit(job, session, options(tmp_path), [seen]).result()) == list(range(10 * splits))
    expected = {2: [0, 1], 6: [1]}[splits]
    assert [record.vertex for record in told(seen)] == expected


def test_a_step_that_would_keep_too_many_busy_is_a_spark_job(session, tmp_path, monkeypatch):
    monkeypatch.setattr(small, "MOST", 1)
    seen = Seen()
    job = two_steps(splits=6, rows=10, parallelism=1)
    assert values(submit(job, session, options(tmp_path), [seen]).result()) == ALL
    assert [record.vertex for record in told(seen)] == [1]


def test_threads_that_share_their_spark_properties_have_none(session, tmp_path, monkeypatch):
    monkeypatch.setattr(session.sparkContext, "_gateway", object.__new__(JavaGateway))
    seen = Seen()
    assert values(submit(two_steps(splits=6, rows=10), session, options(tmp_path), [seen]).result()) == ALL
    assert told(seen) == []


@dataclass(frozen=True)
class OnlyTheFirst:
    """One standing task reaches the driver, and no other."""

    path: str
    folder: str

    def connect(self):
        try:
            os.close(os.open(Path(self.folder, "reached"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise ConnectionRefusedError from None
        return UnixAddress(self.path).connect()


def test_what_has_begun_where_only_some_can_connect_is_nobodys_failure(session, tmp_path, monkeypatch):
    """Those that are there go on with it; what is left when they are gone is sent again."""

    def door():
        made = crew.UnixDoor()
        made.address = OnlyTheFirst(made.address.path, str(tmp_path))
        return made

    def slow(batches):
        time.sleep(0.05)
        yield from batches

    monkeypatch.setattr(small, "UnixDoor", door)
    monkeypatch.setattr(small, "_unreached", set())
    monkeypatch.setattr(small, "WORKING_SECONDS", 0.1)
    seen = Seen()
    given = options(tmp_path, **{"restart-strategy__fixed-delay__attempts": 0})
    outcome = submit(two_steps(splits=2, rows=30, fn=slow, parallelism=30), session, given, [seen]).result()
    assert values(outcome) == ALL
    assert session.sparkContext.applicationId in small._unreached


@dataclass(frozen=True)
class TwoMeet:
    """Subtasks 0 and 3 wait for each other."""

    folder: str

    def read(self, split, ctx):
        if split in (0, 3):
            Path(self.folder, f"here-{split}").touch()
            while not Path(self.folder, f"here-{3 - split}").exists():
                time.sleep(0.01)
        yield from Numbers(10).read(split, ctx)


def test_those_that_take_long_run_side_by_side_and_hold_nobody_up(session, tmp_path):
    seen = Seen()
    outcome = submit(two_steps(splits=6, source=TwoMeet(str(tmp_path))), session, options(tmp_path), [seen]).result()
    assert values(outcome) == ALL and len(told(seen)) == 2


@dataclass(frozen=True)
class DiesIdle:
    """The worker of split 0 dies a little after it has finished, when it has nothing to do or reads something else."""

    def read(self, split, ctx):
        if split == 0 and ctx.attempt == 0:
            import threading

            threading.Timer(0.05, os._exit, (1,)).start()
        yield from Numbers(10).read(split, ctx)


def test_one_that_dies_idle_is_nobodys_failure_or_that_of_what_it_took_next(session, tmp_path):
    def slow(batches):
        time.sleep(0.2)
        yield from batches

    assert values(submit(two_steps(splits=6, source=DiesIdle(), fn=slow), session, options(tmp_path)).result()) == ALL


@dataclass(frozen=True)
class Waits:
    """Subtasks wait for the file ``go``."""

    folder: str

    def read(self, split, ctx):
        Path(self.folder, f"running-{split}").touch()
        while not Path(self.folder, "go").exists():
            time.sleep(0.01)
        yield from Numbers(10).read(split, ctx)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_cancelled_job_ends_with_those_that_run_and_those_that_wait(session, tmp_path, exclusive):
    job = two_steps(splits=6, source=Waits(str(tmp_path)))
    job.job_graph.vertices[0].supports_concurrent_attempts = not exclusive
    seen = Seen()
    run = submit(job, session, options(tmp_path), [seen])
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("running-*"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    run.cancel()
    outcome = run.result()
    assert outcome.status is JobStatus.CANCELED
    assert sorted(seen.states("CANCELED", 0)) == list(range(6))
    assert len(list(tmp_path.glob("running-*"))) == 2 and left_behind(tmp_path) == []


def test_without_a_socket_batches_are_spark_jobs(session, tmp_path, monkeypatch):
    """The path of a Unix socket has its limit."""
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setitem(multiprocessing.current_process()._config, "tempdir", str(long))
    seen = Seen()
    assert values(submit(two_steps(splits=6, rows=10), session, options(tmp_path), [seen]).result()) == ALL
    assert told(seen) == []


def test_batches_whose_standing_tasks_never_come_are_spark_jobs(session, tmp_path, monkeypatch):
    monkeypatch.setattr(small, "_unreached", set())

    def unreachable(**given):
        listener = Listener(**given)
        Path(listener.address).unlink()
        return listener

    monkeypatch.setattr(crew, "Listener", unreachable)
    seen = Seen()
    assert values(submit(two_steps(splits=6, rows=10), session, options(tmp_path), [seen]).result()) == ALL
    assert seen.states("FAILED", 0) == [] and seen.states("FAILED", 1) == []


def test_messages_take_no_accumulator(session, tmp_path, monkeypatch):
    monkeypatch.setattr(channel.MessageParam, "addInPlace", lambda self, one, other: one)
    assert values(submit(two_steps(splits=6, rows=10), session, options(tmp_path)).result()) == ALL


def test_a_worker_that_is_killed_beside_others_takes_nobody_along(session, tmp_path):
    seen = Seen()
    outcome = submit(two_steps(splits=6, source=DiesBeside(str(tmp_path))), session, options(tmp_path), [seen]).result()
    assert values(outcome) == ALL
    assert (seen.states("FAILED", 0), seen.states("CANCELED", 0)) == ([0], [])
    failed = [record.cause for record in seen.records if getattr(record, "state", "") == "FAILED"]
    assert failed and "died in the middle of the task" in failed[0]


@dataclass(frozen=True)
class Unsendable:
    """A split that cannot be pickled."""

    bytes = 10

    def __reduce__(self):
        raise TypeError("this split stays here")


def test_a_batch_whose_blobs_take_long_begins_when_they_are_stored(session, tmp_path, monkeypatch):
    """Although nothing else has woken the job's thread meanwhile."""

    def slow(*given):
        time.sleep(1)
        put_blob(*given)

    monkeypatch.setattr(blob_server, "put_blob", slow)
    monkeypatch.setattr(loop, "QUIET_SECONDS", 1e6)
    given = options(tmp_path, **{"firesteel__deployment__offload-threshold": "1 b"})
    run = submit(two_steps(splits=6, rows=10), session, given)
    hung = threading.Timer(120, run.cancel)
    hung.start()
    assert values(run.result()) == ALL
    hung.cancel()


def test_what_cannot_be_sent_is_its_batchs_failure(session, tmp_path):
    job = two_steps(splits=2, rows=10)
    job.splits[0] = [0, Unsendable()]
    given = options(tmp_path, **{"restart-strategy__fixed-delay__attempts": 0})
    outcome = submit(job, session, given).result()
    assert outcome.status is JobStatus.FAILED and "this split stays here" in str(outcome.error)


def test_they_give_their_slots_back(session, tmp_path, monkeypatch):
    """One after a while of work, however much waits; each as the job's end comes."""
    monkeypatch.setattr(small, "WORKING_SECONDS", 0.05)
    seen = Seen()
    folder = tmp_path / "seen"
    folder.mkdir()

    def slow(batches):
        time.sleep(0.04)
        yield from batches

    def running():
        return sum(one.numRunningTasks for one in session.sparkContext.statusTracker().getExecutorInfos())

    before = running()  # what other files' tests have left on this session
    job = two_steps(splits=12, source=Tags(str(folder)), fn=slow)
    assert values(submit(job, session, options(tmp_path), [seen]).result()) == list(range(120))
    end = time.monotonic() + 60
    while running() > before:
        assert time.monotonic() < end
        time.sleep(0.01)
