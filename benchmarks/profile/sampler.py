"""Samples where a Python process spends its CPU time, into a file of its own. Needs Python and Linux, nothing else.

A sample is taken whenever the process has used another few milliseconds of CPU: what waits weighs nothing. It says for each thread that has
used any what it has used since the sample before, by its own clock in nanoseconds, and its stack of Python frames. A C function (of Arrow,
numpy, zlib) shows as the frame that called it, at that line; threads without Python frames as the stack of the thread that samples, which in
a worker asked for them.

A worker's work is done by its main thread: there a signal is handled between two bytecodes, with no other thread waiting for the GIL, so
that plain Python shows where it is. A driver's main thread waits for others: there a thread samples, and gets the GIL where it is given up
or after ``SWITCH_SECONDS``, so that time just before a call which gives it up is told of that call; and a thread that works for less than
the interval at a time is often found waiting, which ``accounts`` puts right.

A file's lines: ``+ID FRAME;FRAME;...`` names a stack, root first, each frame ``module:function:line``; ``TIME NANOSECONDS ID`` is a sample at
that time of CLOCK_MONOTONIC. What sampling itself costs is a sample with the stack ``PROFILER``.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

INTERVAL_SECONDS = 0.005
"""Of CPU. The kernel rounds it up to its ticks."""
SWITCH_SECONDS = 0.0005
UNINTERRUPTED_SECONDS = 1.0
"""How long a thread waits for the GIL, in a process with a sampling thread: as long as usual, and while that one looks at the others' frames.
They must not run on meanwhile: Python 3.11 crashes on frames that are left while somebody walks along them."""
PROFILER = "profiler:sample:0"
NATIVE = "native:threads:0"
THREAD = "thread"
"""The module of a stack's root where it is not the thread that samples."""
SUFFIX = ".samples"
_PROCESS_CLOCK = 2  # CLOCK_PROCESS_CPUTIME_ID


def thread_clock(native_id: int) -> int:
    """The clock of the CPU time of a thread of this process, for ``time.clock_gettime_ns``; see clock_getcpuclockid(3)."""
    return (~native_id << 3) | 6


def process_clock(pid: int) -> int:
    """The same of any process."""
    return (~pid << 3) | 2


def start_in_worker(directory: str) -> None:
    """In the main thread of a process that has just been forked."""
    sampler = Sampler(Path(directory), "worker")
    sampling = False

    def sample(_number: int, frame: FrameType | None) -> None:
        nonlocal sampling
        within = frame is not None and frame.f_code is sample.__code__  # as the one before begins or ends
        if not (sampling or within):  # the next signal may come meanwhile
            sampling = True
            sampler.write(sampler.lines(frame))
            sampling = False

    signal.signal(signal.SIGPROF, sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    # while Python ends there is no handler any more, and the signal would end the process
    atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)


def start_in_driver(directory: str) -> None:
    sampler = Sampler(Path(directory), "driver")
    sys.setswitchinterval(SWITCH_SECONDS)
    threading.Thread(target=_sample_for_ever, args=(sampler,), name="profiler", daemon=True).start()


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _sample_for_ever(sampler: Sampler) -> None:
    wait = ctypes.CDLL(None).clock_nanosleep
    interval = ctypes.byref(_TimeSpec(0, round(INTERVAL_SECONDS * 1e9)))
    while True:
        wait(_PROCESS_CLOCK, 0, interval, None)
        sys.setswitchinterval(UNINTERRUPTED_SECONDS)
        lines = sampler.lines()
        sys.setswitchinterval(SWITCH_SECONDS)
        sampler.write(lines)


class Sampler:
    """The samples of this process. ``kind``: "worker" or "driver", which the file's name tells."""

    def __init__(self, directory: Path, kind: str) -> None:
        path = directory / f"{os.getpid()}-{kind}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._stacks: dict[tuple[str | int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        """Of all known stacks, each once, for the garbage collector looks at them: while they live, nothing else has their addresses."""
        self._used: dict[int, int] = {}
        """CPU time of each thread at the last sample."""
        self._process = 0
        self._begun = 0
        """CPU time of the sampling thread when the last sample began."""
        self._own = 0
        """What the last sample itself has used."""

    def lines(self, frame: FrameType | None = None) -> list[str]:
        """A sample; ``write`` must follow. ``frame``: where this thread was interrupted; None: this thread does nothing but sample."""
        begun, process, now = time.thread_time_ns(), time.process_time_ns(), time.monotonic_ns()
        own = threading.get_native_id()
        spent = begun - self._used.get(own, 0)
        rest = process - self._process - spent
        lines: list[str] = []
        if frame is not None:
            self._add(lines, now, spent, frame)
            spent = 0
        self._add(lines, now, self._own + spent, None, PROFILER)
        rest -= self._others(lines, now)
        self._add(lines, now, rest, frame, NATIVE)
        self._begun, self._process = begun, process
        return lines

    def write(self, lines: list[str]) -> None:
        os.write(self._file, "".join(lines).encode())
        ended = time.thread_time_ns()
        self._own = ended - self._begun
        self._used[threading.get_native_id()] = ended
        self._process += self._own

    def _others(self, lines: list[str], now: int) -> int:
        """Samples of all threads but this one. Returns the nanoseconds that they have used."""
        frames: dict[int, FrameType] = {}
        whole = 0
        for thread in threading.enumerate():
            if thread.ident in (None, threading.get_ident()) or thread.native_id is None:
                continue
            if spent := self._spent(thread.native_id):
                frames = frames or sys._current_frames()
                self._add(lines, now, spent, frames.get(thread.ident), root=f"{THREAD}:{_letters(thread.name)}:0")
                whole += spent
        return whole

    def _spent(self, native_id: int) -> int:
        """Nanoseconds that a thread has used since the last sample."""
        try:
            used = time.clock_gettime_ns(thread_clock(native_id))
        except OSError:  # it has ended
            return 0
        before = self._used.get(native_id, 0)
        self._used[native_id] = used
        return used - before if used >= before else used  # another thread's number, given anew

    def _add(
        self, lines: list[str], at: int, nanoseconds: int, frame: FrameType | None, leaf: str = "", root: str = ""
    ) -> None:
        """A sample of the stack between ``root`` and ``leaf``, after its name if it is new."""
        if nanoseconds <= 0:
            return
        key = root, leaf, *_key(frame)
        number = self._stacks.get(key)
        if number is None:
            number = self._stacks[key] = len(self._stacks)
            names = [name for name in (root, *self._frames(frame), leaf) if name]
            lines.append(f"+{number} {';'.join(names) or NATIVE}\n")
        lines.append(f"{at} {nanoseconds} {number}\n")

    def _frames(self, frame: FrameType | None) -> list[str]:
        """Root first."""
        found: list[str] = []
        while frame is not None:
            code = frame.f_code
            self._codes[id(code)] = code
            found.append(f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}:{frame.f_lineno or 0}")
            frame = frame.f_back
        return found[::-1]


def _letters(name: str) -> str:
    """A thread's name without what tells it from its like."""
    return re.sub(r"[^A-Za-z]+", "-", name).strip("-")


def _key(frame: FrameType | None) -> tuple[int, ...]:
    key: list[int] = []
    while frame is not None:
        key += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    return tuple(key)
