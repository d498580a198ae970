"""The simulated data plane of a stream: carries the commands out, tells the events, keeps its own books.

What must never be asked is refused with a ViolationError: two starts at once, a repartition of what is already so, a
Continue for a query that is not at its commit barrier, a query left there without an answer, anything after the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.streams.protocol import SimulatedRescale
from tests.simulation.streams.query import QueryState, SimulatedCheckpoint, SimulatedQuery
from tests.simulation.streams.world import Dice, Load, StreamWorld

from firesteel.scheduler.kernel.commands import CancelTimer, Command, Record, SetTimer
from firesteel.scheduler.streaming.commands import (
    Action,
    Continue,
    EndStream,
    Rescale,
    SetCommitBarrier,
    StartQuery,
    StopQuery,
)
from firesteel.scheduler.streaming.events import (
    AnyStreamEvent,
    BatchCommitted,
    BatchStarted,
    QueryIdle,
    QueryStarted,
    QueryStopped,
    TimerFired,
)
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.violation import check

Write = Callable[[Record], None]


@dataclass(slots=True)
class Begun:
    """A rescale that was begun."""

    at: float
    command: Rescale
    before: int
    done: bool = False
    """The new run is on its way."""


@dataclass(slots=True)
class _Timer:
    number: int
    when: float


@dataclass(slots=True, eq=False)
class SimulatedDataPlane:
    world: StreamWorld
    clock: VirtualClock
    dice: Dice
    tell_at: Callable[[AnyStreamEvent], None]
    """Receiver of all events."""
    write: Write
    load: Load = field(init=False)
    checkpoint: SimulatedCheckpoint = field(init=False)
    cores: int = 0
    parallelism: int = 0
    """Of the query that runs, or ran last."""
    query: SimulatedQuery | None = None
    rescale: SimulatedRescale | None = None
    last_rescale: Begun | None = None
    rescales: int = 0
    last_run: int = 0
    ended: EndStream | None = None
    replayed: int = 0
    _timers: dict[str, _Timer] = field(default_factory=dict[str, _Timer])
    _timer_count: int = 0
    _stopping: StopQuery | None = None
    _known_state: bool = False
    """The scheduler was told that there is state."""
    _answered: int = 0
    """Commits at the barrier that were answered."""

    def __post_init__(self) -> None:
        world = self.world
        self.load = Load(world)
        self.checkpoint = SimulatedCheckpoint(
            world.born if world.stateful else 0, batch=4 if world.born else -1, pending=world.pending or None
        )

    def tell(self, event: AnyStreamEvent) -> None:
        self.tell_at(event)

    def carry_out(self, event: AnyStreamEvent, commands: Iterable[Command]) -> None:
        """Carries out what the scheduler asks for in answer to ``event``."""
        if isinstance(event, BatchStarted | BatchCommitted):
            self._known_state = self.world.stateful
        elif isinstance(event, QueryStarted):
            self._known_state = self._known_state or (self.world.stateful and event.plan.parallelism > 0)
        waiting = self._at_barrier(event)
        before = self._answered
        for command in commands:
            check(self.ended is None, f"{command} after the end")
            self._one(command)
        if waiting is not None:
            check(self._answered > before, f"{event} is at the barrier, and gets no answer")

    def _at_barrier(self, event: AnyStreamEvent) -> SimulatedQuery | None:
        """The query that waits for an answer to ``event``; None: nobody waits."""
        query = self.query
        if query is None or not isinstance(event, BatchCommitted | QueryIdle) or not event.at_barrier:
            return None
        return (
            query
            if query.run == event.run and query.state is QueryState.AT_BARRIER and self._stopping is None
            else None
        )

    def _one(self, command: Command) -> None:
        match command:
            case StartQuery():
                self._start(command)
            case SetCommitBarrier():
                self._set_barrier(command)
            case Continue():
                self._continue(command)
            case Rescale():
                self._rescale(command)
            case StopQuery():
                self._stop(command)
            case SetTimer():
                self._set_timer(command)
            case CancelTimer():
                self._timers.pop(command.timer, None)
            case Record():
                self.write(command)
            case EndStream():
                self._end(command)
            case _:
                raise TypeError(f"the simulation knows no command {type(command).__name__}")

    def _new_run(self, run: int) -> None:
        check(run == self.last_run + 1, f"run {run} after run {self.last_run}")
        self.last_run = run

    def _start(self, command: StartQuery) -> None:
        check(self._alive() is None, f"{command} while run {self.last_run} is there")
        check(self.rescale is None, f"{command} in the middle of a rescale")
        check(command.parallelism >= 1, f"{command}: a query has one partition at least")
        self._new_run(command.run)
        self._stopping = None
        self.parallelism = self.checkpoint.parallelism or command.parallelism
        self.start_query(command.run)

    def start_query(self, run: int, replayed_rows: int = 0) -> None:
        self.query = SimulatedQuery(self, run, self.parallelism, self.checkpoint)
        self.query.begin(self.dice.about(self.world.starting), replayed_rows)

    def _alive(self) -> SimulatedQuery | None:
        """The query that is there; one that failed or finished is not, told or untold."""
        if self.query is not None and self.query.state is QueryState.GONE:
            self.query = None
        return self.query

    def _set_barrier(self, command: SetCommitBarrier) -> None:
        check(command.run <= self.last_run, f"{command}: that run was never started")
        query = self._alive()
        if query is not None and query.run == command.run:
            query.hold_from_now(command.on)

    def _continue(self, command: Continue) -> None:
        query = self._alive()
        if query is None:  # stopped by what is on its way
            return
        check(query.run == command.run, f"{command}, and run {query.run} is at the barrier")
        self._answered += 1
        query.let_go(command.batch)

    def _rescale(self, command: Rescale) -> None:
        world, before = self.world, self.parallelism
        check(self.rescale is None, f"{command} in the middle of another")
        check(self._stopping is None, f"{command} while the stream stops")
        check(before > 0, f"{command}: nothing was ever started")
        check(command.parallelism != before, f"{command}: it has {before} partitions")
        check(command.parallelism >= 1, f"{command}: a query has one partition at least")
        check(not world.refusal, f"{command}: {world.refusal}")
        if command.action is Action.REPARTITION:
            check(self.checkpoint.parallelism > 0, f"{command}: there is no state")
        else:
            check(command.action is Action.RESTART, f"{command}: nothing to do")
            check(not self._known_state, f"{command}: the state must be rewritten")
        check(command.rescale > (self.last_rescale.command.rescale if self.last_rescale else 0), f"{command}: number")
        finished = self.query is not None and self.query.finished
        query = self._alive()
        check(query is None or query.state is not QueryState.STARTING, f"{command} of a query that has not started")
        self._new_run(command.run)
        self._answered += 1
        if finished:  # the news of it is the answer
            return
        self.rescales += 1
        self.last_rescale = Begun(self.clock.now, command, before)
        self.rescale = SimulatedRescale(self, command)
        self.rescale.begin()

    def rescale_over(self, begun: bool) -> None:
        """``begun``: the next run is on its way."""
        self.rescale = None
        assert self.last_rescale is not None
        self.last_rescale.done = begun

    def _stop(self, command: StopQuery) -> None:
        check(command.run in (self.last_run, self.last_run - 1), f"{command}, and run {self.last_run} is there")
        former = self._stopping
        check(former is None or (former.savepoint and not command.savepoint), f"{command} after {former}")
        self._answered += 1
        self._stopping = command
        if self.rescale is not None:
            self.rescale.given_up = lambda: self._stopped(command)
            return
        query = self._alive()
        if query is None:
            self._stopped(command)
        elif command.savepoint:
            query.come_to_rest(lambda fine: self._at_savepoint(command, query, fine))
        else:
            self._kill(command, query)

    def _at_savepoint(self, command: StopQuery, query: SimulatedQuery, fine: bool) -> None:
        if fine:
            self._kill(command, query)
            return
        assert query.failure is not None
        self.query, self._stopping = None, None
        self.tell(query.failure)

    def _kill(self, command: StopQuery, query: SimulatedQuery) -> None:
        query.kill()
        self.clock.after(self.dice.about(self.world.stopping), lambda: self._stopped(command))

    def _stopped(self, command: StopQuery) -> None:
        if self._stopping is not command:  # a later one is answered
            return
        if self.rescale is not None:
            self.rescale_over(False)
        self.query, self._stopping = None, None
        committed = self.checkpoint.pending is None
        self.tell(QueryStopped(at=self.clock.now, run=command.run, batch=self.checkpoint.batch, committed=committed))

    def _set_timer(self, command: SetTimer) -> None:
        self._timer_count += 1
        number = self._timer_count
        self._timers[command.timer] = _Timer(number, command.at)

        def fire() -> None:
            timer = self._timers.get(command.timer)
            if timer is not None and timer.number == number:
                del self._timers[command.timer]
                self.tell(TimerFired(at=self.clock.now, timer=command.timer))

        self.clock.at(command.at + self.dice.rng.random() * self.world.latency, fire)

    def overdue(self, now: float) -> bool:
        """A timer is due that has not been told yet: the scheduler cannot know."""
        return any(timer.when <= now for timer in self._timers.values())

    def _end(self, command: EndStream) -> None:
        check(self._alive() is None, f"{command} while run {self.last_run} is there")
        check(self.rescale is None, f"{command} in the middle of a rescale")
        self.ended = command
        self._timers.clear()

    def cluster_is(self, cores: int) -> None:
        lost = cores < self.cores
        self.cores = cores
        query = self._alive()
        if query is not None:
            query.cores_lost = query.cores_lost or lost
            query.cores_changed()
