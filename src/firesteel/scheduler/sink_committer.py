"""The end of a job whose vertices have all finished: its sinks are published, then it has finished."""

from __future__ import annotations

import numpy as np

from firesteel.scheduler.deployment.descriptors import DeploymentDescriptorFactory
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.exchange.release import PartitionReleaseStrategy
from firesteel.scheduler.kernel.commands import CommitSinks
from firesteel.scheduler.kernel.events import CancelRequested, SinksCommitted, SinksFailed
from firesteel.scheduler.kernel.job import Job
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import IS_PENDING
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.operations import ExecutionOperations


class SinkCommitter:
    """Publishing is not interrupted: while it goes on, a cancel waits for its end."""

    def __init__(
        self,
        operations: ExecutionOperations,
        job: Job,
        recorder: Recorder,
        *,
        release: PartitionReleaseStrategy,
        merging: Merging,
        descriptors: DeploymentDescriptorFactory,
    ) -> None:
        self._operations = operations
        self._graph = operations.graph
        self._job = job
        self._recorder = recorder
        self._release = release
        self._merging = merging
        self._descriptors = descriptors
        self.is_committing = False
        self._cancel_reason: str | None = None
        """A cancel that came while the sinks were being published."""

    def vertices_finished(self) -> None:
        """All vertices have: publish, as soon as nobody writes any more."""
        if self._writers_left():
            return
        sinks = [vertex for vertex in self._graph.vertices if vertex.job.has_sink]
        if not sinks:
            self._finish()
            return
        self.is_committing = True
        self._recorder.emit(CommitSinks({vertex.id: self._winners(vertex) for vertex in sinks}))

    def committed(self, event: SinksCommitted) -> None:
        if self.is_committing:
            self._finish()

    def failed(self, event: SinksFailed) -> None:
        if not self.is_committing:
            return
        self.is_committing = False
        if self._cancel_reason is None:
            self._job.fail(event.cause)
        else:
            self._job.cancel(f"{self._cancel_reason}; the sinks could not be published: {event.cause.message}")

    def cancel_requested(self, event: CancelRequested) -> None:
        if not self.is_committing:
            self._job.cancel(event.reason)
            return
        self._cancel_reason = event.reason
        self._recorder.decision(
            "cancel",
            inputs={"reason": event.reason},
            rule="too late",
            result="put off",
            reason="The sinks are being published, which is not interrupted: the job is cancelled only if that fails.",
        )

    def _writers_left(self) -> bool:
        """Cancelled attempts that nothing may be published beside: their vertices forbid concurrent attempts."""
        table = self._graph.executions
        exclusive = [not vertex.job.supports_concurrent_attempts for vertex in self._graph.vertices]
        if not any(exclusive) or not self._operations.num_pending:
            return False
        pending = np.flatnonzero(IS_PENDING[table.state[: table.size]])
        return bool(np.array(exclusive)[table.vertex[pending]].any())

    def _winners(self, vertex: ExecutionJobVertex) -> list[tuple[int, tuple[bytes, ...]]]:
        """Attempt and commit messages of each subtask."""
        attempts = self._graph.executions.attempt[vertex.winner].tolist()
        return [(attempt, vertex.commits.get(subtask, ())) for subtask, attempt in enumerate(attempts)]

    def _finish(self) -> None:
        self._release.job_finished()
        self._merging.drop_all()
        persistent = [result for result in self._graph.results if result is not None and result.dataset.persistent]
        self._job.finish(tuple(self._descriptors.gate(result) for result in persistent))
