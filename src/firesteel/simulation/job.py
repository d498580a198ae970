"""One job on a simulated cluster: tells the real scheduler what happens there, and has its commands carried out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from firesteel.journal.journal import Instrument
from firesteel.scheduler import Scheduler
from firesteel.scheduler import commands as c
from firesteel.scheduler import events as e
from firesteel.scheduler.events import Floats, Ints
from firesteel.scheduler.records import JournalRecord
from firesteel.simulation import reading
from firesteel.simulation.clock import seen_at
from firesteel.simulation.plane import Plane, World
from firesteel.simulation.runs import RunState, ended_last
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.storage import Requests
from firesteel.simulation.violation import ViolationError, check
from firesteel.simulation.workload import PackedSizes
from firesteel.sizes import is_measured

LAUNCH_SECONDS = 0.02
"""From the slot to the program's first step."""
BEAT_SHARE = 0.02
"""Of the time that an execution takes: an error that nobody minds, and a thousand events the fewer."""
COMPUTE_BYTES_PER_SECOND = 100e6
STORED_SHARE = 0.4
"""Stored bytes per plain byte."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``makespan``: virtual seconds. ``decisions``: how many of each kind."""

    status: c.JobStatus
    makespan: float
    events: int
    deployments: int
    requests: Requests
    decisions: dict[str, int] = field(default_factory=dict)


class NoInstrument:
    def record(self, record: JournalRecord) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""


class SimulatedJob:
    """``validate_every``: so many events the scheduler is validated, and all that is read looked at; 0: never. Slow."""

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument | None = None,
        watch: Stopwatch | None = None,
        *,
        validate_every: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.world = world
        self.watch = watch or Stopwatch()
        self.events = 0
        self._validate_every = validate_every
        self._failures_left = world.faults.max_failures
        self._deaths_left = world.faults.max_node_deaths
        self._losses_left = world.faults.max_losses
        self.plane = Plane(scheduler, world, instrument or NoInstrument(), self.watch, self.tell)
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
            plane.status, plane.clock.now, self.events, plane.deploys, plane.storage.requests, dict(plane.decisions)
        )

    def start(self) -> None:
        self.tell(e.JobStarted(at=0.0))
        for node in range(self.world.cluster.nodes):
            self._tell_of_node(node, added=True)
        faults, dice = self.world.faults, self.plane.dice
        if faults.node_death_every:
            self.plane.clock.after(dice.until_next(faults.node_death_every), self._some_node_dies)
        if faults.lose_every:
            self.plane.clock.after(dice.until_next(faults.lose_every), self._some_object_vanishes)
        if faults.cancel_after:
            self.plane.clock.after(faults.cancel_after, lambda: self.tell(e.CancelRequested(at=self.plane.clock.now)))
        self._start_waiting()

    def step(self) -> None:
        """Go on to the next moment at which something happens."""
        clock = self.plane.clock
        moment = min(clock.next_at, self._next_end_seen())
        if np.isinf(moment):
            raise ViolationError("\n".join(["The job does not end.", *self.scheduler.waiting_for()]))
        clock.advance(moment)
        while (action := clock.take()) is not None:
            action()
        self._tell_of_ends()
        self._start_waiting()

    def _next_end_seen(self) -> float:
        """When the next execution that ends is heard of: long ones are looked at more seldom."""
        cluster, runs = self.plane.cluster, self.plane.runs
        slot = cluster.next_to_end()
        end = float(cluster.ends[slot])
        if not self.world.heartbeat or np.isinf(end):
            return end
        took = end - float(runs.started[cluster.run[slot]])
        return seen_at(end, max(self.world.heartbeat, BEAT_SHARE * took))

    def tell(self, event: e.Event) -> None:
        """Hand one event to the scheduler and carry out what it answers; sometimes the event comes once more."""
        if self.plane.ended is not None:
            return
        self.events += 1
        with self.watch.measure(self._phase(event)):
            commands = self.scheduler.handle(event)
        self.plane.carry_out(commands)
        if self._validate_every and self.events % self._validate_every == 0:
            self.scheduler.validate()
            self._check_reads()
        if self.plane.ended is not None:
            self._check_end()
        elif self.plane.dice.happens(self.world.faults.duplicate):
            self.plane.clock.after(self._delay(), lambda: self.tell(event))

    # --- executions begin and end --------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        plane = self.plane
        if plane.ended is not None or not len(plane.queue):
            return
        free = plane.cluster.free_slots()
        rows = plane.queue.take(len(free))
        if not len(rows):
            return
        slots, runs, now = free[: len(rows)], plane.runs, plane.clock.now
        runs.state[rows], runs.slot[rows], runs.started[rows] = RunState.RUNNING, slots, now
        runs.node[rows] = plane.cluster.node_of[slots]
        seconds = self._seconds(rows) / plane.cluster.speed[runs.node[rows]]
        fails = plane.dice.which(self.world.faults.fail_rate, len(rows))
        fails &= np.cumsum(fails) <= self._failures_left
        self._failures_left -= int(fails.sum())
        seconds[fails] *= plane.dice.between(0.1, 0.9, int(fails.sum()))
        runs.fails[rows] = fails
        ends = self._together(rows, now + LAUNCH_SECONDS + seconds)
        plane.cluster.occupy(slots, rows, ends)
        for group in self._by_vertex(rows):
            if not plane.dice.happens(self.world.faults.untold):
                names = plane.cluster.names_of(runs.node[group])
                nodes = np.array(names.names, object)[names.codes].tolist()
                event = e.ExecutionsDeploying(at=now, running=True, nodes=nodes, **plane.names(group))
                self.tell(event)

    def _seconds(self, rows: Ints) -> Floats:
        """What each takes on a node of full speed: requests, bytes over the wire, bytes through the program."""
        spec, seconds = self.world.storage, np.empty(len(rows))
        order = np.argsort(self.plane.runs.deployment[rows], kind="stable")
        place = 0
        for deployment, group in self.plane.runs.by_deployment(rows):
            requests, read = (
                deployment.reads[group - deployment.first],
                deployment.input_bytes[group - deployment.first],
            )
            waits = spec.latency * np.ceil((requests + 1) / spec.parallel_requests)
            self.plane.storage.requests.reads += int(requests.sum())
            seconds[order[place : place + len(group)]] = waits + read * (
                1 / spec.bandwidth + 1 / COMPUTE_BYTES_PER_SECOND
            )
            place += len(group)
        return seconds * self.plane.dice.between(0.9, 1.1, len(rows))

    def _together(self, rows: Ints, ends: Floats) -> Floats:
        """Members of a gang end after those that feed them; when one fails, the others stand still."""
        gangs = self.plane.gang_of(rows)
        members = np.flatnonzero(gangs >= 0)
        if not len(members):
            return ends
        numbers = np.unique(gangs[members], return_inverse=True)[1]
        latest = ended_last(ends[members], numbers, self.plane.runs.vertex[rows[members]].astype(np.int64))
        failed_at = np.full(numbers.max() + 1, np.inf)
        fails = self.plane.runs.fails[rows[members]]
        np.minimum.at(failed_at, numbers[fails], ends[members][fails])
        still = ~fails & (latest > failed_at[numbers])
        ends[members] = np.where(fails, ends[members], np.where(still, np.inf, latest))
        return ends

    def _tell_of_ends(self) -> None:
        plane = self.plane
        slots = plane.cluster.due(plane.clock.now)
        if not len(slots):
            return
        ended = plane.cluster.ends[slots]
        rows = plane.cluster.vacate(slots)
        plane.runs.ended[rows] = ended
        self._end(rows)
        for group in self._by_vertex(rows):
            parts = group.reshape(-1, 1) if self.world.one_by_one else [np.sort(group)]
            for part in parts:
                self._tell_of(part)
        plane.runs.forget(rows)

    def _end(self, rows: Ints) -> None:
        self.plane.runs.end(rows, RunState.UNTOLD)
        self.plane.runs.slot[rows] = -1

    def _tell_of(self, rows: Ints) -> None:
        """What became of these executions of one vertex, whose programs have ended."""
        if self.plane.ended is not None:
            return
        runs = self.plane.runs
        gone = runs.cancelled[rows] & ~self.plane.dice.which(self.world.faults.race, len(rows))
        fails = runs.fails[rows] & ~gone
        self.plane.tell_cancelled(rows[gone])
        if fails.any():
            cause = e.FailureCause(e.FailureKind.USER, "a made-up error of the user's function")
            self._tell_failed(rows[fails], cause)
        rest = rows[~gone & ~fails]
        if len(rest):
            missing = self._missing(rest)
            self._tell_missing(rest[missing >= 0], missing[missing >= 0])
            self._finish(rest[missing < 0])

    def _tell_failed(self, rows: Ints, cause: e.FailureCause, culpable: bool = True) -> None:
        self.plane.runs.state[rows] = RunState.TOLD
        names = self.plane.names(rows)
        self.tell(e.ExecutionsFailed(at=self.plane.clock.now, cause=cause, culpable=culpable, **names))

    def _finish(self, rows: Ints) -> None:
        plane, runs = self.plane, self.plane.runs
        if not len(rows):
            return
        event = self._finished(rows, rows + 1)
        written = [p.dataset for p in event.reports.partitions]
        plane.storage.write(event.vertex, written, rows + 1, runs.node[rows])

        def told() -> None:
            runs.state[rows], runs.delivered[rows] = RunState.TOLD, plane.ended is None
            self.tell(event)

        faults = self.world.faults
        if plane.dice.happens(faults.late) and not (plane.gang_of(rows) >= 0).any():
            plane.clock.after(self._delay(), told)
        else:
            told()
        if plane.dice.happens(faults.other_token):
            self._report_again(int(rows[plane.dice.one_of(len(rows))]), written)

    def _report_again(self, row: int, written: list[int]) -> None:
        plane = self.plane
        twin = np.array([plane.runs.again(row)])
        event = self._finished(np.array([row]), twin + 1)
        plane.storage.write(event.vertex, written, twin + 1, plane.runs.node[twin])

        def told() -> None:
            plane.runs.delivered[twin] = plane.ended is None
            self.tell(event)

        plane.clock.after(self._delay(), told)

    def _finished(self, rows: Ints, tokens: Ints) -> e.ExecutionsFinished:
        plane, runs = self.plane, self.plane.runs
        deployment = runs.deployment_of(int(rows[0]))
        vertex = plane.graph.vertices[deployment.command.vertex]
        read = np.concatenate([d.input_bytes[group - d.first] for d, group in runs.by_deployment(rows)])
        partitions = tuple(
            self._written(dataset, runs.subtask[rows].astype(np.int64), deployment.command)
            for dataset in vertex.outputs
            if plane.graph.datasets[dataset].type.value == "blocking"
        )
        reports = e.ExecutionReports(
            tokens=tokens,
            deployed_at=runs.started[rows],
            running_at=runs.started[rows] + LAUNCH_SECONDS,
            finished_at=runs.ended[rows],
            rows_in=np.zeros(len(rows), np.int64),  # bytes are made up, and have no rows
            bytes_in=read,
            rows_out=np.zeros(len(rows), np.int64),
            nodes=plane.cluster.names_of(runs.node[rows]),
            partitions=partitions,
            commits=[(b"commit",)] * len(rows) if vertex.has_sink else (),
        )
        return e.ExecutionsFinished(at=plane.clock.now, reports=reports, **plane.names(rows))

    def _written(self, dataset: int, subtasks: Ints, command: c.Deploy) -> e.PartitionReports:
        workload, n = self.world.workload, command.subpartitions[dataset]
        written = workload.totals(dataset, subtasks, n)
        packed = None
        if is_measured(command.parallelism, n):
            packed = PackedSizes(workload, dataset, subtasks, n, self.watch)
        stored = (written * STORED_SHARE).astype(np.int64)
        return e.PartitionReports(dataset, written, np.zeros_like(written), stored, packed)

    # --- inputs --------------------------------------------------------------------------------------------------

    def _missing(self, rows: Ints) -> Ints:
        """For each row the number of what it misses (see :meth:`_named`), -1 where nothing is."""
        found = np.full(len(rows), -1, np.int64)
        order = np.argsort(self.plane.runs.deployment[rows], kind="stable")
        place = 0
        self._misses: list[reading.Missing] = []
        for deployment, group in self.plane.runs.by_deployment(rows):
            places = order[place : place + len(group)]
            place += len(group)
            for index, (gate, ranges) in enumerate(reading.inputs_of(deployment.command)):
                version = int(self.plane.storage.version[gate.dataset])
                if deployment.seen[index] == version:
                    continue
                there = self.plane.storage.has(gate.dataset, gate.tokens)
                if there.all():
                    deployment.seen[index] = version
                    continue
                misses, first = reading.first_missing(gate, ranges, there, group - deployment.first)
                new = misses & (found[places] < 0)
                for at in np.unique(first[new]).tolist():
                    self._misses.append(reading.named(gate, at))
                    found[places[new & (first == at)]] = len(self._misses) - 1
        return found

    def _tell_missing(self, rows: Ints, misses: Ints) -> None:
        """Readers that miss the same object are told of together."""
        named = self._misses
        for number in np.unique(misses).tolist():
            missing, readers = named[number], rows[misses == number]
            # A cancelled reader may miss what was deleted; it is on its way out.
            gone = self.plane.runs.cancelled[readers]
            self.plane.tell_cancelled(readers[gone])
            readers = readers[~gone]
            if not len(readers):
                continue
            token = np.array([missing.token])
            deleted = bool(self.plane.storage.was_deleted(missing.dataset, token).any())
            check(not deleted, f"{missing} was deleted while subtasks read it")
            cause = e.FailureCause(
                e.FailureKind.PARTITION,
                "a made-up loss of an object",
                dataset=missing.dataset,
                partition=missing.partition,
                attempt=missing.attempt,
                token=missing.token,
            )
            self._tell_failed(readers, cause)

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
                    there = all(token in storage.merged for token in gate.merged.tokens.tolist())
                    check(there, f"merged objects of data set {gate.dataset} are deleted while somebody reads them")

    # --- what goes wrong -------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """A node dies, and all that runs there; its objects too where storage is the nodes' own."""
        plane, faults = self.plane, self.world.faults
        rows = plane.cluster.vacate(plane.cluster.kill(node))
        self._end(rows)
        self._halt_gangs(rows)
        if self.world.storage.node_local:
            plane.storage.lose_node(node)
        self._tell_of_node(node, added=False)
        culpable = not plane.dice.happens(faults.innocent)
        cause = e.FailureCause(e.FailureKind.WORKER, f"{plane.cluster.names[node]} is gone")
        for group in self._by_vertex(rows):
            if plane.ended is None:
                self._tell_failed(group, cause, culpable)
        plane.runs.forget(rows)

        def back() -> None:
            plane.cluster.revive(node)
            self._tell_of_node(node, added=True)

        plane.clock.after(faults.node_back_after, back)

    def fail_one(self, row: int) -> None:
        """One running execution misses the first object it reads; one that reads none fails by itself."""
        plane, rows = self.plane, np.array([row])
        plane.cluster.vacate(plane.runs.slot[rows].astype(np.int64))
        deployment = plane.runs.deployment_of(row)
        self._end(rows)
        for gate, ranges in reading.inputs_of(deployment.command):
            rects = ranges.of(row - deployment.first)
            if len(rects):
                first = int(rects[0, 0])
                place = first if gate.partitions is None else int(np.searchsorted(gate.partitions, first))
                plane.storage.lose(gate.dataset, gate.tokens[place : place + 1])
                self._misses = [reading.named(gate, place)]
                self._tell_missing(rows, np.zeros(1, np.int64))
                return
        self._tell_failed(rows, e.FailureCause(e.FailureKind.USER, "a made-up error of the user's function"))

    def lose(self, dataset: int, count: int = 1) -> None:
        """Some objects of a data set vanish."""
        plane = self.plane
        tokens = plane.storage.objects(dataset, plane.graph.datasets[dataset].producer)
        if len(tokens):
            plane.storage.lose(dataset, np.unique(plane.dice.rng.choice(tokens, count)))

    def _halt_gangs(self, rows: Ints) -> None:
        """Members of a gang stand still when one of them is gone, until they are cancelled."""
        gangs = self.plane.gang_of(rows)
        hurt = gangs[gangs >= 0]
        if len(hurt):
            slots = np.flatnonzero(self.plane.cluster.run >= 0)
            runs = self.plane.cluster.run[slots]
            stuck = np.isin(self.plane.gang_of(runs), hurt) & ~self.plane.runs.cancelled[runs]
            self.plane.cluster.ends[slots[stuck]] = np.inf

    def _some_node_dies(self) -> None:
        plane, faults = self.plane, self.world.faults
        alive = np.flatnonzero(plane.cluster.alive)
        if len(alive) > 1:
            self._deaths_left -= 1
            self.kill(int(alive[plane.dice.one_of(len(alive))]))
        if self._deaths_left > 0:
            plane.clock.after(plane.dice.until_next(faults.node_death_every), self._some_node_dies)

    def _some_object_vanishes(self) -> None:
        plane = self.plane
        if plane.graph.datasets:
            self._losses_left -= 1
            self.lose(plane.dice.one_of(len(plane.graph.datasets)), 1 + plane.dice.one_of(3))
        if self._losses_left > 0:
            plane.clock.after(plane.dice.until_next(self.world.faults.lose_every), self._some_object_vanishes)

    def _tell_of_node(self, node: int, *, added: bool) -> None:
        name, slots = self.plane.cluster.names[node], self.world.cluster.slots
        event = e.ExecutorChanged(at=self.plane.clock.now, executor=name, host=name, slots=slots, added=added)
        self.tell(event)

    # --- odds and ends ---------------------------------------------------------------------------------------------

    def _by_vertex(self, rows: Ints) -> list[Ints]:
        """Rows of each vertex, in topological order."""
        vertices = self.plane.runs.vertex[rows]
        return [rows[vertices == vertex] for vertex in np.unique(vertices).tolist()]

    def _delay(self) -> float:
        return self.plane.dice.until_next(self.world.faults.late_by)

    def _phase(self, event: e.Event) -> str:
        match event:
            case e.JobStarted():
                return "start"
            case e.ExecutionsFinished():
                return "finish of consumers" if event.vertex in self._last_vertices else "finish of producers"
            case e.ExecutionsDeploying():
                return "launch"
            case e.ExecutionsFailed() | e.PartitionsLost():
                return "failover"
            case _:
                return "other"

    def _check_end(self) -> None:
        if self.plane.status is not c.JobStatus.FINISHED:
            return  # the runtime wipes the job's storage
        datasets = self.scheduler.job_graph.datasets
        runs = self.plane.runs
        delivered = np.concatenate(([False], runs.delivered[: runs.size]))
        leaks = self.plane.storage.leaks([d.id for d in datasets if d.persistent], delivered)
        check(not leaks, f"the job has finished and left {', '.join(leaks)}")
        check(self.scheduler.graph.all_finished, "the job is FINISHED before all vertices are")
