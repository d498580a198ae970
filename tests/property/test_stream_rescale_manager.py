"""The rescale manager alone: against a naive model that works out by hand when a rescale begins, and by what FLIP-461 promises."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.events import TimerFired
from firesteel.scheduler.streaming.manager import Delays, Direction, FirstChanges, RescaleManager
from firesteel.scheduler.streaming.records import Trigger, TriggerKind
from firesteel.scheduler.streaming.states import RESCALE_PHASES, Phase

MOVES = {(move.source, move.target) for move in RESCALE_PHASES.table}
UP, DOWN = Direction.UP, Direction.DOWN


@dataclass(frozen=True)
class Want:
    """What the world is like: ``direction`` None: nothing is wanted."""

    direction: Direction | None = None
    sufficient: bool = False
    desired: bool = False


NOTHING = Want()
WANTS = (NOTHING, Want(UP), Want(UP, True), Want(UP, True, True), Want(DOWN), Want(DOWN, True), Want(DOWN, True, True))
TRIGGER = "trigger"
Input = tuple[float, "Want | str"]
"""When, and what: the world is another (told by ``on_change``), or a trigger."""


@dataclass(frozen=True)
class Times:
    up: float = 30.0
    down: float = 30.0
    stabilization: float = 60.0
    max_delay: float = 20.0

    def cooldown(self, direction: Direction | None) -> float:
        return self.up if direction is UP else self.down


class Driven:
    """The real manager under a clock of its own. Timers fire when they are due, or when the machine wakes up."""

    def __init__(self, times: Times, first: Want = NOTHING) -> None:
        self.world, self.rescaled, self.phases, self.went = first, None, [], None
        self.recorder = Recorder()
        self.timers = Timers(self.recorder)
        delays = Delays(times.up, times.down, times.stabilization, lambda: times.max_delay)
        self.manager = RescaleManager(
            self,
            delays,
            self.recorder,
            self.timers,
            cooldown_since=0.0,
            observe=lambda phase, _: self.phases.append(phase),
        )

    def direction(self):
        return self.world.direction

    def has_sufficient(self):
        return self.world.sufficient

    def has_desired(self):
        return self.world.desired

    def rescale(self, trigger):
        assert self.rescaled is None, "asked twice"
        assert self.world.direction is not None and self.world.sufficient, "a rescale that changes nothing"
        self.rescaled, self.went = (self.recorder.at, trigger), self.world.direction

    def next_timer(self):
        return min((when for when, _ in self.timers._due.values()), default=math.inf)

    def at(self, when, told=None):
        """It is ``when``; what is due fires, then ``told`` is told."""
        self.recorder.begin(TimerFired(at=when, timer=""))
        self.timers.fire_due()
        if isinstance(told, Want):
            self.world = told
            self.manager.on_change()
        elif told == TRIGGER:
            self.manager.on_trigger(Trigger(TriggerKind.IDLE))
        self.recorder.take()

    def run(self, inputs, until=1e6, sleeps=()):
        """``sleeps``: (from, to): nothing is told in between, and all of it at its end."""
        for when, told in [*inputs, (until, None)]:
            while self.next_timer() <= when and self.rescaled is None:
                self.at(_awake(self.next_timer(), sleeps))
            self.at(_awake(when, sleeps), told)
        return self.rescaled[0] if self.rescaled else None


def _awake(when, sleeps):
    return next((end for begin, end in sleeps if begin <= when < end), when)


def naive(times: Times, inputs: list[Input], until: float = 1e6) -> float | None:
    """When a rescale begins, from the notes alone: no phases, no timers; every moment that could matter is looked at.

    Exact for one cooldown; for two, where all that is wanted is sufficient.
    """
    world, first, desired = NOTHING, None, None
    pending, told = sorted(inputs, key=lambda each: each[0]), 0
    now = 0.0
    while True:
        moments = [pending[told][0]] if told < len(pending) else []
        if first is not None:
            entered = max(first, times.cooldown(world.direction))
            settled = max(entered, first + times.stabilization)
            late = [max(entered, desired + times.max_delay)] if desired is not None else []
            for moment in (*late, max(settled, first + times.max_delay), settled):
                moments += [moment] if moment > now else []
        moment = min(moments, default=math.inf)
        if moment > until:
            return None
        now, trigger = moment, False
        if told < len(pending) and pending[told][0] == moment:
            what = pending[told][1]
            told += 1
            if isinstance(what, Want):
                world = what
                if world.direction is None:
                    first = desired = None
                elif world.sufficient:
                    first = now if first is None else first
                    desired = now if desired is None and world.desired else desired
            else:
                trigger = True
        if first is None or now < times.cooldown(world.direction):
            continue
        entered = max(first, times.cooldown(world.direction))
        settled = max(entered, first + times.stabilization)
        if now < settled:
            if world.desired and desired is not None and (trigger or now >= desired + times.max_delay):
                return now
        elif trigger or now >= first + times.max_delay:
            if world.sufficient:
                return now
            first = desired = None


def apart(inputs: list[tuple[int, Want | str]]) -> list[Input]:
    """No two moments, nor what follows from them after whole seconds, are the same."""
    return sorted((second + (number + 1) / 1024, what) for number, (second, what) in enumerate(inputs))


def timeline(wants):
    return st.lists(st.tuples(st.integers(0, 200), st.sampled_from([*wants, TRIGGER, TRIGGER])), max_size=14).map(apart)


SECONDS = st.sampled_from([0.0, 1.0, 7.0, 30.0, 61.0])
ONE_COOLDOWN = st.builds(lambda cool, stab, delay: Times(cool, cool, stab, delay), SECONDS, SECONDS, SECONDS)
TWO_COOLDOWNS = st.builds(Times, SECONDS, SECONDS, SECONDS, SECONDS)
SUFFICIENT = tuple(want for want in WANTS if want.direction is None or want.sufficient)
EACH = settings(max_examples=examples(200))


@EACH
@given(ONE_COOLDOWN, timeline(WANTS))
@example(Times(30, 30, 60, 20), [(10.5, Want(UP, True, True)), (35.0, TRIGGER)])
def test_a_rescale_begins_when_the_naive_model_says(times, inputs):
    assert Driven(times).run(inputs) == naive(times, inputs)


@EACH
@given(TWO_COOLDOWNS, timeline(SUFFICIENT))
def test_so_it_does_with_a_cooldown_for_each_direction(times, inputs):
    assert Driven(times).run(inputs) == naive(times, inputs)


SLEEPS = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), max_size=2).map(
    lambda pairs: [(float(begin), float(begin + length)) for begin, length in pairs]
)


@EACH
@given(TWO_COOLDOWNS, timeline(WANTS), SLEEPS)
def test_never_in_a_cooldown_never_for_nothing_and_only_allowed_moves(times, inputs, sleeps):
    driven = Driven(times)
    driven.run(inputs, sleeps=sleeps)
    for one, other in itertools.pairwise(driven.phases):
        assert (one, other) in MOVES
    if driven.rescaled:
        assert driven.rescaled[0] >= times.cooldown(driven.went)
        assert driven.phases[-1] is Phase.TRANSITIONING


@EACH
@given(TWO_COOLDOWNS, timeline(WANTS), SLEEPS, st.sampled_from([want for want in WANTS if want.sufficient]))
def test_what_is_wanted_comes_in_time_whatever_was_before(times, inputs, sleeps, wanted):
    """Once sufficient slots are there and stay: no later than FLIP-461 has it, or than the machine wakes up after that."""
    driven = Driven(times)
    since = 500.125
    rescaled = driven.run([*inputs, (since, wanted)], sleeps=sleeps)
    assert rescaled is not None, f"forgotten, in {driven.manager.phase}"
    deadline = max(times.cooldown(wanted.direction), since + times.stabilization, since + times.max_delay)
    assert rescaled <= _awake(deadline, sleeps)


@EACH
@given(TWO_COOLDOWNS, timeline((Want(UP, True), Want(UP, True, True), Want(UP))))
def test_a_change_that_stays_wanted_is_not_put_off_by_further_ones(times, inputs):
    """Counted from the first change: what comes after it makes nothing later while slots stay sufficient."""
    changes = [(when, what) for when, what in inputs if what == TRIGGER or what.sufficient]
    firsts = [when for when, what in changes if what != TRIGGER]
    rescaled = Driven(times).run(changes)
    if not firsts:
        assert rescaled is None
        return
    assert rescaled is not None
    assert rescaled <= max(times.up, firsts[0] + times.stabilization, firsts[0] + times.max_delay)


SLOW_TO_STABILIZE = st.builds(lambda cool, delay: Times(cool, cool, 600.0, delay), SECONDS, SECONDS)


@EACH
@given(SLOW_TO_STABILIZE, timeline((NOTHING, Want(UP), Want(UP, True), TRIGGER)), st.integers(0, 300))
@example(Times(30, 30, 600, 10), [(float(at), Want(UP, True)) for at in range(5, 40, 5)], 40)
def test_once_the_desired_slots_are_there_max_delay_is_a_bound(times, before, since):
    """Whatever else changes meanwhile, and in cooldown too: the option says "no longer than this"."""
    more = [(float(since + after), Want(UP, True, True)) for after in range(0, 500, 5)]
    rescaled = Driven(times).run([each for each in before if each[0] < since] + more)
    assert rescaled == max(times.up, since + times.max_delay)


@EACH
@given(SLOW_TO_STABILIZE, timeline(SUFFICIENT), st.integers(1, 20))
def test_no_timer_is_started_anew_by_a_change_that_changes_nothing(times, inputs, every):
    repeated = list(inputs)
    for second in range(0, 300, every):
        when = second + 1 / 64
        known = [what for at, what in inputs if at <= when and what != TRIGGER]
        repeated.append((when, known[-1] if known else NOTHING))
    assert Driven(times).run(sorted(repeated, key=lambda each: each[0])) == Driven(times).run(inputs)


@EACH
@given(TWO_COOLDOWNS, timeline(WANTS))
def test_each_timer_ends_when_the_table_in_the_documents_says(times, inputs):
    """Of each phase: which timers run, and until when, worked out from the changes alone."""
    driven = Driven(times)
    first = desired = None
    for when, told in inputs:
        for what in (None, told, None):  # what is due fires; the change; what is due by it
            seen = len(driven.phases)
            driven.at(when, what) if what is not None else driven.run([], until=when)
            if isinstance(what, Want) and what.direction is None:
                first = desired = None
            elif isinstance(what, Want) and what.sufficient:
                first = when if first is None else first
                desired = when if desired is None and what.desired else desired
            if (Phase.STABILIZED, Phase.IDLING) in itertools.pairwise(driven.phases[max(0, seen - 1) :]):
                first = desired = None  # there were no sufficient slots, or nothing is wanted
        now, world = driven.manager.phase, driven.world
        if driven.rescaled:
            return
        shown = (driven.manager.cooldown_until, driven.manager.stabilized_at, driven.manager.rescales_at)
        match now:
            case Phase.IDLING:
                assert shown == (None, None, None)
            case Phase.COOLDOWN:
                assert shown[0] in (times.up, times.down)
                assert shown[1:] == (None, None)
                if first is not None and world.sufficient:
                    assert shown[0] == times.cooldown(world.direction)
            case Phase.STABILIZING:
                late = None if desired is None else desired + times.max_delay
                waits = late is not None and late > when
                assert shown == (None, first + times.stabilization, late if waits else None)
            case Phase.STABILIZED:
                assert shown == (None, None, first + times.max_delay)


@EACH
@given(TWO_COOLDOWNS, timeline(WANTS))
def test_what_has_changed_back_is_not_followed(times, inputs):
    driven = Driven(times)
    before = driven.run([*inputs, (300.125, NOTHING)], until=300.125)
    assert driven.run([(301.5, TRIGGER), (400.5, TRIGGER)]) == before


@EACH
@given(TWO_COOLDOWNS, timeline(WANTS), SLEEPS)
def test_it_says_that_a_trigger_rescales_exactly_when_it_does(times, inputs, sleeps):
    """The stream's commit barrier is set while it says so, and only then."""
    driven = Driven(times)
    for when, told in inputs:
        before = driven.rescaled
        driven.run([], until=when, sleeps=sleeps)
        would = driven.manager.would_rescale
        if told == TRIGGER and before is None and driven.rescaled is None:
            driven.at(_awake(when, sleeps), TRIGGER)
            assert would == (driven.rescaled is not None)
        else:
            driven.at(_awake(when, sleeps), told)


@pytest.mark.parametrize("delay", [0.0, 20.0])
def test_a_manager_takes_over_what_the_one_before_it_could_not_follow(delay):
    """The query failed meanwhile: the first change is as old as it is."""
    times = Times(10, 10, 60, delay)
    driven = Driven(times, Want(UP, True))
    driven.manager.since = FirstChanges(sufficient=-55.0)
    rescaled = driven.run([])
    assert rescaled == 10.0
