"""Runs of scripts: which of a script's jobs have published their outputs, so that a resume does not publish them again.

A script may run several jobs, and of one that has finished nothing is kept. So before a job publishes, its header goes to the log of the run, and
after it that it has; a resume takes the run over before it takes over any job. The log lies beside the jobs, is kept as long as what they leave, and goes
when the script ends well.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from firesteel.errors import FiresteelError, UsageError
from firesteel.journal.file import read
from firesteel.journal.lookup import find
from firesteel.journal.places import id_of
from firesteel.options import STORAGE_DIR, Options
from firesteel.options.registry import ON_COMMAND_LINE
from firesteel.recovery.files import open_log, read_log
from firesteel.recovery.frames import frame
from firesteel.recovery.log import FencedError, LogFile
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG, RUN
from firesteel.recovery.takeover import (
    FoundJob,
    JobsBelow,
    check_dead,
    find_job,
    find_runs,
    is_surely_dead,
    owner,
    removed_just_now,
    take_over,
    written,
)
from firesteel.results.storage.owner import Owner, myself
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan, Ended, JobOver, LogHeader, encode_records
from firesteel.spark.recovery.header import JobIdentity
from firesteel.spark.storage.cleaning import quietly
from firesteel.spark.storage.directories import JobStorage, kept_folder, told_of

BEGAN, ALL, SOME, NONE = "began", "all", "some", "none"
"""Of a job's outputs, those that are out; BEGAN: nobody has told."""


MOST_NOTED = 2_000
"""Records of a process that runs jobs for ever, after which no more is written of a job than that it was there."""


class PlaceInRun:
    """A job as one of its script's; this one ends with its driver, or is no script's."""

    def publishing(self) -> None:
        """Is called before it publishes anything, and returns when that is durable. Raises FiresteelError where it cannot be."""

    def over(self, out: str, journal: Path | None) -> None:
        """After it has, or has not; ``out``: ALL, SOME or NONE; ``journal``: its path."""


NO_RUN = PlaceInRun()


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that had begun to publish. ``wall``: when its outputs were out, in seconds since 1970."""

    header: LogHeader
    out: str = BEGAN
    wall: float = 0.0
    journal: str = ""

    @property
    def job_id(self) -> str:
        return self.header.job_id


class JobInRun(PlaceInRun):
    """``header``: the job's, by which another process knows it again; ``begun``: an earlier driver of it had begun to publish."""

    def __init__(self, run: ScriptRun, header: LogHeader, *, begun: bool) -> None:
        self._run, self._header, self._begun = run, header, begun

    def publishing(self) -> None:
        self._run.write(self._header)
        self._begun = True

    def over(self, out: str, journal: Path | None) -> None:
        if self._begun:
            path = "" if journal is None else str(journal)
            self._run.write(JobOver(self._header.ordinal, self._header.job_id, out, time.time(), path))


class ScriptRun:
    """The run of this process's script, as far as its results lie in ``root``. May be used by several threads."""

    def __init__(self, root: Path | ObjectPath, process: str) -> None:
        self.name = process
        """The process that began the run."""
        self._root = root
        self._lock = threading.Lock()
        self._jobs: dict[int, PastJob] = {}
        """Of the processes before this one."""
        self._written = 0
        self._retain = 0.0
        self._storage: JobStorage | None = None
        self._file: LogFile | None = None
        self._broken = ""
        """Why nothing can be written any more."""
        self._void = False
        """There is no log of the run, and will be none."""
        self._looked = False

    @property
    def is_known(self) -> bool:
        """There is a log of it: what has no place in there has published nothing."""
        return self._storage is not None

    def past(self, ordinal: int) -> PastJob | None:
        """The job at this place of the script, if it had begun to publish in a process before this one; None: it had published nothing."""
        return self._jobs.get(ordinal)

    def place(self, header: LogHeader, ordinal: int, retain: float) -> PlaceInRun:
        """Of a job of this process. ``retain``: seconds for which the run is kept if it does not end well."""
        self._retain = retain
        if not header.script:
            return NO_RUN
        past = self.past(ordinal)
        begun = past is not None and past.job_id == header.job_id
        return JobInRun(self, msgspec.structs.replace(header, run=self.name, ordinal=ordinal, given=b""), begun=begun)

    def goes_on(
        self,
        identity: JobIdentity,
        retain: float,
        jobs_below: JobsBelow,
        *,
        job_id: str | None,
        by_itself: bool,
        takes: bool = True,
    ) -> None:
        """Makes the last run of the script, or that of the job with this id, this process's. Looked for once. ``by_itself``: nobody has asked, so only if its
        process died, for certain. ``takes``: else it is only looked at. Raises UsageError where that run goes on elsewhere, DamagedLogError, OSError."""
        with self._lock:
            if self._looked:
                return
            self._retain = retain
            jobs = jobs_below.find()
            runs = find_runs(self._root)  # afterwards: a driver makes the run's log before its job goes
            if job_id is not None:
                left = [find_job(self._root, job_id)]
            else:
                left = [found for found in (*jobs, *runs) if identity.is_of_script(found.header)]
            if by_itself:
                left = [found for found in left if is_surely_dead(found) and found.ended is None]
            last = _last(left)
            if last is not None:
                self.name = last.header.run
            for run in (run for run in runs if run.header.run == self.name):
                if not takes:
                    self._jobs = past_jobs(run)
                    continue
                self._take(run, self._unended(jobs), jobs_below)
            self._looked = True

    def _unended(self, jobs: Sequence[FoundJob]) -> list[FoundJob]:
        """Jobs of the run whose end is not told."""
        return [job for job in jobs if job.header.run == self.name and job.ended is None]

    def _take(self, found: FoundJob, jobs: Sequence[FoundJob], jobs_below: JobsBelow) -> None:
        """``jobs``: of the run, those whose end is not told, as they were found in ``jobs_below``."""
        watched = [check_dead(job) for job in jobs]  # first: a process that works on one is not to lose its run
        process = found.driver
        own = [job for job in jobs if (job.driver.pid, job.driver.started) == (process.pid, process.started)]
        if not own and owner(found) is Owner.ALIVE:  # it may not write for hours
            raise UsageError(
                f"{found.label} goes on in process {found.driver.pid} on {found.driver.host.split(' ')[0]}.",
                hint="Wait for its end, or end that process, before you go on with it.",
            )
        if any([*watched, check_dead(found)]):
            _check_as_they_were(jobs, self._unended(jobs_below.find()))
        taken = take_over(found)
        self._jobs = past_jobs(taken)
        self._open(taken.epoch, taken.log.read)

    def write(self, record: LogHeader | JobOver) -> None:
        """Returns when it is durable, or when there is no log of the run that anybody could read. Raises FencedError where another process
        goes on with the run, FiresteelError."""
        with self._lock:
            if self._void:
                return
            try:
                if self._broken:
                    raise OSError(self._broken)
                if self._file is None:
                    self._open(1, {})
                self._append(
                    _in_short(record) if self._written > MOST_NOTED and isinstance(record, LogHeader) else record
                )
                self._written += 1
            except FencedError:
                raise
            except (OSError, FiresteelError) as error:
                self._broken = str(error)  # what is behind a record that is not whole cannot be read
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Nothing is lost where no job was noted yet. Else a resume would take what is not noted for what is not published. Raises
        FiresteelError."""
        if not self._written and not self._jobs and self._is_removed():
            self._void = True
            return
        raise FiresteelError(
            f"It cannot be written to {self._root} which jobs of the script have published their outputs ({str(error).rstrip('.')}), so this one "
            "does not publish its own: a resume might publish them again.",
            hint="Free some space there and resume the script, or set firesteel.recovery.mode = off.",
        ) from error

    def _open(self, epoch: int, read_until: dict[str, int]) -> None:
        """Raises FencedError where another process was faster."""
        storage = JobStorage(str(self._root), f"{RUN}{self.name}", "", epoch=epoch, retain=self._retain)
        directory = storage.folder
        if epoch > 1:
            storage.claim()
        else:
            if isinstance(directory, Path):
                _make(directory, resumes=self._looked)  # on an object store the log's first object is put by one
            storage.create()
        self._storage = storage
        self._file = open_log(directory / LOG, epoch, read_until)
        wall = time.time()
        self._append(
            DriverBegan(epoch=epoch, nonce=0, **myself(), application="", wall=wall, at=0.0, read_until=read_until)
        )

    def _append(self, record: AnyLogRecord) -> None:
        assert self._file is not None
        self._file.append(frame([encode_records([record])]))
        self._file.verify()

    def _is_removed(self) -> bool:
        if self._storage is None:
            return True
        self._storage.remove()
        return not (self._storage.folder / LOG).is_dir()

    def close(self, *, well: bool) -> None:
        """The process ends. ``well``: nobody will want to go on. Raises OSError."""
        with self._lock:
            file, self._file = self._file, None
            self._void = True
            if file is None or self._storage is None:
                return
            if well:
                self._storage.remove()
            elif not self._broken:
                file.append(frame([encode_records([Ended("FAILED", time.time())])]))
            file.close()


def _last(left: Sequence[FoundJob]) -> FoundJob | None:
    """The one that was written last. Raises UsageError where one is gone: an older one is not to take its place."""
    times = [written(found) for found in left]
    for found, at in zip(left, times, strict=True):
        if not at:
            raise removed_just_now(found)
    return left[times.index(max(times))] if left else None


def _check_as_they_were(before: Sequence[FoundJob], now: Sequence[FoundJob]) -> None:
    """Raises UsageError where a driver has written to one of the run's jobs while others were watched, has begun one, or removed it."""
    known, read = ({job.job_id: (job.epoch, job.log.read) for job in jobs} for jobs in (before, now))
    for job in (*before, *now):
        if known.get(job.job_id) != read.get(job.job_id):
            raise UsageError(
                f"{job.label} goes on: its log has changed just now.",
                hint="Wait for the end of its driver before you go on with the script.",
            )


def _is_silent(log: Path) -> bool:
    """No job is noted in it. Raises DamagedLogError."""
    try:
        return not any(isinstance(record, LogHeader) for entry in read_log(log).entries for record in entry)
    except FileNotFoundError:
        return True


def _make(directory: Path, *, resumes: bool) -> None:
    """``resumes``: one without a word was left by a process that died before it had noted anything; that process, if it lives, is fenced off as its log
    moves away. Raises FencedError where another process was faster, DamagedLogError."""
    try:
        if resumes and directory.exists() and _is_silent(directory / LOG):
            silent = directory.with_name(f"{directory.name}-{os.getpid()}")
            directory.rename(silent)
            shutil.rmtree(silent, ignore_errors=True)
        directory.mkdir()
    except (FileExistsError, FileNotFoundError):
        raise FencedError("Another process goes on with the run of this script, and publishes what is left.") from None


def _in_short(header: LogHeader) -> LogHeader:
    """With which no job is compared."""
    plan = msgspec.structs.replace(header.plan, vertices=[], datasets=[], options={})
    return msgspec.structs.replace(header, plan=plan, prints=[])


def past_jobs(run: FoundJob) -> dict[int, PastJob]:
    """Returns the jobs of a run that have begun to publish, and not taken all of it back, by their place in the script."""
    jobs: dict[int, PastJob] = {}
    for entry in run.log.entries:
        for record in entry:
            note(jobs, record)
    return jobs


def note(jobs: dict[int, PastJob], record: AnyLogRecord) -> None:
    """Folds a record of the run's log."""
    past = jobs.get(record.ordinal) if isinstance(record, LogHeader | JobOver) else None
    if isinstance(record, LogHeader) and (past is None or past.job_id != record.job_id):
        jobs[record.ordinal] = PastJob(record)
    elif isinstance(record, JobOver) and past is not None:
        if record.out == NONE:
            del jobs[record.ordinal]
        else:
            jobs[record.ordinal] = replace(past, out=record.out, wall=record.wall, journal=record.journal)


# --- of this process -------------------------------------------------------------------------------------------

_runs: dict[str, ScriptRun] = {}
_guard = threading.Lock()
_ending = [True]
"""False once somebody has told that the script did not end well."""
_pid = os.getpid()


def script_run(root: Path | ObjectPath, process: str) -> ScriptRun:
    """Of this process, which is called so, for results in this directory."""
    root = root.resolve()
    with _guard:
        return _runs.setdefault(str(root), ScriptRun(root, process))


def script_failed() -> None:
    """The script ends otherwise than it was meant to: what is known of its run is kept for a resume."""
    _ending[0] = False


@atexit.register
def _at_exit() -> None:
    if os.getpid() != _pid:  # a fork of this process
        return
    well = _ending[0] and getattr(sys, "last_exc", None) is None and getattr(sys, "last_value", None) is None
    for run in _runs.values():
        quietly(lambda run=run: run.close(well=well))


@dataclass(frozen=True, slots=True)
class ScriptOfJob:
    """``script``: its path, called with ``arguments``; empty: it was typed in. ``options``: those of its command line (-O), by their keys, and where its results
    were found."""

    job_id: str
    script: str
    arguments: tuple[str, ...]
    options: Mapping[str, Any]


def left_by(job: str, options: Options) -> ScriptOfJob:
    """``job``: as journals are named, or a whole id below the storage that the options name. Raises UsageError where nothing is left of it."""
    directory, job_id, planned = options[STORAGE_DIR], job, None
    try:
        path = find(job, options)
        job_id = id_of(path)  # of a journal that is damaged
        planned = next((one for one in read(path) if isinstance(one, JobPlanned)), None)
    except UsageError:
        if directory is None:
            raise
    if planned is not None:
        job_id, directory = planned.job_id, directory or planned.options.get(STORAGE_DIR.key)
    if directory is None:
        raise UsageError(
            f"Job {job_id} has left nothing to go on with, for its results had no place that lasts.",
            hint=f"Set {STORAGE_DIR.key} to a directory before you run a job that is to be resumed.",
        )
    root = directory if "://" in directory else str(Path(directory).expanduser().absolute())
    with told_of(root):
        header = find_job(kept_folder(root), job_id).header
    planned = header.plan
    said = {key: value for key, value in planned.options.items() if planned.origins.get(key) == ON_COMMAND_LINE.where}
    return ScriptOfJob(job_id, header.script, tuple(header.arguments), {**said, STORAGE_DIR.key: root})
