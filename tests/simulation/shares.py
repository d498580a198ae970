"""The simulation's own book of divided subpartitions: who was told to read which part of them, and of which objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel import commands as c
from firesteel.simulation.violation import check

Part = tuple[int, int]
"""(part, parts)."""
Attempts = Callable[[int], NDArray[np.int32]]
"""Gives the attempt of each subtask of a vertex that has won."""


class ShareBook:
    """Every part of one side of a join meets every part of the other once; and all parts are of the same rows: those that have won
    were dealt out from the same objects, but for parts by value, of which there is one side."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        self._told: dict[int, dict[int, list[dict[int, Part]]]] = {}
        """By vertex and subtask, of each co-partitioned input: the part of each subpartition. Of vertices that divide any."""
        self._objects: dict[tuple[int, int, int, int], int] = {}
        """By vertex, input, subtask and attempt: the objects that a reader of shares was told of, as one number."""

    def deployed(self, command: c.Deploy) -> None:
        edges = self._graph.vertices[command.vertex].inputs
        divided = any(ranges.shares is not None for ranges in command.ranges)
        for edge, ranges in zip(edges, command.ranges, strict=True):
            held = ranges.shares is None or edge.divisible
            check(held, f"vertex {command.vertex} divides its input {edge.index}, which is not divisible")
        if divided or command.vertex in self._told:
            self._read(command, [edge.index for edge in edges if edge.co_partitioned])

    def _read(self, command: c.Deploy, together: list[int]) -> None:
        told = self._told.setdefault(command.vertex, {})
        names = {index: hash(command.gates[index].tokens.tobytes()) for index in together}
        for place, (subtask, attempt) in enumerate(
            zip(command.subtasks.tolist(), command.attempts.tolist(), strict=True)
        ):
            parts = [dict(_parts(command.ranges[index], place)) for index in together]
            same = told.setdefault(subtask, parts) == parts
            check(same, f"subtask {subtask} of vertex {command.vertex} is told to read other parts than before")
            for index in together:
                self._objects[command.vertex, index, subtask, attempt] = names[index]

    def check_finished(self, winners: Attempts) -> None:
        for vertex, told in self._told.items():
            edges = [edge for edge in self._graph.vertices[vertex].inputs if edge.co_partitioned]
            readers: dict[int, list[tuple[int, tuple[Part, ...]]]] = {}
            for subtask, parts in told.items():
                for subpartition in set().union(*parts):
                    both = tuple(side.get(subpartition, (0, 0)) for side in parts)
                    readers.setdefault(subpartition, []).append((subtask, both))
            for subpartition, found in readers.items():
                where = f"subpartition {subpartition} of vertex {vertex}"
                counts = [{parts for _, parts in (both[side] for _, both in found)} for side in range(len(edges))]
                check(all(len(count) == 1 for count in counts), f"{where} is divided in several ways")
                pairs = set(product(*([(part, n) for part in range(n)] for n in (min(count) for count in counts))))
                met = [both for _, both in found]
                check(len(met) == len(pairs) and set(met) == pairs, f"{where}: parts meet {sorted(met)}")
                for side, edge in enumerate(edges):
                    if len(met) > 1 and min(counts[side]) > 1 and not edge.by_value:
                        rows = {self._objects[vertex, edge.index, s, int(winners(vertex)[s])] for s, _ in found}
                        check(len(rows) == 1, f"{where} was dealt out from several attempts of its producers")

    @property
    def any_divided(self) -> bool:
        return bool(self._told)


def _parts(ranges: c.InputRanges, place: int) -> Iterator[tuple[int, Part]]:
    """(subpartition, part) of all that one execution reads of an input."""
    for row in range(int(ranges.offsets[place]), int(ranges.offsets[place + 1])):
        part = (0, 1) if ranges.shares is None else (int(ranges.shares[row, 0]), int(ranges.shares[row, 1]))
        for subpartition in range(int(ranges.rects[row, 2]), int(ranges.rects[row, 3])):
            yield subpartition, part
