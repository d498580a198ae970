"""The four scenarios of FLIP-461, by name, on the whole scheduler."""

from __future__ import annotations

import pytest
from tests.stream_kit import Stream

from firesteel.scheduler.streaming.commands import Action, Continue, Rescale, SetCommitBarrier
from firesteel.scheduler.streaming.states import Phase, SchedulerState

TO_32 = Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=False)


def test_change_after_cooldown_with_completed_checkpoint():
    stream = Stream().running()
    stream.to(40)
    assert stream.phase is Phase.IDLING
    assert stream.cores(8, complete=True) == [SetCommitBarrier(run=1, on=True)]
    assert stream.phase is Phase.STABILIZING
    stream.to(42)
    assert stream.commit(at_barrier=True) == [TO_32]
    assert stream.state is SchedulerState.RESTARTING


def test_change_in_cooldown_with_failed_checkpoint():
    """The change waits for the end of the cooldown, then one checkpoint fails, and the next one completes."""
    stream = Stream(**{"execution.checkpointing.timeout": "10 s", "max-delay-for-scale-trigger": "10 min"}).running()
    stream.to(5)
    assert stream.cores(8, complete=True) == []
    assert stream.phase is Phase.COOLDOWN
    stream.commit()
    assert stream.to(28) == []
    stream.begin()
    assert stream.to(30) == [SetCommitBarrier(run=1, on=True)]
    assert stream.phase is Phase.STABILIZING
    assert stream.to(39) == []  # the checkpoint has failed at 38
    assert stream.commit(at_barrier=True) == [TO_32]


def test_changes_are_accumulated_until_rescaling():
    stream = Stream(upper=64, **{"max-delay-for-scale-trigger": "10 min"}).running()
    for at, cores in ((5, 3), (12, 4), (20, 6), (40, 8)):
        stream.to(at)
        stream.cores(cores)
    stream.commit(at_barrier=True)
    assert stream.phase is Phase.STABILIZING, "not all is there that could be used"
    assert stream.to(64.9) == []
    assert stream.to(65) == [SetCommitBarrier(run=1, on=True)]  # a minute after the first change
    assert stream.phase is Phase.STABILIZED
    assert stream.commit(at_barrier=True) == [TO_32]
    assert len([command for command in stream.commands if isinstance(command, Rescale)]) == 1


def test_with_default_options_a_cluster_that_grows_makes_a_stream_replay_nothing():
    """Not all is there that could be used: stabilisation ends with a batch of a second running, and it is waited for."""
    stream = Stream(upper=64).running()
    for second in range(101):
        stream.to(second)
        stream.begin()
        if second == 40:
            stream.cores(8)
        if second < 100:
            stream.to(second + 0.9)
            stream.commit()
    (begun,) = [command for command in stream.commands if isinstance(command, Rescale)]
    assert stream.at == 100
    assert (begun.parallelism, begun.replay) == (32, False)
    assert begun.within == pytest.approx(3, abs=0.2), "three batches' time, and then it is stopped"


def test_a_batch_that_runs_longer_than_max_delay_is_stopped_and_replayed():
    stream = Stream(**{"max-delay-for-scale-trigger": "10 s"}).running()
    stream.to(35)
    stream.begin()
    stream.to(38)
    stream.cores(8, complete=True)
    assert stream.to(48) == [Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=True)]


def test_a_batch_that_began_later_is_waited_for_till_it_has_run_as_long():
    stream = Stream(**{"max-delay-for-scale-trigger": "10 s"}).running()
    stream.to(38)
    stream.cores(8, complete=True)
    stream.to(45)
    stream.begin()
    (begun,) = [command for command in stream.to(48) if isinstance(command, Rescale)]
    assert (begun.replay, begun.within) == (False, 7)


def test_failed_checkpoints_trigger_with_delay():
    stream = Stream(**{"execution.checkpointing.timeout": "20 s", "max-delay-for-scale-trigger": "10 min"}).running()
    stream.to(35)
    stream.begin()
    stream.to(40)
    stream.cores(8, complete=True)
    assert stream.to(74.9) == []  # the first has failed at 55
    assert stream.to(75) == [
        Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=True),
    ]


def test_a_query_at_its_barrier_that_nothing_follows_goes_on_at_once():
    stream = Stream().running()
    assert stream.commit(at_barrier=True) == [Continue(run=1, batch=0)]
