"""The executions a simulated cluster was given, as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Floats, Ints, constant, grown, written
from firesteel.scheduler.kernel.commands import Deploy

NO_RUN = -1
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

    ``reads`` and ``input_bytes``: storage requests and plain bytes of each.
    """

    command: Deploy
    first: int
    left: int
    reads: Ints
    input_bytes: Ints


class Runs:
    """A row per execution. Row ``r`` reports its result under the token ``r + 1``."""

    columns: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("vertex", "subtask", "attempt", "deployment", "state", "started"), 0),
        **dict.fromkeys(("cancelled", "fails", "rejected", "mirror"), 0),
        **dict.fromkeys(("prior", "slot", "node"), NO_RUN),
    }
    """Columns, and the value that new rows have there."""

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
        self.rejected = np.empty(0, np.bool_)
        """It is rejected by its node or worker."""
        self.mirror = np.empty(0, np.bool_)
        """Others of its subtask were under way when it was deployed."""
        self.started = np.empty(0, np.float64)
        self._newest: list[Rows] = [np.empty(0, np.int32) for _ in range(vertices)]
        self.deployments: list[Deployment | None] = []
        """None: all of its executions have ended."""

    def deploy(self, deployment: Deployment) -> Ints:
        """Rows for the executions of one Deploy."""
        command = deployment.command
        newest = self._newest_of(command.vertex, command.parallelism)
        prior = newest[command.subtasks]
        others = self._under_way(prior[prior != NO_RUN])
        rows = self._append(len(command.subtasks))
        self.mirror[rows[prior != NO_RUN]] = others > 0
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

    def find(self, vertex: int, subtasks: Ints, attempts: Ints) -> Ints:
        """Rows of these executions, which were deployed."""
        rows = self._newest[vertex][subtasks].astype(np.int64)
        while (later := (rows != NO_RUN) & (self.attempt[rows] > attempts)).any():
            rows[later] = self.prior[rows[later]]
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

    def _newest_of(self, vertex: int, parallelism: int) -> Rows:
        if len(self._newest[vertex]) != parallelism:
            self._newest[vertex] = np.full(parallelism, NO_RUN, np.int32)
        return self._newest[vertex]

    def _append(self, count: int) -> Ints:
        end = self.size + count
        if end > len(self.vertex):
            size = max(end, len(self.vertex) * 5 // 4)
            for name, value in self.columns.items():
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
