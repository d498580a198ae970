"""The one way to watch what the scheduler spends its time on: a profiler, handed in at its construction."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
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
    def phase(self, phase: SchedulingPhase) -> AbstractContextManager[None]:
        """The scheduler is in this phase while the context lasts."""
        ...


class NoProfiler:
    """Nobody watches."""

    def __init__(self) -> None:
        self._nothing = nullcontext()

    def phase(self, phase: SchedulingPhase) -> AbstractContextManager[None]:
        return self._nothing


NO_PROFILER = NoProfiler()
