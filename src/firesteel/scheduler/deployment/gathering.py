"""Gathers single consumers that become ready one after another: launching a Spark job is dear, a short wait is not."""

from __future__ import annotations

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.groups import EdgeGroups

GATHER_SECONDS = 0.1
"""A pointwise vertex is deployed at once, and then at most once in this time as long as more of it is to come."""
_PREFIX = "gather-"


class Gathering:
    def __init__(self, graph: DefaultExecutionGraph, recorder: Recorder, timers: Timers) -> None:
        self._graph = graph
        self._recorder = recorder
        self._until: dict[int, float] = {}
        self._timers = timers

    def holds(self, vertices: tuple[int, ...]) -> bool:
        """Returns whether executions that become ready of these vertices, which are deployed together, have to wait; sets a timer then.

        O(inputs): asked at each event.
        """
        until = self._until.get(vertices[0])
        if until is None or self._recorder.at >= until:
            return False
        results = (self._graph.result(edge.dataset) for edge in self._edges(vertices))
        if all(self._graph.vertices[result.dataset.producer].is_finished for result in results):
            return False  # nothing more is to come
        timer = f"{_PREFIX}{vertices[0]}"
        if self._timers.when(timer) is None:
            self._timers.set(timer, until, lambda: None)  # after any event all candidates are looked at
        return True

    def deployed(self, vertices: tuple[int, ...]) -> None:
        """Notes a deployment: executions of these vertices that become ready within the next moment are deployed together."""
        edges = self._edges(vertices)
        # Who waits for all of an input anyway has nothing that comes one by one.
        if edges and all(len(edge) > 1 for edge in edges):
            self._until[vertices[0]] = self._recorder.at + GATHER_SECONDS

    def _edges(self, vertices: tuple[int, ...]) -> list[EdgeGroups]:
        """Inputs that have to be there before."""
        return [edge for vertex in vertices for edge in self._graph.vertices[vertex].inputs if not edge.inside]
