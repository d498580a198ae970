"""The simulation's own book of key ranges: what each subtask was told to read of a RANGE data set, and by which keys."""

from __future__ import annotations

from itertools import pairwise

from firesteel.model.job_graph import JobGraph, ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.simulation.violation import check

Span = tuple[int, int]


class KeyRangeBook:
    """Whoever has read by some ranges has left the other rows to others: neither they nor their shares ever change."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        self._boundaries: dict[int, tuple[bytes, ...]] = {}
        self._spans: dict[tuple[int, int], dict[int, list[Span]]] = {}
        """By vertex and input: of each subtask that was deployed, the runs of ranges it reads."""

    def deployed(self, command: c.Deploy) -> None:
        for index, (gate, ranges) in enumerate(zip(command.gates, command.ranges, strict=True)):
            if self._graph.datasets[gate.dataset].ship is not ShipStrategy.RANGE:
                check(gate.boundaries is None, f"data set {gate.dataset} has no ranges and is given keys of some")
                continue
            where = f"data set {gate.dataset}, as vertex {command.vertex} reads it,"
            keys = gate.boundaries
            assert keys is not None, f"{where} has no ranges"
            check(len(keys) == gate.num_subpartitions - 1, f"{where} has {len(keys)} keys between its ranges")
            check(all(low <= high for low, high in pairwise(keys)), f"{where} has keys that do not ascend")
            check(self._boundaries.setdefault(gate.dataset, keys) == keys, f"{where} has other ranges than before")
            told = self._spans.setdefault((command.vertex, index), {})
            for place, subtask in enumerate(command.subtasks.tolist()):
                rects = ranges.of(place).tolist()
                check(
                    all(rect[:2] == [0, len(gate.tokens)] for rect in rects), f"{where} is not read from all producers"
                )
                spans = [(low, high) for _, _, low, high in rects]
                check(told.setdefault(subtask, spans) == spans, f"{where} is cut in another way than before")

    def check_finished(self) -> None:
        """Each range was read once, in the order of the subtasks."""
        for (vertex, index), told in self._spans.items():
            dataset = self._graph.vertices[vertex].inputs[index].dataset
            spans = [span for subtask in sorted(told) for span in told[subtask]]
            ends = [0, *(high for _, high in spans)]
            whole = [low for low, _ in spans] == ends[:-1] and ends[-1] == len(self._boundaries[dataset]) + 1
            check(whole, f"vertex {vertex} reads the ranges {spans} of data set {dataset}")
