"""Decisions of a job again with some options changed, beside the real ones."""

from __future__ import annotations

from msgspec.structs import replace

from firesteel.errors import UsageError
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render
from firesteel.ui.views.structs import Job

MOST_VALUES = 20
_CHARACTERS = 200


def what_if_page(source: Source, asked: Asked) -> str:
    values = {key: value.strip() for key, value in asked.query.items() if value.strip()}
    if len(values) > MOST_VALUES or any(len(value) > _CHARACTERS for value in values.values()):
        raise UsageError(f"That is too much to ask: at most {MOST_VALUES} options of {_CHARACTERS} characters each.")
    job = source.job(asked.id)
    if not isinstance(job, Job):
        raise UsageError(
            f"A {job.summary.kind} has no decisions that could be taken again.", hint="Go back to its own page."
        )
    error = ""
    try:
        view = source.what_if(asked.id, values)
    except UsageError as wrong:  # told below the form, which keeps what was written into it
        error, view = str(wrong), replace(source.what_if(asked.id, {}), values=values)
    return render("what_if.html", asked, job=job, summary=job.summary, tab="what-if", view=view, error=error)
