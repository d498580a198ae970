"""A rate that executors share: never more than the limit, and all of it where somebody calls."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from firesteel.results.storage.store import ResultStore, StorageError
from firesteel.task.services import rates
from firesteel.task.services.rates import GONE_SECONDS, GRAIN_SECONDS, VALID_SECONDS, Bucket, Marks, SharedRate

TICK = 0.004


class Executor:
    """Workers of one executor, which call whenever they may while they are ``busy``."""

    def __init__(self, cluster, name, workers):
        self.cluster = cluster
        self.busy = False
        self.looks = []
        self.calls = []
        store = ResultStore(str(cluster.path / "marks"))
        self.workers = [
            Worker(self, cluster.limit, cluster.path / f"{name}.json", Marks(store), cluster.clock)
            for _ in range(workers)
        ]

    def step(self, now, draw):
        due, self.looks = [w for at, w in self.looks if at <= now], [(at, w) for at, w in self.looks if at > now]
        for worker in due:
            worker.look()
        if self.busy:
            for worker in draw.sample(self.workers, len(self.workers)):
                while worker.take() == 0:
                    self.calls.append(now)


class Worker(SharedRate):
    def __init__(self, executor, *args):
        super().__init__(*args)
        self.executor = executor

    def _begin_look(self):
        cluster = self.executor.cluster
        self.executor.looks.append((cluster.clock() + cluster.draw.choice([0, 0.05, 0.5]), self))


class Cluster:
    def __init__(self, path, limit, seed, executors):
        self.path, self.limit, self.draw, self.now = path, limit, random.Random(seed), 100.0
        self.executors = [Executor(self, f"e{k}", workers) for k, workers in enumerate(executors)]

    def clock(self):
        return self.now

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            for executor in self.draw.sample(self.executors, len(self.executors)):
                executor.step(self.now, self.draw)
            self.now += TICK

    @property
    def calls(self):
        return sorted(call for executor in self.executors for call in executor.calls)


def most_within(calls, seconds):
    low = most = 0
    for high, call in enumerate(calls):
        while call - calls[low] > seconds:
            low += 1
        most = max(most, high - low + 1)
    return most


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_executors_that_come_and_go_never_pass_the_limit(tmp_path, seed):
    cluster = Cluster(tmp_path, 80, seed, [2, 1, 3])
    for executor in cluster.executors:
        cluster.run(cluster.draw.choice([0, 0.3, 2]))
        executor.busy = True
    cluster.run(6)
    for _ in range(4):
        executor = cluster.draw.choice(cluster.executors)
        executor.busy = not executor.busy
        cluster.run(cluster.draw.choice([1, 4, 12]))
    assert len(cluster.calls) > 200
    for seconds in (1, 2.5):
        assert most_within(cluster.calls, seconds) <= 80 * seconds + len(cluster.executors)


def test_one_executor_has_all_of_it_at_once_and_after_the_others_have_gone(tmp_path):
    cluster = Cluster(tmp_path, 60, 1, [2, 1])
    one, other = cluster.executors
    one.busy = True
    cluster.run(3)
    assert len(one.calls) >= 0.9 * 2.5 * 60
    other.busy = True
    cluster.run(VALID_SECONDS + 1)
    before = len(one.calls), len(other.calls)
    cluster.run(4)
    shares = [len(one.calls) - before[0], len(other.calls) - before[1]]
    assert min(shares) >= 0.9 * 4 * 30
    one.busy = False
    cluster.run(GONE_SECONDS + 2)
    before = len(other.calls)
    cluster.run(3)
    assert len(other.calls) - before >= 0.9 * 3 * 60


def test_who_stood_still_for_long_comes_anew(tmp_path):
    bucket = Bucket(owner="me")
    bucket.saw({"me": 1}, began=10.0, left=10.1)
    assert (bucket.executors, bucket.begins < 10) == (1, True)
    bucket.saw({"me": 2, "other": 1}, began=11.0, left=11.1)
    assert (bucket.executors, bucket.begins < 11) == (2, True)  # who comes waits, we do not
    bucket.saw({"me": 3, "other": 9}, began=30.0, left=30.1)
    assert (bucket.executors, bucket.begins) == (2, 30.1 + VALID_SECONDS)


def test_without_others_nothing_is_asked_of_the_storage(tmp_path):
    now = [50.0]
    rate = SharedRate(10, tmp_path / "rate.json", None, lambda: now[0])
    second = SharedRate(10, tmp_path / "rate.json", None, lambda: now[0])
    assert rate.take() == 0
    assert 0.09 < second.take() < 0.12  # one bucket
    now[0] += 0.11
    assert second.take() == 0
    assert rate.take() > 0
    now[0] += 60
    assert rate.take() == 0
    assert rate.take() > 0  # what was not used is lost
    assert GRAIN_SECONDS < 0.1


@pytest.mark.full  # the tests above turn the clock themselves
def test_two_event_loops_share_a_limit_in_real_time(tmp_path, monkeypatch):
    for name, seconds in (("LOOK_SECONDS", 0.1), ("VALID_SECONDS", 0.3), ("GONE_SECONDS", 1.0)):
        monkeypatch.setattr(rates, name, seconds)
    begins = {"one": 0.0, "other": 0.4}
    calls = {name: [] for name in begins}

    async def call(name):
        marks = Marks(ResultStore(str(tmp_path / "job")).within("marks"))
        rate = SharedRate(200, tmp_path / f"{name}.json", marks)
        await asyncio.sleep(begins[name])
        while time.monotonic() < end:
            await rate.turn()
            calls[name].append(time.monotonic())

    end = time.monotonic() + 2.0
    loops = [threading.Thread(target=asyncio.run, args=[call(name)]) for name in begins]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    every = sorted(calls["one"] + calls["other"])
    assert most_within(every, 0.5) <= 200 * 0.5 + 4
    assert len(every) >= 200 * 2.0 * 0.6
    assert min(calls["other"]) - min(calls["one"]) >= 0.4 + 0.3 - 0.05
    late = [sum(end - 0.5 < at for at in calls[name]) for name in begins]
    assert max(late) <= 2 * min(late), "each has about a half in the end"


def test_a_storage_that_is_gone_is_told(tmp_path):
    class Gone(Marks):
        def numbers(self):
            raise StorageError("It is gone.")

    rate = SharedRate(200, tmp_path / "rate.json", Gone(ResultStore(str(tmp_path / "marks"))))
    with pytest.raises(StorageError, match="It is gone"):
        asyncio.run(rate.turn())
    with pytest.raises(StorageError, match="by which workers share a rate, cannot be opened"):
        SharedRate(200, tmp_path / "no" / "rate.json").take()
