"""Results of jobs that outlive their drivers, as users ask for them: how much there is, until when, and what is in the way of going on.

Read from the jobs' logs alone, without their scripts: a script that has changed since is found when it is run again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from firesteel.errors import FiresteelError, UsageError
from firesteel.options import STORAGE_FILESYSTEM, Options
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG, RUN, directory_name, job_and_epoch
from firesteel.recovery.summary import Output, Summary, summary
from firesteel.recovery.takeover import FoundJob, check_dead, end_job, find_job
from firesteel.recovery.uses import end_uses
from firesteel.results.storage.owner import Owner
from firesteel.scheduler.recovery.records import LogHeader
from firesteel.spark.recovery.header import other_versions
from firesteel.spark.recovery.runs import PastJob, past_jobs
from firesteel.spark.storage.directories import JobStorage, log_folder
from firesteel.spark.storage.leftovers import LeftOver, Leftovers
from firesteel.spark.storage.space import files_below

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
