"""The shipped simulation with all that tests need more: many kinds of faults, drivers that die, deployments that somebody else answers, and checks of
all that the scheduler asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tests.simulation import reading
from tests.simulation.drivers import MakeDrivers, OneDriver
from tests.simulation.ending import Ending
from tests.simulation.injection import FaultInjection
from tests.simulation.launching import Launcher
from tests.simulation.plane import Plane

from firesteel.journal.file import Instrument
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import Scheduler
from firesteel.simulation import job
from firesteel.simulation.cluster.reading import inputs_of
from firesteel.simulation.plane import World
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import check

if TYPE_CHECKING:
    from tests.simulation.corrected import Answers


class SimulatedJob(job.SimulatedJob):
    """``scheduler``: the first driver's. ``drivers``: what happens between an event and its commands; None: they are carried out at once, and
    the driver never dies. ``deployments``: what is left to be run of deployments; None: all. ``validate_every``: so many events the scheduler is
    validated, and all that is read looked at; 0: never. Slow."""

    plane: Plane
    fault_injection: FaultInjection
    plane_type = Plane
    launcher_type = Launcher
    ending_type = Ending
    injection_type = FaultInjection

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument | None = None,
        watch: Stopwatch | None = None,
        *,
        drivers: MakeDrivers | None = None,
        deployments: Callable[[SimulatedJob], Answers] | None = None,
        validate_every: int = 0,
    ) -> None:
        super().__init__(scheduler, world, instrument, watch)
        self._validate_every = validate_every
        if deployments is not None:
            self.plane.answered = deployments(self)
            self.plane.answered.serve(self.plane)
        self.drivers = OneDriver(self) if drivers is None else drivers(self)

    def outcome(self) -> job.Outcome:
        """Raises nothing. Mirrors that won are those of the ledger."""
        outcome = super().outcome()
        won = self.plane.ledger.winners_among(self._mirrors())
        return replace(outcome, speculation=replace(outcome.speculation, effective=won))

    def _do(self, action: Callable[[], None]) -> None:
        action()
        self.drivers.go_on()

    def _launch(self) -> None:
        """Free slots are given away; when the driver dies of what it hears of that, the next one's executions get some."""
        self.drivers.go_on()
        super()._launch()
        while self.drivers.go_on():
            super()._launch()

    def tell(self, event: e.Event) -> None:
        """An event happens, and sometimes comes once more."""
        if self.scheduler.status.is_terminal or self.drivers.is_down:
            return
        self.handle(event)
        if self.plane.ended is None and self.plane.dice.happens(self.plane.faults.duplicate):
            # What workers there are is seen in order: an old view of it is never told after a newer one.
            is_view = isinstance(event, e.WorkersOccupied | e.ExecutorChanged) and self.plane.has_resources
            self.plane.message(0.0 if is_view else self.plane.delay(), lambda: self.tell(event))

    def _answered(self, event: e.Event, commands: Sequence[c.Command]) -> None:
        self.drivers.handled(event, list(commands))
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
            for gate, ranges in inputs_of(deployment.command):
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
