"""``firesteel clean``: lists what Firesteel left behind, with sizes, asks, and removes it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from firesteel.cli.shared import OptionPairs, agreed, can_ask, given_options, show
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import format_bytes, format_seconds, plural

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Item:
    """Something that may go."""

    what: str
    bytes: int
    remove: Callable[[], None]
    """Raises FiresteelError, OSError."""


def clean(
    *,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="With --results: only those of this job, by its id or the beginning of it."
        ),
    ] = None,
    results: Annotated[
        bool,
        typer.Option(
            "--results",
            help="Instead: results that are kept so that jobs can be resumed or used by others ('firesteel results').",
        ),
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Journals too, last written longer ago than this: 30d, 12h. With --results: only results of this age.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    option: OptionPairs = None,
) -> None:
    """Remove what killed jobs left behind.

    Results between steps on storage (that of -O firesteel.storage.directory, else the private one of this machine), what tasks
    spilled, and old journals. What a living job owns is never touched.
    """
    from firesteel.options import Options

    options = Options(given_options(option))
    age = None if older_than is None else age_of(older_than)
    if job is not None and (not results or age is not None):
        raise UsageError(
            f"'{job}' names a job, of which only results are removed, whatever their age.",
            hint=f"Write 'firesteel clean --results {job}'.",
        )
    if results:
        items, kept = _results(options, job, age)
    else:
        items, kept = _left_over(options)
        items += [] if age is None else list(_journals(options, age))
    for line in kept:
        show(line)
    if not items:
        show("No results are kept." if results else "Nothing is left over.")
        return
    total = f"{plural(len(items), 'thing')}, {format_bytes(sum(item.bytes for item in items))}"
    end = "Kept" if results else "Left over"
    show("\n".join([*(f"{format_bytes(item.bytes):>9}  {item.what}" for item in items), f"{end}: {total}."]))
    if dry_run:
        return
    if not yes and not _agreed():
        show("Nothing was removed.")
        raise typer.Exit(1)
    _remove(items)


def age_of(text: str) -> float:
    """Seconds: ``30d``, ``12 h``, ``2w``. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None:
        raise UsageError(f"--older-than {text} is not an age.", hint="Write, for example, 30d, 12h or 2w.")
    return float(match[1]) * unit


def _left_over(options: Any) -> tuple[list[Item], list[str]]:
    """The leftovers that may be removed, and sentences about the others."""
    from firesteel.api.jobs.leftovers import LeftOver, Leftovers

    try:
        places = Leftovers(options)
        found = places.found()
    except OSError as error:
        raise FiresteelError(f"The storage of results cannot be listed: {str(error).rstrip('.')}.") from error

    def item(each: LeftOver) -> Item:
        ago = f", last written {format_seconds(max(0.0, time.time() - each.at))} ago" if each.at else ""
        what = f"results of job {each.job_id} in {each.paths[0].rpartition('/')[0]}{ago}: {each.owner.value}"
        return Item(what, each.bytes, lambda: places.remove(each))

    kept: dict[str, list[LeftOver]] = {}
    for each in found:
        if not each.may_go:
            kept.setdefault(each.owner.value, []).append(each)
    said = [
        f"Kept: {format_bytes(sum(each.bytes for each in group))} of {plural(len(group), 'job')}: {why}."
        for why, group in kept.items()
    ]
    return [item(each) for each in found if each.may_go], said


def _results(options: Any, job_id: str | None, age: float | None) -> tuple[list[Item], list[str]]:
    """Results that may be removed, and sentences about the others. Raises UsageError for a job that has none, or that runs."""
    from firesteel.api.jobs.kept import KeptJob, KeptResults, Owner

    places = KeptResults(options)

    def item(job: KeptJob) -> Item:
        ago = f", last written {format_seconds(max(0.0, time.time() - job.left.at))} ago"
        half = ", ".join(f"'{output.name}'" for output in job.half_published)
        rest = f"; {half} may be half published, which 'firesteel recover' takes back" if half else ""
        return Item(f"results of job {job.job_id}{ago}{rest}", job.left.bytes, lambda: places.remove(job))

    if job_id is not None:
        job = places.job(job_id)
        if job.is_running:
            raise UsageError(f"The results of job {job.job_id} stay: {job.obstacle()}.", hint="Wait for its end.")
        return [item(job)], []
    jobs = places.jobs()
    dead = [job for job in jobs if job.left.owner in (Owner.KEPT, Owner.DEAD) or (job.has_ended and not job.is_running)]
    others = [job for job in jobs if job not in dead]
    said = [f"Stays: {format_bytes(job.left.bytes)} of job {job.job_id}: {_why_it_stays(job)}." for job in others]
    return [item(job) for job in dead if age is None or time.time() - job.left.at > age], said


def _why_it_stays(job: Any) -> str:
    from firesteel.api.jobs.kept import Owner

    elsewhere = (
        f"its driver is one of another machine; 'firesteel clean --results {job.job_id}' looks whether it still writes"
    )
    return elsewhere if job.left.owner is Owner.ELSEWHERE else job.left.owner.value


def _journals(options: Any, age: float) -> Iterator[Item]:
    """Of jobs and streams that do not run; other files may lie beside them."""
    from firesteel.journal.file import begins_like_a_journal
    from firesteel.journal.locks import is_held
    from firesteel.journal.places import has_a_journals_name, journals

    for path in journals(options):
        with suppress(OSError):
            stat = path.stat()
            ago = time.time() - stat.st_mtime
            is_ours = has_a_journals_name(path) or (stat.st_size > 0 and begins_like_a_journal(path))
            if ago > age and is_ours and is_held(path) is not True:
                yield Item(f"journal {path}, {format_seconds(ago)} old", stat.st_size, _journal_remover(path))


def _journal_remover(path: Path) -> Callable[[], None]:
    def remove() -> None:
        from firesteel.journal.locks import is_held

        if is_held(path) is True:
            raise FiresteelError(f"{path} is being written.")
        path.unlink(missing_ok=True)

    return remove


def _agreed() -> bool:
    """Raises UsageError where nobody can be asked."""
    if not can_ask():
        raise UsageError(
            "There is no terminal on which to confirm the removal.",
            hint="Use --yes to confirm, or --dry-run to list it only.",
        )
    return agreed("Remove it?")


def _remove(items: list[Item]) -> None:
    """Raises FiresteelError, once all were tried, if some could not be removed."""
    failed: list[str] = []
    freed = 0
    for item in items:
        try:
            item.remove()
            freed += item.bytes
        except (FiresteelError, OSError) as error:
            failed.append(str(error))
    show(f"Removed {plural(len(items) - len(failed), 'thing')}, {format_bytes(freed)}.")
    if failed:
        raise FiresteelError("\n".join(failed))
