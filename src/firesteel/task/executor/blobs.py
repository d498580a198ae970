"""The executor's half of blobs: bytes named by their digest, fetched once per executor and kept on its local disk.

All Python workers of an executor share one directory, with a folder per job in it. A file appears there by a rename,
so one that can be seen is whole; who fetches holds a lock, which the system takes back from a worker that dies.
What is kept is bounded by bytes over all jobs, and a file's time is when it was last used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from firesteel.model.descriptors import digest_of
from firesteel.results.storage.store import ResultStore, StorageError, storage_error

IDLE_SECONDS = 300.0
"""Blobs of another job go when none of its tasks has used one for so long (Flink: the same for a worker's cache)."""
PART = ".part"


def blob_name(digest: bytes) -> str:
    """The object's name in the job's storage; no result is named like that."""
    return f"blob-{digest.hex()}"


def put_blob(store: ResultStore, digest: bytes, data: bytes) -> None:
    """Raises StorageError."""
    output = store.open_output(blob_name(digest))
    try:
        output.write(data)
        output.close()
    except BaseException:
        output.discard()
        raise


class BlobCache:
    """One job's blobs on one executor. ``root`` must exist; ``limit``: bytes of all jobs' blobs below it."""

    def __init__(self, root: Path, job_id: str, store: ResultStore, limit: int) -> None:
        self._root = root
        self._folder = root / job_id
        self._store = store
        self._limit = limit
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)

    def get(self, digest: bytes) -> bytes:
        """Raises StorageError when it is neither here nor in the storage, or damaged there."""
        data = self._read(digest)
        if data is not None:
            return data
        with self._lock():
            data = self._read(digest)  # another worker may have fetched it meanwhile
            if data is None:
                data = self._fetch(digest)
                self._keep(digest, data)
        return data

    def drop(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            with suppress(OSError):
                (self._folder / digest.hex()).unlink()

    def forget_idle_jobs(self) -> None:
        """Removes folders of other jobs that nobody has used for a while."""
        with suppress(OSError):
            for folder in self._root.iterdir():
                if folder != self._folder and folder.is_dir() and _last_used(folder) < time.time() - IDLE_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)

    def _read(self, digest: bytes) -> bytes | None:
        """From the local disk. What is damaged there is as good as not there."""
        path = self._folder / digest.hex()
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def _fetch(self, digest: bytes) -> bytes:
        for _ in range(2):
            data = self._download(digest)
            if digest_of(data) == digest:
                return data
        raise StorageError(
            f"The blob {blob_name(digest)} in {self._store.url} is damaged: its bytes are not those that were stored.",
            hint="It tells tasks where their input lies. Look after that storage: something writes to it or loses bits.",
        )

    def _download(self, digest: bytes) -> bytes:
        name = blob_name(digest)
        try:
            source = self._store.open_input(name)
            try:
                return source.read_at(0, source.size).to_pybytes()
            finally:
                source.close()
        except FileNotFoundError as error:
            raise StorageError(
                f"The blob {name}, which tells tasks where to read, is missing from {self._store.url}: the job is over, or "
                "it was removed."
            ) from error
        except OSError as error:
            raise storage_error(
                error, self._store.url, f"does not give {name}, which tells tasks where to read"
            ) from error

    def _keep(self, digest: bytes, data: bytes) -> None:
        """A cache that cannot be written, or is too small, only costs another fetch."""
        if len(data) > self._limit:
            return
        path = self._folder / digest.hex()
        part = path.with_suffix(PART)
        try:
            self._make_room(len(data))
            part.write_bytes(data)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()

    def _make_room(self, nbytes: int) -> None:
        """Removes the least recently used until ``nbytes`` more fit; also what a dying worker left half-written."""
        files: list[tuple[float, int, Path]] = []
        for path in self._root.glob("*/*"):
            with suppress(OSError):
                status = path.stat()
                files.append((0.0 if path.suffix == PART else status.st_mtime, status.st_size, path))
        total = nbytes + sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= size

    @contextmanager
    def _lock(self) -> Generator[None, None, None]:
        """One fetch at a time on this executor. Where no lock can be had, each worker fetches for itself."""
        try:
            descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _last_used(folder: Path) -> float:
    times: list[float] = [folder.stat().st_mtime]
    times += [entry.stat().st_mtime for entry in os.scandir(folder)]
    return max(times)
