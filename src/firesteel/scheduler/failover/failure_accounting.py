"""Failure accounting: the failures that count against the restart strategy, and those that are followed by another try all the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.errors import MERGED_ATTEMPT
from firesteel.model.arrays import Ints
from firesteel.scheduler.failover.restart_strategies import RestartStrategy, Verdict
from firesteel.scheduler.kernel.events import FailureCause, FailureKind
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.nodes import Nodes
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import NO_ROW, ExecutionTable, Rows

MAX_UNCOUNTED_RESTARTS = 10
"""Restarts in a row of one subtask that are not counted; from then on its failures count like any other."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Executions (``rows``) of one vertex that failed together for one cause; ``subtasks`` runs parallel."""

    vertex: ExecutionJobVertex
    rows: Rows
    subtasks: Ints
    cause: FailureCause
    counted: bool


class _Charge:
    """The last death of a worker, or failure of the storage, that was counted.

    What ran beside it joins it: one dead executor takes several executions along, which are reported one by one. An
    execution that was deployed after it is counted itself, so that two which kill their workers do not excuse each
    other for ever.
    """

    def __init__(self, table: ExecutionTable) -> None:
        self._table = table
        self._at = -np.inf
        self._rows = 0

    def made(self, at: float) -> None:
        self._at, self._rows = at, self._table.size

    def covers(self, rows: Rows) -> bool:
        scheduled = self._table.times(ExecutionState.SCHEDULED, rows)
        return bool((rows < self._rows).all() and (scheduled <= self._at).all())


class _Losses:
    """The subtasks that lost their executor in this round of theirs, or the one before."""

    def __init__(self, table: ExecutionTable) -> None:
        self._table = table
        self._lost: dict[int, Rows] = {}
        """By vertex: the first row of the last round of each subtask that ended so."""

    def is_first(self, failure: Failure) -> bool:
        """None of these subtasks lost its executor just before. Remembers that they did now."""
        table, vertex = self._table, failure.vertex
        lost = self._lost.setdefault(vertex.id, np.full(vertex.parallelism, NO_ROW, np.int64))
        own = table.opening_of(failure.rows)
        prior = table.prior[own]
        before = np.where(prior == NO_ROW, NO_ROW, table.opening_of(np.maximum(prior, 0)))
        known = lost[failure.subtasks]
        again = (known != NO_ROW) & ((known == own) | (known == before))
        lost[failure.subtasks] = own
        return not again.any()


class _SetUps:
    """The nodes on which the functions of each vertex could not be set up. A set-up that fails on all of them is not tried again."""

    def __init__(self, table: ExecutionTable, nodes: Nodes) -> None:
        self._table = table
        self._nodes = nodes
        self._failed: dict[int, set[str]] = {}

    def why_no_other_try(self, failure: Failure) -> str | None:
        """Half a sentence; None: a node is left on which it was not tried, or nobody told of nodes. Remembers this failure."""
        there = set(self._nodes.slots)
        failed = self._failed.setdefault(failure.vertex.id, set())
        failed.update(self._table.node_name(int(row)) for row in failure.rows)
        if len(there) == 1:
            return "as there is no other node on which its set-up could do better"
        return "as its set-up has failed so on every node" if there and there <= failed else None


class FailureAccounting:
    def __init__(self, restart: RestartStrategy, table: ExecutionTable, nodes: Nodes, recorder: Recorder) -> None:
        self._restart = restart
        self._recorder = recorder
        self._set_ups = _SetUps(table, nodes)
        self._charge = _Charge(table)
        self._losses = _Losses(table)

    @property
    def strategy(self) -> str:
        return self._restart.name

    def uncounted(self, why: str) -> Verdict:
        return self._restart.uncounted(why)

    def verdict(self, failure: Failure, *, stale_input: bool, newly_lost: bool) -> Verdict:
        """``stale_input``: the partition it missed was produced anew meanwhile. ``newly_lost``: it misses one that was
        not lost before."""
        kind = failure.cause.kind
        hopeless = self._why_hopeless(failure)
        if hopeless is not None:
            return Verdict(None, hopeless)
        # However many drivers in a row were lost.
        if kind is FailureKind.DRIVER or ((not failure.counted or stale_input) and self._is_excused(failure)):
            return _excused(failure)
        if kind is FailureKind.LOST and self._losses.is_first(failure):
            why = "it lost its executor or worker, for the first time in a row"
            return Verdict(0.0, f"not counted by the restart strategy: {why}")
        if kind in (FailureKind.WORKER, FailureKind.LOST, FailureKind.STORAGE):
            if self._charge.covers(failure.rows):
                return self._restart.uncounted("it ran beside the failure that was charged last")
            self._charge.made(self._recorder.at)
        if newly_lost:
            # A lost disk holds many partitions, and each is found missing only when somebody reads it.
            return self._restart.uncounted("this partition was not lost before")
        return self._restart.count_failure(self._recorder.at)

    def _why_hopeless(self, failure: Failure) -> str | None:
        """Half a sentence; None: another try may help."""
        if failure.cause.kind is FailureKind.FATAL:
            return "trying again cannot help"
        why = self._set_ups.why_no_other_try(failure) if failure.cause.kind is FailureKind.SET_UP else None
        return None if why is None else f"trying again cannot help, {why}"

    def _is_excused(self, failure: Failure) -> bool:
        return failure.vertex.was_uncounted(failure.subtasks) <= MAX_UNCOUNTED_RESTARTS


def _excused(failure: Failure) -> Verdict:
    if not failure.counted:
        return Verdict(0.0, "not counted as a restart: something else was to blame", is_restart=False)
    why = "it read a partition that was produced anew meanwhile"
    if failure.cause.attempt == MERGED_ATTEMPT:
        why = "the partitions that were merged are there still, each by itself"
    return Verdict(0.0, f"not counted by the restart strategy: {why}")
