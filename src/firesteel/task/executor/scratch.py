"""A task's private directory on the executor's local disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from firesteel.results.storage.store import StorageError
from firesteel.task.executor.information import JobInformation

_scratch: dict[str, Path] = {}


def scratch_of(job: JobInformation) -> Path:
    """This worker's private directory for the job, empty. A worker runs one task at a time, so the task owns it.

    Made once per job, since making and removing a directory for each task costs more than a small task does.
    """
    known = _scratch.get(job.job_id)
    if known is None:
        _forget_scratch()
        root = job.scratch or f"{local_directory()}/firesteel-scratch-{job.job_id}"
        known = Path(root) / str(os.getpid())
        empty(known)  # of an earlier process with this number
        _scratch[job.job_id] = known
    if job.scratch is None:
        known.mkdir(parents=True, exist_ok=True)
    else:
        make_in_place(known)
    return known


def shared_of(scratch: Path) -> Path:
    """The directory of what the workers of an executor share of the job, beside their own."""
    return scratch.parent / "shared"


def users_shared_of(scratch: Path) -> Path:
    """The directory of what functions of users share (``task.sharing``): Spark's, for the session; without one, the job's."""
    return Path(local_directory()) / "firesteel-shared" if "SPARK_LOCAL_DIRS" in os.environ else shared_of(scratch)


def local_directory() -> str:
    """The executor's own, which Spark removes with it."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()


def make_in_place(directory: Path) -> None:
    """Not its parent too: the driver has made that, and a task that starts when its job is over must leave nothing."""
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise StorageError(
            f"{directory.parent}, where tasks keep what they spill, is gone: the job is over, or another program removed "
            f"{directory.parent.parent} while it ran.",
            hint="Set firesteel.storage.directory to a place that is not cleaned up automatically.",
        ) from error


def empty(directory: Path, but: str = "") -> None:
    """Removes what a task left in its directory, if anything. ``but``: the name of what stays."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == but:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _forget_scratch() -> None:
    """Removes what this worker has from an earlier job; Spark removes the executor's directory with the executor."""
    while _scratch:
        _, directory = _scratch.popitem()
        shutil.rmtree(directory, ignore_errors=True)
        for shared in (directory.parent / "indexes", shared_of(directory)):  # whoever misses it reads anew
            shutil.rmtree(shared, ignore_errors=True)
