"""Moves executions through their states, leaving a record of each move, and tells Spark what to cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, compact
from firesteel.scheduler.kernel.commands import Cancel
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import IS_PENDING, SAME_SECONDS, ExecutionState
from firesteel.scheduler.slots.allocators import ExecutionSlotAllocator
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows


class ExecutionOperations:
    def __init__(self, graph: DefaultExecutionGraph, allocator: ExecutionSlotAllocator, recorder: Recorder) -> None:
        self.graph = graph
        self._table = graph.executions
        self._allocator = allocator
        self._recorder = recorder

    def move(
        self,
        vertex: int,
        rows: Rows,
        target: ExecutionState,
        at: float | NDArray[np.float64] | None = None,
        cause: str = "",
        *,
        peaks: Sequence[int] = (),
    ) -> tuple[Ints, Ints]:
        """Bring these (distinct) executions of one vertex to ``target``; ``at``: when, unless it was just now.
        ``peaks``: MiB, of those that finished. Returns their subtasks and attempt numbers."""
        names = self.names(rows)
        if not len(rows):
            return names
        self._table.transition(rows, target, self._recorder.at if at is None else at)
        if cause:
            self._table.set_cause(rows, cause)
        columns = self._columns(rows, target)
        if peaks:
            columns["peaks"] = list(peaks)
        self._recorder.states(vertex, target, *names, cause, **columns)
        if not IS_PENDING[target] and target != ExecutionState.CREATED:
            self._allocator.cancel(rows)
        return names

    def _columns(self, rows: Rows, target: ExecutionState) -> dict[str, list[Any]]:
        """Returns the columns that a state's record has beside names: where it runs, and of a finished one its times and its object."""
        if target not in (ExecutionState.DEPLOYING, ExecutionState.RUNNING, ExecutionState.FINISHED):
            return {}
        table, columns = self._table, dict[str, list[Any]]()
        nodes = table.node[rows]
        if nodes.any():
            seen = np.bincount(nodes) > 0
            seen[0] = False  # not known
            hosts = [table.node_named(node) for node in np.flatnonzero(seen).tolist()]
            columns = {"hosts": hosts, "nodes": (np.cumsum(seen) - 1)[nodes].tolist()}
        entered = table.times(target, rows)
        if (np.abs(entered - self._recorder.at) > SAME_SECONDS).any():
            columns["times"] = entered.round(4).tolist()
        if target == ExecutionState.FINISHED:
            columns["deployed"] = table.times(ExecutionState.DEPLOYING, rows).round(4).tolist()
            columns["running"] = table.times(ExecutionState.RUNNING, rows).round(4).tolist()
            columns["tokens"] = table.token[rows].tolist()
        return columns

    def created(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> None:
        """Record executions that came after the first ones: by a restart, or beside others."""
        table, columns = self._table, dict[str, Any]()
        if not table.opens[rows].all():
            columns["beside"] = True
        if table.mirror[rows].any():
            columns["mirrors"] = table.mirror[rows].tolist()
        self._recorder.states(vertex.id, ExecutionState.CREATED, *self.names(rows), cause, **columns)

    def names(self, rows: Rows) -> tuple[Ints, Ints]:
        """Subtasks and attempt numbers of executions, int64."""
        return self._table.index[rows].astype(np.int64), compact(self._table.attempt[rows].astype(np.int64))

    def cancel(self, vertex: ExecutionJobVertex, rows: Rows, reason: str) -> None:
        """Cancel these deployed executions."""
        if len(rows):
            names = self.move(vertex.id, rows, ExecutionState.CANCELING, cause=reason)
            self._recorder.emit(Cancel(vertex.id, *names, reason))

    def drop(self, vertex: ExecutionJobVertex, rows: Rows, reason: str) -> None:
        """Notes that these executions will not be deployed."""
        self.move(vertex.id, rows, ExecutionState.CANCELED, cause=reason)

    def end_all(self, reason: str) -> None:
        """The job ends: nothing new starts, what runs is cancelled."""
        for vertex in self.graph.vertices:
            if vertex.is_initialized:
                self.cancel(vertex, vertex.deployed_rows(np.arange(vertex.parallelism)), reason)
                self.drop(vertex, vertex.created_rows(np.arange(vertex.parallelism)), reason)

    @property
    def num_pending(self) -> int:
        """Executions about which Spark still owes us a word."""
        return self._table.num_pending
