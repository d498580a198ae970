"""Finds the job to go on with, and rebuilds its scheduler from the log; says why where it cannot be."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.connectors.base import BEGUN, PUBLISHED, PUBLISHING
from firesteel.errors import UsageError
from firesteel.options import (
    RECOVERY_MODE,
    RECOVERY_RESUME,
    RETAIN_ON_FAILURE,
    STORAGE_DIR,
    STORAGE_FILESYSTEM,
    Options,
)
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.places import LOG
from firesteel.recovery.takeover import FoundJob, check_dead, find_job, find_jobs, is_surely_dead, take_over
from firesteel.scheduler.factory import create_scheduler
from firesteel.scheduler.kernel.commands import Command, JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery import codec
from firesteel.scheduler.recovery.given import Given
from firesteel.scheduler.recovery.records import LogHeader, NarrowedTo, SinkStep
from firesteel.scheduler.recovery.replay import Diverged, Replayed, replay
from firesteel.scheduler.recovery.side_inputs import SideInputs
from firesteel.scheduler.topology.executions import NO_ROW
from firesteel.spark.driver.narrowing import NarrowingDone
from firesteel.spark.recovery.beginning import (
    Beginning,
    DriverIdentity,
    FromNothing,
    GoesOn,
    NewLog,
    can_recover,
    last_step,
)
from firesteel.spark.recovery.header import JobIdentity, differences, header_of, prints_of
from firesteel.spark.storage.directories import JobStorage, open_root

_CAN_GO_ON = (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.FINISHED)

_ANEW = "Run the script without resuming to begin anew."

Resume = bool | str | None
"""True: the last job of this place in the script; text: the job with this id; None: as the options say."""


@dataclass(frozen=True)
class Opened:
    """The beginning that was found for a job. ``same``: the job that goes on; None: a new one. ``decisions``: why."""

    identity: JobIdentity
    prints: list[Any]
    same: SameJob | None = None
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class SameJob:
    """A job that was taken over, its scheduler as it was when the last record was written. ``carried``: what the driver has to carry out again."""

    found: FoundJob
    given: Given
    side_inputs: SideInputs
    replayed: Replayed
    carried: list[Command | NarrowingDone] = field(default_factory=list[Any])


def recovery_mode(options: Options) -> str:
    """Returns "off", "on-request" or "auto". Raises UsageError where what the options ask for cannot be."""
    mode, directory = options[RECOVERY_MODE], options[STORAGE_DIR]
    if options[STORAGE_FILESYSTEM] is not None or (directory is not None and "://" in directory):
        if mode in (None, "off"):
            return "off"
        raise UsageError(
            f"{RECOVERY_MODE.key} = {mode}: a job's log needs a directory of a file system, local or shared, and results lie at {directory}.",
            hint=f"Set {STORAGE_DIR.key} to such a directory, or {RECOVERY_MODE.key} to off.",
        )
    return mode or ("off" if directory is None else "on-request")


def retain_seconds(options: Options) -> float:
    """Returns for how long results are kept if the driver dies."""
    return 0.0 if recovery_mode(options) == "off" else options[RETAIN_ON_FAILURE]


def open_job(compiled: CompiledJob, options: Options, resume: Resume, root: Callable[[], str]) -> Opened:
    """Takes over the job that is to be resumed, if there is one. ``root``: gives the directory of results.

    Raises UsageError for one that was asked for by its id and is not this job, that still runs, or whose outputs may be out already.
    """
    identity = JobIdentity.of_next_job()
    mode = recovery_mode(options)
    wanted = _wanted(options, resume, mode)
    if wanted is None:
        return Opened(identity, [] if mode == "off" else prints_of(compiled))
    if mode == "off":
        raise UsageError(
            "There is nothing to resume from, for no log of jobs is written.",
            hint=f"Set {STORAGE_DIR.key} to a directory that lasts, or {RECOVERY_MODE.key} to on-request.",
        )
    prints = prints_of(compiled)
    directory = Path(open_root(root())[1])
    found = wanted.find(directory, identity, has_sinks=bool(compiled.sinks))
    if found is None:
        why = () if wanted.by_itself else (_anew("no job at its place in this script was left unfinished"),)
        return Opened(identity, prints, decisions=why)
    present = header_of(compiled, options, found.job_id, identity, given=b"", prints=prints)
    reasons = _obstacles(compiled, found, present)
    check_dead(found)
    _refuse_half_published(compiled, found, reasons)
    if not reasons:
        taken = take_over(found)
        JobStorage(str(directory), taken.job_id, "", epoch=taken.epoch, retain=retain_seconds(options)).claim()
        try:
            same = _rebuilt(compiled, options, taken)
            return Opened(identity, prints, same, (_goes_on(same),))
        except (Diverged, DamagedLogError) as error:
            reasons = [str(error).rstrip(".")]
            _refuse_half_published(compiled, found, reasons)
    if wanted.job_id is not None:
        raise UsageError(f"Job {found.job_id} cannot go on: {'; '.join(reasons)}.", hint=_ANEW)
    return Opened(identity, prints, decisions=(_anew(f"job {found.job_id} cannot go on: {'; '.join(reasons)}"),))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The job that is asked for. ``job_id``: None: the last one at this place of the script. ``by_place``: only at its place. ``by_itself``:
    nobody has asked: only if its driver is dead for certain."""

    job_id: str | None
    by_place: bool = True
    by_itself: bool = False

    def find(self, root: Path, identity: JobIdentity, *, has_sinks: bool) -> FoundJob | None:
        """Raises UsageError for an id of which there is nothing, and for a job with sinks that had finished where a later one broke off."""
        if self.job_id is None:
            left = [job for job in find_jobs(root) if identity.is_of_script(job.header)]
            left = [job for job in left if not self.by_itself or is_surely_dead(job)]
        else:
            left = [find_job(root, self.job_id)]
        if self.job_id is not None and not self.by_place:
            return left[0]
        last = left[-1] if left else None
        own = [job for job in left if job.header.ordinal == identity.ordinal]
        if not own and has_sinks and last is not None and identity.ordinal < last.header.ordinal:
            raise UsageError(
                f"Job {identity.ordinal + 1} of the script has finished and published its outputs before job {last.header.ordinal + 1} "
                f"({last.job_id}) broke off: run again, it would publish them twice.",
                hint="Resume a script whose jobs after the first have the sinks, or one that skips what it has done.",
            )
        return own[-1] if own else None


def _wanted(options: Options, resume: Resume, mode: str) -> _Wanted | None:
    if isinstance(resume, str):
        return _Wanted(resume, by_place=False)
    named = options[RECOVERY_RESUME]
    if resume is True or (resume is None and named == "last"):
        return _Wanted(None)
    if resume is None and named is not None:
        return _Wanted(named)
    return _Wanted(None, by_itself=True) if resume is None and mode == "auto" else None


def side_inputs_of(opened: Opened | None, options: Options) -> SideInputs | None:
    """Returns what writes down the side inputs of the job's scheduler; None: the job has no log."""
    if opened is None or recovery_mode(options) == "off":
        return None
    return SideInputs() if opened.same is None else opened.same.side_inputs


def beginning_of(
    opened: Opened | None,
    compiled: CompiledJob,
    options: Options,
    storage: JobStorage,
    *,
    given: Given,
    side_inputs: SideInputs | None,
    driver: DriverIdentity,
) -> Beginning:
    """``given``: what the scheduler was made with."""
    job_id, directory = storage.job_id, storage.directory
    if opened is None or side_inputs is None or directory is None:
        return FromNothing(job_id)
    log = NewLog(directory / LOG, driver, side_inputs)
    if opened.same is not None:
        log.read_until = opened.same.found.log.read
        return GoesOn(job_id, log, opened.same.replayed, opened.same.carried)
    encoded = codec.dump(given)
    log.header = header_of(compiled, options, job_id, opened.identity, given=encoded, prints=opened.prints)
    return FromNothing(job_id, log)


def _obstacles(compiled: CompiledJob, found: FoundJob, present: LogHeader) -> list[str]:
    """Why the present job cannot go on where the other was, in words; empty: it can."""
    reasons = differences(found.header, present)
    if compiled.dataframes:
        reasons.append("it reads DataFrames of Spark's, which nobody can compare with what they were")
    return reasons


def _rebuilt(compiled: CompiledJob, options: Options, taken: FoundJob) -> SameJob:
    """Raises Diverged."""
    try:
        given = codec.load(taken.header.given)
    except ValueError as error:
        raise Diverged(str(error)) from error
    if not isinstance(given, Given) or given.slot_mode is not None:
        raise Diverged("its slots have resources of their own, which were shared with other jobs")
    side_inputs = SideInputs()
    graph = compiled.copy().job_graph  # it changes in the replay
    scheduler = create_scheduler(graph, options, side_inputs=side_inputs, **given.arguments())
    carried: list[Command | NarrowingDone] = []

    def narrowed(fact: NarrowedTo) -> None:
        try:
            data = (taken.directory / LOG / fact.object).read_bytes()
            if hashlib.blake2b(data, digest_size=16).digest() != fact.digest:
                raise ValueError("it is damaged")
            carried.append(NarrowingDone(fact.vertex, pickle.loads(data)))
        except Exception as error:
            raise Diverged(f"what a source was narrowed to cannot be read: {error}") from error

    replayed = replay(scheduler, taken.log.entries, side_inputs, carry_out=carried.append, narrowed=narrowed)
    ended = replayed.outstanding.ended
    if scheduler.status not in _CAN_GO_ON or (ended is not None and ended.status is not JobStatus.FINISHED):
        raise Diverged(f"it was {scheduler.status.value}")
    out = {where for where, steps in replayed.outstanding.sink_steps.items() if last_step(steps) == PUBLISHED}
    sinks = [s for vertex, own in compiled.sinks.items() for k, s in enumerate(own) if (vertex, k) not in out]
    if replayed.outstanding.publishing is not None and not all(map(can_recover, sinks)):
        raise Diverged("its outputs were about to be published, by sinks that cannot take over what others have staged")
    return SameJob(taken, given, side_inputs, replayed, carried)


def _refuse_half_published(compiled: CompiledJob, found: FoundJob, reasons: Sequence[str]) -> None:
    """Raises UsageError where outputs of the job may be out, and nobody can say which: begun anew, it could publish them twice."""
    steps: dict[tuple[int, int], list[str]] = {}
    for record in (record for entry in found.log.entries for record in entry if isinstance(record, SinkStep)):
        steps.setdefault((record.vertex, record.sink), []).append(record.step)
    for (vertex, place), own in steps.items():
        if (step := last_step(own)) == BEGUN:
            continue
        sinks = compiled.sinks.get(vertex, ())
        sink = sinks[place] if place < len(sinks) else None
        if reasons or (step == PUBLISHING and not can_recover(sink)):
            why = "; ".join(reasons) or f"'{getattr(sink, 'name', 'its sink')}' cannot say what it has published"
            raise UsageError(
                f"Job {found.job_id} ('{found.header.job_name}') was publishing its outputs when its driver died, and cannot go on: {why}.",
                hint="Look at what is there, and run the script without resuming if it is to be published once more.",
            )


def _goes_on(same: SameJob) -> Decision:
    scheduler, driver = same.replayed.scheduler, same.found.driver
    vertices = [vertex for vertex in scheduler.graph.vertices if vertex.is_initialized]
    finished = sum(int((vertex.winner != NO_ROW).sum()) for vertex in vertices)
    subtasks = sum(vertex.parallelism for vertex in vertices)
    host = driver.host.split(" ")[0]
    reason = (
        f"Driver {same.found.epoch} goes on with the job of process {driver.pid} on {host}: {finished:,} of the "
        f"{subtasks:,} subtasks known by then had finished, and are kept as far as their results are there."
    )
    return Decision(at=0.0, what="resume", result="goes on", reason=reason)


def _anew(reason: str) -> Decision:
    return Decision(at=0.0, what="resume", result="begins anew", reason=f"The job begins anew: {reason}.")
