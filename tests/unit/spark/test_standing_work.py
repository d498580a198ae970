"""Which batches are for standing tasks, and who of those that wait is next."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs

from driver_loop import deploy, ints
from firesteel.scheduler.kernel.commands import Placement, Splits
from firesteel.spark.driver.batch import Batch
from firesteel.spark.standing.small import reads_little
from firesteel.spark.standing.work import Waiting, Work

CODE = SimpleNamespace(dataframe=None, slots=None)
SMALL = structs.replace(deploy(0, 1), input_bytes=ints(10, 100))


def test_batches_of_which_every_subtask_reads_little():
    assert reads_little([SMALL], CODE, 100)
    assert reads_little([structs.replace(SMALL, gates=(), splits=Splits(ints(0, 1, 2), ints(0, 1)))], CODE, 100)


@pytest.mark.parametrize(
    "other",
    [
        {"input_bytes": ints(10, 101)},
        {"input_bytes": None},
        {"placement": Placement()},
    ],
)
def test_others_are_spark_jobs(other):
    assert not reads_little([structs.replace(SMALL, **other)], CODE, 100)


def test_so_are_dataframes_slots_with_resources_and_executions_that_share_tasks():
    assert not reads_little([SMALL], SimpleNamespace(dataframe=1, slots=None), 100)
    assert not reads_little([SMALL], SimpleNamespace(dataframe=None, slots=1), 100)
    assert not reads_little([SMALL, SMALL], CODE, 100)


class Queue:
    def __init__(self, *sizes):
        self.ended = []
        self.waiting = Waiting(lambda ended: self.ended.append(ended.batch.id))
        self.works = [self.add(number, size) for number, size in enumerate(sizes)]

    def add(self, number, size):
        batch = Batch.of(number, [deploy(*np.arange(size))], "job", "", "firesteel-0")
        work = Work(batch, CODE, 0.0)
        self.waiting.add(work)
        self.waiting.offer(work)
        return work

    def take(self):
        turn = self.waiting.take(0.0)
        return turn, (turn.work.batch.id, turn.subtask)


def test_batches_take_turns_and_each_ends_with_its_last_execution():
    queue = Queue(3, 1)
    turns = [queue.take() for _ in range(4)]
    assert [name for _, name in turns] == [(0, 0), (1, 0), (0, 1), (0, 2)] and not queue.waiting
    for turn, _ in turns[:3]:
        queue.waiting.over(turn)
    assert queue.ended == [1]
    queue.waiting.over(turns[3][0])
    assert queue.ended == [1, 0] and queue.works[0].batch.ended.is_set()


def test_what_is_withdrawn_never_runs():
    queue = Queue(3, 2)
    turn, _ = queue.take()
    assert queue.waiting.withdraw(queue.works[0], {0, 2}) == [2], "0 runs"
    assert len(queue.waiting) == 3
    assert queue.waiting.withdraw(queue.works[0]) == [1]
    queue.waiting.over(turn)
    assert queue.ended == [0] and [queue.take()[1], queue.take()[1]] == [(1, 0), (1, 1)]


def test_a_batch_that_cannot_be_sent_ends_when_nothing_of_it_runs():
    queue = Queue(2)
    turn, _ = queue.take()
    queue.waiting.fail(queue.works[0], ValueError("no"))
    assert not queue.ended and not queue.waiting
    queue.waiting.over(turn)
    queue.waiting.end(queue.works[0])
    assert queue.ended == [0]


def test_only_untouched_batches_are_handed_back():
    queue = Queue(2, 2)
    queue.take()
    assert queue.waiting.hand_back() == [queue.works[1]]
    assert len(queue.waiting) == 1 and queue.waiting.of(queue.works[1].batch) is None
