"""Workloads of simulated jobs: graphs of a given shape, and sizes made up from a seed.

A partition's sizes follow from (seed, data set, partition) alone, so they need no memory and every attempt writes the
same. Partitions come in ``variants`` of each data set: with few of them a row that was packed once serves many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import overload

import numpy as np

from firesteel.model import sizes
from firesteel.model.arrays import Ints, constant
from firesteel.model.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    ResultPartitionType,
    ShipStrategy,
    SourceInfo,
)
from firesteel.simulation.stopwatch import Stopwatch

_SPAN = 1 << 15
"""Subpartitions whose sizes are made up together: they fit into a processor's cache."""


class EdgeKind(Enum):
    """Kind of edge between neighbours of a simulated chain."""

    ALL_TO_ALL = "all-to-all"
    POINTWISE = "pointwise"
    FORWARD = "forward"

    @property
    def ship(self) -> ShipStrategy:
        ships = {"all-to-all": ShipStrategy.HASH, "pointwise": ShipStrategy.RESCALE, "forward": ShipStrategy.FORWARD}
        return ships[self.value]


@dataclass(frozen=True, slots=True)
class ChainShape:
    """A chain of ``vertices``, each of ``parallelism`` (at most, where it is decided), with equal edges between them."""

    vertices: int = 2
    parallelism: int = 10
    edge: EdgeKind = EdgeKind.ALL_TO_ALL
    adaptive: bool = True
    pipelined: bool = False
    partition_bytes: int = 16 << 20
    """Plain bytes that each subtask writes, about."""

    def job_graph(self) -> JobGraph:
        """Only the source's parallelism is set in an adaptive job."""
        graph = JobGraph(f"{self.vertices} x {self.parallelism}, {self.edge.value}", [], [])
        kind = ResultPartitionType.PIPELINED if self.pipelined else ResultPartitionType.BLOCKING
        keys = ("key",) if self.edge is EdgeKind.ALL_TO_ALL else ()
        for number in range(self.vertices):
            first, last = number == 0, number == self.vertices - 1
            vertex = JobVertex(number, "source" if first else f"step {number}", f"uid-{number}")
            if first:
                vertex.source = SourceInfo(constant(self.parallelism, np.int64(self.partition_bytes)))
            else:
                vertex.inputs.append(JobEdge(number - 1, 0, co_partitioned=self.edge is EdgeKind.ALL_TO_ALL))
            if first or not self.adaptive:
                vertex.parallelism = self.parallelism
            if not last:
                vertex.outputs.append(number)
                graph.datasets.append(IntermediateDataSet(number, number, self.edge.ship, keys, kind))
            graph.vertices.append(vertex)
        return graph

    def options(self) -> dict[str, object]:
        """One subpartition for each possible subtask, as Flink has; the data volume makes ``parallelism`` of them."""
        if not self.adaptive:
            return {"jobmanager.scheduler": "Default"}
        return {
            "jobmanager.scheduler": "AdaptiveBatch",
            "max-parallelism": self.parallelism,
            "firesteel.subpartition-factor": 1,
            "data-volume-per-task": self.partition_bytes,
        }


class Workload:
    """``mean``: plain bytes of a partition. ``skew`` 0: subpartitions differ by half at most; 1: very few weigh most. ``heavy``: the
    most of a partition's bytes, as a share, that lie in one subpartition, the same in all of them."""

    def __init__(
        self, seed: int, mean: int = 1 << 20, skew: float = 0.0, variants: int = 16, heavy: float = 0.0
    ) -> None:
        self._seed = seed
        self._heavy = heavy
        self._mean = mean
        self._skew = skew
        self._variants = variants
        self._row = lru_cache(maxsize=4 * variants)(self._make_row)
        self._total = lru_cache(maxsize=4 * variants)(self._add_up)

    def plain(self, dataset: int, partition: int, subpartitions: int) -> Ints:
        """Bytes of each subpartition of one partition, int64."""
        return self._span(dataset, partition, subpartitions, 0, subpartitions)

    def _span(self, dataset: int, partition: int, subpartitions: int, first: int, end: int) -> Ints:
        """Returns the sizes of the subpartitions ``first`` .. ``end - 1``."""
        key = _mix(np.uint64((self._seed << 20) ^ (dataset << 10) ^ (partition % self._variants) + 1))
        spread = _uniform(key + np.arange(first, end, dtype=np.uint64))
        weights = (0.75 + 0.5 * spread) * (1.0 - spread) ** -self._skew
        share = self._heavy * float(_uniform(_mix(np.uint64(self._seed << 10 ^ dataset + 1)).reshape(1))[0])
        sizes = self._mean * (1.0 - share) / subpartitions * weights
        if first <= self._seed % subpartitions < end:
            sizes[self._seed % subpartitions - first] += self._mean * share
        return sizes.astype(np.int64)

    def packed(self, dataset: int, partition: int, subpartitions: int) -> bytes:
        """The same, as a task reports them."""
        return self._row(dataset, partition % self._variants, subpartitions)

    def totals(self, dataset: int, partitions: Ints, subpartitions: int) -> Ints:
        """Plain bytes of each of these partitions."""
        kinds, places = np.unique(partitions % self._variants, return_inverse=True)
        sums = [self._total(dataset, kind, subpartitions) for kind in kinds.tolist()]
        return np.array(sums, np.int64)[places]

    def written_before(self, dataset: int, ends: Ints, subpartitions: int) -> Ints:
        """Plain bytes of all partitions before each of these: however many, only one of each variant is looked at."""
        known = min(self._variants, int(ends.max(initial=0)))
        upto = np.concatenate(([0], np.cumsum(self.totals(dataset, np.arange(known), subpartitions))))
        rounds, rest = np.divmod(ends, self._variants)
        return rounds * upto[-1] + upto[np.minimum(rest, known)]

    def _make_row(self, dataset: int, variant: int, subpartitions: int) -> bytes:
        return sizes.pack(self.plain(dataset, variant, subpartitions))

    def _add_up(self, dataset: int, variant: int, subpartitions: int) -> int:
        """Span by span: there may be a million."""
        starts = range(0, subpartitions, _SPAN)
        return sum(
            int(self._span(dataset, variant, subpartitions, start, min(start + _SPAN, subpartitions)).sum())
            for start in starts
        )


class PackedSizes(Sequence[bytes]):
    """The packed rows of these partitions, each made when it is asked for: what a report carries, but for its weight."""

    def __init__(
        self, workload: Workload, dataset: int, partitions: Ints, subpartitions: int, watch: Stopwatch
    ) -> None:
        self._workload = workload
        self._dataset = dataset
        self._partitions = partitions
        self._subpartitions = subpartitions
        self._watch = watch

    def __len__(self) -> int:
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return self._made(self._partitions[index])
        return self._made(self._partitions[index : index + 1])[0]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._made(self._partitions))

    def _made(self, partitions: Ints) -> list[bytes]:
        """All at once: looking at the watch for each of very many rows would be dearer than they are."""
        with self._watch.outside():
            return [self._workload.packed(self._dataset, p, self._subpartitions) for p in partitions.tolist()]


def _mix(x: np.uint64) -> np.uint64:
    return _scramble(np.array([x], np.uint64))[0]


def _scramble(x: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A well known mixer of 64 bits (splitmix64): neighbours give unlike numbers."""
    with np.errstate(over="ignore"):
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(x: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers in [0, 1)."""
    return (_scramble(x) >> np.uint64(11)).astype(np.float64) / (1 << 53)
