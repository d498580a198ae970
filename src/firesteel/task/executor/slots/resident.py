"""Resident memory of this process, from Linux's /proc. Stdlib only, for executors.

Resident memory, not address space: Arrow reserves far more than it uses. Pages shared with the process that forked this one
and pages of mapped files are counted. (To leave them out takes 340 us a look instead of 2 us. Of child processes only the pages
that are theirs alone count: most of the others are their parent's.)
"""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_STATUS_BYTES = 8192
_HIGHEST = re.compile(rb"VmHWM:\s*(\d+)")
_NOW = re.compile(rb"VmRSS:\s*(\d+)")
_PRIVATE = re.compile(rb"\nPrivate_(?:Clean|Dirty):\s*(\d+)")


class Resident:
    """This process' resident memory in bytes. ``now``: at the last look; ``peak``: the highest since ``begin``.

    The kernel itself keeps the highest, so that nothing between two looks is missed; where it cannot be asked to begin
    anew (/proc is read-only), the highest that was looked at.
    """

    def __init__(self) -> None:
        """Raises OSError where there is no such /proc."""
        self._status = self._opened()
        self._exact = False
        self.now = self.peak = 0

    def begin(self) -> None:
        """Forgets the peak."""
        self._exact = False
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_bytes(b"5")
            self._exact = True
        self.peak = 0
        self.look()

    def look(self) -> int:
        """``now``, in some 3 us."""
        status = self._read_status()
        now = _NOW.search(status)
        self.now = int(now[1]) << 10 if now else self.now
        highest = _HIGHEST.search(status) if self._exact else None
        self.peak = max(self.peak, int(highest[1]) << 10 if highest else self.now)
        return self.now

    def _read_status(self) -> bytes:
        with suppress(OSError):
            if status := os.pread(self._status, _STATUS_BYTES, 0):
                return status
        with suppress(OSError):  # somebody closed all files
            self._status = self._opened()
        return b""

    @staticmethod
    def _opened() -> int:
        return os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)

    def look_at_children(self) -> None:
        """Adds what child processes hold to ``now``, and to ``peak`` what they hold while this one is as it is now.

        Some 8 us per thread where there are none.
        """
        held = sum(map(_private, descendants(os.getpid())))
        self.now += held
        self.peak = max(self.peak, self.now)

    def end_children(self) -> None:
        """Kills them, and theirs."""
        kill_all(descendants(os.getpid()))


@functools.lru_cache(maxsize=1)
def _of(process: int) -> Resident | None:
    try:
        return Resident()
    except OSError:
        return None


def own_memory() -> Resident | None:
    """Of this process, also after it was forked; None where the system does not tell."""
    return _of(os.getpid())


def descendants(process: int) -> set[int]:
    """The children of a process, and theirs."""
    found: set[int] = set()
    _add_children(process, found)
    return found


def _add_children(process: int, known: set[int]) -> None:
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for text in _read(f"{thread}/children").split():
                if (child := int(text)) not in known:
                    known.add(child)
                    _add_children(child, known)


def kill_all(processes: Iterable[int]) -> None:
    """One that has ended by itself does no harm."""
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _private(process: int) -> int:
    """Resident bytes that a process shares with no other; 0 if it is gone or not ours to see."""
    return sum(int(found) << 10 for found in _PRIVATE.findall(_read(f"/proc/{process}/smaps_rollup")))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
