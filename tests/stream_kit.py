"""A stream's scheduler driven by hand: what it is told, and what it asks for."""

from __future__ import annotations

from typing import Any

from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.report.waits import of_stream
from firesteel.scheduler.kernel import commands as kernel
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.streaming import commands, events
from firesteel.scheduler.streaming.adaptive_scheduler import AdaptiveScheduler
from firesteel.scheduler.streaming.records import RescaleRecord
from firesteel.scheduler.streaming.states import Phase, SchedulerState
from firesteel.scheduler.streaming.wish import ResourceRequirements

COUNT = events.StreamPlan(stateful=("count",), parallelism=2)


class Stream:
    """``tell`` and the shorthands return the commands without timers and records, and keep those aside."""

    def __init__(
        self, lower: int = 1, upper: int = 128, *, group: SlotSharingGroup | None = None, cpus: int = 1, **options: Any
    ) -> None:
        named = {name.replace("_", "-"): value for name, value in options.items()}
        needs, of_slots = ResourceRequirements(lower, upper), {} if group is None else {"group": group}
        self.scheduler = AdaptiveScheduler("s", "chk", needs, Options(named), cpus=cpus, **of_slots)
        self.at = 0.0
        self.timers: dict[str, float] = {}
        self.records: list[Any] = []
        self.commands: list[commands.StreamCommand] = []
        self.run = 0
        self.batch = -1

    def tell(self, event: events.StreamEvent) -> list[commands.StreamCommand]:
        told = self.scheduler.handle(event)
        kept: list[commands.StreamCommand] = []
        for command in told:
            match command:
                case kernel.SetTimer():
                    self.timers[command.timer] = command.at
                case kernel.CancelTimer():
                    self.timers.pop(command.timer, None)
                case kernel.Record():
                    self.records.append(command.record)
                case _:
                    kept.append(command)
            if isinstance(command, commands.StartQuery | commands.Rescale):
                self.run = command.run
        self.commands += kept
        return kept

    def to(self, at: float) -> list[commands.StreamCommand]:
        """Let time pass; timers fire as they are due."""
        found: list[commands.StreamCommand] = []
        while self.timers and min(self.timers.values()) <= at:
            name = min(self.timers, key=lambda timer: (self.timers[timer], timer))
            self.at = max(self.at, self.timers.pop(name))
            found += self.tell(events.TimerFired(at=self.at, timer=name))
        self.at = at
        return found

    def submit(self, cores: int = 2, *, complete: bool = True) -> list[commands.StreamCommand]:
        return self.cores(cores, complete=complete) + self.tell(events.StreamSubmitted(at=self.at))

    def cores(self, cores: int, **how: Any) -> list[commands.StreamCommand]:
        return self.tell(events.ClusterChanged(at=self.at, cores=cores, executors=max(cores, 1), **how))

    def executors(self, *offers: events.ExecutorOffer, **how: Any) -> list[commands.StreamCommand]:
        """These are there now."""
        cores, count = sum(each.count * each.cores for each in offers), sum(each.count for each in offers)
        return self.tell(events.ClusterChanged(at=self.at, cores=cores, executors=count, offers=offers, **how))

    def started(self, plan: events.StreamPlan = COUNT, **how: Any) -> list[commands.StreamCommand]:
        return self.tell(events.QueryStarted(at=self.at, run=self.run, plan=plan, batch=self.batch, **how))

    def begin(self, batch: int | None = None) -> list[commands.StreamCommand]:
        return self.tell(
            events.BatchStarted(at=self.at, run=self.run, batch=self.batch + 1 if batch is None else batch)
        )

    def commit(self, *, at_barrier: bool = False, **numbers: Any) -> list[commands.StreamCommand]:
        self.batch += 1
        numbers.setdefault("duration", 1.0)
        return self.tell(
            events.BatchCommitted(at=self.at, run=self.run, batch=self.batch, at_barrier=at_barrier, **numbers)
        )

    def fail(self, cause: str = "it broke", batch: int | None = None, **how: Any) -> list[commands.StreamCommand]:
        return self.tell(events.QueryFailed(at=self.at, run=self.run, cause=cause, batch=batch, **how))

    def running(self, cores: int = 1, plan: events.StreamPlan = COUNT) -> Stream:
        """Executing, from time 0."""
        self.submit(cores)
        self.started(plan)
        assert self.state is SchedulerState.EXECUTING
        return self

    @property
    def state(self) -> SchedulerState:
        return self.scheduler.state

    @property
    def phase(self) -> Phase | None:
        return self.scheduler.phase

    @property
    def waits_for(self) -> str:
        return of_stream(self.scheduler.status(self.at).waits)

    def rescales(self) -> list[RescaleRecord]:
        return [record for record in self.records if isinstance(record, RescaleRecord)]

    def decisions(self, what: str) -> list[Decision]:
        return [record for record in self.records if isinstance(record, Decision) and record.what == what]
