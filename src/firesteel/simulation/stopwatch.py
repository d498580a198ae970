"""Real time by phase. It is put around the scheduler from outside; the scheduler knows nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, VertexInitialization

OUTSIDE = "outside"
"""Time inside a measured call that is not the scheduler's: sizes being made up."""

INNER: tuple[tuple[str, str, str], ...] = (
    ("planner", "source", "decide"),
    ("planner", "by_count", "decide"),
    ("planner", "decided", "decide"),
    ("planner", "plan", "decide"),
    ("graph", "initialize_job_vertex", "initialise"),
    ("graph.regions", "grow", "regions"),
    ("deployments", "deploy", "deploy"),
    ("release", "executions_finished", "release"),
)
"""(part of the scheduler, its method, phase): where the inner phases of an event are measured."""


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

    def wrap(self, part: object, method: str, phase: Callable[[], str]) -> None:
        """From here on the time of ``part.method`` is that of ``phase()``. Raises AttributeError if there is none."""
        inner: Callable[..., Any] = getattr(part, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._enter(phase())
            try:
                return inner(*args, **kwargs)
            finally:
                self._leave()

        setattr(part, method, timed)

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


def attach(watch: Stopwatch, scheduler: Scheduler) -> None:
    """Measure the inner phases of a scheduler that has not started. What it builds on its start is part of "build"."""
    initialize = scheduler.graph.initialize_job_vertex

    def initialized(plan: VertexInitialization, at: float) -> ExecutionJobVertex:
        vertex = initialize(plan, at)
        for result in vertex.results:  # they are there from here on
            watch.wrap(result.info, "record", lambda: "sizes")
        return vertex

    scheduler.graph.initialize_job_vertex = initialized
    for part, method, phase in INNER:
        watch.wrap(attrgetter(part)(scheduler), method, _phase_of(watch, phase))


def _phase_of(watch: Stopwatch, phase: str) -> Callable[[], str]:
    if phase != "initialise":
        return lambda: phase
    return lambda: "build" if watch.is_under("start") else "initialise"
