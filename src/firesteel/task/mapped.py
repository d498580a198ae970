"""Objects that the Python workers of an executor share: made by one of them, laid into a file on its local disk, mapped by all.

A file appears by a rename, so one that can be seen is whole. Its name says all that the object depends on, so it is never stale.
Who makes an object holds a lock, which the system takes back from a worker that dies; nobody waits for a lock while holding
another. Where the disk takes no file (full, not writable, gone with the job), each worker makes the object for itself.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

IDLE_SECONDS = 300.0
"""Files that no task has opened for so long go when another one is made. Who has mapped one keeps it."""
_ALIGNMENT = 64
_LENGTH_BYTES = 8
_T = TypeVar("_T")

_opened: dict[Path, Any] = {}
"""Objects that this worker process has mapped: by their files, for as long as task after task uses them."""


class MappedObjects:
    """The objects in one directory, which is made in place when the first is."""

    def __init__(self, directory: Path, idle_seconds: float = IDLE_SECONDS) -> None:
        self._directory = directory
        self._idle_seconds = idle_seconds

    def known(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns those of the objects that are there."""
        found: dict[str, Any] = {}
        for name in names:
            self._has_opened(found, self._directory / name)
        return found

    def get_all(self, makers: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
        """Returns the object of each name: mapped, or made here. What a maker raises is raised.

        While another worker makes one, the others are seen to; only then is it waited for.
        """
        found: dict[str, _T] = {}
        for wait in (False, True):
            for name, make in makers.items():
                if name not in found:
                    self._get(found, name, make, wait=wait)
        return {name: found[name] for name in makers}

    def _get(self, found: dict[str, _T], name: str, make: Callable[[], _T], *, wait: bool) -> None:
        path = self._directory / name
        if self._has_opened(found, path):
            return
        with _locked(path, wait=wait) as may_make:
            if not self._has_opened(found, path) and may_make:  # another one may have made it meanwhile
                made = make()
                self._store(path, made)
                if not self._has_opened(found, path):
                    found[name] = made

    @staticmethod
    def _has_opened(found: dict[str, Any], path: Path) -> bool:
        if path not in _opened:
            try:
                _opened[path] = _mapped(path)
            except Exception:  # it is not there, or of no use
                return False
        found[path.name] = _opened[path]
        return True

    def _store(self, path: Path, value: Any) -> None:
        with suppress(OSError):
            self._remove_idle()
            descriptor, part = tempfile.mkstemp(prefix=path.name, dir=self._directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    _write(file, value)
                Path(part).rename(path)
            except BaseException:
                with suppress(OSError):
                    Path(part).unlink()
                raise

    def _remove_idle(self) -> None:
        for path in self._directory.iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - self._idle_seconds:
                    path.unlink()


class PrivateObjects:
    """Nothing is shared."""

    def known(self, names: Iterable[str]) -> dict[str, Any]:
        return {}

    def get_all(self, makers: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
        return {name: make() for name, make in makers.items()}


def let_go(but: Iterable[str] = ()) -> None:
    """Closes what this worker has mapped, but for objects whose names begin so."""
    prefixes = tuple(but)
    for path in list(_opened):
        if not path.name.startswith(prefixes):
            del _opened[path]


@contextmanager
def _locked(path: Path, *, wait: bool) -> Generator[bool]:
    """False: another worker makes the object. Where no lock can be had, each worker makes its own."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True
        return
    try:
        if _has_lock(descriptor, wait=wait):
            try:
                yield True
            finally:
                with suppress(OSError):
                    lock.unlink()
        else:
            yield False
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # the file system knows no locks
        return True
    return True


def _write(file: Any, value: Any) -> None:
    """Buffers, each once and from a multiple of 64 bytes on; the pickle of the rest, with their places; its length."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    places: list[tuple[int, int]] = []
    known: dict[tuple[int, int], tuple[int, int]] = {}
    at = 0
    for raw in (buffer.raw() for buffer in buffers):
        memory = pa.py_buffer(raw).address, raw.nbytes
        if memory not in known:
            known[memory] = at, at + raw.nbytes
            file.write(raw)
            file.write(bytes(-raw.nbytes % _ALIGNMENT))
            at += raw.nbytes + -raw.nbytes % _ALIGNMENT
        places.append(known[memory])
    rest = pickle.dumps((data, places))
    file.write(rest)
    file.write(len(rest).to_bytes(_LENGTH_BYTES, "little"))


def _mapped(path: Path) -> Any:
    """Raises OSError where there is no such file, or it is not this user's own."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{path} is another user's.")
        with suppress(OSError):
            os.utime(descriptor)
        memory = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)
    end = len(memory) - _LENGTH_BYTES
    length = int.from_bytes(memory[end:], "little")
    data, places = pickle.loads(memory[end - length : end])
    return pickle.loads(data, buffers=[memory[begin:end] for begin, end in places])
