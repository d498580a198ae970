"""Workers with resources of their own, and a book of who holds what on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from firesteel.model.arrays import Ints, Names
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.slots.resource_profile import MEMORY_KINDS, ResourceProfile, SlotEnforcement, WorkerResources

NOWHERE = Names.of([])
_ROUNDING = 1e-6


@dataclass(slots=True, eq=False)
class Held:
    """A slot: what one execution holds, or those of a region that share it. ``spark_cores``: what Spark counts for it, which knows whole cores only."""

    group: str
    cores: float
    spark_cores: float
    memory: float
    kinds: Mapping[str, float]
    external: Mapping[str, float]
    addresses: Mapping[str, tuple[str, ...]]
    strayed: bool
    """Spark started it elsewhere than the pool insisted: nobody has promised anything there."""
    gone: bool = False
    """The scheduler was told that it is gone, and it is not."""


@dataclass(slots=True, eq=False)
class Worker:
    """``slots``: how many executions of a coarse group it takes. ``profile``: the only need it serves; None: any."""

    name: str
    node: int
    resources: WorkerResources
    slots: int
    profile: ResourceProfile | None = None
    held: dict[int, Held] = field(default_factory=dict)
    foreign: float = 0.0
    """Cores that other jobs' tasks take."""
    idle_since: float | None = None

    def need(self, grants: SlotGrants, place: int, exact: bool, strayed: bool) -> Held:
        """Returns the resources of an execution that runs here. ``exact``: nobody rounds its cores up."""
        profile, whole = grants.profile, self.resources
        addresses = grants.addresses[place] if grants.addresses else {}
        if not profile.is_specified:
            cores, memory = whole.cpu_cores / self.slots, whole.memory / self.slots
            return Held(grants.group, cores, cores if exact else 1.0, memory, {}, {}, addresses, strayed)
        kinds = {kind: float(getattr(profile, kind)) for kind in MEMORY_KINDS}
        cores = profile.cpu_cores
        rounded = cores if exact else float(max(1, math.ceil(cores)))
        return Held(grants.group, cores, rounded, profile.memory, kinds, dict(profile.external), addresses, strayed)

    @property
    def slots_held(self) -> list[Held]:
        """Each once, however many executions share it."""
        return list({id(held): held for held in self.held.values()}.values())

    def external_left(self, name: str) -> float:
        taken = sum(held.external.get(name, 0.0) for held in self.slots_held)
        return self.resources.external.get(name, 0.0) - taken

    @property
    def spark_cores_left(self) -> float:
        return self.resources.cpu_cores - self.foreign - sum(held.spark_cores for held in self.slots_held)

    @property
    def memory_left(self) -> float:
        return self.resources.memory - sum(held.memory for held in self.slots_held)


class Workers:
    """All workers that are there, by name."""

    def __init__(self, enforcement: SlotEnforcement) -> None:
        self.enforcement = enforcement
        self.is_exact = enforcement is SlotEnforcement.POOL
        self.by_name: dict[str, Worker] = {}
        self._of: dict[int, Worker] = {}
        """The worker on which an execution (a row of the cluster's) runs."""
        self._running: dict[str, int] = {}
        self.most: dict[str, int] = {}
        """Slots of each slot sharing group: those held now, and the most that ever were at once."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.by_name.values())

    def add(self, worker: Worker) -> None:
        self.by_name[worker.name] = worker

    def remove(self, worker: Worker) -> None:
        """It is gone. What ran there was released before."""
        self.by_name.pop(worker.name, None)

    def on_node(self, node: int) -> list[Worker]:
        return [worker for worker in self if worker.node == node]

    def name_of(self, row: int) -> str:
        return self._of[row].name

    def node_of(self, row: int) -> int:
        return self._of[row].node

    def fits(self, worker: Worker, profile: ResourceProfile) -> int:
        """Returns the number of these that Spark still starts there (in POOL: that fit)."""
        if self.enforcement is SlotEnforcement.EXECUTOR_PROFILES and worker.profile != profile:
            return 0
        need = worker.need(SlotGrants("", profile, NOWHERE), 0, self.is_exact, False)
        limits = [worker.spark_cores_left / need.spark_cores]
        limits += [worker.external_left(name) / amount for name, amount in need.external.items() if amount]
        if self.is_exact and need.memory:
            limits.append(worker.memory_left / need.memory)
        return max(0, math.floor(min(limits) + _ROUNDING))

    def hold(self, row: int, worker: Worker, grants: SlotGrants, place: int, *, strayed: bool = False) -> None:
        """An execution begins to run there."""
        worker.held[row] = worker.need(grants, place, self.is_exact, strayed)
        running = self._running[grants.group] = self._running.get(grants.group, 0) + 1
        self.most[grants.group] = max(running, self.most.get(grants.group, 0))
        worker.idle_since = None
        self._of[row] = worker

    def release(self, rows: Ints) -> None:
        """They are over."""
        for row in rows.tolist() if self._of else ():
            worker = self._of.pop(row, None)
            if worker is not None:
                held = worker.held.pop(row)
                self._running[held.group] -= all(held is not other for other in worker.held.values())


def slots_of(worker: WorkerResources) -> int:
    return max(1, int(worker.cpu_cores))
