"""Releases the partitions of a consumed group as soon as its last consuming region has finished, and not before.

Flink: RegionPartitionGroupReleaseStrategy. Per group a counter of its consumers whose region has not finished, per
partition a counter of the groups that are not done with it; both change by events, in bulk, and are undone by a restart.
An edge whose consumer is not initialised yet counts as a group that holds everything. What nobody consumes goes with the
last of its producers, a persistent result stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from firesteel.model.arrays import Ints, compact, distinct, union
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import JobStatus, ReleasePartitions
from firesteel.scheduler.kernel.records import RELEASED
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW, Rows
from firesteel.scheduler.topology.groups import EdgeGroups

NONE: Ints = np.empty(0, np.int64)
ALL: Ints = np.zeros(1, np.int64)
"""The only group of an all-to-all edge."""


class Releasing(Policy):
    """Carries a release out, and leaves the records of it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._graph = job.graph

    def _release(self, dataset: int, partitions: Ints) -> None:
        """Releases the ones of these (distinct) partitions that are there. A persistent result is left alone."""
        result, recorder = self._graph.result(dataset), self._job.recorder
        if result.dataset.persistent:
            return
        partitions = result.withdraw(partitions, stored=False)
        if not len(partitions):
            return
        if not result.num_available:  # until then somebody may still have to fetch where the others lie
            self._job.descriptors.drop(dataset)
        attempts, tokens = compact(result.attempts[partitions]), result.tokens[partitions]
        recorder.emit(ReleasePartitions(dataset, partitions, attempts, tokens))
        recorder.output_gone(result.dataset.producer, dataset, (partitions, attempts, tokens), RELEASED)
        recorder.tell(f"released {len(partitions)} partitions of data set {dataset}", result.dataset.producer)


class ReleaseAtEnd(Releasing):
    """Everything stays until the job has finished (Flink: NotReleasingPartitionGroupReleaseStrategy)."""

    def job_ends(self) -> None:
        for result in self._graph.results if self._job.status is JobStatus.FINISHED else ():
            if result is not None:
                self._release(result.dataset.id, np.flatnonzero(result.available))


class Release(Releasing):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._consumption: dict[int, _Consumption] = {}
        """By blocking data set, of those that are consumed."""
        self._running: dict[int, Ints] = {}
        """Number of members of each region that have not finished, by block; blocks of single subtasks need no counting."""

    def initialized(self, vertices: Sequence[int]) -> None:
        graph = self._graph
        for vertex in (graph.vertices[v] for v in vertices):
            block = graph.regions.block(vertex.id)
            if not block.is_trivial:
                self._running[block.number] = block.sizes()
            for result in vertex.blocking_results:
                edges = len(graph.job_graph.consumers(result.dataset.id))
                if edges:
                    self._consumption[result.dataset.id] = _Consumption(result, edges)
        for vertex in vertices:
            for edge in graph.vertices[vertex].inputs:
                if edge.dataset in self._consumption:
                    self._release(edge.dataset, self._consumption[edge.dataset].connect(edge))

    def finished(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows) -> None:
        gone: dict[int, list[Ints]] = {}
        for consumer, finished in self._finished(vertex, subtasks).items():
            for edge in self._graph.vertices[consumer].inputs:
                if edge.dataset in self._consumption:
                    gone.setdefault(edge.dataset, []).append(self._consumption[edge.dataset].consumed(edge, finished))
        for result in vertex.blocking_results:
            gone.setdefault(result.dataset.id, []).append(self._not_needed(vertex, result, subtasks))
        for dataset, partitions in gone.items():
            some = [numbers for numbers in partitions if len(numbers)]
            if some:
                self._release(dataset, union(some))

    def restarting(self, tasks: Mapping[int, Ints]) -> None:
        for number in sorted({self._graph.regions.logical_of[vertex] for vertex in tasks}):
            for consumer, subtasks in self._undone(number, tasks).items():
                for edge in self._graph.vertices[consumer].inputs:
                    if edge.dataset in self._consumption:
                        self._consumption[edge.dataset].needed_again(edge, subtasks)

    def _finished(self, vertex: ExecutionJobVertex, subtasks: Ints) -> dict[int, Ints]:
        """The subtasks whose region has finished with these."""
        block = self._graph.regions.block(vertex.id)
        if block.number not in self._running:
            return {vertex.id: subtasks}
        running = self._running[block.number]
        regions, finished = np.unique(block.of(vertex.id, subtasks), return_counts=True)
        running[regions] -= finished
        return block.members(regions[running[regions] == 0])

    def _undone(self, number: int, tasks: Mapping[int, Ints]) -> dict[int, Ints]:
        """Returns the ones of these subtasks whose region had finished."""
        block = self._graph.regions.blocks[number]
        if number not in self._running:
            (vertex,) = block.vertices
            return {vertex: tasks[vertex][self._graph.vertices[vertex].winner[tasks[vertex]] != NO_ROW]}
        running = self._running[number]
        regions = distinct(np.concatenate([block.of(v, tasks[v]) for v in block.vertices if v in tasks]))
        over = regions[running[regions] == 0]
        running[regions] = block.sizes()[regions]
        return block.members(over)

    def _not_needed(self, vertex: ExecutionJobVertex, result: IntermediateResult, subtasks: Ints) -> Ints:
        """Returns the partitions just produced that nobody waits for: its region ran again for the sake of something else."""
        consumption = self._consumption.get(result.dataset.id)
        if consumption is not None:
            return consumption.done(subtasks)
        return np.flatnonzero(result.available) if vertex.is_finished else NONE


class _Consumption:
    """Counts, for each partition of one blocking result, the groups of consumers that still need it."""

    def __init__(self, result: IntermediateResult, edges: int) -> None:
        """``edges``: how many inputs of job vertices consume it, also those that are not initialised."""
        self._open = np.full(result.num_partitions, edges, np.int32)
        """Number of groups that need each partition."""
        self._num_done = 0
        self._unfinished: dict[int, Ints] = {}
        """By edge: how many consumers of each group have not finished."""

    def connect(self, edge: EdgeGroups) -> Ints:
        """The groups of an edge are known now; returns the partitions that nobody is going to read."""
        self._unfinished[id(edge)] = edge.consumer_end - edge.consumer_first
        self._change(np.arange(len(self._open)), edge.groups_per_partition(len(self._open)) - 1)
        return np.flatnonzero(self._open == 0)

    def done(self, partitions: Ints) -> Ints:
        """Returns the ones of these partitions that no consumer needs any more."""
        return partitions[self._open[partitions] == 0] if self._num_done else NONE

    def consumed(self, edge: EdgeGroups, subtasks: Ints) -> Ints:
        """Notes that these consumers have finished; returns the partitions that no consumer needs any more."""
        closed = self._closed(edge, subtasks)
        if not len(closed):
            return NONE
        partitions, times = self._partitions(edge, closed)
        self._change(partitions, -times)
        return partitions[self._open[partitions] == 0]

    def _closed(self, edge: EdgeGroups, subtasks: Ints) -> Ints:
        """The groups of which these were the last consumers."""
        unfinished = self._unfinished[id(edge)]
        if edge.is_all_to_all:
            unfinished[0] = left = int(unfinished[0]) - len(subtasks)
            return NONE if left else ALL
        groups, counts = edge.tally_consumers(subtasks)
        unfinished[groups] -= counts
        return groups[unfinished[groups] == 0]

    def needed_again(self, edge: EdgeGroups, subtasks: Ints) -> None:
        """Notes that these consumers had finished, and run again."""
        if not len(subtasks):
            return
        groups, counts = edge.tally_consumers(subtasks)
        unfinished = self._unfinished[id(edge)]
        opened = groups[unfinished[groups] == 0]
        unfinished[groups] += counts
        if len(opened):
            self._change(*self._partitions(edge, opened))

    def _partitions(self, edge: EdgeGroups, groups: Ints) -> tuple[Ints, Ints]:
        """The partitions of these groups, and in how many of the groups each is."""
        if len(groups) == 1:
            partitions = edge.partitions(groups)
            return partitions, np.ones(len(partitions), np.int64)
        return np.unique(edge.partitions_with_repeats(groups), return_counts=True)

    def _change(self, partitions: Ints, steps: Ints) -> None:
        before = self._open[partitions]
        after = before + steps
        self._open[partitions] = after
        self._num_done += int((after == 0).sum()) - int((before == 0).sum())
