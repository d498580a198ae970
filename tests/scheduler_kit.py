"""A tiny deterministic data plane: carries out the scheduler's commands with made-up sizes, and checks each of them.

It is a test driver, not a model of Spark: it knows only commands and events, and keeps its own books of which object
was written, admitted, released and lost.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import to_builtins
from tests.simulation.key_ranges import KeyRangeBook
from tests.simulation.shares import ShareBook

from firesteel.errors import MERGED_ATTEMPT
from firesteel.model import descriptors
from firesteel.model.absorbing import worker_of
from firesteel.model.costs import NO_COSTS, StepCosts
from firesteel.model.heavy_keys import HeavyKey, encode_heavy_keys
from firesteel.model.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    ResultPartitionType,
    ShipStrategy,
    SourceInfo,
)
from firesteel.model.reports import SET_UP_BYTES, SET_UP_MS, SET_UPS, StepReport
from firesteel.model.sketches import Sketch, encode_sketch
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import SPECULATIVE_ENABLED, Options
from firesteel.report.decisions import reason_of, with_reason
from firesteel.report.waits import in_words
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.kernel.states import IS_DEPLOYED
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotMode, WorkerResources
from firesteel.scheduler.speculation.execution_times import SlowTasks
from firesteel.scheduler.speculation.mirrors import TIMER as DETECTOR_TIMER

SET_UP = {SET_UPS: 1, SET_UP_MS: 20, SET_UP_BYTES: 300}
"""What a step of every other vertex counts in each execution."""
BY_ORDER = (ShipStrategy.RESCALE, ShipStrategy.REBALANCE)
Key = tuple[int, int, int]
"""(vertex, subtask, attempt)."""


def waits_of(scheduler: Scheduler) -> list[str]:
    """In words."""
    return in_words(scheduler.waiting_for(), scheduler.graph.job_graph)


def discarded(*commands: c.DiscardExecutions) -> list[tuple[int, int, int, int]]:
    """(vertex, subtask, attempt, token) of each execution discarded."""
    return [
        (command.vertex, *name)
        for command in commands
        for name in zip(command.subtasks.tolist(), command.attempts.tolist(), command.tokens.tolist(), strict=True)
    ]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# --- job graphs ----------------------------------------------------------------------------------------------


class GraphBuilder:
    """``source`` and ``step`` return vertex ids; a step's inputs are (producer, ship) or (producer, ship, type)."""

    def __init__(self, name: str = "test", *groups: SlotSharingGroup) -> None:
        self.graph = JobGraph(name, [], [], {group.name: group for group in groups})
        self._outputs: dict[tuple[int, ShipStrategy, ResultPartitionType], int] = {}

    def source(self, splits: Sequence[int] = (100,), inputs: Sequence[JobEdge] = (), **fields) -> int:
        """``inputs``: its side inputs."""
        return self._add(list(inputs), source=SourceInfo(np.array(splits, np.int64)), **fields)

    def step(self, *inputs: tuple[Any, ...], divisible_inputs: Sequence[bool] = (), **fields) -> int:
        edges = []
        for index, (producer, ship, *type) in enumerate(inputs):
            dataset = self.dataset(producer, ship, type=type[0] if type else ResultPartitionType.BLOCKING)
            divisible = ship is ShipStrategy.HASH and bool(divisible_inputs) and divisible_inputs[index]
            edges.append(JobEdge(dataset, index, ship is ShipStrategy.HASH, divisible))
        return self._add(edges, **fields)

    def two_steps(self, producer: int, *, by_key: bool = True, has_sink: bool = False, **fields) -> int:
        """A vertex that may be two steps (an aggregation of distinct values): by key, or for one subtask. The first step is the one before."""
        first = self.step((producer, ShipStrategy.HASH), divisible_inputs=(by_key,), **fields)
        vertex = self.graph.vertices[first]
        vertex.inputs = [replace(edge, by_value=by_key) for edge in vertex.inputs]
        if not by_key:
            fields = {**fields, "parallelism": 1}
        ship = ShipStrategy.HASH if by_key else ShipStrategy.GLOBAL
        return self.step((first, ship), first_step=first, is_whole=True, has_sink=has_sink, **fields)

    def dataset(
        self,
        producer: int,
        ship: ShipStrategy,
        persistent: bool = False,
        type: ResultPartitionType = ResultPartitionType.BLOCKING,
    ) -> int:
        key = (producer, ship, type)
        if key not in self._outputs:
            number = len(self.graph.datasets)
            keys = ("k",) if ship is ShipStrategy.HASH else ()
            dataset = IntermediateDataSet(number, producer, ship, keys, type, persistent=persistent)
            self.graph.datasets.append(dataset)
            self.graph.vertices[producer].outputs.append(number)
            self._outputs[key] = number
        return self._outputs[key]

    def _add(self, edges: list[JobEdge], **fields) -> int:
        number = len(self.graph.vertices)
        self.graph.vertices.append(JobVertex(number, f"step {number}", f"uid-{number}", inputs=edges, **fields))
        return number


# --- the data plane ------------------------------------------------------------------------------------------


@dataclass
class Task:
    deploy: c.Deploy
    subtask: int
    attempt: int
    inputs: list[tuple[int, int, int, int]]
    """Objects it reads: (dataset, partition, attempt, token)."""
    views: dict[tuple[int, int, int], Hashable] = field(default_factory=dict)
    """What it gets of each partition, by (input, dataset, partition)."""
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Merged objects it reads: (dataset, first partition, end, token)."""
    beside: dict[tuple[int, int], int] = field(default_factory=dict)
    """(vertex, subtask) to the attempt of those that feed it while they run."""
    launched: bool = False
    cancelled: bool = False
    node: str = ""
    """Empty: nobody said."""
    worker: str = ""
    """From which its slot was cut; empty: it has none, or a pending one."""
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class PickingDetector:
    """A slow task detector that calls those executions slow which a test picks."""

    slow: list[Key] = field(default_factory=list)
    interval: float = 1.0

    def slow_tasks(self, at: float) -> list[SlowTasks]:
        return [self._told(key, at) for key in self.slow if self._is_deployed(key)]

    def _row(self, key: Key) -> int:
        return int(self.graph.executions.find(self.graph.vertices[key[0]].newest[[key[1]]], ints(key[2]))[0])

    def _is_deployed(self, key: Key) -> bool:
        return bool(IS_DEPLOYED[self.graph.executions.state[self._row(key)]])

    def _told(self, key: Key, at: float) -> SlowTasks:
        return SlowTasks(key[0], ints(self._row(key)), "picked", np.array([at]), np.array([0.5]), "others take 500 ms")


@dataclass
class Plane:
    """Runs one job. ``sizes(vertex, subtask, dataset, n)`` makes up the bytes per subpartition, ``heavy_keys(dataset, subtask)`` the
    heavy keys in them."""

    scheduler: Scheduler
    sizes: Callable[[int, int, int, int], np.ndarray] = lambda _v, _s, _d, n: np.full(n, 10, np.int64)
    heavy_keys: Callable[[int, int], Sequence[HeavyKey]] = lambda _d, _s: ()
    check: bool = True
    validate_every: int = 1
    """Number of events after which the scheduler is validated, which is slow."""
    rows: int = 7
    """What each producer says it wrote."""
    now: float = 0.0
    tasks: dict[Key, Task] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    written: set[tuple[int, int, int, int]] = field(default_factory=set)
    released: set[tuple[int, int, int, int]] = field(default_factory=set)
    lost: set[tuple[int, int, int, int]] = field(default_factory=set)
    discarded: set[tuple[int, int, int, int]] = field(default_factory=set)
    admitted: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(vertex, subtask) -> (attempt, token) of the winner."""
    read: dict[tuple[int, int, int], dict[tuple[int, int, int], Hashable]] = field(default_factory=dict)
    """(vertex, subtask, token) -> the views of an execution that finished."""
    fed: dict[tuple[int, int, int], dict[tuple[int, int], int]] = field(default_factory=dict)
    """(vertex, subtask, token) -> who fed an execution that finished."""
    deploys: list[c.Deploy] = field(default_factory=list)
    regions: list[c.DeployRegions] = field(default_factory=list)
    commands: list[c.Command] = field(default_factory=list)
    records: list[r.JournalRecord] = field(default_factory=list)
    sent: list[e.Event] = field(default_factory=list)
    detector: PickingDetector | None = None
    """Present where speculation is on."""
    blocked: tuple[str, ...] = ()
    shared: list[c.ShareBlockedNode] = field(default_factory=list)
    """What other jobs of the session are told."""
    blobs: dict[bytes, descriptors.GateColumns] = field(default_factory=dict)
    """What is stored, by digest."""
    merges: list[c.MergePartitions] = field(default_factory=list)
    narrow: list[c.NarrowSource] = field(default_factory=list)
    """Not answered yet."""
    merged: dict[tuple[int, int, int, int], list[tuple[int, int]]] = field(default_factory=dict)
    """Merged object that is stored -> (attempt, token) of each of its partitions."""
    lost_merged: set[tuple[int, int, int, int]] = field(default_factory=set)
    verify: list[c.VerifyPartitions] = field(default_factory=list)
    stored_sizes: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """(dataset, partition, attempt) -> the row in the scratch files."""
    load: list[c.LoadSizes] = field(default_factory=list)
    commit: c.CommitSinks | None = None
    fail_commit: bool = False
    workers: dict[str, WorkerResources] = field(default_factory=dict)
    ended: c.JobStatusChanged | None = None
    _tokens: int = 0

    def __post_init__(self) -> None:
        if self.detector is not None:
            self.detector.graph = self.scheduler.graph
        self.key_ranges = KeyRangeBook(self.scheduler.job_graph)
        self.shares = ShareBook(self.scheduler.job_graph)

    def start(self) -> Plane:
        self.send(e.JobStarted(at=self.now))
        return self

    def send(self, event: e.Event) -> list[c.Command]:
        assert self.ended is None or not (out := self.scheduler.handle(event)), out
        if self.ended is not None:
            return []
        self.sent.append(event)
        commands = self.scheduler.handle(event)
        if self.check and len(self.sent) % self.validate_every == 0:
            self.scheduler.validate()
        for command in commands:
            assert self.ended is None, "a command after the end"
            self.commands.append(command)
            self._carry_out(command)
        return commands

    # --- what can happen ----------------------------------------------------------------------------------------

    def launch(self, key: Key, running: bool = True, node: str = "", worker: str = "") -> list[c.Command]:
        """``worker``: another than the one its slot was cut from, if it has one."""
        task, (v, s, a) = self.tasks[key], key
        task.launched = True
        task.node = node = node or f"node-{s % 3}"
        task.worker = worker or task.worker
        columns = {"subtasks": ints(s), "attempts": ints(a), "executors": (task.worker,) if task.worker else ()}
        return self.send(e.ExecutionsDeploying(at=self.tick(), vertex=v, **columns, running=running, nodes=(node,)))

    def reject(self, *keys: Key, node: str = "node-0", retired: bool = False) -> list[c.Command]:
        """Tasks of one vertex find themselves on a blocked node, or in a worker process that is retired, and do not begin."""
        for key in keys:
            placement = self.tasks.pop(key).deploy.placement
            assert retired or (placement is not None and placement.may_reject)
        columns = {"subtasks": ints(*(k[1] for k in keys)), "attempts": ints(*(k[2] for k in keys))}
        nodes = [node] * len(keys)
        return self.send(
            e.ExecutionsRejected(at=self.tick(), vertex=keys[0][0], **columns, nodes=nodes, retired=retired)
        )

    def worker(
        self,
        name: str,
        resources: WorkerResources | None = None,
        *,
        slots: int = 4,
        added: bool = True,
        node: str = "",
        profile: ResourceProfile | None = None,
    ) -> list[c.Command]:
        """A worker with these resources comes, or one goes."""
        if added and resources is not None:
            self.workers[name] = resources
        elif not added:
            self.workers.pop(name, None)
        event = e.ExecutorChanged(
            at=self.tick(),
            executor=name,
            host=node or name,
            slots=slots,
            added=added,
            node=node or name,
            resources=resources,
            profile=profile,
        )
        return self.send(event)

    def running_on(self, worker: str) -> list[Key]:
        return sorted(key for key, task in self.tasks.items() if task.worker == worker)

    def check_workers(self) -> None:
        """By books of its own: no worker holds more than it has, and no address is held twice. For slots that the pool
        gives out, one to a task."""
        for name, resources in self.workers.items():
            tasks = [self.tasks[key] for key in self.running_on(name)]
            profiles = [task.deploy.slots.profile for task in tasks]
            fine = [profile for profile in profiles if profile.is_specified]
            coarse = len(profiles) - len(fine)
            assert sum(p.cpu_cores for p in fine) + coarse * resources.cpu_cores / 4 <= resources.cpu_cores + 1e-6, name
            assert sum(p.memory for p in fine) + coarse * (resources.memory // 4) <= resources.memory, name
            for external in resources.external:
                held = sum(dict(p.external).get(external, 0.0) for p in fine)
                assert held <= resources.external[external] + 1e-6, name
            for external, addresses in resources.addresses.items():
                for address in addresses:
                    parts = [
                        min(1.0, dict(task.deploy.slots.profile.external)[external])
                        for task in tasks
                        if address in task.addresses.get(external, ())
                    ]
                    assert sum(parts) <= 1 + 1e-6, f"{address} of {name} is held twice"

    def slow(self, *keys: Key) -> list[c.Command]:
        """The detector looks, and finds these."""
        assert self.detector is not None
        self.detector.slow = list(keys)
        return self.fire(DETECTOR_TIMER)

    def executor(self, number: int, node: str, added: bool = True) -> list[c.Command]:
        event = e.ExecutorChanged(at=self.tick(), executor=str(number), host=node, slots=2, added=added)
        return self.send(event)

    def finish(self, *keys: Key, keep: bool = False, token: int | None = None) -> list[c.Command]:
        """These tasks (of one vertex) finish in one event. A task that reads a lost object fails instead."""
        for key in keys:
            bad = [o for o in self.tasks[key].inputs if o in self.lost]
            if bad:
                return self.fail(key, kind=e.FailureKind.PARTITION, bad=bad[0])
            missed = [o for o in self.tasks[key].merged if o in self.lost_merged]
            if missed:
                dataset, first, _, merged_token = missed[0]
                return self.fail(key, kind=e.FailureKind.PARTITION, bad=(dataset, first, MERGED_ATTEMPT, merged_token))
        vertex = keys[0][0]
        reports = self.reports([self.tasks[key] for key in keys], token)
        tasks = {key: self.tasks[key] for key in keys}
        event = e.ExecutionsFinished(
            at=self.tick(),
            vertex=vertex,
            subtasks=ints(*(k[1] for k in keys)),
            attempts=ints(*(k[2] for k in keys)),
            reports=reports,
        )
        for key in keys:
            if not keep:
                self.tasks.pop(key)
        for key, given in zip(keys, reports.tokens.tolist(), strict=True):
            self.written |= {(p.dataset, key[1], key[2], given) for p in reports.partitions}
            self.read[(*key[:2], given)] = tasks[key].views
            self.fed[(*key[:2], given)] = tasks[key].beside
            # Admitted unless the answer discards it.
            self.admitted.setdefault(key[:2], (key[2], given))
        return self.send(event)

    def fail(
        self,
        *keys: Key,
        kind: e.FailureKind = e.FailureKind.USER,
        bad: tuple[int, int, int, int] | None = None,
        counted: bool = True,
    ) -> list[c.Command]:
        for key in keys:
            self.tasks.pop(key)
        cause = e.FailureCause(kind, f"{kind.name} failure", None, *(bad or (-1, -1, -1, -1)))
        vertex = keys[0][0]
        subtasks, attempts = ints(*(k[1] for k in keys)), ints(*(k[2] for k in keys))
        return self.send(
            e.ExecutionsFailed(
                at=self.tick(), vertex=vertex, subtasks=subtasks, attempts=attempts, cause=cause, counted=counted
            )
        )

    def confirm_cancel(self, key: Key) -> None:
        self.tasks.pop(key)
        self.send(e.ExecutionsCancelled(at=self.tick(), vertex=key[0], subtasks=ints(key[1]), attempts=ints(key[2])))

    def fire(self, timer: str) -> list[c.Command]:
        self.now = max(self.now, self.timers.pop(timer))
        return self.send(e.TimerFired(at=self.now, timer=timer))

    def run(self, vertex: int | None = None) -> Plane:
        """Everything goes well until nothing is left (of ``vertex``, if given)."""
        while True:
            while self.verify:
                self.answer_verify()
            while self.load:
                self.answer_load()
            while self.merges:
                self.answer_merge()
            while self.narrow:
                self.answer_narrow()
            keys = [k for k, task in self.tasks.items() if not task.cancelled and (vertex is None or k[0] == vertex)]
            if keys:
                self.finish(*[k for k in keys if k[0] == keys[0][0]])
            elif any(task.cancelled for task in self.tasks.values()):
                self.confirm_cancel(next(k for k, task in self.tasks.items() if task.cancelled))
            elif self.timers and vertex is None and self.commit is None and self.ended is None:
                self.fire(min(self.timers, key=self.timers.__getitem__))
            else:
                return self

    def tick(self) -> float:
        self.now += 0.01
        return self.now

    def keys(self, vertex: int) -> list[Key]:
        return sorted(k for k in self.tasks if k[0] == vertex)

    def parallelism(self, vertex: int) -> int:
        return self.scheduler.graph.vertices[vertex].parallelism

    def decisions(self, what: str, vertex: int | None = None) -> list[r.Decision]:
        return [d for d in self.records if isinstance(d, r.Decision) and d.what == what and vertex in (None, d.vertex)]

    @property
    def status(self) -> str:
        return self.scheduler.status.value

    # --- commands -----------------------------------------------------------------------------------------------

    def _carry_out(self, command: c.Command) -> None:
        match command:
            case c.Record(record):
                record = with_reason(record)
                self.records.append(record)
                if isinstance(record, r.Decision):  # or nobody can read the journal
                    assert isinstance(record.bounds, list), record
                assert record.event == self.scheduler.recorder.event
            case c.Deploy():
                self._deploy(command, {})
            case c.DeployRegions():
                self._deploy_regions(command)
            case c.Cancel():
                for key in zip(
                    [command.vertex] * len(command.subtasks),
                    command.subtasks.tolist(),
                    command.attempts.tolist(),
                    strict=True,
                ):
                    self.tasks[key].cancelled = True
            case c.ReleasePartitions():
                self._release(command)
            case c.VerifyPartitions():
                self.verify.append(command)
            case c.NarrowSource():
                self.narrow.append(command)
            case c.VertexAbsorbed():
                self._absorbed(command)
            case c.StoreBlob(digest, data):
                assert digest not in self.blobs and descriptors.digest_of(data) == digest
                self.blobs[digest] = descriptors.decode_gate(data)
            case c.BlockNodes(nodes):
                self.blocked = nodes
            case c.ShareBlockedNode():
                self.shared.append(command)
            case c.DropBlobs(digests):
                for digest in digests:
                    del self.blobs[digest]
            case c.MergePartitions():
                self._begin_merge(command)
            case c.ReleaseMerged(dataset, merged):
                for name in _merged_names(dataset, merged):
                    del self.merged[name]  # released twice, or never written
            case c.DiscardExecutions():
                self._discard(command)
            case c.SetTimer(timer, at):
                assert at >= self.now
                self.timers[timer] = at
            case c.CancelTimer(timer):
                self.timers.pop(timer, None)
            case c.CommitSinks():
                self._commit(command)
            case c.StoreSizes():
                for p, a, row in zip(command.partitions.tolist(), command.attempts.tolist(), command.rows, strict=True):
                    assert (command.dataset, p, a) not in self.stored_sizes, "stored twice"
                    self.stored_sizes[command.dataset, p, a] = row
            case c.LoadSizes():
                for p, a in zip(command.partitions.tolist(), command.attempts.tolist(), strict=True):
                    assert (command.dataset, p, a) in self.stored_sizes, "asked for what was not stored"
                self.load.append(command)
            case c.DropSizes():
                kept = {key: row for key, row in self.stored_sizes.items() if key[0] != command.dataset}
                assert len(kept) < len(self.stored_sizes), "dropped, and nothing was stored"
                self.stored_sizes = kept
            case c.JobStatusChanged():
                if command.status.is_terminal:
                    self._end(command)
            case _:
                raise AssertionError(f"the driver does not know {type(command).__name__}")

    def _absorbed(self, command: c.VertexAbsorbed) -> None:
        """Nothing of either was deployed, and the scheduler's graph says the same."""
        assert all(deploy.vertex not in (command.vertex, command.producer) for deploy in self.deploys)
        assert self.scheduler.job_graph.vertices[command.producer].absorbed_by == command.vertex

    def _deploy_regions(self, command: c.DeployRegions) -> None:
        self.regions.append(command)
        together = {
            (part.vertex, s): a
            for part in command.parts
            for s, a in zip(part.subtasks.tolist(), part.attempts.tolist(), strict=True)
        }
        for part in command.parts:
            self._deploy(part, together)
        if self.check:
            self._check_readers(command, together)

    def _check_readers(self, command: c.DeployRegions, together: dict[tuple[int, int], int]) -> None:
        """Whoever reads pipelined rows of these runs with them."""
        graph = self.scheduler.job_graph
        for vertex in graph.vertices:
            for index, edge in enumerate(vertex.inputs):
                dataset = graph.datasets[edge.dataset]
                if dataset.type is ResultPartitionType.BLOCKING or all(
                    p.vertex != dataset.producer for p in command.parts
                ):
                    continue
                ranges = self._ranges(vertex.id, index)
                for reader in range(ranges.parallelism):
                    if any((dataset.producer, p) in together for p in _partitions(ranges.of(reader))):
                        assert (vertex.id, reader) in together, "a pipelined result without its reader"

    def _deploy(self, deploy: c.Deploy, together: dict[tuple[int, int], int]) -> None:
        self.deploys.append(deploy)
        self.key_ranges.deployed(deploy)
        self.shares.deployed(deploy)
        divided = any(ranges.shares is not None for ranges in deploy.ranges)
        vertex = self.scheduler.job_graph.vertices[deploy.vertex]
        assert len(deploy.gates) == len(deploy.ranges) == len(vertex.inputs)
        assert set(deploy.subpartitions) == set(vertex.outputs)
        assert vertex.absorbed_by is None, "deployed although another vertex does its work"
        for number, (gate, ranges) in enumerate(zip(deploy.gates, deploy.ranges, strict=True)):
            assert ranges.parallelism == len(deploy.subtasks)
            producer = self.scheduler.job_graph.datasets[gate.dataset].producer
            if gate.offloaded:
                stored = self.blobs[gate.encoded.digest]
                assert (stored.dataset, stored.tokens.tolist()) == (gate.dataset, gate.tokens.tolist())
            if gate.partitions is None and ranges.parallelism == deploy.parallelism and not divided:
                _check_coverage(self.parallelism(producer), gate, ranges, vertex.inputs[number].whole)
        for position, (subtask, attempt) in enumerate(
            zip(deploy.subtasks.tolist(), deploy.attempts.tolist(), strict=True)
        ):
            key = (deploy.vertex, subtask, attempt)
            assert key not in self.tasks, "deployed twice"
            alone = not vertex.supports_concurrent_attempts
            assert not (alone and any(k[:2] == key[:2] for k in self.tasks)), "two attempts where one is allowed"
            assert (deploy.placement is not None) == self.scheduler.options[SPECULATIVE_ENABLED]
            self._forget_winner(key)
            task = self.tasks[key] = Task(deploy, subtask, attempt, [])
            if deploy.slots is not None:
                task.worker = deploy.slots.executors[position]
                task.addresses = dict(deploy.slots.addresses[position]) if deploy.slots.addresses else {}
            if self.check:
                task.inputs, task.beside = self._inputs(deploy, position, together)
                task.views = self._views(vertex, position, task)
                task.merged = self._merged_inputs(deploy, position)

    def _views(self, vertex: JobVertex, position: int, task: Task) -> dict[tuple[int, ...], Hashable]:
        """Equal views: the same rows. A share by order, of a divided subpartition too, is another one in each attempt, and so is all that a
        nondeterministic producer gives; else only the rows count."""
        views = {}
        for index, (gate, ranges) in enumerate(zip(task.deploy.gates, task.deploy.ranges, strict=True)):
            dataset = self.scheduler.job_graph.datasets[gate.dataset]
            for p in _partitions(ranges.of(position)):
                shared = dataset.ship in BY_ORDER and self._num_readers(vertex.id, index, p) > 1
                if _is_made_beside(gate, p):
                    attempt = task.beside[dataset.producer, p]
                    read = self.tasks[dataset.producer, p, attempt].views
                else:
                    attempt, token = int(gate.attempts[_place(gate, p)]), int(gate.tokens[_place(gate, p)])
                    read = self.read[dataset.producer, p, token]
                rows = tuple(sorted(read.items(), key=str))
                other = shared or not self.scheduler.job_graph.vertices[dataset.producer].deterministic
                views[index, gate.dataset, p] = ("attempt", attempt) if other else hash(rows)
                for divided in () if vertex.inputs[index].by_value else _divided(ranges, position):
                    views[index, gate.dataset, p, divided] = ("attempt", attempt)
        return views

    def _ranges(self, vertex: int, index: int) -> c.InputRanges:
        ranges = self.scheduler.graph.vertices[vertex].ranges
        assert ranges is not None
        return ranges[index]

    def _num_readers(self, vertex: int, index: int, partition: int) -> int:
        ranges = self._ranges(vertex, index)
        return sum(partition in _partitions(ranges.of(k)) for k in range(ranges.parallelism))

    def _check_views(self) -> None:
        """All winners of a vertex that read a partition got the same rows, so that none was lost or doubled."""
        seen: dict[tuple[int, ...], Hashable] = {}
        for (vertex, subtask), (_, token) in self.admitted.items():
            for place, view in self.read[vertex, subtask, token].items():
                assert seen.setdefault((vertex, *place), view) == view, (
                    f"{place} of vertex {vertex}: rows lost or doubled"
                )
            for producer, attempt in self.fed.get((vertex, subtask, token), {}).items():
                assert self.admitted[producer][0] == attempt, f"{vertex, subtask} was fed by {producer}, {attempt}"

    def _winning_attempts(self, vertex: int) -> np.ndarray:
        return np.array([self.admitted[vertex, subtask][0] for subtask in range(self.parallelism(vertex))])

    def _forget_winner(self, key: Key) -> None:
        """A winner runs again only if it was discarded, or all it produced has been released."""
        winner = self.admitted.pop(key[:2], None)
        if winner is not None:
            vertex = self.scheduler.job_graph.vertices[key[0]]
            stored = [d for d in vertex.outputs if not self._is_pipelined(d)]
            gone = all((dataset, key[1], *winner) in self.released for dataset in stored)
            assert gone and not vertex.has_sink and key[2] > winner[0], "deployed although it has a winner"

    def _is_pipelined(self, dataset: int) -> bool:
        return self.scheduler.job_graph.datasets[dataset].type is ResultPartitionType.PIPELINED

    def _inputs(
        self, deploy: c.Deploy, position: int, together: dict[tuple[int, int], int]
    ) -> tuple[list[tuple[int, int, int, int]], dict[tuple[int, int], int]]:
        """The objects that an execution reads, and who feeds it while it runs."""
        inputs, beside = [], {}
        for gate, ranges in zip(deploy.gates, deploy.ranges, strict=True):
            producer = self.scheduler.job_graph.datasets[gate.dataset].producer
            assert gate.pipelined == self._is_pipelined(gate.dataset)
            for p in _partitions(ranges.of(position)):
                if _is_made_beside(gate, p):
                    assert (producer, p) in together, "deployed without those that feed it"
                    beside[producer, p] = together[producer, p]
                    continue
                named = (int(gate.attempts[_place(gate, p)]), int(gate.tokens[_place(gate, p)]))
                assert self.admitted.get((producer, p)) == named, "deployed before its inputs, or told of a loser"
                assert (gate.dataset, p, *named) not in self.released, "told to read what was released"
                inputs.append((gate.dataset, p, *named))
        return inputs, beside

    def _merged_inputs(self, deploy: c.Deploy, position: int) -> list[tuple[int, int, int, int]]:
        """The merged objects that an execution reads: all are stored, and made of what the gate names."""
        found = []
        for gate, ranges in zip(deploy.gates, deploy.ranges, strict=True):
            if gate.merged is None:
                continue
            names = _merged_names(gate.dataset, gate.merged)
            assert all(a[2] <= b[1] for a, b in pairwise(names)), "merged objects overlap, or are not in order"
            for name in names:
                named = [(int(gate.attempts[p]), int(gate.tokens[p])) for p in range(name[1], name[2])]
                assert self.merged[name] == named, "told to read a merged object of other partitions"
                if any(p0 <= name[1] and name[2] <= p1 for p0, p1, _, _ in ranges.of(position).tolist()):
                    found.append(name)
        return found

    def _begin_merge(self, command: c.MergePartitions) -> None:
        bounds, gate = command.bounds.tolist(), command.gate
        assert bounds == sorted(set(bounds)) and gate.partitions is None
        assert (gate.attempts >= 0).all() and bounds[0] == 0 and bounds[-1] == len(gate.attempts)
        assert all(merge.merge != command.merge for merge in self.merges)
        self.merges.append(command)

    def answer_narrow(self, kept: Sequence[int] | None = None) -> e.SourceNarrowed:
        """``kept``: numbers of the splits that are left; None: all are, as they were."""
        asked = self.narrow.pop(0)
        source = self.scheduler.job_graph.vertices[worker_of(self.scheduler.job_graph, asked.vertex)].source
        assert source is not None
        sizes = None if kept is None else source.split_bytes[list(kept)]
        event = e.SourceNarrowed(at=self.tick(), vertex=asked.vertex, split_bytes=sizes, found="made up")
        self.send(event)
        return event

    def answer_merge(self, number: int = 0, failed: Sequence[int] = ()) -> e.PartitionsMerged:
        """``failed``: groups that could not be merged."""
        merge = self.merges.pop(number)
        bounds, gate = merge.bounds.tolist(), merge.gate
        groups = [g for g in range(len(bounds) - 1) if g not in failed]
        tokens = list(range(self._tokens + 1, self._tokens + 1 + len(groups)))
        self._tokens += len(groups)
        for g, token in zip(groups, tokens, strict=True):
            made_of = [(int(gate.attempts[p]), int(gate.tokens[p])) for p in range(bounds[g], bounds[g + 1])]
            self.merged[gate.dataset, bounds[g], bounds[g + 1], token] = made_of
        event = e.PartitionsMerged(
            at=self.tick(),
            dataset=gate.dataset,
            merge=merge.merge,
            groups=ints(*groups),
            tokens=ints(*tokens),
            stored_bytes=np.full(len(groups), 100),
            reason="disk full" if failed else "",
        )
        self.send(event)
        return event

    def _release(self, command: c.ReleasePartitions) -> None:
        graph = self.scheduler.job_graph
        assert not graph.datasets[command.dataset].persistent and not self._is_pipelined(command.dataset)
        released = set(command.partitions.tolist())
        for vertex in graph.consumers(command.dataset):
            assert self.parallelism(vertex) > 0, "released before its consumer was decided"
            for index, edge in enumerate(graph.vertices[vertex].inputs if self.check else []):
                ranges = self.scheduler.graph.vertices[vertex].ranges
                if edge.dataset != command.dataset:
                    continue
                for reader in range(self.parallelism(vertex)):
                    if ranges is None or released & _partitions(ranges[index].of(reader)):
                        assert (vertex, reader) in self.admitted, "released before its last consumer finished"
        for p, a, t in zip(
            command.partitions.tolist(), command.attempts.tolist(), command.tokens.tolist(), strict=True
        ):
            name = (command.dataset, p, a, t)
            assert name in self.written and name not in self.released, "released twice, or never written"
            self.released.add(name)

    def _discard(self, command: c.DiscardExecutions) -> None:
        for name in discarded(command):
            assert name not in self.discarded, "discarded twice"
            self.discarded.add(name)
            if self.admitted.get(name[:2]) == name[2:]:
                del self.admitted[name[:2]]
            for dataset in self.scheduler.job_graph.vertices[command.vertex].outputs:
                self.released.add((dataset, *name[1:]))

    def _commit(self, command: c.CommitSinks) -> None:
        assert self.commit is None
        self.commit = command
        self._check_alone()
        for vertex, winners in command.winners.items():
            assert len(winners) == self.parallelism(vertex)
            for subtask, (attempt, commits) in enumerate(winners):
                assert self.admitted[vertex, subtask][0] == attempt
                assert commits == (f"{vertex}/{subtask}/{attempt}".encode(),)

    def _end(self, command: c.JobStatusChanged) -> None:
        self.ended = command
        assert not self.blobs, "blobs were left"
        if command.status is c.JobStatus.FINISHED:
            self._check_alone()
            for vertex in self.scheduler.graph.vertices:
                assert all((vertex.id, s) in self.admitted for s in range(vertex.parallelism)), (
                    "finished without all winners"
                )
            if self.check:
                self._check_views()
                self.key_ranges.check_finished()
                self.shares.check_finished(self._winning_attempts)
            assert not self.stored_sizes, "rows of sizes were left in the scratch files"
            if not self.merges:
                assert not self.merged, f"merged objects were left: {list(self.merged)}"
            left = self.written - self.released
            for dataset, p, a, t in left:
                assert self.scheduler.job_graph.datasets[dataset].persistent, f"object {(dataset, p, a, t)} was left"
            for gate in command.persistent:
                producer = self.scheduler.job_graph.datasets[gate.dataset].producer
                for p, named in enumerate(zip(gate.attempts.tolist(), gate.tokens.tolist(), strict=True)):
                    assert self.admitted[producer, p] == named
        elif command.status is c.JobStatus.FAILED:
            assert command.cause is not None

    def _check_alone(self) -> None:
        """When the job publishes or finishes, only cancelled attempts are left, of vertices that do not mind."""
        for vertex, subtask, attempt in self.tasks:
            # A winner that Spark runs once more is not known to the scheduler before it reports.
            if self.admitted.get((vertex, subtask), (-1,))[0] != attempt:
                assert self.tasks[vertex, subtask, attempt].cancelled
                assert self.scheduler.job_graph.vertices[vertex].supports_concurrent_attempts, "published too early"

    def reports(self, tasks: Sequence[Task], token: int | None = None) -> e.ExecutionReports:
        """Of tasks of one vertex; ``token``: of all of them, else each gets the next."""
        deploy, subtasks = tasks[0].deploy, [task.subtask for task in tasks]
        vertex = self.scheduler.job_graph.vertices[deploy.vertex]
        tokens = range(self._tokens + 1, self._tokens + 1 + len(tasks))
        self._tokens += len(tasks)
        return e.ExecutionReports.of(
            ints(*([token] * len(tasks) if token else tokens)),
            nodes=[task.node or f"node-{task.subtask % 3}" for task in tasks],
            partitions=[
                self._written(d, subtasks, [self.sizes(vertex.id, s, d, n) for s in subtasks])
                for d, n in deploy.subpartitions.items()
                if not self._is_pipelined(d)
            ],
            rows_in=3,
            bytes_in=4,
            rows_out=7,
            steps=[(StepReport("step", SET_UP),)] * len(tasks) if vertex.id % 2 else (),
            commits=[(f"{vertex.id}/{t.subtask}/{t.attempt}".encode(),) for t in tasks] if vertex.has_sink else (),
        )

    def _written(self, dataset: int, subtasks: Sequence[int], sizes: Sequence[np.ndarray]) -> e.PartitionReports:
        told = e.PartitionReports.of(dataset, sizes, self.rows, 5)
        heavy_keys = [encode_heavy_keys(self.heavy_keys(dataset, s)) for s in subtasks]
        told = replace(told, heavy_keys=heavy_keys if any(heavy_keys) else None)
        if self.scheduler.job_graph.datasets[dataset].ship is not ShipStrategy.RANGE:
            return told
        return replace(told, sizes=None, sketches=[sketched(s, row) for s, row in zip(subtasks, sizes, strict=True)])

    def answer_verify(self) -> None:
        asked = self.verify.pop(0)
        columns = (asked.partitions.tolist(), asked.attempts.tolist(), asked.tokens.tolist())
        names = [(asked.dataset, *name) for name in zip(*columns, strict=True)]
        gone = np.array([name in self.lost or name in self.released for name in names], np.bool_)
        if gone.any():
            self.send(
                e.PartitionsLost(
                    at=self.tick(),
                    dataset=asked.dataset,
                    partitions=asked.partitions[gone],
                    attempts=asked.attempts[gone],
                    tokens=asked.tokens[gone],
                )
            )

    def answer_load(self, unreadable: float = 0.0, rng: random.Random | None = None) -> None:
        """``unreadable``: the chance of each row to be lost."""
        asked = self.load.pop(0)
        rows: list[bytes | None] = []
        for p, a in zip(asked.partitions.tolist(), asked.attempts.tolist(), strict=True):
            # None of those dropped since.
            row = self.stored_sizes.get((asked.dataset, p, a))
            rows.append(None if rng is not None and rng.random() < unreadable else row)
        self.send(
            e.SizesLoaded(
                at=self.tick(), dataset=asked.dataset, partitions=asked.partitions, attempts=asked.attempts, rows=rows
            )
        )

    def answer_commit(self) -> None:
        assert self.commit is not None
        if self.fail_commit:
            self.send(e.SinksFailed(at=self.tick(), cause=e.FailureCause(e.FailureKind.STORAGE, "disk full")))
        else:
            self.send(e.SinksCommitted(at=self.tick()))


def sketched(producer: int, sizes: np.ndarray) -> bytes:
    """What a producer tells whose ``k``th key, with its own number behind it, has ``sizes[k]`` bytes."""
    keys = np.flatnonzero(sizes)
    return encode_sketch(Sketch(tuple(struct.pack(">II", k, producer) for k in keys.tolist()), sizes[keys], 1))


def _merged_names(dataset: int, merged: c.MergedObjects) -> list[tuple[int, int, int, int]]:
    columns = merged.first.tolist(), merged.end.tolist(), merged.tokens.tolist()
    return [(dataset, *name) for name in zip(*columns, strict=True)]


def _place(gate: c.GateDescriptor, partition: int) -> int:
    """Where a gate speaks of a partition."""
    return partition if gate.partitions is None else gate.partitions.tolist().index(partition)


def _partitions(rects: np.ndarray) -> set[int]:
    return {p for first, end, _, _ in rects.tolist() for p in range(first, end)}


def _divided(ranges: c.InputRanges, position: int) -> list[int]:
    """Subpartitions that an execution reads parts of."""
    rows = slice(ranges.offsets[position], ranges.offsets[position + 1])
    return ranges.rects[rows][ranges.is_divided[rows], 2].tolist()


def _is_made_beside(gate: c.GateDescriptor, partition: int) -> bool:
    """By an execution of the same regions, while the reader runs."""
    return gate.pipelined or int(gate.attempts[_place(gate, partition)]) == -1


def _check_coverage(num_partitions: int, gate: c.GateDescriptor, ranges: c.InputRanges, whole: bool) -> None:
    """Every cell is read by exactly one subtask; a broadcast, and what is read whole, by all of them."""
    steps = np.zeros((num_partitions + 1, gate.num_subpartitions + 1), np.int64)
    p0, p1, s0, s1 = ranges.rects.T
    for rows, columns, step in ((p0, s0, 1), (p0, s1, -1), (p1, s0, -1), (p1, s1, 1)):
        np.add.at(steps, (rows, columns), step)
    read = steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    assert (read == (ranges.parallelism if gate.is_broadcast or whole else 1)).all(), (
        "a cell is read twice or not at all"
    )


def plane(
    graph: JobGraph,
    check: bool = True,
    sizes=None,
    slot_mode: SlotMode | None = None,
    join=None,
    slots: int = 1,
    task_memory: float | None = None,
    cold_start: float = 0.0,
    costs: StepCosts = NO_COSTS,
    size_buffer_bytes: int = BUFFER_BYTES,
    make: Callable[..., Plane] = Plane,
    **options,
) -> Plane:
    """A plane for a job that has not started, of the kind that ``make`` makes; options by short name, dashes as underscores."""
    values = {"subpartition-factor": 4}  # what the tests reckon with, whatever the default
    values |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    chosen = Options(values)
    detector = PickingDetector() if chosen[SPECULATIVE_ENABLED] else None
    made = make(
        create_scheduler(
            graph,
            chosen,
            Inputs(
                slots=slots,
                slot_mode=slot_mode,
                task_memory=task_memory,
                cold_start=cold_start,
                costs=costs,
                size_buffer_bytes=size_buffer_bytes,
            ),
            detector=detector,
            join=join,
        ),
        check=check,
        detector=detector,
    )
    if sizes is not None:
        made.sizes = sizes
    return made


# --- fault injection ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultInjection:
    """Chances per step of what can go wrong."""

    user: float = 0.0
    uncounted: float = 0.0
    worker: float = 0.0
    storage: float = 0.0
    lose: float = 0.0
    lose_merged: float = 0.0
    double: float = 0.0
    other_token: float = 0.0
    fatal: float = 0.0
    cancel: float = 0.0
    foreign_cancel: float = 0.0
    """Somebody else cancels a task."""
    executors: float = 0.0
    """An executor comes or goes."""
    publishing: float = 0.0
    """Something else happens while the sinks are published."""
    fail_commit: float = 0.0
    unreadable: float = 0.0
    """A row of sizes that cannot be read back."""
    slow: float = 0.0
    """A running task is found to be slow; in vain, where speculation is off."""
    reject: float = 0.0
    """A task that was not launched is rejected by a blocked node."""
    lost: float = 0.0
    """An executor dies, and Spark runs its tasks again."""
    race: float = 0.3
    """A cancelled task that finishes before it is gone."""


def drive(plane: Plane, rng: random.Random, faults: FaultInjection, steps: int = 4000) -> Plane:
    """Random events until the job ends. Raises AssertionError with what it waits for if it does not."""
    plane.start()
    for _ in range(steps):
        if plane.ended is not None:
            return plane
        if plane.commit is not None and rng.random() >= faults.publishing:
            plane.fail_commit = rng.random() < faults.fail_commit
            plane.answer_commit()
            continue
        _step(plane, rng, faults)
    raise AssertionError("\n".join(["the job does not end", *waits_of(plane.scheduler)]))


def _step(plane: Plane, rng: random.Random, faults: FaultInjection) -> None:
    def happens(chance: float) -> bool:
        return rng.random() < chance

    if happens(faults.double) and plane.sent:
        plane.send(rng.choice(plane.sent[-20:]))
        return
    if plane.verify and happens(0.3):
        plane.answer_verify()
        return
    timers = sorted(plane.timers.keys() - {DETECTOR_TIMER})
    if plane.load and (happens(0.3) or not (plane.tasks or timers)):
        plane.answer_load(faults.unreadable, rng)
        return
    if plane.merges and happens(0.2 if plane.tasks else 0.7):
        number = rng.randrange(len(plane.merges))
        groups = len(plane.merges[number].bounds) - 1
        plane.answer_merge(number, [g for g in range(groups) if happens(0.2)])
        return
    if happens(faults.lose_merged):
        plane.lost_merged |= set(rng.sample(sorted(plane.merged), 1)) if plane.merged else set()
    if happens(faults.lose):
        alive = sorted(plane.written - plane.released - plane.lost)
        alive = [o for o in alive if plane.scheduler.graph.consumers[o[0]]]
        plane.lost |= {rng.choice(alive)} if alive else set()
    if happens(faults.cancel):
        plane.send(e.CancelRequested(at=plane.tick()))
        return
    if happens(faults.executors):
        added = happens(0.5)
        plane.executor(number := rng.randrange(3), f"node-{number}", added)
        return
    if plane.commit is not None and not plane.tasks:
        return
    if plane.detector is not None and happens(faults.slow) and plane.timers.get(DETECTOR_TIMER):
        plane.slow(*[key for key in sorted(plane.tasks) if happens(0.3)])
        return
    if timers and (not plane.tasks or happens(0.2)):
        plane.fire(rng.choice(timers))
        return
    if not plane.tasks and plane.merges:
        return
    if not plane.tasks:
        raise AssertionError("\n".join(["nothing runs, and the job has not ended", *waits_of(plane.scheduler)]))
    key = rng.choice(sorted(plane.tasks))
    task = plane.tasks[key]
    if (task.cancelled and not happens(faults.race)) or happens(faults.foreign_cancel):
        plane.confirm_cancel(key)
    elif not task.launched and happens(0.5):
        plane.launch(key, running=happens(0.5))
    elif (
        not task.launched and plane.detector is not None and task.deploy.placement.may_reject and happens(faults.reject)
    ):
        plane.reject(key)
    elif happens(faults.lost):
        plane.fail(*_siblings(plane, key), kind=e.FailureKind.LOST)
    elif happens(faults.user):
        plane.fail(key)
    elif happens(faults.fatal):
        plane.fail(key, kind=e.FailureKind.FATAL)
    elif happens(faults.worker):
        plane.fail(*_siblings(plane, key), kind=e.FailureKind.WORKER)
    elif happens(faults.storage):
        plane.fail(key, kind=e.FailureKind.STORAGE)
    elif happens(faults.uncounted):
        plane.fail(*_siblings(plane, key), kind=e.FailureKind.WORKER, counted=False)
    elif not task.cancelled and happens(faults.other_token):
        if plane.finish(key, keep=True) is not None and key in plane.tasks:
            plane.finish(key)
    else:
        keys = [key]
        if happens(0.5):
            keys = [k for k in _siblings(plane, key) if not any(o in plane.lost for o in plane.tasks[k].inputs)] or keys
        plane.finish(*keys)


def _siblings(plane: Plane, key: Key) -> list[Key]:
    return [k for k in plane.tasks if k[0] == key[0] and plane.tasks[k].cancelled == plane.tasks[key].cancelled]


def random_graph(rng: random.Random, pipelined: float = 0.0) -> JobGraph:
    """Up to six vertices with any ship strategies; some parallelisms, maxima and persistent results set.

    ``pipelined``: the chance of an edge to be that.
    """
    builder = GraphBuilder("random")
    ships = [ship for ship in ShipStrategy if not (pipelined and ship is ShipStrategy.RANGE)]
    made: list[int] = []
    for number in range(rng.randint(1, 6)):
        fields = {
            "has_sink": rng.random() < 0.2,
            "supports_concurrent_attempts": rng.random() < 0.7,
            "deterministic": rng.random() < 0.8,
        }
        if rng.random() < 0.2:
            fields["parallelism"] = rng.randint(1, 5)
        elif rng.random() < 0.2:
            fields["max_parallelism"] = rng.randint(1, 6)
        if number == 0 or rng.random() < 0.2:
            made.append(builder.source([rng.randint(0, 300) for _ in range(rng.randint(0, 6))], **fields))
            continue
        inputs = {(rng.choice(made), rng.choice(ships)) for _ in range(rng.randint(1, 3))}
        if number > 1 and not pipelined and rng.random() < 0.3:
            inputs = {(producer, ShipStrategy.HASH) for producer in rng.sample(made, 2)}
            fields["divisible_inputs"] = rng.choice([(True, True), (True, False), (False, True)])
        chosen = sorted(inputs, key=lambda i: (i[0], i[1].value))
        if len(chosen) == 1 and chosen[0][1] in (ShipStrategy.HASH, ShipStrategy.GLOBAL) and not pipelined:
            made.append(builder.two_steps(chosen[0][0], by_key=chosen[0][1] is ShipStrategy.HASH, **fields))
            continue
        if pipelined:
            types = [rng.random() < pipelined for _ in chosen]
            chosen = [
                (*i, ResultPartitionType.PIPELINED if t else ResultPartitionType.BLOCKING)
                for i, t in zip(chosen, types, strict=True)
            ]
        made.append(builder.step(*chosen, **fields))
    for vertex in list(builder.graph.vertices):
        if not vertex.outputs and rng.random() < 0.3:
            builder.dataset(vertex.id, ShipStrategy.GLOBAL, persistent=True)
    return builder.graph


def random_sizes(rng: random.Random) -> Callable[[int, int, int, int], np.ndarray]:
    seed = rng.randrange(1 << 30)

    def sizes(vertex: int, subtask: int, dataset: int, n: int) -> np.ndarray:
        made = np.random.default_rng((seed, vertex, subtask, dataset)).integers(0, 200, n)
        made[seed % n] *= 1 + seed % 40  # now and then one is heavy
        return made

    return sizes


def reason_in(fields: Mapping[str, Any]) -> str:
    """The sentence of a decision with these fields."""
    told = {name: to_builtins(value) for name, value in fields.items()}
    return reason_of(r.Decision(at=0.0, what="parallelism", **told))


def attempts_of(deploys: Iterable[c.Deploy], vertex: int) -> list[tuple[int, int]]:
    """(subtask, attempt) of every deployment of a vertex, in order."""
    return [
        k for d in deploys if d.vertex == vertex for k in zip(d.subtasks.tolist(), d.attempts.tolist(), strict=True)
    ]


def split_lists(splits: c.Splits) -> list[list[int]]:
    return [splits.of(k).tolist() for k in range(splits.parallelism)]
