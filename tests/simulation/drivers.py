"""Drivers of a simulated job: one that lives for ever, or several that die, each going on from the log of those before it.

A driver dies between an event and the end of its commands: before the event is in the log, after, or with some commands carried out.
Then its scheduler is thrown away, what ran is gone or finishes unheard, objects vanish. The next driver's scheduler is rebuilt from
the log's bytes, and must have decided the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from tests.simulation.digest import JournalDigest

from firesteel.model.arrays import Ints
from firesteel.scheduler.inputs import SideInputs
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.recovery.codec import encode
from firesteel.scheduler.recovery.facts import facts_of
from firesteel.scheduler.recovery.reconcile import Found, events_after, kept_tokens
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan, Told, decode_records, encode_records
from firesteel.scheduler.recovery.replay import Replayed, replay
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.topology.executions import NO_ROW
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.dice import Dice
from firesteel.simulation.violation import check

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

MakeScheduler = Callable[[SideInputs], Scheduler]
"""Makes the scheduler of each driver; they are all alike."""


class OneDriver:
    """It lives for ever, and writes no log."""

    is_down = False
    """The driver has died, and none has taken over: events are lost."""

    def __init__(self, job: SimulatedJob) -> None:
        self._job = job

    def handled(self, event: e.Event, commands: list[c.Command]) -> None:
        """The scheduler answered the event with these commands. They are carried out in time, or never."""
        if isinstance(event, e.ExecutionsFinished):
            self._job.plane.ledger.heard(event, commands)
        self._job.carry_out(commands)

    def go_on(self) -> bool:
        """If the driver has died, another one takes over; returns whether one has."""
        return False


@dataclass(frozen=True)
class _Handled:
    """An event whose commands wait for its frame to be written."""

    event: e.Event
    commands: list[c.Command]
    frame: bytes


class MortalDrivers(OneDriver):
    """``deaths``: number of drivers that have died. ``replayed``: events that their successors had to handle again."""

    def __init__(self, job: SimulatedJob, make: MakeScheduler, side_inputs: SideInputs) -> None:
        """``side_inputs``: of the scheduler that the job has."""
        super().__init__(job)
        self.deaths = 0
        self.replayed = 0
        self._make = make
        self._side_inputs = side_inputs
        faults = job.plane.faults
        self._faults = faults
        self._dice = Dice(job.world.seed, f"drivers {faults.driver_dies_at}")
        self._log: list[bytes] = []
        self._notes: list[AnyLogRecord] = []
        """Written with the next event."""
        self._waiting: list[_Handled] = []
        self._story = JournalDigest()
        """Of all records that followed from what is in the log."""

    @property
    def log(self) -> list[list[AnyLogRecord]]:
        """All that was written so far."""
        return [decode_records(frame) for frame in self._log]

    def note(self, record: AnyLogRecord) -> None:
        """A record that the scheduler does not hear of."""
        self._notes.append(record)

    def handled(self, event: e.Event, commands: list[c.Command]) -> None:
        told = Told(*encode(_plain(event)), self._side_inputs.take())
        frame = encode_records([told, *facts_of(commands)])
        self._waiting.append(_Handled(event, commands, frame))
        if not self._faults.log_seconds:
            self._write()
        elif len(self._waiting) == 1:
            self._job.plane.message(self._faults.log_seconds, self._write)

    def go_on(self) -> bool:
        died = self.is_down
        while self.is_down and self._job.plane.ended is None:
            self._take_over()
        return died

    # --- a driver's life ---------------------------------------------------------------------------------------

    def _write(self) -> None:
        """All that waits is written, together, and carried out in its order; unless the driver dies on the way."""
        if self.is_down:
            return
        group, self._waiting = self._waiting, []
        dies = self._dies(len(group))
        steps = sum(1 + len(handled.commands) for handled in group)
        last = self._dice.one_of(len(group) + steps) if dies else -1
        written = group[:last] if dies and last < len(group) else group
        for handled in written:
            self._is_written(handled)
        left = max(0, last - len(group)) if dies else steps
        for handled in written:
            if isinstance(handled.event, e.ExecutionsFinished):
                self._job.plane.ledger.heard(handled.event, handled.commands)
            if left > 0:
                self._job.carry_out(handled.commands[:left])
            left -= 1 + len(handled.commands)
        if dies:
            self._die()

    def _dies(self, events: int) -> bool:
        """Returns whether the driver dies with one of these events, the last that it handled."""
        faults, handled = self._faults, self._job.events
        if faults.driver_dies_at and not self.deaths and handled - events < faults.driver_dies_at <= handled:
            return True
        return self.deaths < faults.max_driver_deaths and self._dice.happens(1 - (1 - faults.driver_dies) ** events)

    def _is_written(self, handled: _Handled) -> None:
        self._log += [encode_records([note]) for note in self._notes]
        self._notes.clear()
        self._log.append(handled.frame)
        for command in handled.commands:
            if isinstance(command, c.Record):
                self._story.record(command.record)

    def _die(self) -> None:
        if self._job.plane.ended is None:
            self.is_down = True
            self.deaths += 1
            self._waiting.clear()
            self._notes.clear()
            self._job.plane.orphan()

    # --- the next one ------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        job, plane = self._job, self._job.plane
        self._meanwhile()
        replayed = self._rebuilt()
        job.take_over(replayed.scheduler)
        self.is_down = False
        self._began()
        kept = kept_tokens(replayed.scheduler)
        stored = {dataset: self._stored(dataset) for dataset in kept}
        self._sweep(kept, replayed)
        before = _winners(replayed.scheduler)
        for command in replayed.outstanding.commands():
            job.carry_out([command])
        found = Found(plane.workers_there(), stored, *self._void(replayed.scheduler))
        for event in events_after(replayed, found, lambda: plane.clock.now):
            if self.is_down or plane.ended is not None:
                return
            job.handle(event)
        is_told = not self.is_down and plane.ended is None
        if is_told and not (found.staged_lost or found.unrepeatable):
            self._check_kept(before, kept, stored)

    def _meanwhile(self) -> None:
        """All that ran is gone, but some of it finishes, at once or later, and nobody hears of that. Some objects vanish."""
        plane, dice = self._job.plane, self._dice
        runs = plane.runs
        running = np.flatnonzero(runs.state[: runs.size] == RunState.RUNNING)
        running = running[~runs.fails[running] & ~runs.rejected[running]]
        finishes, late = dice.which(0.4, len(running)), dice.which(0.5, len(running))
        for row in running[finishes & ~late].tolist():
            self._finish_unheard(row)
        plane.lose_driver()
        for row in running[finishes & late].tolist():
            plane.clock.after(dice.until_next(1.0), lambda row=row: self._finish_unheard(row))
        if plane.faults.lose_every and plane.graph.datasets and dice.happens(0.5):
            dataset = dice.one_of(len(plane.graph.datasets))
            tokens = plane.storage.objects(dataset, plane.graph.datasets[dataset].producer)
            if len(tokens):
                plane.storage.lose(dataset, np.unique(dice.rng.choice(tokens, 2)))

    def _void(self, scheduler: Scheduler) -> tuple[list[e.OutputsLost], list[int]]:
        """Staged outputs of sinks that are gone, and vertices whose rows would be parted otherwise."""
        if not self._job.plane.faults.lose_every:
            return [], []
        graph, table, dice = scheduler.graph, scheduler.executions, self._dice
        lost: list[e.OutputsLost] = []
        for vertex in graph.vertices:
            finished = np.flatnonzero(vertex.winner != NO_ROW)
            gone = finished[dice.which(0.2 if vertex.job.has_sink else 0.0, len(finished))]
            if len(gone):
                rows = vertex.winner[gone]
                attempts, tokens = table.attempt[rows].astype(np.int64), table.token[rows]
                lost.append(e.OutputsLost(at=0.0, vertex=vertex.id, subtasks=gone, attempts=attempts, tokens=tokens))
        return lost, [vertex.id for vertex in graph.vertices if dice.happens(0.05)]

    def _finish_unheard(self, row: int) -> None:
        plane = self._job.plane
        if plane.ended is None:
            vertex = plane.graph.vertices[int(plane.runs.vertex[row])]
            written = [d for d in vertex.outputs if plane.graph.datasets[d].type.value == "blocking"]
            plane.storage.write(vertex.id, written, np.array([row + 1]), plane.runs.node[row : row + 1])

    def _rebuilt(self) -> Replayed:
        """The scheduler of the next driver, which must have decided the same."""
        side_inputs, story = SideInputs(), JournalDigest()
        scheduler = self._make(side_inputs)

        def carry_out(command: c.Command) -> None:
            if isinstance(command, c.Record):
                story.record(command.record)
            elif not isinstance(command, c.VertexAbsorbed):  # the graph is the scheduler's own
                self._job.plane.carry_out([command])

        frames = self.log
        replayed = replay(scheduler, frames, side_inputs, carry_out=carry_out)
        self.replayed += len(frames)
        same = story.digest == self._story.digest
        check(same, f"driver {self.deaths + 1} has other decisions on record than the ones before it")
        scheduler.validate()
        self._side_inputs = side_inputs
        return replayed

    def _began(self) -> None:
        began = DriverBegan(self.deaths + 1, self.deaths, "here", 1, None, "", 0.0, self._job.plane.clock.now)
        self._log.append(encode_records([began]))

    def _stored(self, dataset: int) -> Ints:
        plane = self._job.plane
        return plane.storage.objects(dataset, plane.graph.datasets[dataset].producer)

    def _sweep(self, kept: dict[int, Ints], replayed: Replayed) -> None:
        """Whatever is of no use to the scheduler goes."""
        plane = self._job.plane
        for dataset in plane.graph.datasets:
            plane.storage.sweep(dataset.id, dataset.producer, kept.get(dataset.id, np.zeros(0, np.int64)))
        plane.storage.sweep_merged(set[int]().union(*replayed.outstanding.merged.values()))

    def _check_kept(self, before: list[Ints], kept: dict[int, Ints], stored: dict[int, Ints]) -> None:
        """All that had finished stays finished, if nothing was lost. (Those that run together run again together.)"""
        scheduler = self._job.scheduler
        if any(dataset.type.value == "pipelined" for dataset in scheduler.job_graph.datasets):
            return
        if any(not np.isin(tokens, stored[dataset]).all() for dataset, tokens in kept.items()):
            return
        for vertex, tokens in enumerate(_winners(scheduler)[: len(before)]):
            again = np.flatnonzero((before[vertex] != tokens[: len(before[vertex])]) & (before[vertex] >= 0))
            check(
                not len(again), f"subtasks {again} of vertex {vertex} had finished, nothing is lost, and they run again"
            )


MakeDrivers = Callable[["SimulatedJob"], OneDriver]


def _winners(scheduler: Scheduler) -> list[Ints]:
    """By vertex: the token of each subtask that has finished, -1 where none has."""
    table = scheduler.executions
    return [np.where(v.winner == NO_ROW, -1, table.token[v.winner]) for v in scheduler.graph.vertices]


def _plain(event: e.Event) -> e.Event:
    """The same event, of columns as tasks tell them: those here are made when somebody looks."""
    if not isinstance(event, e.ExecutionsFinished):
        return event
    partitions = tuple(
        replace(part, sizes=None if part.sizes is None else list(part.sizes)) for part in event.reports.partitions
    )
    return structs.replace(event, reports=replace(event.reports, partitions=partitions))


def mortal(make: MakeScheduler) -> tuple[Scheduler, MakeDrivers]:
    """The first driver's scheduler, and what makes the drivers of a job, as ``SimulatedJob`` takes them."""
    side_inputs = SideInputs()
    return make(side_inputs), lambda job: MortalDrivers(job, make, side_inputs)
