"""A job of a script that goes on whose outputs an earlier process has published: it has ended before it could begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver.outcome import JobOutcome
from firesteel.spark.recovery.runs import PastJob


class AnsweredJob:
    """In the place of ``runtime.JobRun``."""

    has_ended = True

    def __init__(self, past: PastJob, decisions: Sequence[Decision]) -> None:
        journal = Path(past.journal) if past.journal and Path(past.journal).is_file() else None
        self.job_id, self.job_name, self.journal = past.job_id, past.header.job_name, journal
        self._outcome = JobOutcome(self.job_id, self.job_name, JobStatus.FINISHED, 0.0, list(decisions), journal, None)

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def waiting_for(self) -> list[str]:
        return []

    def cancel(self, reason: str = "") -> None:
        pass

    def result(self) -> JobOutcome:
        return self._outcome
