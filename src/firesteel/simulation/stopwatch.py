"""Real time by phase: a profiler of the scheduler, and of what is done around it."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from firesteel.scheduler.kernel.profiler import SchedulingPhase

OUTSIDE = "outside"
"""Time inside a measured call that is not the scheduler's: sizes being made up."""


class Stopwatch:
    """Each moment is charged to the innermost phase under way, so that phases add up to the whole."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def measure(self, phase: str) -> Generator[None, None, None]:
        self._enter(phase)
        try:
            yield
        finally:
            self._leave()

    def entered(self, phase: SchedulingPhase) -> None:
        name = self.name_of(phase)
        if name is not None:
            self._enter(name)

    def left(self, phase: SchedulingPhase) -> None:
        if self.name_of(phase) is not None:
            self._leave()

    def name_of(self, phase: SchedulingPhase) -> str | None:
        """Returns the name that a phase of the scheduler goes by; None: it is not told apart. Growth is told by its parts; what
        is initialised on the start is built."""
        if phase is SchedulingPhase.INITIALIZE and self.is_under("start"):
            return "build"
        return None if phase is SchedulingPhase.GROW else phase.value

    @contextmanager
    def outside(self) -> Generator[None, None, None]:
        """Leaves what is done inside out of the phase it is done in."""
        if not self._open:
            yield
            return
        self._enter(OUTSIDE)
        try:
            yield
        finally:
            self._leave()

    def is_under(self, phase: str) -> bool:
        return phase in self._open

    def _enter(self, phase: str) -> None:
        now = time.perf_counter()
        if self._open:
            self._charge(self._open[-1], now)
        self._since = now
        # One phase inside itself is one event of it.
        if phase not in self._open:
            self.counts[phase] = self.counts.get(phase, 0) + 1
        self._open.append(phase)

    def _leave(self) -> None:
        now = time.perf_counter()
        self._charge(self._open.pop(), now)
        self._since = now

    def _charge(self, phase: str, now: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
