"""The status of the job as a whole, and the first cause of its end."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.scheduler.kernel.commands import GateDescriptor, JobStatus, JobStatusChanged
from firesteel.scheduler.kernel.events import FailureCause
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import JobStatusRecord
from firesteel.scheduler.kernel.states import JOB_STATUSES
from firesteel.scheduler.topology.operations import ExecutionOperations

_ACTIVE = (JobStatus.RUNNING, JobStatus.RESTARTING)


class Job:
    def __init__(
        self, recorder: Recorder, operations: ExecutionOperations, metrics: Metrics, before_end: Callable[[], None]
    ) -> None:
        """``before_end``: called once, just before the command that tells of the job's end."""
        self.status = JobStatus.CREATED
        self.cause: FailureCause | None = None
        self._place: tuple[int | None, int | None] = (None, None)
        self._recorder = recorder
        self._operations = operations
        self._metrics = metrics
        self._before_end = before_end

    @property
    def is_active(self) -> bool:
        """Work goes on: RUNNING, or waiting for a restart's delay beside what runs."""
        return self.status in _ACTIVE

    @property
    def is_ending(self) -> bool:
        return self.status in (JobStatus.FAILING, JobStatus.CANCELLING)

    def go(self, status: JobStatus, why: str = "") -> None:
        """To a status that does not end the job. No-op when it is there already."""
        if status is not self.status:
            self._change(status, JobStatusChanged(status), why)

    def fail(self, cause: FailureCause, vertex: int | None = None, subtask: int | None = None) -> None:
        """The first cause stays; what runs is cancelled."""
        if not self.is_active:
            return
        self.cause, self._place = cause, (vertex, subtask)
        self._change(JobStatus.FAILING, JobStatusChanged(JobStatus.FAILING, cause, vertex, subtask), cause.message)
        self._operations.end_all(f"the job is failing: {cause.message}")

    def cancel(self, reason: str) -> None:
        if self.status is JobStatus.CREATED or self.is_active:
            self._change(JobStatus.CANCELLING, JobStatusChanged(JobStatus.CANCELLING), reason)
            self._operations.end_all(reason)

    def end_if_nothing_runs(self) -> None:
        if not self.is_ending or self._operations.num_pending:
            return
        if self.status is JobStatus.CANCELLING:
            self._change(JobStatus.CANCELED, JobStatusChanged(JobStatus.CANCELED), "")
        else:
            command = JobStatusChanged(JobStatus.FAILED, self.cause, *self._place)
            self._change(JobStatus.FAILED, command, "" if self.cause is None else self.cause.message)

    def finish(self, persistent: tuple[GateDescriptor, ...]) -> None:
        self._change(JobStatus.FINISHED, JobStatusChanged(JobStatus.FINISHED, persistent=persistent), "")

    def _change(self, status: JobStatus, command: JobStatusChanged, why: str) -> None:
        if not JOB_STATUSES.allows(self.status, status):
            JOB_STATUSES.check(self.status, status, "The job", why, self._recorder.story())
        self.status = status
        if status.is_terminal:
            self._before_end()
            self._metrics.record()
        self._recorder.record(
            JobStatusRecord(at=self._recorder.at, event=self._recorder.event, status=status.value, cause=why)
        )
        self._recorder.tell(f"the job is {status.value}{f': {why}' if why else ''}")
        self._recorder.emit(command)
