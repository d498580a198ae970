"""The executions a simulated cluster was given, as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints, constant, grown, written
from firesteel.scheduler.kernel.commands import Deploy
from firesteel.simulation.violation import check

NO_RUN = -1
_COLUMNS = {
    **dict.fromkeys(("vertex", "subtask", "attempt", "deployment", "state", "started"), 0),
    **dict.fromkeys(("cancelled", "fails", "delivered", "rejected", "retires", "mirror"), 0),
    **dict.fromkeys(("prior", "slot", "node"), NO_RUN),
}
"""Columns, and the value that new rows have there."""
Rows = NDArray[np.int32]


class RunState(IntEnum):
    QUEUED = 0
    RUNNING = 1
    TOLD = 2
    """The scheduler has heard how it ended."""
    UNTOLD = 3
    """It has ended, and the news of it is on its way."""


ACTIVE = np.array([True, True, False, False])
"""By RunState: in the queue or in a slot."""


@dataclass(slots=True, eq=False)
class Deployment:
    """One Deploy: its executions are the rows from ``first`` on, in the order of ``command.subtasks``.

    ``reads`` and ``input_bytes``: storage requests and plain bytes of each. ``seen``: the storage's state, by input, in
    which all inputs were found.
    """

    command: Deploy
    first: int
    left: int
    reads: Ints
    input_bytes: Ints
    seen: list[int]
    blocked: NDArray[np.bool_] | None = None
    """Nodes that were blocked when it was deployed; None: there were none."""


class Runs:
    """A row per execution. Row ``r`` reports its result under the token ``r + 1``."""

    def __init__(self, vertices: int) -> None:
        self.size = 0
        self.vertex: NDArray[np.signedinteger[Any]] = np.empty(0, np.min_scalar_type(-max(1, vertices)))
        self.subtask = np.empty(0, np.int32)
        self.attempt: Rows = constant(0, np.int32(0))
        self.deployment = np.empty(0, np.int32)
        self.prior: Rows = constant(0, np.int32(NO_RUN))
        self.state = np.empty(0, np.int8)
        self.slot = np.empty(0, np.int32)
        self.node = np.empty(0, np.int32)
        self.cancelled = np.empty(0, np.bool_)
        self.fails = np.empty(0, np.bool_)
        self.delivered = np.empty(0, np.bool_)
        """The scheduler was told of its result."""
        self.rejected = np.empty(0, np.bool_)
        """It is rejected by its node or worker."""
        self.retires = np.empty(0, np.bool_)
        """It does so because of its Python worker."""
        self.mirror = np.empty(0, np.bool_)
        """Others of its subtask were under way when it was deployed."""
        self.started = np.empty(0, np.float64)
        self._newest: list[Rows] = [np.empty(0, np.int32) for _ in range(vertices)]
        self.deployments: list[Deployment | None] = []
        """None: all of its executions have ended."""

    def deploy(self, deployment: Deployment, *, alone: bool, most: int = 1) -> Ints:
        """Rows for the executions of one Deploy. ``alone``: an attempt may run only when all others are gone for sure;
        ``most``: how many of a subtask may be under way that are not being cancelled.
        """
        command = deployment.command
        newest = self._newest_of(command.vertex, command.parallelism)
        prior = newest[command.subtasks]
        known = prior[prior != NO_RUN]
        later = command.attempts[prior != NO_RUN] > self.attempt[known]
        check(bool(later.all()), f"an execution of vertex {command.vertex} was deployed twice")
        if alone:
            over = not self._chain(known, lambda rows: self.state[rows] != RunState.TOLD).any()
            check(over, f"two attempts run where vertex {command.vertex} allows one")
        beside = self._under_way(known)
        many = bool((beside >= most).any())
        check(not many, f"more than {most} attempts of a subtask of vertex {command.vertex} are under way")
        rows = self._append(len(command.subtasks))
        self.mirror[rows[prior != NO_RUN]] = beside > 0
        self.vertex[rows], self.subtask[rows] = command.vertex, command.subtasks
        self.deployment[rows] = len(self.deployments)
        self.attempt, self.prior = written(self.attempt, rows, command.attempts), written(self.prior, rows, prior)
        newest[command.subtasks] = rows
        self.deployments.append(deployment)
        return rows

    def _under_way(self, newest: Rows) -> Ints:
        """Returns the number of attempts that are not being cancelled and wait or run, of the subtasks with these newest rows."""
        return self._chain(newest, lambda rows: ACTIVE[self.state[rows]] & ~self.cancelled[rows])

    def _chain(self, newest: Rows, counted: Callable[[Rows], NDArray[np.bool_]]) -> Ints:
        """Returns the number of attempts that are counted, of the subtasks with these newest rows. A step per attempt walked back."""
        found, rows = np.zeros(len(newest), np.int64), newest
        places = np.arange(len(newest))
        while len(places):
            found[places] += counted(rows)
            rows = self.prior[rows]
            more = rows != NO_RUN
            places, rows = places[more], rows[more]
        return found

    def leave_out(self, count: int) -> None:
        """The first rows are nobody's: their tokens are of other jobs."""
        rows = self._append(count)
        self.state[rows], self.vertex[rows] = RunState.TOLD, -1

    def is_of_another(self, token: int, vertex: int, subtask: int, attempt: int) -> None:
        """The result with this token, which another job has written, is this execution's, and the scheduler is told of it."""
        row = token - 1
        self.vertex[row], self.subtask[row], self.delivered[row] = vertex, subtask, True
        self.attempt = written(self.attempt, np.array([row]), attempt)

    def siblings(self, row: int) -> list[int]:
        """Other attempts of the same subtask, the newest first."""
        found, other = list[int](), int(self._newest[int(self.vertex[row])][int(self.subtask[row])])
        while other != NO_RUN:
            found += [other] if other != row else []
            other = int(self.prior[other])
        return found

    def again(self, row: int) -> int:
        """A row for the result that a second run of the same execution reports: only its token is another one."""
        twin = int(self._append(1)[0])
        for name in _COLUMNS:
            column = getattr(self, name)
            setattr(self, name, written(column, np.array([twin]), column[row]))
        self.state[twin], self.cancelled[twin] = RunState.TOLD, True
        self.delivered[twin] = self.mirror[twin] = False
        return twin

    def were_deployed(self, vertex: int, subtasks: Ints, attempts: Ints) -> NDArray[np.bool_]:
        """Returns a mask of these executions of a vertex: True for those that the cluster was given."""
        if not len(self._newest[vertex]):
            return np.zeros(len(subtasks), np.bool_)
        rows = self._newest[vertex][subtasks]
        while (later := (rows != NO_RUN) & (self.attempt[rows] > attempts)).any():
            rows[later] = self.prior[rows[later]]
        return (rows != NO_RUN) & (self.attempt[rows] == attempts)

    def find(self, vertex: int, subtasks: Ints, attempts: Ints) -> Ints:
        """Rows of these executions. They must have been deployed."""
        rows = self._newest[vertex][subtasks].astype(np.int64)
        while True:
            later = (rows != NO_RUN) & (self.attempt[rows] > attempts)
            if not later.any():
                break
            rows[later] = self.prior[rows[later]]
        there = bool(((rows != NO_RUN) & (self.attempt[rows] == attempts)).all())
        check(there, f"a command speaks of executions of vertex {vertex} that were never deployed")
        return rows

    def deployment_of(self, row: int) -> Deployment:
        deployment = self.deployments[self.deployment[row]]
        assert deployment is not None
        return deployment

    def by_deployment(self, rows: Ints) -> list[tuple[Deployment, Ints]]:
        """The rows, in groups of one deployment each."""
        numbers = self.deployment[rows]
        if not len(rows) or (numbers[0] == numbers[-1] and (numbers == numbers[0]).all()):
            return [(self.deployment_of(int(rows[0])), rows)] if len(rows) else []
        order = np.argsort(numbers, kind="stable")
        groups = np.split(rows[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        return [(self.deployment_of(int(group[0])), group) for group in groups]

    def end(self, rows: Ints, state: RunState) -> None:
        """Notes that these executions have ended, whatever came of it. Of one that was called gone before, nothing more is to be told."""
        self.state[rows] = np.where(self.state[rows] == RunState.TOLD, RunState.TOLD, state)
        for deployment, group in self.by_deployment(rows):
            deployment.left -= len(group)

    def forget(self, rows: Ints) -> None:
        """Deployments none of whose executions run any more are let go."""
        for number in np.unique(self.deployment[rows]).tolist():
            deployment = self.deployments[number]
            if deployment is not None and not deployment.left:
                self.deployments[number] = None

    def active(self) -> Ints:
        """Rows that still need their inputs."""
        state = self.state[: self.size]
        return np.flatnonzero(ACTIVE[state] & ~self.cancelled[: self.size])

    def _newest_of(self, vertex: int, parallelism: int) -> Rows:
        if len(self._newest[vertex]) != parallelism:
            check(not len(self._newest[vertex]), f"the parallelism of vertex {vertex} changed")
            self._newest[vertex] = np.full(parallelism, NO_RUN, np.int32)
        return self._newest[vertex]

    def _append(self, count: int) -> Ints:
        end = self.size + count
        if end > len(self.vertex):
            size = max(end, len(self.vertex) * 5 // 4)
            for name, value in _COLUMNS.items():
                setattr(self, name, grown(getattr(self, name), size, value))
        rows = np.arange(self.size, end, dtype=np.int64)
        self.size = end
        return rows


def ended_last(ends: Floats, gangs: Ints, depth: Ints) -> Floats:
    """Returns the end times of members of gangs, none before those that come before it in the topology. Parallel columns."""
    order = np.lexsort((depth, gangs))
    g, d, sorted_ends = gangs[order], depth[order], ends[order]
    first = np.concatenate(([True], (g[1:] != g[:-1]) | (d[1:] != d[:-1])))
    level = np.cumsum(first) - 1
    tops = np.maximum.reduceat(sorted_ends, np.flatnonzero(first))
    level_gang = g[first]
    # A running maximum that starts anew with each gang: every gang is lifted above all of the one before.
    lift = np.cumsum(np.concatenate(([0], level_gang[1:] != level_gang[:-1]))) * (float(np.ptp(tops)) + 1.0)
    tops = np.maximum.accumulate(tops + lift) - lift
    opens = np.concatenate(([True], level_gang[1:] != level_gang[:-1]))
    before = np.where(opens, -np.inf, np.roll(tops, 1))
    result = np.empty_like(sorted_ends)
    result[order] = np.maximum(sorted_ends, before[level])
    return result
