"""Says beforehand what a resume would do: nothing is taken over, run or changed."""

from __future__ import annotations

from dataclasses import replace

from firesteel.compile.compiled import CompiledJob
from firesteel.errors import UsageError
from firesteel.options import RECOVERY_DRY_RUN, RESULTS_REUSE, Options, retaining
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.takeover import FoundJob, JobsBelow
from firesteel.scheduler.recovery.replay import Diverged
from firesteel.spark.recovery.corrections.corrected import correction_of
from firesteel.spark.recovery.corrections.reused import check_reuse, reused
from firesteel.spark.recovery.header import JobIdentity, header_of, prints_of
from firesteel.spark.recovery.resuming import Resume, goes_on, obstacles, rebuilt, recovery_mode, wanted_of
from firesteel.spark.recovery.runs import BEGAN, script_run
from firesteel.spark.storage.directories import kept_folder, storage_root
from firesteel.spark.storage.reaching import told_of


def dry_run(compiled: CompiledJob, options: Options, resume: Resume) -> str:
    """Lines for people. Raises UsageError where there is nothing to resume."""
    options = retaining(options)
    identity, mode = JobIdentity.of_next_job(), recovery_mode(options)
    wanted = None if mode == "off" else wanted_of(options, resume, mode)
    if wanted is None and options[RESULTS_REUSE]:
        return _used(compiled, options, identity)
    if wanted is None:
        raise UsageError(
            f"{RECOVERY_DRY_RUN.key} says what a resume would do, and none is asked for, or no log of jobs is written.",
            hint=f"Write firesteel resume JOB --dry-run, or set {RESULTS_REUSE.key} = true.",
        )
    root = kept_folder(storage_root(options, shared=False))
    with told_of(str(root)):
        run, jobs = script_run(root, identity.run), JobsBelow(root)
        if wanted.by_place:
            run.goes_on(identity, 0.0, jobs, job_id=wanted.job_id, by_itself=wanted.by_itself, takes=False)
            identity = replace(identity, run=run.name)
        past = run.past(identity.ordinal)
        is_done = past is not None and past.out != BEGAN
        found = None if is_done else wanted.find(jobs, identity, run, has_sinks=bool(compiled.sinks))
    if found is None:
        raise UsageError(
            f"The script's job {identity.ordinal + 1}, '{compiled.job_graph.name}', comes before the one to go on with, and a dry run runs nothing.",
            hint="A dry run needs a script whose first job is the one in question.",
        )
    prints = prints_of(compiled, options)
    present = header_of(compiled, options, found.job_id, identity, given=b"", prints=prints.plain)
    with told_of(str(root)):
        reasons = obstacles(compiled, found, present)
        if not reasons:
            try:
                return goes_on(rebuilt(compiled, options, found)).reason
            except (Diverged, DamagedLogError) as error:
                reasons = [str(error).rstrip(".")]
        correction = correction_of(found, present)
        lines = correction.lines(_stored(found))
    if not correction.keeps:
        return "\n".join([f"Nothing of job {found.job_id} is kept: {'; '.join(reasons)}.", *lines])
    return "\n".join([correction.reason(), *lines])


def _used(compiled: CompiledJob, options: Options, identity: JobIdentity) -> str:
    """Of a new job, what it would use of others."""
    root = None if recovery_mode(options) == "off" else kept_folder(storage_root(options, shared=False))
    check_reuse(root)
    assert root is not None
    present = header_of(compiled, options, "", identity, given=b"", prints=prints_of(compiled, options).plain)
    with told_of(str(root)):
        found = reused(root, present, identity.place(compiled.job_graph))
        found.leave(finished=False)
    return "\n".join([found.decision().reason, *found.lines()])


def _stored(found: FoundJob) -> list[str]:
    return [path.name for path in found.directory.iterdir()]
