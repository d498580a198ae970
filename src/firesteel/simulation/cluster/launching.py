"""Executions get slots, and the scheduler is told of it; on a blocked node they are rejected."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster.runs import RunState, ended_last
from firesteel.simulation.cluster.slot_queue import Mask
from firesteel.simulation.plane import Plane

LAUNCH_SECONDS = 0.02
"""From the slot to the program's first step."""
REJECTION_SECONDS = 0.1
"""From the slot to the word that the execution is rejected: a node that is slow is slow in this as well."""
COMPUTE_BYTES_PER_SECOND = 100e6


class Launcher:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def start_waiting(self) -> None:
        """All free slots are given to those that wait and want them."""
        plane = self._plane
        if plane.ended is not None:
            return
        rows, slots = plane.next_to_run()
        plane.executors.adjust()
        if len(rows):
            self._occupy(rows, slots)
            for group in plane.by_vertex(rows):
                self._tell_of_launch(group)

    def _occupy(self, rows: Ints, slots: Ints) -> None:
        plane, runs = self._plane, self._plane.runs
        cluster, now = plane.cluster, plane.clock.now
        runs.state[rows], runs.slot[rows], runs.started[rows] = RunState.RUNNING, slots, now
        runs.node[rows] = cluster.node_of[slots]
        seconds = self._seconds(rows)
        fails = self._fail(len(rows))
        seconds[fails] *= plane.dice.between(0.1, 0.9, int(fails.sum()))
        seconds += LAUNCH_SECONDS
        rejected = runs.rejected[rows] = self._are_rejected(rows)
        seconds[rejected] = REJECTION_SECONDS
        runs.fails[rows] = fails & ~rejected
        cluster.occupy(slots, rows, self._together(rows, cluster.ends_of(slots, now, seconds)))

    def _fail(self, count: int) -> Mask:
        """Returns a mask of those whose functions raise."""
        return self._plane.dice.which(self._plane.world.faults.fail_rate, count)

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

    def _are_rejected(self, rows: Ints) -> Mask:
        """Returns a mask of those that see that their node is blocked, and are allowed to mind."""
        runs, turns = self._plane.runs, np.zeros(len(rows), np.bool_)
        for place in np.flatnonzero(self._plane.blocked[runs.node[rows]]).tolist():
            placement = runs.deployment_of(int(rows[place])).command.placement
            turns[place] = placement is not None and placement.may_reject
        return turns

    # --- word of it ------------------------------------------------------------------------------------------------

    def _tell_of_launch(self, rows: Ints) -> None:
        """Notes that these executions, of one vertex, have been launched."""
        still = self._plane.runs.rejected[rows] | (self._plane.cluster.speed[self._plane.runs.node[rows]] == 0)
        for part, running in ((rows[still], False), (rows[~still], True)):
            if len(part):
                self._plane.tell(self._launched(part, running))

    def _launched(self, rows: Ints, running: bool) -> e.ExecutionsDeploying:
        plane = self._plane
        names = plane.cluster.names_of(plane.runs.node[rows])
        nodes = np.array(names.names, object)[names.codes].tolist()
        return e.ExecutionsDeploying(
            at=plane.clock.now,
            running=running,
            nodes=nodes,
            times=plane.runs.started[rows],
            executors=[plane.workers.name_of(row) for row in rows.tolist()] if plane.has_resources else (),
            **plane.names(rows),
        )
