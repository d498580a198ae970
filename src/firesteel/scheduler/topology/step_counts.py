"""Counts of a vertex' steps as columns, of the admitted attempts: as for rows and bytes, a restart takes back what is counted anew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from firesteel.humanize import format_count
from firesteel.model.arrays import Ints
from firesteel.model.reports import ERRORS, MOST_OF_ONE, StepReport, failed, summed
from firesteel.scheduler.kernel.records import RowErrors

MOST_SAMPLES = 20
"""Rows of a step that failed and are written down, of all of its subtasks together."""


class StepCounts:
    """``columns[step, counter][subtask]``; made when a step first counts anything."""

    def __init__(self, parallelism: int) -> None:
        self.columns: dict[tuple[str, str], Ints] = {}
        self._parallelism = parallelism
        self._samples: dict[str, int] = {}

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """Of each step its counters."""
        found: dict[str, dict[str, int]] = {}
        for (step, counter), column in self.columns.items():
            total = column.max() if counter in MOST_OF_ONE else column.sum()
            found.setdefault(step, {})[counter] = int(total)
        return found

    def by_subtask(self, counter: str) -> Ints | None:
        """The counts of all steps of each subtask together, not to be written to; None: nobody has counted this."""
        columns = [column for (_, counted), column in self.columns.items() if counted == counter]
        return reduce(np.add, columns) if columns else None

    def too_many_errors(self, reports: Sequence[tuple[StepReport, ...]]) -> str | None:
        """A sentence where these, added to what was admitted, are more errors than a step may have."""
        bounded = [report for own in reports for report in own if report.max_errors is not None]
        new = summed(bounded)
        for step, most in {report.step: report.max_errors or 0 for report in bounded}.items():
            admitted = self.columns.get((step, ERRORS))
            errors = new[step].get(ERRORS, 0) + (0 if admitted is None else int(admitted.sum()))
            if errors > most:
                return (
                    f"The function of step '{step}' failed for {failed(errors, new[step])} by now; at most "
                    f"{format_count(most)} may (max_errors)."
                )
        return None

    def admit(self, subtasks: Ints, reports: Sequence[tuple[StepReport, ...]]) -> None:
        for subtask, own in zip(subtasks.tolist(), reports, strict=True):
            for report in own:
                for counter, count in report.counts.items():
                    self._column(report.step, counter)[subtask] = count

    def forget(self, subtasks: Ints) -> None:
        """These run again."""
        for column in self.columns.values():
            column[subtasks] = 0

    def samples(
        self, vertex: int, subtasks: Ints, reports: Sequence[tuple[StepReport, ...]], at: float, event: int
    ) -> list[RowErrors]:
        """Records of rows that failed, as long as there are not many of the step."""
        found: list[RowErrors] = []
        for subtask, own in zip(subtasks.tolist(), reports, strict=True):
            for report in own:
                told = self._samples.get(report.step, 0)
                some = report.samples[: MOST_SAMPLES - told]
                if some:
                    self._samples[report.step] = told + len(some)
                    rows, errors = [row for row, _ in some], [error for _, error in some]
                    found.append(
                        RowErrors(
                            at=at,
                            event=event,
                            vertex=vertex,
                            step=report.step,
                            subtask=subtask,
                            rows=rows,
                            errors=errors,
                        )
                    )
        return found

    def _column(self, step: str, counter: str) -> Ints:
        column = self.columns.get((step, counter))
        if column is None:
            column = self.columns[step, counter] = np.zeros(self._parallelism, np.int64)
        return column


def only_counts(reports: Sequence[StepReport]) -> bool:
    """Of one execution: there are no bounds to check, nor rows to write down."""
    return all(report.max_errors is None and not report.samples for report in reports)
