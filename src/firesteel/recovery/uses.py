"""Kept results in use: a job that may read them yet holds them, and whoever removes them looks first.

A lock of the file system on a file beside the job's log, which the system takes back when a process dies, however it dies. Its time is that of the last
use: results are kept for so long since then. Where files cannot be locked, nothing is held; what is removed is made again then. On an object store it is a
lease (``leases``).
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path

from firesteel.recovery.leases import Lease, begin_lease, end_leases, last_lease
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None

USED = "used"
"""In the directory of a job's log on a file system, if others may use its results."""


class _Lock:
    """A lock by its open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(self)

    def end(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = end


Use = _Lock | Lease
"""Results that are held, until ``end`` or the end of the process. ``end`` may be called twice."""

_held: weakref.WeakSet[_Lock] = weakref.WeakSet()


def _end_all() -> None:
    for use in list(_held):
        use.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)  # else a child would hold them yet after its parent has ended them


def begin_use(directory: Path | ObjectPath, *, own: bool = False) -> Use | None:
    """Holds a job's results, beside others who do. ``own``: the job is this process', whether others may use its results or not. None: they are not for
    others, or are being removed."""
    if isinstance(directory, ObjectPath):
        return begin_lease(directory)
    path = directory / LOG / USED
    try:
        use = _Lock(descriptor := os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if own else 0), 0o600))
    except OSError:
        return None
    try:
        _lock(descriptor, shared=True)
        os.utime(path)  # unless somebody has just removed them
        if os.path.samestat(path.stat(), os.fstat(descriptor)):
            return use
    except OSError:
        pass
    use.end()
    return None


def end_uses(directory: Path | ObjectPath, read: int | None = None) -> bool:
    """From here on nobody can hold the job's results, as nobody could before if they are not for others, or somebody is removing them or was. False: somebody
    holds them. On an object store nobody can go on with the job, either; False as well where somebody does. ``read``: as ``end_leases`` takes it."""
    if isinstance(directory, ObjectPath):
        return end_leases(directory, read)
    path = directory / LOG / USED
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return True
    except OSError:
        return False
    try:
        _lock(descriptor, shared=False)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def last_use(directory: Path | ObjectPath) -> float:
    """Returns its time by the storage's clock, in seconds since 1970; 0: it is gone."""
    with suppress(OSError):
        if isinstance(directory, ObjectPath):
            return last_lease(directory)
        return (directory / LOG / USED).stat().st_mtime
    return 0.0


def _lock(descriptor: int, *, shared: bool) -> None:
    """Raises BlockingIOError where somebody else's lock forbids it."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system has no locks
        pass
