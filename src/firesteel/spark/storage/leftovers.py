"""Leftovers on the storage of results, of jobs whose driver was killed, which of them may go, and what is kept of jobs for others.

A later job removes what it finds of dead drivers on this machine (``JobStorage.sweep``); this is the same for a user who wants to
see it, know its size, and have it gone without running a job. Needs no Spark.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import FiresteelError, UsageError
from firesteel.options import STORAGE_DIR, STORAGE_FILESYSTEM, Options
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG, MARK, PREFIX, RUN, RUN_PREFIX, SCRATCH, directory_name, job_and_epoch
from firesteel.recovery.retention import kept_seconds, storage_clock
from firesteel.recovery.summary import Output, Summary, summary
from firesteel.recovery.takeover import FoundJob, check_dead, end_job, find_job
from firesteel.recovery.uses import end_uses
from firesteel.results.storage.owner import Owner, myself, owner_of, process_start
from firesteel.scheduler.recovery.records import LogHeader
from firesteel.spark.recovery.header import other_versions
from firesteel.spark.recovery.runs import PastJob, past_jobs
from firesteel.spark.storage.directories import (
    REMOVED,
    JobStorage,
    files_below,
    log_folder,
    reached_root,
    storage_root,
    told_of,
)

UNMARKED_SECONDS = 3600.0
"""Seconds after its last write in which a directory without an owner's mark is left alone: its owner may be removing it."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Of one job: its results, its mark and what its tasks spilled; or a directory for scratch alone."""

    job_id: str
    paths: tuple[str, ...]
    """In the file system of the storage."""
    owner: Owner
    bytes: int
    files: int
    at: float
    """Time of its last write, in seconds since 1970; 0: the storage does not tell."""
    is_local: bool = False
    """In the file system of this machine instead."""
    kept: float | None = None
    """Seconds for which its results are kept from now on if its driver is dead, negative where they are over; None: they are not."""

    @property
    def until(self) -> float | None:
        """When its results go, by this machine's clock, in seconds since 1970; None: not while its driver lives."""
        return None if self.kept is None else time.time() + self.kept

    @property
    def may_go(self) -> bool:
        return self.owner is Owner.DEAD


class Leftovers:
    """On the storage that these options name, and in the temporary directory of this machine."""

    def __init__(self, options: Options) -> None:
        """Raises UsageError for a storage that cannot be opened."""
        self._private = options[STORAGE_DIR] is None
        self.root = storage_root(options, shared=False)
        self._filesystem = options[STORAGE_FILESYSTEM]
        self._fs, self._path = reached_root(self.root, self._filesystem)
        self._now = storage_clock(self._fs, self._path)

    def found(self) -> list[LeftOver]:
        """All jobs' directories, also those of jobs that run; the largest first. Raises StorageError, OSError."""
        self._now = storage_clock(self._fs, self._path)
        by_job: dict[str, list[Any]] = {}
        with told_of(self.root):
            infos = self._fs.get_file_info(pafs.FileSelector(self._path, allow_not_found=True))
        for info in infos:
            if info.base_name.startswith((PREFIX, RUN_PREFIX)):
                by_job.setdefault(_job_of(info.base_name), []).append(info)
        jobs = [self._job(job_id, infos) for job_id, infos in by_job.items()]
        return sorted([*jobs, *_scratch()], key=lambda each: (-each.bytes, each.job_id))

    def remove(self, each: LeftOver) -> None:
        """Looks once more whose it is. Raises FiresteelError for what must not go, or cannot be removed."""
        mark = next((path for path in each.paths if path.endswith(MARK)), None)
        if not each.may_go or (mark is not None and self._owner(mark)[0] is not Owner.DEAD):
            raise FiresteelError(f"What lies there of job {each.job_id} is not left over: {each.owner.value}.")
        try:
            if each.is_local:
                shutil.rmtree(each.paths[0])
                return
            folder = log_folder(self.root, self._filesystem)
            names = [PurePosixPath(path).name for path in each.paths if not path.endswith(MARK)]
            if folder is not None and not all(end_uses(folder / name) for name in names):
                raise FiresteelError(
                    f"The results of job {each.job_id} stay: a running job uses them, or goes on with the job."
                )
            for path in sorted(
                each.paths, key=lambda path: path.endswith(MARK)
            ):  # the mark last: it finds the rest again
                self._delete(path)
        except (OSError, pa.ArrowException) as error:
            raise FiresteelError(f"{each.paths[0]} cannot be removed: {str(error).rstrip('.')}.") from error

    def _delete(self, path: str) -> None:
        info = self._fs.get_file_info(path)
        if info.type == pafs.FileType.Directory:
            self._fs.delete_dir(path)
        elif info.type != pafs.FileType.NotFound:
            self._fs.delete_file(path)

    def _job(self, job_id: str, infos: list[Any]) -> LeftOver:
        marks = [info for info in infos if info.base_name.endswith(MARK)]
        mark = max(marks, key=lambda info: _owned(info.base_name)[1], default=None)
        size = files = 0
        at = 0.0
        for info in [each for top in infos for each in self._below(top)]:
            at = max(at, info.mtime.timestamp() if info.mtime else 0.0)
            if info.type == pafs.FileType.File:
                size, files = size + (info.size or 0), files + 1
        if mark is not None:
            owner, kept = self._owner(mark.path)
        else:
            owner, kept = Owner.DEAD if at < time.time() - UNMARKED_SECONDS else Owner.UNKNOWN, None
        return LeftOver(job_id, tuple(info.path for info in infos), owner, size, files, at, kept=kept)

    def _below(self, info: Any) -> Iterator[Any]:
        yield info
        if info.type == pafs.FileType.Directory:
            with suppress(OSError):
                yield from self._fs.get_file_info(pafs.FileSelector(info.path, recursive=True, allow_not_found=True))

    def _owner(self, path: str) -> tuple[Owner, float | None]:
        """Of a mark, and for how many seconds the results are kept."""
        try:
            with self._fs.open_input_stream(path) as stream:
                mark = json.loads(stream.read())
            owner = owner_of(mark)
            kept = None if owner is Owner.ALIVE else kept_seconds(self._fs, path.removesuffix(MARK), mark, self._now)
        except (OSError, ValueError):
            return Owner.UNKNOWN, None  # being written or being removed just now
        if owner is Owner.ELSEWHERE and self._private and _before_boot(str(mark.get("host"))):
            owner = Owner.DEAD
        return Owner.KEPT if owner is Owner.DEAD and (kept or 0) > 0 else owner, kept


def _before_boot(host: str) -> bool:
    """Returns True if the mark was made on this machine before it was last started. Only for directories that no other
    machine sees: machines may have the same name."""
    name, boot, *_ = [*host.split(" "), "", ""]
    mine = myself()["host"].split(" ")
    return name == socket.gethostname() and len(mine) > 1 and bool(boot) and boot != mine[1]


def _job_of(name: str) -> str:
    return _owned(name.removesuffix(REMOVED).removesuffix(SCRATCH))[0]


def _owned(name: str) -> tuple[str, int]:
    """Job and epoch of a directory or its mark."""
    return job_and_epoch(name.removesuffix(MARK)) or (name, 1)


def _scratch() -> Iterator[LeftOver]:
    """Of executors on this machine that had no local directory of Spark's: one directory per worker, named by its process."""
    for root in Path(tempfile.gettempdir()).glob("firesteel-scratch-*"):
        with suppress(OSError):
            workers = [entry for entry in root.iterdir() if entry.name.isdigit()]
            alive = any(process_start(int(entry.name)) is not None for entry in workers)
            sizes = [entry.stat().st_size for entry in root.rglob("*") if entry.is_file()]
            at = root.stat().st_mtime
            idle = at < time.time() - UNMARKED_SECONDS
            owner = Owner.ALIVE if alive else Owner.DEAD if idle else Owner.UNKNOWN
            job_id = root.name.removeprefix("firesteel-scratch-")
            yield LeftOver(job_id, (str(root),), owner, sum(sizes), len(sizes), at, is_local=True)


_OBJECT = re.compile(r"d(\d+)-.*\.fsr")


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job that has a log. ``found``, ``told``: None where the log cannot be read, and ``unreadable`` says why."""

    left: LeftOver
    directory: Path | ObjectPath
    found: FoundJob | None = None
    told: Summary | None = None
    unreadable: str = ""

    @property
    def job_id(self) -> str:
        return self.left.job_id

    @property
    def has_ended(self) -> bool:
        """Its end is in the log: it failed, or was cancelled, and is kept all the same."""
        return self.told is not None and bool(self.told.ended)

    @property
    def has_finished(self) -> bool:
        """It is kept for other jobs, and nobody goes on with it."""
        return self.found is not None and self.found.has_finished

    @property
    def is_running(self) -> bool:
        """Or another job that goes on from it does."""
        return self.left.owner is Owner.ALIVE

    @property
    def half_published(self) -> list[Output]:
        """The outputs that may be out while others are not, or that are just being made final."""
        if self.told is None or self.has_finished:
            return []
        return [output for output in self.told.outputs if output.may_be_out]

    def obstacle(self) -> str:
        """Why nobody can go on with it, whatever its script is; empty: somebody can, as far as the log tells."""
        if self.is_running:
            return "its driver still runs, or is just ending"
        if self.found is None or self.told is None:
            return self.unreadable
        if self.has_finished:
            return "it has finished, and is kept for other jobs"
        mute = [output.name for output in self.told.outputs if output.step == "publishing" and not output.recovers]
        if mute:
            return f"'{mute[0]}' was being published when its driver died, and cannot say how much of it is out"
        script = self.found.header.script
        if script and not Path(script).is_file():
            return f"its script is not at {script} any more"
        return ""

    def changes(self) -> list[str]:
        """In which this Python is not the one it ran with, in words."""
        return [] if self.found is None else other_versions(self.found.header)

    def stored(self) -> dict[int, tuple[int, int]]:
        """Objects, and their bytes, by step. Raises OSError."""
        made = {dataset: step.vertex for step in (self.told.steps if self.told else ()) for dataset in step.datasets}
        found: dict[int, tuple[int, int]] = {}
        for entry in self.directory.iterdir():
            match = _OBJECT.fullmatch(entry.name)
            vertex = None if match is None else made.get(int(match[1]))
            if vertex is not None:
                objects, size = found.get(vertex, (0, 0))
                found[vertex] = objects + 1, size + entry.stat().st_size
        return found


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run of a script of which it is known what its jobs have published. ``jobs``: these, in their order."""

    left: LeftOver
    header: LogHeader
    jobs: list[PastJob]

    @property
    def is_running(self) -> bool:
        return self.left.owner is Owner.ALIVE


class KeptResults:
    """Of the storage that these options name."""

    def __init__(self, options: Options) -> None:
        """Raises UsageError for a storage that cannot be opened."""
        self._places = Leftovers(options)
        self.root = self._places.root
        self._folder = log_folder(self.root, options[STORAGE_FILESYSTEM])

    def jobs(self) -> list[KeptJob]:
        """All that have a log, also those that run; the one that was written last is the first. Raises OSError."""
        found = [(left, self._directory(left)) for left in self._places.found() if not left.job_id.startswith(RUN)]
        kept = [self._read(left, directory) for left, directory in found if directory is not None]
        return sorted(kept, key=lambda job: -job.left.at)

    def runs(self) -> list[KeptRun]:
        """The runs that did not end well, or go on just now; the one that was written last is the first. Raises OSError."""
        if self._folder is None:
            return []
        kept: list[KeptRun] = []
        for left in self._places.found():
            if left.job_id.startswith(RUN):
                with suppress(FiresteelError, OSError):  # whoever resumes a script is told of one that cannot be read
                    run = find_job(self._folder, left.job_id)
                    kept.append(KeptRun(left, run.header, list(past_jobs(run).values())))
        return sorted((run for run in kept if run.jobs), key=lambda run: -run.left.at)

    def job(self, job_id: str) -> KeptJob:
        """The one whose id begins so, or the last. Raises UsageError, OSError."""
        jobs = self.jobs()
        found = jobs[:1] if job_id == "last" else [job for job in jobs if job.job_id.startswith(job_id)]
        if not found:
            raise UsageError(
                f"There are no results of job {job_id} in {self.root}.",
                hint="'firesteel results' lists the jobs that have any; -O firesteel.storage.directory=... names another place.",
            )
        if len(found) > 1 and found[0].job_id != job_id:
            raise UsageError(
                f"The ids of several jobs begin with {job_id}: {', '.join(job.job_id for job in found)}.",
                hint="Give more of it.",
            )
        return found[0]

    def remove(self, job: KeptJob) -> None:
        """Takes it from whoever might go on with it, then removes it. Raises FiresteelError where its driver lives, another one was
        faster, or a job uses it, OSError."""
        if job.is_running:
            raise FiresteelError(f"The results of job {job.job_id} stay: {job.obstacle()}.")
        if (
            job.left.owner not in (Owner.KEPT, Owner.DEAD) and not job.has_ended
        ):  # nobody can tell from here but by watching
            check_dead(find_job(job.directory.parent, job.job_id))
        epoch = self._ended(job)
        if epoch is None:
            raise FiresteelError(
                f"The results of job {job.job_id} stay: a running job uses them, or goes on with the job."
            )
        mine = JobStorage(self.root, job.job_id, "", epoch=epoch)
        mine.claim()
        mine.remove()

    def _ended(self, job: KeptJob) -> int | None:
        """Takes it over, and be it only to remove it. Returns the epoch of who has it now; None: it is used."""
        if isinstance(job.directory, ObjectPath) and job.found is not None:
            ended = end_job(job.found)
            return None if ended is None else ended.epoch
        if not end_uses(job.directory):
            return None
        _, epoch = job_and_epoch(job.directory.name) or ("", 1)
        if isinstance(job.directory, ObjectPath):
            return epoch
        try:
            job.directory.rename(job.directory.with_name(directory_name(job.job_id, epoch + 1)))
        except FileNotFoundError:
            raise FiresteelError(f"Job {job.job_id} was taken over by another driver, or removed, just now.") from None
        return epoch + 1

    def _directory(self, left: LeftOver) -> Path | ObjectPath | None:
        """The one with its log; None: it has none, or lies where logs are not written."""
        if left.is_local or self._folder is None:
            return None
        places = [self._folder / PurePosixPath(path).name for path in reversed(left.paths)]
        return next((place for place in places if (place / LOG).is_dir()), None)

    def _read(self, left: LeftOver, directory: Path | ObjectPath) -> KeptJob:
        try:
            found = find_job(directory.parent, left.job_id)
            return KeptJob(left, found.directory, found, summary(found))
        except (FiresteelError, ValueError, OSError) as error:
            return KeptJob(left, directory, unreadable=str(error).rstrip("."))


def bytes_of(jobs: Sequence[KeptJob]) -> int:
    """Of all of them together: what several share, as jobs do that have used each other's results, counts once."""
    found = [files_below(job.directory) for job in jobs if isinstance(job.directory, Path)]
    once = {file: size for files in found for file, size in files.items()}
    return sum(job.left.bytes for job in jobs) - sum(sum(files.values()) for files in found) + sum(once.values())
