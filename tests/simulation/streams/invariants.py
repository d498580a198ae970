"""Invariants of any stream, whatever happens: looked at from outside, with what was told and what was asked alone.

Never two rescales inside a cooldown; what is wanted is never forgotten, and comes in time (FLIP-461); only allowed moves;
one record of each rescale, which is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulation.streams.plane import SimulatedDataPlane
from tests.simulation.streams.stream import StreamOutcome
from tests.simulation.streams.world import StreamWorld

from firesteel.options import Options
from firesteel.scheduler.kernel.commands import Command
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.streaming.commands import Rescale
from firesteel.scheduler.streaming.events import (
    AnyStreamEvent,
    CancelRequested,
    ClusterChanged,
    QueryFailed,
    QueryStarted,
    RequirementsChanged,
    RescaleFailed,
    RescaleRequested,
    RescaleStep,
    RescaleStepped,
    StopRequested,
)
from firesteel.scheduler.streaming.records import EndState, RescaleRecord, StreamEnded, StreamStateChange
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.states import RESCALE_PHASES, SCHEDULER_STATES, Phase, SchedulerState
from firesteel.scheduler.streaming.wish import pause_after
from firesteel.simulation.violation import check

MOVES = {(move.source.value, move.target.value) for move in SCHEDULER_STATES.table}
PHASES = {(move.source.value, move.target.value) for move in RESCALE_PHASES.table}
SLACK = 0.5
"""Seconds."""


class Watched(Protocol):
    @property
    def state(self) -> SchedulerState: ...

    @property
    def phase(self) -> Phase | None: ...

    @property
    def max_delay(self) -> float: ...


@dataclass(slots=True)
class Bounds:
    """Bounds of the parallelism that the user last asked for."""

    lower: int
    upper: int
    exact: bool = False

    def wanted(self, slots: int, running: int, as_good: range, *, cut: bool) -> int | None:
        """The parallelism that should be; None: what runs is as good, or there are too few slots. ``cut``: each slot is cut
        from its executor, so that there are never more partitions."""
        if self.exact:
            return self.upper if running != self.upper and slots >= (self.upper if cut else 1) else None
        if slots < self.lower:
            return None
        if self.lower <= running <= self.upper and running in as_good:
            return None
        wanted = max(self.lower, min(slots, self.upper))
        return wanted if wanted != running else None


@dataclass(slots=True, eq=False)
class Oversight:
    scheduler: Watched
    world: StreamWorld
    options: Options
    plane: SimulatedDataPlane = field(init=False)
    settings: StreamSettings = field(init=False)
    bounds: Bounds = field(init=False)
    cores: int = 0
    parallelism: int = 0
    run: int = 0
    executing_since: float = math.inf
    rescaled_at: float = -math.inf
    """Time at which the query of the last rescale began to run."""
    pending_since: float = math.inf
    pending_up: bool = False
    longest_delay: float = 0.0
    """The max delay, which may follow the batches' durations, at its longest since then."""
    ending: bool = False
    asked: dict[int, Rescale] = field(default_factory=dict[int, Rescale])
    """Rescales whose record has not come."""
    failures: set[int] = field(default_factory=set[int])
    """Rescales that failed since the user's last word, or since one did not."""
    clean: bool = True
    """Nothing has happened yet after which rows must be read again."""
    state: str = SchedulerState.CREATED.value
    phase: str = ""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.settings = StreamSettings.of(self.options)
        self.bounds = Bounds(self.world.user.lower, self.world.user.upper)
        self.clean = self.world.has_commit_barrier and not self.world.pending

    def seen(self, now: float, event: AnyStreamEvent, commands: Sequence[Command]) -> None:
        self._learn(now, event)
        for command in commands:
            if isinstance(command, Rescale):
                self._rescaled(now, command)
        self._look(now)

    def _learn(self, now: float, event: AnyStreamEvent) -> None:
        match event:
            case ClusterChanged():
                self.cores = event.cores
            case RequirementsChanged():
                self.bounds = Bounds(event.lower, event.upper)
                self.failures.clear()
            case RescaleRequested():
                if event.parallelism is not None:
                    self.bounds = Bounds(event.parallelism, event.parallelism, exact=True)
                self.failures.clear()
            case QueryFailed():
                self.clean = False
            case RescaleStepped() if event.rescale in self.asked:
                self._stepped(event, self.asked[event.rescale])
            case RescaleFailed() if event.rescale in self.asked:
                self.failures.add(event.rescale)
            case StopRequested() | CancelRequested():
                self.ending = True
            case QueryStarted() if event.run == self.plane.last_run and event.run != self.run:
                now = event.at
                self.run, self.executing_since, self.parallelism = event.run, now, self.plane.parallelism
                begun = self.plane.last_rescale
                if begun is not None and begun.command.run == event.run:
                    self.rescaled_at = now
            case _:
                pass

    def _stepped(self, event: RescaleStepped, asked: Rescale) -> None:
        """A batch that was stopped is replayed now, or with the next start if the rescale fails first."""
        begun = self.plane.last_rescale
        waited = begun is not None and asked.within is not None and event.at >= begun.at + asked.within - 1e-6
        if event.step is RescaleStep.STOP and waited:
            self.clean = False
        elif event.step is RescaleStep.REPLAY:
            check(not self.clean, f"{event} of {asked}")

    def _cooldown(self, up: bool) -> float:
        return self.settings.cooldown_up if up else self.settings.cooldown_down

    def _rescaled(self, now: float, command: Rescale) -> None:
        up = command.parallelism > self.parallelism
        over = self.rescaled_at + self._cooldown(up)
        check(now >= over - 1e-6, f"{command} at {now:.3f}, and the cooldown ends at {over:.3f}")
        bounds = self.bounds
        check(bounds.lower <= command.parallelism <= bounds.upper, f"{command}, and {bounds} are asked for")
        promised = command.parallelism <= self._slots() or not self.world.slot_cores or self.world.dynamic
        check(promised, f"{command}, and there are {self._slots()} slots")
        self.asked[command.rescale] = command
        self.clean = self.clean and not command.replay
        self.executing_since = self.pending_since = math.inf

    def _slots(self) -> int:
        world = self.world
        if world.slot_cores:
            return self.cores // world.cores_each * world.slots_each
        return self.cores * self.settings.partitions_per_core

    def _look(self, now: float) -> None:
        """Is something wanted, and for how long?"""
        settings, slots = self.settings, self._slots()
        cut = self.world.slot_cores > 0
        tasks = self.cores // max(1, math.ceil(self.world.slot_cores))
        most = slots if cut else self.cores * settings.max_partitions_per_core
        wanted = self.bounds.wanted(slots, self.parallelism, range(min(tasks, slots), most + 1), cut=cut)
        running = self.scheduler.state is SchedulerState.EXECUTING and self.executing_since < math.inf
        free = (
            settings.by_load
            or self.world.dynamic
            or settings.max_downtime < math.inf
            or self.world.refusal
            or not math.isinf(self.world.rows_to_end)
            or self.ending
        )
        if wanted is None or not running or free or not self.parallelism:
            self.pending_since = math.inf
            return
        up = wanted > self.parallelism
        if self.pending_since == math.inf or up != self.pending_up:
            self.pending_since, self.pending_up, self.longest_delay = now, up, 0.0
        self.longest_delay = max(self.longest_delay, self.scheduler.max_delay)
        deadline = self._deadline(up)
        slack = SLACK + 2 * self.world.latency  # for news that is on its way
        late = now > deadline + slack and not self.plane.overdue(now - slack)
        check(
            not late,
            f"{wanted} for {self.parallelism} was wanted at {self.pending_since:.3f}, should have come by "
            f"{deadline:.3f}, and it is {now:.3f}: {self.scheduler.phase}",
        )

    def _deadline(self, up: bool) -> float:
        """As FLIP-461 has it."""
        first, settings = self.pending_since, self.settings
        pause = pause_after(len(self.failures), max(settings.cooldown_up, settings.cooldown_down))
        return max(
            self.executing_since + max(pause, self._cooldown(up)),
            first + self.settings.stabilization,
            first + self.longest_delay,
        )

    def written(self, record: JournalRecord) -> None:
        match record:
            case StreamStateChange():
                self._moved(record)
            case RescaleRecord():
                self._recorded(record)
            case StreamEnded():
                check(not self.is_over, "the stream ends twice")
                self.is_over = True
            case _:
                pass

    def _moved(self, record: StreamStateChange) -> None:
        move = (self.state, record.state)
        check(record.state == self.state or move in MOVES, f"from {move[0]} to {move[1]}")
        if record.state == self.state and record.phase != self.phase and self.phase:
            check((self.phase, record.phase) in PHASES, f"from {self.phase} to {record.phase}")
        self.state, self.phase = record.state, record.phase

    def _recorded(self, record: RescaleRecord) -> None:
        command = self.asked.pop(record.rescale, None)
        check(record.end in {end.value for end in EndState}, f"{record} has no end")
        tried = record.end != EndState.IGNORED.value
        check((command is not None) or not tried, f"{record} was not asked for, or is told twice")
        if command is None:
            return
        if record.end == EndState.FAILED.value:
            self.failures.add(record.rescale)
        else:
            check(record.granted == record.requested, f"{record} is completed")
            self.failures.clear()
        check(record.requested == command.parallelism, f"{record} of {command}")
        check(record.first_change <= record.triggered <= record.at, f"{record}: its times")
        check(all(seconds >= 0 for seconds in record.steps.values()), f"{record}: its steps")

    def ended(self, outcome: StreamOutcome) -> None:
        check(self.scheduler.state is SchedulerState.FINISHED, f"it has ended, and is {self.scheduler.state.value}")
        check(self.is_over, "the end is not on record")
        check(not self.asked, f"no record of {self.asked}")
        check(not self.clean or outcome.replayed_rows == 0, f"{outcome.replayed_rows} rows were read twice for nothing")
