"""Nodes with slots, as columns. A slot runs one execution at a time; its number never changes, its node may die."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.scheduler.events import Floats, Ints, Names

FREE = -1


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """``slow_nodes`` of the nodes run at ``slow_factor`` of the others' speed."""

    nodes: int = 4
    slots: int = 2
    """Of each node."""
    slow_nodes: int = 0
    slow_factor: float = 0.25

    @property
    def total_slots(self) -> int:
        return self.nodes * self.slots


class Cluster:
    """Slot ``s`` lies on node ``s % nodes``, so that tasks handed out in the order of slots spread over the nodes."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.names = tuple(f"node-{n}" for n in range(spec.nodes))
        self.speed: Floats = np.ones(spec.nodes)
        if spec.slow_nodes:
            places = np.linspace(0, spec.nodes, spec.slow_nodes, endpoint=False).astype(np.int64)
            self.speed[places] = spec.slow_factor
        self.alive: NDArray[np.bool_] = np.ones(spec.nodes, np.bool_)
        self.node_of: Ints = np.arange(spec.total_slots, dtype=np.int64) % spec.nodes
        self.run: Ints = np.full(spec.total_slots, FREE, np.int64)
        """The execution (a row of the plane's table) in each slot."""
        self.ends: Floats = np.full(spec.total_slots, np.inf)
        """When what runs there ends, virtual seconds; inf: nothing runs."""

    @property
    def num_alive_slots(self) -> int:
        return int(self.alive.sum()) * self.spec.slots

    def next_to_end(self) -> int:
        """The slot whose execution ends first."""
        return int(np.argmin(self.ends))

    def free_slots(self) -> Ints:
        """Slots of living nodes that hold nothing, ascending."""
        return np.flatnonzero((self.run == FREE) & self.alive[self.node_of])

    def occupy(self, slots: Ints, runs: Ints, ends: Floats) -> None:
        self.run[slots], self.ends[slots] = runs, ends

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

    def revive(self, node: int) -> None:
        self.alive[node] = True

    def names_of(self, nodes: NDArray[np.int32]) -> Names:
        """Of the node numbers in a column. Only names that occur are told."""
        known, codes = np.unique(nodes, return_inverse=True)
        return Names(tuple(self.names[node] for node in known.tolist()), codes.astype(np.int32))
