"""The job's loop without Spark: what it tells the scheduler of messages and ends of batches, and how it carries out commands."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from driver_loop import END, Loop, Py4JJavaError, Status, deploy, failed, finished, ints
from firesteel.model.sizes import unpack
from firesteel.results.storage.store import ResultStore
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import (
    Cancel,
    CancelTimer,
    CommitSinks,
    DiscardExecutions,
    ReleasePartitions,
    SetTimer,
    VerifyPartitions,
)
from firesteel.scheduler.kernel.waits import ForRestart
from firesteel.spark.driver.batch import Batch, BatchEnded
from firesteel.spark.driver.loop import MANY_OPEN
from firesteel.spark.placement import pools
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkTask
from firesteel.spark.placement.watch import Killer, Watcher
from firesteel.spark.storage.outputs import NotPublishedError, publish
from firesteel.task.executor import notes
from runtime_support import RecordingSink


def deploying(*subtasks, until, also=None):
    """Deploys at the start, ends the job when ``until`` says so."""

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(*subtasks), *(also or [])]
        return [END] if until(event) else None

    return answer


def test_messages_that_came_already_are_reconciled_and_a_retrys_are_told():
    loop = Loop(deploying(0, 1, until=lambda e: isinstance(e, ev.TimerFired), also=[SetTimer("end", 0.2)]))
    loop.put(finished(0, 7), finished(0, 7), finished(1, 8), finished(1, 99))
    loop.run()
    told = [
        pair
        for e in loop.scheduler.of(ev.ExecutionsFinished)
        for pair in zip(e.subtasks.tolist(), e.reports.tokens.tolist(), strict=True)
    ]
    assert told == [(0, 7), (1, 8), (1, 99)]


def test_finished_executions_are_told_in_bulk():
    loop = Loop(deploying(*range(50), until=lambda e: isinstance(e, ev.ExecutionsFinished)))
    loop.put(*[finished(k, 100 + k) for k in range(50)])
    loop.run()
    (event,) = loop.scheduler.of(ev.ExecutionsFinished)
    assert event.subtasks.tolist() == list(range(50))
    (partition,) = event.reports.partitions
    assert partition.bytes.tolist() == [5] * 50 and partition.stored_bytes.tolist() == [9] * 50
    assert [unpack(row).tolist() for row in partition.sizes] == [[5]] * 50
    assert event.reports.rows_out.tolist() == [3] * 50 and event.reports.nodes[3] == "node"


def test_messages_of_very_many_open_executions_are_told_together():
    """They come one by one, a moment apart; the last ones are told of at once."""
    n = 10 * MANY_OPEN
    heard: set[int] = set()

    def ends(event):
        if isinstance(event, ev.ExecutionsFinished):
            heard.update(event.subtasks.tolist())
        return len(heard) == n

    loop = Loop(deploying(*range(n), until=ends))
    start = loop.runner.start.side_effect

    def tell():
        for subtask in range(n):
            loop.put(finished(subtask, 100 + subtask))
            threading.Event().wait(1e-4)

    def and_tell(batch, code):
        start(batch, code)
        threading.Thread(target=tell).start()

    loop.runner.start.side_effect = and_tell
    loop.run()
    sizes = [len(event.subtasks) for event in loop.scheduler.of(ev.ExecutionsFinished)]
    assert sum(sizes) == n
    many = [size for before, size in zip(np.cumsum([0, *sizes]), sizes, strict=False) if n - before >= MANY_OPEN]
    assert np.mean(many) > 3, sizes


def test_results_fill_in_for_messages_that_were_lost():
    loop = Loop(deploying(0, 1, until=lambda e: isinstance(e, ev.ExecutionsFinished) and 1 in e.subtasks))
    loop.put(finished(0, 7))
    start = loop.runner.start.side_effect

    def and_end(batch, code):
        start(batch, code)
        loop.put(BatchEnded(batch, [finished(0, 7), finished(1, 8)], None))

    loop.runner.start.side_effect = and_end
    loop.run()
    assert not loop.scheduler.of(ev.ExecutionsFailed)


def test_the_culprit_is_charged_and_unfinished_siblings_are_not():
    loop = Loop(deploying(4, 5, 6, 7, until=lambda e: isinstance(e, ev.ExecutionsFailed) and not e.counted))
    start = loop.runner.start.side_effect

    def and_die(batch, code):
        start(batch, code)
        text = "Task 2 in stage 9.0 failed 1 times, most recent failure: Lost task 2.0 in stage 9.0 (TID 1) (h executor 1): Python worker exited unexpectedly (crashed)"
        loop.put(finished(4, 1), BatchEnded(batch, [], Py4JJavaError(text)))

    loop.runner.start.side_effect = and_die
    loop.run()
    culprit, uncounted = loop.scheduler.of(ev.ExecutionsFailed)
    assert (culprit.subtasks.tolist(), culprit.counted, culprit.cause.kind) == ([6], True, ev.FailureKind.WORKER)
    assert (uncounted.subtasks.tolist(), uncounted.counted) == ([5, 7], False)


def test_a_user_error_is_told_with_its_trace_and_its_batch_lives_on():
    loop = Loop(deploying(0, 1, until=lambda e: isinstance(e, ev.ExecutionsFinished)))
    loop.put(failed(0, 1), finished(1, 2))
    loop.run()
    (event,) = loop.scheduler.of(ev.ExecutionsFailed)
    assert (event.cause.message, event.cause.trace, event.subtasks.tolist()) == ("bad", "frames", [0])


def cancelling(*subtasks):
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1), Cancel(1, ints(*subtasks), ints(*[0] * len(subtasks)), "why")]
        return [END] if isinstance(event, ev.ExecutionsCancelled) else None

    return answer


def test_a_whole_batch_is_cancelled_in_spark_and_told_when_it_has_ended():
    loop = Loop(cancelling(0, 1))
    loop.runner.cancel.side_effect = lambda batch: (loop._cancelled(batch), loop.put(BatchEnded(batch, [], None)))
    loop.run()
    loop.runner.cancel.assert_called_once_with(loop.batches[0])
    assert sorted(loop.scheduler.of(ev.ExecutionsCancelled)[0].subtasks.tolist()) == [0, 1]


def test_a_single_execution_is_let_go_and_told_at_once():
    loop = Loop(cancelling(1))
    loop.run()
    assert loop.scheduler.of(ev.ExecutionsCancelled)[0].subtasks.tolist() == [1]
    assert list(loop.batches[0].open) == [(1, 0)]


def test_a_slow_execution_and_its_mirror_are_cancelled_together():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0), deploy(0, attempt=1), Cancel(1, ints(0, 0), ints(0, 1), "why")]
        return [END] if len(loop.scheduler.of(ev.ExecutionsCancelled)) == 2 else None

    loop = Loop(answer)
    loop.runner.cancel.side_effect = lambda batch: (loop._cancelled(batch), loop.put(BatchEnded(batch, [], None)))
    loop.run()
    told = [(e.subtasks.tolist(), e.attempts.tolist()) for e in loop.scheduler.of(ev.ExecutionsCancelled)]
    assert sorted(told) == [([0], [0]), ([0], [1])]


def test_an_attempt_that_must_be_alone_counts_as_cancelled_when_it_has_ended(monkeypatch):
    """The batch is cancelled in Spark as soon as only such ones are left, and its workers get time to die."""
    monkeypatch.setattr("firesteel.spark.driver.cancelling.ZOMBIE_SECONDS", 0.1)
    loop = Loop(cancelling(1))
    loop.compiled.job_graph.vertices[1].supports_concurrent_attempts = False
    ended = []

    def end(batch):
        loop._cancelled(batch)
        ended.append(loop.driver._now())
        loop.put(BatchEnded(batch, [], None))

    loop.runner.cancel.side_effect = end
    loop.put(finished(0, 7))
    loop.run()
    (told,) = loop.scheduler.of(ev.ExecutionsCancelled)
    assert told.subtasks.tolist() == [1] and told.at >= ended[0] + 0.1
    assert loop.scheduler.told.index(loop.scheduler.of(ev.ExecutionsFinished)[0]) < loop.scheduler.told.index(told)


def test_when_only_what_was_let_go_still_runs_the_batch_is_cancelled():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1), Cancel(1, ints(1), ints(0), "why")]
        return [END] if isinstance(event, ev.ExecutionsFinished) else None

    loop = Loop(answer)
    loop.put(finished(0, 7))
    loop.run()
    loop.runner.cancel.assert_any_call(loop.batches[0])
    assert loop.batches[0].let_go


def test_what_does_not_run_any_more_is_cancelled_at_once():
    loop = Loop(cancelling(8, 9))
    loop.run()
    assert loop.scheduler.of(ev.ExecutionsCancelled)[0].subtasks.tolist() == [8, 9]


def test_released_and_discarded_objects_are_deleted_and_a_losers_sink_output_is_aborted():
    sink = RecordingSink()
    gone = ReleasePartitions(0, ints(0, 1), ints(0, 2), ints(5, 6))

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0), gone]
        if isinstance(event, ev.ExecutionsFinished):
            return [DiscardExecutions(1, ints(0), ints(0), ints(7)), END]
        return None

    loop = Loop(answer, sink)
    loop.put(finished(0, 7, commits=(pickle.dumps("message"),)))
    loop.run()
    deleted = [call.args[0] for call in loop.store.delete.call_args_list]
    assert deleted == [["d0-p0-a0-t5.fsr", "d0-p1-a2-t6.fsr"], ["d1-p0-a0-t7.fsr"]]
    assert sink.calls == [("abort", ["message"])]


def test_objects_that_are_not_stored_any_more_are_told():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [VerifyPartitions(0, ints(0, 1, 2), ints(0, 2, 0), ints(5, 6, 7))]
        return [END]

    loop = Loop(answer)
    loop.store.list.return_value = ["d0-p1-a2-t6.fsr", "d0-p2-a0-t9.fsr"]
    loop.run()
    (lost,) = loop.scheduler.of(ev.PartitionsLost)
    assert (lost.dataset, lost.partitions.tolist(), lost.tokens.tolist()) == (0, [0, 2], [5, 7])


@pytest.mark.parametrize("error", [None, OSError(28, "No space left on device")])
def test_sinks_are_committed_with_the_winners_in_order(error):
    sink = RecordingSink(commit_error=error)
    winners = {1: [(0, (pickle.dumps("a"),)), (3, (pickle.dumps("b"),))]}

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [CommitSinks(winners)]
        return [END]

    loop = Loop(answer, sink)
    loop.run()
    assert sink.calls == [("commit", ["a", "b"])]
    if error is None:
        assert loop.scheduler.of(ev.SinksCommitted)
    else:
        (failed_,) = loop.scheduler.of(ev.SinksFailed)
        assert "recording" in failed_.cause.message
        assert failed_.cause.kind is ev.FailureKind.STORAGE


def test_timers_fire_in_their_time_and_a_later_setting_counts():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [SetTimer("a", 0.01), SetTimer("b", 30.0), SetTimer("b", 0.05)]
        return [END] if isinstance(event, ev.TimerFired) and event.timer == "b" else None

    loop = Loop(answer)
    loop.run()
    assert [e.timer for e in loop.scheduler.of(ev.TimerFired)] == ["a", "b"]
    assert loop.scheduler.told[-1].at >= 0.05


def test_a_timer_that_is_cancelled_by_another_one_due_with_it_does_not_fire():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [SetTimer("a", 0.0), SetTimer("b", 0.0), SetTimer("end", 0.05)]
        if isinstance(event, ev.TimerFired):
            return [CancelTimer("b" if event.timer == "a" else "a")] if event.timer != "end" else [END]
        return None

    loop = Loop(answer)
    loop.run()
    fired = [e.timer for e in loop.scheduler.of(ev.TimerFired)]
    assert fired in (["a", "end"], ["b", "end"])


def test_a_job_without_news_says_what_it_waits_for_ever_more_rarely(monkeypatch):
    monkeypatch.setattr("firesteel.spark.driver.loop.QUIET_SECONDS", 0.05)
    said, seen = [], []

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [SetTimer("end", 0.3)]
        seen.append(loop.driver.waiting_for())
        return [END]

    loop = Loop(answer, record=said.append)
    assert loop.driver.waiting_for() == ["The job waits for its start."]
    loop.scheduler.waiting_for = lambda: [ForRestart(2)]
    told = "Waiting for the delay of a restart: 2 subtasks."
    loop.run()
    assert {(d.what, d.reason) for d in said} == {("waiting", told)}
    assert len(said) <= 3, "0.05, 0.15 and at most 0.35 s"
    assert seen == [[told]], "others see the snapshot that the job's thread has taken"
    assert loop.driver.waiting_for() == [], "the job has ended"


def test_a_fault_in_the_scheduler_stops_what_runs():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1)]
        raise RuntimeError("a fault of ours")

    loop = Loop(answer)
    loop.put(finished(0, 1))
    with pytest.raises(RuntimeError, match="a fault of ours"):
        loop.run()
    loop.runner.cancel.assert_called_once()


def test_what_a_worker_left_before_it_ended_itself_is_told_of_it(tmp_path):
    store = ResultStore(str(tmp_path))
    notes.leave(store, (1, 2, 0), "Step 'train' was stopped at its limit of memory on h.", "Give it more.")

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 2)]
        return [END] if len(loop.scheduler.of(ev.ExecutionsFailed)) == 2 else None

    loop = Loop(answer, store=store)
    start = loop.runner.start.side_effect
    text = "Task 1 in stage 9.0 failed 1 times, most recent failure: Lost task 1.0 in stage 9.0 (TID 1) (h executor 1): Python worker exited unexpectedly (crashed)"
    loop.runner.start.side_effect = lambda batch, code: (
        start(batch, code),
        loop.put(BatchEnded(batch, [], Py4JJavaError(text))),
    )
    loop.run()
    failures = {e.subtasks.tolist()[0]: e for e in loop.scheduler.of(ev.ExecutionsFailed)}
    assert (failures[2].counted, failures[0].counted) == (True, False)
    cause = failures[2].cause
    assert (cause.kind, cause.hint) == (ev.FailureKind.USER, "Give it more.")
    assert cause.message == "Step 'train' was stopped at its limit of memory on h."


def test_a_cancelled_batch_that_does_not_return_is_given_up(monkeypatch):
    monkeypatch.setattr("firesteel.spark.driver.cancelling.CANCEL_PATIENCE_SECONDS", 0.05)
    loop = Loop(cancelling(0, 1))
    loop.runner.cancel.side_effect = lambda batch: None
    loop.run()
    assert sorted(loop.scheduler.of(ev.ExecutionsCancelled)[0].subtasks.tolist()) == [0, 1]


def test_a_job_cancelled_by_others_in_spark_is_cancelled():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0)]
        return [END] if isinstance(event, ev.ExecutionsCancelled) else None

    loop = Loop(answer)
    start = loop.runner.start.side_effect

    def and_end(batch, code):
        start(batch, code)
        loop.put(BatchEnded(batch, [], Py4JJavaError("Job 3 cancelled as part of cancellation of all jobs")))

    loop.runner.start.side_effect = and_end
    end = loop.run()
    assert loop.scheduler.of(ev.CancelRequested)
    assert end.had_zombies


def launched(*pairs):
    subtasks, attempts = zip(*pairs, strict=True)
    return ev.ExecutionsDeploying(
        at=0.1, vertex=1, subtasks=ints(*subtasks), attempts=ints(*attempts), nodes=["h"] * len(pairs)
    )


def test_launches_of_what_has_reported_or_was_never_sent_are_not_told():
    loop = Loop(deploying(0, 1, until=lambda e: isinstance(e, ev.TimerFired), also=[SetTimer("end", 0.05)]))
    loop.put(finished(0, 7), launched((0, 0), (1, 0), (1, -1), (9, 0)), launched((0, 0)))
    loop.run()
    (told,) = loop.scheduler.of(ev.ExecutionsDeploying)
    assert (told.subtasks.tolist(), told.attempts.tolist(), told.nodes) == ([1], [0], ["h"])


class Emptying(dict):
    """As if the job's thread closed an execution between two looks at it."""

    def __contains__(self, key):
        self.pop(key)
        return True


def test_the_watcher_looks_once_at_what_is_open():
    told = []
    watcher = Watcher(
        Status(SparkTask(7, 0, 1.0, "1", "h")),
        NodeNames(),
        lambda: [],
        told.append,
        killer=Killer(print, told.append),
        of_wall=lambda at: at,
    )
    batch = Batch.of(0, [deploy(5)], "job", "words")
    batch.open = Emptying(batch.open)
    watcher.look_at(batch)
    assert [(e.subtasks.tolist(), e.attempts.tolist(), e.times.tolist()) for e in told] == [([5], [0], [1.0])]


def test_a_session_that_was_stopped_is_an_error_and_no_cancellation():
    loop = Loop(deploying(0, until=lambda e: isinstance(e, ev.ExecutionsFailed)))
    start = loop.runner.start.side_effect

    def and_end(batch, code):
        start(batch, code)
        loop.put(BatchEnded(batch, [], Py4JJavaError("Job 3 cancelled because SparkContext was shut down")))

    loop.runner.start.side_effect = and_end
    loop.run()
    assert not loop.scheduler.of(ev.CancelRequested)
    assert loop.scheduler.of(ev.ExecutionsFailed)[0].cause.kind is ev.FailureKind.FATAL


class HeldSink(RecordingSink):
    rollback_error: Exception | None = None

    def hold(self):
        self.calls.append(("hold", None))

    def rollback(self):
        self.calls.append(("rollback", None))
        if self.rollback_error is not None:
            raise self.rollback_error

    def release(self):
        self.calls.append(("release", None))


def steps(sink):
    return [call for call, _ in sink.calls]


def test_several_sinks_are_published_together():
    plain, held = RecordingSink("plain"), HeldSink("held")
    publish([(plain, ["a"]), (held, ["b"])])
    assert (steps(plain), steps(held)) == (["commit"], ["hold", "commit", "release"])


def test_a_sink_that_cannot_publish_has_the_others_taken_back():
    plain, held = RecordingSink("plain", commit_error=OSError(28, "full")), HeldSink("held")
    with pytest.raises(NotPublishedError, match=r"'plain' could not be published: OSError.*full") as raised:
        publish([(plain, ["a"]), (held, ["b"])])
    assert (raised.value.published, raised.value.storage) == ([], True)
    assert steps(held) == ["hold", "commit", "rollback"]


def test_what_cannot_be_taken_back_is_named():
    first, second, third = (
        HeldSink("first"),
        RecordingSink("second"),
        RecordingSink("third", commit_error=ValueError("no")),
    )
    first.rollback_error = OSError(5, "broken")
    with pytest.raises(NotPublishedError, match=r"'third' could .* left as it is: 'first', 'second'") as raised:
        publish([(second, []), (third, []), (first, [])])
    assert raised.value.published == [first, second]
    assert not raised.value.storage


def test_one_sink_alone_is_just_committed():
    held = HeldSink("held")
    publish([(held, ["b"])])
    assert steps(held) == ["commit"]


def test_a_spark_job_that_ends_without_some_of_its_messages_is_tried_again():
    loop = Loop(deploying(0, 1, until=lambda e: isinstance(e, ev.ExecutionsFailed) and not e.counted))
    start = loop.runner.start.side_effect
    loop.runner.start.side_effect = lambda batch, code: (start(batch, code), loop.put(BatchEnded(batch, [], None)))
    loop.run()
    cause = loop.scheduler.of(ev.ExecutionsFailed)[0].cause
    assert (cause.kind, cause.message) == (
        ev.FailureKind.WORKER,
        "Spark's job ended before some of its tasks reported.",
    )


def test_the_pool_of_a_batch_that_was_given_up_is_lent_out_again(monkeypatch):
    monkeypatch.setattr("firesteel.spark.driver.cancelling.CANCEL_PATIENCE_SECONDS", 0.05)
    loop = Loop(cancelling(0, 1))
    loop.runner.cancel.side_effect = lambda batch: None
    loop.run()
    assert pools.borrow() == loop.batches[0].pool
    pools.give_back(loop.batches[0].pool)
