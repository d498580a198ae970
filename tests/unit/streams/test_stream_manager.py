"""RescaleManager alone: each move between phases, timers, cooldowns of two directions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.events import TimerFired
from firesteel.scheduler.streaming.manager import Delays, Direction, FirstChanges, RescaleManager
from firesteel.scheduler.streaming.records import Trigger, TriggerKind
from firesteel.scheduler.streaming.states import RESCALE_PHASES, Phase

UP, DOWN = Direction.UP, Direction.DOWN


class World:
    """A manager's environment under a clock of its own."""

    def __init__(self, up=30.0, down=30.0, stabilization=60.0, max_delay=20.0, **how):
        self.wants, self.sufficient, self.desired = None, False, False
        self.rescaled = []
        self.moves = []
        self.recorder = Recorder()
        self.timers = Timers(self.recorder)
        self.manager = RescaleManager(
            self,
            Delays(up, down, stabilization, lambda: max_delay),
            self.recorder,
            self.timers,
            cooldown_since=0.0,
            observe=lambda phase, why: self.moves.append((phase, why)),
            **how,
        )

    def direction(self):
        return self.wants

    def has_sufficient(self):
        return self.wants is not None and self.sufficient

    def has_desired(self):
        return self.has_sufficient() and self.desired

    def rescale(self, trigger):
        self.rescaled.append((self.recorder.at, str(trigger)))

    def to(self, at):
        while True:
            due = [self.timers.when(name) for name in list(self.timers._due)]
            due = [when for when in due if when <= at]
            self.recorder.begin(TimerFired(at=min([*due, at]), timer=""))
            self.timers.fire_due()
            if not due:
                return self

    def change(self, wants=UP, *, sufficient=True, desired=False):
        self.wants, self.sufficient, self.desired = wants, sufficient, desired
        self.manager.on_change()
        self.timers.fire_due()
        return self

    @property
    def phase(self):
        return self.manager.phase


def test_it_begins_to_cool_down_and_then_idles():
    world = World()
    assert world.phase is Phase.COOLDOWN
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.to(29.9).phase is Phase.COOLDOWN
    assert world.to(30).phase is Phase.IDLING
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.rescaled == []


def test_a_change_in_cooldown_is_remembered_with_its_time():
    world = World(max_delay=300).to(10).change()
    assert world.phase is Phase.COOLDOWN
    assert world.to(30).phase is Phase.STABILIZING
    assert world.manager.stabilized_at == 70
    assert world.to(70).phase is Phase.STABILIZED


def test_a_change_without_sufficient_slots_is_none():
    world = World().to(40).change(sufficient=False)
    assert world.phase is Phase.IDLING
    assert world.manager.since.sufficient is None


def test_stabilizing_needs_the_desired_slots():
    world = World().to(40).change()
    world.manager.on_trigger(Trigger(TriggerKind.CHECKPOINT, 1))
    assert not world.manager.would_rescale
    assert world.rescaled == []
    world.to(45).change(desired=True)
    assert world.manager.would_rescale
    world.manager.on_trigger(Trigger(TriggerKind.CHECKPOINT, 2))
    assert world.rescaled == [(45, "checkpoint 2")]
    assert world.phase is Phase.TRANSITIONING


def test_max_delay_counts_from_the_first_change_with_the_desired_slots_while_stabilizing():
    world = World().to(40).change().to(45).change(desired=True).to(50).change(desired=True)
    assert world.manager.rescales_at == 65
    assert world.to(64.9).rescaled == []
    assert world.to(65).rescaled == [(65, "max delay")]


def test_changes_that_never_end_do_not_put_off_max_delay():
    """Delay 10 s, all slots there from 40 s on, something new every 5 s, and ten minutes to stabilise."""
    world = World(max_delay=10, stabilization=600)
    for at in range(5, 100, 5):
        world.to(at).change(desired=at >= 40)
    assert world.rescaled == [(50, "max delay")]


def test_time_in_cooldown_counts_for_max_delay():
    assert World(max_delay=20).to(5).change(desired=True).to(100).rescaled == [(30, "max delay")]
    assert World(max_delay=20).to(15).change(desired=True).to(100).rescaled == [(35, "max delay")]


def test_max_delay_that_finds_the_desired_slots_gone_takes_them_as_they_come_back():
    world = World(stabilization=600).to(40).change(desired=True).to(59).change().to(61)
    assert world.phase is Phase.STABILIZING
    assert world.manager.rescales_at is None
    assert world.to(70).change().rescaled == []
    assert world.to(75).change(desired=True).rescaled == [(75, "max delay")]


def test_no_delay_counts_before_the_slots_that_it_needs_are_there():
    world = World().to(40).change().to(61)
    assert world.phase is Phase.STABILIZING
    assert world.manager.rescales_at is None
    assert world.to(80).change(desired=True).manager.rescales_at == 100, "a checkpoint is waited for from now on"


def test_stabilized_is_content_with_sufficient_slots():
    world = World(max_delay=300).to(40).change().to(50).change().to(100)
    assert world.phase is Phase.STABILIZED, "a minute after the first change"
    assert world.manager.would_rescale
    world.manager.on_trigger(Trigger(TriggerKind.CHECKPOINT, 9))
    assert world.rescaled == [(100, "checkpoint 9")]


def test_max_delay_counts_from_the_first_change_when_stabilized():
    assert World(max_delay=300).to(40).change().to(90).change().to(1000).rescaled == [(340, "max delay")]
    assert World(max_delay=20).to(40).change().to(1000).rescaled == [(100, "max delay")]


def test_a_trigger_without_sufficient_slots_ends_what_was_wanted():
    world = World(max_delay=300).to(40).change().to(100).change(sufficient=False)
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.phase is Phase.IDLING
    assert world.manager.since.sufficient is None
    assert world.to(120).change().manager.since.sufficient == 120


@pytest.mark.parametrize("at", [45, 100])
def test_what_has_changed_back_is_forgotten(at):
    world = World(max_delay=300).to(40).change().to(at).change(wants=None)
    assert world.phase is Phase.IDLING
    assert world.to(at + 10).change().manager.since.sufficient == at + 10


def test_the_wanted_direction_decides_which_cooldown_counts():
    world = World(up=10, down=100)
    assert world.to(5).change(DOWN).to(10).phase is Phase.COOLDOWN
    assert world.to(20).change(UP).phase is Phase.STABILIZING
    assert world.manager.since.sufficient == 5, "remembered through the longer cooldown"
    assert world.to(30).change(DOWN, desired=True).phase is Phase.COOLDOWN
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.to(99).rescaled == []
    assert world.to(100).rescaled == [(100, "max delay")], "stabilized long ago"


def test_idling_goes_back_to_a_direction_that_cools_down():
    world = World(up=10, down=100).to(50)
    assert world.phase is Phase.IDLING
    assert world.change(DOWN).phase is Phase.COOLDOWN
    assert world.change(wants=None).phase is Phase.IDLING


def test_stabilized_goes_back_to_a_direction_that_cools_down():
    world = World(up=0, down=100, max_delay=300).change(UP).to(60)
    assert world.phase is Phase.STABILIZED
    assert world.change(DOWN).phase is Phase.COOLDOWN


def test_a_direction_that_changed_untold_does_not_break_its_cooldown():
    world = World(up=0, down=100).change(UP, desired=True)
    world.wants = DOWN
    assert not world.manager.would_rescale
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.rescaled == []
    assert world.phase is Phase.COOLDOWN


def test_transitioning_is_final():
    world = World(up=0, down=0, max_delay=0).to(1).change(desired=True)
    assert world.rescaled == [(1, "max delay")]
    world.change(DOWN)
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    assert world.to(1e6).rescaled == [(1, "max delay")]
    assert world.phase is Phase.TRANSITIONING


def test_a_timer_of_a_phase_that_is_over_changes_nothing():
    world = World().to(40).change(desired=True)
    world.manager.on_trigger(Trigger(TriggerKind.IDLE))
    before = list(world.moves)
    for name in ("rescale cooldown", "rescale stabilization", "rescale max delay"):
        world.timers.fired(name)
    assert world.to(1e6).moves == before


def test_a_timer_that_is_told_early_is_asked_for_again():
    world = World()
    world.recorder.take()
    world.timers.fired("rescale cooldown")
    assert [command.at for command in world.recorder.take()] == [30.0]


def test_the_first_change_is_handed_on():
    world = World(since=FirstChanges(sufficient=-55.0), max_delay=0)
    world.wants, world.sufficient = UP, True
    assert world.to(30).rescaled == [(30, "max delay")], "stabilized while it cooled down"


SCRIPTS = (
    lambda: World().to(40).change(desired=True).to(100),
    lambda: World(max_delay=300).to(10).change().to(95).change(wants=None),
    lambda: World().to(40).change().change(wants=None),
    lambda: World(max_delay=20).to(40).change().to(1000),
    lambda: World(up=0, down=200, max_delay=300).change(UP).change(DOWN).change(UP).to(61).change(DOWN),
    lambda: World(up=0, down=200).to(1).change(DOWN),
)


def test_these_moves_are_the_table():
    made = set()
    for script in SCRIPTS:
        phases = [Phase.COOLDOWN, *(phase for phase, _ in script().moves)]
        made |= set(pairwise(phases))
    assert made == {(move.source, move.target) for move in RESCALE_PHASES.table}


def test_any_other_move_is_refused_with_the_story():
    world = World().to(40)
    with pytest.raises(ValueError, match="cannot go from Idling to Stabilized") as caught:
        world.manager._go(Phase.STABILIZED, "a whim")
    assert "phase Idling (cooldown over, nothing changed)" in str(caught.value)
