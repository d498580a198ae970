"""The data plane of tests: refuses what must never be asked, lets more go wrong, and has drivers that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from tests.simulation import reading, regions
from tests.simulation.faults import Faults
from tests.simulation.fused import FusedBook
from tests.simulation.key_ranges import KeyRangeBook
from tests.simulation.ledger import Ledger
from tests.simulation.runs import Runs
from tests.simulation.shares import ShareBook
from tests.simulation.storage import Storage
from tests.simulation.worker_queue import WorkerQueue
from tests.simulation.workers import Workers

from firesteel.journal.file import Instrument
from firesteel.model.arrays import Ints
from firesteel.options import MAX_CONCURRENT_EXECUTIONS, SPECULATIVE_ENABLED
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement
from firesteel.simulation import plane
from firesteel.simulation.cluster.nodes import FREE
from firesteel.simulation.cluster.regions import gangs_of
from firesteel.simulation.cluster.runs import ACTIVE, RunState
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT
from firesteel.simulation.plane import CANCEL_SECONDS, World
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import ViolationError, check

if TYPE_CHECKING:
    from tests.simulation.corrected import Answers

_SPAN = 1 << 16
"""Partitions that are released at a time: there may be a million."""


class Plane(plane.Plane):
    storage: Storage
    runs: Runs
    workers: Workers
    worker_queue: WorkerQueue
    storage_type = Storage
    runs_type = Runs
    workers_type = Workers
    worker_queue_type = WorkerQueue

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument | None,
        watch: Stopwatch,
        tell: Callable[[e.Event], None],
    ) -> None:
        super().__init__(scheduler, world, instrument, watch, tell)
        self.faults = world.faults if isinstance(world.faults, Faults) else Faults(**asdict(world.faults))
        self.answered: Answers | None = None
        """Looks at deployments and merges before they are carried out."""
        self.ledger = Ledger(self.graph, self.storage)
        self.key_ranges = KeyRangeBook(self.graph)
        self.shares = ShareBook(self.graph)
        self.fused = FusedBook(self.graph)
        self.is_orphaned = False
        """Its driver has died, and no other one has taken over: of its commands some were carried out."""
        self.driver = 0
        """Number of drivers that are gone."""
        self.blocked_then: dict[int, NDArray[np.bool_]] = {}
        """By the first row of a deployment: nodes that were blocked when it came, if any."""
        self.workers.changed = self.tell_what_is_occupied
        self._region: c.DeployRegions | None = None
        """That is deployed now."""
        options = scheduler.options
        self._attempts = options[MAX_CONCURRENT_EXECUTIONS] if options[SPECULATIVE_ENABLED] else 1
        self.handlers |= {c.VertexAbsorbed: self._absorb, c.NarrowSource: self._narrow}

    def carry_out(self, commands: Sequence[c.Command]) -> None:
        for command in commands:
            check(self.ended is None, "a command came after the end of the job")
            if type(command) not in self.handlers:
                raise ViolationError(f"the simulation does not know how to carry out {type(command).__name__}")
            super().carry_out([command])

    # --- drivers -----------------------------------------------------------------------------------------------

    def message(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action``, which tells the driver something, after so many seconds: never, if another one has taken over by then."""
        addressee = self.driver
        self.clock.after(seconds, lambda: action() if self.driver == addressee else None)

    def orphan(self) -> None:
        self.is_orphaned = True

    def lose_driver(self) -> None:
        """All that belongs to the driver is gone: its executions, timers and scratch files. What they have stored stays."""
        self.is_orphaned = False
        self.driver += 1
        runs = self.runs
        rows = np.flatnonzero(ACTIVE[runs.state[: runs.size]])
        self.cluster.vacate(np.flatnonzero(self.cluster.run != FREE))
        (self.worker_queue if self.has_resources else self.queue).drop(rows, runs.size)
        self.workers.lose_driver(rows)
        runs.end(rows, RunState.TOLD)
        runs.forget(rows)
        runs.slot[rows] = -1
        runs.state[: runs.size] = RunState.TOLD
        self.executors.driver_is_gone()
        self._timers.clear()
        self.blocked[:] = False
        self.storage.lose_driver()

    @property
    def healthy(self) -> NDArray[np.bool_]:
        """Nodes that live and move."""
        return self.cluster.alive & (self.cluster.speed > 0)

    @property
    def is_heard(self) -> bool:
        """Whoever tells the scheduler something now is heard."""
        return not self.scheduler.status.is_terminal

    def serve(self, scheduler: Scheduler) -> None:
        """From now on another scheduler gives the commands. Its graph is the one that the books look into."""
        self.scheduler = scheduler
        self.graph.vertices, self.graph.datasets = scheduler.job_graph.vertices, scheduler.job_graph.datasets

    def workers_there(self) -> list[e.ExecutorChanged]:
        """All workers that there are, as a new driver sees them come."""
        if self.has_resources:
            return [self.worker_changed(worker, True) for worker in self.workers]
        return [self.node_changed(node, True) for node in np.flatnonzero(self.cluster.alive).tolist()]

    # --- executions --------------------------------------------------------------------------------------------

    def _absorb(self, command: c.VertexAbsorbed) -> None:
        """The graph is the scheduler's own: nothing is left to be done."""
        check(not self._was_deployed(command.producer), f"vertex {command.producer} is absorbed, and was deployed")

    def _was_deployed(self, vertex: int) -> bool:
        return bool((self.runs.vertex[: self.runs.size] == vertex).any())

    def _narrow(self, command: c.NarrowSource) -> None:
        """Splits are left out by dice; sometimes none are, or the keys cannot be read."""
        source = self.graph.vertices[command.vertex].source
        check(source is not None, f"vertex {command.vertex} is narrowed, and is no source")
        assert source is not None
        check(not self._was_deployed(command.vertex), f"vertex {command.vertex} is narrowed, and was deployed")
        kept = source.split_bytes[self.dice.which(0.5, len(source.split_bytes))]
        sizes = None if self.dice.happens(0.2) else kept
        answer = e.SourceNarrowed(at=0.0, vertex=command.vertex, split_bytes=sizes, found="made up")
        self.message(self.world.storage.latency, lambda: self.tell(structs.replace(answer, at=self.clock.now)))

    def _deploy(self, command: c.Deploy) -> None:
        check(
            self.graph.vertices[command.vertex].absorbed_by is None,
            f"vertex {command.vertex} is deployed, and was absorbed",
        )
        rows = self._add(command)
        left = command if self.answered is None else self.answered.left(command)
        if left is not command:
            runs = np.zeros(len(rows), np.bool_) if left is None else np.isin(command.subtasks, left.subtasks)
            self.runs.end(rows[~runs], RunState.UNTOLD)
            if left is None:
                return
            rows, command = rows[runs], left
        known = command.placement is not None or not self.blocked.any()
        check(known, f"vertex {command.vertex} is deployed as if no node were blocked")
        self._check_grants(command)
        self._queue(rows, command)

    def _check_grants(self, command: c.Deploy) -> None:
        """Slots of the vertex's own group, one for each execution, and cut where the data plane can give them."""
        if not self.has_resources:
            check(command.slots is None, f"vertex {command.vertex} got slots of resources, and no group has any")
            return
        vertex, grants = self.graph.vertices[command.vertex], command.slots
        told = f"vertex {vertex.id} of group '{vertex.slot_sharing_group}'"
        assert grants is not None, f"{told} is deployed without slots"
        wanted = ResourceProfile.of(self.graph.group_of(vertex.id))
        check(grants.group == vertex.slot_sharing_group, f"{told} got slots of group '{grants.group}'")
        same = replace(grants.profile, network_memory=0) == wanted
        check(same, f"{told} needs {wanted} and got {grants.profile}")
        check(len(grants.executors) == len(command.subtasks), f"{told} got another number of slots than it asked for")
        known = grants.executors.codes >= 0
        pool = self.workers.enforcement is SlotEnforcement.POOL
        check(bool(known.all()) or not (pool or grants.insists), f"{told}: nobody says where it is to run")
        if pool or grants.insists:
            for name in {grants.executors.names[code] for code in grants.executors.codes[known].tolist()}:
                worker = self.workers.by_name.get(name)
                check(worker is not None, f"{told} got a slot of worker '{name}', which is not there")
                blocked = worker is not None and bool(self.blocked[worker.node])
                check(not blocked, f"{told} got a slot of {name}, whose node is blocked")

    def _deploy_regions(self, command: c.DeployRegions) -> None:
        regions.check_producers(command)
        largest = int(np.bincount(np.concatenate(self._gangs_of(command))).max())
        most = self.world.cluster.total_slots
        told = f"a region of {largest} executions needs as many slots at once, and there are {most}"
        check(self.has_resources or largest <= most, told)
        if self.has_resources:
            for part in command.parts:
                self._check_grants(part)
            regions.check_shared(command)
        self._region = command
        super()._deploy_regions(command)
        self._region = None

    def _gangs_of(self, command: c.DeployRegions) -> list[Ints]:
        return gangs_of(command, regions.slots_of(command))

    def _queue_regions(self, command: c.DeployRegions, rows: list[Ints], gangs: list[Ints]) -> None:
        if not self.has_resources:
            super()._queue_regions(command, rows, gangs)
            return
        grants = [part.slots for part in command.parts if part.slots is not None]
        for members in regions.members_of(rows, gangs, grants):
            self.worker_queue.put_region(members, self.clock.now)
        self.clock.after(LOCALITY_WAIT, lambda: None)

    def _add(self, command: c.Deploy) -> Ints:
        if self._region is not None:
            command = regions.seen_by(command, self._region)
        vertex = self.graph.vertices[command.vertex]
        check(set(command.subpartitions) == set(vertex.outputs), f"vertex {vertex.id} is not told all it writes")
        reading.check_told_of_stored(command, self.storage)
        self.ledger.deployed(command)
        self.key_ranges.deployed(command)
        self.shares.deployed(command)
        self.fused.deployed(command)
        alone = not vertex.supports_concurrent_attempts
        most = self._attempts if vertex.speculative and not alone else 1
        self.runs.check_deployment(command, alone=alone, most=most)
        if self.blocked.any():
            self.blocked_then[self.runs.size] = self.blocked
        return super()._add(command)

    def _block(self, command: c.BlockNodes) -> None:
        blocked = self.cluster.marked(command.nodes)
        check(bool((blocked != self.blocked).any()), "the nodes that are blocked are told again, and are the same")
        super()._block(command)

    def _cancel(self, command: c.Cancel) -> None:
        if self.driver:  # an earlier one may have died before it deployed them
            known = self.runs.were_deployed(command.vertex, command.subtasks, command.attempts)
            command = structs.replace(command, subtasks=command.subtasks[known], attempts=command.attempts[known])
        super()._cancel(command)

    def _stop(self, running: Ints) -> None:
        raced = self.dice.which(self.faults.race, len(running))
        raced &= np.isfinite(self.cluster.ends[self.runs.slot[running]])
        super()._stop(running[~raced])
        self._give_up(running[self.cluster.speed[self.runs.node[running]] == 0])

    def _give_up(self, rows: Ints) -> None:
        """Of these, which stand still: Spark may call some gone, which will go on."""
        zombies = rows[self.dice.which(self.faults.zombie, len(rows))]
        if len(zombies):
            self.message(CANCEL_SECONDS, lambda: self.tell_cancelled(zombies))

    def tell_cancelled(self, rows: Ints) -> None:
        """The rows are of one vertex, and are gone."""
        self.runs.state[rows] = RunState.TOLD
        if self.workers.called_gone(rows):
            self.tell_what_is_occupied()
        super().tell_cancelled(rows)

    def tell_what_is_occupied(self) -> None:
        """Cores that other jobs' tasks take, and executions that were called gone and are not."""
        cores = self.workers.occupied()
        self.tell(
            e.WorkersOccupied(
                at=self.clock.now, executors=tuple(cores), cores=np.array(list(cores.values()), np.float64)
            )
        )

    def delay(self) -> float:
        """Seconds by which something that is told late is late."""
        return self.dice.until_next(self.faults.late_by)

    # --- storage -----------------------------------------------------------------------------------------------

    def _release(self, command: c.ReleasePartitions) -> None:
        check(not self.graph.datasets[command.dataset].persistent, f"data set {command.dataset} is to stay")
        producer = self.graph.datasets[command.dataset].producer
        for first in range(0, len(command.tokens), _SPAN):
            some = slice(first, first + _SPAN)
            partitions, tokens = command.partitions[some], command.tokens[some]
            self.runs.find(producer, partitions, command.attempts[some])
            same = (self.runs.subtask[tokens - 1] == partitions) & (self.runs.vertex[tokens - 1] == producer)
            check(bool(same.all()), "a token is released under another partition's name")
            self.storage.delete(command.dataset, tokens)

    def _discard(self, command: c.DiscardExecutions) -> None:
        self.runs.find(command.vertex, command.subtasks, command.attempts)
        self.ledger.discarded(command)
        super()._discard(command)

    def _sizes_of(self, command: c.LoadSizes) -> list[bytes | None]:
        rows = super()._sizes_of(command)
        unreadable = self.dice.which(self.faults.lose_sizes, len(rows))
        for place in np.flatnonzero(unreadable).tolist():
            rows[place] = None
        return rows

    def _merge(self, command: c.MergePartitions) -> None:
        if self.answered is None:
            super()._merge(command)
        else:
            self.answered.merge(command, super()._merge)

    def _merge_fails(self, count: int) -> NDArray[np.bool_]:
        return self.dice.which(self.faults.merge_fails, count)

    def _write_merged(self, dataset: int, merged: c.MergedObjects) -> None:
        super()._write_merged(dataset, merged)
        nodes = self.dice.some_of(self.world.cluster.nodes, len(merged.tokens))
        self.storage.merged.write(dataset, merged, nodes)

    # --- the job -----------------------------------------------------------------------------------------------

    def _set_timer(self, command: c.SetTimer) -> None:
        # The scheduler's time is that of the latest event, which may have come late, or while the command waited.
        late = not self.faults.log_seconds and command.at < self.scheduler.recorder.at
        check(not late, f"timer '{command.timer}' is set to a time that has passed")
        super()._set_timer(command)

    def _commit(self, command: c.CommitSinks) -> None:
        self.ledger.check_published(command)
        for vertex, winners in command.winners.items():
            attempts = np.array([attempt for attempt, _ in winners], np.int64)
            rows = self.runs.find(vertex, np.arange(len(winners)), attempts)
            # Its own report may be on its way still where a second run of it was heard of first.
            ended = bool((self.runs.state[rows] >= RunState.TOLD).all())
            check(ended, f"vertex {vertex} is to be published before all of it has finished")
            named = all(len(commits) == 1 for _, commits in winners)
            check(named, f"vertex {vertex} is to be published without its commit messages")
        super()._commit(command)

    def _committed(self) -> None:
        if self.dice.happens(self.faults.sinks_fail):
            cause = e.FailureCause(e.FailureKind.STORAGE, "the sinks cannot be published")
            self.tell(e.SinksFailed(at=self.clock.now, cause=cause))
        else:
            super()._committed()

    def _status_changed(self, command: c.JobStatusChanged) -> None:
        super()._status_changed(command)
        if command.status is c.JobStatus.FINISHED:
            for gate in command.persistent:
                deleted = self.storage.was_deleted(gate.dataset, gate.tokens) | (gate.tokens < 0)
                check(not deleted.any(), f"data set {gate.dataset} was to stay, and is deleted")
        if command.status is c.JobStatus.FAILED:
            check(command.cause is not None, "the job failed and does not say why")
