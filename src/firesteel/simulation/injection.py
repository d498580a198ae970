"""Nodes of the simulated cluster come, stand still and go; and the failure of one task, to be measured."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.slots.resource_profile import SlotEnforcement
from firesteel.simulation.cluster import reading
from firesteel.simulation.cluster.ending import Ending
from firesteel.simulation.cluster.workers import Worker, slots_of
from firesteel.simulation.plane import Plane


class FaultInjection:
    def __init__(self, plane: Plane, ending: Ending) -> None:
        self._plane = plane
        self._ending = ending

    def tell_of_nodes(self) -> None:
        """Of those that are there from the beginning."""
        for node in range(self._plane.world.cluster.nodes):
            self.tell_of_node(node, added=True)

    def begin(self) -> None:
        """Nodes stand still after a while, where the world says so."""
        if self._plane.world.faults.frozen_nodes:
            self._plane.clock.after(self._plane.world.faults.frozen_after, self._freeze_some)

    def _freeze_some(self) -> None:
        # ``spread`` without ``after`` would return the slow nodes.
        for node in self._plane.cluster.spread(self._plane.world.faults.frozen_nodes, after=1).tolist():
            self.freeze(node)

    def freeze(self, node: int) -> None:
        """The node stands still for good. It counts as gone after the heartbeat's timeout."""
        plane = self._plane
        plane.cluster.set_speed(node, 0.0, plane.clock.now)
        plane.clock.after(plane.world.faults.heartbeat_timeout, lambda: self.kill(node))

    def kill(self, node: int) -> None:
        """A node dies, and all that runs there."""
        rows = np.concatenate((self._end_all_on(node), self._bound_to(node)))
        self.tell_of_node(node, added=False)
        self._tell_of_dead(node, rows)

    def _end_all_on(self, node: int) -> Ints:
        """Returns the executions that ran there."""
        rows = self._plane.cluster.vacate(self._plane.cluster.kill(node))
        self._ending.end(rows)
        return rows

    def _tell_of_dead(self, node: int, rows: Ints) -> None:
        """Tells the scheduler what became of the executions of a node that died."""
        name = self._plane.cluster.names[node]
        cause = e.FailureCause(e.FailureKind.LOST, f"{name} is gone, and Spark started it again")
        for group in self._plane.by_vertex(rows):
            self._tell_lost(group, cause)

    def _tell_lost(self, rows: Ints, cause: e.FailureCause) -> None:
        """Once the second runs have found slots, and ended at once."""

        def told() -> None:
            if self._plane.ended is None:
                self._ending.tell_failed(rows, cause)
            self._plane.runs.forget(rows)

        self._plane.message(self._plane.dice.until_next(self._plane.world.faults.late_by), told)

    def tell_of_node(self, node: int, *, added: bool) -> None:
        plane = self._plane
        if plane.has_resources:
            for worker in self._workers_change(node, added):
                plane.tell_of_worker(worker, added)
            return
        plane.tell(plane.node_changed(node, added))

    # --- workers with resources ------------------------------------------------------------------------------------

    def _workers_change(self, node: int, added: bool) -> list[Worker]:
        """The workers that come or go with the node."""
        plane = self._plane
        if not added:
            plane.executors.node_is_gone(node)
            gone = plane.workers.on_node(node)
            for worker in gone:
                plane.workers.remove(worker)
            return gone
        if plane.workers.enforcement is SlotEnforcement.EXECUTOR_PROFILES:
            return []
        starts = plane.cluster.starts[node] = plane.cluster.starts[node] + 1
        name = f"executor-{node + 1}" + (f".{starts}" if starts > 1 else "")
        resources = plane.world.cluster.resources_of(node)
        worker = Worker(name, node, resources, slots_of(resources))
        plane.workers.add(worker)
        return [worker]

    def _bound_to(self, node: int) -> Ints:
        """Executions that were to begin on this very node, and now go with it."""
        plane = self._plane
        found = [plane.worker_queue.take_bound(worker.name) for worker in plane.workers.on_node(node)]
        bound = np.concatenate([np.empty(0, np.int64), *found])
        self._ending.end(bound)
        return bound

    # --- the failure of one task -----------------------------------------------------------------------------------

    def fail_one(self, row: int) -> None:
        """One running execution misses the first object it reads; one that reads none fails by itself."""
        plane, rows = self._plane, np.array([row])
        plane.cluster.vacate(plane.runs.slot[rows].astype(np.int64))
        deployment = plane.runs.deployment_of(row)
        self._ending.end(rows)
        cause = e.FailureCause(e.FailureKind.USER, "an injected error of the user's function")
        for gate, ranges in reading.inputs_of(deployment.command):
            rects = ranges.of(row - deployment.first)
            if len(rects):
                first = int(rects[0, 0])
                place = first if gate.partitions is None else int(np.searchsorted(gate.partitions, first))
                cause = reading.loss_of(gate, place)
                break
        self._ending.tell_failed(rows, cause)
