"""``firesteel results``: what is kept of jobs whose driver died, how large it is, until when, and whether anybody can go on with it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firesteel.cli.shared import OptionPairs, given_options, show, table
from firesteel.humanize import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from firesteel.api.jobs.kept import KeptJob, KeptRun

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
    from firesteel.api.jobs.kept import KeptResults
    from firesteel.options import Options

    kept = KeptResults(Options(given_options(option)))
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
    from firesteel.api.jobs.kept import Owner

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
    from firesteel.api.jobs.kept import bytes_of

    columns = ("job", "name", "state", "finished", "size", "written", "kept for", "script")
    rows = [
        (
            job.job_id,
            "" if job.found is None else job.found.header.job_name,
            state_of(job),
            _finished(job),
            format_bytes(job.left.bytes),
            f"{_age(job)} ago",
            _kept_for(job),
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
    kept = "" if run.left.kept is None else f" for {format_seconds(max(0.0, run.left.kept))}"
    return f"{said}which is remembered{kept}: 'firesteel run --resume' does not publish it again."


def _described(job: KeptJob) -> Iterator[str]:
    header = None if job.found is None else job.found.header
    yield f"Job {job.job_id}" + ("" if header is None else f" '{header.job_name}'")
    if job.found is not None and header is not None:
        yield f"  script    {_script(header) or 'none: a notebook, or Python at a terminal'}"
        driver = job.found.driver
        yield f"  driver    {driver.epoch}, process {driver.pid} on {driver.host.split(' ')[0]}, last heard of {_age(job)} ago: {state_of(job)}"
    yield f"  kept      {format_bytes(job.left.bytes)} in {job.directory}{_until(job)}"
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


def _age(job: KeptJob) -> str:
    return format_seconds(max(0.0, time.time() - job.left.at))


def _kept_for(job: KeptJob) -> str:
    return "" if job.left.kept is None else format_seconds(max(0.0, job.left.kept))


def _until(job: KeptJob) -> str:
    if job.until is None:
        return ""
    return time.strftime(", until %Y-%m-%d %H:%M", time.localtime(job.until)) + f" ({_kept_for(job)} left)"


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
        "until": None if run.left.kept is None else time.time() + run.left.kept,
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
        "until": job.until,
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
