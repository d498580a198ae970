"""Leftovers on the storage of results, of jobs whose driver was killed, and which of them may go.

A later job removes what it finds of dead drivers on this machine (``JobStorage.sweep``); this is the same for a user who wants to
see it, know its size, and have it gone without running a job. Needs no Spark.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import FiresteelError
from firesteel.options import STORAGE_DIR, STORAGE_FILESYSTEM, Options
from firesteel.recovery.places import MARK, PREFIX, RUN_PREFIX, SCRATCH, job_and_epoch
from firesteel.recovery.retention import kept_seconds, storage_clock
from firesteel.recovery.uses import end_uses
from firesteel.results.storage.owner import Owner, myself, owner_of, process_start
from firesteel.spark.storage.directories import REMOVED, log_folder, reached_root, storage_root
from firesteel.spark.storage.reaching import told_of

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
