"""The plane without a JVM keeps Spark's rules of jobs, tasks and workers."""

from __future__ import annotations

import os
import threading
import time

import pytest
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from plane.jobs import JobFailedError
from plane.session import Session


@pytest.fixture(scope="module")
def context():
    made = Session(slots=2)
    yield made.sparkContext
    made.stop()


def until(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


class Lists(AccumulatorParam):
    def zero(self, value):
        return []

    def addInPlace(self, value1, value2):
        value1.extend(value2)
        return value1


def numbers(rows):
    """Rows, with the numbers of the task that has them."""
    task = TaskContext.get()
    return [(row, task.partitionId(), task.attemptNumber()) for row in rows]


def test_tasks_run_in_other_processes_and_answer_in_order(context):
    rdd = context.parallelize(range(5), 3)
    assert context.runJob(rdd, numbers) == [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 2, 0)]
    assert context.runJob(rdd, numbers, [2]) == [(3, 0, 0), (4, 0, 0)]
    (there,) = context.runJob(context.parallelize([0], 1), lambda rows: [os.getpid() for _ in rows])
    assert there != os.getpid()


def test_accumulators_count_what_succeeded(context, tmp_path):
    found, mark = context.accumulator([], Lists()), tmp_path / "tried"

    def add(rows):
        found.add(list(rows))
        if not mark.exists():
            mark.touch()
            raise ValueError("once")
        return []

    context.runJob(context.parallelize([1], 1), add)
    assert found.value == [1]


def test_a_worker_that_dies_is_tried_again_four_times_in_all(context):
    def dies(rows):
        if TaskContext.get().attemptNumber() < 3:
            os._exit(1)
        return rows

    def always(rows):
        os._exit(1)

    assert context.runJob(context.parallelize([7], 1), dies) == [7]
    with pytest.raises(
        JobFailedError, match=r"Task 0 in stage \d+\.0 failed 4 times.*Python worker exited unexpectedly"
    ):
        context.runJob(context.parallelize([7], 1), always)


def test_a_killed_task_starts_again_and_a_cancelled_job_ends_at_once(context, tmp_path):
    def waits(rows):
        attempt = TaskContext.get().attemptNumber()
        (tmp_path / f"attempt-{attempt}").write_text(str(os.getpid()))
        while True:
            time.sleep(0.01)

    raised = []

    def run():
        context.addJobTag("waits")
        with pytest.raises(JobFailedError, match="cancelled part of cancelled job tag waits") as caught:
            context.runJob(context.parallelize([1], 1), waits)
        raised.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    until((tmp_path / "attempt-0").exists)
    sc = context._jsc.sc()
    (stage,) = sc.getJobIdsForTag("waits")
    (task,) = sc.taskList(stage, 0, 0, 10, None, ["RUNNING"])
    sc.killTaskAttempt(task["taskId"], False, "for a test")
    until((tmp_path / "attempt-1").exists)
    context.cancelJobsWithTag("waits")
    thread.join(600)
    assert len(raised) == 1
    assert [one["attempt"] for one in sc.taskList(stage, 0, 0, 10, None, ["KILLED"])] == [0, 1]
    assert context.runJob(context.parallelize([1, 2], 2), numbers) == [(1, 0, 0), (2, 1, 0)], "its slot is free"


def test_a_free_slot_goes_to_the_job_that_runs_least(context, tmp_path):
    go, came = tmp_path / "go", tmp_path / "came"
    began = tmp_path / "began"
    began.mkdir()

    def long(rows):
        """The first two hold the slots until ``go``; the others wait for the short job, which so needs one of them."""
        task = TaskContext.get().partitionId()
        (began / str(task)).touch()
        until((go if task < 2 else came).exists)
        return rows

    def short(rows):
        came.touch()
        return rows

    def submit(function, slices):
        jobs = len(context._jobs.all)
        rows = context.parallelize(range(slices), slices)
        thread = threading.Thread(target=lambda: told.append(context.runJob(rows, function)))
        thread.start()
        until(lambda: len(context._jobs.all) > jobs)
        return thread

    told: list[list[int]] = []
    threads = [submit(long, 8)]
    until(lambda: len(list(began.iterdir())) == 2)
    threads.append(submit(short, 1))
    go.touch()
    for thread in threads:
        thread.join(600)
    assert sorted(map(len, told)) == [1, 8]
