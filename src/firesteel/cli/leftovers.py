"""Commands about what jobs leave: kept results (``results``, ``clean``), half published outputs (``recover``), unfinished jobs (``resume``)."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firesteel.cli.shared import (
    Config,
    Job,
    Master,
    OptionPairs,
    Quiet,
    agreed,
    can_ask,
    given_options,
    no_script,
    show,
    table,
)
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from firesteel.api.leftovers import KeptJob, KeptRun, LeftOver, Leftover


VERSION = 1
_RIGHT = ("finished", "size", "stored")


def results(
    job: Annotated[
        str | None, typer.Argument(help="A job's id, its beginning, or 'last'; without: a list of all jobs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
    option: OptionPairs = None,
) -> None:
    """List the results that are kept so that jobs can be resumed, or, of jobs that have finished, used by others.

    Of all jobs, or of one with its steps: how much of it had finished, how large its results are, until when they are kept, of which
    script they are, and why nobody could go on with it. The storage is that of -O firesteel.storage.directory.
    """
    from firesteel.api.leftovers import KeptResults

    kept = KeptResults(given_options(option))
    jobs = kept.jobs() if job is None else [kept.job(job)]
    runs = kept.runs() if job is None else []
    if as_json:
        objects = [*(_json(each, with_steps=job is not None) for each in jobs), *map(_run_json, runs)]
        all(show(json.dumps(one)) for one in objects)  # until nobody reads any more
    elif job is not None:
        show("\n".join(_described(jobs[0])))
    elif jobs or runs:
        show("\n".join([*(_listed(jobs) if jobs else ()), *map(_run_words, runs)]))
    else:
        show(f"There are no results of jobs that could be resumed or used in {kept.root}.")


def state_of(job: KeptJob) -> str:
    """In a word or two."""
    from firesteel.api.leftovers import Owner

    if job.has_ended and job.told is not None:
        return job.told.ended.lower()
    return {
        Owner.ALIVE: "running",
        Owner.KEPT: "driver died",
        Owner.DEAD: "no longer kept",
        Owner.ELSEWHERE: "elsewhere",
        Owner.UNKNOWN: "unknown",
    }[job.left.owner]


def _listed(jobs: Sequence[KeptJob]) -> Iterator[str]:
    from firesteel.api.leftovers import bytes_of

    columns = ("job", "name", "state", "finished", "size", "written", "kept for", "script")
    rows = [
        (
            job.job_id,
            "" if job.found is None else job.found.header.job_name,
            state_of(job),
            _finished(job),
            format_bytes(job.left.bytes),
            f"{_age(job.left)} ago",
            _kept_for(job.left),
            "" if job.found is None else _script(job.found.header),
        )
        for job in jobs
    ]
    lines = table(columns, rows, _RIGHT)
    yield next(lines)
    for job, line in zip(jobs, lines, strict=True):
        yield line
        if not job.is_running and not job.has_finished and (said := job.obstacle() or _anew(job)):
            yield f"    {said}"
    yield f"{plural(len(jobs), 'job')}, {format_bytes(bytes_of(jobs))}."


def _run_words(run: KeptRun) -> str:
    names = ", ".join(f"'{past.header.job_name}'" for past in run.jobs)
    said = f"Of {_script(run.header)}, {'the job' if len(run.jobs) == 1 else 'the jobs'} {names} began to publish, "
    if run.is_running:
        return f"{said}and it runs."
    seconds = _kept_for(run.left)
    return (
        f"{said}which is remembered{seconds and f' for {seconds}'}: 'firesteel run --resume' does not publish it again."
    )


def _described(job: KeptJob) -> Iterator[str]:
    header = None if job.found is None else job.found.header
    yield f"Job {job.job_id}" + ("" if header is None else f" '{header.job_name}'")
    if job.found is not None and header is not None:
        yield f"  script    {_script(header) or 'none: a notebook, or Python at a terminal'}"
        driver = job.found.driver
        yield f"  driver    {driver.epoch}, process {driver.pid} on {driver.host.split(' ')[0]}, last heard of {_age(job.left)} ago: {state_of(job)}"
    yield f"  kept      {format_bytes(job.left.bytes)} in {job.directory}{_until(job.left)}"
    yield f"  resume    {_resume(job)}"
    if job.told is None:
        return
    for output in job.told.outputs:
        yield f"  output    '{output.name}': {'staged' if output.step == 'begun' else output.step}"
    stored = job.stored()
    columns = ("step", "finished", "objects", "stored")
    rows: list[tuple[str, ...]] = []
    for step in job.told.steps:
        objects, size = stored.get(step.vertex, (0, 0))
        known = "?" if step.subtasks is None else format_count(step.subtasks)
        rows.append(
            (
                f"[{step.vertex}] {step.name}",
                f"{format_count(len(step.finished))} of {known}",
                format_count(objects),
                format_bytes(size),
            )
        )
    yield from table(columns, rows, _RIGHT)


def _finished(job: KeptJob) -> str:
    return "" if job.told is None else f"{format_count(job.told.finished)} of {format_count(job.told.subtasks)}"


def _age(left: LeftOver) -> str:
    return format_seconds(max(0.0, time.time() - left.at))


def _kept_for(left: LeftOver) -> str:
    return "" if left.kept is None else format_seconds(max(0.0, left.kept))


def _until(left: LeftOver) -> str:
    if left.until is None:
        return ""
    return time.strftime(", until %Y-%m-%d %H:%M", time.localtime(left.until)) + f" ({_kept_for(left)} left)"


def _script(header: Any) -> str:
    return shlex.join([header.script, *header.arguments]) if header.script else ""


def _anew(job: KeptJob) -> str:
    changes = job.changes()
    return f"it would begin anew here: {'; '.join(changes)}" if changes else ""


def _resume(job: KeptJob) -> str:
    if obstacle := job.obstacle():
        return f"no: {obstacle}"
    if anew := _anew(job):
        return anew
    if job.found is None or not job.found.header.script:
        return f"execute(..., resume={job.job_id!r}), with the same steps and inputs"
    header = job.found.header
    return f"firesteel run --resume {job.job_id} {_script(header)}, with the options that it had (-O), unless it or its inputs have changed"


def _run_json(run: KeptRun) -> dict[str, Any]:
    return {
        "v": VERSION,
        "kind": "run",
        "script": run.header.script,
        "arguments": run.header.arguments,
        "state": "running" if run.is_running else "ended",
        "written": run.left.at,
        "until": run.left.until,
        "jobs": [
            {"ordinal": past.header.ordinal, "job": past.job_id, "name": past.header.job_name, "out": past.out}
            for past in run.jobs
        ],
    }


def _json(job: KeptJob, *, with_steps: bool) -> dict[str, Any]:
    header = None if job.found is None else job.found.header
    told = job.told
    found: dict[str, Any] = {
        "v": VERSION,
        "kind": "job",
        "job": job.job_id,
        "name": None if header is None else header.job_name,
        "state": state_of(job),
        "script": None if header is None or not header.script else header.script,
        "arguments": [] if header is None else header.arguments,
        "directory": str(job.directory),
        "bytes": job.left.bytes,
        "files": job.left.files,
        "written": job.left.at,
        "until": job.left.until,
        "drivers": None if told is None else told.drivers,
        "finished": None if told is None else told.finished,
        "subtasks": None if told is None else told.subtasks,
        "resumable": not job.obstacle() and not job.changes(),
        "why_not": job.obstacle() or "; ".join(job.changes()) or None,
    }
    if told is None or not with_steps:
        return found
    stored = job.stored()
    found["steps"] = [
        {
            "vertex": step.vertex,
            "name": step.name,
            "finished": len(step.finished),
            "subtasks": step.subtasks,
            "objects": stored.get(step.vertex, (0, 0))[0],
            "bytes": stored.get(step.vertex, (0, 0))[1],
        }
        for step in told.steps
    ]
    found["outputs"] = [{"vertex": o.vertex, "name": o.name, "step": o.step} for o in told.outputs]
    return found


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
    options = given_options(option)
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
    from firesteel.api.leftovers import Leftovers

    try:
        places = Leftovers(options)
        found = places.found()
    except OSError as error:
        raise FiresteelError(f"The storage of results cannot be listed: {str(error).rstrip('.')}.") from error

    def item(each: LeftOver) -> Item:
        ago = f", last written {_age(each)} ago" if each.at else ""
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
    from firesteel.api.leftovers import KeptResults, Owner

    places = KeptResults(options)

    def item(job: KeptJob) -> Item:
        ago = f", last written {_age(job.left)} ago"
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
    from firesteel.api.leftovers import Owner

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


def recover(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Directories of files or tables that jobs wrote to.")
    ],
    dead: Annotated[
        bool,
        typer.Option("--dead", help="Also of jobs of other machines: you know that they do not run any more."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Take back what killed jobs had published half.

    What mode="overwrite", "overwrite_partitions" or merge_parquet had put aside goes back to its place, and what had come in its place
    is removed. What a running job owns is never touched. The next job that writes there does the same by itself.
    """
    left = [_recovered(path, dead=dead, dry_run=dry_run) for path in paths]
    if any(left):
        raise typer.Exit(1)


def _recovered(path: str, *, dead: bool, dry_run: bool) -> bool:
    """Returns True if something is left there. Raises FiresteelError."""
    from firesteel.api.leftovers import Owner, unpublished

    label, found = unpublished(path)
    if not found:
        show(f"{label}: nothing is left over.")
    left = False
    for one in found:
        try:
            owner = one.owner()
            may_go = owner is Owner.DEAD or (dead and owner is not Owner.ALIVE)
            if may_go:
                show(f"{label}: {_taken_back(one, dry_run=dry_run)}")
        except OSError as error:
            raise FiresteelError(f"{label}: what job {one.job_id} left cannot be taken back: {error}.") from error
        if not may_go:
            left = True
            hint = (
                ""
                if owner is Owner.ALIVE
                else " Nobody can tell from here whether it runs: if it does not, add --dead."
            )
            show(f"{label}: what job {one.job_id} left is kept: {owner.value}.{hint}")
    return left


def _taken_back(one: Leftover, *, dry_run: bool) -> str:
    """A sentence on what was done. Raises UsageError, OSError."""
    is_half = one.is_half
    if not dry_run:
        one.recover(keeps=True)
    if is_half:
        return f"what job {one.job_id} had changed and not completed {'would be' if dry_run else 'was'} taken back."
    return (
        f"what job {one.job_id} left beside it {'would be' if dry_run else 'was'} removed; the output itself is whole."
    )


def resume(
    *,
    job: Job,
    script: Annotated[
        str | None,
        typer.Option(
            "--script", metavar="FILE", help="The corrected script, if it lies elsewhere (default: the job's)."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would be kept, what would run again, and why."),
    ] = False,
    option: OptionPairs = None,
    config: Config = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a job that did not finish: its script, called as it was, keeps what is as it was.

    The same as 'firesteel run --resume JOB SCRIPT ARGUMENTS' with the job's -O options. Exit codes are those of 'run'.
    """
    from firesteel.api.environment import set_defaults
    from firesteel.api.leftovers import left_by
    from firesteel.cli.script import run_script
    from firesteel.options import RECOVERY_DRY_RUN, RECOVERY_RESUME, Layer, Options, Origin
    from firesteel.options.registry import ON_COMMAND_LINE

    given = given_options(option, quiet, config)
    left = left_by(job, given)
    path = Path(script or left.script)
    if not (script or left.script):
        raise UsageError(
            f"Job {left.job_id} was of no script, but typed in.",
            hint="Give the script by --script, or call execute(resume='JOB') where you type.",
        )
    if not path.is_file():
        raise no_script(str(path))
    had = {key: value for key, value in left.options.items() if given.origin(key).layer < Layer.COMMAND}
    own = {RECOVERY_RESUME.key: left.job_id, RECOVERY_DRY_RUN.key: dry_run}
    options = given.merged(Options(had, ON_COMMAND_LINE)).merged(Options(own, Origin(Layer.COMMAND, "resume")))
    set_defaults(master=master, options=options, local=None)
    raise typer.Exit(run_script(path, list(left.arguments)))
