"""A job that was submitted, and what it leaves: JobClient and JobResult."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from firesteel.api.job_tables import JobTables
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import format_seconds
from firesteel.journal.file import AnyJournalRecord, read
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.records import AnyRecord, Decision
from firesteel.ui.process import page_of

if TYPE_CHECKING:
    from firesteel.spark.driver.outcome import JobOutcome
    from firesteel.spark.driver.runtime import SubmittedJob


@dataclass(frozen=True)
class JobResult(JobTables):
    """A job that has finished. ``duration``: seconds; ``journal``: its file, one JSON record a line.

    ``decisions``, ``vertices``, ``attempts`` and ``timings`` are Arrow tables, read from the journal when first asked for (their
    columns: ``firesteel.report.tables.SCHEMAS``); ``decision_records`` are the decisions as objects.
    """

    job_id: str
    job_name: str
    duration: float
    decision_records: list[Decision]
    journal: Path | None

    @cached_property
    def _records(self) -> Sequence[AnyJournalRecord]:
        return read(self.journal) if self.journal is not None else list(self.decision_records)

    def _id(self) -> str:
        return self.job_id

    def _job_records(self) -> Sequence[AnyJournalRecord]:
        return self._records

    def _repr_html_(self) -> str:
        """In a notebook: its graph, its vertices, when attempts ran, what was decided."""
        return _html(self.journal, repr(self), page_of(self.job_id))

    def __repr__(self) -> str:
        return f"JobResult({self.job_name!r}, {self.job_id}, {format_seconds(self.duration)})"


class LocalResult(JobResult):
    """A job that was computed in the calling process. There is no journal, for nothing was decided."""

    def explain(self, vertex: int | str | None = None) -> str:
        """One sentence."""
        return f"{self.job_name}: computed in this process, each step in one subtask; nothing was decided."


Again = tuple["SubmittedJob", Callable[[FiresteelError], object]]
"""A job in the place of another, and what is called with its failure."""


class JobClient:
    """A running job. ``execute_async`` returns one."""

    def __init__(
        self,
        run: SubmittedJob,
        failed: Callable[[FiresteelError], object] = lambda _error: None,
        again: Callable[[FiresteelError], Again | None] = lambda _error: None,
    ) -> None:
        """Made by the environment, not by users. ``failed``: called with what the job failed with, whenever that is asked for.

        ``again``: begins a job in the place of one that failed so; asked once.
        """
        self._run = run
        self._failed = failed
        self._again: Callable[[FiresteelError], Again | None] | None = again
        self._lock = threading.Lock()

    @property
    def job_id(self) -> str:
        return self._run.job_id

    def status(self) -> JobStatus:
        return self._run.status()

    def wait(self, timeout: float | None = None) -> JobResult:
        """Waits for the job's end, at most ``timeout`` seconds.

        Raises JobExecutionError if it failed, JobCancelledError if it was cancelled, KeyboardInterrupt on Ctrl-C, which cancels it,
        TimeoutError if it still runs when the time is over; it runs on then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            run = self._run
            if not run.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                waits = " ".join(self.waiting_for())
                raise TimeoutError(
                    f"The job '{run.job_name}' ({self.job_id}) still runs after {timeout} s. {waits}".rstrip()
                )
            outcome = run.result()
            if outcome.error is None:
                return _result_of(outcome)
            if not self._begun_again(run, outcome.error):
                raise _for_this_caller(outcome.error)

    def _begun_again(self, run: SubmittedJob, error: FiresteelError) -> bool:
        """Returns True if another job does the work of this one now; its id and status are then those of this object."""
        with self._lock:
            if self._run is not run:  # by another thread
                return True
            self._failed(error)
            again, self._again = self._again, None
            begun = None if again is None else again(error)
            if begun is not None:
                self._run, self._failed = begun
            return begun is not None

    def waiting_for(self) -> list[str]:
        """The reasons why the job waits just now, as sentences: subtasks that run or queue, a restart's delay, its sinks."""
        return self._run.waiting_for()

    def cancel(self) -> None:
        """Asks for cancellation and returns at once; a job that has ended is left as it is."""
        self._run.cancel()

    def _repr_html_(self) -> str:
        """In a notebook: as a result's, as far as the job has come."""
        return _html(self._run.journal, repr(self), page_of(self.job_id))

    def __repr__(self) -> str:
        return f"JobClient({self._run.job_name!r}, {self.job_id}, {self.status().value})"


def _html(journal: Path | None, otherwise: str, page: str) -> str:
    """``otherwise``: said of a job whose journal cannot be read (any more), or has nothing yet; ``page``: its address, or empty."""
    from firesteel.view.notebook.job import job_html
    from firesteel.view.notebook.markup import note

    try:
        records = [] if journal is None else [record for record in read(journal) if isinstance(record, AnyRecord)]
    except UsageError:
        records = []
    return job_html(records, page) if records else note(otherwise)


def _result_of(outcome: JobOutcome) -> JobResult:
    return JobResult(outcome.job_id, outcome.job_name, outcome.duration, outcome.decisions, outcome.journal)


def _for_this_caller(error: FiresteelError) -> FiresteelError:
    """The same error each time ``wait`` is called, without the frames of the callers before."""
    return error.with_traceback(None)
