"""The scheduler of a stream: each state, what it is told there and what it asks for, and what it writes down."""

from __future__ import annotations

import itertools
import math

import pytest
from tests.stream_kit import COUNT, Stream

from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.scheduler.streaming import events
from firesteel.scheduler.streaming.adaptive_scheduler import AdaptiveScheduler
from firesteel.scheduler.streaming.commands import (
    Action,
    Continue,
    EndStream,
    Rescale,
    SetCommitBarrier,
    StartQuery,
    StopQuery,
)
from firesteel.scheduler.streaming.events import RescaleStep, StreamPlan
from firesteel.scheduler.streaming.records import StreamBatch, StreamEnded, StreamPlanned, StreamStateChange
from firesteel.scheduler.streaming.states import SCHEDULER_STATES, Phase, SchedulerState
from firesteel.scheduler.streaming.wish import ResourceRequirements

S = SchedulerState
DONE = EndStream(failed=False, cause="")
TO_32 = Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=False)
WIDE = StreamPlan(stateful=("count",), parallelism=32)
OFTEN = {"restart-strategy.fixed-delay.attempts": 100, "restart-strategy.fixed-delay.delay": "1 s"}


def stop(stream):
    return stream.tell(events.StopRequested(at=stream.at))


def cancel(stream):
    return stream.tell(events.CancelRequested(at=stream.at))


def stopped(stream, **how):
    return stream.tell(events.QueryStopped(at=stream.at, run=stream.run, batch=stream.batch, **how))


def finished(stream):
    return stream.tell(events.QueryFinished(at=stream.at, run=stream.run, batch=stream.batch))


def ask(stream, parallelism=None):
    return stream.tell(events.RescaleRequested(at=stream.at, parallelism=parallelism))


def require(stream, lower, upper):
    return stream.tell(events.RequirementsChanged(at=stream.at, lower=lower, upper=upper))


def step(stream, kind, seconds=1.0):
    stream.at += seconds
    return stream.tell(
        events.RescaleStepped(at=stream.at, rescale=len(stream.rescales()) + 1, step=kind, batch=stream.batch)
    )


def rescaling(**options):
    """In the middle of a rescale from 2 to 32 partitions, begun at 41."""
    stream = Stream(**{**OFTEN, **options}).running()
    stream.to(40)
    stream.cores(8, complete=True)
    stream.to(41)
    assert stream.commit(at_barrier=True) == [TO_32]
    return stream


def states(stream):
    return [record.state for record in stream.records if isinstance(record, StreamStateChange) and not record.phase]


# -- waiting for resources


def test_it_starts_at_once_where_no_more_can_come():
    stream = Stream()
    assert stream.submit(2, complete=True) == [StartQuery(run=1, parallelism=8)]
    assert stream.state is S.CREATING_EXECUTION_GRAPH


def test_it_waits_for_more_slots_until_no_more_came():
    stream = Stream(upper=64)
    assert stream.submit(2, complete=False) == []
    stream.to(4)
    assert stream.cores(4) == []
    assert "more slots: 16 are there and enough" in stream.waits_for
    assert stream.to(10) == [StartQuery(run=1, parallelism=16)]


def test_it_starts_when_all_it_can_use_is_there():
    stream = Stream(upper=16)
    stream.submit(2, complete=False)
    stream.to(4)
    assert stream.cores(4) == [StartQuery(run=1, parallelism=16)]


def test_it_waits_for_its_lower_bound_and_then_starts_with_what_is_there():
    stream = Stream(lower=16)
    stream.submit(2, complete=True)
    assert stream.waits_for == "slots: 8 there, 16 needed, for at most another 5 min"
    assert stream.to(299) == []
    assert stream.to(300) == [StartQuery(run=1, parallelism=16)]
    assert not stream.decisions("parallelism")[-1].inputs["sufficient"]


def test_it_fails_where_no_core_came():
    stream = Stream()
    stream.submit(0)
    (end,) = stream.to(300)
    assert end.failed
    assert "No core was there" in end.cause
    assert stream.state is S.FINISHED


def test_it_waits_without_limit_if_asked_to():
    stream = Stream(**{"submission.resource-wait-timeout": "-1"})
    stream.submit(0)
    assert stream.to(1e6) == []
    assert stream.cores(1, complete=True) == [StartQuery(run=1, parallelism=4)]


def test_requirements_may_change_while_it_waits():
    stream = Stream(lower=100)
    stream.submit(2)
    assert require(stream, 1, 6) == [StartQuery(run=1, parallelism=6)]


# -- the end


@pytest.mark.parametrize("end", [stop, cancel])
def test_an_end_before_the_start(end):
    stream = Stream()
    assert end(stream) == [DONE]
    waiting = Stream(lower=100)
    waiting.submit(1)
    assert end(waiting) == [DONE]
    assert waiting.timers.keys() <= {"submission cooldown", "submission max delay"}


@pytest.mark.parametrize(("end", "savepoint"), [(stop, True), (cancel, False)])
def test_an_end_while_it_starts(end, savepoint):
    stream = Stream()
    stream.submit(1)
    assert end(stream) == [StopQuery(run=1, savepoint=savepoint)]
    assert stream.state is S.CANCELING
    assert stream.started() == []
    assert stopped(stream) == [DONE]


def test_a_stop_finishes_the_running_batch():
    stream = Stream().running()
    stream.begin()
    assert stop(stream) == [StopQuery(run=1, savepoint=True)]
    assert stream.state is S.STOP_WITH_SAVEPOINT
    assert stream.waits_for == "the running batch, then it stops"
    assert stop(stream) == []
    stream.commit()
    assert stopped(stream) == [DONE]
    assert states(stream)[-1] == "Finished"
    assert [record.status for record in stream.records if isinstance(record, StreamEnded)] == ["FINISHED"]


def test_a_cancel_does_not_wait():
    stream = Stream().running()
    stop(stream)
    assert cancel(stream) == [StopQuery(run=1, savepoint=False)]
    assert stream.state is S.CANCELING
    assert stopped(stream, committed=False) == [DONE]
    assert [record.status for record in stream.records if isinstance(record, StreamEnded)] == ["CANCELED"]


def test_a_cancel_overtakes_a_stop_while_it_starts():
    stream = Stream()
    stream.submit(1)
    stop(stream)
    assert cancel(stream) == [StopQuery(run=1, savepoint=False)]


def test_a_failure_while_it_is_cancelled_is_its_end():
    stream = Stream().running()
    cancel(stream)
    assert stream.fail() == [DONE]


def test_a_query_that_fails_before_its_last_commit_is_started_again_and_stopped_then():
    stream = Stream(**OFTEN).running()
    stream.begin()
    stop(stream)
    assert stream.fail(batch=0) == []
    assert stream.state is S.RESTARTING
    assert stream.to(1) == [StartQuery(run=2, parallelism=2)]
    assert stream.started() == [StopQuery(run=2, savepoint=True)]
    assert stopped(stream) == [DONE]


def test_a_query_that_fails_before_its_last_commit_and_may_not_be_started_again():
    stream = Stream(**{"restart-strategy.type": "none"}).running()
    stop(stream)
    assert stream.fail(batch=0) == [EndStream(failed=True, cause="it broke")]


def test_a_source_that_ends_is_the_end():
    stream = Stream().running()
    assert finished(stream) == [DONE]
    assert states(stream) == ["WaitingForResources", "CreatingExecutionGraph", "Finished"]


def test_after_the_end_nothing_is_asked_for():
    stream = Stream().running()
    finished(stream)
    assert stream.cores(64, complete=True) + cancel(stream) + ask(stream, 7) + stream.to(1e5) == []


# -- failures


def test_a_failure_is_followed_by_a_restart_as_the_strategy_says():
    stream = Stream(
        **{"restart-strategy.fixed-delay.attempts": 1, "restart-strategy.fixed-delay.delay": "5 s"}
    ).running()
    assert stream.fail("ValueError: bad row") == []
    assert stream.state is S.RESTARTING
    assert stream.waits_for == "a restart (in 5 s) after: ValueError: bad row"
    assert stream.to(5) == [StartQuery(run=2, parallelism=2)]
    stream.started()
    assert stream.fail("ValueError: again") == [EndStream(failed=True, cause="ValueError: again")]
    assert states(stream)[-2:] == ["Failing", "Finished"]
    assert [decision.result for decision in stream.decisions("restart")] == [5.0, None]
    assert "is used up, so the stream fails" in stream.decisions("restart")[-1].reason
    assert stream.scheduler.status().cause == "ValueError: again"


def test_what_is_not_the_streams_fault_is_not_charged():
    stream = Stream(**{"restart-strategy.fixed-delay.attempts": 1}).running()
    for run in range(2, 6):
        assert stream.fail("an executor was lost", counted=False) == []
        assert stream.to(stream.at + 1) == [StartQuery(run=run, parallelism=2)]
        stream.started()


def test_a_final_failure_is_the_end():
    stream = Stream(**OFTEN).running()
    assert stream.fail("wrong option", final=True) == [EndStream(failed=True, cause="wrong option")]


def test_a_start_that_fails_is_tried_again():
    stream = Stream(**OFTEN)
    stream.submit(1)
    assert stream.fail() == []
    assert stream.to(1) == [StartQuery(run=2, parallelism=4)]
    unlucky = Stream(**{"restart-strategy.type": "none"})
    unlucky.submit(1)
    assert unlucky.fail() == [EndStream(failed=True, cause="it broke")]


def test_a_restart_waits_for_slots_that_went():
    stream = Stream(lower=4, upper=4, **OFTEN).running(plan=StreamPlan(parallelism=4))
    stream.cores(0)
    stream.fail("no executor", counted=False)
    assert stream.to(1) == []
    assert stream.state is S.WAITING_FOR_RESOURCES
    assert stream.cores(1) == [StartQuery(run=2, parallelism=4)]


@pytest.mark.parametrize("end", [stop, cancel])
def test_an_end_while_it_waits_for_a_restart(end):
    stream = Stream(**OFTEN).running()
    stream.fail()
    assert end(stream) == [DONE]
    assert "restart" not in stream.timers


def test_a_restart_does_not_renew_the_cooldown():
    stream = Stream(**OFTEN).running()
    stream.to(20)
    stream.fail()
    stream.to(21)
    stream.started()
    assert stream.phase is Phase.COOLDOWN
    stream.to(30)
    assert stream.phase is Phase.IDLING


def test_a_change_survives_a_restart():
    stream = Stream(upper=64, **OFTEN).running()
    stream.to(5)
    stream.cores(8)
    stream.to(20)
    stream.fail()
    stream.to(21)
    stream.started()
    stream.to(30)
    assert stream.phase is Phase.STABILIZING
    assert stream.timers["rescale stabilization"] == 65


def test_the_count_of_failed_checkpoints_survives_a_restart():
    stream = Stream(
        **OFTEN,
        **{
            "execution.checkpointing.timeout": "10 s",
            "max-delay-for-scale-trigger": "1 h",
            "cooldown-after-rescaling": "0",
        },
    ).running()
    stream.cores(8)
    stream.begin()
    stream.fail(batch=0)
    stream.to(1)
    stream.started()
    stream.to(61)
    assert stream.phase is Phase.STABILIZED
    stream.begin(0)
    assert stream.to(70.9) == []
    assert stream.to(71) == [Rescale(rescale=1, run=3, parallelism=32, action=Action.REPARTITION, replay=True)]


def test_a_rescale_that_only_waits_for_a_checkpoint_is_made_with_the_restart():
    stream = Stream(**OFTEN, **{"scale-on-failed-checkpoints-count": 1}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    assert stream.fail(batch=0) == []
    stream.to(41)
    assert stream.commands[-1] == Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=True)
    for kind in (RescaleStep.COMMIT_BARRIER, RescaleStep.REPLAY, RescaleStep.REPARTITION, RescaleStep.START):
        step(stream, kind)
    stream.started(WIDE, replayed_rows=7)
    stream.begin()
    stream.commit()
    (record,) = stream.rescales()
    assert (record.cause, record.end, record.replayed_rows) == ("RECOVERABLE_FAILOVER", "completed", 7)
    assert record.trigger == "a restart after a failure"


def test_one_failed_checkpoint_of_two_makes_no_rescale_with_the_restart():
    stream = Stream(**OFTEN, **{"max-delay-for-scale-trigger": "10 min"}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    stream.fail(batch=0)
    assert stream.to(41) == [StartQuery(run=2, parallelism=2)]
    stream.started()
    stream.begin(0)
    stream.fail(batch=0)
    (begun,) = stream.to(42)
    assert begun == Rescale(rescale=1, run=3, parallelism=32, action=Action.REPARTITION, replay=True)


def test_a_restart_makes_no_rescale_before_the_slots_are_stable():
    stream = Stream(upper=64, **OFTEN, **{"scale-on-failed-checkpoints-count": 1}).running()
    stream.to(40)
    stream.cores(16)
    stream.fail(batch=0)
    stream.to(40.5)
    assert stream.cores(8) == []
    assert stream.to(41) == [StartQuery(run=2, parallelism=2)]


def test_what_changes_while_it_waits_for_its_restart_counts_from_then():
    stream = Stream(**{**OFTEN, "restart-strategy.fixed-delay.delay": "100 s"}).running()
    stream.to(40)
    stream.fail(batch=0)
    stream.to(83)
    ask(stream, 7)
    (begun,) = stream.to(140)
    assert (begun.parallelism, begun.replay) == (7, True), "max delay is over, and the query is down anyway"


def test_as_many_slots_as_it_ran_with_are_enough_for_a_restart():
    stream = Stream(lower=16, **OFTEN)
    stream.submit(2, complete=True)
    stream.to(300)
    stream.started()
    stream.fail()
    assert stream.to(301) == [StartQuery(run=2, parallelism=2)]
    stream.started()
    stream.cores(1)
    stream.fail()
    assert stream.to(302) == []
    assert stream.state is S.WAITING_FOR_RESOURCES


def test_under_dynamic_allocation_the_first_executor_is_waited_for_and_another_limit_is_a_signal():
    dynamic = Stream()
    dynamic.cores(0, dynamic=True, limited=True)
    assert dynamic.tell(events.StreamSubmitted(at=0)) == []
    dynamic.to(2)
    assert dynamic.cores(8, dynamic=True, limited=True) == [StartQuery(run=1, parallelism=32)]
    dynamic.started(WIDE)
    dynamic.to(40)
    dynamic.cores(1, dynamic=True, limited=True)
    assert dynamic.scheduler.status().wanted == 4
    lazy = Stream()
    lazy.cores(0, dynamic=True)
    lazy.tell(events.StreamSubmitted(at=0))
    assert lazy.to(10) == [StartQuery(run=1, parallelism=4)], "none comes before there are tasks"
    lazy.started(StreamPlan(stateful=("count",), parallelism=4))
    lazy.cores(8, dynamic=True)
    assert lazy.scheduler.status().wanted == 32


def test_no_stream_gets_more_partitions_than_its_sink_allows():
    most = {"pipeline.max-parallelism": 8}
    stream = Stream(**most).running()
    for word in (lambda: ask(stream, 9), lambda: require(stream, 1, 64)):
        assert word() == []
        assert "9" in (reason := stream.decisions("requirements")[-1].reason) or "64" in reason
        assert "pipeline.max-parallelism allows 8" in reason
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.commit(at_barrier=True)[0].parallelism == 8
    with pytest.raises(UsageError, match="allows 8"):
        Stream(lower=9, **most)


def test_a_query_that_ends_by_itself_is_not_rescaled():
    stream = Stream().running(plan=StreamPlan(stateful=("count",), parallelism=2, continuous=False))
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)]
    assert "availableNow" in stream.waits_for


def test_a_word_of_the_user_that_could_not_be_followed_is_not_kept_for_another_change():
    stream = Stream(**{"max-delay-for-scale-trigger": "10 min"}).running()
    stream.to(40)
    require(stream, 32, 128)
    stream.to(1000)
    stream.cores(8)
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)], "more workers may come"
    assert stream.to(1060) == [SetCommitBarrier(run=1, on=True)]


def test_a_commit_at_the_barrier_comes_before_a_timer_that_is_due():
    stream = Stream(**{"max-delay-for-scale-trigger": "8 s"}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    stream.at = 48
    assert stream.commit(at_barrier=True) == [TO_32]


def test_a_stop_after_the_state_was_rewritten_tells_what_is_in_the_checkpoint():
    stream = rescaling()
    step(stream, RescaleStep.REPARTITION)
    stop(stream)
    step(stream, RescaleStep.START)
    stopped(stream)
    assert stream.rescales()[0].granted == stream.scheduler.status().parallelism == 32


def test_a_rescaled_query_that_is_stopped_before_a_batch_has_no_downtime():
    stream = rescaling()
    for kind in (RescaleStep.REPARTITION, RescaleStep.START):
        step(stream, kind)
    stream.started(WIDE)
    stream.to(600)
    stop(stream)
    stopped(stream)
    (record,) = stream.rescales()
    assert (record.end, record.downtime, "first batch" in record.steps) == ("completed", None, False)


def test_the_users_word_is_the_cause_though_the_cluster_changed_before():
    stream = Stream(upper=64, **{"max-delay-for-scale-trigger": "10 min"}).running()
    stream.to(40)
    stream.cores(8)
    ask(stream, 3)
    stream.commit(at_barrier=True)
    stream.started(StreamPlan(stateful=("count",), parallelism=3))
    stream.commit()
    (record,) = stream.rescales()
    assert (record.cause, record.what, record.requested) == ("USER", "the user asked for 3 partitions", 3)


def test_what_is_idle_has_no_rates_and_no_checkpoint_before_its_first_batch():
    stream = Stream().running()
    stream.to(40)
    stream.cores(8, complete=True)
    (begun,) = stream.tell(events.QueryIdle(at=40, run=1, batch=-1, at_barrier=True))
    assert isinstance(begun, Rescale)
    stream.started(WIDE)
    stream.commit(input_rate=5.0, processed_rate=9.0)
    assert stream.scheduler.status().input_rate == 5
    stream.tell(events.QueryIdle(at=41, run=2, batch=0))
    status = stream.scheduler.status()
    assert (status.input_rate, status.processed_rate) == (0, 0)
    assert (stream.rescales()[0].trigger, stream.rescales()[0].checkpoint) == ("idle, nothing read yet", None)


def test_a_second_cancel_asks_for_nothing_more():
    stream = Stream().running()
    stop(stream)
    assert len(cancel(stream)) == 1
    assert cancel(stream) == []
    early = Stream()
    cancel(early)
    assert isinstance(early.records[0], StreamPlanned)


def test_a_restart_makes_no_rescale_that_still_cools_down():
    """It was ready to grow when it failed, and is to shrink now: that direction has a cooldown of its own."""
    stream = Stream(**OFTEN, **{"firesteel.stream.cooldown-after-scale-down": "5 min"}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    assert stream.fail(batch=0) == []
    assert ask(stream, 1) == []
    stream.to(41)
    assert stream.commands[-1] == StartQuery(run=2, parallelism=2)


@pytest.mark.parametrize("seconds", [0.5, 1, 2])
@pytest.mark.parametrize("cores", [0, 1])
def test_news_of_a_query_that_is_over_changes_nothing(seconds, cores):
    """Told again while it waits for its restart, waits for slots, or starts."""
    stream = Stream(**{**OFTEN, "restart-strategy.fixed-delay.attempts": 1}).running()
    stream.begin()
    stream.cores(cores)
    stream.fail(batch=0)
    stream.to(seconds)
    before, stream.run, records = stream.state, 1, len(stream.records)
    assert stream.fail(batch=0) + stream.started() + finished(stream) + stopped(stream) + stream.commit() == []
    assert stream.state is before
    assert len(stream.records) == records


# -- rescaling


def test_a_rescale_leaves_a_record_of_all_its_times():
    stream = rescaling()
    assert stream.waits_for == "32 partitions instead of 2"
    step(stream, RescaleStep.COMMIT_BARRIER, 0.0)
    step(stream, RescaleStep.STOP, 0.5)
    assert stream.waits_for == "32 partitions instead of 2, step 'stop'"
    step(stream, RescaleStep.REPARTITION, 1.0)
    step(stream, RescaleStep.START, 2.0)
    assert stream.state is S.CREATING_EXECUTION_GRAPH
    stream.at += 0.5
    stream.started(WIDE)
    assert stream.state is S.EXECUTING
    assert stream.phase is Phase.COOLDOWN
    stream.at += 1
    stream.begin()
    stream.at += 2
    stream.commit()
    (record,) = stream.rescales()
    assert (record.cause, record.what) == ("NEW_RESOURCE_AVAILABLE", "8 cores can be used now")
    assert (record.action, record.before, record.requested, record.granted) == ("repartition", 2, 32, 32)
    assert (record.sufficient, record.desired, record.trigger, record.checkpoint) == (True, True, "checkpoint 0", 0)
    assert (record.first_change, record.triggered, record.at, record.downtime) == (40, 41, 48, 5)
    assert record.steps == {
        "wait": 1,
        "commit barrier": 0.5,
        "stop": 1.0,
        "repartition": 2.0,
        "start": 0.5,
        "first batch": 3.0,
    }
    assert record.predicted_downtime == pytest.approx(4.02)
    assert (record.end, record.reason) == ("completed", "")
    status = stream.scheduler.status()
    assert (status.rescales, status.last_rescale, status.parallelism) == (1, record, 32)


def test_the_next_rescale_waits_for_the_cooldown():
    stream = rescaling(**{"max-delay-for-scale-trigger": "10 min"})
    stream.to(50)
    stream.started(WIDE)
    stream.begin()
    stream.commit()
    ask(stream, 5)
    stream.commit(at_barrier=True)
    assert stream.waits_for == "the end of the cooldown (in 30 s), then a checkpoint, then 5 partitions instead of 32"
    assert stream.to(79.9) == []
    assert stream.to(80) == [SetCommitBarrier(run=2, on=True)]
    assert stream.commit(at_barrier=True) == [
        Rescale(rescale=2, run=3, parallelism=5, action=Action.REPARTITION, replay=False)
    ]


def test_a_cooldown_that_takes_longer_than_max_delay_is_followed_by_the_rescale():
    stream = rescaling()
    stream.to(50)
    stream.started(WIDE)
    ask(stream, 5)
    assert stream.waits_for == "the end of the cooldown (in 30 s), then 5 partitions instead of 32"
    assert stream.to(79.9) == []
    (begun,) = stream.to(80)
    assert isinstance(begun, Rescale) and (begun.parallelism, begun.replay) == (5, False)
    assert begun.within == 3.0, "no batch is thrown away: one that runs may end"


def test_what_changes_in_a_rescale_is_looked_at_after_it():
    stream = rescaling()
    stream.cores(1, complete=True, what="executor 3 was lost")
    stream.started(WIDE)
    assert stream.scheduler.status().wanted == 4
    (begun,) = stream.to(71)
    assert isinstance(begun, Rescale) and begun.parallelism == 4


def fails_at(stream, kind, attempt=1, cause="disk full"):
    """This step of a rescale; the query runs again with 2 partitions."""
    step(stream, kind)
    stream.tell(events.RescaleFailed(at=stream.at, rescale=attempt, cause=cause, parallelism=2))
    step(stream, RescaleStep.START)
    stream.started()
    stream.begin()
    stream.commit()


def test_a_rescale_that_fails_leaves_the_old_number_and_is_tried_again_after_ever_longer_pauses():
    stream = rescaling()
    pauses = []
    for attempt in range(1, 10):
        fails_at(stream, RescaleStep.REPARTITION, attempt)
        assert stream.scheduler.parallelism == 2
        started = stream.at
        pauses.append(stream.timers["rescale cooldown"] - started)
        assert stream.waits_for.endswith("then 32 partitions instead of 2; the last rescale failed: disk full")
        begun = stream.to(started + pauses[-1])
        assert isinstance((begun + stream.commit(at_barrier=True))[-1], Rescale)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [(record.end, record.reason) for record in stream.rescales()] == [("failed", "disk full")] * 9


def test_after_a_failed_rescale_the_users_word_counts_at_once():
    stream = rescaling()
    fails_at(stream, RescaleStep.REPARTITION)
    assert stream.phase is Phase.COOLDOWN
    stream.to(stream.at + 31)
    stream.commit(at_barrier=True)
    fails_at(stream, RescaleStep.REPARTITION, 2)
    stream.to(stream.at + 31)
    assert stream.phase is Phase.COOLDOWN
    assert stream.commit(at_barrier=True) == [Continue(run=3, batch=stream.batch)], "a minute's pause"
    (begun,) = ask(stream, 32)
    assert isinstance(begun, Rescale)


@pytest.mark.parametrize("kind", [RescaleStep.COMMIT_BARRIER, RescaleStep.REPLAY])
def test_a_query_that_fails_before_its_state_is_rewritten_is_a_failure_of_the_query(kind):
    """A batch that cannot be done is charged, and says nothing of the rescale."""
    stream = rescaling()
    step(stream, kind)
    assert stream.fail("ValueError: bad row", batch=1) == []
    (record,) = stream.rescales()
    assert (record.end, record.granted, record.reason) == ("failed", 2, "ValueError: bad row")
    assert len(stream.decisions("restart")) == 1
    assert stream.to(stream.at + 1) == [StartQuery(run=3, parallelism=2)]
    stream.started()
    assert stream.timers["rescale cooldown"] - stream.at == 30, "no longer pause"
    (begun,) = stream.to(stream.at + 30)
    assert isinstance(begun, Rescale) and begun.parallelism == 32


def test_a_checkpoint_that_cannot_be_brought_into_order_is_the_end():
    stream = rescaling()
    assert stream.tell(events.RescaleFailed(at=stream.at, rescale=1, cause="disk full", parallelism=2, final=True)) == [
        EndStream(failed=True, cause="disk full")
    ]
    assert stream.rescales()[0].end == "failed"


def test_a_first_start_that_fails_after_a_repartition_keeps_the_new_number():
    stream = rescaling()
    for kind in (RescaleStep.STOP, RescaleStep.REPARTITION, RescaleStep.START):
        step(stream, kind)
    stream.fail("no memory")
    assert stream.rescales()[0].end == "completed"
    assert stream.to(stream.at + 1) == [StartQuery(run=3, parallelism=32)]


def test_a_rescale_whose_first_start_failed_is_not_followed_by_another_before_it_ran():
    stream = rescaling(**{"restart-strategy.fixed-delay.delay": "100 s"})
    for kind in (RescaleStep.STOP, RescaleStep.REPARTITION, RescaleStep.START):
        step(stream, kind)
    stream.fail("no memory")
    ask(stream, 4)
    assert stream.to(200) == [StartQuery(run=3, parallelism=32)]


def test_a_number_that_is_not_come_to_is_a_failure():
    stream = rescaling()
    stream.started(StreamPlan(stateful=("count",), parallelism=16))
    stream.commit()
    (record,) = stream.rescales()
    assert (record.end, record.granted, record.reason) == ("failed", 16, "16 partitions were reached")


@pytest.mark.parametrize(("end", "savepoint"), [(stop, True), (cancel, False)])
def test_an_end_in_the_middle_of_a_rescale(end, savepoint):
    stream = rescaling()
    assert end(stream) == [StopQuery(run=2, savepoint=savepoint)]
    assert stopped(stream) == [DONE]
    assert (stream.rescales()[0].end, stream.rescales()[0].reason) == ("failed", "the stream ended first")


def test_what_the_old_query_tells_while_it_is_stopped_changes_nothing():
    stream = rescaling()
    assert stream.tell(events.QueryFailed(at=41, run=1, cause="torn down")) == []
    assert stream.tell(events.QueryFinished(at=41, run=1, batch=0)) == []
    assert stream.tell(events.BatchCommitted(at=42, run=1, batch=1, rows=5)) == []
    assert stream.state is S.RESTARTING
    assert stream.scheduler.status().batch == 1


def test_a_query_waits_at_its_barrier_for_nothing_but_the_rescale():
    stream = Stream(upper=64).running()
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)]
    stream.to(40)
    stream.cores(8)
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=1)], "more slots are waited for"
    assert stream.tell(events.QueryIdle(at=stream.at, run=1, batch=1, at_barrier=True)) == [Continue(run=1, batch=1)]
    assert stream.cores(16, complete=True) == [SetCommitBarrier(run=1, on=True)]
    assert stream.cores(2, complete=True) == [SetCommitBarrier(run=1, on=False)], "it has changed back"
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=2)]


def test_an_idle_query_is_rescaled_at_once():
    stream = Stream().running()
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.tell(events.QueryIdle(at=40.5, run=1, batch=-1, at_barrier=True)) == [
        Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=False)
    ]


def test_a_commit_without_a_barrier_does_not_make_the_next_batch_be_replayed():
    stream = Stream().running()
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.commit(at_barrier=False) == []
    assert stream.commit(at_barrier=True) == [TO_32]


def test_where_there_is_no_commit_barrier_the_batch_that_has_begun_is_replayed():
    stream = Stream().running(plan=StreamPlan(stateful=("count",), parallelism=2, has_commit_barrier=False))
    stream.to(40)
    assert stream.cores(8, complete=True) == []
    assert stream.commit(at_barrier=False) == [
        Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=True)
    ]


def test_a_batch_longer_than_max_delay_is_replayed():
    stream = Stream(**{"max-delay-for-scale-trigger": "8 s"}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    assert stream.waits_for == "a checkpoint (at most another 8 s), then 32 partitions instead of 2"
    assert stream.to(48)[-1] == Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=True)


def test_a_stateless_query_is_only_started_again():
    stream = Stream().running(plan=StreamPlan(parallelism=2))
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.commit(at_barrier=True)[0].action is Action.RESTART


def test_cores_alone_change_nothing_and_that_is_said():
    stream = Stream().running(plan=StreamPlan(stateful=("count",), parallelism=8))
    stream.to(40)
    assert stream.cores(4, complete=True) == []
    assert stream.phase is Phase.IDLING
    assert stream.waits_for.startswith("nothing: 8 partitions on 4 cores")
    assert stream.decisions("parallelism")[-1].result == "nothing"
    assert stream.rescales() == []


def test_what_has_changed_back_is_on_record_as_ignored():
    stream = Stream(upper=64).running()
    stream.to(40)
    stream.cores(8)
    stream.to(45)
    stream.cores(1)
    (record,) = stream.rescales()
    assert (record.end, record.requested, record.granted, record.trigger) == ("ignored", 32, 2, "")


def test_what_cannot_be_rescaled_is_refused_before_anything_is_touched():
    plan = StreamPlan(stateful=("count",), parallelism=1, refusal="A global aggregation has one partition by nature.")
    stream = Stream().running(plan=plan)
    stream.to(40)
    assert ask(stream, 8) == []
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)]
    assert stream.to(1000) == []
    assert stream.waits_for == (
        "nothing: 8 partitions instead of 1 is not possible: A global aggregation has one partition by nature."
    )
    assert [(record.end, record.reason) for record in stream.rescales()] == [("ignored", plan.refusal)]


def test_above_max_downtime_it_waits_for_the_users_word():
    stream = Stream(**{"firesteel.stream.max-downtime": "2 s"}).running()
    stream.to(40)
    assert stream.cores(8, complete=True) == []
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)]
    assert stream.waits_for.startswith("your confirmation for 32 partitions instead of 2: the stream would be down")
    assert ask(stream) == [SetCommitBarrier(run=1, on=True)]
    assert stream.commit(at_barrier=True) == [TO_32]


def test_the_users_word_is_not_waited_with_for_more_slots():
    stream = Stream().running(cores=2)
    stream.to(40)
    assert require(stream, 4, 64) == [SetCommitBarrier(run=1, on=True)]
    assert stream.commit(at_barrier=True)[0].parallelism == 8
    stream.to(41)
    stream.started(StreamPlan(stateful=("count",), parallelism=8))
    stream.commit()
    assert stream.rescales()[0].cause == "UPDATE_REQUIREMENT"


@pytest.mark.parametrize("number", [0, -3])
def test_a_number_that_no_stream_can_have_is_refused(number):
    stream = Stream().running()
    assert ask(stream, number) == []
    assert stream.decisions("requirements")[-1].rule == "refused"


def test_dynamic_allocation_is_no_reason_to_rescale():
    stream = Stream()
    stream.cores(8, dynamic=True)
    stream.tell(events.StreamSubmitted(at=0))
    assert stream.commands == [StartQuery(run=1, parallelism=32)]
    stream.started(WIDE)
    for at, count in ((40, 1), (50, 2), (60, 80)):
        stream.to(at)
        assert stream.cores(count, dynamic=True) == []
    assert stream.phase is Phase.IDLING
    assert stream.scheduler.status().cores == 80


BY_LOAD = {"scaling": "load", "load.window": "20 s", "executing.cooldown-after-rescaling": "10 min"}


def test_by_load_a_stream_that_waits_to_grow_writes_few_decisions():
    stream = Stream(**BY_LOAD).running(cores=8)
    for number in range(3000):
        stream.to(number * 0.1)
        stream.begin()
        stream.commit(duration=0.09 + 0.01 * math.sin(number / 7), backlog=100, rows=100)
    assert stream.scheduler.status().wanted == 12
    assert len(stream.decisions("rescale")) <= 3


def test_by_load_a_stream_that_was_busy_and_is_idle_does_not_grow():
    stream = Stream(**{**BY_LOAD, "executing.cooldown-after-rescaling": "2 min"}).running(cores=8)
    for number in range(30):
        stream.to(number * 2)
        stream.commit(duration=1.95, backlog=10, rows=10)
    assert stream.scheduler.status().wanted > 2
    for number in range(30):
        stream.to(60 + number * 5)
        stream.tell(events.QueryIdle(at=stream.at, run=1, batch=stream.batch))
    assert not [command for command in stream.commands if isinstance(command, Rescale)]


def test_a_load_that_cannot_be_told_is_said_once():
    stream = Stream(**BY_LOAD).running(cores=8)
    for number in range(30):
        stream.to(number)
        stream.commit(duration=1.0)
    (decision,) = stream.decisions("load")
    assert "is not known" in decision.reason
    assert stream.scheduler.status().wanted == 32


def test_by_load_a_busy_stream_grows():
    stream = Stream(**{"scaling": "load"})
    stream.submit(8, complete=True)
    stream.started(StreamPlan(stateful=("count",), parallelism=4, trigger_interval=10.0))
    for at in range(10, 130, 10):
        stream.to(at)
        stream.begin()
        commands = stream.commit(at_barrier=True, duration=9.9, rows=100)
        if isinstance(commands[-1], Rescale):
            break
    assert commands[-1].parallelism == 24, "4 x 0.99 / 0.7 cores"
    stream.started(StreamPlan(stateful=("count",), parallelism=24, trigger_interval=10.0))
    stream.begin()
    stream.commit()
    assert stream.rescales()[0].cause == "LOAD"


@pytest.mark.parametrize("gap", [10.0, None])
def test_by_load_the_batch_that_tells_of_it_is_the_checkpoint_that_is_used(gap):
    """The barrier is set only where a batch may tell something new, and there it is; else the next would have to be waited for."""
    stream = Stream(**{"scaling": "load", "max-delay-for-scale-trigger": "1 h"})
    stream.submit(8, complete=True)
    stream.started(StreamPlan(stateful=("count",), parallelism=4, trigger_interval=gap))
    barrier, seen = False, []
    for at in range(10, 400, 10):
        for command in stream.to(at):
            barrier = command.on if isinstance(command, SetCommitBarrier) else barrier
        seen.append(barrier)
        commands = stream.commit(at_barrier=barrier, duration=9.9, rows=100, backlog=100)
        if stream.state is SchedulerState.RESTARTING:
            break
        barrier = next((each.on for each in commands if isinstance(each, SetCommitBarrier)), barrier)
    (decided,) = [each for each in stream.decisions("rescale") if each.rule == "slots that the load needs"]
    assert isinstance(commands[-1], Rescale) and decided.at == stream.at
    assert not all(seen), "not each of them"


def test_a_completed_checkpoint_clears_the_failed_ones():
    stream = Stream(
        upper=64, **{"execution.checkpointing.timeout": "10 s", "max-delay-for-scale-trigger": "1 h"}
    ).running()
    stream.to(40)
    stream.cores(16)
    stream.to(55)
    stream.begin()
    stream.to(66)  # one has failed
    stream.commit()
    stream.begin()
    stream.to(77)  # one again
    assert stream.scheduler.status().state == "Executing"
    stream.to(86)
    assert stream.commands[-1].parallelism == 64, "two in a row"


def test_changes_that_never_end_do_not_put_off_a_rescale():
    """Delay 10 s, ten minutes to stabilise, the slots there from 40 s on, something new every 5 s, no checkpoint."""
    stream = Stream(
        upper=64, **{"max-delay-for-scale-trigger": "10 s", "executing.resource-stabilization-timeout": "10 min"}
    ).running()
    begun = []
    for at in range(5, 100, 5):
        begun += stream.to(at)
        begun += stream.cores(4 + at % 2 if at < 40 else 16 + at // 5)
    (rescale,) = [each for each in begun if isinstance(each, Rescale)]
    assert (rescale.parallelism, stream.rescales(), stream.state) == (64, [], SchedulerState.RESTARTING)
    (change,) = [each for each in stream.records if isinstance(each, StreamStateChange) and each.state == "Restarting"]
    assert change.at == 50


def test_a_batch_that_is_told_of_when_its_query_is_stopped_is_counted_and_leaves_the_downtime():
    """Spark's listener may be late; what it owes is told then."""
    stream = Stream(**{"max-delay-for-scale-trigger": "8 s"}).running()
    stream.to(40)
    stream.begin()
    stream.to(45)
    stream.cores(8, complete=True)
    assert isinstance(stream.to(53)[-1], Rescale)
    step(stream, RescaleStep.COMMIT_BARRIER)
    step(stream, RescaleStep.STOP)
    stopped_at = stream.at
    stream.to(stream.at + 2)
    for batch, rows in enumerate((7, 8)):
        stream.tell(events.BatchCommitted(at=stream.at, run=1, batch=batch, rows=rows, duration=12.0))
    step(stream, RescaleStep.START)
    stream.batch = 1
    stream.started(WIDE)
    stream.begin()
    begun_at = stream.at
    stream.commit(rows=5)
    (record,) = stream.rescales()
    assert (record.end, record.downtime) == ("completed", begun_at - stopped_at)
    told = [(each.batch, each.rows, each.parallelism) for each in stream.records if isinstance(each, StreamBatch)]
    assert told == [(0, 7, 2), (1, 8, 2), (2, 5, 32)]


def test_max_delay_goes_on_through_a_restart():
    stream = Stream(**OFTEN, **{"max-delay-for-scale-trigger": "10 s"}).running()
    stream.to(40)
    stream.cores(8, complete=True)
    stream.to(45)
    stream.fail()
    assert stream.to(46) == [StartQuery(run=2, parallelism=2)]
    stream.started()
    assert stream.to(49.9) == []
    (begun,) = stream.to(50)
    assert isinstance(begun, Rescale) and begun.parallelism == 32


def test_after_a_rescale_the_first_change_is_another():
    stream = rescaling(**{"max-delay-for-scale-trigger": "10 min"})
    stream.to(45)
    stream.started(WIDE)
    stream.to(50)
    stream.cores(33)
    stream.to(75)
    assert stream.timers["rescale stabilization"] == 110


def test_after_the_users_word_was_followed_slots_are_waited_for_again():
    stream = Stream().running()
    stream.to(40)
    ask(stream, 32)
    stream.commit(at_barrier=True)
    stream.started(WIDE)
    stream.cores(33)
    require(stream, 1, 1000)
    stream.to(71)
    stream.commit(at_barrier=True)
    assert stream.commands[-1].parallelism == 132, "the requirements are the user's word too"
    stream.started(StreamPlan(stateful=("count",), parallelism=132))
    stream.cores(150)
    stream.to(102)
    assert stream.commit(at_barrier=True) == [Continue(run=3, batch=stream.batch)]
    assert stream.waits_for.startswith("more slots")


def test_a_failure_is_no_moment_for_a_rescale_that_is_due():
    stream = Stream(**{"max-delay-for-scale-trigger": "8 s"}, **OFTEN).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    stream.timers.clear()  # the machine sleeps
    stream.at = 60
    assert stream.fail(batch=0) == []
    assert stream.state is S.RESTARTING
    stream.to(61)
    assert [type(command) for command in stream.commands].count(Rescale) == 1


def test_a_late_word_of_an_idle_query_sets_nothing_off():
    stream = Stream().running(plan=StreamPlan(stateful=("count",), parallelism=2, has_commit_barrier=False))
    stream.to(40)
    stream.cores(8, complete=True)
    stream.begin()
    assert stream.tell(events.QueryIdle(at=40, run=1, batch=-1)) == []


def test_downtime_is_counted_from_the_stop_where_no_barrier_was_set_and_learnt_from():
    stream = Stream(**{"max-delay-for-scale-trigger": "8 s"}).running()
    stream.to(40)
    stream.begin()
    stream.cores(8, complete=True)
    stream.to(48)
    assert stream.commands[-1].replay
    step(stream, RescaleStep.STOP, 1.0)
    step(stream, RescaleStep.REPLAY, 2.0)
    step(stream, RescaleStep.REPARTITION, 600.0)
    step(stream, RescaleStep.START, 3.0)
    stream.started(WIDE)
    stream.begin()
    stream.commit()
    (record,) = stream.rescales()
    assert (record.triggered, record.downtime) == (48, 605)
    assert record.predicted_downtime == pytest.approx(12.02), "the batch of 8 s is done again"
    ask(stream, 4)
    assert stream.decisions("rescale")[-1].inputs["predicted downtime"] == pytest.approx(5.06), "not the replay"


def test_the_wait_of_a_quiet_source_is_not_learnt_from():
    stream = rescaling()
    for kind, seconds in ((RescaleStep.STOP, 0.0), (RescaleStep.REPARTITION, 1.0), (RescaleStep.START, 2.0)):
        step(stream, kind, seconds)
    stream.started(WIDE)
    stream.to(stream.at + 10)
    stream.tell(events.QueryIdle(at=stream.at, run=2, batch=0))
    assert stream.rescales()[0].downtime == 13
    ask(stream, 4)
    assert stream.decisions("rescale")[-1].inputs["predicted downtime"] == pytest.approx(3.06)


def test_no_downtime_is_predicted_before_the_state_is_known():
    """The checkpoint is an old one, and its source is quiet."""
    stream = Stream(**{"firesteel.stream.max-downtime": "6 s"})
    stream.submit(1)
    stream.batch = 41
    stream.started()
    stream.to(40)
    assert stream.cores(8, complete=True) == [SetCommitBarrier(run=1, on=True)], "what it tells is all that is missing"
    assert stream.tell(events.QueryIdle(at=40, run=1, batch=41, at_barrier=True)) == [Continue(run=1, batch=41)]
    assert "is not known before a batch is committed" in stream.waits_for
    assert stream.to(100) == []
    assert stream.commit(state_bytes=1000, at_barrier=True) == [TO_32]


def test_a_prediction_that_moves_about_max_downtime_is_no_news():
    stream = Stream(**{"firesteel.stream.max-downtime": "5.02 s"}).running()
    stream.to(40)
    stream.cores(8, complete=True)
    stream.commit(state_bytes=40 << 20)
    before = len(stream.decisions("rescale"))
    for size in [30, 40, 34, 38] * 10:
        stream.commit(state_bytes=size << 20)
    assert len(stream.decisions("rescale")) - before <= 1


def test_a_replay_that_would_take_longer_than_max_downtime_is_not_made():
    stream = Stream(**{"firesteel.stream.max-downtime": "60 s"}).running()
    stream.to(40)
    stream.begin()
    stream.to(400)
    stream.cores(8, complete=True)
    stream.to(1500)
    assert stream.commands[-1] == TO_32, "the batch is waited for"


# -- what is written down


def test_batches_are_written_down_once_a_second_at_most():
    stream = Stream().running()
    for number in range(100):
        stream.to(number / 20)
        stream.commit(rows=3, duration=0.04)
    stop(stream)
    told = [record for record in stream.records if isinstance(record, StreamBatch)]
    assert len(told) <= 7
    assert sum(record.rows for record in told) == 300
    assert sum(record.batches for record in told) == 100
    assert math.isclose(sum(record.duration for record in told), 4.0)


def test_doubled_late_and_stale_news_change_nothing():
    stream = Stream(**OFTEN).running()
    stream.commit()
    stream.fail()
    stream.to(1)
    stream.started()
    before = stream.scheduler.status()
    for old in (
        events.BatchCommitted(at=1, run=1, batch=7),
        events.BatchCommitted(at=1, run=2, batch=0),
        events.QueryFailed(at=1, run=1, cause="old"),
        events.QueryStopped(at=1, run=1, batch=0),
        events.QueryIdle(at=1, run=1, batch=0, at_barrier=True),
        events.QueryStarted(at=1, run=1, plan=COUNT, batch=0),
        events.RescaleStepped(at=1, rescale=9, step=RescaleStep.STOP),
        events.StreamSubmitted(at=1),
    ):
        assert stream.tell(old) == []
    assert stream.scheduler.status() == before


def test_the_first_line_and_a_warning():
    stream = Stream(lower=2, upper=9, **{"min-parallelism-increase": 3})
    stream.submit(1)
    (planned,) = [record for record in stream.records if isinstance(record, StreamPlanned)]
    assert (planned.lower, planned.upper, planned.checkpoint) == (2, 9, "chk")
    assert planned.options == {"jobmanager.adaptive-scheduler.min-parallelism-increase": 3}
    assert "is ignored" in stream.decisions("warning")[0].reason
    assert Stream(lower=2).decisions("warning") == []


def test_a_recovery_is_said():
    stream = Stream()
    stream.submit(1)
    stream.started(recovered="A repartition was finished.", replayed_rows=3)
    assert stream.decisions("recovery")[0].reason == "A repartition was finished."


def test_all_moves_are_in_the_table():
    """``go`` refuses any other; the diagram shows them all."""
    drawn = SCHEDULER_STATES.diagram()
    assert drawn.count("-->") == len(SCHEDULER_STATES.table) + 2
    assert "[*] --> Created" in drawn
    assert "Finished --> [*]" in drawn
    stream = Stream().running()
    with pytest.raises(ValueError, match="'s' cannot go from Executing to Created") as caught:
        stream.scheduler._machine.go(S.CREATED, "a whim")
    assert "Executing (the query runs)" in str(caught.value)


def test_each_move_of_the_table_is_made():
    def submitted(stream, cores=1):
        stream.submit(cores)
        return stream

    def after(stream, *deeds):
        for deed in deeds:
            deed(stream)
        return stream

    def final(stream):
        stream.fail("wrong", final=True)

    def rescale(stream):
        stream.to(40)
        stream.cores(8, complete=True)
        stream.commit(at_barrier=True)

    def no_repair(stream):
        stream.tell(events.RescaleFailed(at=stream.at, rescale=1, cause="disk full", parallelism=2, final=True))

    def wait(stream):
        stream.cores(0)
        stream.fail()
        stream.to(stream.at + 1)

    stories = (
        lambda s: after(s, stop),
        lambda s: after(submitted(s, 0), stop),
        lambda s: after(submitted(s), final),
        lambda s: after(submitted(s), Stream.fail, cancel),
        lambda s: after(submitted(s), cancel, stopped),
        lambda s: after(s.running(), rescale, no_repair),
        lambda s: after(s.running(), cancel, stopped),
        lambda s: after(s.running(), finished),
        lambda s: after(s.running(), wait),
        lambda s: after(s.running(), Stream.fail, lambda s: s.to(1), Stream.started, stop, stopped),
        lambda s: after(s.running(), stop, cancel, stopped),
        lambda s: after(s.running(), stop, Stream.fail),
        lambda s: after(s.running(), stop, final),
        lambda s: after(s.running(), final),
    )
    made = set()
    for tell in stories:
        stream = Stream(**OFTEN, **{"max-delay-for-scale-trigger": "1 h"})
        tell(stream)
        story = ["Created", *(record.state for record in stream.records if isinstance(record, StreamStateChange))]
        made |= {pair for pair in itertools.pairwise(story) if pair[0] != pair[1]}
    assert made == {(move.source.value, move.target.value) for move in SCHEDULER_STATES.table}


@pytest.mark.parametrize(
    "options",
    [
        {"partitions-per-core": 8, "max-partitions-per-core": 4},
        {"load.low-utilization": 0.8},
        {"load.target-utilization": 0.95},
    ],
)
def test_options_that_conflict_are_refused(options):
    with pytest.raises(UsageError):
        AdaptiveScheduler("s", "c", ResourceRequirements(), Options(options))


def test_the_last_batches_are_written_down_once_a_stream_is_idle():
    stream = Stream().running()
    for _ in range(3):
        stream.begin()
        stream.commit()
    told = [record.batch for record in stream.records if isinstance(record, StreamBatch)]
    assert told == [0], "one a second"
    stream.tell(events.QueryIdle(at=stream.at, run=stream.run, batch=stream.batch))
    assert [record.batch for record in stream.records if isinstance(record, StreamBatch)] == [0, 2]
