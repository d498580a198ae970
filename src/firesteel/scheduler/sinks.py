"""The end of a job whose vertices have all finished: its sinks are published, then it has finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import CommitSinks
from firesteel.scheduler.kernel.decisions import CancelPutOff
from firesteel.scheduler.kernel.events import CancelRequested, Event, SinksCommitted, SinksFailed
from firesteel.scheduler.kernel.states import IS_PENDING
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex


class Sinks(Policy):
    """Publishing is not interrupted: while it goes on, a cancel waits for its end."""

    answers: ClassVar[Mapping[type[Event], str]] = {
        SinksCommitted: "committed",
        SinksFailed: "failed",
        CancelRequested: "cancel_requested",
    }

    def __init__(self, job: Job) -> None:
        self._job = job
        self._graph = job.graph
        self._cancel_reason: str | None = None
        """A cancel that came while the sinks were being published."""

    def act(self) -> None:
        """Publish once all vertices have finished, as soon as nobody writes any more."""
        if not self._graph.all_finished or self._writers_left():
            return
        sinks = [vertex for vertex in self._graph.vertices if vertex.job.has_sink]
        if not sinks:
            self._job.finish()
            return
        self._job.is_committing = True
        self._job.recorder.emit(CommitSinks({vertex.id: self._winners(vertex) for vertex in sinks}))

    def committed(self, event: SinksCommitted) -> None:
        if self._job.is_committing:
            self._job.finish()

    def failed(self, event: SinksFailed) -> None:
        if not self._job.is_committing:
            return
        self._job.is_committing = False
        if self._cancel_reason is None:
            self._job.fail(event.cause)
        else:
            self._job.cancel_job(f"{self._cancel_reason}; the sinks could not be published: {event.cause.message}")

    def cancel_requested(self, event: CancelRequested) -> None:
        if not self._job.is_committing:
            self._job.cancel_job(event.reason)
            return
        self._cancel_reason = event.reason
        self._job.recorder.decision(
            "cancel",
            inputs=CancelPutOff(reason=event.reason),
            rule="too late",
            result="put off",
        )

    def _writers_left(self) -> bool:
        """Cancelled attempts that nothing may be published beside: their vertices forbid concurrent attempts."""
        table = self._graph.executions
        exclusive = [not vertex.job.supports_concurrent_attempts for vertex in self._graph.vertices]
        if not any(exclusive) or not table.num_pending:
            return False
        pending = np.flatnonzero(IS_PENDING[table.state[: table.size]])
        return bool(np.array(exclusive)[table.vertex[pending]].any())

    def _winners(self, vertex: ExecutionJobVertex) -> list[tuple[int, tuple[bytes, ...]]]:
        """Attempt and commit messages of each subtask."""
        attempts = self._graph.executions.attempt[vertex.winner].tolist()
        return [(attempt, vertex.commits.get(subtask, ())) for subtask, attempt in enumerate(attempts)]
