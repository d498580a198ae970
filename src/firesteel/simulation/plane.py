"""The data plane of the simulation: carries out every command of the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.journal.file import Instrument
from firesteel.model.arrays import Ints, compact
from firesteel.model.descriptors import encode_executions
from firesteel.report.decisions import with_reason
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.scheduler import Scheduler
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.cluster import reading
from firesteel.simulation.cluster.executors import ExecutorAllocation
from firesteel.simulation.cluster.nodes import Cluster, ClusterSpec
from firesteel.simulation.cluster.regions import gangs_of
from firesteel.simulation.cluster.runs import Deployment, Runs, RunState
from firesteel.simulation.cluster.slot_queue import LOCALITY_WAIT, SlotQueue, Wish
from firesteel.simulation.cluster.storage import Storage, StorageSpec
from firesteel.simulation.cluster.worker_queue import WorkerQueue
from firesteel.simulation.cluster.workers import Worker, Workers
from firesteel.simulation.dice import Dice, Faults
from firesteel.simulation.stopwatch import Stopwatch
from firesteel.simulation.workload import Workload

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


class Plane:
    """State of the simulated cluster while one job runs on it; what happens there is told by ``job.SimulatedJob``."""

    storage_type: type[Storage] = Storage
    runs_type: type[Runs] = Runs
    workers_type: type[Workers] = Workers
    worker_queue_type: type[WorkerQueue] = WorkerQueue

    def __init__(
        self,
        scheduler: Scheduler,
        world: World,
        instrument: Instrument | None,
        watch: Stopwatch,
        tell: Callable[[e.Event], None],
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
        self.storage = self.storage_type(world.storage, self.graph)
        self.dice = Dice(world.seed)
        self.runs = self.runs_type(len(self.graph.vertices))
        self.queue = SlotQueue()
        self.workers = self.workers_type(world.cluster.mode.enforcement)
        self.worker_queue = self.worker_queue_type(self.workers, self.dice.order_of)
        self.executors = ExecutorAllocation(
            self.cluster, self.clock, self.workers, self.worker_queue, self.tell_of_worker
        )
        self.status = c.JobStatus.CREATED
        self.ended: c.JobStatusChanged | None = None
        self.deploys = 0
        self.blocked: NDArray[np.bool_] = np.zeros(world.cluster.nodes, np.bool_)
        """Nodes that get nothing new."""
        self.blocks = 0
        """Number of times a node was blocked."""
        self.rejects = 0
        self.descriptor_bytes = 0
        self.deployment_bytes = 0
        """Of one execution, the largest: what is its own, and its gates or the names of their blobs."""
        self._shipped: set[bytes] = set()
        self.decisions: dict[str, int] = {}
        self.watch = watch
        self.tell = tell
        self._instrument = instrument
        self._timers: dict[str, float] = {}
        self._gang_of: Ints = np.empty(0, np.int64)
        self._num_gangs = 0
        self._merged = 0
        self.handlers: dict[type[c.Command], Callable[[Any], None]] = {
            c.Record: self._record,
            c.Deploy: self._deploy,
            c.DeployRegions: self._deploy_regions,
            c.Cancel: self._cancel,
            c.ReleasePartitions: self._release,
            c.DiscardExecutions: self._discard,
            c.VerifyPartitions: self._verify,
            c.StoreSizes: self.storage.store_sizes,
            c.LoadSizes: self._load_sizes,
            c.DropSizes: lambda command: self.storage.drop_sizes(command.dataset),
            c.MergePartitions: self._merge,
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

    def carry_out(self, commands: Sequence[c.Command]) -> None:
        for command in commands:
            self.handlers[type(command)](command)

    def message(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action``, which tells the driver something, after so many seconds."""
        self.clock.after(seconds, action)

    # --- executions --------------------------------------------------------------------------------------------

    def _deploy(self, command: c.Deploy) -> None:
        self._queue(self._add(command), command)

    def _queue(self, rows: Ints, command: c.Deploy) -> None:
        """These executions of one deployment wait for slots from now on."""
        placement, wish = command.placement, None
        if placement is not None and placement.avoid:
            wish = Wish(self.cluster.marked(placement.avoid), self.clock.now + LOCALITY_WAIT)
            self.clock.at(wish.until, lambda: None)  # a moment at which slots are looked at
        urgent = placement is not None and placement.urgent
        if not self.has_resources:
            self.queue.put(rows, wish, urgent=urgent)
            return
        grants = _grants(command)
        if grants.insists:
            self.clock.after(LOCALITY_WAIT, lambda: None)  # a moment at which slots are looked at
        self.worker_queue.put(rows, grants, wish, self.clock.now, urgent=urgent)

    def next_to_run(self) -> tuple[Ints, Ints]:
        """Executions that begin now, and the slot of each."""
        cluster, queue = self.cluster, self.worker_queue if self.has_resources else self.queue
        if not len(queue):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return queue.take(cluster.free_slots(), cluster.node_of, cluster.alive, self.clock.now)

    def _deploy_regions(self, command: c.DeployRegions) -> None:
        rows = [self._add(part) for part in command.parts]
        gangs = [gang + self._num_gangs for gang in self._gangs_of(command)]
        together, numbers = np.concatenate(rows), np.concatenate(gangs)
        self._num_gangs = int(numbers.max()) + 1
        self._gang_of = _grown(self._gang_of, self.runs.size)
        self._gang_of[together] = numbers
        self._queue_regions(command, rows, gangs)

    def _gangs_of(self, command: c.DeployRegions) -> list[Ints]:
        return gangs_of(command)

    def _queue_regions(self, command: c.DeployRegions, rows: list[Ints], gangs: list[Ints]) -> None:
        """Jobs with resources have none (FLIP-169)."""
        together, numbers = np.concatenate(rows), np.concatenate(gangs)
        order = np.argsort(numbers, kind="stable")  # within a gang in topological order
        self.queue.put_gangs(together[order], numbers[order])

    def _add(self, command: c.Deploy) -> Ints:
        self.deploys += 1
        with self.watch.measure("encode"):
            self._count_bytes(command)
        read = command.input_bytes
        if read is None:  # what the scheduler does not know yet
            read = reading.bytes_of(command, self.world.workload)
        deployment = Deployment(
            command, self.runs.size, len(command.subtasks), compact(reading.requests_of(command)), compact(read)
        )
        return self.runs.deploy(deployment)

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
        self.blocks += int((blocked & ~self.blocked).sum())
        self.blocked = blocked

    def _cancel(self, command: c.Cancel) -> None:
        rows = self.runs.find(command.vertex, command.subtasks, command.attempts)
        self.runs.cancelled[rows] = True
        waiting = rows[self.runs.state[rows] == RunState.QUEUED]
        if len(waiting):
            (self.worker_queue if self.has_resources else self.queue).drop(waiting, self.runs.size)
            self.runs.end(waiting, RunState.UNTOLD)
            self.message(CANCEL_SECONDS, lambda: self.tell_cancelled(waiting))
        running = rows[(self.runs.state[rows] == RunState.RUNNING) & (self.runs.slot[rows] >= 0)]
        if len(running):
            self._stop(running)

    def _stop(self, running: Ints) -> None:
        self.cluster.end_by(self.runs.slot[running].astype(np.int64), self.clock.now + CANCEL_SECONDS)

    def tell_cancelled(self, rows: Ints) -> None:
        """The rows are of one vertex, and are gone."""
        if len(rows):
            self.runs.state[rows] = RunState.TOLD
            self.tell(e.ExecutionsCancelled(at=self.clock.now, **self.names(rows)))

    def names(self, rows: Ints) -> dict[str, Any]:
        """Fields of an event about these executions of one vertex."""
        return {
            "vertex": int(self.runs.vertex[rows[0]]),
            "subtasks": self.runs.subtask[rows].astype(np.int64),
            "attempts": self.runs.attempt[rows].astype(np.int64),
        }

    # --- workers -----------------------------------------------------------------------------------------------

    def tell_of_worker(self, worker: Worker, added: bool) -> None:
        self.tell(self.worker_changed(worker, added))

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

    def by_vertex(self, rows: Ints) -> list[Ints]:
        """Rows of each vertex, in topological order."""
        vertices = self.runs.vertex[rows]
        return [rows[vertices == vertex] for vertex in np.unique(vertices).tolist()]

    def gang_of(self, rows: Ints) -> Ints:
        """Returns a gang number per row: rows with equal numbers must run together; -1: on its own."""
        if not self._num_gangs:
            return np.full(len(rows), -1, np.int64)
        self._gang_of = _grown(self._gang_of, self.runs.size)
        return self._gang_of[rows]

    # --- storage -----------------------------------------------------------------------------------------------

    def _release(self, command: c.ReleasePartitions) -> None:
        self.storage.delete(command.dataset, command.tokens)

    def _discard(self, command: c.DiscardExecutions) -> None:
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
            self.tell(e.PartitionsLost(at=self.clock.now, dataset=command.dataset, **columns))

    def _load_sizes(self, command: c.LoadSizes) -> None:
        rows = self._sizes_of(command)

        def loaded() -> None:
            self.tell(
                e.SizesLoaded(
                    at=self.clock.now,
                    dataset=command.dataset,
                    partitions=command.partitions,
                    attempts=command.attempts,
                    rows=rows,
                )
            )

        self.message(self.world.storage.latency, loaded)

    def _sizes_of(self, command: c.LoadSizes) -> list[bytes | None]:
        return self.storage.load_sizes(command)

    def _merge(self, command: c.MergePartitions) -> None:
        seconds = 2 * self.world.storage.latency * float(np.diff(command.bounds).max(initial=1))
        self.message(seconds, lambda: self.tell(self._merged_now(command)))

    def _merged_now(self, command: c.MergePartitions) -> e.PartitionsMerged:
        """Groups whose partitions are all there, but for some that fail."""
        gate, count = command.gate, len(command.bounds) - 1
        partitions = np.arange(len(gate.tokens)) if gate.partitions is None else gate.partitions
        absent = np.concatenate(([0], np.cumsum(~self.storage.is_readable(gate.dataset, gate.tokens))))
        bounds = np.searchsorted(partitions, command.bounds)
        groups = np.flatnonzero((absent[bounds[1:]] == absent[bounds[:-1]]) & ~self._merge_fails(count))
        self.storage.requests.reads += int((bounds[groups + 1] - bounds[groups]).sum())
        tokens = (1 << 40) + self._merged + np.arange(len(groups), dtype=np.int64)
        self._merged += len(groups)
        totals = self.world.workload.totals(gate.dataset, partitions, gate.num_subpartitions)
        upto = np.concatenate(([0], np.cumsum(totals)))
        merged = c.MergedObjects(command.bounds[groups], command.bounds[groups + 1], tokens)
        self._write_merged(gate.dataset, merged)
        return e.PartitionsMerged(
            at=self.clock.now,
            dataset=gate.dataset,
            merge=command.merge,
            groups=groups,
            tokens=tokens,
            stored_bytes=upto[bounds[groups + 1]] - upto[bounds[groups]],
            reason="" if len(groups) == count else "made up",
        )

    def _merge_fails(self, count: int) -> NDArray[np.bool_]:
        """Returns a mask of the groups that fail."""
        return np.zeros(count, np.bool_)

    def _write_merged(self, dataset: int, merged: c.MergedObjects) -> None:
        self.storage.write_merged(merged)

    # --- the job -----------------------------------------------------------------------------------------------

    def _record(self, command: c.Record) -> None:
        what = getattr(command.record, "what", None)
        if what is not None:
            self.decisions[what] = self.decisions.get(what, 0) + 1
        if self._instrument is not None:
            with self.watch.measure("journal"):
                self._instrument.record(with_reason(command.record))

    def _set_timer(self, command: c.SetTimer) -> None:
        self._timers[command.timer] = command.at
        self.clock.at(command.at, lambda: self._fire(command))

    def _cancel_timer(self, command: c.CancelTimer) -> None:
        self._timers.pop(command.timer, None)

    def _fire(self, command: c.SetTimer) -> None:
        if self._timers.get(command.timer) == command.at:
            del self._timers[command.timer]
            self.tell(e.TimerFired(at=self.clock.now, timer=command.timer))

    def _commit(self, command: c.CommitSinks) -> None:
        self.message(self.world.storage.latency, self._committed)

    def _committed(self) -> None:
        self.tell(e.SinksCommitted(at=self.clock.now))

    def _status_changed(self, command: c.JobStatusChanged) -> None:
        self.status = command.status
        if command.status.is_terminal:
            self.ended = command


def _grants(command: c.Deploy) -> c.SlotGrants:
    assert command.slots is not None, f"vertex {command.vertex} is deployed without slots"
    return command.slots


def _most_at_once(spec: ClusterSpec, least_cores: float) -> int:
    """More than ever run on one node at once, those that were called gone and are not among them."""
    return 4 * math.ceil(max(worker.cpu_cores for worker in spec.workers) / least_cores)


def _grown(column: Ints, size: int) -> Ints:
    if size <= len(column):
        return column
    grown = np.full(max(size, len(column) * 5 // 4), -1, np.int64)
    grown[: len(column)] = column
    return grown
