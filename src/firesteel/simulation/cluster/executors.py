"""Dynamic allocation in the simulated cluster: executors made for a need, which appear late and go when they are idle."""

from __future__ import annotations

import math
from collections.abc import Callable

from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, WorkerResources
from firesteel.simulation.clock import VirtualClock
from firesteel.simulation.cluster.nodes import Cluster
from firesteel.simulation.cluster.worker_queue import WorkerQueue
from firesteel.simulation.cluster.workers import Worker, Workers


class ExecutorAllocation:
    """Nodes are what executors are made of. No-op where workers are as they are."""

    def __init__(
        self,
        cluster: Cluster,
        clock: VirtualClock,
        workers: Workers,
        queue: WorkerQueue,
        tell: Callable[[Worker, bool], None],
    ) -> None:
        """``tell`` is called with an executor and True when it is there, False when it has gone."""
        self._cluster = cluster
        self._clock = clock
        self._workers = workers
        self._queue = queue
        self._tell = tell
        self._spec = cluster.spec.executors
        self._is_on = workers.enforcement is SlotEnforcement.EXECUTOR_PROFILES
        self._coming: dict[str, Worker] = {}
        self._made = 0

    def adjust(self) -> None:
        """Ask for executors for what waits; let those go that have been idle long enough."""
        if not self._is_on:
            return
        for worker in [worker for worker in self._workers if not worker.held]:
            self._look_at_idle(worker)
        for profile, count in self._queue.demand().items():
            self._ask(profile, count)

    def driver_is_gone(self) -> None:
        """Executors belong to the driver's application."""
        if self._is_on:
            self._coming.clear()
            for worker in list(self._workers):
                self._workers.remove(worker)

    def node_is_gone(self, node: int) -> None:
        """Drops the executors that were to appear there."""
        self._coming = {name: worker for name, worker in self._coming.items() if worker.node != node}

    def _look_at_idle(self, worker: Worker) -> None:
        now = self._clock.now
        if worker.idle_since is None:
            worker.idle_since = now
            self._clock.after(self._spec.idle_seconds, lambda: None)  # a moment at which it is looked at again
        elif now - worker.idle_since >= self._spec.idle_seconds - 1e-9:
            self._workers.remove(worker)
            self._tell(worker, False)

    def _ask(self, profile: ResourceProfile, count: int) -> None:
        there = [worker for worker in self._workers if worker.profile == profile]
        missing = count - sum(self._workers.fits(worker, profile) for worker in there)
        missing -= sum(worker.slots for worker in self._coming.values() if worker.profile == profile)
        while missing > 0:
            worker = self._made_for(profile)
            if worker is None:
                return
            missing -= worker.slots
            self._coming[worker.name] = worker
            self._clock.after(self._spec.start_seconds, lambda worker=worker: self._appear(worker))

    def _made_for(self, profile: ResourceProfile) -> Worker | None:
        """An executor for as many as it may have cores for, or for one; None: no node has room."""
        cores = max(1.0, math.ceil(profile.cpu_cores)) if profile.is_specified else 1.0
        most = max(1, int(self._spec.cores // cores))
        for slots in dict.fromkeys((most, 1)):
            memory = profile.memory if profile.is_specified else self._spec.memory // most
            external = {name: slots * amount for name, amount in profile.external}
            resources = WorkerResources(slots * cores, slots * memory, external)
            for node in range(self._cluster.spec.nodes):
                if self._cluster.alive[node] and self._has_room(node, resources):
                    self._made += 1
                    return Worker(f"executor-{self._made}", node, resources, slots, profile)
        return None

    def _has_room(self, node: int, wanted: WorkerResources) -> bool:
        whole = self._cluster.spec.resources_of(node)
        there = [worker.resources for worker in (*self._workers, *self._coming.values()) if worker.node == node]
        cores = wanted.cpu_cores + sum(own.cpu_cores for own in there)
        memory = wanted.memory + sum(own.memory for own in there)
        external = all(
            amount + sum(own.external.get(name, 0.0) for own in there) <= whole.external.get(name, 0.0)
            for name, amount in wanted.external.items()
        )
        return cores <= whole.cpu_cores and memory <= whole.memory and external

    def _appear(self, worker: Worker) -> None:
        if self._coming.pop(worker.name, None) is not None:
            self._workers.add(worker)
            self._tell(worker, True)
