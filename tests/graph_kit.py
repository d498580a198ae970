"""Runs a compiled job in this process, with parallelisms and cuts made up, and checks a job graph's shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from firesteel.compile.compiled import CompiledJob
from firesteel.model.forward_group import forward_groups
from firesteel.model.job_graph import (
    PARALLELISM_DEFAULT,
    JobEdge,
    JobGraph,
    JobVertex,
    ResultPartitionType,
    ShipStrategy,
)
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore
from firesteel.task.program import Gate, KeyedHead, PipelinedGate, ResultOutput, TaskContext
from firesteel.task.runner import Part, TaskRun

SUBPARTITIONS = {
    ShipStrategy.HASH: 7,
    ShipStrategy.REBALANCE: 5,
    ShipStrategy.RESCALE: 3,
    ShipStrategy.FORWARD: 1,
    ShipStrategy.BROADCAST: 1,
    ShipStrategy.GLOBAL: 1,
}


def check_shape(job: CompiledJob) -> None:
    """Ids, order, consumers, co-partitioning, and that every program fits its vertex."""
    graph = job.job_graph
    assert [v.id for v in graph.vertices] == list(range(len(graph.vertices)))
    assert [d.id for d in graph.datasets] == list(range(len(graph.datasets)))
    for dataset in graph.datasets:
        if graph.vertices[dataset.producer].absorbed_by is not None:
            assert not graph.consumers(dataset.id)
            continue
        assert dataset.id in graph.vertices[dataset.producer].outputs
        assert graph.consumers(dataset.id) or dataset.persistent
        assert bool(dataset.keys) == (dataset.ship in (ShipStrategy.HASH, ShipStrategy.RANGE))
        assert set(dataset.keys) <= set(job.schemas[dataset.id].names)
    for vertex in graph.vertices:
        if vertex.absorbed_by is None:
            _check_vertex(job, graph, vertex)
    assert sorted(itertools.chain(*(group.vertices for group in forward_groups(graph)))) == list(
        range(len(graph.vertices))
    )


def _check_vertex(job: CompiledJob, graph: JobGraph, vertex: JobVertex) -> None:
    program = vertex.program
    assert [edge.index for edge in vertex.inputs] == list(range(len(vertex.inputs)))
    assert all(graph.datasets[edge.dataset].producer < vertex.id for edge in vertex.inputs)
    assert [job.schemas[edge.dataset] for edge in vertex.inputs] == list(program.gate_schemas)
    assert [o.dataset for o in program.outputs if isinstance(o, ResultOutput)] == vertex.outputs
    sides = {gate for _, gate in program.side_inputs}
    builds = {gate for _, gate in program.builds}
    keyed = isinstance(program.head, KeyedHead)
    for edge in vertex.inputs:
        ship = graph.datasets[edge.dataset].ship
        assert edge.whole == (edge.index in builds)
        assert edge.co_partitioned == (keyed and edge.index not in sides | builds)
        if edge.index in builds:
            assert ship is ShipStrategy.HASH
        elif edge.index in sides:
            assert ship is ShipStrategy.BROADCAST
        elif keyed:
            assert ship in (ShipStrategy.HASH, ShipStrategy.RANGE, ShipStrategy.GLOBAL)
        if ship is ShipStrategy.GLOBAL:
            assert vertex.parallelism == 1
    if keyed:
        gates = [graph.datasets[vertex.inputs[g].dataset] for g in program.head.gates]
        if all(d.ship is ShipStrategy.HASH for d in gates):
            assert len({len(d.keys) for d in gates}) == 1
            assert [d.keys for d in gates] == list(program.head.operator.keys)


def run_local(
    job: CompiledJob, directory: Path, parallelism: Callable[[int], int] = lambda v: 2, memory: int = 32 << 20
) -> dict[int, pa.Table]:
    """The rows of every collect. ``parallelism``: of the vertices for which nobody set one."""
    return LocalRun(job, directory, parallelism, memory).run()


class LocalRun:
    def __init__(self, job: CompiledJob, directory: Path, parallelism: Callable[[int], int], memory: int) -> None:
        self.job, self.graph, self.memory = job, job.job_graph, memory
        self.scratch = directory / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.store = ResultStore(str(directory / "store"))
        self.store.create()
        self.parallelism: dict[int, int] = {}
        for group in forward_groups(self.graph):
            chosen = group.parallelism if group.parallelism != PARALLELISM_DEFAULT else parallelism(group.vertices[0])
            if group.max_parallelism != PARALLELISM_DEFAULT:
                chosen = min(chosen, group.max_parallelism)
            self.parallelism.update(dict.fromkeys(group.vertices, chosen))

        self.parallelism |= {v.id: 0 for v in self.graph.vertices if v.absorbed_by is not None}

    def run(self) -> dict[int, pa.Table]:
        for region in self.regions():
            for subtask in range(self.parallelism[region[0].id]):
                self.run_subtask(region, subtask)
        return {handle: self.table(dataset) for handle, dataset in self.job.collects.items()}

    def regions(self) -> list[list[JobVertex]]:
        """Vertices joined by pipelined edges. Each feeds one other, so the last one of a region is its end."""
        end = list(range(len(self.graph.vertices)))
        for dataset in self.graph.datasets:
            if dataset.type is ResultPartitionType.PIPELINED:
                (end[dataset.producer],) = self.graph.consumers(dataset.id)
        found: dict[int, list[JobVertex]] = {}
        for vertex in reversed(self.graph.vertices):
            end[vertex.id] = end[end[vertex.id]]
            found.setdefault(end[vertex.id], []).insert(0, vertex)
        return [found[last] for last in sorted(found)]

    def run_subtask(self, region: list[JobVertex], subtask: int) -> None:
        TaskRun([self.part(vertex, subtask) for vertex in region], self.store, "none").run()

    def part(self, vertex: JobVertex, subtask: int) -> Part:
        n = self.parallelism[vertex.id]
        gates = [self.gate(edge, subtask, n) for edge in vertex.inputs]
        splits = self.job.splits.get(vertex.id, [])[subtask::n]
        subpartitions = {d: SUBPARTITIONS[self.graph.datasets[d].ship] for d in vertex.outputs}
        ctx = TaskContext("job", vertex.id, vertex.name, subtask, 0, n, 1, self.memory, self.scratch)
        return Part(vertex.program, ctx, gates, splits, subpartitions)

    def gate(self, edge: JobEdge, subtask: int, n: int) -> Gate | PipelinedGate:
        dataset = edge.dataset
        if self.graph.datasets[dataset].type is ResultPartitionType.PIPELINED:
            return PipelinedGate(dataset)
        ship = self.graph.datasets[dataset].ship
        producers, size = self.parallelism[self.graph.datasets[dataset].producer], SUBPARTITIONS[ship]
        if edge.whole:
            rects = [(0, producers, 0, size)]
        elif ship is ShipStrategy.FORWARD:
            rects = [(subtask, subtask + 1, 0, size)]
        elif ship in (ShipStrategy.BROADCAST, ShipStrategy.GLOBAL):
            rects = [(0, producers, 0, size)]
        else:
            rects = [(0, producers, subtask * size // n, (subtask + 1) * size // n)]
        return self._gate(dataset, producers, rects)

    def _gate(self, dataset: int, producers: int, rects: list[tuple[int, int, int, int]]) -> Gate:
        size = SUBPARTITIONS[self.graph.datasets[dataset].ship]
        zeros, ones = np.zeros(producers, dtype=np.int64), np.ones(producers, dtype=np.int64)
        return Gate(dataset, size, zeros, ones, np.array(rects, dtype=np.int32))

    def table(self, dataset: int) -> pa.Table:
        producers = self.parallelism[self.graph.datasets[dataset].producer]
        gate = self._gate(dataset, producers, [(0, producers, 0, 1)])
        schema = self.job.schemas[dataset]
        reader = GateReader(self.store, dataset, schema, gate.num_subpartitions, gate.attempts, gate.tokens, gate.rects)
        return pa.Table.from_batches(list(reader.read()), schema)
