"""A job's records as Arrow tables and sentences: the same for a job that has just finished and for any journal (``History``)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firesteel.journal.file import AnyJournalRecord, read
from firesteel.journal.lookup import find
from firesteel.options import Options
from firesteel.options.layers import surroundings
from firesteel.report.explain import explain, find_vertex
from firesteel.report.fold import JobHistory, check_job
from firesteel.ui.process import page_of
from firesteel.view.notebook.shell import show_tables

if TYPE_CHECKING:
    import pyarrow as pa


class JobTables(ABC):
    """Each table is made when first asked for, and kept."""

    @abstractmethod
    def _id(self) -> str:
        """Of the job."""

    @abstractmethod
    def _job_records(self) -> Sequence[AnyJournalRecord]:
        """All there are."""

    @cached_property
    def decisions(self) -> pa.Table:
        """Every decision: when, what, of which vertex, by which rule, within which bounds, and why."""
        from firesteel.report.tables import decisions_table

        return decisions_table(self._job_records())

    @cached_property
    def vertices(self) -> pa.Table:
        """A row for each job vertex: parallelism and why, subtasks by state, failures, rows, bytes, seconds."""
        from firesteel.report.tables import vertices_table

        return vertices_table(self._job_records())

    @cached_property
    def attempts(self) -> pa.Table:
        """A row for each execution of each subtask: node, state, times, peak of memory, why it ended."""
        from firesteel.report.tables import attempts_table

        return attempts_table(self._job_records())

    @cached_property
    def timings(self) -> pa.Table:
        """Seconds that the job took, and that each vertex waited for its inputs, waited for slots, and ran."""
        from firesteel.report.tables import timings_table

        return timings_table(self._job_records())

    def explain(self, vertex: int | str | None = None) -> str:
        """Every decision and its reason, in sentences; of one vertex, given by id or name, or of the whole job."""
        records, page = self._job_records(), page_of(self._id())
        told = explain(records, vertex)
        if not page:
            return told
        own = "" if vertex is None else f"/vertices/{find_vertex(JobHistory(records), vertex).id}"
        return f"{told}\n\nIts page: {page}{own}"


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
