"""The simulation's own book of joins that are done in the tasks of their probe side: what those were told to read."""

from __future__ import annotations

import numpy as np
from tests.simulation.shares import Attempts

from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.scheduler.kernel import commands as c
from firesteel.simulation.violation import check


class FusedBook:
    """Each split meets each build side once and whole: every subtask reads all of the sides, and each split is one subtask's. The
    subtasks that have won read the same rows of a side that gives others when it is made again."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        self._jobs: dict[int, JobVertex] = {}
        """Vertices that read a side whole, as they were when they began."""
        self._splits: dict[int, dict[int, list[int]]] = {}
        """By vertex and subtask."""
        self._objects: dict[tuple[int, int, int, int], int] = {}
        """By vertex, input, subtask and attempt: the objects that were told of, as one number."""

    def deployed(self, command: c.Deploy) -> None:
        vertex = self._graph.vertices[command.vertex]
        sides = [edge.index for edge in vertex.inputs if edge.whole]
        if not sides and vertex.id not in self._jobs:
            return
        same = _is_same(self._jobs.setdefault(vertex.id, vertex), vertex)
        check(same, f"vertex {vertex.id} has changed, and had begun")
        for index in sides:
            self._read_whole(command, index)
        told = self._splits.setdefault(vertex.id, {})
        for place, subtask in enumerate(command.subtasks.tolist()):
            splits = [] if command.splits is None else command.splits.of(place).tolist()
            same = told.setdefault(subtask, splits) == splits
            check(same, f"subtask {subtask} of vertex {vertex.id} is told to read other splits than before")

    def _read_whole(self, command: c.Deploy, index: int) -> None:
        gate, ranges = command.gates[index], command.ranges[index]
        whole = [[0, len(gate.tokens), 0, gate.num_subpartitions]]
        told = all(ranges.of(place).tolist() == whole for place in range(ranges.parallelism))
        check(told, f"vertex {command.vertex} is not told to read all of its input {index}")
        name = hash(gate.tokens.tobytes())
        for subtask, attempt in zip(command.subtasks.tolist(), command.attempts.tolist(), strict=True):
            self._objects[command.vertex, index, subtask, attempt] = name

    def check_finished(self, winners: Attempts) -> None:
        for vertex in self._jobs.values():
            told = self._splits[vertex.id]
            read = sorted(split for splits in told.values() for split in splits)
            have = 0 if vertex.source is None else len(vertex.source.split_bytes)
            check(read == list(range(have)), f"vertex {vertex.id} has {have} splits and reads {read}")
            for edge in vertex.inputs:
                producer = self._graph.vertices[self._graph.datasets[edge.dataset].producer]
                if edge.whole and not producer.deterministic:
                    won = enumerate(winners(vertex.id).tolist())
                    names = {self._objects[vertex.id, edge.index, subtask, attempt] for subtask, attempt in won}
                    check(len(names) == 1, f"vertex {vertex.id} has read several attempts at its input {edge.index}")


def _is_same(before: JobVertex, vertex: JobVertex) -> bool:
    """Each driver has vertices of its own."""
    then, now = (np.zeros(0, np.int64) if v.source is None else v.source.split_bytes for v in (before, vertex))
    return before is vertex or (before.inputs == vertex.inputs and np.array_equal(then, now))
