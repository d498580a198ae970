"""Adds up what a process tree has used, by part and by stack: samples for Python, threads for the JVM, and the rest of each process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.profile import parts
from benchmarks.profile.processes import Process, Watch
from benchmarks.profile.sampler import SUFFIX

Stack = tuple[str, ...]
"""As flame graphs show it: process, then frames without their lines; root first."""
_RULES = {"worker": (parts.WORKER, parts.OTHER), "driver": (parts.DRIVER_RULES, parts.DRIVER)}


@dataclass(frozen=True, slots=True)
class Sample:
    """``at``: on CLOCK_MONOTONIC, in nanoseconds; ``used``: nanoseconds of CPU."""

    at: int
    used: int
    stack: tuple[parts.Frame, ...]


@dataclass
class Account:
    """Nanoseconds of CPU of some runs. ``whole``: of the tree, as its processes' clocks say."""

    parts: Counter[str] = field(default_factory=Counter)
    stacks: Counter[Stack] = field(default_factory=Counter)
    whole: int = 0
    runs: int = 0

    @property
    def told(self) -> int:
        """What the parts add up to."""
        return self.parts.total()

    def add(self, part: str, used: int, stack: Stack) -> None:
        self.parts[part] += used
        self.stacks[stack] += used

    def per_run(self, part: str) -> float:
        return self.parts[part] / self.runs


def read(directory: Path) -> dict[int, tuple[str, list[Sample]]]:
    """By process: its kind and its samples."""
    found: dict[int, tuple[str, list[Sample]]] = {}
    for path in directory.glob(f"*{SUFFIX}"):
        pid, _, kind = path.name.removesuffix(SUFFIX).partition("-")
        found[int(pid)] = kind, list(_samples(path.read_text().splitlines()))
    return found


def _samples(lines: Sequence[str]) -> Iterator[Sample]:
    stacks: dict[str, tuple[parts.Frame, ...]] = {}
    for line in lines:
        if line.startswith("+"):
            number, _, text = line[1:].partition(" ")
            stacks[number] = tuple(map(parts.frame_of, text.split(";")))
        else:
            at, used, number = line.split(" ")
            yield Sample(int(at), int(used), stacks[number])


def account(watches: Sequence[Watch], sampled: Mapping[int, tuple[str, Sequence[Sample]]]) -> Account:
    """What was used while any of the watches was entered."""
    made = Account(runs=len(watches))
    for watch in watches:
        made.whole += watch.used
        for pid, process in watch.processes.items():
            if pid in sampled:
                kind, samples = sampled[pid]
                within = [s for s in samples if watch.begun < s.at <= watch.ended]
                _add_samples(made, kind, active(within) if kind == "driver" else within)
            elif process.is_jvm:
                _add_threads(made, process)
            else:
                part = parts.DAEMON if process.name.startswith("python") else parts.PROCESSES
                made.add(part, process.used, (part if part == parts.DAEMON else process.name,))
    return made


def _add_samples(made: Account, kind: str, samples: Sequence[Sample]) -> None:
    for sample in samples:
        part = parts.part_of_stack(sample.stack, *_RULES[kind])
        frames = (f"{module}:{function}" for module, function, _ in sample.stack)
        made.add(part, sample.used, (f"{kind}s" if kind == "worker" else kind, *frames))


def active(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of threads found at work, weighing as much as all samples of the same threads.

    For threads that were sampled by another one: they work for less than an interval and are mostly found waiting for more, with the CPU of the
    work before. Threads that were never found at work keep their samples.
    """
    whole: Counter[parts.Frame] = Counter()
    working: Counter[parts.Frame] = Counter()
    for sample in samples:
        whole[sample.stack[0]] += sample.used
        if not parts.waits(sample.stack):
            working[sample.stack[0]] += sample.used
    return [
        Sample(
            s.at, round(s.used * whole[s.stack[0]] / working[s.stack[0]]) if working[s.stack[0]] else s.used, s.stack
        )
        for s in samples
        if not working[s.stack[0]] or not parts.waits(s.stack)
    ]


def _add_threads(made: Account, process: Process) -> None:
    """What threads have used that ended unseen, and what the clock's ticks hide, is in proportion nobody's: another row."""
    rest = process.used
    for name, first, last in process.threads.values():
        if used := last - first:
            made.add(parts.part_of_thread(name), used, ("JVM", parts.part_of_thread(name), name.rstrip("0123456789")))
            rest -= used
    made.add(parts.JVM_ENDED, rest, ("JVM", parts.JVM_ENDED))
