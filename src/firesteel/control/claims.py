"""One stream per checkpoint: the claim on it, which the system gives back when the process ends, however it ends.

A claim is a lock on directories, never on a file: nothing has to be made that another user could not open, and nothing that
is swept out of ``/tmp``. Whoever may write a checkpoint on this machine locks the same directory: the checkpoint itself.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from firesteel.control import places
from firesteel.errors import UsageError

try:
    import fcntl
except ImportError:  # pragma: no cover - not Unix
    fcntl = None

_held: weakref.WeakSet[Claim] = weakref.WeakSet()


class Claim:
    """Held from :func:`claim` to :meth:`release`."""

    def __init__(self, locks: list[int]) -> None:
        self._locks = locks
        _held.add(self)

    def release(self) -> None:
        """Also where a process that was just started still has a copy of a descriptor. Safe to call twice."""
        assert fcntl is not None
        locks, self._locks = self._locks, []
        for lock in locks:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def forget(self) -> None:
        """In a forked child, which must not keep the claim of a parent that was killed."""
        locks, self._locks = self._locks, []
        for lock in locks:
            os.close(lock)


class Taken(Exception):
    """Another stream has the checkpoint."""


def claim(checkpoint: str) -> Claim:
    """Raises Taken; UsageError where another user's directory is in the way; OSError where nothing can be locked."""
    locks: list[int] = []
    problem: OSError = FileNotFoundError("there is no directory to lock")
    try:
        for directory in _directories(checkpoint):
            try:
                locks.append(_lock(directory))
            except OSError as error:  # it cannot be made here, or its file system has no locks
                problem = error
        if not locks:
            try:
                locks.append(_lock(_private(checkpoint)))
            except OSError as error:
                problem = error
    except BaseException:
        Claim(locks).release()
        raise
    if not locks:
        raise problem
    return Claim(locks)


def _directories(checkpoint: str) -> Iterator[Path]:
    """Yields the directories that are locked for a checkpoint on this machine."""
    path = places.local_path(checkpoint)
    if path is None:
        return
    with suppress(OSError):  # a path without a scheme may be one of Spark's default file system: then Spark makes it
        path.mkdir(parents=True, exist_ok=True)
    if os.path.exists(path):  # noqa: PTH110 - this one is content with directories that cannot be searched
        _check(path, checkpoint)
        yield path
    near = places.beside(checkpoint)
    if near is not None:  # this one stays where somebody deletes the checkpoint under a stream that runs
        with suppress(OSError):
            near.parent.mkdir(parents=True, exist_ok=True)
            yield places.make_private(near)


def _check(path: Path, checkpoint: str) -> None:
    if not path.is_dir():
        raise UsageError(f"The checkpoint '{checkpoint}' is not a directory.", hint="Give a directory, or a new name.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(
            f"The checkpoint '{checkpoint}' belongs to {owner_of(path)}, and you ({user_name(os.geteuid())}) may not read "
            "and write it.",
            hint="Let its owner start the stream, or ask for the permission to write.",
        )


def _private(checkpoint: str) -> Path:
    """The same in every environment that this user starts streams in: service, cron, login."""
    place = places.claims_directory()
    with suppress(FileNotFoundError):
        if place.lstat().st_uid != os.geteuid():
            raise UsageError(
                f"The checkpoint '{checkpoint}' cannot be claimed: '{place}' belongs to {owner_of(place)}.",
                hint="It must be yours: have it removed.",
            )
    return places.make_private(places.make_private(place) / places.key_of(checkpoint))


def _lock(directory: Path) -> int:
    """Raises Taken, OSError."""
    assert fcntl is not None
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Taken from None
    except OSError:
        os.close(lock)
        raise
    return lock


def owner_of(path: Path) -> str:
    """In words."""
    try:
        return user_name(path.stat().st_uid)
    except OSError:
        return "somebody else"


def user_name(user: int) -> str:
    try:
        import pwd

        return f"'{pwd.getpwuid(user).pw_name}'"
    except (ImportError, KeyError):
        return f"user {user}"


def _forget_all() -> None:
    for each in tuple(_held):
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
