"""A whole stream under a virtual clock: the scheduler on a simulated data plane, a cluster that changes, and a user.

What goes wrong between the two is made here: news that comes late, twice, or from a run that is long gone, and a machine
that sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulation.streams.plane import SimulatedDataPlane
from tests.simulation.streams.world import Dice, StreamWorld

from firesteel.scheduler.kernel.commands import Command, Record
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.streaming.events import (
    AnyStreamEvent,
    BatchCommitted,
    BatchStarted,
    CancelRequested,
    ClusterChanged,
    ExecutorOffer,
    QueryFailed,
    QueryFinished,
    QueryIdle,
    QueryStarted,
    QueryStopped,
    RequirementsChanged,
    RescaleFailed,
    RescaleRequested,
    RescaleStepped,
    StopRequested,
    StreamSubmitted,
    TimerFired,
)
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.violation import check

PATIENCE = 6 * 3600.0
"""Seconds within which a stream ends that is asked to."""
OF_A_RUN = BatchStarted | BatchCommitted | QueryIdle | QueryStarted | QueryFailed | QueryStopped | QueryFinished
TWICE = QueryStarted | QueryFailed | QueryStopped | QueryFinished | RescaleStepped | RescaleFailed
SOONER_OR_LATER = (0.001, 1.0, 20.0)
"""Seconds after which news of a query or of a rescale is told again."""
MOST_STALE = 8


class StreamScheduler(Protocol):
    """The simulated scheduler: :class:`firesteel.scheduler.streaming.adaptive_scheduler.AdaptiveScheduler`, or a part of it."""

    def handle(self, event: AnyStreamEvent) -> Sequence[Command]: ...


class Observer(Protocol):
    """Sees all that is told, in its order, after the commands were carried out."""

    def seen(self, now: float, event: AnyStreamEvent, commands: Sequence[Command]) -> None: ...

    def written(self, record: JournalRecord) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    failed: bool
    cause: str
    events: int
    batches: int
    """Ids given, repartitions among them."""
    rescales: int
    runs: int
    seconds: float
    """On the stream's clock."""
    rows: int
    replayed_rows: int


@dataclass(slots=True)
class _Executors:
    """Nodes with an executor each, of equal size."""

    alive: int
    blocked: int = 0

    def change(self, dice: Dice, most: int) -> str:
        """One step to or fro, in words."""
        kind = dice.rng.randrange(4)
        if kind == 0 and self.alive > 1:
            self.alive -= 1
            return "an executor was lost"
        if kind == 1 and self.alive > 1:
            self.alive, self.blocked = self.alive - 1, self.blocked + 1
            return "a node was blocked"
        if kind == 2 and self.blocked:
            self.alive, self.blocked = self.alive + 1, self.blocked - 1
            return "a node is used again"
        if self.alive + self.blocked < most:
            self.alive += 1
            return "an executor came"
        self.alive = max(0, self.alive - 1)
        return "an executor was lost"


@dataclass(slots=True, eq=False)
class SimulatedStream:
    scheduler: StreamScheduler
    world: StreamWorld
    observers: Sequence[Observer] = ()
    patience: float = PATIENCE
    clock: VirtualClock = field(init=False, default_factory=VirtualClock)
    dice: Dice = field(init=False)
    plane: SimulatedDataPlane = field(init=False)
    events: int = 0
    _executors: _Executors = field(init=False)
    _stale: list[OF_A_RUN] = field(default_factory=list[OF_A_RUN])
    _asked_to_end: float = math.inf
    _bounds: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        self.dice = Dice(self.world.seed)
        self.plane = SimulatedDataPlane(self.world, self.clock, self.dice, self._tell, self._write)
        self._executors = _Executors(self.world.executors)
        self._bounds = self.world.user.lower, self.world.user.upper

    def run(self) -> StreamOutcome:
        """Until it has ended, and all news is told. Raises ViolationError."""
        self.begin()
        while self.step():
            pass
        ended = self.plane.ended
        check(ended is not None, "the stream waits, and nothing is to happen any more")
        assert ended is not None
        checkpoint = self.plane.checkpoint
        return StreamOutcome(
            ended.failed,
            ended.cause,
            self.events,
            checkpoint.batch + 1,
            self.plane.rescales,
            self.plane.last_run,
            self.clock.now,
            checkpoint.rows,
            checkpoint.read - checkpoint.rows - (checkpoint.pending or 0),
        )

    def begin(self) -> None:
        """It is submitted; the rest comes with each ``step``."""
        self.deliver(StreamSubmitted(at=0.0))
        self._cluster("the stream was started")
        user, faults = self.world.user, self.world.faults
        self._again(
            faults.executor_every, lambda: self._cluster(self._executors.change(self.dice, self.world.most_executors))
        )
        self._again(faults.jump_every, lambda: self.clock.advance(self.clock.now + self.dice.about(faults.jump_by)))
        self._again(user.requirements_every, self._change_requirements)
        self._again(user.rescale_every, self._ask_for_rescale)
        self._again(user.consent_every, lambda: self._tell(RescaleRequested(at=self.clock.now)))
        self.clock.at(user.end_at, self._ask_for_end)

    def step(self) -> bool:
        """One action of the clock. False: there is none, or all is over."""
        action = self.clock.take()
        if action is None:
            if math.isinf(self.clock.next_at) or (self.plane.ended and self.clock.next_at > self.clock.now + 60):
                return False
            self.clock.advance(self.clock.next_at)
            return True
        if not self.plane.ended:
            late = self.clock.now - self._asked_to_end
            check(late < self.patience, f"the stream was asked to end {late:.0f} s ago, and has not")
        action()
        return True

    def deliver(self, event: AnyStreamEvent) -> None:
        """Tell it now, and do what is asked."""
        self.events += 1
        over = self.plane.ended is not None
        commands = self.scheduler.handle(event)  # pyright: ignore[reportArgumentType]
        check(not (over and commands), f"after the end, {event} is answered with {list(commands)}")
        self.plane.carry_out(event, commands)
        for observer in self.observers:
            observer.seen(self.clock.now, event, commands)

    def _write(self, command: Record) -> None:
        for observer in self.observers:
            observer.written(command.record)

    def _tell(self, event: AnyStreamEvent) -> None:
        if isinstance(event, TimerFired):
            self.deliver(event)
            return
        faults, after = self.world.faults, self.world.latency
        if _nobody_waits_for(event):
            if self.dice.hits(faults.late):
                after += self.dice.about(faults.late_by)
            if self.dice.hits(faults.twice):
                self.clock.after(after, lambda: self.deliver(event))
        elif isinstance(event, TWICE) and self.dice.hits(faults.twice):
            again = after + self.dice.about(self.dice.rng.choice(SOONER_OR_LATER))
            self.clock.after(again, lambda: self.deliver(event))
        self.clock.after(after, lambda: self.deliver(event))
        if isinstance(event, OF_A_RUN):
            self._tell_stale(event, after)

    def _tell_stale(self, event: OF_A_RUN, after: float) -> None:
        if isinstance(event, QueryStarted):
            for old in self._stale:
                if old.run < event.run:
                    self.clock.after(after + self.dice.rng.random(), lambda old=old: self.deliver(old))
            self._stale.clear()
        if self.dice.hits(self.world.faults.stale) and len(self._stale) < MOST_STALE:
            self._stale.append(event)

    def _again(self, mean: float, action: Callable[[], None]) -> None:
        """``action`` every ``mean`` seconds or so, until the stream is asked to end."""
        if not mean:
            return

        def act() -> None:
            if self.plane.ended is None and self.clock.now < self._asked_to_end:
                action()
                self.clock.after(self.dice.wait(mean), act)

        self.clock.after(self.dice.wait(mean), act)

    def _cluster(self, what: str) -> None:
        world, executors = self.world, self._executors
        cores = executors.alive * world.cores_each
        self.plane.cluster_is(cores)
        event = ClusterChanged(
            at=self.clock.now,
            cores=cores,
            executors=executors.alive,
            excluded=executors.blocked * world.cores_each,
            complete=world.complete,
            dynamic=world.dynamic,
            offers=(ExecutorOffer(executors.alive, world.cores_each, heap=1 << 40),) if world.slot_cores else (),
            what=what,
        )
        self._tell(event)
        if self.dice.hits(world.faults.twice):
            self._tell(event)

    def _change_requirements(self) -> None:
        user, before = self.world.user, self._bounds
        lower, upper = sorted(self.dice.rng.randint(1, user.most) for _ in range(2))
        self._require(lower, upper)
        if self.dice.hits(user.regrets):
            soon = self.dice.rng.choice([self.dice.wait(1.0), self.world.latency * self.dice.rng.random()])
            self.clock.after(soon, lambda: self._require(*before))

    def _require(self, lower: int, upper: int) -> None:
        self._bounds = lower, upper
        self._tell(RequirementsChanged(at=self.clock.now, lower=lower, upper=upper))

    def _ask_for_rescale(self) -> None:
        self._tell(RescaleRequested(at=self.clock.now, parallelism=self.dice.rng.randint(1, self.world.user.most)))

    def _ask_for_end(self) -> None:
        """From now on no more happens to the cluster, and there is some of it."""
        if self.plane.ended is not None:
            return
        self._asked_to_end = self.clock.now
        if not self._executors.alive:
            self._executors.alive = 1
            self._cluster("an executor came")
        for number, word in enumerate(self.world.user.end.split(", ")):
            kind = CancelRequested if word == "cancel" else StopRequested
            self.clock.after(number * self.dice.wait(2.0), lambda kind=kind: self._tell(kind(at=self.clock.now)))


def _nobody_waits_for(event: AnyStreamEvent) -> bool:
    return isinstance(event, BatchStarted) or (isinstance(event, BatchCommitted | QueryIdle) and not event.at_barrier)
