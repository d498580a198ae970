"""Speculative execution (FLIP-168) as a policy beside the scheduler: mirrors of slow executions, away from slow nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.events import NodeBlocked
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows


class SpeculativeExecutionHandler(Protocol):
    """Speculative execution, as the scheduler calls it: it tells of events and asks what to do. Rows are distinct, and of one vertex."""

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

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        """Blocked nodes rejected these; they are CANCELED now."""
        ...

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        """Takes executions that ended without having begun, through no fault of theirs. Returns whether others were made in their places."""
        ...

    def nodes_changed(self) -> None:
        """An executor came or went."""
        ...

    def node_blocked(self, event: NodeBlocked) -> None:
        """Another job of the session has blocked a node."""
        ...

    def placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        """Returns the placement of executions that open a round, and are deployed now."""
        ...

    @property
    def avoided(self) -> tuple[str, ...]:
        """Nodes that nothing new goes to."""
        ...

    @property
    def has_candidates(self) -> bool:
        """Returns whether :meth:`schedule` has anything to look at."""
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
    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None: ...
    def nodes_changed(self) -> None: ...
    def node_blocked(self, event: NodeBlocked) -> None: ...
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
