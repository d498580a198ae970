"""Counts of a vertex' steps, of the admitted attempts: as for rows and bytes, a restart takes back what is counted anew."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.humanize import format_count, plural
from firesteel.model.arrays import Ints
from firesteel.model.steps.reports import ERRORS, StepReport
from firesteel.scheduler.kernel.records import RowErrors

MOST_SAMPLES = 20
"""Rows of a step that failed and are written down, of all of its subtasks together."""


class StepCounts:
    """``totals``: of each step its counters."""

    def __init__(self) -> None:
        self.totals: dict[str, dict[str, int]] = {}
        self._of: dict[int, tuple[StepReport, ...]] = {}
        self._samples: dict[str, int] = {}

    def too_many_errors(self, reports: Sequence[tuple[StepReport, ...]]) -> str | None:
        """A sentence where these, added to what was admitted, are more errors than a step may have."""
        new: dict[str, int] = {}
        for report in (report for own in reports for report in own if report.max_errors is not None):
            new[report.step] = new.get(report.step, 0) + report.counts.get(ERRORS, 0)
            errors = self.totals.get(report.step, {}).get(ERRORS, 0) + new[report.step]
            if report.max_errors is not None and errors > report.max_errors:
                return (
                    f"The function of step '{report.step}' failed for {plural(errors, 'row')} by now; at most "
                    f"{format_count(report.max_errors)} may (max_errors)."
                )
        return None

    def admit(self, subtasks: Ints, reports: Sequence[tuple[StepReport, ...]]) -> None:
        for subtask, own in zip(subtasks.tolist(), reports, strict=True):
            if own:
                self._of[subtask] = own
                self._add(own, 1)

    def forget(self, subtasks: Ints) -> None:
        """These run again."""
        if self._of:
            for subtask in subtasks.tolist():
                self._add(self._of.pop(subtask, ()), -1)

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

    def _add(self, reports: Sequence[StepReport], sign: int) -> None:
        for report in reports:
            total = self.totals.setdefault(report.step, {})
            for counter, count in report.counts.items():
                total[counter] = total.get(counter, 0) + sign * count
