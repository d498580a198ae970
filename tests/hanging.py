"""Ends a run whose test hangs, and says in few lines which test it is and where it stands.

A test hangs when it takes longer than ``SECONDS`` with the fixtures made for it; longer where it is marked ``patience(seconds)``.
The process ends with its children (a run with workers goes on without that test), and writes past pytest's capture: the test's
name, its child processes, the main thread's stack, and the stacks of threads that are in more than Python's and installed
packages' code, for a hundred idle connections of py4j would hide those. If some C code holds Python's lock, so that nothing
here can run, faulthandler writes what it knows.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, sleep  # those that no test has replaced
from types import FrameType

import psutil
import pytest
from tests import effort

SECONDS = 900.0
"""More than the 600 s that tests themselves wait for one thing, after which they say more."""
GRACE_SECONDS = 60.0
LOOK_SECONDS = 1.0
LINE = 160
NOT_OURS = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib"))
ROOT = Path(__file__).resolve().parent.parent
RUNNERS = ("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", "/pytest/", "<string>", "<frozen runpy>")
"""Those who call a test: the same in every stack."""


class HangWatch:
    """A plugin of pytest. Made before pytest captures what is written, it keeps the real standard error."""

    def __init__(self) -> None:
        self._stderr = os.fdopen(os.dup(2), "w")
        self._test, self._seconds, self._until = "", 0.0, inf
        threading.Thread(target=self._watch, name="hang watch", daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, self._seconds = item.nodeid, seconds_of(item)
        self._until = monotonic() + self._seconds
        faulthandler.dump_traceback_later(self._seconds + GRACE_SECONDS, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            self._disarm()

    def pytest_enter_pdb(self) -> None:
        """Nothing hangs that a person looks at."""
        self._disarm()

    def _disarm(self) -> None:
        self._until = inf
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while monotonic() < self._until:
            sleep(LOOK_SECONDS)
        children = psutil.Process().children(recursive=True)
        try:
            self._stderr.write(report(self._test, self._seconds, children))
            self._stderr.flush()
        finally:
            for child in children:  # which may hold the run's output open
                with suppress(psutil.Error):
                    child.kill()
            os._exit(1)


def seconds_of(item: pytest.Item) -> float:
    """How long a test may take; longer also where more examples are asked for."""
    marker = item.get_closest_marker("patience")
    return (marker.args[0] if marker else SECONDS) * effort.longer()


def report(test: str, seconds: float, children: list[psutil.Process]) -> str:
    """What is written, by another thread than the main one."""
    frames = sys._current_frames()
    threads = [t for t in threading.enumerate() if t not in (threading.main_thread(), threading.current_thread())]
    lines = [f"\nHANGS: {test} has taken {seconds:g} s, so this process ends.", *map(_told, children)]
    lines += ["The main thread, its latest call last:", *_calls(frames[threading.main_thread().ident])]
    for thread in threads:
        if thread.ident in frames and _has_ours(frames[thread.ident]):
            lines += [f"Thread {thread.name}:", *_calls(frames[thread.ident])]
    return "\n".join(lines) + "\n"


def _told(child: psutil.Process) -> str:
    try:
        return f"Process {child.pid}: {' '.join(child.cmdline())}"[:LINE]
    except psutil.Error:
        return f"Process {child.pid} has just ended."


def _has_ours(frame: FrameType) -> bool:
    files = (at.f_code.co_filename for at, _line in traceback.walk_stack(frame))
    return any(Path(file).is_absolute() and not file.startswith(NOT_OURS) for file in files)


def _calls(frame: FrameType) -> list[str]:
    """A line each, the latest last."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame))
    return [
        f"  {_short(at.filename)}:{at.lineno} {at.name}: {at.line}" for at in reversed(stack) if not _runs_tests(at)
    ]


def _runs_tests(at: traceback.FrameSummary) -> bool:
    return any(runner in at.filename for runner in RUNNERS)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "/".join(path.parts[-2:])
