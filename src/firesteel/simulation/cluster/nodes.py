"""Nodes with slots, as columns. A slot runs one execution at a time; its number never changes, its node may die."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints, Names
from firesteel.scheduler.slots.resource_profile import SlotEnforcement, SlotMode, WorkerResources

FREE = -1


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """Executors as dynamic allocation makes them."""

    cores: int = 4
    """Of one: as many of its tasks as they suffice for, one at least, run there at once."""
    memory: int = 4 << 30
    """Bytes of one that serves groups without resources."""
    start_seconds: float = 2.0
    idle_seconds: float = 10.0
    """One that does nothing for so long goes."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """``slow_nodes`` of the nodes run at ``slow_factor`` of the others' speed."""

    nodes: int = 4
    slots: int = 2
    """Of each node."""
    slow_nodes: int = 0
    slow_factor: float = 0.25
    workers: tuple[WorkerResources, ...] = ()
    """Resources of the nodes' workers, in turn, where slot sharing groups have resources; empty: slots alone.
    With dynamic allocation: resources of new executors."""
    mode: SlotMode = field(default_factory=SlotMode)
    executors: ExecutorSpec = field(default_factory=ExecutorSpec)

    @property
    def total_slots(self) -> int:
        return self.nodes * self.slots

    def resources_of(self, node: int) -> WorkerResources:
        """Raises IndexError where nodes have slots alone."""
        return self.workers[node % len(self.workers)]


PROFILES = {
    "task": SlotEnforcement.TASK_PROFILES,
    "executor": SlotEnforcement.EXECUTOR_PROFILES,
    "none": SlotEnforcement.POOL,
}
"""Enforcement of slots of their own resources, by what Spark is told of them."""


def with_workers(spec: ClusterSpec, memory: int, external: Mapping[str, float], profiles: str) -> ClusterSpec:
    """Nodes with a core for each slot, so many bytes, and external resources; ``profiles``: a key of :data:`PROFILES`."""
    enforcement = PROFILES[profiles]
    pool = enforcement is SlotEnforcement.POOL
    addresses = {name: tuple(map(str, range(int(amount)))) for name, amount in external.items()} if pool else {}
    worker = WorkerResources(float(spec.slots), memory, external, addresses=addresses)
    mode = SlotMode(enforcement, grows=enforcement is SlotEnforcement.EXECUTOR_PROFILES)
    return replace(spec, workers=(worker,), mode=mode)


class Cluster:
    """Slot ``s`` lies on node ``s % nodes``, so that tasks handed out in the order of slots spread over the nodes."""

    def __init__(self, spec: ClusterSpec, slots: int | None = None) -> None:
        """``slots``: of each node, if not as ``spec`` says: where workers have resources, the most that ever run at once."""
        self.spec = spec
        slots = spec.slots if slots is None else slots
        total = spec.nodes * slots
        self.names = tuple(f"node-{n}" for n in range(spec.nodes))
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.speed: Floats = np.ones(spec.nodes)
        """As it is now; 0: the node stands still, and takes what it is given none the less."""
        if spec.slow_nodes:
            self.speed[self.spread(spec.slow_nodes)] = spec.slow_factor
        self.alive: NDArray[np.bool_] = np.ones(spec.nodes, np.bool_)
        self.starts: Ints = np.zeros(spec.nodes, np.int64)
        """Number of workers with resources started on each node: a worker's name says it."""
        self.node_of: Ints = np.arange(total, dtype=np.int64) % spec.nodes
        self.run: Ints = np.full(total, FREE, np.int64)
        """The execution (a row of the plane's table) in each slot."""
        self.ends: Floats = np.full(total, np.inf)
        """Time at which the slot's execution ends, virtual seconds; inf: nothing runs, or it stands still."""
        self._left: Floats = np.zeros(total)
        """Of slots on nodes that stand still: seconds of work at full speed."""

    def spread(self, count: int, *, after: int = 0) -> Ints:
        """So many nodes, far from each other; ``after``: moved on by so many."""
        places = np.linspace(0, self.spec.nodes, count, endpoint=False).astype(np.int64)
        return (places + after) % self.spec.nodes

    def next_to_end(self) -> int:
        """The slot whose execution ends first."""
        return int(np.argmin(self.ends))

    def free_slots(self) -> Ints:
        """Slots of living nodes that hold nothing, ascending."""
        return np.flatnonzero((self.run == FREE) & self.alive[self.node_of])

    def ends_of(self, slots: Ints, now: float, seconds: Floats) -> Floats:
        """Returns the times at which work of so many seconds (at full speed) that begins now is done; inf where the node stands still."""
        speed = self.speed[self.node_of[slots]]
        if speed.all():
            return now + seconds / speed
        self._left[slots] = seconds
        return np.where(speed > 0, now + seconds / np.where(speed > 0, speed, 1.0), np.inf)

    def occupy(self, slots: Ints, runs: Ints, ends: Floats) -> None:
        self.run[slots], self.ends[slots] = runs, ends

    def end_by(self, slots: Ints, when: float) -> None:
        """Ends the slots' executions at ``when`` if not before; on a node that stands still: as soon as it moves again."""
        still = self.speed[self.node_of[slots]] == 0
        moving = slots[~still]
        self.ends[moving] = np.minimum(self.ends[moving], when)
        self._left[slots[still]] = 0.0

    def set_speed(self, node: int, speed: float, now: float) -> None:
        """From now on what runs there is done so fast; 0: not at all."""
        slots, before = np.flatnonzero((self.node_of == node) & (self.run != FREE)), float(self.speed[node])
        if before:
            self._left[slots] = np.maximum(self.ends[slots] - now, 0.0) * before
        self.speed[node] = speed
        self.ends[slots] = now + self._left[slots] / speed if speed else np.inf

    def due(self, now: float) -> Ints:
        """Slots whose execution has ended by now, in the order of the ends."""
        slots = np.flatnonzero(self.ends <= now)
        return slots[np.argsort(self.ends[slots], kind="stable")]

    def vacate(self, slots: Ints) -> Ints:
        """Frees the slots; returns what ran there."""
        runs = self.run[slots]
        self.run[slots], self.ends[slots] = FREE, np.inf
        return runs

    def kill(self, node: int) -> Ints:
        """The node is gone; returns the slots in which something ran."""
        self.alive[node] = False
        return np.flatnonzero((self.node_of == node) & (self.run != FREE))

    def names_of(self, nodes: NDArray[np.int32]) -> Names:
        """Of the node numbers in a column. Only names that occur are told."""
        known, codes = np.unique(nodes, return_inverse=True)
        return Names(tuple(self.names[node] for node in known.tolist()), codes.astype(np.int32))

    def marked(self, names: tuple[str, ...]) -> NDArray[np.bool_]:
        """Returns a mask of the nodes with these names. Unknown names mark nothing."""
        mask = np.zeros(self.spec.nodes, np.bool_)
        mask[[self._numbers[name] for name in names if name in self._numbers]] = True
        return mask
