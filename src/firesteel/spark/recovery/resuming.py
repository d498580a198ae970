"""Finds the job to go on with, and rebuilds its scheduler from the log; says why where it cannot be."""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.prints import JobPrints
from firesteel.connectors.base import BEGUN, PUBLISHED, PUBLISHING
from firesteel.errors import OutputExistsError, UsageError
from firesteel.extras import command
from firesteel.humanize import plural
from firesteel.options import (
    RECOVERY_DRY_RUN,
    RECOVERY_MODE,
    RECOVERY_RESUME,
    RESULTS_PURE,
    RESULTS_REUSE,
    RETAIN_ON_FAILURE,
    RETAIN_ON_SUCCESS,
    STORAGE_DIR,
    STORAGE_FILESYSTEM,
    Options,
    retaining,
)
from firesteel.recovery.exclusive import refusal
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG, RUN
from firesteel.recovery.takeover import (
    FoundJob,
    JobsBelow,
    check_dead,
    check_nobody_goes_on,
    end_job,
    find_job,
    find_jobs,
    is_surely_dead,
)
from firesteel.results.storage.filesystem import shown
from firesteel.scheduler.inputs import Inputs, SideInputs
from firesteel.scheduler.kernel.commands import Command, JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery import codec
from firesteel.scheduler.recovery.records import Kept, LogHeader, NarrowedTo
from firesteel.scheduler.recovery.replay import Diverged, Replayed, replay
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.topology.executions import NO_ROW
from firesteel.spark.driver.narrowing import NarrowingDone
from firesteel.spark.recovery.beginning import Beginning, DriverIdentity, FromNothing, GoesOn, NewLog, can_recover
from firesteel.spark.recovery.corrected import (
    CorrectedJob,
    Taking,
    corrected,
    correction_of,
    kept_in_words,
    left_of,
)
from firesteel.spark.recovery.deployments import Answered, Deployments, Port
from firesteel.spark.recovery.header import (
    FROM_NOTHING,
    NO_PRINTS,
    Before,
    JobIdentity,
    Prints,
    differences,
    header_of,
    prints_of,
)
from firesteel.spark.recovery.kept_objects import KeptObjects
from firesteel.spark.recovery.reused import ReusedJobs, check_reuse, lines_in_short, reused
from firesteel.spark.recovery.runs import BEGAN, NO_RUN, SOME, PastJob, PlaceInRun, ScriptRun, script_run
from firesteel.spark.storage.cleaning import quietly
from firesteel.spark.storage.directories import JobStorage, Reusable, kept_folder, storage_root, told_of
from firesteel.spark.storage.outputs import last_step, sink_steps, stays_out
from firesteel.task.executor.openings import Watch

_log = logging.getLogger("firesteel.recovery")
_said: set[str] = set()
"""What this process has said of functions."""
_CAN_GO_ON = (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.FINISHED)

BEGINS_ANEW, HAD_FINISHED = "begins anew", "had finished"
"""Results of a wish to resume a job where nothing was left to be done, or nothing could be gone on with."""

_ANEW = "Run the script without resuming to begin anew."

Resume = bool | str | None
"""True: the last job of this place in the script; text: the job with this id; None: as the options say."""


@dataclass(frozen=True)
class Opened:
    """The beginning that was found for a job. ``same``: the job that goes on; None: a new one, which uses what ``earlier`` have left. ``lines``: by
    which others find its results (``retention.LINES``); None: they may not. ``decisions``: why."""

    identity: JobIdentity
    prints: Prints
    same: SameJob | None = None
    decisions: tuple[Decision, ...] = ()
    past: PastJob | None = None
    """The job whose outputs are out already, so that nothing is left to do."""
    earlier: Earlier | None = None
    lines: tuple[str, ...] | None = None
    logs: bool = True
    """A log of the job is written; else nothing of it is to outlive its driver."""

    @property
    def origins(self) -> Mapping[int, str]:
        """Of the tokens of earlier drivers whose objects may be read (``FoundJob.origins``)."""
        if self.same is not None:
            return self.same.found.origins
        return {} if self.earlier is None else self.earlier.origins

    @property
    def before(self) -> Before:
        if self.same is not None:
            plan = self.same.found.header.plan
            return Before(plan.at, plan.after, tuple(plan.uses))
        return FROM_NOTHING if self.earlier is None else self.earlier.before

    def watch(self, options: Options) -> Watch | None:
        """For the workers: the vertices whose results may be kept."""
        if self.prints.job is None:
            return None
        kept = (vertex for vertex, one in enumerate(self.prints.job.vertices) if not one.unprovable)
        return Watch(options[RESULTS_PURE] or (), frozenset(kept))

    def given(self, given: Inputs) -> Inputs:
        """All that the scheduler of a new job is made with. A job that uses what earlier ones have left decides as those did."""
        return given if self.earlier is None else self.earlier.given(given)

    def reusable(self, job_id: str, token_base: int, options: Options) -> Reusable | None:
        """By which other jobs may use the results. ``token_base``: of this driver."""
        if self.lines is None:
            return None
        return Reusable(self.lines, {**self.origins, token_base: job_id}, options[RETAIN_ON_SUCCESS])

    def side_inputs(self) -> SideInputs | None:
        """Returns what writes down the side inputs of the job's scheduler; None: the job has no log."""
        if not self.logs:
            return None
        return SideInputs() if self.same is None else self.same.side_inputs

    def storage(
        self,
        compiled: CompiledJob,
        options: Options,
        root: str,
        job_id: str,
        *,
        token_base: int,
        filesystem: str | None,
        application: str,
    ) -> JobStorage:
        """Of the job, not made yet. ``token_base``: of its driver."""
        if not self.logs:
            return JobStorage(root, job_id, application, filesystem)
        return JobStorage(
            root,
            job_id,
            application,
            filesystem,
            epoch=1 if self.same is None else self.same.found.epoch,
            retain=retain_seconds(options),
            place=self.identity.place(compiled.job_graph),
            reusable=self.reusable(job_id, token_base, options),
        )

    def beginning(
        self,
        compiled: CompiledJob,
        options: Options,
        storage: JobStorage,
        *,
        given: Inputs,
        side_inputs: SideInputs | None,
        driver: DriverIdentity,
    ) -> Beginning:
        """``given``: what the scheduler was made with."""
        job_id, same, earlier = storage.job_id, self.same, self.earlier
        if side_inputs is None:
            return FromNothing(job_id)
        directory = storage.folder
        log = NewLog(directory / LOG, driver, side_inputs, self.prints.job, retains=self.lines is not None)
        run = script_run(directory.parent, self.identity.run)
        if same is not None:
            header = same.found.header
            log.read_until = same.found.log.read
        else:
            own = replace(self.identity, run=run.name)
            about: dict[str, Any] = {"given": codec.dump(given), "prints": self.prints.plain, "before": self.before}
            log.header = header = header_of(compiled, options, job_id, own, **about)
        in_run = run.place(header, self.identity.ordinal, retain_seconds(options)) if compiled.sinks else NO_RUN
        if same is not None:
            return GoesOn(job_id, log, same.replayed, same.carried, in_run=in_run)
        if earlier is None:
            return FromNothing(job_id, log, in_run=in_run)
        return FromEarlier(
            job_id=job_id,
            log=log,
            at=self.before.at,
            in_run=AloneInRun(in_run, earlier),
            earlier=earlier,
            kept=earlier.kept(directory),
            store=storage.store,
        )


WITHOUT_LOG = Opened(JobIdentity("", (), "", 0), NO_PRINTS, logs=False)
"""A new job of which nothing is to outlive its driver."""


@dataclass(frozen=True)
class SameJob:
    """A job that was taken over, its scheduler as it was when the last record was written. ``carried``: what the driver has to carry out again."""

    found: FoundJob
    given: Inputs
    side_inputs: SideInputs
    replayed: Replayed
    carried: list[Command | NarrowingDone] = field(default_factory=list[Any])


def recovery_mode(options: Options) -> str:
    """Returns "off", "on-request" or "auto". Raises UsageError where what the options ask for cannot be."""
    mode, directory = options[RECOVERY_MODE], options[STORAGE_DIR]
    if options[STORAGE_FILESYSTEM] is not None or (directory is not None and "://" in directory):
        if mode == "off" or (mode is None and not options[RESULTS_REUSE]):
            return "off"
        own = options[STORAGE_FILESYSTEM]
        why = refusal(directory or "") if own is None else f"{own} opens it"
        if why:
            asked = f"{RESULTS_REUSE.key} = true" if mode is None else f"{RECOVERY_MODE.key} = {mode}"
            raise UsageError(
                f"{asked}: a job's log needs a directory of a file system, or S3, and results lie at {shown(directory or '')}: {why}.",
                hint=f"Set {STORAGE_DIR.key} to such a place (for S3: {command('s3')}), or {f'{RESULTS_REUSE.key} to false' if mode is None else f'{RECOVERY_MODE.key} to off'}.",
            )
        return mode or "on-request"
    return mode or ("off" if directory is None and not options[RESULTS_REUSE] else "on-request")


def retain_seconds(options: Options) -> float:
    """Returns for how long results are kept if the driver dies."""
    return 0.0 if recovery_mode(options) == "off" else options[RETAIN_ON_FAILURE]


def open_job(compiled: CompiledJob, options: Options, resume: Resume, root: Callable[[], str]) -> Opened:
    """Takes over the job that is to be resumed, if there is one; a new job uses what others have left, if it may. ``root``: gives the directory of results.

    Raises UsageError for one that was asked for by its id and is not this job, that still runs, or whose outputs may be out already; and where
    results are to be used again that cannot be.
    """
    if not options[RESULTS_REUSE]:
        return _open_job(compiled, options, resume, root)
    directory = None if recovery_mode(options) == "off" else kept_folder(root())
    check_reuse(directory)
    assert directory is not None
    opened = _open_job(compiled, options, resume, root)
    if opened.past is not None:
        return opened
    identity, prints = opened.identity, opened.prints.plain
    present = header_of(compiled, options, "", identity, given=b"", prints=prints)
    _say_unknown(compiled, opened.prints.job)
    opened = replace(opened, lines=lines_in_short(present))
    if opened.same is not None or opened.earlier is not None:
        return opened
    with told_of(str(directory)):
        found = reused(directory, present, identity.place(compiled.job_graph))
    earlier = found if found.jobs else None
    return replace(opened, earlier=earlier, decisions=(*opened.decisions, found.decision()))


def _say_unknown(compiled: CompiledJob, prints: JobPrints | None) -> None:
    """Names each function whose results are never used again because of what it uses, once in this process."""
    if prints is None:
        return
    for vertex, one in zip(compiled.job_graph.vertices, prints.vertices, strict=True):
        for why in one.unprovable:
            if why in prints.known.impure and why not in _said:
                _said.add(why)
                _log.warning("'%s' %s: its results are computed again in every job.", vertex.name, why)


def _open_job(compiled: CompiledJob, options: Options, resume: Resume, root: Callable[[], str]) -> Opened:
    identity, mode = JobIdentity.of_next_job(), recovery_mode(options)
    wanted = wanted_of(options, resume, mode)
    if wanted is None:
        _refuse_taken(compiled)
        return WITHOUT_LOG if mode == "off" else Opened(identity, prints_of(compiled, options))
    if mode == "off":
        raise UsageError(
            "There is nothing to resume from, for no log of jobs is written.",
            hint=f"Set {STORAGE_DIR.key} to a directory that lasts, or {RECOVERY_MODE.key} to on-request.",
        )
    prints = prints_of(compiled, options)
    directory = kept_folder(root())
    with told_of(str(directory)):
        run, jobs = script_run(directory, identity.run), JobsBelow(directory)
        if wanted.by_place:
            run.goes_on(identity, retain_seconds(options), jobs, job_id=wanted.job_id, by_itself=wanted.by_itself)
            identity = replace(identity, run=run.name)
            past = run.past(identity.ordinal)
            if past is not None and past.out != BEGAN:
                present = header_of(compiled, options, past.job_id, identity, given=b"", prints=prints.plain)
                reasons = _others(compiled, past.header, present) if past.header.prints else ["no more is known of it"]
                _check_published(past, reasons)
                _remove_rest(directory, past)
                return Opened(identity, prints, decisions=(_published(past),), past=past)
        found = wanted.find(jobs, identity, run, has_sinks=bool(compiled.sinks))
        if found is None:
            why = () if wanted.by_itself else (_anew("no job at its place in this script was left unfinished"),)
            _refuse_taken(compiled, *why)
            return Opened(identity, prints, decisions=why)
        present = header_of(compiled, options, found.job_id, identity, given=b"", prints=prints.plain)
        check_dead(found)
        check_nobody_goes_on(jobs, found)
        taking = Taking(directory, retain_seconds(options), identity.place(compiled.job_graph))
        reasons = obstacles(compiled, found, present)
        _refuse_half_published(compiled, found, reasons)
        is_taken, use = not reasons, None
        if is_taken:
            found, use = taking.take(found)
            try:
                same = rebuilt(compiled, options, found)
                if use is not None:  # it is this driver's own by now
                    use.end()
                return Opened(identity, prints, same, (*kept_before(same), goes_on(same)))
            except (Diverged, DamagedLogError) as error:
                reasons = [str(error).rstrip(".")]
                _refuse_half_published(compiled, found, reasons)
        correction = correction_of(found, present)
        if correction.keeps:
            _refuse_taken(compiled)
            if not is_taken:
                found, use = taking.take(found)
                correction = replace(correction, found=found)
            decision = Decision(at=0.0, what="resume", result="goes on from", reason=correction.reason())
            return Opened(identity, prints, decisions=(decision,), earlier=corrected(compiled, correction, taking, use))
        if wanted.job_id is not None:
            raise UsageError(f"Job {found.job_id} cannot go on: {'; '.join(reasons)}.", hint=_ANEW)
        anew = _anew(f"job {found.job_id} cannot go on: {'; '.join(reasons)}")
        _refuse_taken(compiled, anew)
        return Opened(identity, prints, decisions=(anew,))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The job that is asked for. ``job_id``: None: the last one at this place of the script. ``by_place``: only at its place. ``by_itself``:
    nobody has asked: only if its driver is dead for certain."""

    job_id: str | None
    by_place: bool = True
    by_itself: bool = False

    def find(self, jobs: JobsBelow, identity: JobIdentity, run: ScriptRun, *, has_sinks: bool) -> FoundJob | None:
        """``identity``: in the run that goes on. Raises UsageError for an id of which there is nothing, and where nobody can tell whether the job has published its outputs."""
        if self.job_id is not None and not self.by_place:
            return _unfinished(find_job(jobs.root, self.job_id))
        left = [job for job in jobs.find() if job.header.run == identity.run]
        if self.by_itself:
            left = [job for job in left if is_surely_dead(job)]
        own = [job for job in left if job.header.ordinal == identity.ordinal]
        past = run.past(identity.ordinal)
        if past is not None:
            own = [job for job in own if job.job_id == past.job_id]
            if not own:
                raise UsageError(
                    f"{_named(past)} was publishing its outputs when its driver died, and what was kept of it is gone.",
                    hint="Look at what is there, and run the script without resuming if it is to be published once more.",
                )
        later = [job for job in left if job.header.ordinal > identity.ordinal]
        if not own and has_sinks and later and not run.is_known:
            raise UsageError(
                f"Job {identity.ordinal + 1} of the script has finished and published its outputs before job {later[-1].header.ordinal + 1} "
                f"({later[-1].job_id}) broke off: run again, it would publish them twice.",
                hint="Resume a script whose jobs after the first have the sinks, or one that skips what it has done.",
            )
        named = [job for job in own if job.job_id == self.job_id]
        return [None, *own, *named][-1]


def wanted_of(options: Options, resume: Resume, mode: str) -> Wanted | None:
    """``mode``: as ``recovery_mode`` gives it. None: a new job begins."""
    if isinstance(resume, str):
        return Wanted(resume, by_place=False)
    named = options[RECOVERY_RESUME]
    if resume is True or (resume is None and named == "last"):
        return Wanted(None)
    if resume is None and named is not None:
        return Wanted(named)
    return Wanted(None, by_itself=True) if resume is None and mode == "auto" else None


def obstacles(compiled: CompiledJob, found: FoundJob, present: LogHeader) -> list[str]:
    """Reasons for which the present job cannot go on where the other was, in words; empty: it can."""
    reasons = [] if found.ended is None else [f"it ended as {found.ended.status}"]
    return [*reasons, *_others(compiled, found.header, present)]


def _others(compiled: CompiledJob, then: LogHeader, present: LogHeader) -> list[str]:
    """In which the present job is not the other one, in words."""
    reasons = differences(then, present)
    if compiled.dataframes:
        reasons.append("it reads DataFrames of Spark's, which nobody can compare with what they were")
    return reasons


def rebuilt(compiled: CompiledJob, options: Options, taken: FoundJob) -> SameJob:
    """Raises Diverged, DamagedLogError."""
    try:
        given = codec.load(taken.header.given)
    except ValueError as error:
        raise Diverged(str(error)) from error
    if given.slot_mode is not None:
        raise Diverged("its slots have resources of their own, which were shared with other jobs")
    side_inputs = SideInputs()
    graph = compiled.copy().job_graph  # it changes in the replay
    scheduler = create_scheduler(graph, options, given, side_inputs)
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
    for (vertex, place), told in sink_steps(found.log.entries).items():
        own = [step for step, _ in told]
        step = last_step(own)
        if found.ended is not None and stays_out(own):
            raise UsageError(
                f"Job {found.job_id} ('{found.header.job_name}') has published a part of its outputs before it failed: run again, it would publish "
                "them twice.",
                hint="Look at what is there, and run the script without resuming if it is to be published once more.",
            )
        if found.ended is not None or step == BEGUN:
            continue
        sinks = compiled.sinks.get(vertex, ())
        sink = sinks[place] if place < len(sinks) else None
        if reasons or (step == PUBLISHING and not can_recover(sink)):
            why = "; ".join(reasons) or f"'{getattr(sink, 'name', 'its sink')}' cannot say what it has published"
            raise UsageError(
                f"Job {found.job_id} ('{found.header.job_name}') was publishing its outputs when its driver died, and cannot go on: {why}.",
                hint="Look at what is there, and run the script without resuming if it is to be published once more.",
            )


def _unfinished(found: FoundJob) -> FoundJob:
    """Raises UsageError for a job that has finished."""
    if found.has_finished:
        raise UsageError(
            f"Job {found.job_id} ('{found.header.job_name}') has finished: there is nothing to go on with.",
            hint=f"With {RESULTS_REUSE.key} = true, jobs use what is there of it.",
        )
    return found


def _refuse_taken(compiled: CompiledJob, *anew: Decision) -> None:
    """Raises UsageError where a new job would write to an output that exists already: of the job that goes on it may be the own one. ``anew``:
    why the job is a new one, for users who have asked for an earlier one."""
    if compiled.taken:
        taken = compiled.taken[0]
        raise OutputExistsError(" ".join([*(decision.reason for decision in anew), taken.message]), hint=taken.hint)


def _check_published(past: PastJob, reasons: Sequence[str]) -> None:
    """Raises UsageError for a job that may not be taken for the one whose outputs are out."""
    if past.out == SOME:
        raise UsageError(
            f"{_named(past)} failed when some of its outputs were out and others were not, and cannot go on.",
            hint="Look at what is there, and run the script without resuming if it is to be published once more.",
        )
    if reasons:
        raise UsageError(
            f"{_named(past)} has published its outputs, and is not what it was: {'; '.join(reasons)}.",
            hint="Run the script as it was, or without resuming if the outputs of this job are to be published once more.",
        )


def _remove_rest(root: Path | ObjectPath, past: PastJob) -> None:
    """Its driver may have died before it had tidied up. What another job uses is left to its time."""
    for job in find_jobs(root):
        if job.job_id != past.job_id or not is_surely_dead(job):
            continue
        quietly(lambda job=job: _remove(root, end_job(job)))
    run = JobStorage(str(root), f"{RUN}{past.header.run}", "")
    run.sweep()  # also what is no job any more: its driver may have died when only a mark was left


def _remove(root: Path | ObjectPath, job: FoundJob | None) -> None:
    """None: somebody uses it."""
    if job is None:
        return
    storage = JobStorage(str(root), job.job_id, "", epoch=job.epoch)
    storage.claim()  # the marks of earlier drivers go with it
    storage.remove()


def _published(past: PastJob) -> Decision:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(past.wall))
    reason = f"{_named(past)} published its outputs on {when}: nothing is computed or published again."
    return Decision(at=0.0, what="resume", result=HAD_FINISHED, reason=reason)


def _named(past: PastJob) -> str:
    return f"Job {past.header.ordinal + 1} of the script ('{past.header.job_name}', {past.job_id})"


def goes_on(same: SameJob) -> Decision:
    """The word on what is kept of it, and what runs."""
    scheduler, driver, header = same.replayed.scheduler, same.found.driver, same.found.header
    vertices = [vertex for vertex in scheduler.graph.vertices if not vertex.is_absorbed]
    finished = [int((vertex.winner != NO_ROW).sum()) if vertex.is_initialized else 0 for vertex in vertices]
    known = [vertex.parallelism if vertex.is_initialized else 0 for vertex in vertices]
    runs = [
        left_of(vertex.job.name, done, of)
        for vertex, done, of in zip(vertices, finished, known, strict=True)
        if done < of or not of
    ]
    host = driver.host.split(" ")[0]
    reason = (
        f"Driver {same.found.epoch} goes on with job {header.job_id} ('{header.job_name}') of process {driver.pid} on {host}: "
        f"{kept_in_words(sum(finished), sum(known), runs)}"
    )
    return Decision(at=0.0, what="resume", result="goes on", reason=reason)


def kept_before(same: SameJob) -> list[Decision]:
    """The word on what the job's first driver had kept from other jobs: its journal is gone."""
    plan, kept = same.found.header.plan, Counter[int]()
    for record in (record for entry in same.found.log.entries for record in entry if isinstance(record, Kept)):
        kept[record.vertex] += len(record.subtasks) // 4
    others = [plan.after] if plan.after else plan.uses
    if not others:
        return []
    vertices = same.replayed.scheduler.job_graph.vertices
    listed = ", ".join(f"{count:,} of '{vertices[vertex].name}'" for vertex, count in sorted(kept.items()))
    went = "went on from" if plan.after else "used results of"
    reason = f"The job {went} {'job' if len(others) == 1 else 'jobs'} {', '.join(others)}, of which it kept {plural(kept.total(), 'subtask')}: {listed or 'none yet'}."
    return [Decision(at=0.0, what="resume", result=went, inputs={"job": others[0]}, reason=reason)]


def _anew(reason: str) -> Decision:
    return Decision(at=0.0, what="resume", result=BEGINS_ANEW, reason=f"The job begins anew: {reason}.")


Earlier = CorrectedJob | ReusedJobs
"""Jobs whose results a new job uses. ``origins``: of the tokens of these (``FoundJob.origins``); ``bases``: of the tokens that were used; ``staged``: what its sinks take over, by
vertex and place; ``given``: all that its scheduler is made with, from what it would be otherwise; ``kept``: the objects, for the job in the directory; ``abandon``
removes what was staged and nobody takes over; ``check_held`` raises FiresteelError where the new job may not publish, for another goes on from the same;
``leave``: the new job is over. Never raises."""


@dataclass(frozen=True, slots=True)
class AloneInRun(PlaceInRun):
    """The new job as one of its script's, which publishes only while nobody else goes on from the same."""

    in_run: PlaceInRun
    earlier: Earlier

    def publishing(self) -> None:
        self.earlier.check_held()
        self.in_run.publishing()

    def over(self, out: str, journal: Path | None) -> None:
        self.in_run.over(out, journal)


@dataclass(eq=False, kw_only=True)
class FromEarlier(FromNothing):
    """``store``: the present job's."""

    earlier: Earlier
    kept: KeptObjects
    store: Any
    _abandoned: bool = field(default=False, init=False)

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        """Takes over what was staged for an equal sink; all others begin anew."""
        if not self._abandoned:
            self._abandoned = True
            self.earlier.abandon()
        staged = self.earlier.staged.get((vertex, place))
        if staged is None or self.log is None:
            super().begin_sink(vertex, place, sink)
            return
        try:
            winners = [pickle.loads(one.commits[place]) for one in staged.executions]
            found = sink.recover(self.job_id, winners, json.loads(staged.state), step=BEGUN)
        except Exception:  # the storage does not answer, say
            _log.debug("what was staged for '%s' is not taken over", sink.name, exc_info=True)
            self.kept.strike(staged.executions)
            super().begin_sink(vertex, place, sink)
            return
        self.kept.strike([staged.executions[k] for k in found.missing])
        self.log.begun(vertex, place, sink)

    def deployments(self, compiled: CompiledJob, port: Port) -> Deployments:
        assert self.log is not None
        return Answered(self.log.noted(compiled, port), compiled, self.kept, self.store, port)


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
