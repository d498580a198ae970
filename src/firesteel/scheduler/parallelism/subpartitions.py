"""The number of subpartitions of a result (FLIP-187, "Flexible subpartition mapping"), decided before its consumers are.

The target is the consumer's parallelism where it is known, else its maximum times ``firesteel.subpartition-factor``,
so that there is something to balance. By count the maximum is a power of two, as every parallelism decided so is: each
subtask then reads equally many. Data sets that one vertex consumes together by key need equally many. With very
many producers the target is bounded, since each of them reports a size for every subpartition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firesteel.model.job_graph import (
    DistributionPattern,
    IntermediateDataSet,
    JobGraph,
    JobVertex,
    ShipStrategy,
)
from firesteel.model.pipelined_region import fed_while_running
from firesteel.model.sizes import FEW_SUBPARTITIONS, MANY_PRODUCERS
from firesteel.options import CUT, SUBPARTITION_FACTOR, Options
from firesteel.scheduler.kernel.decisions import Subpartitions
from firesteel.scheduler.parallelism.model import power_of_two_at_most

REBALANCE_CELLS = 4
"""A rebalanced result is split this many times finer than the target, over all its producers: each of them may hold most
of the bytes. No producer splits finer than the target, and the cells of a result grow with target + producers only."""
EXCESSIVE = 32768
"""Subpartitions above which a plan is warned about: each producer indexes and reports every one of them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The number of subpartitions that one consumer asks for, by its ``maximum``; 0: it is the consumer's parallelism, which is known."""

    vertex: int
    subpartitions: int
    maximum: int = 0
    divisor: int = 1
    """The largest parallelism that may be decided for it by count: all smaller ones divide it."""


class SubpartitionCounts:
    """Fixed when the job starts, for all data sets at once: co-partitioned ones must agree however late they come."""

    def __init__(
        self,
        graph: JobGraph,
        options: Options,
        known: Callable[[JobVertex], int | None],
        maximum: Callable[[JobVertex], int],
    ) -> None:
        """``known``: a vertex' parallelism if it is known beforehand; ``maximum``: what it may be decided to be."""
        self._graph = graph
        self._factor = options[SUBPARTITION_FACTOR]
        self._by_cells = options[CUT] == "by-bytes"
        self._by_count = fed_while_running(graph)
        self._maximum = maximum
        self._known = known
        self._wishes = {
            d.id: [self._wish(graph.vertices[v], known, maximum) for v in graph.consumers(d.id)] for d in graph.datasets
        }
        self._groups = _co_partitioned_groups(graph)
        self._targets = {d.id: self._target(d.id) for d in graph.datasets}

    def count(self, dataset: IntermediateDataSet, producers: int) -> int:
        """Subpartitions of each of the ``producers`` partitions of ``dataset``."""
        if dataset.ship in (ShipStrategy.FORWARD, ShipStrategy.BROADCAST, ShipStrategy.GLOBAL):
            return 1
        target = self._targets[dataset.id]
        if dataset.ship.pattern is DistributionPattern.POINTWISE:
            return -(-target // producers)
        if dataset.ship is ShipStrategy.REBALANCE and self._is_cut_by_cells(dataset):
            return min(target, REBALANCE_CELLS * -(-target // producers))
        return target

    def explain(self, dataset: IntermediateDataSet, producers: int) -> dict[str, Any]:
        """The decision's record: fields of ``records.Decision`` without what, vertex and name."""
        n = self.count(dataset, producers)
        own, all_of_them = self._wishes[dataset.id], self._wishes_of_all(dataset.id)
        wish = max(own, key=lambda w: w.subpartitions, default=Wish(-1, 0))
        rule = self._rule(dataset, n, wish)
        is_multiple = n > max((w.subpartitions for w in all_of_them), default=n)
        facts = Subpartitions(
            dataset=dataset.id,
            ship=dataset.ship.value,
            producers=producers,
            consumers={str(w.vertex): w.subpartitions for w in own},
            factor=self._factor,
            co_partitioned_with=[d for d in self._groups[dataset.id] if d != dataset.id],
            asks=wish.vertex,
            maximum=wish.maximum,
            multiple=max(w.divisor for w in all_of_them) if is_multiple else 0,
        )
        return {"inputs": facts, "rule": rule, "result": n}

    def _is_cut_by_cells(self, dataset: IntermediateDataSet) -> bool:
        """By count, every subtask reads its subpartitions of all producers, so there must be enough of them in each."""
        return self._by_cells and self._by_count.isdisjoint(self._graph.consumers(dataset.id))

    def _wish(
        self, vertex: JobVertex, known: Callable[[JobVertex], int | None], maximum: Callable[[JobVertex], int]
    ) -> Wish:
        parallelism = known(vertex)
        if parallelism is not None:
            return Wish(vertex.id, parallelism)
        most = maximum(vertex)
        divisor = power_of_two_at_most(most)
        used = most if self._by_cells else divisor
        return Wish(vertex.id, used * self._factor, most, divisor)

    def _target(self, dataset: int) -> int:
        wishes = self._wishes_of_all(dataset)
        target = max((w.subpartitions for w in wishes), default=1)
        divisor = max((w.divisor for w in wishes), default=1)
        by_count = not self._by_cells
        if self._has_many_producers(dataset):
            few = max(FEW_SUBPARTITIONS, divisor) if by_count else FEW_SUBPARTITIONS
            target = max([min(target, few), *(w.subpartitions for w in wishes if not w.maximum)])
            by_count |= target > FEW_SUBPARTITIONS  # nobody reports sizes by subpartition then
        return -(-target // divisor) * divisor if by_count else target

    def _wishes_of_all(self, dataset: int) -> list[Wish]:
        """Of the consumers of this data set and of those that must agree with it."""
        return [wish for member in self._groups[dataset] for wish in self._wishes[member]]

    def _has_many_producers(self, dataset: int) -> bool:
        """Of keyed data sets: whether one of them, or of those that must agree with it, may have very many producers."""
        members = [self._graph.datasets[member] for member in self._groups[dataset]]
        if any(member.ship.pattern is DistributionPattern.POINTWISE for member in members):
            return False  # these have few subpartitions for each producer anyway
        if self._by_cells and any(member.ship is ShipStrategy.REBALANCE for member in members):
            return False
        return max(self._most_producers(self._graph.vertices[m.producer]) for m in members) > MANY_PRODUCERS

    def _most_producers(self, vertex: JobVertex) -> int:
        known = self._known(vertex)
        if known is not None:
            return known
        most = self._maximum(vertex)
        return most if vertex.source is None else min(most, max(1, len(vertex.source.split_bytes)))

    def _rule(self, dataset: IntermediateDataSet, n: int, wish: Wish) -> str:
        """``wish``: the largest."""
        if dataset.ship in (ShipStrategy.FORWARD, ShipStrategy.BROADCAST, ShipStrategy.GLOBAL):
            return dataset.ship.value
        if not self._wishes[dataset.id]:
            return "no consumer"
        if n != self._targets[dataset.id]:
            return "pointwise" if dataset.ship.pattern is DistributionPattern.POINTWISE else "rebalance"
        if n < wish.subpartitions:
            return "many producers"
        return "maximum x factor" if wish.maximum else "known parallelism"


def _co_partitioned_groups(graph: JobGraph) -> dict[int, list[int]]:
    """Data set to all data sets that must have equally many subpartitions (union-find over the vertices' inputs)."""
    parent = {d.id: d.id for d in graph.datasets}

    def root(dataset: int) -> int:
        while parent[dataset] != dataset:
            parent[dataset] = parent[parent[dataset]]
            dataset = parent[dataset]
        return dataset

    for vertex in graph.vertices:
        together = [edge.dataset for edge in vertex.inputs if edge.co_partitioned]
        if vertex.first_step is not None:  # in one step they are consumed together
            together += [edge.dataset for edge in graph.vertices[vertex.first_step].inputs if edge.co_partitioned]
        for dataset in together[1:]:
            parent[root(dataset)] = root(together[0])
    members: dict[int, list[int]] = {}
    for dataset in parent:
        members.setdefault(root(dataset), []).append(dataset)
    return {dataset: members[root(dataset)] for dataset in parent}
