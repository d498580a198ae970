"""Coordinators of vertices: the source coordinator hands splits to subtasks, never to attempts (FLIP-187, FLIP-168)."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import Splits
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.parallelism.source import SourcePlan


class SourceCoordinator:
    """Gives each subtask of a source the splits that it reads. All attempts of a subtask, also a restarted one, read the same."""

    def __init__(self, vertex: int, name: str, plan: SourcePlan) -> None:
        self.vertex = vertex
        self._name = name
        self._plan = plan

    def start(self, recorder: Recorder) -> None:
        recorder.decision("split assignment", vertex=self.vertex, name=self._name, **self._plan.assignment)

    def splits_of(self, subtasks: Ints) -> Splits:
        """The splits of these subtasks, in their order."""
        return self._plan.splits.select(subtasks)


class OperatorCoordinatorHandler:
    """Holds the coordinators of the initialised vertices."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sources: dict[int, SourceCoordinator] = {}

    def register_and_start_new_coordinators(self, coordinators: Iterable[SourceCoordinator]) -> None:
        for coordinator in coordinators:
            self._sources[coordinator.vertex] = coordinator
            coordinator.start(self._recorder)

    def splits_of(self, vertex: int, subtasks: Ints) -> Splits | None:
        """None for a vertex that is not a source."""
        source = self._sources.get(vertex)
        return None if source is None else source.splits_of(subtasks)
