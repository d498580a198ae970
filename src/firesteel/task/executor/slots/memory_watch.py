"""Watches the resident memory of a Python worker while it runs in a slot with a limit, and stops what passes it.

A thread looks every 20 to 100 ms, the oftener the nearer the limit is. At the limit it raises :class:`MemoryStop` in the main
thread, which ends the execution like any other error. What does not end soon (C code that does not return, a function that
swallows every exception) or goes on growing is ended with its process: the sentence is left in the job's store first
(``crash_note``). Child processes of a task that was stopped are killed: nobody else would, and they hold its memory.

A thread that waits (for a lock, for other threads, in a sleep) is woken by a signal, or it would not see the exception.

The exception may come late. So nothing is raised any more once the task is ending (``ending``: it writes nothing new and clears
away) or the watch is over, and what was raised and did not arrive yet is taken back.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from firesteel.engine.connection import interrupt
from firesteel.errors import FiresteelError
from firesteel.humanize import format_bytes
from firesteel.task.functions.user_code import is_foreign

SHORTEST, LONGEST = 0.02, 0.1
"""Seconds between two looks."""
FASTEST_GROWTH = 5 << 30
"""Bytes per second: the next look comes before such growth reaches the limit, but see SHORTEST."""
CHILDREN_SECONDS = 0.1
"""Child processes are not looked at more often."""
AGAIN_SECONDS = 0.5
"""An exception that did not end the task by then was swallowed: it is raised again."""
GRACE_SECONDS = 2.0
"""For the exception to arrive."""
ENDING_SECONDS = 10.0
"""For the task to clear away."""
LEAVING_SECONDS = 5.0
"""For the sentence to reach the store."""
MOST_OVER, MOST_OVER_BYTES = 0.25, 512 << 20
"""Of the limit, and at least so many bytes: what grows on beyond that much more is ended at once."""
EXIT_CODE = 77
_WAKE = signal.SIGURG
"""Ignored where nobody handles it."""
_HINT = (
    "Give its slot sharing group more memory, or each task less data (data-volume-per-task). The limit is the slot's memory "
    "and firesteel.memory.framework; resident memory counts, that of the interpreter, of libraries and of child processes too."
)


class MemoryStop(BaseException):
    """Raised in the main thread of a worker that has passed its limit. Not an Exception: few functions swallow it."""


class MemoryLimitError(FiresteelError):
    """An execution that was stopped at its slot's limit of memory. ``trace``: the user's frames, if it stopped in any."""

    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """``what``: begins a sentence ("Step 'train'"). ``leave``: stores (message, hint) for whoever finds the worker gone.
    ``framework``: bytes of the limit that are for what the worker holds by itself; None: nothing is said of these.
    """

    what: str
    group: str
    host: str
    limit: int
    leave: Callable[[str, str], None]
    framework: int | None = None


class NoWatch:
    """The same where nothing is watched."""

    peak = -1
    stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def ending(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def check(self) -> None:
        pass

    def cause(self, error: BaseException) -> BaseException:
        return error


NO_WATCH = NoWatch()


class MemoryWatch:
    """Of one task; a context manager to be entered in the thread that runs it. ``peak``: bytes, -1 where nothing is known.

    ``watched``: None to learn the peak only.
    """

    def __init__(self, watched: Watched | None, resident: Resident) -> None:
        self._watched = watched
        self._resident = resident
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._raising = True
        """False: the task is ending, nothing is raised in it any more."""
        self._raised = False
        self._where = ""
        self._held_before = 0
        self.peak = -1

    def __enter__(self) -> Self:
        self._resident.begin()
        self._held_before = self._resident.now
        if self._watched is not None:
            looks = _Looks(self, self._watched, self._resident)
            _let_be_woken()
            start_new_thread(looks.run, ())  # threading.Thread would wait until it runs, as long as a small task takes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ending(self) -> None:
        """The task only clears away from now on. Comes through, whatever is raised meanwhile."""
        while True:
            try:
                with self._lock:
                    self._raising = False
                    _take_back(self._main)
                return
            except MemoryStop:  # it was on its way
                continue

    def stop(self) -> None:
        """The watch is over. May be called again."""
        self.ending()
        if not self._over.is_set():
            self._over.set()
            self._resident.look()
            self.peak = max(self.peak, self._resident.peak)
            if self._raised:
                self._resident.end_children()

    @property
    def stopped(self) -> bool:
        """The limit was passed and the task was told."""
        return self._raised

    def check(self) -> None:
        """Raises MemoryLimitError if the task was stopped."""
        if self._raised and self._watched is not None:
            raise MemoryLimitError(self.sentence(self._watched), hint=self.hint(self._watched))

    def cause(self, error: BaseException) -> BaseException:
        """Returns the error to report for the task that raised ``error``: the excess of memory, if that is where it began."""
        if isinstance(error, MemoryLimitError) or not self._raised or self._watched is None:
            return error
        told = MemoryLimitError(self.sentence(self._watched), hint=self.hint(self._watched))
        told.trace = getattr(error, "trace", None)
        return told

    def sentence(self, watched: Watched) -> str:
        return (
            f"{watched.what} was stopped at its limit of memory on {watched.host}{self._where}: its Python worker held "
            f"{format_bytes(self.peak)}, the limit is {format_bytes(watched.limit)} (slot sharing group '{watched.group}')."
        )

    def hint(self, watched: Watched) -> str:
        """Returns advice: more memory for the step, or for the interpreter, whichever needs more than was meant for it."""
        if watched.framework is None or self._held_before <= watched.framework:
            return _HINT
        return (
            f"{format_bytes(self._held_before)} were held before the step began, by the interpreter, libraries and what earlier tasks "
            f"keep, but only {format_bytes(watched.framework)} are set aside for that: raise firesteel.memory.framework. {_HINT}"
        )

    def demand(self) -> None:
        """Raises in the main thread, unless the task is ending. For the watching thread, as all below."""
        with self._lock:
            if self._raising and not self._over.is_set():
                self._where = self._where or _user_place(self._main)
                self._raised = True
                _raise_in(self._main)
                interrupt()  # a statement of the engine's, which does not look at exceptions

    def wait(self, seconds: float) -> bool:
        """True: the watch is over."""
        return self._over.wait(seconds)

    @property
    def is_ending(self) -> bool:
        return not self._raising

    def exit(self, watched: Watched) -> None:
        """Ends the process, unless the task has come to its end by itself."""
        with self._lock:
            if self._over.is_set():
                return
            self._where = self._where or _user_place(self._main)
            told = self.sentence(watched), self.hint(watched)
            leaving = threading.Thread(target=watched.leave, args=told, daemon=True)
            leaving.start()
            leaving.join(LEAVING_SECONDS)
            self._resident.end_children()
            os._exit(EXIT_CODE)


class _Looks:
    """The watching thread."""

    def __init__(self, watch: MemoryWatch, watched: Watched, resident: Resident) -> None:
        self._watch, self._watched, self._resident = watch, watched, resident
        self._children_due = time.monotonic() + CHILDREN_SECONDS

    def run(self) -> None:
        """Until the watch is over."""
        limit = self._watched.limit
        while self._look() <= limit:
            if self._watch.wait(min(LONGEST, max(SHORTEST, (limit - self._resident.now) / FASTEST_GROWTH))):
                return
        if not self._brought_to_its_end():
            self._watch.exit(self._watched)

    def _look(self) -> int:
        """The peak so far."""
        self._resident.look()
        if (now := time.monotonic()) >= self._children_due:
            self._children_due = now + CHILDREN_SECONDS
            self._resident.look_at_children()
        self._watch.peak = max(self._watch.peak, self._resident.peak)
        return self._watch.peak

    def _brought_to_its_end(self) -> bool:
        """False: it goes on, in spite of all."""
        began = time.monotonic()
        most = self._watch.peak + max(MOST_OVER_BYTES, MOST_OVER * self._watched.limit)
        raised_at = -AGAIN_SECONDS
        while True:
            passed = time.monotonic() - began
            if not self._watch.is_ending:
                if passed > GRACE_SECONDS or self._look() > most:
                    return False
                if passed - raised_at >= AGAIN_SECONDS:
                    raised_at = passed
                    self._watch.demand()
            elif passed > GRACE_SECONDS + ENDING_SECONDS:
                return False
            if self._watch.wait(SHORTEST):
                return True


def _let_be_woken() -> None:
    """A handler in Python is what lets an exception into a thread that waits in C code."""
    if signal.getsignal(_WAKE) == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(_WAKE, lambda number, frame: None)


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(MemoryStop))
    signal.pthread_kill(thread, _WAKE)


def _take_back(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)


def _user_place(thread: int) -> str:
    """Returns the line of the user's code that the thread is at: ``, at train.py:12 in fit``."""
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and (is_foreign(frame.f_code.co_filename) or _is_library(frame.f_code.co_filename)):
        frame = frame.f_back
    if frame is None:
        return ""
    name = Path(frame.f_code.co_filename).name
    return f", at {name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _is_library(filename: str) -> bool:
    return "/site-packages/" in filename or "/lib/python3" in filename or filename.startswith("<frozen")


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
