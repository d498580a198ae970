"""Speculative execution (FLIP-168) as a policy beside the scheduler: mirrors of slow executions, away from slow nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from firesteel.scheduler.commands import Placement
from firesteel.scheduler.execution_graph import ExecutionJobVertex
from firesteel.scheduler.executions import Rows
from firesteel.scheduler.slots import ExecutionDeploymentOption


class SpeculativeExecutionHandler(Protocol):
    """What the scheduler tells of, and asks. Rows are distinct, and of one vertex."""

    def start(self) -> None:
        """The job runs."""
        ...

    def stop(self) -> None:
        """The job ends."""
        ...

    def launched(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """Spark launched these, on nodes that the table knows if anybody does."""
        ...

    def finished(self, vertex: ExecutionJobVertex, rows: Rows) -> None:
        """The results of these were admitted; they had company, or may have had."""
        ...

    def returned(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        """These were handed back by blocked nodes; they are CANCELED now."""
        ...

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        """These ended without having begun, through nobody's fault. Whether others were made in their places."""
        ...

    def timer_fired(self, timer: str) -> None:
        """A timer that is not ours changes nothing."""
        ...

    def nodes_changed(self) -> None:
        """An executor came or went."""
        ...

    def placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        """Where executions that open a round, and are deployed now, should run."""
        ...

    @property
    def avoided(self) -> tuple[str, ...]:
        """Nodes that nothing new goes to."""
        ...

    @property
    def has_candidates(self) -> bool:
        """Whether :meth:`schedule` has anything to look at."""
        ...

    @property
    def candidates(self) -> Sequence[int]:
        """Rows that :meth:`schedule` will look at: those in CREATED are to be deployed."""
        ...

    def schedule(self) -> None:
        """Deploy the executions that joined a round and wait."""
        ...

    def waiting_for(self) -> list[str]:
        """Sentences on what is blocked, and why."""
        ...


class NoSpeculation:
    """Switched off: an execution stays alone, and runs where Spark puts it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def launched(self, vertex: ExecutionJobVertex, rows: Rows) -> None: ...
    def finished(self, vertex: ExecutionJobVertex, rows: Rows) -> None: ...
    def returned(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None: ...
    def timer_fired(self, timer: str) -> None: ...
    def nodes_changed(self) -> None: ...
    def schedule(self) -> None: ...

    @property
    def avoided(self) -> tuple[str, ...]:
        return ()

    @property
    def has_candidates(self) -> bool:
        return False

    @property
    def candidates(self) -> Sequence[int]:
        return ()

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        return False

    def placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        return None

    def waiting_for(self) -> list[str]:
        return []
