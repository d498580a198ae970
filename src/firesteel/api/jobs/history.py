"""A finished or running job, read from its journal: as sentences and as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from firesteel.api.jobs.job_tables import JobTables
from firesteel.journal.file import AnyJournalRecord, read
from firesteel.journal.lookup import find
from firesteel.options import Options
from firesteel.options.layers import surroundings
from firesteel.report.fold import check_job
from firesteel.report.history import JobHistory
from firesteel.ui.process import page_of
from firesteel.view.notebook.shell import show_tables


class History(JobTables):
    """A job by its journal: a path, the job's id or its beginning, or ``"last"``; a job that still runs is shown up to its last record.

    ``options``: where journals are (``firesteel.journal.directory``), if not where ``firesteel explain`` looks. The tables'
    columns are in ``firesteel.report.tables.SCHEMAS``; times are seconds since the job began, bytes are plain. Raises
    UsageError if there is no such journal, it cannot be read, or it is a stream's.
    """

    def __init__(self, job: str | os.PathLike[str] = "last", options: Mapping[str, Any] | None = None) -> None:
        self.path = Path(find(os.fspath(job), surroundings().merged(Options(options))))
        self._records: Sequence[AnyJournalRecord] = read(self.path)
        check_job(self._records, f"'{self.path}' is the journal of a stream.", "See 'firesteel stream history'.")
        show_tables()

    @cached_property
    def _history(self) -> JobHistory:
        return JobHistory(self._records)

    def _id(self) -> str:
        return self.job_id

    def _job_records(self) -> Sequence[AnyJournalRecord]:
        return self._records

    @property
    def job_id(self) -> str:
        return self._history.id

    @property
    def job_name(self) -> str:
        return "" if self._history.plan is None else self._history.plan.job_name

    @property
    def status(self) -> str:
        """CREATED, RUNNING, FINISHED, FAILED, CANCELED, ...: the last that was written down."""
        return self._history.status

    def _repr_html_(self) -> str:
        """In a notebook: its graph, its vertices, when attempts ran, what was decided."""
        from firesteel.scheduler.kernel.records import AnyRecord
        from firesteel.view.notebook.job import job_html

        records = (record for record in self._records if isinstance(record, AnyRecord))
        return job_html(records, page_of(self.job_id))

    def __repr__(self) -> str:
        return f"History({self.job_name!r}, {self.job_id}, {self.status})"
