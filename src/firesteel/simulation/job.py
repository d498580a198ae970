"""One job on a simulated cluster: tells the real scheduler what happens there, and has its commands carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from firesteel.journal.file import Instrument
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.scheduler import Scheduler
from firesteel.simulation.clock import seen_at
from firesteel.simulation.cluster import reading
from firesteel.simulation.cluster.ending import Ending
from firesteel.simulation.cluster.launching import Launcher
from firesteel.simulation.cluster.storage import Requests
from firesteel.simulation.drivers import MakeDrivers, OneDriver
from firesteel.simulation.faults.injection import FaultInjection
from firesteel.simulation.plane import AllRun, Deployments, Plane, World
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import ViolationError, check

BEAT_SHARE = 0.02
"""Of the time that an execution takes: an error that nobody minds, and a thousand events the fewer."""
PATIENCE = 1000.0
"""Virtual seconds in which nothing but timers is heard of, and nothing runs that will end: such a job never ends."""


@dataclass(frozen=True, slots=True)
class Speculated:
    """Speculation as the cluster saw it."""

    mirrors: int = 0
    """Executions that began while another one of their subtask was under way."""
    effective: int = 0
    """Mirrors that won."""
    blocked: int = 0
    """Number of times a node was blocked."""
    rejected: int = 0
    """Executions that were rejected by a blocked node."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``makespan``: virtual seconds. ``decisions``: how many of each kind."""

    status: c.JobStatus
    makespan: float
    events: int
    deployments: int
    requests: Requests
    decisions: dict[str, int] = field(default_factory=dict)
    speculation: Speculated = field(default_factory=Speculated)


class NoInstrument:
    def record(self, record: JournalRecord) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""


MakeDeployments = Callable[["SimulatedJob"], Deployments]


class SimulatedJob:
    """``scheduler``: the first driver's. ``drivers``: what happens between an event and its commands; None: they are carried out at once, and
    the driver never dies. ``deployments``: what is left to be run of deployments; None: all. ``validate_every``: so many events the scheduler is validated, and all that is read looked at; 0: never. Slow."""

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument | None = None,
        watch: Stopwatch | None = None,
        *,
        drivers: MakeDrivers | None = None,
        deployments: MakeDeployments | None = None,
        validate_every: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.world = world
        self.watch = watch or Stopwatch()
        self.events = 0
        self._validate_every = validate_every
        self._heard_at = 0.0
        answered = AllRun() if deployments is None else deployments(self)
        listener = instrument or NoInstrument()
        plane = self.plane = Plane(scheduler, world, listener, self.watch, self.tell, deployments=answered)
        self._launcher = Launcher(plane, self.tell)
        self._ending = Ending(plane, self.watch, self.tell)
        self.fault_injection = FaultInjection(plane, self._ending, self.tell)
        self.drivers = OneDriver(self) if drivers is None else drivers(self)
        self._last_vertices = {v.id for v in scheduler.job_graph.vertices if not v.outputs}

    def run(self) -> Outcome:
        """To the end. Raises ViolationError when the scheduler does what it must not, or the job never ends."""
        self.start()
        while self.plane.ended is None:
            self.step()
        return self.outcome()

    def outcome(self) -> Outcome:
        plane = self.plane
        return Outcome(
            plane.status,
            plane.clock.now,
            self.events,
            plane.deploys,
            plane.storage.requests,
            dict(plane.decisions),
            self._speculated(),
        )

    def _speculated(self) -> Speculated:
        plane, runs = self.plane, self.plane.runs
        began = runs.mirror[: runs.size] & ~runs.rejected[: runs.size] & (runs.node[: runs.size] >= 0)
        return Speculated(int(began.sum()), plane.ledger.winners_among(began), plane.blocks, plane.rejects)

    def start(self) -> None:
        if self.plane.has_resources:  # requests are held against all workers that there are, not the first
            self.fault_injection.tell_of_nodes()
        self.tell(e.JobStarted(at=self.plane.clock.now))
        if not self.plane.has_resources:
            self.fault_injection.tell_of_nodes()
        self.fault_injection.begin()
        self._launch()

    def step(self) -> None:
        """Go on to the next moment at which something happens."""
        clock, moment = self.plane.clock, self.next_moment
        idle = moment - self._heard_at > PATIENCE and not np.isfinite(self.plane.cluster.ends).any()
        if np.isinf(moment) or idle:
            raise ViolationError("\n".join(["The job does not end.", *self.scheduler.waiting_for()]))
        clock.advance(moment)
        while (action := clock.take()) is not None:
            action()
            self.drivers.go_on()
        self._ending.tell_of_ends()
        self._launch()

    def _launch(self) -> None:
        """Free slots are given away; when the driver dies of what it hears of that, the next one's executions get some."""
        self.drivers.go_on()
        self._launcher.start_waiting()
        while self.drivers.go_on():
            self._launcher.start_waiting()

    @property
    def next_moment(self) -> float:
        """Returns the time at which something happens next, virtual seconds; inf: never."""
        return min(self.plane.clock.next_at, self._next_end_seen())

    def _next_end_seen(self) -> float:
        """Returns the time at which the next end of an execution is heard of: long ones are looked at more seldom."""
        cluster, runs = self.plane.cluster, self.plane.runs
        slot = cluster.next_to_end()
        end = float(cluster.ends[slot])
        if not self.world.heartbeat or np.isinf(end):
            return end
        took = end - float(runs.started[cluster.run[slot]])
        return seen_at(end, max(self.world.heartbeat, BEAT_SHARE * took))

    def tell(self, event: e.Event) -> None:
        """An event happens, and sometimes comes once more."""
        if self.scheduler.status.is_terminal or self.drivers.is_down:
            return
        self.handle(event)
        if self.plane.ended is None and self.plane.dice.happens(self.world.faults.duplicate):
            # What workers there are is seen in order: an old view of it is never told after a newer one.
            is_view = isinstance(event, e.WorkersOccupied | e.ExecutorChanged) and self.plane.has_resources
            self.plane.message(0.0 if is_view else self.plane.delay(), lambda: self.tell(event))

    def handle(self, event: e.Event) -> None:
        """Hand one event to the scheduler, and what it answers to the driver."""
        self.events += 1
        with self.watch.measure(self._phase(event)):
            commands = self.scheduler.handle(event)
        if not isinstance(event, e.TimerFired):
            self._heard_at = self.plane.clock.now
        self.drivers.handled(event, commands)
        if self._validate_every and self.events % self._validate_every == 0:
            self.scheduler.validate()
            if not self.drivers.is_down:  # who reads what it has deleted goes with it
                self._check_reads()

    def carry_out(self, commands: Sequence[c.Command]) -> None:
        self.plane.carry_out(commands)
        if self.plane.ended is not None:
            self._check_end()

    def take_over(self, scheduler: Scheduler) -> None:
        """Another driver's scheduler goes on with the job."""
        self.scheduler = scheduler
        self.plane.serve(scheduler)

    def _check_reads(self) -> None:
        """Nothing that a running or waiting execution reads is deleted."""
        storage, runs = self.plane.storage, self.plane.runs
        for deployment, group in runs.by_deployment(runs.active()):
            for gate, ranges in reading.inputs_of(deployment.command):
                kept = ~storage.was_deleted(gate.dataset, gate.tokens)
                if not kept.all():
                    misses, _ = reading.first_missing(gate, ranges, kept, group - deployment.first)
                    check(
                        not misses.any(),
                        f"data set {gate.dataset} is deleted while {deployment.command.vertex} reads it",
                    )
                if gate.merged is not None:
                    there = bool(storage.merged.has(gate.merged.tokens).all())
                    check(there, f"merged objects of data set {gate.dataset} are deleted while somebody reads them")

    def _phase(self, event: e.Event) -> str:
        match event:
            case e.JobStarted():
                return "start"
            case e.ExecutionsFinished():
                return "finish of consumers" if event.vertex in self._last_vertices else "finish of producers"
            case e.ExecutionsDeploying() | e.ExecutionsRejected():
                return "launch"
            case e.ExecutionsFailed() | e.PartitionsLost():
                return "failover"
            case _:
                return "other"

    def _check_end(self) -> None:
        left = len(self.plane.runs.active())
        check(not left, f"the job has ended and {left} executions that nobody cancelled wait or run")
        if self.plane.status is not c.JobStatus.FINISHED:
            return  # the runtime wipes the job's storage
        datasets = self.scheduler.job_graph.datasets
        runs = self.plane.runs
        delivered = np.concatenate(([False], runs.delivered[: runs.size]))
        leaks = self.plane.storage.leaks([d.id for d in datasets if d.persistent], delivered)
        check(not leaks, f"the job has finished and left {', '.join(leaks)}")
        self.plane.ledger.check_finished()
        self.plane.key_ranges.check_finished()
        self.plane.shares.check_finished(self.plane.ledger.winning_attempts)
        self.plane.fused.check_finished(self.plane.ledger.winning_attempts)
        check(self.scheduler.graph.all_finished, "the job is FINISHED before all vertices are")
