"""Taking a job over from a driver that died: one rename of its directory, which is lock and fence at once.

Of several drivers that try, the rename succeeds for one. Whatever the old driver still does by the directory's old name finds nothing,
and what it writes to its open log lies behind what the new driver has read. Needs a file system whose rename is atomic.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.recovery.files import LogContents, read_log
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.log import ALIVE_SECONDS
from firesteel.recovery.places import LOG, MARK, directory_name, job_and_epoch
from firesteel.results.storage.owner import is_dead
from firesteel.scheduler.recovery.records import DriverBegan, LogHeader

WATCH_SECONDS = 3 * ALIVE_SECONDS
"""A driver whose log did not grow for so long is dead, frozen or parted from the storage."""
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that left a log, in its present directory, which the driver of ``epoch`` has or had."""

    job_id: str
    epoch: int
    directory: Path
    log: LogContents
    header: LogHeader
    """The last one."""

    @property
    def token_bases(self) -> set[int]:
        """Of all its drivers."""
        return {entry[0].nonce for entry in self.log.entries if isinstance(entry[0], DriverBegan)}

    @property
    def began(self) -> float:
        """When its first driver began, in seconds since 1970."""
        return min(entry[0].wall for entry in self.log.entries if isinstance(entry[0], DriverBegan))

    @property
    def driver(self) -> DriverBegan:
        """The last driver that wrote anything."""
        began = (entry[0] for entry in reversed(self.log.entries) if isinstance(entry[0], DriverBegan))
        return next(began)


def find_jobs(root: Path) -> list[FoundJob]:
    """The jobs below ``root`` that have a log which can be read; the one that began last is the last."""
    found: list[FoundJob] = []
    for directory in root.glob(f"{directory_name('*', 1)}/{LOG}"):
        with suppress(OSError, DamagedLogError):
            found += _read(directory.parent)
    return sorted(found, key=lambda job: job.began)


def find_job(root: Path, job_id: str) -> FoundJob:
    """Raises UsageError for a job that left nothing, DamagedLogError, OSError."""
    own = [d for d in root.glob(f"{directory_name(job_id, 1)}*") if (job_and_epoch(d.name) or ("", 0))[0] == job_id]
    directories = [directory for directory in own if (directory / LOG).is_dir()]
    found = [job for directory in directories for job in _read(directory)]
    if not found:
        raise UsageError(
            f"There is nothing of job {job_id} in {root} to go on with.",
            hint="Results are kept of jobs whose driver died, for as long as firesteel.results.retain-on-failure says.",
        )
    return max(found, key=lambda job: job.epoch)


def _read(directory: Path) -> list[FoundJob]:
    """Empty: its driver died before it had written anything."""
    owned = job_and_epoch(directory.name)
    log = read_log(directory / LOG)
    headers = [record for entry in log.entries for record in entry if isinstance(record, LogHeader)]
    return [FoundJob(*owned, directory, log, headers[-1])] if owned is not None and headers else []


def is_surely_dead(job: FoundJob) -> bool:
    """Returns whether the job's driver was a process of this machine that is no more."""
    try:
        return is_dead(_mark_of(job))
    except ValueError:
        return False


def check_dead(job: FoundJob, *, watch_seconds: float = WATCH_SECONDS) -> None:
    """Returns when the job's driver is dead for certain, or its log has not grown for a while. Raises UsageError where it lives."""
    if is_surely_dead(job):
        return
    mark = _mark_of(job)
    before = _state(job.directory)
    until = time.monotonic() + watch_seconds
    while time.monotonic() < until:
        if _state(job.directory) != before:
            host, pid = str(mark.get("host", job.driver.host)).split(" ")[0], mark.get("pid", job.driver.pid)
            raise UsageError(
                f"Job {job.job_id} ('{job.header.job_name}') still runs: its driver, process {pid} on {host}, has just written to its log.",
                hint="Wait for its end, or end that process, before you go on with the job.",
            )
        time.sleep(_POLL_SECONDS)


def take_over(job: FoundJob) -> FoundJob:
    """Makes the job this process's: renames its directory, and reads what counts of its log. Raises UsageError where another driver was
    faster, DamagedLogError, OSError."""
    epoch = (
        max(job.epoch, job.log.epoch) + 1
    )  # a rename may be lost with the machine, and what was written after it be there
    directory = job.directory.with_name(directory_name(job.job_id, epoch))
    try:
        job.directory.rename(directory)
    except FileNotFoundError:
        raise UsageError(f"Job {job.job_id} was taken over by another driver just now{_who(job)}.") from None
    return FoundJob(job.job_id, epoch, directory, read_log(directory / LOG), job.header)


def _who(job: FoundJob) -> str:
    with suppress(UsageError, DamagedLogError, OSError):
        winner = find_job(job.directory.parent, job.job_id)
        if winner.driver.epoch > job.epoch:
            return f": process {winner.driver.pid} on {winner.driver.host.split(' ')[0]}"
    return ""


def _mark_of(job: FoundJob) -> Mapping[str, Any]:
    """The owner's mark of the directory; empty if it has none yet."""
    with suppress(OSError, ValueError):
        mark = json.loads(job.directory.with_name(job.directory.name + MARK).read_bytes())
        return mark if isinstance(mark, dict) else {}
    return {}


def _state(directory: Path) -> object:
    """Changes with each record that is written; a driver that takes the job over changes it, too."""
    try:
        return sorted((entry.name, entry.stat().st_size) for entry in (directory / LOG).iterdir())
    except OSError:
        return None
