"""Slow task detectors (FLIP-168): tell a listener, every ``slow-task-detector.check-interval``, of executions that are slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from firesteel.model.arrays import Floats
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.executions import Rows

SetTimer = Callable[[str, float], None]
"""Name of a timer, and the time on the job's clock at which ``timer_fired`` is to be called with it."""


@dataclass(frozen=True, slots=True, eq=False)
class SlowTasks:
    """Slow executions of one vertex, which one rule found. ``elapsed`` and ``baseline`` (seconds) run parallel to ``rows``."""

    vertex: int
    rows: Rows
    rule: str
    elapsed: Floats
    baseline: Floats
    reason: str
    """Half a sentence with numbers: what was usual, and from what it was taken."""


class SlowTaskDetectorListener(Protocol):
    def notify_slow_tasks(self, slow: Sequence[SlowTasks]) -> None:
        """All executions that are slow now, also those told of before; called at every check, maybe with none."""
        ...


class SlowTaskDetector(Protocol):
    def start(
        self, graph: DefaultExecutionGraph, listener: SlowTaskDetectorListener, set_timer: SetTimer, at: float = 0.0
    ) -> None:
        """``at``: now, on the job's clock."""
        ...

    def stop(self) -> None: ...

    def timer_fired(self, timer: str, at: float) -> None:
        """A timer that is not its own changes nothing. Raises FiresteelError for what a strategy of the user's did."""
        ...
