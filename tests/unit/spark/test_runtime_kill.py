"""Single executions are killed: who is, when, and what is known of them after. Nothing here starts Spark."""

from __future__ import annotations

import numpy as np
import pytest

from driver_loop import END, Loop, Status, deploy, failed, finished, ints
from firesteel.results.storage.store import object_name
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Cancel, SetTimer
from firesteel.spark.driver.batch import Batch
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkTask
from firesteel.spark.placement.watch import Killer, TaskGone, TasksLost, Watcher


def running(token, partition, again=False):
    return SparkTask(token, partition, 1.0, "0", "h", again)


@pytest.fixture
def watched():
    """A batch of subtasks 5, 6, 9 whose tasks 100, 101 run and 102 waits; the status store, the killer, a look, what was told."""
    status, told = Status(running(100, 0), running(101, 1)), []
    killer = Killer(status.kill, told.append)
    watcher = Watcher(status, NodeNames(), list, told.append, killer=killer, of_wall=lambda at: at)
    batch = Batch.of(0, [deploy(5, 6, 9)], "job", "words")
    watcher.look_at(batch)
    told.clear()
    return batch, status, killer, watcher.look, told


def test_a_running_task_is_killed_and_told_when_it_is_gone(watched):
    batch, status, killer, look, told = watched
    killer.kill(batch, [6], "why")
    look()
    look()
    assert (status.killed, told) == ([101], [])
    status.tasks = [running(100, 0), running(103, 1, again=True)]
    look()
    assert told == [TaskGone(batch, 6, 101)] and killer.batches() == []
    look()
    assert status.killed == [101], "its second run ends by itself"


def test_one_that_waits_is_killed_as_soon_as_it_is_seen(watched):
    batch, status, killer, look, _ = watched
    killer.kill(batch, [9], "why")
    look()
    assert status.killed == [] and killer.is_urgent
    status.tasks.append(running(102, 2))
    look()
    assert status.killed == [102]


def test_what_begins_in_the_slot_of_a_killed_task_is_seen():
    """Spark's counts leave out what was killed: after one for another they are as before."""

    class Counting(Status):
        def counts(self, stage):
            return len(self.tasks), 0, 0

        def running(self, stage, attempts):
            if self.killed:  # it goes after the counts were read
                self.tasks = self.tasks[:1]
            return list(self.tasks)

    status, told = Counting(running(100, 0), running(101, 1)), []
    killer, batch = Killer(status.kill, told.append), Batch.of(0, [deploy(5, 6, 9)], "job", "words")
    watcher = Watcher(status, NodeNames(), lambda: [batch], told.append, killer=killer, of_wall=lambda at: at)
    killer.kill(batch, [6], "why")
    watcher.look()
    watcher.look()
    assert told[-1] == TaskGone(batch, 6, 101)
    status.killed, status.tasks = [], [running(100, 0), running(102, 2)]
    watcher.look()
    assert told[-1].subtasks.tolist() == [9]


def test_one_that_has_spoken_is_left_alone(watched):
    batch, status, killer, look, told = watched
    killer.kill(batch, [6, 9], "why")
    killer.has_ended(batch, [6, 9])
    look()
    assert (status.killed, told, killer.batches()) == ([], [], [])


def test_the_tasks_of_a_cancelled_job_are_followed_to_their_ends(watched):
    """Spark kills them itself; its job has returned long before they are gone."""
    batch, status, killer, look, told = watched
    killer.kill(batch, [9], "why")
    killer.follow(batch, [5, 9])
    look()
    batch.ended.set()
    look()
    assert (status.killed, told) == ([], []) and killer.batches() == [batch]
    status.tasks = [running(101, 1)]
    look()
    assert told == [TaskGone(batch, 5, 100)] and killer.batches() == []


def test_a_batch_that_never_came_to_run_is_forgotten(watched):
    _, status, killer, look, told = watched
    never = Batch.of(3, [deploy(1)], "job", "words")
    status.stage = None
    killer.follow(never, [1])
    look()
    assert killer.batches() == [never]
    never.ended.set()
    look()
    assert (killer.batches(), told) == ([], [])


def test_killing_makes_the_watcher_look_at_once():
    seen = []

    class Seen(Status):
        def counts(self, stage):
            seen.append(stage)
            return super().counts(stage)

    status = Seen(running(100, 0))
    told, batch = [], Batch.of(0, [deploy(5)], "job", "words")
    killer = Killer(lambda task, reason: (told.append((task, reason)), watcher.stop()), told.append)
    watcher = Watcher(status, NodeNames(), list, told.append, killer=killer, of_wall=lambda at: at, seconds=60.0)
    watcher.start()
    killer.kill(batch, [5], "another was faster")
    watcher._thread.join(600)
    assert told[0] == (100, "another was faster") and not watcher._thread.is_alive()


# --- the job's loop -------------------------------------------------------------------------------------------------


class Killing(Killer):
    """Remembers what it is asked."""

    def __init__(self):
        super().__init__(lambda task, reason: None, lambda gone: None)
        self.asked = []

    def kill(self, batch, subtasks, reason):
        self.asked.append(("kill", sorted(subtasks), reason))

    def follow(self, batch, subtasks):
        self.asked.append(("follow", sorted(subtasks)))

    def has_ended(self, batch, subtasks):
        self.asked.append(("spoken", sorted(subtasks)))


def looped(answer, **given):
    loop = Loop(answer, **given)
    loop.driver._killer = loop.driver._cancelling._killer = Killing()
    return loop


def cancel(*subtasks):
    return Cancel(1, ints(*subtasks), ints(*[0] * len(subtasks)), "lost the race")


def test_a_loser_is_killed_while_its_siblings_go_on_and_what_it_wrote_goes_when_it_is_gone():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1, 2), cancel(1), SetTimer("end", 0.05)]
        return [END] if isinstance(event, ev.TimerFired) else None

    loop = looped(answer)
    start = loop.runner.start.side_effect

    def and_go(batch, code):
        start(batch, code)
        loop.put(TaskGone(batch, 1, 77))

    loop.runner.start.side_effect = and_go
    end = loop.run()
    assert loop.driver._killer.asked == [("kill", [1], "firesteel: lost the race")]
    assert loop.scheduler.of(ev.ExecutionsCancelled)[0].subtasks.tolist() == [1]
    loop.store.delete.assert_called_once_with([object_name(1, 1, 0, 77)])
    assert end.had_zombies and list(loop.batches[0].open) == [(1, 0), (1, 2)]


def test_one_that_must_be_alone_counts_when_its_task_is_gone():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1), cancel(1), SetTimer("gone", 0.05)]
        if isinstance(event, ev.TimerFired):
            assert not loop.scheduler.of(ev.ExecutionsCancelled)
            loop.put(TaskGone(loop.batches[0], 1, 77))
        return [END] if isinstance(event, ev.ExecutionsCancelled) else None

    loop = looped(answer)
    loop.compiled.job_graph.vertices[1].supports_concurrent_attempts = False
    loop.run()
    (told,) = loop.scheduler.of(ev.ExecutionsCancelled)
    assert (told.subtasks.tolist(), told.attempts.tolist()) == ([1], [0])
    assert list(loop.batches[0].open) == [(1, 0)]


def test_when_only_losers_are_left_the_job_is_cancelled_and_they_are_followed():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1), cancel(1)]
        return [END] if isinstance(event, ev.ExecutionsFinished) else None

    loop = looped(answer)
    loop.put(finished(0, 7))
    loop.run()
    assert loop.driver._killer.asked[-1] == ("follow", [1])
    assert loop.runner.cancel.called


def test_what_finished_before_its_batch_was_cancelled_is_never_deleted():
    def answer(event):
        if isinstance(event, ev.ExecutionsFinished):
            return [cancel(1), SetTimer("end", 0.05)]
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1)]
        return [END] if isinstance(event, ev.TimerFired) else None

    loop = looped(answer)
    loop.put(finished(0, 7))
    loop.run()
    assert loop.driver._killer.asked == [("follow", [1])]


def test_the_second_run_of_a_killed_task_is_stale_and_stops_the_search():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1, 2), cancel(1)]
        return [END] if isinstance(event, ev.ExecutionsFailed) else None

    loop = looped(answer)
    loop.put(failed(1, 78))
    loop.run()
    assert ("spoken", [1]) in loop.driver._killer.asked
    assert np.array_equal(loop.batches[0].remaining()[0][1], [0, 2])


# --- executors that are gone ----------------------------------------------------------------------------------------


def test_what_ran_on_an_executor_that_is_gone_is_lost_before_spark_starts_it_again():
    status, told = Status(SparkTask(100, 0, 1.0, "0", "a"), SparkTask(101, 1, 1.0, "1", "b")), []
    status.hosts = {"0": "a", "1": "b"}
    batch = Batch.of(0, [deploy(5, 6, 9)], "job", "words")
    watcher = Watcher(status, NodeNames(), lambda: [batch], told.append, killer=Killer(print, print), of_wall=float)
    watcher.look()
    del status.hosts["1"]
    watcher.look()
    assert told[-2].executor == "1" and told[-1] == TasksLost(batch, (6,), "b")


@pytest.mark.parametrize("exclusive", [False, True])
def test_lost_tasks_are_told_once_unless_they_must_be_alone(exclusive):
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1, 2), SetTimer("lost", 0.02)]
        if isinstance(event, ev.TimerFired) and event.timer == "lost":
            loop.put(*[TasksLost(loop.batches[0], (1, 2), "h")] * 2)
            return [SetTimer("end", 0.05)]
        return [END] if isinstance(event, ev.TimerFired) else None

    loop = looped(answer)
    loop.compiled.job_graph.vertices[1].supports_concurrent_attempts = not exclusive
    loop.put(finished(2, 7))
    loop.run()
    told = [(e.subtasks.tolist(), e.attempts.tolist(), e.cause.kind) for e in loop.scheduler.of(ev.ExecutionsFailed)]
    assert told == ([] if exclusive else [([1], [0], ev.FailureKind.LOST)])
    assert list(loop.batches[0].open) == ([(1, 0), (1, 1)] if exclusive else [(1, 0)])


def test_the_second_run_of_a_lost_dataframe_task_is_killed():
    """Spark may run it in another attempt of the stage, where it takes itself for the first."""

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1, 2), SetTimer("lost", 0.0)]
        if isinstance(event, ev.TimerFired) and event.timer == "lost":
            loop.put(TasksLost(loop.batches[0], (1, 2), "h"))
            return [SetTimer("end", 0.05)]
        return [END] if isinstance(event, ev.TimerFired) else None

    loop = looped(answer)
    loop.compiled.dataframes[1] = None
    loop.run()
    assert loop.driver._killer.asked[0] == ("kill", [1, 2], "firesteel: The executor on h that ran the task is gone.")
    assert list(loop.batches[0].open) == [(1, 0)]
