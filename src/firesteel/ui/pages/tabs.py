"""The pages of a job, stream or script."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.ui.views.structs import Job, Script, Stream


@dataclass(frozen=True, slots=True)
class Tab:
    name: str
    """As in the address; empty: the first page."""
    title: str
    count: int | None = None


def tabs(job: Job | Stream | Script) -> list[Tab]:
    """The pages of a job, stream or script."""
    match job:
        case Job():
            return [
                Tab("", "Overview"), Tab("timeline", "Timeline"), Tab("decisions", "Decisions", job.decisions_total),
                Tab("failures", "Failures", job.failures_total), Tab("slots", "Slots and nodes"), Tab("options", "Options", len(job.options)),
                Tab("what-if", "What if"),
            ]  # fmt: skip
        case Stream():
            return [Tab("", "Overview"), Tab("options", "Options", len(job.options))]
        case Script():
            return [Tab("", "Overview")]
