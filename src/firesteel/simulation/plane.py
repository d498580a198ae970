"""The data plane of the simulation: carries out every command of the scheduler, and refuses what must never be asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from firesteel.journal.file import Instrument
from firesteel.model.arrays import Ints, compact
from firesteel.model.descriptors import encode_executions
from firesteel.options import MAX_CONCURRENT_EXECUTIONS, SPECULATIVE_ENABLED
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.cluster import reading, regions
from firesteel.simulation.cluster.executors import ExecutorAllocation
from firesteel.simulation.cluster.nodes import FREE, Cluster, ClusterSpec
from firesteel.simulation.cluster.runs import ACTIVE, Deployment, Runs, RunState
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT, SlotQueue, Wish
from firesteel.simulation.cluster.storage import Storage, StorageSpec
from firesteel.simulation.cluster.worker_queue import WorkerQueue
from firesteel.simulation.cluster.workers import Worker, Workers
from firesteel.simulation.faults.dice import Dice, Faults
from firesteel.simulation.fused import FusedBook
from firesteel.simulation.key_ranges import KeyRangeBook
from firesteel.simulation.ledger import Ledger
from firesteel.simulation.shares import ShareBook
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.violation import ViolationError, check
from firesteel.simulation.workload import Workload

_SPAN = 1 << 16
"""Partitions that are released at a time: there may be a million."""
CANCEL_SECONDS = 0.05
"""From a cancel to the word that the execution is gone."""


@dataclass(frozen=True, slots=True)
class World:
    """All that a simulated job meets. The same world and job give the same story."""

    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    storage: StorageSpec = field(default_factory=StorageSpec)
    faults: Faults = field(default_factory=Faults)
    workload: Workload = field(default_factory=lambda: Workload(0))
    seed: int = 0
    heartbeat: float = 0.1
    """Seconds of virtual time in which what happens is told together; 0: each moment for itself. Where executions take
    long it is :data:`job.BEAT_SHARE` of their time."""
    one_by_one: bool = False
    """Each finished execution is an event of its own."""


class Deployments(Protocol):
    """Looks at deployments before they are carried out. ``left``: what is to be run of one, the others are answered by somebody else; None: nothing.
    ``merge``: calls ``start``, or answers in its place. ``serve``: called once, before the job starts."""

    def serve(self, plane: Plane) -> None: ...
    def left(self, command: c.Deploy) -> c.Deploy | None: ...
    def merge(self, command: c.MergePartitions, start: Callable[[c.MergePartitions], None]) -> None: ...


class AllRun:
    def serve(self, plane: Plane) -> None:
        pass

    def left(self, command: c.Deploy) -> c.Deploy | None:
        return command

    def merge(self, command: c.MergePartitions, start: Callable[[c.MergePartitions], None]) -> None:
        start(command)


class Plane:
    """State of the simulated cluster while one job runs on it; what happens there is told by ``job.SimulatedJob``."""

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument,
        watch: Stopwatch,
        tell: Callable[[e.Event], None],
        *,
        deployments: Deployments,
    ) -> None:
        self.scheduler = scheduler
        self.graph = scheduler.job_graph
        self.world = world
        self.clock = VirtualClock()
        groups = [group for v in self.graph.vertices if (group := self.graph.group_of(v.id)).has_resources]
        self.has_resources = bool(groups and world.cluster.workers)
        """Some slot sharing group has resources, and so do workers."""
        least = min([1.0, *(group.cpu_cores for group in groups if group.cpu_cores)])
        self.cluster = Cluster(world.cluster, _most_at_once(world.cluster, least) if self.has_resources else None)
        self.storage = Storage(world.storage, self.graph)
        self.dice = Dice(world.seed)
        self.runs = Runs(len(self.graph.vertices))
        self.ledger = Ledger(self.graph, self.storage)
        self.key_ranges = KeyRangeBook(self.graph)
        self.shares = ShareBook(self.graph)
        self.fused = FusedBook(self.graph)
        self.queue = SlotQueue()
        self.workers = Workers(world.cluster.mode.enforcement)
        self.worker_queue = WorkerQueue(self.workers, self.dice.order_of)
        self.executors = ExecutorAllocation(
            self.cluster, self.clock, self.workers, self.worker_queue, self.tell_of_worker
        )
        self.status = c.JobStatus.CREATED
        self.ended: c.JobStatusChanged | None = None
        self.is_orphaned = False
        """Its driver has died, and no other one has taken over: of its commands some were carried out."""
        self.driver = 0
        """Number of drivers that are gone."""
        self.deploys = 0
        self.blocked: NDArray[np.bool_] = np.zeros(world.cluster.nodes, np.bool_)
        """Nodes that get nothing new."""
        self.blocks = 0
        """Number of times a node was blocked."""
        self.rejects = 0
        options = scheduler.options
        self._attempts = options[MAX_CONCURRENT_EXECUTIONS] if options[SPECULATIVE_ENABLED] else 1
        self.descriptor_bytes = 0
        self.deployment_bytes = 0
        """Of one execution, the largest: what is its own, and its gates or the names of their blobs."""
        self._shipped: set[bytes] = set()
        self.decisions: dict[str, int] = {}
        self._watch = watch
        self._tell = tell
        self._instrument = instrument
        self._timers: dict[str, float] = {}
        self._gang_of: Ints = np.empty(0, np.int64)
        self._num_gangs = 0
        self._merged = 0
        self._handlers: dict[type[c.Command], Callable[[Any], None]] = {
            c.Record: self._record,
            c.VertexAbsorbed: self._absorb,
            c.NarrowSource: self._narrow,
            c.Deploy: self._deploy,
            c.DeployRegions: self._deploy_regions,
            c.Cancel: self._cancel,
            c.ReleasePartitions: self._release,
            c.DiscardExecutions: self._discard,
            c.VerifyPartitions: self._verify,
            c.StoreSizes: self.storage.store_sizes,
            c.LoadSizes: self._load_sizes,
            c.DropSizes: lambda command: self.storage.drop_sizes(command.dataset),
            c.MergePartitions: lambda command: deployments.merge(command, self._merge),
            c.ReleaseMerged: lambda command: self.storage.delete_merged(command.dataset, command.merged),
            c.StoreBlob: lambda command: self.storage.store_blob(command.digest, command.data),
            c.BlockNodes: self._block,
            c.ShareBlockedNode: lambda _: None,  # here a job is alone
            c.DropBlobs: lambda command: self.storage.drop_blobs(command.digests),
            c.SetTimer: self._set_timer,
            c.CancelTimer: self._cancel_timer,
            c.CommitSinks: self._commit,
            c.JobStatusChanged: self._status_changed,
        }
        self._deployments = deployments
        deployments.serve(self)

    def carry_out(self, commands: Sequence[c.Command]) -> None:
        for command in commands:
            check(self.ended is None, "a command came after the end of the job")
            handler = self._handlers.get(type(command))
            if handler is None:
                raise ViolationError(f"the simulation does not know how to carry out {type(command).__name__}")
            handler(command)

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
        self.message(self.world.storage.latency, lambda: self._tell(replace(answer, at=self.clock.now)))

    def _deploy(self, command: c.Deploy) -> None:
        check(
            self.graph.vertices[command.vertex].absorbed_by is None,
            f"vertex {command.vertex} is deployed, and was absorbed",
        )
        rows, placement = self._add(command), command.placement
        left = self._deployments.left(command)
        if left is not command:
            runs = np.zeros(len(rows), np.bool_) if left is None else np.isin(command.subtasks, left.subtasks)
            self.runs.end(rows[~runs], RunState.UNTOLD)
            if left is None:
                return
            rows, command = rows[runs], left
        if placement is None:
            check(not self.blocked.any(), f"vertex {command.vertex} is deployed as if no node were blocked")
            self._put(rows, command, None, urgent=False)
            return
        wish = None
        if placement.avoid:
            wish = Wish(self.cluster.marked(placement.avoid), self.clock.now + LOCALITY_WAIT)
            self.clock.at(wish.until, lambda: None)  # a moment at which slots are looked at
        self._put(rows, command, wish, urgent=placement.urgent)

    def _put(self, rows: Ints, command: c.Deploy, wish: Wish | None, *, urgent: bool) -> None:
        if not self.has_resources:
            check(command.slots is None, f"vertex {command.vertex} got slots of resources, and no group has any")
            self.queue.put(rows, wish, urgent=urgent)
            return
        grants = self._checked_grants(command)
        if grants.insists:
            self.clock.after(LOCALITY_WAIT, lambda: None)  # a moment at which slots are looked at
        self.worker_queue.put(rows, grants, wish, self.clock.now, urgent=urgent)

    def _checked_grants(self, command: c.Deploy) -> c.SlotGrants:
        """Slots of the vertex's own group, one for each execution, and cut where the data plane can give them."""
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
        return grants

    def next_to_run(self) -> tuple[Ints, Ints]:
        """Executions that begin now, and the slot of each."""
        cluster, queue = self.cluster, self.worker_queue if self.has_resources else self.queue
        if not len(queue):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return queue.take(cluster.free_slots(), cluster.node_of, cluster.alive, self.clock.now)

    def _deploy_regions(self, command: c.DeployRegions) -> None:
        rows = [self._add(regions.seen_by(part, command)) for part in command.parts]
        gangs = [gang + self._num_gangs for gang in regions.gangs_of(command)]
        together, numbers = np.concatenate(rows), np.concatenate(gangs)
        order = np.argsort(numbers, kind="stable")  # within a gang in topological order
        largest = int(np.bincount(numbers - self._num_gangs).max())
        most = self.world.cluster.total_slots
        told = f"a region of {largest} executions needs as many slots at once, and there are {most}"
        check(self.has_resources or largest <= most, told)
        self._num_gangs = int(numbers.max()) + 1
        self._gang_of = _grown(self._gang_of, self.runs.size)
        self._gang_of[together] = numbers
        if self.has_resources:
            grants = [self._checked_grants(part) for part in command.parts]
            for members in regions.members_of(rows, gangs, grants):
                self.worker_queue.put_region(members, self.clock.now)
            self.clock.after(LOCALITY_WAIT, lambda: None)
        else:
            self.queue.put_gangs(together[order], numbers[order])

    def _add(self, command: c.Deploy) -> Ints:
        vertex = self.graph.vertices[command.vertex]
        check(set(command.subpartitions) == set(vertex.outputs), f"vertex {vertex.id} is not told all it writes")
        reading.check_told_of_stored(command, self.storage)
        self.ledger.deployed(command)
        self.key_ranges.deployed(command)
        self.shares.deployed(command)
        self.fused.deployed(command)
        self.deploys += 1
        with self._watch.measure("encode"):
            self._count_bytes(command)
        read = command.input_bytes
        if read is None:  # what the scheduler does not know yet
            read = reading.bytes_of(command, self.world.workload)
        deployment = Deployment(
            command,
            self.runs.size,
            len(command.subtasks),
            compact(reading.requests_of(command)),
            compact(read),
            [-1] * len(command.gates),
            self.blocked if self.blocked.any() else None,
        )
        alone = not vertex.supports_concurrent_attempts
        most = self._attempts if vertex.speculative and not alone else 1
        return self.runs.deploy(deployment, alone=alone, most=most)

    def _count_bytes(self, command: c.Deploy) -> None:
        """Counts the bytes that the deployment ships: each gate once, however often it is named, and each execution's own."""
        for gate in command.gates:
            if gate.encoded.digest not in self._shipped:
                self._shipped.add(gate.encoded.digest)
                self.descriptor_bytes += len(gate.encoded.data)
        columns = [ranges.columns for ranges in command.ranges]
        mine = [(offsets[:2], rects[offsets[0] : offsets[1]]) for offsets, rects in columns]
        first = len(encode_executions(command.subtasks[:1], command.attempts[:1], mine)[0])
        others = sum(rects.nbytes for _, rects in columns)
        own = len(command.subtasks) * (first - sum(rects.nbytes for _, rects in mine)) + others
        self.descriptor_bytes += own
        inline = sum(len(g.encoded.digest if g.offloaded else g.encoded.data) for g in command.gates)
        self.deployment_bytes = max(self.deployment_bytes, inline + own // len(command.subtasks))

    def _block(self, command: c.BlockNodes) -> None:
        blocked = self.cluster.marked(command.nodes)
        check(bool((blocked != self.blocked).any()), "the nodes that are blocked are told again, and are the same")
        self.blocks += int((blocked & ~self.blocked).sum())
        self.blocked = blocked

    def _cancel(self, command: c.Cancel) -> None:
        known = np.ones(len(command.subtasks), np.bool_)
        if self.driver:  # an earlier one may have died before it deployed them
            known = self.runs.were_deployed(command.vertex, command.subtasks, command.attempts)
        rows = self.runs.find(command.vertex, command.subtasks[known], command.attempts[known])
        self.runs.cancelled[rows] = True
        waiting = rows[self.runs.state[rows] == RunState.QUEUED]
        if len(waiting):
            (self.worker_queue if self.has_resources else self.queue).drop(waiting, self.runs.size)
            self.runs.end(waiting, RunState.UNTOLD)
            self.message(CANCEL_SECONDS, lambda: self.tell_cancelled(waiting))
        running = rows[(self.runs.state[rows] == RunState.RUNNING) & (self.runs.slot[rows] >= 0)]
        if len(running):
            raced = self.dice.which(self.world.faults.race, len(running))
            raced &= np.isfinite(self.cluster.ends[self.runs.slot[running]])
            self.cluster.end_by(self.runs.slot[running[~raced]].astype(np.int64), self.clock.now + CANCEL_SECONDS)
            self._give_up(running[self.cluster.speed[self.runs.node[running]] == 0])

    def _give_up(self, rows: Ints) -> None:
        """Of these, which stand still: Spark may call some gone, which will go on."""
        zombies = rows[self.dice.which(self.world.faults.zombie, len(rows))]
        if len(zombies):
            self.message(CANCEL_SECONDS, lambda: self.tell_cancelled(zombies))

    def tell_cancelled(self, rows: Ints) -> None:
        """The rows are of one vertex, and are gone."""
        if len(rows):
            self.runs.state[rows] = RunState.TOLD
            if self.workers.called_gone(rows):
                self.tell_what_is_occupied()
            self._tell(e.ExecutionsCancelled(at=self.clock.now, **self.names(rows)))

    def names(self, rows: Ints) -> dict[str, Any]:
        """Fields of an event about these executions of one vertex."""
        return {
            "vertex": int(self.runs.vertex[rows[0]]),
            "subtasks": self.runs.subtask[rows].astype(np.int64),
            "attempts": self.runs.attempt[rows].astype(np.int64),
        }

    # --- workers -----------------------------------------------------------------------------------------------

    def tell_of_worker(self, worker: Worker, added: bool) -> None:
        self._tell(self.worker_changed(worker, added))

    def worker_changed(self, worker: Worker, added: bool) -> e.ExecutorChanged:
        node = self.cluster.names[worker.node]
        return e.ExecutorChanged(
            at=self.clock.now,
            executor=worker.name,
            host=node,
            slots=worker.slots,
            added=added,
            node=node,
            resources=worker.resources if added else None,
            profile=worker.profile if added else None,
        )

    def node_changed(self, node: int, added: bool) -> e.ExecutorChanged:
        """The event about a node whose workers have no resources of their own."""
        name, slots = self.cluster.names[node], self.world.cluster.slots
        return e.ExecutorChanged(at=self.clock.now, executor=name, host=name, slots=slots, added=added, node=name)

    def tell_what_is_occupied(self) -> None:
        """Cores that other jobs' tasks take, and executions that were called gone and are not."""
        cores = self.workers.occupied()
        self._tell(
            e.WorkersOccupied(
                at=self.clock.now, executors=tuple(cores), cores=np.array(list(cores.values()), np.float64)
            )
        )

    def by_vertex(self, rows: Ints) -> list[Ints]:
        """Rows of each vertex, in topological order."""
        vertices = self.runs.vertex[rows]
        return [rows[vertices == vertex] for vertex in np.unique(vertices).tolist()]

    def delay(self) -> float:
        """Seconds by which something that is told late is late."""
        return self.dice.until_next(self.world.faults.late_by)

    def gang_of(self, rows: Ints) -> Ints:
        """Returns a gang number per row: rows with equal numbers must run together; -1: on its own."""
        if not self._num_gangs:
            return np.full(len(rows), -1, np.int64)
        self._gang_of = _grown(self._gang_of, self.runs.size)
        return self._gang_of[rows]

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
        for token in command.tokens.tolist():
            self.storage.discard(command.vertex, token)

    def _verify(self, command: c.VerifyPartitions) -> None:
        self.storage.requests.lists += 1 + len(command.tokens) // 1000
        self.message(self.world.storage.latency, lambda: self._verified(command))

    def _verified(self, command: c.VerifyPartitions) -> None:
        gone = ~self.storage.has(command.dataset, command.tokens)
        if gone.any():
            names = command.partitions[gone], command.attempts[gone], command.tokens[gone]
            columns = dict(zip(("partitions", "attempts", "tokens"), names, strict=True))
            self._tell(e.PartitionsLost(at=self.clock.now, dataset=command.dataset, **columns))

    def _load_sizes(self, command: c.LoadSizes) -> None:
        rows = self.storage.load_sizes(command)
        unreadable = self.dice.which(self.world.faults.lose_sizes, len(rows))
        for place in np.flatnonzero(unreadable).tolist():
            rows[place] = None

        def loaded() -> None:
            self._tell(
                e.SizesLoaded(
                    at=self.clock.now,
                    dataset=command.dataset,
                    partitions=command.partitions,
                    attempts=command.attempts,
                    rows=rows,
                )
            )

        self.message(self.world.storage.latency, loaded)

    def _merge(self, command: c.MergePartitions) -> None:
        seconds = 2 * self.world.storage.latency * float(np.diff(command.bounds).max(initial=1))
        self.message(seconds, lambda: self._merge_done(command))

    def _merge_done(self, command: c.MergePartitions) -> None:
        self._tell(self._merged_now(command))

    def _merged_now(self, command: c.MergePartitions) -> e.PartitionsMerged:
        """Groups whose partitions are all there, but for some that fail."""
        gate, count = command.gate, len(command.bounds) - 1
        partitions = np.arange(len(gate.tokens)) if gate.partitions is None else gate.partitions
        absent = np.concatenate(([0], np.cumsum(~self.storage.is_readable(gate.dataset, gate.tokens))))
        bounds = np.searchsorted(partitions, command.bounds)
        fails = self.dice.which(self.world.faults.merge_fails, count)
        groups = np.flatnonzero((absent[bounds[1:]] == absent[bounds[:-1]]) & ~fails)
        self.storage.requests.reads += int((bounds[groups + 1] - bounds[groups]).sum())
        tokens = (1 << 40) + self._merged + np.arange(len(groups), dtype=np.int64)
        self._merged += len(groups)
        totals = self.world.workload.totals(gate.dataset, partitions, gate.num_subpartitions)
        upto = np.concatenate(([0], np.cumsum(totals)))
        merged = c.MergedObjects(command.bounds[groups], command.bounds[groups + 1], tokens)
        nodes = self.dice.some_of(self.world.cluster.nodes, len(groups))
        self.storage.write_merged(gate.dataset, merged, nodes)
        return e.PartitionsMerged(
            at=self.clock.now,
            dataset=gate.dataset,
            merge=command.merge,
            groups=groups,
            tokens=tokens,
            stored_bytes=upto[bounds[groups + 1]] - upto[bounds[groups]],
            reason="" if len(groups) == count else "made up",
        )

    # --- the job -----------------------------------------------------------------------------------------------

    def _record(self, command: c.Record) -> None:
        what = getattr(command.record, "what", None)
        if what is not None:
            self.decisions[what] = self.decisions.get(what, 0) + 1
        with self._watch.measure("journal"):
            self._instrument.record(command.record)

    def _set_timer(self, command: c.SetTimer) -> None:
        # The scheduler's time is that of the latest event, which may have come late, or while the command waited.
        late = not self.world.faults.log_seconds and command.at < self.scheduler.recorder.at
        check(not late, f"timer '{command.timer}' is set to a time that has passed")
        self._timers[command.timer] = command.at
        self.clock.at(command.at, lambda: self._fire(command))

    def _cancel_timer(self, command: c.CancelTimer) -> None:
        self._timers.pop(command.timer, None)

    def _fire(self, command: c.SetTimer) -> None:
        if self._timers.get(command.timer) == command.at:
            del self._timers[command.timer]
            self._tell(e.TimerFired(at=self.clock.now, timer=command.timer))

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
        self.message(self.world.storage.latency, self._committed)

    def _committed(self) -> None:
        if self.dice.happens(self.world.faults.sinks_fail):
            cause = e.FailureCause(e.FailureKind.STORAGE, "the sinks cannot be published")
            self._tell(e.SinksFailed(at=self.clock.now, cause=cause))
        else:
            self._tell(e.SinksCommitted(at=self.clock.now))

    def _status_changed(self, command: c.JobStatusChanged) -> None:
        self.status = command.status
        if not command.status.is_terminal:
            return
        self.ended = command
        if command.status is c.JobStatus.FINISHED:
            for gate in command.persistent:
                deleted = self.storage.was_deleted(gate.dataset, gate.tokens) | (gate.tokens < 0)
                check(not deleted.any(), f"data set {gate.dataset} was to stay, and is deleted")
        if command.status is c.JobStatus.FAILED:
            check(command.cause is not None, "the job failed and does not say why")


def _most_at_once(spec: ClusterSpec, least_cores: float) -> int:
    """More than ever run on one node at once, those that were called gone and are not among them."""
    return 4 * math.ceil(max(worker.cpu_cores for worker in spec.workers) / least_cores)


def _grown(column: Ints, size: int) -> Ints:
    if size <= len(column):
        return column
    grown = np.full(max(size, len(column) * 5 // 4), -1, np.int64)
    grown[: len(column)] = column
    return grown
