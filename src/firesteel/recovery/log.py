"""Writing a job's log: entries become durable in groups, in a thread of their own.

What is appended while one group is being made durable is the next group, so many events cost one wait for the disk. Whoever
appended learns by :class:`Durable` how far it is. A log that fails is given up for good, once: :class:`LogLost`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firesteel.errors import FiresteelError
from firesteel.recovery.frames import frame

PAUSE_SECONDS = 0.1
"""Entries that nobody waits for are written after so long; those of a group that somebody waits for go with it."""
ALIVE_SECONDS = 5.0
"""The log grows at least so often while its driver lives."""
GROUP_BYTES = 8 << 20
"""A group of so many bytes is written at once."""
MOST_REST_SECONDS = 0.25
"""So long is waited at most before the next group, if groups are dear and small ones come one after another."""
_SMALL_BYTES = 64 << 10

_log = logging.getLogger("firesteel.recovery")


class FencedError(FiresteelError):
    """This driver may change nothing of the job any more: another one has taken it over, or will."""


class LogFile(Protocol):
    """The log's place on storage. ``append``: durable when it returns; raises OSError, or FencedError when another driver has taken over.
    ``put``: an object beside it, durable too. ``remove``: the whole log goes, so that nobody resumes from it; raises OSError, FencedError.
    ``verify``: raises FencedError where another driver has taken over, or had, and has removed the log; OSError.
    ``is_dear``: each group costs money, and more time than a disk takes."""

    @property
    def is_dear(self) -> bool: ...
    def put(self, name: str, data: bytes) -> None: ...
    def append(self, data: bytes) -> None: ...
    def verify(self) -> None: ...
    def close(self) -> None: ...
    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Durable:
    """All entries up to this number are."""

    entry: int


@dataclass(frozen=True, slots=True)
class LogLost:
    """Nothing is written any more. ``fenced``: another driver goes on with the job. ``is_void``: the log is gone, nobody can resume from
    what there was of it."""

    reason: str
    fenced: bool = False
    is_void: bool = False


Report = Callable[[Durable | LogLost], None]


class Writer:
    """``report`` is called in the writer's thread; ``alive`` makes the entry that says no more than that this driver lives."""

    def __init__(self, file: LogFile, report: Report, alive: Callable[[], bytes]) -> None:
        self._file, self._report, self._alive = file, report, alive
        self._changed = threading.Condition()
        self._entries: list[bytes] = []
        self._gathered = 0
        """Bytes of these entries."""
        self._appended = 0
        self._durable = 0
        self._awaited = False
        """Somebody waits for an entry that is not written yet."""
        self._closing = False
        self._rest, self._rest_until = 0.0, 0.0
        self._broken = ""
        self._lost: LogLost | None = None
        self._thread = threading.Thread(target=self._work, name="firesteel-log", daemon=True)
        self._thread.start()

    def append(self, entry: bytes, *, awaited: bool) -> int:
        """Returns the entry's number, from 1. ``awaited``: something waits until it is durable, so it is written at once."""
        with self._changed:
            self._appended += 1
            if self._lost is None:
                self._entries.append(entry)
                self._gathered += len(entry)
                self._awaited |= awaited
                if len(self._entries) == 1 or awaited or self._is_full:
                    self._changed.notify_all()
            return self._appended

    def wait(self, entry: int) -> None:
        """Returns when the entry is durable. Raises FencedError, or OSError for a log that was given up."""
        with self._changed:
            if self._durable < entry:
                self._awaited = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._durable >= entry or self._lost is not None)
            if self._durable < entry and self._lost is not None:
                raise FencedError(self._lost.reason) if self._lost.fenced else OSError(self._lost.reason)

    def give_up(self, reason: str) -> None:
        """Something that belongs to the log could not be stored: nothing that is appended from here on is written."""
        with self._changed:
            self._broken = reason
            self._changed.notify_all()

    def close(self) -> None:
        """Writes what there is, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._file.close()

    # --- in its own thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                self._file.append(frame(group))
                with self._changed:
                    self._durable += len(group)
                    durable = Durable(self._durable)
                    self._changed.notify_all()
                self._report(durable)
        except FencedError as error:
            self._give_up(LogLost(error.message, fenced=True))
        except Exception as error:
            _log.debug("the log was given up", exc_info=error)
            self._give_up(self._lost_by(f"{type(error).__name__}: {error}"))

    def _next_group(self) -> list[bytes] | None:
        """Waits for something to write; None: it is closed, and all is written."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._entries or self._closing or self._broken, ALIVE_SECONDS):
                self._entries.append(self._alive())
                self._appended += 1
            elif self._broken:
                raise OSError(self._broken)
            elif not self._entries:
                return None
            else:
                self._changed.wait_for(lambda: self._awaited or self._closing or self._is_full, PAUSE_SECONDS)
                self._changed.wait_for(lambda: self._closing or self._is_full, self._left_of_rest())
            self._rests_after(self._gathered)
            group, self._entries = self._entries, []
            self._gathered, self._awaited = 0, False
            return group

    def _left_of_rest(self) -> float:
        return max(0.0, self._rest_until - time.monotonic())

    def _rests_after(self, gathered: int) -> None:
        """Grows from group to group, as long as small ones come without a break."""
        if not self._file.is_dear:
            return
        now = time.monotonic()
        steady = gathered < _SMALL_BYTES and now - self._rest_until < MOST_REST_SECONDS
        self._rest = min(MOST_REST_SECONDS, 2 * self._rest + 0.005) if steady else 0.0
        self._rest_until = now + self._rest

    @property
    def _is_full(self) -> bool:
        return self._gathered >= GROUP_BYTES

    def _lost_by(self, reason: str) -> LogLost:
        try:
            self._file.remove()
        except FencedError as fenced:
            return LogLost(fenced.message, fenced=True)
        except Exception:  # whatever it is: all that waits for this log waits for ever unless it is told
            _log.debug("the log cannot be removed", exc_info=True)
            return LogLost(reason)
        return LogLost(reason, is_void=True)

    def _give_up(self, lost: LogLost) -> None:
        with self._changed:
            self._lost = lost
            self._entries.clear()
            self._changed.notify_all()
        self._report(lost)
