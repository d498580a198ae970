"""``firesteel history`` without a job: all of them, newest first."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from firesteel.cli.shared import show
from firesteel.errors import UsageError
from firesteel.humanize import format_count, format_seconds, plural
from firesteel.journal.listing import DAMAGED, STATUSES, Listed, listed
from firesteel.journal.places import journal_directories, journals
from firesteel.options import Options

VERSION = 1
_NAME_LENGTH = 32
_COLUMNS = ("when", "job", "name", "status", "took", "steps", "subtasks", "rows in", "rows out", "failures", "restarts")
_RIGHT = _COLUMNS[4:]
_BY_WIDTH = {118: _COLUMNS, 96: (*_COLUMNS[:7], "restarts"), 80: _COLUMNS[:6], 0: ("when", "job", "name", "status")}
"""Columns by the least width of a terminal, in characters; a pipe has room for all."""


def list_jobs(options: Mapping[str, Any], limit: int, statuses: Sequence[str], *, as_json: bool) -> None:
    """Raises UsageError for a status that there is not, and a limit below 0."""
    if limit < 0:
        raise UsageError(f"--limit {limit} is negative.", hint="0 lists all.")
    wanted = _wanted(statuses)
    given = Options(options)
    known = journals(given)
    found: Iterable[Listed] = (each for each in listed(known) if not wanted or each.status in wanted)
    chosen = list(islice(found, limit or None))
    if as_json:
        for each in chosen:
            if not show(_json(each)):
                return
        return
    if chosen:
        show("\n".join(_lines(chosen)))
        if len(chosen) == limit < len(known):
            print(
                f"These are the latest {limit} of {plural(len(known), 'journal')}; --limit 0 lists all.",
                file=sys.stderr,
            )
    elif wanted and known:
        show(f"None of {plural(len(known), 'journal')} is of a job that is {' or '.join(sorted(wanted))}.")
    else:
        show(f"There is no journal in {' or '.join(repr(str(place)) for place in journal_directories(given))} yet.")


def _wanted(statuses: Sequence[str]) -> set[str]:
    wanted = {word.strip().lower().replace("-", " ") for text in statuses for word in text.split(",")}
    wanted = {"cancelled" if status == "canceled" else status for status in wanted}
    for status in wanted:
        if status not in STATUSES:
            there = ", ".join(status.replace(" ", "-") for status in STATUSES)
            raise UsageError(f"No job has the status '{status}'.", hint=f"There are: {there}.")
    return wanted


def _lines(chosen: Sequence[Listed]) -> Iterator[str]:
    width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    columns = next(names for least, names in _BY_WIDTH.items() if width is None or width >= least)
    rows = [dict(zip(columns, columns, strict=True)), *map(_cells, chosen)]
    widths = {name: max(len(row[name]) for row in rows) for name in columns}
    if width is not None:
        others = sum(widths.values()) - widths["name"] + 2 * (len(columns) - 1)
        widths["name"] = max(8, min(widths["name"], width - others))
    for row in rows:
        texts = (_fitted(row[name], widths[name], right=name in _RIGHT) for name in columns)
        yield "  ".join(texts).rstrip()
        if row.get("cause"):
            yield _cut(f"    {row['cause']}", width)


def _cells(each: Listed) -> dict[str, str]:
    cells = {
        "when": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.began)),
        "job": each.job_id,
        "name": _cut(each.name, _NAME_LENGTH) + ("" if each.kind == "job" else f" ({each.kind})"),
        "status": each.status,
        "took": "" if each.seconds is None else format_seconds(each.seconds),
        "cause": _note(each),
    }
    if each.status == DAMAGED:
        cells["job"], cells["name"] = each.job_id[:12], str(each.path.name)
    numbers = {
        "steps": each.vertices,
        "subtasks": each.subtasks,
        "rows in": each.rows_in,
        "rows out": each.rows_out,
        "failures": each.failures,
        "restarts": each.restarts,
    }
    return cells | {name: "" if number is None else format_count(number) for name, number in numbers.items()}


def _note(each: Listed) -> str:
    """A line below the job's own; empty: there is none."""
    notes = [f"goes on from job {each.after}"] if each.after else []
    notes += [f"uses results of {'job' if len(each.uses) == 1 else 'jobs'} {', '.join(each.uses)}"] if each.uses else []
    if each.status in ("failed", DAMAGED):
        notes += each.cause.strip().split("\n", 1)[:1]
    return "; ".join(filter(None, notes))


def _fitted(text: str, width: int, *, right: bool) -> str:
    text = _cut(text, width)
    return f"{text:>{width}}" if right else f"{text:<{width}}"


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: max(1, width - 1)]}…"


def _json(each: Listed) -> str:
    told = asdict(each)
    job, path = told.pop("job_id"), told.pop("path")
    return json.dumps({"v": VERSION, "job": job, **told, "after": each.after or None, "journal": str(path)})
