"""The dynamic execution graph (FLIP-187): registered job vertices, initialised one by one as they are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firesteel.model.absorbing import Absorbing, absorb
from firesteel.model.arrays import Floats, Ints, constant, unwritten, writable, written
from firesteel.model.job_graph import (
    DistributionPattern,
    IntermediateDataSet,
    JobGraph,
    JobVertex,
    ResultPartitionType,
)
from firesteel.model.reports import SET_UP_MS
from firesteel.scheduler.exchange.result_info import BlockingResultInfo, blocking_result_info
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.kernel.commands import Command, InputRanges, MergedObjects, Splits
from firesteel.scheduler.kernel.events import ExecutionReports
from firesteel.scheduler.kernel.states import IS_ABLE, IS_DEPLOYED, IS_PENDING, ExecutionState
from firesteel.scheduler.topology.executions import NO_ROW, NO_TOKEN, ExecutionTable, ExecutionVertex, Rows
from firesteel.scheduler.topology.groups import EdgeGroups, Mask
from firesteel.scheduler.topology.regions import InnerEdge, SchedulingPipelinedRegions
from firesteel.scheduler.topology.step_counts import StepCounts

Withdrawn = Callable[["IntermediateResult", Ints], None]

IO_COUNTERS = ("numRecordsIn", "numRecordsOut", "numBytesIn")


class IntermediateResult:
    """A data set of the running job: partition ``p`` is what producing subtask ``p`` wrote.

    ``available``: admitted, and neither released nor lost. ``stored``: its object may still exist.
    ``attempts`` and ``tokens`` name the object that was admitted last, if any was. Of a pipelined result nothing is ever
    stored: it is read while it is made, by consumers that run with its producers.
    """

    def __init__(self, info: BlockingResultInfo, dataset: IntermediateDataSet, withdrawn: Withdrawn) -> None:
        """``withdrawn``: told of partitions that cannot be read any more."""
        self.dataset = dataset
        self.info = info
        num_partitions, num_subpartitions = info.num_partitions, info.num_subpartitions
        self.num_partitions = num_partitions
        self.num_subpartitions = num_subpartitions
        self.attempts: Ints = constant(num_partitions, np.int64(0))
        self.tokens = np.full(num_partitions, NO_TOKEN, np.int64)
        self.available: Mask = np.zeros(num_partitions, np.bool_)
        self.stored: Mask = np.zeros(num_partitions, np.bool_)
        self.num_available = 0
        self.consumers: list[EdgeGroups] = []
        self.merged: MergedObjects | None = None
        """Objects to read in the place of several partitions' own ones; ``merging`` sees to it that they fit them."""
        self.is_withheld = False
        """It is there, but is not read just yet (``merging``)."""
        self._withdrawn = withdrawn
        self._is_named = False
        """Somebody else has ``attempts`` and ``tokens``, as they are now."""
        self.version = 0
        """Changes with every change of what is available, or merged: caches compare it."""

    def read_merged(self, merged: MergedObjects | None) -> None:
        """From now on these are read in the place of the partitions they hold; None: each partition's own object is."""
        self.merged = merged
        self.version += 1

    @property
    def is_pipelined(self) -> bool:
        return self.dataset.type is ResultPartitionType.PIPELINED

    @property
    def is_available(self) -> bool:
        """All of it can be read now."""
        return self.num_available == self.num_partitions

    def admit(self, partitions: Ints, attempts: Ints, tokens: Ints) -> list[tuple[EdgeGroups, Ints]]:
        """Notes that these (distinct) partitions can be read; returns the groups whose consumers may be able to run now, per edge."""
        self._own_names()
        self.attempts = written(self.attempts, partitions, attempts)
        self.tokens[partitions] = tokens
        self.available[partitions] = self.stored[partitions] = True
        self.num_available += len(partitions)
        self.version += 1
        return [(edge, edge.became_available(partitions)) for edge in self.consumers]

    def admit_one(self, partition: int, attempt: int, token: int) -> list[tuple[EdgeGroups, Ints]]:
        """:meth:`admit` of one; only edges of which a group is complete now."""
        if self._is_named:
            self._own_names()
        if attempt or self.attempts.flags.writeable:
            self.attempts = written(self.attempts, np.array([partition]), attempt)
        self.tokens[partition] = token
        self.available[partition] = self.stored[partition] = True
        self.num_available += 1
        self.version += 1
        if not self.consumers:
            return []
        complete = [(edge, edge.one_became_available(partition)) for edge in self.consumers]
        return [(edge, groups) for edge, groups in complete if len(groups)]

    def names(self) -> tuple[Ints, Ints]:
        """Returns the attempt and the token of each partition, -1 where it is not available. They never change, and cannot be written."""
        if self.is_available:
            self._is_named = True
            attempts, tokens = self.attempts[:], self.tokens[:]
        else:
            attempts, tokens = (np.where(self.available, column, -1) for column in (self.attempts, self.tokens))
        attempts.flags.writeable = tokens.flags.writeable = False
        return attempts, tokens

    def _own_names(self) -> None:
        """They are about to change: whoever has them keeps them as they were."""
        if self._is_named:
            attempts = self.attempts.copy() if self.attempts.flags.writeable else self.attempts
            self.attempts, self.tokens, self._is_named = attempts, self.tokens.copy(), False

    def withdraw(self, partitions: Ints, stored: bool) -> Ints:
        """Notes that these partitions cannot be read any more; returns the ones that could. ``stored``: the object may be there still."""
        gone = partitions[self.available[partitions]]
        if not stored:
            self.stored[partitions] = False
        if len(gone):
            self.available[gone] = False
            self.num_available -= len(gone)
            self.version += 1
            for edge in self.consumers:
                edge.became_unavailable(gone)
            self._withdrawn(self, gone)
        return gone


class ExecutionJobVertex:
    """A job vertex of the running job. Registered first; has executions once it is initialised."""

    def __init__(self, job: JobVertex, table: ExecutionTable) -> None:
        self.job = job
        self.id = job.id
        self._table = table
        self.is_as_planned = True
        """It does what the job graph said at first, so that what it costs is the cost of that step."""
        self.parallelism = -1
        self.newest: Rows = np.empty(0, np.int32)
        """The row created last for each subtask."""
        self.winner: Rows = np.empty(0, np.int32)
        """The row whose result was admitted for each subtask, NO_ROW where none is."""
        self.num_finished = 0
        self.has_several = False
        """Some round has, or had, more than one execution."""
        self.held: Mask = np.empty(0, np.bool_)
        """Subtasks that wait for the delay of a restart."""
        self.uncounted: NDArray[np.int16] | None = None
        """Number of times in a row that each subtask was sent again without a counted failure; None: none was."""
        self.unlike: Mask = np.empty(0, np.bool_)
        """Subtasks whose rows may differ from those of their earlier attempts, not only in their order."""
        self.inputs: list[EdgeGroups] = []
        self.ranges: tuple[InputRanges, ...] | None = None
        self.input_bytes: Ints | None = None
        self.splits: Splits | None = None
        """Of a source: those of each subtask. All attempts of a subtask, also a restarted one, read the same (FLIP-187, FLIP-168)."""
        self.results: list[IntermediateResult] = []
        """Its results, in the order of its outputs."""
        self.blocking_results: list[IntermediateResult] = []
        """Returns the partitions of these that are stored."""
        self.commits: dict[int, tuple[bytes, ...]] = {}
        """Sinks only: the commit messages of each subtask's admitted attempt."""
        self.io: list[Ints] = []
        """``io[counter][subtask]``: of the admitted attempts. What they produced is with the results."""
        self.step_counts = StepCounts(0)

    @property
    def is_initialized(self) -> bool:
        return self.parallelism >= 0

    @property
    def is_absorbed(self) -> bool:
        """Another vertex does its work: it is never initialised."""
        return self.job.absorbed_by is not None

    @property
    def is_finished(self) -> bool:
        """Of a vertex that is not initialised: False."""
        return self.num_finished == self.parallelism

    @property
    def states(self) -> NDArray[np.int8]:
        """Of the execution that stands for each subtask."""
        return self._table.state[self.chosen]

    def states_of(self, subtasks: Ints) -> NDArray[np.int8]:
        """Of the execution that stands for each of these subtasks."""
        winner, newest = self.winner[subtasks], self.newest[subtasks]
        best = self._table.best_of(newest) if self.has_several else newest
        return self._table.state[np.where(winner == NO_ROW, best, winner)]

    def can_finish(self, subtasks: Ints) -> Mask:
        """Returns a mask of these subtasks: True for those with an execution that has finished or may still do so."""
        return IS_ABLE[self.states_of(subtasks)]

    @property
    def chosen(self) -> Rows:
        """The execution that stands for each subtask: the winner, else the one nearest to FINISHED."""
        best = self._table.best_of(self.newest) if self.has_several else self.newest
        return np.where(self.winner == NO_ROW, best, self.winner)

    def deployed_rows(self, subtasks: Ints) -> Rows:
        """All executions of these subtasks that are with Spark and may still finish."""
        rows = self._table.round_of(self.newest[subtasks])
        return rows[IS_DEPLOYED[self._table.state[rows]]]

    def created_rows(self, subtasks: Ints) -> Rows:
        """All executions of these subtasks that wait to be deployed."""
        rows = self._table.round_of(self.newest[subtasks])
        return rows[self._table.state[rows] == ExecutionState.CREATED]

    def num_current(self, subtasks: Ints) -> Ints:
        """Returns the number of executions of each of these (distinct) subtasks that may still finish."""
        rows = self._table.round_of(self.newest[subtasks])
        able = self._table.index[rows[IS_ABLE[self._table.state[rows]]]]
        return np.bincount(able, minlength=self.parallelism)[subtasks]

    def create_new_speculative_executions(self, subtasks: Ints, at: float) -> Rows:
        """A mirror beside the current executions of each of these (distinct) subtasks, in state CREATED (FLIP-168)."""
        return self._join(subtasks, True, at)

    def replace_executions(self, rows: Rows, at: float) -> Rows:
        """An execution in the place of each of these that ended without having begun; of distinct subtasks."""
        return self._join(self._table.index[rows].astype(np.int64), self._table.mirror[rows], at)

    def _join(self, subtasks: Ints, mirror: bool | Mask, at: float) -> Rows:
        """One more execution in the round of each subtask."""
        prior = self.newest[subtasks]
        attempts = self._table.attempt[prior].astype(np.int64) + 1
        rows = self._table.create(self.id, subtasks, attempts, prior, at=at, opens=False, mirror=mirror)
        self.newest[subtasks] = rows
        self.has_several = True
        return rows

    @property
    def busy_seconds(self) -> float:
        """Seconds from RUNNING to FINISHED of the winners, all together, less their set-ups; one that nobody saw running counts for nothing."""
        won = self.winner[self.winner != NO_ROW]
        table = self._table
        spans = table.times(ExecutionState.FINISHED, won) - table.times(ExecutionState.RUNNING, won)
        return float(np.fmax(spans - self.set_up_seconds(won), 0.0).sum())

    def set_up_seconds(self, won: Rows) -> Floats | float:
        """Seconds that each of these winners waited for functions to be set up."""
        times = self.step_counts.by_subtask(SET_UP_MS)
        return 0.0 if times is None else times[self._table.index[won]] / 1e3

    @property
    def longest_set_up(self) -> float:
        """The seconds that one of its executions may have to wait before it begins, as far as is known."""
        times = self.step_counts.by_subtask(SET_UP_MS)
        return 0.0 if times is None else float(times.max()) / 1e3

    def has_pending_prior(self, subtasks: Ints) -> Mask:
        """Returns a mask of these subtasks: True for those with an earlier attempt that Spark has not confirmed to be gone."""
        prior = self._table.prior[self.newest[subtasks]]
        return (prior != NO_ROW) & IS_PENDING[self._table.state[np.maximum(prior, 0)]]

    def count(self, subtasks: Ints, reports: ExecutionReports) -> None:
        """Takes in the rows and bytes that these (distinct) finished subtasks read and wrote; there are none of them yet."""
        for counter, values in enumerate((reports.rows_in, reports.rows_out, reports.bytes_in)):
            if values.any():  # zeros that nobody writes take no memory
                self._written_io(counter)[subtasks] = values

    def was_uncounted(self, subtasks: Ints) -> int:
        """These subtasks are sent again without a counted failure; returns for how many times in a row one of them is."""
        if self.uncounted is None:
            self.uncounted = np.zeros(self.parallelism, np.int16)
        self.uncounted[subtasks] += 1
        return int(self.uncounted[subtasks].max())

    def was_counted(self, subtasks: Ints) -> None:
        """These subtasks have come to an end that counts."""
        if self.uncounted is not None:
            self.uncounted[subtasks] = 0

    def count_one(self, subtask: int, reports: ExecutionReports) -> None:
        """:meth:`count` of one."""
        if rows := reports.rows_in.item():
            self._written_io(0)[subtask] = rows
        if rows := reports.rows_out.item():
            self._written_io(1)[subtask] = rows
        if read := reports.bytes_in.item():
            self._written_io(2)[subtask] = read

    def forget_counts(self, subtasks: Ints) -> None:
        """Takes back what these subtasks have read and written."""
        for counted in self.io:
            if counted.flags.writeable:
                counted[subtasks] = 0
        self.step_counts.forget(subtasks)

    def _written_io(self, counter: int) -> Ints:
        column = self.io[counter]
        if not column.flags.writeable:
            column = self.io[counter] = writable(column)
        return column

    def __getitem__(self, subtask: int) -> ExecutionVertex:
        return ExecutionVertex(self._table, int(self.newest[subtask]))


@dataclass(frozen=True, slots=True)
class VertexInitialization:
    """All that initialising a vertex needs. ``subpartitions`` of each data set it produces; ``ranges`` may come later."""

    vertex: int
    parallelism: int
    subpartitions: dict[int, int]
    ranges: tuple[InputRanges, ...] | None
    input_bytes: Ints | None


class DefaultExecutionGraph:
    """Starts with registered vertices only; ``initialize_job_vertex`` gives one its executions, results and groups."""

    def __init__(
        self,
        job_graph: JobGraph,
        table: ExecutionTable,
        emit: Callable[[Command], None] = lambda _command: None,
        size_buffer_bytes: int = BUFFER_BYTES,
        withdrawn: Withdrawn = lambda _result, _gone: None,
    ) -> None:
        """``emit`` is given what results have to be stored and read of their sizes. ``size_buffer_bytes``: of each result's packed rows of
        sizes, what is kept in memory. ``withdrawn``: told of partitions that cannot be read any more."""
        self.job_graph = job_graph
        self._emit = emit
        self._withdrawn = withdrawn
        self._size_buffer_bytes = size_buffer_bytes
        self.executions = table
        self.vertices = [ExecutionJobVertex(vertex, table) for vertex in job_graph.vertices]
        self.results: list[IntermediateResult | None] = [None] * len(job_graph.datasets)
        self.consumers: list[list[int]] = [sorted(set(job_graph.consumers(d.id))) for d in job_graph.datasets]
        self.regions = SchedulingPipelinedRegions(job_graph)

    def result(self, dataset: int) -> IntermediateResult:
        """Raises KeyError while its producer is not initialised."""
        result = self.results[dataset]
        if result is None:
            raise KeyError(f"data set {dataset} has no producer yet")
        return result

    def outputs(self, vertex: ExecutionJobVertex) -> list[IntermediateResult]:
        """The results of an initialised vertex, in the order of its job vertex' outputs."""
        return vertex.results

    def bytes_consumed(self, vertex: ExecutionJobVertex) -> int:
        """Plain bytes of all that an initialised vertex reads, each once: of a source its splits, else its inputs but for broadcasts."""
        if vertex.job.source is not None:
            return int(vertex.job.source.split_bytes.sum())
        infos = [self.result(edge.dataset).info for edge in vertex.job.inputs]
        return sum(info.num_bytes_produced for info in infos if not info.is_broadcast)

    def upstream_initialized(self, vertex: ExecutionJobVertex) -> bool:
        return all(self.results[edge.dataset] is not None for edge in vertex.job.inputs)

    def inputs_available(self, vertex: ExecutionJobVertex) -> bool:
        """All blocking results it consumes are finished."""
        results = (self.results[edge.dataset] for edge in vertex.job.inputs)
        return all(result is not None and (result.is_available or result.is_pipelined) for result in results)

    @property
    def all_finished(self) -> bool:
        """Every registered vertex has finished, not only every execution there is."""
        return all(vertex.is_finished or vertex.is_absorbed for vertex in self.vertices)

    def absorb(self, change: Absorbing) -> None:
        """Let a vertex do the work of one before it. Neither is initialised."""
        producer = change.producer(self.job_graph)
        read = [edge.dataset for edge in self.job_graph.vertices[producer].inputs]
        dropped = self.job_graph.vertices[producer].outputs
        absorb(self.job_graph, change)
        self.vertices[change.join].is_as_planned &= change.build is None
        for vertex in (producer, change.join):
            self.vertices[vertex].job = self.job_graph.vertices[vertex]
        for dataset in (*read, *dropped):
            self.consumers[dataset] = sorted(set(self.job_graph.consumers(dataset)))

    def narrow_source(self, vertex: int, split_bytes: Ints) -> JobVertex:
        """Let a source that is not initialised have these splits only; returns the job vertex as it is now."""
        job = self.job_graph.vertices[vertex]
        assert job.source is not None and not self.vertices[vertex].is_initialized
        wish = job.source.inferred_parallelism
        source = replace(
            job.source,
            split_bytes=split_bytes,
            inferred_parallelism=None if wish is None else max(1, min(wish, len(split_bytes))),
        )
        job = self.job_graph.vertices[vertex] = self.vertices[vertex].job = replace(job, source=source)
        return job

    def keep_two_steps(self, second: int) -> None:
        """Decide that a vertex' first step stays one by itself."""
        vertex, job = self.vertices[second], self.job_graph.vertices[second]
        step = "" if job.is_whole else job.step
        vertex.job = self.job_graph.vertices[second] = replace(job, first_step=None, step=step)
        vertex.is_as_planned &= not job.is_whole

    def initialize_job_vertex(self, plan: VertexInitialization, at: float) -> ExecutionJobVertex:
        """Create its executions, intermediate results and groups. All upstream vertices must be initialised."""
        vertex = self.vertices[plan.vertex]
        if vertex.is_initialized:
            raise ValueError(f"Vertex {vertex.id} '{vertex.job.name}' is initialised already.")
        n = vertex.parallelism = plan.parallelism
        first = np.zeros(n, np.int64)
        vertex.newest = self.executions.create(vertex.id, np.arange(n), first, -1, at=at)
        vertex.winner = np.full(n, NO_ROW, np.int32)
        vertex.held = np.zeros(n, np.bool_)
        vertex.unlike = np.zeros(n, np.bool_)
        vertex.io = [unwritten(n)] * len(IO_COUNTERS)
        vertex.step_counts = StepCounts(n)
        for dataset in vertex.job.outputs:
            result = self.results[dataset] = self._result(dataset, n, plan.subpartitions[dataset])
            vertex.results.append(result)
            if not result.is_pipelined:
                vertex.blocking_results.append(result)
            if not self.consumers[dataset]:
                result.info.forget_rows()  # nobody is decided from them
        for index, edge in enumerate(vertex.job.inputs):
            result = self.result(edge.dataset)
            groups = self._groups(result, vertex, None if plan.ranges is None else plan.ranges[index])
            groups.inside = self.regions.are_joined(result.dataset.producer, vertex.id)
            vertex.inputs.append(groups)
            result.consumers.append(groups)
        self.assign_inputs(vertex, plan.ranges, plan.input_bytes)
        return vertex

    def assign_inputs(
        self, vertex: ExecutionJobVertex, ranges: tuple[InputRanges, ...] | None, input_bytes: Ints | None
    ) -> None:
        """Sets the ranges that each subtask reads. Called once; restarts read the same."""
        vertex.ranges, vertex.input_bytes = ranges, input_bytes
        for edge in vertex.job.inputs:
            if all(self.vertices[v].ranges is not None for v in self.consumers[edge.dataset]):
                self.result(edge.dataset).info.forget_rows()

    def make_regions(self, new_vertices: Sequence[int]) -> None:
        """Once for all vertices that an event made."""
        self.regions.grow({v: self.vertices[v].parallelism for v in new_vertices}, self._inner_edges)

    def reset(self, vertex: ExecutionJobVertex, subtasks: Ints, at: float) -> None:
        """A new round: each of these subtasks gets a fresh execution with the next attempt number."""
        old = vertex.newest[subtasks]
        vertex.num_finished -= int((vertex.winner[subtasks] != NO_ROW).sum())
        vertex.winner[subtasks] = NO_ROW
        vertex.forget_counts(subtasks)
        attempts = self.executions.attempt[old].astype(np.int64) + 1
        vertex.newest[subtasks] = self.executions.create(vertex.id, subtasks, attempts, old, at=at)

    def _inner_edges(self, vertex: int) -> list[InnerEdge]:
        """Of an initialised vertex: its inputs that come from its own logical region."""
        results = [self.result(edge.dataset) for edge in self.vertices[vertex].inputs]
        return [
            InnerEdge(result.dataset.producer, groups, result.is_pipelined)
            for result, groups in zip(results, self.vertices[vertex].inputs, strict=True)
            if groups.inside
        ]

    def _result(self, dataset: int, num_partitions: int, num_subpartitions: int) -> IntermediateResult:
        described, room = self.job_graph.datasets[dataset], self._size_buffer_bytes
        info = blocking_result_info(described, num_partitions, num_subpartitions, self._emit, room)
        return IntermediateResult(info, described, self._withdrawn)

    def _groups(self, result: IntermediateResult, vertex: ExecutionJobVertex, ranges: InputRanges | None) -> EdgeGroups:
        # Without ranges nobody can tell which partitions a consumer reads: then it waits for all of them.
        if ranges is None or result.dataset.ship.pattern is DistributionPattern.ALL_TO_ALL:
            n = vertex.parallelism
            return EdgeGroups.all_to_all(result.dataset.id, vertex.id, n, result.available)
        return EdgeGroups.pointwise(result.dataset.id, vertex.id, ranges, result.available)
