"""Decides when a rescale that is wanted begins (FLIP-461, FLIP-322; Flink: DefaultStateTransitionManager)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.records import Trigger, TriggerKind
from firesteel.scheduler.streaming.states import RESCALE_PHASES, Phase


class Direction(Enum):
    UP = "up"
    DOWN = "down"


class RescaleEnvironment(Protocol):
    """The world as the manager sees it. It alone decides when; the environment says whether there is anything to do."""

    def direction(self) -> Direction | None:
        """Direction of the wanted rescale; None: nothing is wanted, or it is not possible whenever it is begun."""
        ...

    def has_sufficient(self) -> bool:
        """A parallelism at or above the lower bound, and another than the running one."""
        ...

    def has_desired(self) -> bool:
        """All that the requirements can use, and another parallelism than the running one."""
        ...

    def rescale(self, trigger: Trigger) -> None:
        """Begin. Asked once of a manager."""
        ...


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds. ``max_delay`` and ``pause``, at least which any cooldown takes, are asked as timers are set."""

    cooldown_up: float
    cooldown_down: float
    stabilization: float
    max_delay: Callable[[], float]
    pause: Callable[[], float] = lambda: 0.0

    def cooldown(self, direction: Direction) -> float:
        return max(self.pause(), self.cooldown_up if direction is Direction.UP else self.cooldown_down)


@dataclass(frozen=True, slots=True)
class FirstChanges:
    """When a rescale that is wanted could first be followed, seconds; None: it could not yet."""

    sufficient: float | None = None
    desired: float | None = None

    def seen(self, at: float, *, desired: bool) -> FirstChanges:
        """One more change with sufficient slots, and maybe the desired ones. What was first stays first."""
        return FirstChanges(
            at if self.sufficient is None else self.sufficient,
            at if self.desired is None and desired else self.desired,
        )


class RescaleManager:
    """One for each time the query runs.

    Changes are gathered: the *first* one starts the stabilisation timeout, after which sufficient slots are enough;
    before, all desired ones must be there. A rescale begins at a trigger (``on_trigger``), or when ``max_delay`` has
    passed since the first change that could be followed: in Stabilizing the first with the desired slots, in Stabilized
    with sufficient ones. No later change puts it off, and time in Cooldown counts, where changes are only remembered.
    """

    def __init__(
        self,
        environment: RescaleEnvironment,
        delays: Delays,
        recorder: Recorder,
        timers: Timers,
        *,
        cooldown_since: float,
        since: FirstChanges | None = None,
        name: str = "rescale",
        observe: Callable[[Phase, str], None] = lambda _phase, _why: None,
    ) -> None:
        """``since``: changes that the manager before this could not follow any more."""
        self._environment = environment
        self._delays = delays
        self._recorder = recorder
        self._timers = timers
        self._since = cooldown_since
        self._observe = observe
        self._cooldown, self._stabilization, self._max_delay = (
            f"{name} cooldown",
            f"{name} stabilization",
            f"{name} max delay",
        )
        self.since = since or FirstChanges()
        self.phase = Phase.COOLDOWN
        self._timers.set(self._cooldown, self._cooldown_end(), self._cooldown_over)

    def on_change(self) -> None:
        """Slots, requirements or load changed, or what can be had of them."""
        if self.phase is Phase.TRANSITIONING:
            return
        direction = self._environment.direction()
        if direction is None:
            self._nothing_wanted()
        elif self._environment.has_sufficient():
            self._wanted(direction)

    def on_trigger(self, trigger: Trigger) -> None:
        """A checkpoint completed, or enough of them failed: look whether the changes so far can be followed now."""
        if self.phase is Phase.STABILIZING:
            if self._environment.has_desired():
                self._transition(trigger)
        elif self.phase is Phase.STABILIZED:
            if self._environment.has_sufficient():
                self._transition(trigger)
            else:
                self.since = FirstChanges()
                self._go(Phase.IDLING, f"{trigger}, but no sufficient slots")

    def close(self) -> None:
        """The query does not run any more; ``since`` stays."""
        for timer in (self._cooldown, self._stabilization, self._max_delay):
            self._timers.cancel(timer)

    @property
    def would_rescale(self) -> bool:
        """The next trigger starts a rescale."""
        if self._is_cooling(self._environment.direction()):
            return False
        if self.phase is Phase.STABILIZING:
            return self._environment.has_desired()
        return self.phase is Phase.STABILIZED and self._environment.has_sufficient()

    @property
    def cooldown_until(self) -> float | None:
        return self._timers.when(self._cooldown)

    @property
    def stabilized_at(self) -> float | None:
        return self._timers.when(self._stabilization)

    @property
    def rescales_at(self) -> float | None:
        """When the next trigger is not waited for any longer."""
        return self._timers.when(self._max_delay)

    @property
    def waits_after_cooldown(self) -> bool:
        """Max delay will not have passed with the cooldown."""
        until, first = self.cooldown_until, self.since.desired
        return until is None or first is None or first + self._delays.max_delay() > until

    def _wanted(self, direction: Direction) -> None:
        self.since = self.since.seen(self._recorder.at, desired=self._environment.has_desired())
        if self._is_cooling(direction):
            self._cool(direction)
        elif self.phase in (Phase.COOLDOWN, Phase.IDLING):
            self._stabilize("a change with sufficient slots")
        elif self.phase is Phase.STABILIZING:
            self._limit_wait(self.since.desired)

    def _nothing_wanted(self) -> None:
        self.since = FirstChanges()
        if self.phase in (Phase.STABILIZING, Phase.STABILIZED):
            self._go(Phase.IDLING, "what changed has changed back")
        elif self.phase is Phase.COOLDOWN:
            self._timers.set(self._cooldown, self._cooldown_end(), self._cooldown_over)

    def _cool(self, direction: Direction) -> None:
        if self.phase is not Phase.COOLDOWN:
            self._go(Phase.COOLDOWN, f"a rescale {direction.value} is wanted, and still cools down")
        self._timers.set(self._cooldown, self._cooldown_end(direction), self._cooldown_over)

    def _cooldown_over(self) -> None:
        direction = self._environment.direction()
        if direction is not None and self._is_cooling(direction):
            self._timers.set(self._cooldown, self._cooldown_end(direction), self._cooldown_over)
        elif direction is not None and self.since.sufficient is not None:
            self._stabilize("cooldown over, something changed meanwhile")
        else:
            self._go(Phase.IDLING, "cooldown over, nothing changed")

    def _stabilize(self, why: str) -> None:
        self._go(Phase.STABILIZING, why)
        first = self._recorder.at if self.since.sufficient is None else self.since.sufficient
        self._timers.set(self._stabilization, first + self._delays.stabilization, self._stabilization_over)
        self._limit_wait(self.since.desired)

    def _stabilization_over(self) -> None:
        self._go(Phase.STABILIZED, "stabilisation timeout after the first change")
        self._limit_wait(self.since.sufficient)

    def _limit_wait(self, first: float | None) -> None:
        """Sets max delay, unless it runs. One that is over already fires with this event, and again with each later change
        until the slots are there."""
        if first is not None and self._timers.when(self._max_delay) is None:
            self._timers.set(self._max_delay, first + self._delays.max_delay(), self._max_delay_over)

    def _max_delay_over(self) -> None:
        self.on_trigger(Trigger(TriggerKind.MAX_DELAY))

    def _transition(self, trigger: Trigger) -> None:
        direction = self._environment.direction()
        if direction is not None and self._is_cooling(direction):
            self._cool(direction)
            return
        self._go(Phase.TRANSITIONING, str(trigger))
        self._environment.rescale(trigger)

    def _is_cooling(self, direction: Direction | None) -> bool:
        return direction is not None and self._recorder.at < self._cooldown_end(direction)

    def _cooldown_end(self, direction: Direction | None = None) -> float:
        """None: of the direction that may be followed first."""
        directions = Direction if direction is None else (direction,)
        return self._since + min(self._delays.cooldown(each) for each in directions)

    def _go(self, phase: Phase, why: str) -> None:
        RESCALE_PHASES.check(self.phase, phase, "The rescale manager", why, self._recorder.story())
        self.close()
        self.phase = phase
        self._recorder.tell(f"phase {phase.value} ({why})")
        self._observe(phase, why)
