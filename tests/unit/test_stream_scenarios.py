"""The four scenarios of FLIP-461, by name, on the whole scheduler."""

from __future__ import annotations

from tests.stream_kit import Stream

from firesteel.scheduler.streaming.commands import Action, Continue, HoldCheckpoints, Rescale
from firesteel.scheduler.streaming.states import Phase, SchedulerState

TO_32 = Rescale(rescale=1, run=2, parallelism=32, action=Action.REPARTITION, replay=False)


def test_change_after_cooldown_with_completed_checkpoint():
    stream = Stream().running()
    stream.to(40)
    assert stream.phase is Phase.IDLING
    assert stream.cores(8, complete=True) == [HoldCheckpoints(run=1, on=True)]
    assert stream.phase is Phase.STABILIZING
    stream.to(42)
    assert stream.commit(held=True) == [TO_32]
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
    assert stream.to(30) == [HoldCheckpoints(run=1, on=True)]
    assert stream.phase is Phase.STABILIZING
    assert stream.to(39) == []  # the checkpoint has failed at 38
    assert stream.commit(held=True) == [TO_32]


def test_changes_are_accumulated_until_rescaling():
    stream = Stream(upper=64, **{"max-delay-for-scale-trigger": "10 min"}).running()
    for at, cores in ((5, 3), (12, 4), (20, 6), (40, 8)):
        stream.to(at)
        stream.cores(cores)
    stream.commit(held=True)
    assert stream.phase is Phase.STABILIZING, "not all is there that could be used"
    assert stream.to(64.9) == []
    assert stream.to(65) == [HoldCheckpoints(run=1, on=True)]  # a minute after the first change
    assert stream.phase is Phase.STABILIZED
    assert stream.commit(held=True) == [TO_32]
    assert len([command for command in stream.commands if isinstance(command, Rescale)]) == 1


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


def test_a_held_checkpoint_that_nothing_follows_is_let_go_at_once():
    stream = Stream().running()
    assert stream.commit(held=True) == [Continue(run=1, batch=0)]
