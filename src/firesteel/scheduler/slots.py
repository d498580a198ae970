"""Slots for executions. Deployment is of executions, so a mirror can ask for a slot of its own (FLIP-168)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from firesteel.scheduler.events import Ints
from firesteel.scheduler.executions import Rows


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionDeploymentOption:
    """Executions of one vertex to deploy together; ``subtasks`` and ``executions`` (rows) run parallel."""

    vertex: int
    subtasks: Ints
    executions: Rows


class ExecutionSlotAllocator(Protocol):
    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        """The part of the request that has slots now; the rest is asked for again with the next event."""
        ...

    def cancel(self, executions: Rows) -> None:
        """Take back the request, or free the slot, of executions that ended or will not run."""
        ...


class GrantAllSlotAllocator:
    """Spark queues what it cannot run at once, so every request is granted."""

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        return option

    def cancel(self, executions: Rows) -> None:
        """Nothing is held."""
