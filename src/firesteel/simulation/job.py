"""One job on a simulated cluster: tells the real scheduler what happens there, and has its commands carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from firesteel.journal.file import Instrument
from firesteel.report.waits import in_words
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import Scheduler
from firesteel.simulation.clock import seen_at
from firesteel.simulation.cluster.ending import Ending
from firesteel.simulation.cluster.launching import Launcher
from firesteel.simulation.cluster.storage import Requests
from firesteel.simulation.injection import FaultInjection
from firesteel.simulation.plane import Plane, World
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import ViolationError

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


class SimulatedJob:
    """A cluster on which functions fail and nodes are slow or stand still. (Subclasses let more go wrong, and check what the scheduler asks for.)"""

    plane_type: type[Plane] = Plane
    launcher_type: type[Launcher] = Launcher
    ending_type: type[Ending] = Ending
    injection_type: type[FaultInjection] = FaultInjection

    def __init__(
        self, scheduler: Scheduler, world: World, instrument: Instrument | None = None, watch: Stopwatch | None = None
    ) -> None:
        self.scheduler = scheduler
        self.world = world
        self.watch = watch or Stopwatch()
        self.events = 0
        self._heard_at = 0.0
        self._mirrors_won = 0
        self.plane = self.plane_type(scheduler, world, instrument, self.watch, self.tell)
        self._launcher = self.launcher_type(self.plane)
        self._ending = self.ending_type(self.plane)
        self.fault_injection = self.injection_type(self.plane, self._ending)
        self._last_vertices = {v.id for v in scheduler.job_graph.vertices if not v.outputs}

    def run(self) -> Outcome:
        """To the end. Raises ViolationError when the job never ends."""
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
            Speculated(int(self._mirrors().sum()), self._mirrors_won, plane.blocks, plane.rejects),
        )

    def _mirrors(self) -> NDArray[np.bool_]:
        """Returns a mask of the executions that are mirrors and began."""
        runs = self.plane.runs
        return runs.mirror[: runs.size] & ~runs.rejected[: runs.size] & (runs.node[: runs.size] >= 0)

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
            raise ViolationError(
                "\n".join(
                    ["The job does not end.", *in_words(self.scheduler.waiting_for(), self.scheduler.graph.job_graph)]
                )
            )
        clock.advance(moment)
        while (action := clock.take()) is not None:
            self._do(action)
        self._ending.tell_of_ends()
        self._launch()

    def _do(self, action: Callable[[], None]) -> None:
        action()

    def _launch(self) -> None:
        """Free slots are given away."""
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
        """An event happens."""
        if not self.scheduler.status.is_terminal:
            self.handle(event)

    def handle(self, event: e.Event) -> None:
        """Hand one event to the scheduler, and what it answers to the cluster."""
        self.events += 1
        with self.watch.measure(self._phase(event)):
            commands = self.scheduler.handle(event)
        if not isinstance(event, e.TimerFired):
            self._heard_at = self.plane.clock.now
        self._answered(event, commands)

    def _answered(self, event: e.Event, commands: Sequence[c.Command]) -> None:
        if isinstance(event, e.ExecutionsFinished):
            refused = [command.tokens for command in commands if isinstance(command, c.DiscardExecutions)]
            won = np.setdiff1d(event.reports.tokens, np.concatenate([np.empty(0, np.int64), *refused]))
            self._mirrors_won += int(self.plane.runs.mirror[won - 1].sum())
        self.plane.carry_out(commands)

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
