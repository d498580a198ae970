"""Taking a job over from a driver that died: one rename of its directory, which is lock and fence at once.

Of several drivers that try, the rename succeeds for one. Whatever the old driver still does by the directory's old name finds nothing,
and what it writes to its open log lies behind what the new driver has read. Needs a file system whose rename is atomic. On an object store
it is one put in the place of the rename (``objects``); there an old driver can still do what it was about to do when it froze.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.recovery.files import LogContents, read_log
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.log import ALIVE_SECONDS
from firesteel.recovery.objects import AT_ONCE, SEGMENTS, ObjectPath, claim, disclaim, segments_in
from firesteel.recovery.places import LOG, MARK, PREFIX, RUN, directory_name, job_and_epoch
from firesteel.recovery.retention import EPOCH, FINISHED, ORIGINS, mark_beside
from firesteel.recovery.uses import USED, end_uses
from firesteel.results.storage.filesystem import mapped, shown
from firesteel.results.storage.owner import Owner, myself, owner_of
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan, Ended, LogHeader

NO_BASE = 0
"""Of a driver that has only taken over yet."""
WATCH_SECONDS = 3 * ALIVE_SECONDS
"""A driver whose log did not grow for so long is dead, frozen or parted from the storage."""
_POLL_SECONDS = 0.25
_LOOKS = 10
"""Listings of directories, at most, while jobs are taken over or removed all the time."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that left a log, in its present directory, which the driver of ``epoch`` has or had."""

    job_id: str
    epoch: int
    directory: Path | ObjectPath
    log: LogContents
    header: LogHeader
    """The last one."""
    told_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """By its owner's mark (``retention.ORIGINS``)."""

    @property
    def label(self) -> str:
        """Names it in messages: the job, or the run of a script."""
        if self.job_id.startswith(RUN):
            return f"The run of {self.header.script}"
        return f"Job {self.job_id} ('{self.header.job_name}')"

    @property
    def token_bases(self) -> set[int]:
        """Of all its drivers."""
        return {entry[0].nonce for entry in self.log.entries if isinstance(entry[0], DriverBegan)} - {NO_BASE}

    @property
    def began(self) -> float:
        """When its first driver began, in seconds since 1970."""
        return min(entry[0].wall for entry in self.log.entries if isinstance(entry[0], DriverBegan))

    @property
    def ended(self) -> Ended | None:
        """The word of its last driver that it has not finished; None: it was cut off."""
        last = [record for entry in self.log.entries for record in entry if isinstance(record, DriverBegan | Ended)][-1]
        return last if isinstance(last, Ended) else None

    @property
    def has_finished(self) -> bool:
        """Its results are kept for other jobs, and there is nothing to go on with."""
        return self.ended is not None and self.ended.status == "FINISHED"

    @property
    def origins(self) -> dict[int, str]:
        """The base of each token of the executions that it has had or taken from others: the job whose driver drew it."""
        told = {int(base): job_id for base, job_id in self.told_origins.items()}
        return told | dict.fromkeys(self.token_bases, self.job_id)

    @property
    def driver(self) -> DriverBegan:
        """The last driver that wrote anything."""
        began = (entry[0] for entry in reversed(self.log.entries) if isinstance(entry[0], DriverBegan))
        return next(began)


class JobsBelow:
    """The jobs below ``root``, asked for as often as one likes: a log is read again only where somebody has written to it since."""

    def __init__(self, root: Path | ObjectPath) -> None:
        self.root = root
        self._finished: set[str] = set()
        """Names of directories: of finished jobs there may be many, for reuse."""
        self._known: dict[str, tuple[object, list[FoundJob]]] = {}
        """By the name of the directory, which a driver that takes a job over changes, or else its log: the log's state before it was read, and the job."""

    def find(self) -> list[FoundJob]:
        """Returns those that have not finished, and have a log which can be read, as they are now; the one that began last is the last."""
        found = _read_all(self.root, lambda: _twice(self.root, self._directories), self._read_if_any)
        return sorted((job for job in found if not job.has_finished), key=lambda job: job.began)

    def _directories(self) -> Sequence[Path | ObjectPath]:
        """All with a log of jobs that have not finished; on an object store, where each question is a request, all that may have one. Raises OSError."""
        if isinstance(self.root, Path):
            places, at_once = [log.parent for log in self.root.glob(f"{directory_name('*', 1)}/{LOG}")], 1
        else:
            names = (entry.name for entry in self.root.iterdir())
            places = [self.root / name for name in names if name.startswith(PREFIX) and not name.endswith(MARK)]
            at_once = AT_ONCE
        left = [place for place in places if place.name not in self._finished]
        marks = mapped(mark_beside, left, at_once)
        self._finished |= {place.name for place, mark in zip(left, marks, strict=True) if FINISHED in mark}
        return [place for place in left if place.name not in self._finished]

    def _read_if_any(self, directory: Path | ObjectPath) -> list[FoundJob]:
        """Raises FileNotFoundError where there is none any more."""
        try:
            return self._read(directory)
        except FileNotFoundError:
            raise
        except (OSError, DamagedLogError):
            return []

    def _read(self, directory: Path | ObjectPath) -> list[FoundJob]:
        state = _state(directory)
        known = self._known.get(directory.name)
        if known is None or known[0] != state:
            known = self._known[directory.name] = state, _read(directory)
        return known[1]


def find_jobs(root: Path | ObjectPath) -> list[FoundJob]:
    """The jobs below ``root`` that have not finished, and have a log which can be read; the one that began last is the last."""
    return JobsBelow(root).find()


def find_runs(root: Path | ObjectPath) -> list[FoundJob]:
    """The runs of scripts that are kept below ``root``. Raises DamagedLogError, OSError: what cannot be read may be of any script."""

    def directories() -> list[Path | ObjectPath]:
        return [log.parent for log in root.glob(f"{directory_name(f'{RUN}*', 1)}/{LOG}")]

    return _read_all(root, lambda: _twice(root, directories), _read)


def written(job: FoundJob) -> float:
    """Returns when its log was last written, by the storage's clock, in seconds since 1970; 0: it is gone."""
    with suppress(OSError):
        return max((part.stat().st_mtime for part in _parts(job.directory)), default=0.0)
    return 0.0


def find_job(root: Path | ObjectPath, job_id: str) -> FoundJob:
    """Raises UsageError for a job that left nothing, DamagedLogError, OSError."""

    def directories() -> list[Path | ObjectPath]:
        own = [d for d in root.glob(f"{directory_name(job_id, 1)}*") if (job_and_epoch(d.name) or ("", 0))[0] == job_id]
        return [directory for directory in own if (directory / LOG).is_dir()]

    # Twice as ``_twice`` does it, but only where nothing is found: each of many kept jobs is asked for.
    found = _read_all(root, directories, _read) or _read_all(root, directories, _read)
    if not found:
        raise UsageError(
            f"There is nothing of job {job_id} in {shown(str(root))} to go on with.",
            hint="Results are kept of jobs that did not finish, for as long as firesteel.results.retain-on-failure says.",
        )
    return max(found, key=lambda job: job.epoch)


def _read_all(
    root: Path | ObjectPath,
    directories: Callable[[], Sequence[Path | ObjectPath]],
    read: Callable[[Path | ObjectPath], list[FoundJob]],
) -> list[FoundJob]:
    """Reads them all, and looks again where one that was listed is gone: another driver has renamed it as it took it over, or has removed it. On an object
    store nothing is renamed. ``read``: raises FileNotFoundError then, and what else it will. Raises UsageError where that never ends."""
    for _ in range(_LOOKS):
        found: list[FoundJob] = []
        gone = False
        for directory in directories():
            try:
                found += read(directory)
            except FileNotFoundError:
                gone = isinstance(root, Path)
        if not gone:
            return found
    raise UsageError(f"Jobs in {shown(str(root))} come and go faster than they can be looked at.", hint="Try again.")


def _twice(root: Path | ObjectPath, listed: Callable[[], Sequence[Path | ObjectPath]]) -> list[Path | ObjectPath]:
    """Lists twice in a file system: a listing in which a directory gets another name may have neither."""
    return list(listed()) if isinstance(root, ObjectPath) else list(dict.fromkeys((*listed(), *listed())))


def _read(directory: Path | ObjectPath) -> list[FoundJob]:
    """Empty: its driver died before it had written anything."""
    owned = job_and_epoch(directory.name)
    log = read_log(directory / LOG)
    headers = [record for entry in log.entries for record in entry if isinstance(record, LogHeader)]
    if owned is None or not headers:
        return []
    return [FoundJob(*owned, directory, log, headers[-1], mark_beside(directory).get(ORIGINS, {}))]


def is_surely_dead(job: FoundJob) -> bool:
    """Returns whether the job's driver was a process of this machine that is no more."""
    return owner(job) is Owner.DEAD


def owner(job: FoundJob) -> Owner:
    """Of the job's directory, by its mark."""
    return _owner_by(_mark_of(job))


def _owner_by(mark: Mapping[str, Any]) -> Owner:
    try:
        return owner_of(mark)
    except ValueError:
        return Owner.UNKNOWN


def check_dead(job: FoundJob, *, watch_seconds: float = WATCH_SECONDS) -> bool:
    """Returns when the job's driver is dead for certain, or its log has not grown for a while: whether it had to be watched for that. Raises UsageError where
    it lives, or another one has told meanwhile that the job is its own, DamagedLogError, OSError."""
    if is_surely_dead(job):
        return False
    mark, before = _check_not_held(job), _state(job.directory)
    until = time.monotonic() + watch_seconds
    while time.monotonic() < until:
        if _state(job.directory) != before:
            raise _still_runs(job, mark)
        time.sleep(_POLL_SECONDS)
    # It may have been found where a driver had just put it as it took it over, and not told of that one yet, which need not write more for hours.
    _check_not_held(job)
    _check_same_driver(job)
    return True


def _still_runs(job: FoundJob, mark: Mapping[str, Any]) -> UsageError:
    host, pid = str(mark.get("host", job.driver.host)).split(" ")[0], mark.get("pid", job.driver.pid)
    return UsageError(
        f"{job.label} still runs: its driver, process {pid} on {host}, has just written to its log.",
        hint="Wait for its end, or end that process, before you go on with the job.",
    )


def _check_not_held(job: FoundJob) -> Mapping[str, Any]:
    """Returns the mark of who has the job. Raises UsageError where that is a process of this machine which lives and does not write to the job's log: not
    yet, or never, for the job has ended, and it goes on from what that left. This process may try again what did not begin."""
    mark = _mark_of(job)
    if _owner_by(mark) is not Owner.ALIVE:
        return mark
    if job.ended is not None:
        does = f"has ended, and process {mark['pid']} goes on from what it left"
    elif mark["pid"] != os.getpid() and not _has_begun(job, mark):
        does = f"was taken over by process {mark['pid']}, which begins with it"
    else:
        return mark
    raise UsageError(
        f"{job.label} {does}.", hint="Wait for the end of that process, or end it, before you go on with the job."
    )


def _has_begun(job: FoundJob, mark: Mapping[str, Any]) -> bool:
    """Returns whether the process with this mark has written to the job's log what it does, not only that it has the job."""
    driver = job.driver
    is_own = (driver.pid, driver.started) == (mark.get("pid"), mark.get("started"))
    return is_own and (driver.nonce != NO_BASE or job.job_id.startswith(RUN))


def _check_same_driver(job: FoundJob) -> None:
    """Raises UsageError where another one has begun since the job was read, or all of it is gone, DamagedLogError, OSError."""
    if isinstance(job.directory, ObjectPath):  # there nobody takes it over who has not read all of its log
        return
    try:
        drivers = [again.driver for again in _read(job.directory)]
    except FileNotFoundError:
        drivers = []
    if not drivers:
        raise removed_just_now(job)
    if drivers != [job.driver]:
        raise _taken_over(job)


def check_nobody_goes_on(jobs: JobsBelow, found: FoundJob) -> None:
    """Raises UsageError where a job that lives goes on from this one, or from one that did. Jobs that have begun since they were looked for before are
    seen, too: ``found`` may have been taken over, and the one that goes on from it not have been there yet."""
    after = {found.job_id}
    for job in jobs.find():  # in the order in which they began
        if job.header.plan.after in after:
            after.add(job.job_id)
            if job.ended is None:
                check_dead(job)


def take_over(job: FoundJob) -> FoundJob:
    """Makes the job this process's: renames its directory, or continues its log, and reads what counts of that. Raises UsageError where another
    driver was faster, or has removed it, DamagedLogError, OSError."""
    epoch = _next_epoch(job)
    if isinstance(job.directory, ObjectPath):
        directory = job.directory
        is_ours = claim(directory / LOG, job.log.read[SEGMENTS], _first_words(job, epoch))
    else:
        directory = job.directory.with_name(directory_name(job.job_id, epoch))
        is_ours = _renamed(job.directory, directory)
    if not is_ours:
        raise _taken_over(job)
    log = read_log(directory / LOG)
    if not log.entries:
        if isinstance(directory, ObjectPath):
            disclaim(directory / LOG, job.log.read[SEGMENTS])
        raise removed_just_now(job)
    return FoundJob(job.job_id, epoch, directory, log, job.header, job.told_origins)


def _taken_over(job: FoundJob) -> UsageError:
    return UsageError(f"{job.label} was taken over by another driver just now{_who(job)}.")


def removed_just_now(job: FoundJob) -> UsageError:
    return UsageError(f"{job.label} was taken over by another driver, or removed, just now.")


def end_job(job: FoundJob) -> FoundJob | None:
    """Takes a job over to remove it. None: somebody holds its results, or, on an object store, has gone on with it. Raises UsageError where another
    driver was faster, DamagedLogError, OSError."""
    if not end_uses_of(job):
        return None
    return replace(job, epoch=_next_epoch(job)) if isinstance(job.directory, ObjectPath) else take_over(job)


def end_uses_of(job: FoundJob) -> bool:
    """As ``end_uses``; on an object store False as well where anybody has written to the job's log since it was read."""
    return end_uses(job.directory, job.log.read[SEGMENTS] if isinstance(job.directory, ObjectPath) else None)


def is_held(taken: FoundJob) -> bool:
    """Returns whether nobody has taken the job over, or removed it, since this process took it. Raises OSError."""
    if isinstance(taken.directory, ObjectPath):
        return len(segments_in(taken.directory / LOG)) == taken.log.read[SEGMENTS]
    return (taken.directory / LOG).is_dir()


def _next_epoch(job: FoundJob) -> int:
    return (
        max(job.epoch, job.log.epoch) + 1
    )  # a rename may be lost with the machine, and what was written after it be there


def _renamed(directory: Path, to: Path) -> bool:
    try:
        directory.rename(to)
    except FileNotFoundError:
        return False
    return True


def _first_words(job: FoundJob, epoch: int) -> list[AnyLogRecord]:
    """Of a driver that takes the job over; the next ones say what it does there. A job that has ended has ended yet, whoever has what it left."""
    began = DriverBegan(epoch=epoch, nonce=NO_BASE, **myself(), application="", wall=time.time(), at=0.0)
    return [began, *([] if job.ended is None else [job.ended])]


def _who(job: FoundJob) -> str:
    with suppress(UsageError, DamagedLogError, OSError):
        winner = find_job(job.directory.parent, job.job_id)
        if winner.driver.epoch > job.driver.epoch:
            return f": process {winner.driver.pid} on {winner.driver.host.split(' ')[0]}"
    return ""


def _mark_of(job: FoundJob) -> Mapping[str, Any]:
    """Of who has the job, as far as is told: on an object store a driver that takes it over tells that in the log, and marks it a moment later."""
    mark, driver = mark_beside(job.directory), job.driver
    if mark and mark.get(EPOCH, driver.epoch) < driver.epoch:
        return {"host": driver.host, "pid": driver.pid, "started": driver.started}
    return mark


def _state(directory: Path | ObjectPath) -> object:
    """Changes with each record that is written; a driver that takes the job over changes it, too."""
    try:
        return sorted((entry.name, entry.stat().st_size) for entry in _parts(directory))
    except OSError:
        return None


def _parts(directory: Path | ObjectPath) -> Iterator[Path | ObjectPath]:
    """All that the job's drivers have written to its log. Raises OSError."""
    return (entry for entry in (directory / LOG).iterdir() if entry.name != USED)
