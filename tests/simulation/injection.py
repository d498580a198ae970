"""Fault injection into the simulated cluster while a job runs: nodes die, slow down and stand still; objects are lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import structs
from tests.simulation.ending import Ending
from tests.simulation.plane import Plane

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel import events as e
from firesteel.simulation import injection
from firesteel.simulation.cluster.runs import RunState


class FaultInjection(injection.FaultInjection):
    _plane: Plane
    _ending: Ending

    def __init__(self, plane: Plane, ending: Ending) -> None:
        super().__init__(plane, ending)
        self._usual_speed = plane.cluster.speed.copy()
        self._freezes = 0
        self._frozen_since: dict[int, int] = {}
        """Node to the number of its freeze."""

    def tell_of_nodes(self) -> None:
        """Of those that are there from the beginning."""
        plane, nodes, late = self._plane, self._plane.world.cluster.nodes, self._plane.faults.late_nodes
        for node in range(nodes - late):
            self.tell_of_node(node, added=True)
        for node in range(nodes - late, nodes):
            plane.cluster.alive[node] = False
            plane.clock.after(plane.faults.late_after, lambda node=node: self._back(node))

    def begin(self) -> None:
        """Throw the first dice."""
        faults = self._plane.faults
        kinds = (
            (faults.node_death_every, faults.max_node_deaths, self._some_node_dies),
            (faults.lose_every, faults.max_losses, self._some_object_vanishes),
            (faults.slow_every, faults.max_slow, self._some_node_slows_down),
            (faults.freeze_every, faults.max_freezes, self._some_node_freezes),
            (faults.foreign_every, faults.max_foreign, self._some_worker_is_used),
        )
        for every, most, happens in kinds:
            if every and most:
                self._repeat(every, most, happens)
        if faults.cancel_after:
            self._plane.clock.after(faults.cancel_after, self._cancel)
        super().begin()

    def _repeat(self, every: float, left: int, happens: Callable[[], None]) -> None:
        def now() -> None:
            happens()
            if left > 1:
                self._repeat(every, left - 1, happens)

        self._plane.clock.after(self._plane.dice.until_next(every), now)

    def _cancel(self) -> None:
        self._plane.tell(e.CancelRequested(at=self._plane.clock.now))

    # --- nodes -----------------------------------------------------------------------------------------------------

    def kill(self, node: int, *, back_after: float | None = None) -> None:
        """A node dies, and all that runs there; its objects too where storage is the nodes' own."""
        self._frozen_since.pop(node, None)
        super().kill(node)
        back = self._plane.faults.node_back_after if back_after is None else back_after
        if np.isfinite(back):
            self._plane.clock.after(back, lambda: self._back(node))

    def _end_all_on(self, node: int) -> Ints:
        plane, rows = self._plane, super()._end_all_on(node)
        self._ending.halt_gangs(rows)
        self._finish_late(rows[~plane.runs.rejected[rows] & (plane.gang_of(rows) < 0)])
        if plane.faults.node_local:
            plane.storage.lose_node(node)
        return rows

    def _tell_of_dead(self, node: int, rows: Ints) -> None:
        plane = self._plane
        if plane.dice.happens(plane.faults.lost):
            super()._tell_of_dead(node, rows)
            return
        counted = not plane.dice.happens(plane.faults.uncounted)
        cause = e.FailureCause(e.FailureKind.WORKER, f"{plane.cluster.names[node]} is gone")
        for group in plane.by_vertex(rows):
            if plane.ended is None:
                self._ending.tell_failed(group, cause, counted)
        plane.runs.forget(rows)

    def _finish_late(self, rows: Ints) -> None:
        """Some of these, given up with their node, go on unseen; what they wrote and say comes in later."""
        plane = self._plane
        for row in rows[plane.dice.which(plane.faults.zombie, len(rows))].tolist():
            one = np.array([row])
            if plane.runs.fails[row] or self._ending.missing(one)[1]:
                continue
            self._ending.ended_at(one, np.array([plane.clock.now]))
            self._put_off(row, self._ending.write(one, one + 1))

    def _put_off(self, row: int, event: e.ExecutionsFinished) -> None:
        plane = self._plane

        def told() -> None:
            plane.runs.state[row], plane.runs.delivered[row] = RunState.TOLD, plane.is_heard
            plane.tell(structs.replace(event, at=plane.clock.now))

        plane.message(plane.dice.until_next(2 * plane.faults.late_by), told)

    def _back(self, node: int) -> None:
        """It comes back empty."""
        self._plane.cluster.alive[node] = True
        self._reset_speed(node)
        self.tell_of_node(node, added=True)

    def _reset_speed(self, node: int) -> None:
        self._plane.cluster.set_speed(node, float(self._usual_speed[node]), self._plane.clock.now)

    def _one_of_the_healthy(self) -> int | None:
        """None: there is only one."""
        healthy = np.flatnonzero(self._plane.healthy)
        return int(healthy[self._plane.dice.one_of(len(healthy))]) if len(healthy) > 1 else None

    def _some_node_dies(self) -> None:
        node = self._one_of_the_healthy()
        if node is not None:
            self.kill(node)

    def _some_node_slows_down(self) -> None:
        node, plane = self._one_of_the_healthy(), self._plane
        if node is None:
            return
        plane.cluster.set_speed(node, float(plane.dice.between(0.05, 0.5, 1)[0]), plane.clock.now)

        def over() -> None:
            if plane.healthy[node]:
                self._reset_speed(node)

        plane.clock.after(plane.faults.slow_for, over)

    def _some_node_freezes(self) -> None:
        node = self._one_of_the_healthy()
        if node is not None:
            self.freeze(node, self._plane.faults.freeze_for)

    def freeze(self, node: int, seconds: float = np.inf) -> None:
        """The node stands still for so long. It counts as gone after the heartbeat's timeout. inf: it never comes back."""
        plane = self._plane
        self._freezes += 1
        number = self._frozen_since[node] = self._freezes
        plane.cluster.set_speed(node, 0.0, plane.clock.now)

        def still() -> bool:
            return self._frozen_since.get(node) == number

        def thaw() -> None:
            if still():
                del self._frozen_since[node]
                self._reset_speed(node)

        def missed() -> None:
            if still():
                self.kill(node, back_after=plane.faults.node_back_after if np.isfinite(seconds) else np.inf)

        if np.isfinite(seconds):
            plane.clock.after(seconds, thaw)
        plane.clock.after(plane.faults.heartbeat_timeout, missed)

    def _some_worker_is_used(self) -> None:
        plane = self._plane
        workers = list(plane.workers)
        if not workers or len(plane.worker_queue):
            return  # what waits to begin has its cores already
        worker = workers[plane.dice.one_of(len(workers))]
        cores = float(int(plane.dice.between(0.0, 1.0, 1)[0] * (worker.spark_cores_left + 1)))
        worker.foreign += cores
        plane.tell_what_is_occupied()

        def over() -> None:
            worker.foreign -= cores
            plane.tell_what_is_occupied()

        plane.message(plane.faults.foreign_for, over)  # with the driver its other jobs end

    # --- objects ---------------------------------------------------------------------------------------------------

    def lose(self, dataset: int, count: int = 1) -> None:
        """Some objects of a data set vanish, or cannot be read any more."""
        plane = self._plane
        tokens = plane.storage.objects(dataset, plane.graph.datasets[dataset].producer)
        if len(tokens):
            chosen = np.unique(plane.dice.rng.choice(tokens, count))
            damaged = plane.dice.which(plane.faults.damage, len(chosen))
            plane.storage.damage(dataset, chosen[damaged])
            plane.storage.lose(dataset, chosen[~damaged])

    def _some_object_vanishes(self) -> None:
        plane = self._plane
        if plane.graph.datasets:
            self.lose(plane.dice.one_of(len(plane.graph.datasets)), 1 + plane.dice.one_of(3))
