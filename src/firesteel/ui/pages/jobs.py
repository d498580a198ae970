"""The list of jobs, streams and scripts."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render

PER_PAGE = 50
STATUSES = ("running", "finished", "failed", "cancelled", "broken off", "unfinished", "damaged")
KINDS = ("job", "stream", "script")
SORTS = (
    "status",
    "name",
    "kind",
    "began",
    "seconds",
    "vertices",
    "subtasks",
    "rows_in",
    "rows_out",
    "failures",
    "restarts",
)
NEWEST_FIRST = "-began"


def jobs_page(source: Source, asked: Asked) -> str:
    status, kind = _one_of("status", asked.text("status"), STATUSES), _one_of("kind", asked.text("kind"), KINDS)
    sort = asked.text("sort") or NEWEST_FIRST
    _one_of("sort", sort.removeprefix("-"), SORTS)
    offset = asked.integer("offset", 0) or 0
    page = source.jobs(text=asked.text("text"), status=status, kind=kind, sort=sort, offset=offset, limit=PER_PAGE)
    return render("jobs.html", asked, page=page, sort=sort, status=status, kind=kind, statuses=STATUSES, kinds=KINDS)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value and value not in known:
        raise UsageError(f"'{name}={value[:40]}' makes no sense: it is one of {', '.join(known)}.")
    return value
