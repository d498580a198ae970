"""Kept results in use on an object store, which has no locks that go with a process: a lease is an object that its holder renews.

A lease is begun and renewed by copying the first object of the job's log, in one request, and that object is the first which a removal takes away: so no
lease comes into being, or stays behind, where results have been removed. Holder and remover each write first and then look for the other, so at least one
of them sees the other and draws back. A removal ends the log as well (``objects``), so it is refused where a driver goes on with the job.

A holder that has not renewed its lease for ``LEASE_SECONDS``, by the store's clock, is taken for dead, as is a process of this machine that is no more. If it was frozen and goes on, the objects that it
wanted are gone, and it makes them again.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b

from firesteel.recovery.frames import DamagedLogError, read
from firesteel.recovery.objects import ObjectPath, end_log, first_segment, segments
from firesteel.recovery.places import LOG, REMOVER, USES
from firesteel.recovery.retention import EPOCH, read_mark
from firesteel.results.storage.filesystem import PAUSES, rest
from firesteel.results.storage.owner import is_dead, myself, says_dead
from firesteel.scheduler.recovery.records import DriverBegan

RENEW_SECONDS = 60.0
LEASE_SECONDS = 5 * RENEW_SECONDS
"""Since its last renewal a lease holds for so long."""
_LEASE = re.compile(r"(?P<scope>[0-9a-f]{16})-(?P<pid>\d+)-(?P<started>.*)-[0-9a-f]{32}")
_LAST = "last"
"""The object among the leases that was written when one of them was given back."""


class Lease:
    """Results that are held, until ``end``, or for ``LEASE_SECONDS`` after the end of the process."""

    def __init__(self, held: _Held) -> None:
        self._held = held
        _keeper.keep(held)

    def end(self) -> None:
        """May be called twice. Never raises: what cannot be given back now is over in a while."""
        _keeper.end(self._held)

    def __del__(self) -> None:
        _keeper.drop(self._held)


class _Held:
    """A lease on the results in ``directory``, as an object of its own."""

    def __init__(self, directory: ObjectPath) -> None:
        self._source, self._uses = first_segment(directory / LOG), directory / USES
        self._place = self._uses / f"{_process()}-{uuid.uuid4().hex}"

    def begin(self) -> bool:
        """False: the results are being removed, or are gone. Raises OSError."""
        if not self.renew():
            return False
        # In this order: what tells of a removal goes after what it removes first.
        if not _is_being_removed(self._place) and self._source.is_file():
            return True
        self._place.remove()
        return False

    def renew(self) -> bool:
        """False: the results are gone. Raises OSError."""
        try:
            self._source.copy_to(self._place)
        except FileNotFoundError:
            return False
        return True

    def give_back(self) -> None:
        """Raises OSError."""
        with suppress(FileNotFoundError):
            self._source.copy_to(self._uses / _LAST)
        self._place.remove()


class _Keeper:
    """Renews the leases of this process, on a thread that lives as long as there are any."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Holds nothing, as in a new process."""
        self.dropped: deque[_Held] = deque()
        """Leases of which nobody has said that they are over."""
        self._changed = threading.Condition()
        self._held: set[_Held] = set()
        self._thread: threading.Thread | None = None

    def keep(self, held: _Held) -> None:
        with self._changed:
            self._held.add(held)
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._begun()

    def _begun(self) -> threading.Thread | None:
        """None: no thread can be started now, so a lease is over in a while unless another one is begun in time."""
        thread = threading.Thread(target=self._work, name="firesteel-leases", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    def drop(self, held: _Held) -> None:
        """Makes no request, and takes no lock, wherever it is called."""
        if held in self._held:
            self.dropped.append(held)

    def end(self, held: _Held) -> None:
        with suppress(OSError):
            self._end(held)

    def end_all(self) -> None:
        """As far as the store answers: the rest is over in a while."""
        with suppress(OSError):
            for held in list(self._held):
                self._end(held)

    def _end(self, held: _Held) -> None:
        with self._changed:
            if held in self._held:
                self._held.remove(held)
                self._changed.notify_all()
                held.give_back()

    def renew_all(self) -> None:
        with suppress(IndexError):  # empty now, though another thread may have taken the last one
            while True:
                self.end(self.dropped.popleft())
        for held in list(self._held):
            with self._changed, suppress(OSError):  # one that is given back meanwhile does not come back
                if held in self._held and not held.renew():
                    self._held.remove(held)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, RENEW_SECONDS)
                if not self._held:
                    self._thread = None
                    return
            self.renew_all()


_keeper = _Keeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keeper.forget)  # they are the parent's
atexit.register(_keeper.end_all)


def begin_lease(directory: ObjectPath) -> Lease | None:
    """None: the results are being removed, or are gone, or the store does not answer."""
    with suppress(OSError):
        held = _Held(directory)
        if held.begin():
            return Lease(held)
    return None


def end_leases(directory: ObjectPath, read: int | None = None) -> bool:
    """From here on nobody can hold the results, nor go on with the job. ``read``: so many objects of the job's log were there when it was found that its results may go; None: they
    may where its owner's mark says that its driver is dead. False: somebody holds them, or goes on with the job."""
    remover = directory / USES / f"{REMOVER}{uuid.uuid4().hex}"
    try:
        first_segment(directory / LOG).copy_to(remover)
        return _end_leases(directory, remover, read)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _end_leases(directory: ObjectPath, remover: ObjectPath, read: int | None) -> bool:
    """As ``end_leases``, once the remover has told of itself. Raises OSError."""
    draws_back = True
    try:
        found = _leases_beside(remover)
        if remover.name not in found:  # somebody else has removed all of it
            return True
        since = found[remover.name] - LEASE_SECONDS
        held = any(at > since and not _is_over(name) for name, at in found.items())
        number = None if held else _next(directory, segments(directory / LOG), since=since) if read is None else read
        draws_back = number is None or not end_log(directory / LOG, number)
        if not draws_back:
            first_segment(directory / LOG).remove()
        return not draws_back
    finally:
        if draws_back:  # also where the process is interrupted: nobody holds the results while it is there
            with suppress(OSError):
                remover.remove()


def last_lease(directory: ObjectPath) -> float:
    """Returns when the results were last of use, by the store's clock, in seconds since 1970; 0: they are gone. Raises OSError."""
    used = [place.changed for place in (directory / USES).iterdir() if not place.name.startswith(REMOVER)]
    return max(used or (place.changed for place in (directory / LOG).iterdir()), default=0.0)


def end_own(directory: ObjectPath, epoch: int) -> bool:
    """Returns whether the driver of this epoch is the last one of the job yet; from here on nobody can go on with it then: its log is ended, and has no beginning, so that what a deletion
    leaves of the rest for a moment, or for good if its process dies, is never read as a shorter log. Raises OSError."""
    found = segments(directory / LOG)
    if 0 not in found:  # there is no log, or it was ended
        return True
    number = _next(directory, found, epoch)
    if number is None or not end_log(directory / LOG, number):
        return False
    first_segment(directory / LOG).remove()
    return True


def is_own(directory: ObjectPath, epoch: int) -> bool:
    """Returns whether the driver of this epoch is the last one of the job yet, and nobody has ended its log. Raises OSError."""
    found = segments(directory / LOG)
    return 0 in found and _next(directory, found, epoch) is not None


def _next(
    directory: ObjectPath, found: Mapping[int, ObjectPath], epoch: int | None = None, *, since: float = 0.0
) -> int | None:
    """The number of the log's next object. ``found``: those that are there; ``epoch``: of the driver that asks, if it has the job itself. None: another one has it, or may have.
    Raises OSError.

    A driver that takes a job over continues the log, marks the results as its own, and writes more, in this order. So while the log is looked at before the mark, one that has done
    no more than the first is seen at the log's last object, if that was not written before ``since``: so long nobody takes.
    """
    mark = read_mark(directory)
    marked = mark.get(EPOCH, 1)
    if mark and (not says_dead(mark) if epoch is None else marked > epoch):
        return None
    known, last = epoch or marked, max(found, default=-1)
    is_taken = last >= 0 and found[last].changed > since and any(one > known for one in _epochs(found[last]))
    return None if is_taken else last + 1


def _process() -> str:
    """Names this process, with the scope of its number, for other processes in it."""
    mine = myself()
    return f"{_scope(mine['host'])}-{mine['pid']}-{mine['started']}"


def _scope(host: str) -> str:
    return blake2b(host.encode(), digest_size=8).hexdigest()


def _is_over(name: str) -> bool:
    """Returns whether the object is not a lease, or is that of a process which is no more, for certain."""
    match = _LEASE.fullmatch(name)
    if match is None:
        return True
    host = myself()["host"]
    return match["scope"] == _scope(host) and is_dead(
        {"host": host, "pid": int(match["pid"]), "started": match["started"]}
    )


def _epochs(segment: ObjectPath) -> list[int]:
    """Of the drivers that began in it."""
    with suppress(DamagedLogError, FileNotFoundError):
        entries = read(segment.read_bytes(), segment.path).entries
        return [record.epoch for entry in entries for record in entry if isinstance(record, DriverBegan)]
    return []


def _leases_beside(place: ObjectPath) -> dict[str, float]:
    """The names of all objects among the leases, with their times by the store's clock. Raises OSError."""
    return {one.name: one.changed for one in place.parent.iterdir()}


def _is_being_removed(lease: ObjectPath) -> bool:
    """Returns whether a remover tells of itself beside the lease, which was begun just now, or all of it has gone. A remover draws back where somebody else
    holds the results, so it is given a moment; one that has told for ``LEASE_SECONDS`` has died. Raises OSError."""

    def told() -> bool:
        found = _leases_beside(lease)
        since = found.get(lease.name, 0.0) - LEASE_SECONDS
        return lease.name not in found or any(name.startswith(REMOVER) and at > since for name, at in found.items())

    for pause in PAUSES[:2]:
        if not told():
            return False
        rest(pause)
    return told()
