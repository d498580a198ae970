"""Executions get slots, and the scheduler is told of it, sometimes late or never."""

from __future__ import annotations

import numpy as np
from msgspec import structs
from tests.simulation.plane import Plane

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster import launching
from firesteel.simulation.cluster.runs import Deployment, RunState
from firesteel.simulation.cluster.slot_queue import Mask
from firesteel.simulation.violation import check


class Launcher(launching.Launcher):
    _plane: Plane

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self._failures_left = plane.faults.max_failures

    def _occupy(self, rows: Ints, slots: Ints) -> None:
        super()._occupy(rows, slots)
        self._tie(rows)
        if self._plane.blocked.any():
            self._check_places(rows[~self._plane.runs.rejected[rows]])

    def _fail(self, count: int) -> Mask:
        fails = super()._fail(count)
        fails &= np.cumsum(fails) <= self._failures_left
        self._failures_left -= int(fails.sum())
        return fails

    def _are_rejected(self, rows: Ints) -> Mask:
        rejected = super()._are_rejected(rows)
        if not self._plane.faults.retire:
            return rejected
        retires = self._plane.runs.retires[rows] = self._retires(rows)
        return rejected | retires

    def _retires(self, rows: Ints) -> Mask:
        """Returns a mask of those that find external resources that their Python workers did not begin with."""
        if not self._plane.has_resources:
            return np.zeros(len(rows), np.bool_)
        deployments = [self._plane.runs.deployment_of(row).command.slots for row in rows.tolist()]
        has_external = [grants is not None and bool(grants.profile.external) for grants in deployments]
        return self._plane.dice.which(self._plane.faults.retire, len(rows)) & np.array(has_external)

    def _check_places(self, rows: Ints) -> None:
        """Checks where executions begin their programs: not on a node that was blocked when they were deployed, if another has a slot.
        Nodes that they were told to avoid, and that are blocked no more, are no others.
        """
        plane = self._plane
        for row in rows[plane.blocked[plane.runs.node[rows]]].tolist():
            deployment, node = plane.runs.deployment_of(row), int(plane.runs.node[row])
            free = self._with_room(deployment)
            free = free[~plane.blocked[free] & plane.healthy[free]]
            then = plane.blocked_then.get(deployment.first)
            known = then is not None and bool(then[node])
            elsewhere = known and bool((~_avoided(plane, deployment)[free]).any())
            check(
                not elsewhere,
                f"subtask {plane.runs.subtask[row]} of vertex {deployment.command.vertex} begins on node-{node}, which is "
                "blocked, while another node has a free slot",
            )

    def _with_room(self, deployment: Deployment) -> Ints:
        """Nodes on which an execution of this deployment could have begun, but for those where the pool alone says where."""
        plane, grants = self._plane, deployment.command.slots
        if grants is None:
            return plane.cluster.node_of[plane.cluster.free_slots()]
        if grants.insists or plane.workers.is_exact:
            return np.empty(0, np.int64)
        fits = [worker.node for worker in plane.workers if plane.workers.fits(worker, grants.profile)]
        return np.array(fits, np.int64)

    def _tie(self, rows: Ints) -> None:
        """Some mirrors finish together with another attempt of their subtask."""
        plane = self._plane
        runs, ends = plane.runs, plane.cluster.ends
        mirrors = rows[runs.mirror[rows] & ~runs.rejected[rows] & ~runs.fails[rows]]
        for row in mirrors[plane.dice.which(plane.faults.tie, len(mirrors))].tolist():
            others = [o for o in runs.siblings(row) if runs.state[o] == RunState.RUNNING and not runs.cancelled[o]]
            when = [float(ends[runs.slot[o]]) for o in others if runs.slot[o] >= 0]
            if when and np.isfinite(ends[runs.slot[row]]) and np.isfinite(min(when)):
                ends[runs.slot[row]] = min(when)

    def _tell_of_launch(self, rows: Ints) -> None:
        """Notes that these executions, of one vertex, have been launched."""
        plane, faults = self._plane, self._plane.faults
        if plane.dice.happens(faults.untold):
            return
        still = plane.runs.rejected[rows] | (plane.cluster.speed[plane.runs.node[rows]] == 0)
        late = plane.dice.happens(faults.launch_late)
        for part, running in ((rows[still], False), (rows[~still], not late)):
            if not len(part):
                continue
            event = self._launched(part, running)
            if late:
                plane.message(plane.dice.until_next(faults.late_by), lambda event=event: plane.tell(event))
            else:
                plane.tell(event)

    def _launched(self, rows: Ints, running: bool) -> e.ExecutionsDeploying:
        event = super()._launched(rows, running)
        nameless = self._plane.dice.happens(self._plane.faults.nameless)
        return structs.replace(event, nodes=[], executors=()) if nameless else event


def _avoided(plane: Plane, deployment: Deployment) -> Mask:
    placement = deployment.command.placement
    return plane.cluster.marked(() if placement is None else placement.avoid)
