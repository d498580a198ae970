"""CPU time of a process tree, by process, and by thread where the process is a JVM, between two moments. Linux."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.profile.sampler import process_clock

POLL_SECONDS = 0.25
"""How often the tree is looked at: what a process or thread uses after that and before it ends is not seen."""
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_JAVA = "java"


@dataclass
class Process:
    """``first``, ``last``: CPU nanoseconds when the watch began (0: it was not there) and when it was last seen.
    ``threads``: of a JVM, by number: name, and the same two."""

    name: str
    first: int
    last: int
    threads: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return self.last - self.first

    @property
    def is_jvm(self) -> bool:
        return self.name == _JAVA


class Watch:
    """What a process and all below it use while this is entered. ``begun``, ``ended``: on CLOCK_MONOTONIC, in nanoseconds."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.processes: dict[int, Process] = {}
        self.begun = self.ended = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    @property
    def used(self) -> int:
        return sum(process.used for process in self.processes.values())

    def __enter__(self) -> Watch:
        self.begun = time.monotonic_ns()
        self._look(is_first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        self.ended = time.monotonic_ns()

    def _poll(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self._look()

    def _look(self, *, is_first: bool = False) -> None:
        for pid in tree(self._root):
            with suppress(OSError):  # it has ended meanwhile
                used = time.clock_gettime_ns(process_clock(pid))
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                known = self.processes.get(pid)
                if known is None:
                    known = self.processes[pid] = Process(name, used if is_first else 0, used)
                known.name, known.last = name, used  # a process that was forked becomes another program
                if known.is_jvm:
                    _look_at_threads(pid, known, is_first)


def _look_at_threads(pid: int, process: Process, is_first: bool) -> None:
    for entry in os.scandir(f"/proc/{pid}/task"):
        with suppress(OSError):
            name, used = _stat(Path(entry.path, "stat").read_text())
            _, first, _ = process.threads.get(int(entry.name), (name, used if is_first else 0, used))
            process.threads[int(entry.name)] = name, first, used


def tree(root: int) -> Iterator[int]:
    """``root`` and the processes below it."""
    below: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                text = Path(entry.path, "stat").read_text()
                below.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += below.get(pid, [])


def _stat(text: str) -> tuple[str, int]:
    """A thread's name (15 letters of it) and its CPU nanoseconds, see proc_pid_stat(5)."""
    name, _, rest = text.partition("(")[2].rpartition(")")
    user, system = rest.split()[11:13]
    return name, (int(user) + int(system)) * _TICK
