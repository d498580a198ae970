"""Executions get slots, and the scheduler is told of it, sometimes late or never; on a blocked node they are rejected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster.runs import Deployment, RunState, ended_last
from firesteel.simulation.cluster.slot_queue import Mask
from firesteel.simulation.plane import Plane
from firesteel.simulation.violation import check

LAUNCH_SECONDS = 0.02
"""From the slot to the program's first step."""
REJECTION_SECONDS = 0.1
"""From the slot to the word that the execution is rejected: a node that is slow is slow in this as well."""
COMPUTE_BYTES_PER_SECOND = 100e6


class Launcher:
    def __init__(self, plane: Plane, tell: Callable[[e.Event], None]) -> None:
        self._plane = plane
        self._tell = tell
        self._failures_left = plane.world.faults.max_failures

    def start_waiting(self) -> None:
        """All free slots are given to those that wait and want them."""
        plane = self._plane
        if plane.ended is not None:
            return
        cluster, now = plane.cluster, plane.clock.now
        rows, slots = plane.next_to_run()
        plane.executors.adjust()
        if not len(rows):
            return
        runs, faults = plane.runs, plane.world.faults
        runs.state[rows], runs.slot[rows], runs.started[rows] = RunState.RUNNING, slots, now
        runs.node[rows] = cluster.node_of[slots]
        seconds = self._seconds(rows)
        fails = plane.dice.which(faults.fail_rate, len(rows))
        fails &= np.cumsum(fails) <= self._failures_left
        self._failures_left -= int(fails.sum())
        seconds[fails] *= plane.dice.between(0.1, 0.9, int(fails.sum()))
        runs.fails[rows] = fails
        seconds += LAUNCH_SECONDS
        if plane.blocked.any() or faults.retire:
            retires = runs.retires[rows] = self._retires(rows)
            rejected = runs.rejected[rows] = self._are_rejected(rows) | retires
            seconds[rejected] = REJECTION_SECONDS
            runs.fails[rows[rejected]] = False
        ends = self._together(rows, cluster.ends_of(slots, now, seconds))
        cluster.occupy(slots, rows, ends)
        self._tie(rows)
        if plane.blocked.any():
            self._check_places(rows[~runs.rejected[rows]])
        for group in plane.by_vertex(rows):
            self._tell_of_launch(group)

    def _seconds(self, rows: Ints) -> Floats:
        """Returns the seconds each takes on a node of full speed: requests, bytes over the wire, bytes through the program."""
        plane, seconds = self._plane, np.empty(len(rows))
        spec = plane.world.storage
        order = np.argsort(plane.runs.deployment[rows], kind="stable")
        place = 0
        for deployment, group in plane.runs.by_deployment(rows):
            requests, read = (column[group - deployment.first] for column in (deployment.reads, deployment.input_bytes))
            waits = np.ceil(requests / spec.parallel_requests) * spec.latency
            plane.storage.requests.reads += int(requests.sum())
            seconds[order[place : place + len(group)]] = waits + read * (
                1 / spec.bandwidth + 1 / COMPUTE_BYTES_PER_SECOND
            )
            place += len(group)
        return seconds * plane.dice.between(0.9, 1.1, len(rows))

    def _together(self, rows: Ints, ends: Floats) -> Floats:
        """Members of a gang end after those that feed them; when one fails, the others stand still."""
        gangs = self._plane.gang_of(rows)
        members = np.flatnonzero(gangs >= 0)
        if not len(members):
            return ends
        numbers = np.unique(gangs[members], return_inverse=True)[1]
        latest = ended_last(ends[members], numbers, self._plane.runs.vertex[rows[members]].astype(np.int64))
        failed_at = np.full(numbers.max() + 1, np.inf)
        fails = self._plane.runs.fails[rows[members]]
        np.minimum.at(failed_at, numbers[fails], ends[members][fails])
        still = ~fails & (latest > failed_at[numbers])
        ends[members] = np.where(fails, ends[members], np.where(still, np.inf, latest))
        return ends

    # --- several attempts of a subtask -------------------------------------------------------------------------------

    def _are_rejected(self, rows: Ints) -> Mask:
        """Returns a mask of those that see that their node is blocked, and are allowed to mind."""
        runs, turns = self._plane.runs, np.zeros(len(rows), np.bool_)
        for place in np.flatnonzero(self._plane.blocked[runs.node[rows]]).tolist():
            placement = runs.deployment_of(int(rows[place])).command.placement
            turns[place] = placement is not None and placement.may_reject
        return turns

    def _retires(self, rows: Ints) -> Mask:
        """Returns a mask of those that find external resources that their Python workers did not begin with."""
        if not self._plane.has_resources:
            return np.zeros(len(rows), np.bool_)
        deployments = [self._plane.runs.deployment_of(row).command.slots for row in rows.tolist()]
        has_external = [grants is not None and bool(grants.profile.external) for grants in deployments]
        return self._plane.dice.which(self._plane.world.faults.retire, len(rows)) & np.array(has_external)

    def _check_places(self, rows: Ints) -> None:
        """Checks where executions begin their programs: not on a node that was blocked when they were deployed, if another has a slot.
        Nodes that they were told to avoid, and that are blocked no more, are no others.
        """
        plane = self._plane
        for row in rows[plane.blocked[plane.runs.node[rows]]].tolist():
            deployment, node = plane.runs.deployment_of(row), int(plane.runs.node[row])
            free = self._with_room(deployment)
            free = free[~plane.blocked[free] & plane.cluster.healthy[free]]
            known = deployment.blocked is not None and bool(deployment.blocked[node])
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
        for row in mirrors[plane.dice.which(plane.world.faults.tie, len(mirrors))].tolist():
            others = [o for o in runs.siblings(row) if runs.state[o] == RunState.RUNNING and not runs.cancelled[o]]
            when = [float(ends[runs.slot[o]]) for o in others if runs.slot[o] >= 0]
            if when and np.isfinite(ends[runs.slot[row]]) and np.isfinite(min(when)):
                ends[runs.slot[row]] = min(when)

    # --- word of it ------------------------------------------------------------------------------------------------

    def _tell_of_launch(self, rows: Ints) -> None:
        """Notes that these executions, of one vertex, have been launched."""
        plane, faults = self._plane, self._plane.world.faults
        if plane.dice.happens(faults.untold):
            return
        still = plane.runs.rejected[rows] | (plane.cluster.speed[plane.runs.node[rows]] == 0)
        late = plane.dice.happens(faults.launch_late)
        for part, running in ((rows[still], False), (rows[~still], not late)):
            if not len(part):
                continue
            event = self._launched(part, running)
            if late:
                plane.message(plane.dice.until_next(faults.late_by), lambda event=event: self._tell(event))
            else:
                self._tell(event)

    def _launched(self, rows: Ints, running: bool) -> e.ExecutionsDeploying:
        plane = self._plane
        names = plane.cluster.names_of(plane.runs.node[rows])
        nodes = np.array(names.names, object)[names.codes].tolist()
        if plane.dice.happens(plane.world.faults.nameless):
            nodes = []
        return e.ExecutionsDeploying(
            at=plane.clock.now,
            running=running,
            nodes=nodes,
            times=plane.runs.started[rows],
            executors=[plane.workers.name_of(row) for row in rows.tolist()] if nodes and plane.has_resources else (),
            **plane.names(rows),
        )


def _avoided(plane: Plane, deployment: Deployment) -> Mask:
    placement = deployment.command.placement
    return plane.cluster.marked(() if placement is None else placement.avoid)
