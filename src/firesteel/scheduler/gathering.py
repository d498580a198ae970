"""Gathers single consumers that become ready one after another: launching a Spark job is dear, a short wait is not."""

from __future__ import annotations

from firesteel.scheduler.commands import SetTimer
from firesteel.scheduler.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.recorder import Recorder

GATHER_SECONDS = 0.1
"""A pointwise vertex is deployed at once, and then at most once in this time as long as more of it is to come."""
_PREFIX = "gather-"


class Gathering:
    def __init__(self, graph: DefaultExecutionGraph, recorder: Recorder) -> None:
        self._graph = graph
        self._recorder = recorder
        self._until: dict[int, float] = {}
        self._timers: set[str] = set()

    def holds(self, vertex_id: int) -> bool:
        """Whether what becomes ready of this vertex has to wait; a timer is set then. O(inputs): asked at each event."""
        until = self._until.get(vertex_id)
        if until is None or self._recorder.at >= until:
            return False
        if self._graph.inputs_available(self._graph.vertices[vertex_id]):
            return False  # nothing more is to come
        timer = f"{_PREFIX}{vertex_id}"
        if timer not in self._timers:
            self._timers.add(timer)
            self._recorder.emit(SetTimer(timer, until))
        return True

    def deployed(self, vertex_id: int) -> None:
        """What becomes ready of it within the next moment goes together."""
        vertex = self._graph.vertices[vertex_id]
        # One that waits for all of an input anyway has nothing that comes one by one.
        if vertex.inputs and all(len(edge) > 1 for edge in vertex.inputs):
            self._until[vertex_id] = self._recorder.at + GATHER_SECONDS

    def timer_fired(self, timer: str) -> None:
        self._timers.discard(timer)
