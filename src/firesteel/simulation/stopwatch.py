"""Real time by phase: of the scheduler, and of what is done around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from firesteel.scheduler.exchange.release import Release
from firesteel.scheduler.growth import Growth
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, VertexInitialization

P = ParamSpec("P")
T = TypeVar("T")
GROW, DECIDE, INITIALIZE, DEPLOY, RELEASE = "grow", "decide", "initialise", "deploy", "release"
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

    def attach(self, scheduler: Scheduler) -> None:
        """Tells the phases of the scheduler apart from now on. One may lie inside another one."""
        graph, hooks = scheduler.graph, scheduler.job.hooks
        growth = next(policy for policy in scheduler.policies if isinstance(policy, Growth))
        for name in ("source", "decided", "by_count", "ranges", "preview"):
            self._watch(growth.planner, name, DECIDE)
        self._watch(growth.planner, "initialize", INITIALIZE)
        self._watch(graph, "make_regions", "regions")
        self._watch(scheduler.job.descriptors, "deploy", DEPLOY)
        hooks.act = [self._timed(act, GROW) if act == growth.act else act for act in hooks.act]
        release = [policy.finished for policy in scheduler.policies if isinstance(policy, Release)]
        hooks.finished = [
            self._timed(finished, RELEASE) if finished in release else finished for finished in hooks.finished
        ]
        made = graph.initialize_job_vertex

        def initialized(plan: VertexInitialization, at: float) -> ExecutionJobVertex:
            vertex = made(plan, at)
            for result in vertex.results:
                self._watch(result.info, "record", "sizes")
            return vertex

        graph.initialize_job_vertex = initialized

    def _watch(self, owner: object, method: str, phase: str) -> None:
        setattr(owner, method, self._timed(getattr(owner, method), phase))

    def _timed(self, call: Callable[P, T], phase: str) -> Callable[P, T]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            name = self.name_of(phase)
            if name is None:
                return call(*args, **kwargs)
            with self.measure(name):
                return call(*args, **kwargs)

        return timed

    def name_of(self, phase: str) -> str | None:
        """Returns the name that a phase of the scheduler goes by; None: it is not told apart. Growth is told by its parts; what
        is initialised on the start is built."""
        if phase == INITIALIZE and self.is_under("start"):
            return "build"
        return None if phase == GROW else phase

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
