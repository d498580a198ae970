"""A job's records as Arrow tables and sentences: the same for a job that has just finished and for any journal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from firesteel.journal.file import AnyJournalRecord
from firesteel.report.explain import explain, find_vertex
from firesteel.report.history import JobHistory
from firesteel.ui.process import page_of

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
