"""The one way to watch what the scheduler spends its time on: a profiler, handed in at its construction."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class SchedulingPhase(Enum):
    """Work inside of an event. The value is its name in reports. One may lie inside another one."""

    GROW = "grow"
    """All that makes the graph grow: deciding, initialising, regions, and telling those who listen."""
    DECIDE = "decide"
    """A vertex' parallelism and input ranges are decided."""
    INITIALIZE = "initialise"
    """A vertex gets its executions, results and groups."""
    REGIONS = "regions"
    """Pipelined regions of new vertices are made."""
    SIZES = "sizes"
    """Sizes that producers reported are taken in."""
    DEPLOY = "deploy"
    """Deployments are put together."""
    RELEASE = "release"
    """It is seen what nobody reads any more."""


class Profiler(Protocol):
    def entered(self, phase: SchedulingPhase) -> None:
        """The scheduler is in this phase from now on, inside of those that it has not left."""
        ...

    def left(self, phase: SchedulingPhase) -> None:
        """The phase entered last is over."""
        ...


class NoProfiler:
    """Nobody watches."""

    def entered(self, phase: SchedulingPhase) -> None: ...
    def left(self, phase: SchedulingPhase) -> None: ...


NO_PROFILER = NoProfiler()


class InPhase:
    """The scheduler is in a phase while this context lasts. Where single events go through, the two calls are made directly, which
    costs a fifth."""

    __slots__ = ("_phase", "_profiler")

    def __init__(self, profiler: Profiler, phase: SchedulingPhase) -> None:
        self._profiler = profiler
        self._phase = phase

    def __enter__(self) -> None:
        self._profiler.entered(self._phase)

    def __exit__(self, *_: object) -> None:
        self._profiler.left(self._phase)
