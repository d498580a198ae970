"""Gathers single consumers that become ready one after another: launching a Spark job is dear, a short wait is not."""

from __future__ import annotations

import numpy as np

from firesteel.scheduler.commands import SetTimer
from firesteel.scheduler.events import Ints
from firesteel.scheduler.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.recorder import Recorder
from firesteel.scheduler.states import ExecutionState

GATHER_SECONDS = 0.1
"""A pointwise vertex is deployed at once, and then at most once in this time as long as more of it is to come."""
_PREFIX = "gather-"


class Gathering:
    def __init__(self, graph: DefaultExecutionGraph, recorder: Recorder) -> None:
        self._graph = graph
        self._recorder = recorder
        self._next: dict[int, float] = {}
        self._timers: set[str] = set()

    def may_deploy(self, vertex_id: int, ready: Ints) -> bool:
        """Whether these subtasks go now; else a timer is set, and they are to be asked for again."""
        vertex = self._graph.vertices[vertex_id]
        if any(len(edge) == 1 for edge in vertex.inputs) or not vertex.inputs:
            return True  # it waits for all of an input anyway, so nothing comes one by one
        waiting = int(np.count_nonzero((vertex.states == ExecutionState.CREATED) & ~vertex.held))
        now = self._recorder.at
        if waiting <= len(ready) or now >= self._next.get(vertex_id, now):
            self._next[vertex_id] = now + GATHER_SECONDS
            return True
        timer = f"{_PREFIX}{vertex_id}"
        if timer not in self._timers:
            self._timers.add(timer)
            self._recorder.emit(SetTimer(timer, self._next[vertex_id]))
        return False

    def timer_fired(self, timer: str) -> None:
        self._timers.discard(timer)
