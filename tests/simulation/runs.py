"""The executions of a simulated cluster, with checks of what is deployed, second reports and results of other jobs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, written
from firesteel.scheduler.kernel.commands import Deploy
from firesteel.simulation.cluster import runs
from firesteel.simulation.cluster.runs import ACTIVE, NO_RUN, Rows, RunState
from firesteel.simulation.violation import check


class Runs(runs.Runs):
    columns: ClassVar[dict[str, int]] = {**runs.Runs.columns, "delivered": 0, "retires": 0}

    def __init__(self, vertices: int) -> None:
        super().__init__(vertices)
        self.delivered = np.empty(0, np.bool_)
        """The scheduler was told of its result."""
        self.retires = np.empty(0, np.bool_)
        """It is rejected because of its Python worker."""

    def check_deployment(self, command: Deploy, *, alone: bool, most: int) -> None:
        """``alone``: an attempt may run only when all others are gone for sure; ``most``: how many of a subtask may be under way
        that are not being cancelled."""
        prior = self._newest_of(command.vertex, command.parallelism)[command.subtasks]
        known = prior[prior != NO_RUN]
        later = command.attempts[prior != NO_RUN] > self.attempt[known]
        check(bool(later.all()), f"an execution of vertex {command.vertex} was deployed twice")
        if alone:
            over = not self._chain(known, lambda rows: self.state[rows] != RunState.TOLD).any()
            check(over, f"two attempts run where vertex {command.vertex} allows one")
        many = bool((self._under_way(known) >= most).any())
        check(not many, f"more than {most} attempts of a subtask of vertex {command.vertex} are under way")

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
        for name in self.columns:
            column = getattr(self, name)
            setattr(self, name, written(column, np.array([twin]), column[row]))
        self.state[twin], self.cancelled[twin] = RunState.TOLD, True
        self.delivered[twin] = self.mirror[twin] = False
        return twin

    def were_deployed(self, vertex: int, subtasks: Ints, attempts: Ints) -> NDArray[np.bool_]:
        """Returns a mask of these executions of a vertex: True for those that the cluster was given."""
        if not len(self._newest[vertex]):
            return np.zeros(len(subtasks), np.bool_)
        rows = super().find(vertex, subtasks, attempts)
        return (rows != NO_RUN) & (self.attempt[rows] == attempts)

    def find(self, vertex: int, subtasks: Ints, attempts: Ints) -> Ints:
        """Rows of these executions. They must have been deployed."""
        rows = super().find(vertex, subtasks, attempts)
        there = bool(((rows != NO_RUN) & (self.attempt[rows] == attempts)).all())
        check(there, f"a command speaks of executions of vertex {vertex} that were never deployed")
        return rows

    def active(self) -> Ints:
        """Rows that still need their inputs."""
        state = self.state[: self.size]
        return np.flatnonzero(ACTIVE[state] & ~self.cancelled[: self.size])

    def _newest_of(self, vertex: int, parallelism: int) -> Rows:
        known = len(self._newest[vertex])
        check(known in (0, parallelism), f"the parallelism of vertex {vertex} changed")
        return super()._newest_of(vertex, parallelism)
