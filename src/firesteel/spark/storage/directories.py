"""Directories of jobs' results: a root directory, in it one directory per job and beside each an owner's mark.

The mark names the machine, since which boot, and the process. A later job finds the directories of drivers that were killed
on this machine and removes them, once they are not kept for a resume any more; those of other machines (and of before a reboot) and of
living drivers are left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import FiresteelError, UsageError
from firesteel.options import STORAGE_DIR, STORAGE_FILESYSTEM, Options
from firesteel.recovery.places import MARK, SCRATCH, directory_name, job_and_epoch
from firesteel.recovery.retention import RETAIN, is_kept
from firesteel.results.storage.filesystem import open_location
from firesteel.results.storage.owner import is_dead, myself
from firesteel.results.storage.retry import retried
from firesteel.results.storage.store import ResultStore, StorageError, storage_error

REMOVED = ".removed"
MEASURED_REQUESTS = 3
READER_SECONDS = 60e-6
"""Seconds that a reader spends on one slice where the storage costs next to nothing."""
_PYARROW_REFUSES = ("s3a", "s3n", "dbfs", "wasb", "wasbs", "abfss")
_INSTEAD = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}


class JobStorage:
    """The storage of one job. ``root``: directory or URL; ``store``: the job's own directory in it. ``epoch``: which driver of the job
    this is; ``retain``: seconds for which the results are kept if it dies."""

    def __init__(
        self,
        root: str,
        job_id: str,
        application: str,
        filesystem: str | None = None,
        *,
        epoch: int = 1,
        retain: float = 0.0,
    ) -> None:
        self.root = root
        self.job_id = job_id
        self.epoch = epoch
        self.retain = retain
        self._filesystem = filesystem
        self._name = directory_name(job_id, epoch)
        self.store = ResultStore(f"{root.rstrip('/')}/{self._name}", filesystem)
        self._application = application
        self._fs, self._path = open_root(root, filesystem)

    def create(self) -> None:
        """Makes the mark, then the directories. Raises UsageError or StorageError."""
        self._mark()
        self.store.create()
        self._make_scratch()

    def claim(self) -> None:
        """Marks the directory, which was another driver's, as this one's, and removes what that one's tasks had spilled. Raises StorageError."""
        self._mark()
        for epoch in range(1, self.epoch):
            before = f"{self._path}/{directory_name(self.job_id, epoch)}"
            with suppress(OSError):
                self._fs.delete_file(f"{before}{MARK}")
            if self.store.is_local:
                _remove_scratch(Path(f"{before}{SCRATCH}"))
        self._make_scratch()

    def _mark(self) -> None:
        mark = {**myself(), "application": self._application, "at": time.time()}
        if self.retain:
            mark[RETAIN] = self.retain

        def write_mark() -> None:
            self._fs.create_dir(self._path, recursive=True)
            with self._fs.open_output_stream(self._mark_path) as stream:
                stream.write(json.dumps(mark).encode())

        try:
            retried(write_mark)
        except OSError as error:
            raise StorageError(
                f"Results between steps cannot lie at {self.root}: {str(error).rstrip('.')}.",
                hint=f"Free some space there, check your access rights, or set {STORAGE_DIR.key} to another place.",
                errno=error.errno,
            ) from error

    def _make_scratch(self) -> None:
        if self.scratch is not None:
            Path(self.scratch).mkdir(exist_ok=True)

    @property
    def directory(self) -> Path | None:
        """Returns the job's directory as a path of this machine's file systems; None if it lies elsewhere."""
        return Path(self._path) / self._name if self.store.is_local else None

    def request_seconds(self) -> float:
        """Returns the seconds that reading one slice of an object takes: opening it, one request, and the reader's own work.

        Raises StorageError.
        """
        name = "request-time"
        out = self.store.open_output(name)
        out.write(bytes(4096))
        out.close()
        times: list[float] = []
        try:
            for _ in range(MEASURED_REQUESTS):
                begun = time.perf_counter()
                source = self.store.open_input(name)
                source.read_at(0, 4096)
                source.close()
                times.append(time.perf_counter() - begun)
        except OSError as error:
            raise storage_error(error, self.store.url, "cannot be read") from error
        finally:
            self.store.delete([name])
        return min(times) + READER_SECONDS

    @property
    def scratch(self) -> str | None:
        """Returns the directory in which tasks of this machine may spill; None if the root is not on a file system."""
        return f"{self._path}/{self._name}{SCRATCH}" if self.store.is_local else None

    def remove_scratch(self) -> None:
        if self.scratch is not None:
            _remove_scratch(Path(self.scratch))

    def remove(self) -> None:
        """Removes directory and mark. Never raises: what cannot go now is found by the next job."""
        self.remove_scratch()
        with suppress(OSError, FiresteelError):
            self.store.delete_all()
            with suppress(FileNotFoundError):
                retried(lambda: self._fs.delete_file(self._mark_path))

    def sweep(self) -> list[str]:
        """Removes what drivers that are no more left behind, and what is not kept any more; their job ids. Never raises."""
        removed: list[str] = []
        with suppress(OSError, pa.ArrowException, FiresteelError):
            for info in self._fs.get_file_info(pafs.FileSelector(self._path, allow_not_found=True)):
                directory = info.base_name.removesuffix(MARK)
                owned = job_and_epoch(directory) if directory != info.base_name else None
                if owned is not None and owned[0] != self.job_id and self._is_orphan(directory):
                    orphan = ResultStore(f"{self.root.rstrip('/')}/{directory}", self._filesystem)
                    orphan.delete_all()
                    if orphan.is_local:
                        _remove_scratch(Path(f"{self._path}/{directory}{SCRATCH}"))
                    self._fs.delete_file(info.path)
                    removed.append(owned[0])
        return removed

    @property
    def _mark_path(self) -> str:
        return f"{self._path}/{self._name}{MARK}"

    def _is_orphan(self, directory: str) -> bool:
        try:
            with self._fs.open_input_stream(f"{self._path}/{directory}{MARK}") as stream:
                mark = json.loads(stream.read())
            return is_dead(mark) and not is_kept(self._fs, f"{self._path}/{directory}", mark)
        except (OSError, ValueError):
            return False  # being written or being removed just now


def _remove_scratch(directory: Path) -> None:
    """Moves it aside first: a worker that is only just starting finds no place to make its own directory in."""
    aside = directory.with_name(directory.name + REMOVED)
    with suppress(OSError):
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)


def new_job_id() -> str:
    return uuid.uuid4().hex[:12]


def storage_root(options: Options, *, shared: bool) -> str:
    """The root for results. ``shared``: executors are on other machines, so the user must name a place.

    Raises UsageError for a place that pyarrow cannot open, or for none on a cluster.
    """
    directory = options[STORAGE_DIR]
    if directory is None:
        if shared:
            raise UsageError(
                "On a cluster, results between steps need a place that the driver and every executor see.",
                hint=f"Set {STORAGE_DIR.key} to a shared directory or a URL such as s3://bucket/path.",
            )
        return str(private_directory())
    scheme = directory.partition("://")[0] if "://" in directory else directory.partition(":")[0]
    if scheme in _PYARROW_REFUSES and options[STORAGE_FILESYSTEM] is None:
        instead = f" Write '{_INSTEAD[scheme]}://...'." if scheme in _INSTEAD else ""
        raise UsageError(
            f"{STORAGE_DIR.key} = '{directory}': pyarrow cannot open {scheme} paths, and results between steps are read "
            f"and written by it.{instead}",
            hint="Sources and sinks may still use such paths through Spark.",
        )
    return directory if "://" in directory else str(Path(directory).expanduser().absolute())


def private_directory() -> Path:
    """This user's own directory under the machine's temporary directory; refuses one that someone else made."""
    path = Path(tempfile.gettempdir()) / f"firesteel-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise UsageError(
            f"{path} belongs to another user, so results between steps cannot be stored there.",
            hint=f"Remove it, or set {STORAGE_DIR.key} to a directory of your own.",
        )
    return path


def open_root(root: str, filesystem: str | None = None) -> tuple[Any, str]:
    """(file system, path in it) of a root. Raises UsageError if it cannot be opened."""
    if filesystem is not None:
        return open_location(root, filesystem)
    if "://" not in root:
        return pafs.LocalFileSystem(), str(Path(root).absolute())
    try:
        fs, path = pafs.FileSystem.from_uri(root)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UsageError(f"{STORAGE_DIR.key} = '{root}' cannot be opened: {error}") from error
    return fs, path.rstrip("/")
