"""Executions that join others of their subtask, or come in the place of one that never began: they wait here for slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firesteel.model.arrays import distinct
from firesteel.scheduler.deployment.deployer import ExecutionDeployer
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows, in_passes
from firesteel.scheduler.topology.operations import ExecutionOperations
from firesteel.scheduler.waiting import subtasks_named

Place = Callable[[Rows, bool], Placement]
"""The placement of executions; the second value tells whether they stay wherever Spark starts them."""


class JoinedExecutions:
    def __init__(
        self, operations: ExecutionOperations, deployer: ExecutionDeployer, readiness: Readiness, place: Place
    ) -> None:
        self._operations = operations
        self._graph = operations.graph
        self._table = operations.graph.executions
        self._deployer = deployer
        self._readiness = readiness
        self._place = place
        self._waiting: dict[tuple[int, bool], Rows] = {}
        """By vertex, and whether they stay wherever Spark starts them."""

    def add(self, vertex: ExecutionJobVertex, rows: Rows, cause: str, stay: bool = False) -> None:
        """Takes executions that were just created."""
        if len(rows):
            self._operations.created(vertex, rows, cause)
            self._wait(vertex.id, rows, stay)

    def __bool__(self) -> bool:
        """Returns whether :meth:`schedule` has anything to look at."""
        return bool(self._waiting)

    @property
    def rows(self) -> Sequence[int]:
        return [row for rows in self._waiting.values() for row in rows.tolist()]

    def schedule(self) -> None:
        """Deploy those whose inputs can be read and that get slots; the others are looked at again with each event."""
        waiting, self._waiting = self._waiting, {}
        for number, stay in sorted(waiting):
            vertex, rows = self._graph.vertices[number], self._left(waiting[number, stay])
            able = self._readiness.has_inputs(vertex, self._table.index[rows].astype(np.int64))
            for part in in_passes(self._table, rows[able]):
                option = ExecutionDeploymentOption(number, self._table.index[part].astype(np.int64), part)
                self._deployer.allocate_slots_and_place(option, self._place(part, stay))
            self._wait(number, self._left(rows), stay)

    def waiting_for(self) -> list[str]:
        lines: list[str] = []
        for number, stay in sorted(self._waiting):
            rows = self._left(self._waiting[number, stay])
            if len(rows):
                subtasks = subtasks_named(distinct(self._table.index[rows].astype(np.int64)))
                name = self._graph.vertices[number].job.name
                lines.append(f"Vertex {number} '{name}' has further attempts of {subtasks} waiting for a slot.")
        return lines

    def _wait(self, vertex: int, rows: Rows, stay: bool) -> None:
        if len(rows):
            before = self._waiting.get((vertex, stay))
            self._waiting[vertex, stay] = rows if before is None else np.concatenate((before, rows))

    def _left(self, rows: Rows) -> Rows:
        """Returns the executions that were neither dropped nor deployed."""
        return rows[self._table.state[rows] == ExecutionState.CREATED]
