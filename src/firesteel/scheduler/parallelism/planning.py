"""Everything that both schedulers need to decide a vertex: its consumed results, its bounds, and the record of what was decided."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from firesteel.errors import FiresteelError
from firesteel.model.arrays import Ints
from firesteel.model.costs import ENGINE_COST, HASHING_COST, StepCost
from firesteel.model.forward_group import forward_groups
from firesteel.model.heavy_keys import HeavyKey
from firesteel.model.job_graph import (
    PARALLELISM_DEFAULT,
    DistributionPattern,
    JobVertex,
    ShipStrategy,
    SourceInfo,
)
from firesteel.model.reports import SAMPLED, SAMPLED_FILE
from firesteel.options import BOUNDED_BY_SLOTS, DEFAULT_SOURCE_PARALLELISM
from firesteel.scheduler.exchange.key_ranges import explain as explain_ranges
from firesteel.scheduler.exchange.result_info import RangeBlockingResultInfo
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.decisions import HeavyKeys, KnownBeforehand, ManySubpartitions, Unmeasured, Unreadable
from firesteel.scheduler.kernel.events import SizesLoaded
from firesteel.scheduler.parallelism.bounds import bounds_for
from firesteel.scheduler.parallelism.decider import decide_vertex
from firesteel.scheduler.parallelism.model import BEFORE_RESUME, Bounds, ConsumedResult, SlotBound, VertexPlan
from firesteel.scheduler.parallelism.ranges import whole
from firesteel.scheduler.parallelism.source import decide_source
from firesteel.scheduler.parallelism.subpartitions import EXCESSIVE, SubpartitionCounts
from firesteel.scheduler.parallelism.vertex_decider import Decider
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult, VertexInitialization

NO_SPLITS = SourceInfo(np.zeros(0, np.int64))


class Parallelisms:
    """The parallelisms known so far. A forward group shares one: set beforehand, or decided by its first member."""

    def __init__(self, job: Job, slots: Callable[[int], int], bound_of: Callable[[int], SlotBound | None]) -> None:
        """``slots``: of the cluster when the job began, for a vertex. ``bound_of``: those that its slot sharing group can get
        now; None: nobody knows. Raises UsageError when two members of a forward group set different parallelisms."""
        self.options = options = job.options
        self._job_graph = job_graph = job.graph.job_graph
        self._slots = slots
        self._bound_of = bound_of
        self._costs = job.inputs.costs
        self._pinned = job.inputs.pinned
        self._are_bounded = options[BOUNDED_BY_SLOTS]
        groups = forward_groups(job_graph)
        self._members = [group.vertices for group in groups]
        self._leaders = [group.vertices[0] for group in groups]
        self._of = {vertex: number for number, group in enumerate(groups) for vertex in group.vertices}
        self._maximum = {n: g.max_parallelism for n, g in enumerate(groups) if g.max_parallelism != PARALLELISM_DEFAULT}
        self._decided = {n: g.parallelism for n, g in enumerate(groups) if g.parallelism != PARALLELISM_DEFAULT}

    def known(self, vertex: int) -> int | None:
        return self._decided.get(self._of[vertex])

    def leader(self, vertex: int) -> int:
        """The first member of the vertex' forward group, in topological order."""
        return self._leaders[self._of[vertex]]

    def maximum(self, vertex: int) -> int | None:
        """The smallest maximum that a member set."""
        return self._maximum.get(self._of[vertex])

    def decide(self, vertex: int, parallelism: int) -> None:
        self._decided[self._of[vertex]] = parallelism

    def bounds(self, vertex: JobVertex) -> Bounds:
        """Raises UsageError when nothing is left to choose."""
        bounds = self._as_before(vertex, bounds_for(vertex, self.options, self.known(vertex.id)))
        fewest = self._fewest_slots(vertex.id)
        slots = self._slots(vertex.id)
        if fewest is not None and vertex.source is None:  # at the start executors may be coming one by one
            slots = fewest.count
        return replace(
            bounds,
            vertex_maximum=self.maximum(vertex.id),
            slots=slots,
            slots_maximum=fewest if self._are_bounded else None,
            cost=self._cost(vertex),
            tapers=not any(self._job_graph.vertices[member].has_sink for member in self._members[self._of[vertex.id]]),
        )

    def _as_before(self, vertex: JobVertex, bounds: Bounds) -> Bounds:
        before = self._pinned.get(vertex.id)
        if before is None or bounds.fixed is not None:
            return bounds
        low, high = bounds.interval()
        return replace(bounds, fixed=before, fixed_rule=BEFORE_RESUME) if low <= before <= high else bounds

    def _cost(self, vertex: JobVertex) -> StepCost | None:
        """None also where others of its forward group, of other costs, get the same parallelism."""
        if len(self._members[self._of[vertex.id]]) > 1:
            return None
        known = self._costs.of(vertex.step)
        if known is not None or not vertex.by_engine:
            return known
        return HASHING_COST if vertex.source is None else ENGINE_COST

    def _fewest_slots(self, vertex: int) -> SlotBound | None:
        """Of the members of the vertex' forward group, which share one parallelism."""
        bounds = [self._bound_of(member) for member in self._members[self._of[vertex]]]
        return min((bound for bound in bounds if bound is not None), key=lambda bound: bound.count, default=None)


class UndecidableVertex(FiresteelError):
    """A vertex' parallelism or ranges cannot be decided. Names the vertex."""

    def __init__(self, vertex: JobVertex, why: FiresteelError) -> None:
        words = f"The parallelism of '{vertex.name}' cannot be decided. {why.message}"
        super().__init__(words, hint=why.hint, cause_trace=why.cause_trace)
        self.vertex = vertex.id


@contextmanager
def _naming(vertex: JobVertex) -> Generator[None, None, None]:
    try:
        yield
    except FiresteelError as error:
        raise UndecidableVertex(vertex, error) from error


class Planner:
    """Decides vertices and leaves the records of it."""

    def __init__(self, job: Job, subpartitions: SubpartitionCounts) -> None:
        """Raises UsageError when the options name a decider that cannot be loaded."""
        self._decider = Decider(job.options, job.side_inputs)
        self._graph = job.graph
        self._options = job.options
        self._subpartitions = subpartitions
        self._recorder = job.recorder

    def source(self, vertex: JobVertex, bounds: Bounds) -> VertexInitialization:
        """Decide a vertex that reads a source, and start its coordinator. All inputs it has beside are broadcast."""
        bounds = self._with_rebuilt(vertex, bounds)
        with _naming(vertex):
            plan = decide_source(vertex.source or NO_SPLITS, bounds, self._options[DEFAULT_SOURCE_PARALLELISM])
        self._decide("source parallelism", vertex, **plan.decision)
        if vertex.source is not None:
            self._graph.vertices[vertex.id].splits = plan.splits
            self._decide("split assignment", vertex, **plan.assignment)
        beside = [self._unmeasured(vertex, index) for index in range(len(vertex.inputs))]
        ranges = tuple(whole(result, plan.parallelism) for result in beside)
        return self._initialization(vertex, plan.parallelism, ranges, plan.input_bytes)

    def knows_sizes(self, vertex: JobVertex, bounds: Bounds) -> bool:
        """Returns whether a vertex whose consumed results are all there can be decided now.

        False: rows of sizes are on their way back from the driver's scratch files; they were asked for if need be.
        """
        ready = True
        for edge in vertex.inputs:
            info = self._graph.result(edge.dataset).info
            if edge.whole:  # however its bytes lie
                continue
            if info.awaits_ranges or (self._cut_by_cells(edge.dataset, bounds) and info.is_measured):
                ready &= info.fetch_cells()
            ready &= info.is_settled
        return ready

    def sizes_loaded(self, event: SizesLoaded) -> None:
        """Rows that :meth:`knows_sizes` asked for, or that a restart takes from the sums, have come back."""
        result = self._graph.results[event.dataset]
        unreadable = 0 if result is None else result.info.loaded(event)
        if unreadable:
            self._recorder.decision(
                "sizes",
                inputs=Unreadable(dataset=event.dataset, rows=unreadable),
                rule="shaped like the sum",
                result=unreadable,
            )

    def decided(self, vertex: JobVertex, bounds: Bounds) -> VertexInitialization:
        """Decide a vertex whose consumed results are all finished: parallelism and ranges."""
        plan = self.ranges(vertex, bounds)
        return self._initialization(vertex, plan.parallelism, plan.ranges, plan.input_bytes)

    def preview(self, vertex: JobVertex, bounds: Bounds) -> VertexPlan:
        """The plan of a vertex as Firesteel itself would make it; nothing is recorded, and no function of the user asked."""
        with _naming(vertex):
            bounds = self._for_files(vertex, self._with_rebuilt(vertex, bounds))
            bounds = replace(bounds, cut="by-count") if self._unmeasured_inputs(vertex) else bounds
            return decide_vertex([self._consumed(vertex, index, bounds) for index in range(len(vertex.inputs))], bounds)

    def by_count(self, vertex: JobVertex, bounds: Bounds) -> VertexInitialization:
        """A vertex of known parallelism whose inputs are cut by number, before anything was produced: they are all
        pointwise, so that single blocks can go ahead, or some are read while they are made."""
        inputs = [self._unmeasured(vertex, index) for index in range(len(vertex.inputs))]
        with _naming(vertex):
            plan = decide_vertex(inputs, replace(bounds, cut="by-count"))
        facts = KnownBeforehand(datasets=plan.facts.datasets, partitions=plan.facts.partitions)
        self._decide("parallelism", vertex, **{**plan.decision, "inputs": facts})
        return self._initialization(vertex, plan.parallelism, plan.ranges, None)

    def undecided_inputs(self, vertex: JobVertex, parallelism: int) -> VertexInitialization:
        """A vertex of known parallelism whose input is cut once it is there."""
        return self._initialization(vertex, parallelism, None, None)

    def ranges(self, vertex: JobVertex, bounds: Bounds) -> VertexPlan:
        """Decide parallelism and ranges of a vertex, or the ranges alone if it is initialised already, now that all results it consumes are
        finished."""
        self._decide_key_ranges(vertex, self._file_volume(vertex))
        self._name_heavy_keys(vertex)
        bounds = self._for_files(vertex, self._without_sizes(vertex, self._with_rebuilt(vertex, bounds)))
        inputs = [self._consumed(vertex, index, bounds) for index in range(len(vertex.inputs))]
        with _naming(vertex):
            plan = self._decider.decide(inputs, bounds, vertex.name, vertex.uid)
        self._decide("parallelism", vertex, **plan.decision)
        return plan

    def _decide_key_ranges(self, vertex: JobVertex, file_volume: int | None) -> None:
        """Of the RANGE results it reads, where no other consumer has come to it before."""
        for edge in vertex.inputs:
            result = self._graph.result(edge.dataset)
            if isinstance(result.info, RangeBlockingResultInfo) and result.info.awaits_ranges:
                ranges = result.info.decide_ranges(file_volume)
                record = explain_ranges(result.dataset, ranges)
                self._decide("key ranges", vertex, **record)

    def _name_heavy_keys(self, vertex: JobVertex) -> None:
        """Of the keyed results it reads by their keys."""
        for dataset in dict.fromkeys(edge.dataset for edge in vertex.inputs if not edge.whole):
            result = self._graph.result(dataset)
            producer = self._graph.vertices[result.dataset.producer].job.name
            record = explain_heavy_keys(result, producer)
            if record is not None:
                self._decide("heavy keys", vertex, **record)

    def _decide(self, what: str, vertex: JobVertex, **fields: Any) -> None:
        self._recorder.decision(what, vertex=vertex.id, name=vertex.name, **fields)

    def initialize(self, plan: VertexInitialization) -> ExecutionJobVertex:
        return self._graph.initialize_job_vertex(plan, self._recorder.at)

    def _initialization(
        self, vertex: JobVertex, parallelism: int, ranges: tuple[InputRanges, ...] | None, input_bytes: Ints | None
    ) -> VertexInitialization:
        counts: dict[int, int] = {}
        for output in vertex.outputs:
            dataset = self._graph.job_graph.datasets[output]
            counts[output] = self._subpartitions.count(dataset, parallelism)
            self._decide("subpartitions", vertex, **self._subpartitions.explain(dataset, parallelism))
            if counts[output] > EXCESSIVE:
                facts = ManySubpartitions(dataset=output, most=EXCESSIVE)
                self._decide("warning", vertex, inputs=facts, rule="excessive maximum", result=counts[output])
        return VertexInitialization(vertex.id, parallelism, counts, ranges, input_bytes)

    def _without_sizes(self, vertex: JobVertex, bounds: Bounds) -> Bounds:
        """By bytes can be cut only what was measured by subpartition."""
        unmeasured = self._unmeasured_inputs(vertex)
        if not unmeasured or bounds.cut == "by-count":
            return bounds
        self._decide("sizes", vertex, inputs=Unmeasured(datasets=unmeasured), rule="not measured", result="by-count")
        return replace(bounds, cut="by-count")

    def _for_files(self, vertex: JobVertex, bounds: Bounds) -> Bounds:
        """A subtask gets what makes one file of the size asked for, whatever stands idle or costs what."""
        volume = self._file_volume(vertex)
        if volume is None:
            return bounds
        results = [self._graph.result(edge.dataset) for edge in vertex.inputs]
        apart = any(isinstance(result.info, RangeBlockingResultInfo) for result in results)
        return replace(bounds, data_volume=volume, least_volume=0, cost=None, apart=apart)

    def _with_rebuilt(self, vertex: JobVertex, bounds: Bounds) -> Bounds:
        """Adds the bytes of the build sides that each subtask hashes. Python's are made once for all workers of an executor."""
        if bounds.cost is None or not vertex.by_engine:
            return bounds
        whole = [self._graph.result(edge.dataset).info for edge in vertex.inputs if edge.whole]
        return replace(bounds, rebuilt=sum(info.num_bytes_produced for info in whole))

    def _file_volume(self, vertex: JobVertex) -> int | None:
        """Plain bytes of what it reads that make a file of the size asked for, as its producers' samples tell; None: none was asked for."""
        files = vertex.files
        if files is None:
            return None
        producers = {self._graph.result(edge.dataset).dataset.producer for edge in vertex.inputs if not edge.whole}
        counts = [self._graph.vertices[number].step_counts.totals.get(files.sample, {}) for number in producers]
        plain, written = (sum(count.get(name, 0) for count in counts) for name in (SAMPLED, SAMPLED_FILE))
        return max(1, int(files.nbytes * (plain / written if plain and written else 1.0)))

    def _unmeasured_inputs(self, vertex: JobVertex) -> list[int]:
        edges = [edge for edge in vertex.inputs if not edge.whole]
        return [edge.dataset for edge in edges if not self._graph.result(edge.dataset).info.is_measured]

    def _cut_by_cells(self, dataset: int, bounds: Bounds) -> bool:
        result = self._graph.result(dataset)
        pointwise = result.dataset.ship.pattern is DistributionPattern.POINTWISE
        return result.info.needs_cells and (pointwise or bounds.cut == "by-bytes")

    def _consumed(self, vertex: JobVertex, index: int, bounds: Bounds) -> ConsumedResult:
        edge = vertex.inputs[index]
        result = self._graph.result(edge.dataset)
        info = result.info
        is_measured = info.is_measured and not edge.whole
        return ConsumedResult(
            dataset=edge.dataset,
            ship=ShipStrategy.BROADCAST if edge.whole else result.dataset.ship,
            co_partitioned=edge.co_partitioned,
            num_partitions=result.num_partitions,
            num_subpartitions=result.num_subpartitions,
            subpartition_bytes=info.subpartition_bytes if is_measured else None,
            cells=info.cells() if is_measured and self._cut_by_cells(edge.dataset, bounds) else None,
            total_bytes=info.num_bytes_produced,
            is_broadcast=edge.whole or info.is_broadcast,
            divisible=edge.divisible,
            indivisible=edge.indivisible,
            by_value=edge.by_value,
        )

    def _unmeasured(self, vertex: JobVertex, index: int) -> ConsumedResult:
        edge = vertex.inputs[index]
        result = self._graph.result(edge.dataset)
        return ConsumedResult(
            edge.dataset,
            ShipStrategy.BROADCAST if edge.whole else result.dataset.ship,
            edge.co_partitioned,
            result.num_partitions,
            result.num_subpartitions,
            is_broadcast=edge.whole or result.info.is_broadcast,
        )


def explain_heavy_keys(result: IntermediateResult, producer: str) -> dict[str, Any] | None:
    """The decision's record: fields of ``records.Decision`` without what, vertex and name. None: no key is heavy. ``producer``: its
    name."""
    heavy = result.info.heavy_keys()
    if not heavy:
        return None
    columns = result.dataset.keys
    facts = HeavyKeys(
        dataset=result.dataset.id, columns=list(columns), bytes=result.info.num_bytes_produced, producer=producer
    )
    named = [_recorded(key, share, columns) for key, share in heavy]
    return {"inputs": facts, "rule": "sampled by the producers", "result": named}


def _recorded(key: HeavyKey, share: float, columns: Sequence[str]) -> dict[str, Any]:
    """Of a key with very many columns it has the first ones."""
    named = dict(zip(columns, key.values, strict=False))
    return {"key": named, "subpartition": key.subpartition, "share": round(share, 4)}
