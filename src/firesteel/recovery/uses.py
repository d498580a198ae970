"""Kept results in use: a job that may read them yet holds them, and whoever removes them looks first.

A lock of the file system on a file beside the job's log, which the system takes back when a process dies, however it dies. Its time is that of the last
use: results are kept for so long since then. Where files cannot be locked, nothing is held; what is removed is made again then.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path

from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import LOG

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None

USED = "used"
"""In the directory of a job's log, if others may use its results."""


class Use:
    """Results that are held, until ``end`` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(self)

    def end(self) -> None:
        """May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = end


_held: weakref.WeakSet[Use] = weakref.WeakSet()


def _end_all() -> None:
    for use in list(_held):
        use.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)  # else a child would hold them yet after its parent has ended them


def begin_use(directory: Path) -> Use | None:
    """Holds a job's results, beside others who do. None: they are not for others, or are being removed."""
    path = directory / LOG / USED
    try:
        use = Use(descriptor := os.open(path, os.O_RDWR | os.O_CLOEXEC))
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


def end_uses(directory: Path | ObjectPath) -> bool:
    """From here on nobody can hold the job's results, as nobody could before if they are not for others (on an object store they never are), or somebody
    is removing them or was. False: somebody holds them."""
    if isinstance(directory, ObjectPath):
        return True
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


def last_use(directory: Path) -> float:
    """Returns its time by the storage's clock, in seconds since 1970; 0: it is gone."""
    with suppress(OSError):
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
