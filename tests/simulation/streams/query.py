"""One run of a simulated query: batches that take their time, wait at a commit barrier when told to, fail, hang and idle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tests.simulation.streams.world import Dice, Load, StreamWorld

from firesteel.scheduler.streaming.events import (
    AnyStreamEvent,
    BatchCommitted,
    BatchStarted,
    QueryFailed,
    QueryFinished,
    QueryIdle,
    QueryStarted,
    StreamPlan,
)
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.violation import check

BYTES_OF_A_ROW = 100
CAUSES = ("ValueError: bad row", "RuntimeError: out of luck", "an executor was lost")


@dataclass(slots=True)
class SimulatedCheckpoint:
    """A checkpoint, which outlives its queries: the truth that the scheduler is measured against."""

    parallelism: int = 0
    """Partitions of the state; 0: there is none, or no batch was ever planned."""
    batch: int = -1
    """The last committed one."""
    pending: int | None = None
    """Rows of the batch after it that was planned, and not committed."""
    rows: int = 0
    """In committed batches."""
    read: int = 0
    """Rows that were read, with those that were read twice."""

    @property
    def state_rows(self) -> int:
        return min(self.rows, 100_000)

    def plan_batch(self, rows: int) -> None:
        self.pending = rows
        self.read += rows

    def commit(self) -> None:
        assert self.pending is not None
        self.batch += 1
        self.rows += self.pending
        self.pending = None


class Host(Protocol):
    """Host of a query."""

    world: StreamWorld
    clock: VirtualClock
    dice: Dice
    load: Load
    cores: int

    def tell(self, event: AnyStreamEvent) -> None: ...


class QueryState(Enum):
    STARTING = "starting"
    IDLE = "idle"
    """Nothing to read, or in the gap of its trigger."""
    RUNNING = "running"
    AT_BARRIER = "at barrier"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class SimulatedQuery:
    host: Host
    run: int
    parallelism: int
    checkpoint: SimulatedCheckpoint
    barrier_on: bool = False
    """Each commit is told with ``at_barrier`` and waits."""
    state: QueryState = QueryState.STARTING
    cores_lost: bool = False
    """An executor went while the batch ran."""
    _turn: int = 0
    """Number of the current turn; what was planned in an earlier one does not happen any more."""
    _triggered: float = -math.inf
    _idle_told: float = -math.inf
    _left: float = 0.0
    """Core seconds of work that the batch has left, and since when (``_since``) it runs on ``_speed`` cores."""
    _since: float = 0.0
    _speed: float = 0.0
    _fails: bool = False
    finished: bool = False
    """Its source has ended."""
    failure: QueryFailed | None = None
    """A failure that was not told, as the query was being brought to rest."""
    on_rest: Callable[[bool], None] | None = field(default=None)
    """Called once, and the query does nothing more: True when what ran is committed, False when it failed."""

    def begin(self, seconds: float, replayed_rows: int = 0) -> None:
        self._plan(seconds, lambda: self._begun(replayed_rows))

    def _plan(self, seconds: float, action: Callable[[], None]) -> None:
        self._turn += 1
        turn = self._turn

        def act() -> None:
            if turn == self._turn and self.state is not QueryState.GONE:
                action()

        self.host.clock.after(seconds, act)

    def _begun(self, replayed_rows: int) -> None:
        host = self.host
        if host.dice.hits(host.world.faults.start):
            self._fail(batch=None)
            return
        world = host.world
        plan = StreamPlan(
            stateful=("stateStoreSave",) if world.stateful else (),
            parallelism=self.checkpoint.parallelism if world.stateful else self.parallelism,
            refusal=world.refusal,
            trigger_interval=world.trigger_interval,
            continuous=math.isinf(world.rows_to_end),
            has_commit_barrier=world.has_commit_barrier,
        )
        self.state = QueryState.IDLE
        host.tell(
            QueryStarted(
                at=host.clock.now, run=self.run, plan=plan, batch=self.checkpoint.batch, replayed_rows=replayed_rows
            )
        )
        self._look()

    def _look(self) -> None:
        """For rows, between two batches."""
        host, now = self.host, self.host.clock.now
        if self.on_rest is not None:
            self._rest(True)
            return
        gap = self._triggered + (host.world.trigger_interval or 0.0) - now
        waiting = self._waiting()
        if waiting and gap <= 0:
            self._batch(waiting)
            return
        if not waiting and host.load.ended:
            self._leave()
            self.finished = True
            host.tell(QueryFinished(at=now, run=self.run, batch=self.checkpoint.batch))
            return
        self.state = QueryState.IDLE
        says = self._idle_told + host.world.idle_every
        if now >= says and self.checkpoint.pending is None:
            self._idle_told = now
            if self.barrier_on and host.world.has_commit_barrier:
                self._wait_at_barrier(QueryIdle(at=now, run=self.run, batch=self.checkpoint.batch, at_barrier=True))
                return
            host.tell(QueryIdle(at=now, run=self.run, batch=self.checkpoint.batch))
            says = now + host.world.idle_every
        wakes = now + gap if waiting else max(host.load.next_after(now), now + gap)
        self._plan(max(min(wakes, says) - now, 1e-6), self._look)

    def _waiting(self) -> int:
        """Rows of the next batch: first of all those of one that was left half done."""
        if self.checkpoint.pending is not None:
            return max(1, self.checkpoint.pending)
        host = self.host
        return min(host.world.most_rows, host.load.until(host.clock.now) - self.checkpoint.rows)

    def _batch(self, rows: int) -> None:
        host, world, faults = self.host, self.host.world, self.host.world.faults
        self._plan_batch(rows)
        self.state, self.cores_lost = QueryState.RUNNING, False
        self._triggered = self._since = host.clock.now
        host.tell(BatchStarted(at=host.clock.now, run=self.run, batch=self.checkpoint.batch + 1))
        self._fails = host.dice.hits(faults.batch)
        self._left = rows / world.rows_per_core_second
        self._speed = 0.0
        hangs = faults.hang_for if host.dice.hits(faults.hang) else 0.0
        self._plan(world.overhead * (1 + self.parallelism / 1000) + hangs, self.cores_changed)

    def _plan_batch(self, rows: int) -> None:
        self.checkpoint.plan_batch(rows)
        if self.host.world.stateful:
            self.checkpoint.parallelism = self.parallelism

    def cores_changed(self) -> None:
        """The batch goes on with the cores there are now; with none it waits."""
        if self.state is not QueryState.RUNNING:
            return
        now = self.host.clock.now
        self._left = max(0.0, self._left - (now - self._since) * self._speed)
        self._since, self._speed = now, float(min(self.host.cores, self.parallelism))
        if self._speed:
            self._plan(self._left / self._speed, self._batch_ends)
        else:
            self._turn += 1

    def _batch_ends(self) -> None:
        if self._fails or (self.cores_lost and self.host.dice.hits(0.3)):
            self._fail(batch=self.checkpoint.batch + 1)
            return
        host, now = self.host, self.host.clock.now
        rows = self.checkpoint.pending or 0
        self.checkpoint.commit()
        seconds = now - self._triggered
        at_barrier = self.barrier_on and host.world.has_commit_barrier and self.on_rest is None
        arrived = host.load.until(now)
        commit = BatchCommitted(
            at=now,
            run=self.run,
            batch=self.checkpoint.batch,
            rows=rows,
            duration=seconds,
            state_rows=self.checkpoint.state_rows,
            state_bytes=self.checkpoint.state_rows * BYTES_OF_A_ROW,
            backlog=arrived - self.checkpoint.rows if host.world.tells_backlog else None,
            input_rate=rows / max(seconds, host.world.trigger_interval or 0.001),
            processed_rate=rows / max(seconds, 0.001),
            at_barrier=at_barrier,
        )
        if at_barrier:
            self._wait_at_barrier(commit)
            return
        host.tell(commit)
        self._look()

    def _wait_at_barrier(self, event: AnyStreamEvent) -> None:
        self.state = QueryState.AT_BARRIER
        self._turn += 1
        self.host.tell(event)

    def let_go(self, batch: int) -> None:
        """The scheduler's Continue."""
        check(self.state is QueryState.AT_BARRIER, f"batch {batch} is let go, and the query waits at no barrier")
        check(batch == self.checkpoint.batch, f"batch {batch} is let go, and {self.checkpoint.batch} is at the barrier")
        self.state = QueryState.IDLE
        self._look()

    def hold_from_now(self, on: bool) -> None:
        self.barrier_on = on
        if on and self.state is QueryState.IDLE:
            self._idle_told = -math.inf  # it is looked at at once
            self._plan(0.0, self._look)

    def come_to_rest(self, then: Callable[[bool], None]) -> None:
        """Begin nothing more, and say when what runs is committed. A query without a commit barrier may have begun another batch."""
        self.on_rest = then
        if self.state in (QueryState.IDLE, QueryState.AT_BARRIER):
            self._rest(True)

    def _rest(self, fine: bool) -> None:
        then, self.on_rest = self.on_rest, None
        assert then is not None
        self.state = QueryState.AT_BARRIER if fine else QueryState.GONE
        self._turn += 1
        if fine and not self.host.world.has_commit_barrier and self.checkpoint.pending is None:
            rows = self._waiting()
            if rows:
                self._plan_batch(rows)  # begun before it could be stopped
        then(fine)

    def kill(self) -> None:
        """Stopped, wherever it is."""
        self.on_rest = None
        self._leave()

    def _leave(self) -> None:
        self.state = QueryState.GONE
        self._turn += 1

    def _fail(self, batch: int | None) -> None:
        host, faults = self.host, self.host.world.faults
        uncounted = batch is not None and (self.cores_lost or host.dice.hits(faults.uncounted))
        final = not uncounted and host.dice.hits(faults.final)
        cause = CAUSES[2] if uncounted else CAUSES[host.dice.rng.randrange(2)]
        failed = QueryFailed(
            at=host.clock.now, run=self.run, cause=cause, batch=batch, final=final, counted=not uncounted
        )
        self._leave()
        if self.on_rest is not None:
            self.failure = failed
            self._rest(False)
            return
        host.tell(failed)
