"""Sources that read only what can match the other side of their joins, once that is there (Flink: runtime filters, FLIP-324).

A source is narrowed before it is decided: the data plane reads the keys of the finished side, which is small, and lists
the source's splits anew without those that have none of them. It is put off while a side that promises much is on its way, as long as
the slots that are idle meanwhile cost less than it can save.
"""

from __future__ import annotations

from firesteel.model.absorbing import SIDES, worker_of
from firesteel.model.job_graph import JobVertex, RuntimeFilter
from firesteel.options import RUNTIME_FILTER_MAX_BUILD, RUNTIME_FILTER_MIN_PROBE
from firesteel.scheduler.job import Job
from firesteel.scheduler.joins.deferrals import Deferral, Deferrals, budget_for
from firesteel.scheduler.joins.estimates import Estimates
from firesteel.scheduler.kernel.commands import NarrowSource
from firesteel.scheduler.kernel.decisions import DeferredFor, ReadLess
from firesteel.scheduler.kernel.events import SourceNarrowed
from firesteel.scheduler.kernel.waits import Narrowing
from firesteel.scheduler.topology.execution_graph import IntermediateResult

LEAST_RATIO = 4
"""A filter is worth its making where the source has so many times the bytes of what it is made of."""
FEW_BYTES = 1 << 20
"""A side of so few plain bytes is tried even if no step on the way drops rows: it may be a list of the few keys that are wanted."""


class RuntimeFilters:
    def __init__(self, job: Job, deferrals: Deferrals, estimates: Estimates) -> None:
        self._job = job
        self._graph = job.graph
        self._recorder = job.recorder
        self._deferrals = deferrals
        self._estimates = estimates
        self._max_build = job.options[RUNTIME_FILTER_MAX_BUILD]
        self._min_probe = job.options[RUNTIME_FILTER_MIN_PROBE]
        self._asked: dict[int, tuple[RuntimeFilter, ...]] = {}
        """By the source that is being narrowed, under the number it was asked about."""
        self._settled: set[int] = set()
        """Sources of which nothing more is to be asked."""

    @property
    def is_asking(self) -> bool:
        return bool(self._asked)

    def is_asked(self, vertex: int) -> bool:
        return any(worker_of(self._graph.job_graph, asked) == vertex for asked in self._asked)

    def puts_off(self, vertex: int) -> bool:
        job = self._graph.vertices[vertex].job
        if not job.filters or vertex in self._settled:
            return False
        useful = [found for found in job.filters if self._is_useful(found, _bytes_read(job))]
        there = tuple(found for found in useful if self._finished(found.dataset) is not None)
        if len(there) < len(useful) and self._waits_for(vertex, next(f for f in useful if f not in there)):
            return True
        self._deferrals.close(vertex)
        self._settled.add(vertex)
        if there:
            self._asked[vertex] = there
            gates = tuple(self._job.descriptors.gate(self._graph.result(found.dataset)) for found in there)
            self._recorder.emit(NarrowSource(vertex, there, gates))
        return bool(there)

    def narrowed(self, event: SourceNarrowed) -> None:
        filters = self._asked.pop(event.vertex, None)
        if filters is None:
            return
        vertex = worker_of(self._graph.job_graph, event.vertex)
        self._settled.add(vertex)
        job = self._graph.vertices[vertex].job
        assert job.source is not None
        before, splits = _bytes_read(job), len(job.source.split_bytes)
        if event.split_bytes is not None:
            job = self._graph.narrow_source(vertex, event.split_bytes)
        left = _bytes_read(job)
        self._recorder.decision(
            "runtime filter",
            vertex=vertex,
            name=job.name,
            inputs=ReadLess(
                filters=[{"join": one.join, "side": SIDES[one.build], "columns": list(one.columns)} for one in filters],
                bytes=before,
                splits=splits,
                found=event.found,
            ),
            rule="finished inputs",
            result={"bytes": left, "splits": splits if event.split_bytes is None else len(event.split_bytes)},
        )

    def waiting_for(self) -> list[Narrowing]:
        return [
            Narrowing(vertex, tuple((SIDES[one.build], one.join) for one in found))
            for vertex, found in self._asked.items()
        ]

    def _is_useful(self, found: RuntimeFilter, probe: int) -> bool:
        """Returns whether it is likely to save more than it costs, and gives the same rows whatever is made again."""
        size = self._estimates.of(found.dataset).bytes
        small = size <= self._max_build and size * LEAST_RATIO <= probe
        promises = small and (found.selective or size <= FEW_BYTES)
        return promises and probe >= self._min_probe and self._is_deterministic(found.dataset)

    def _is_deterministic(self, dataset: int) -> bool:
        """Returns False if rows of the data set may be others when they are made again: the filter would not fit them."""
        seen, ask = set[int](), [dataset]
        while ask:
            number = worker_of(self._graph.job_graph, self._graph.job_graph.datasets[ask.pop()].producer)
            if number in seen:
                continue
            seen.add(number)
            producer = self._graph.vertices[number].job
            if not producer.deterministic:
                return False
            ask += [edge.dataset for edge in producer.inputs]
        return True

    def _finished(self, dataset: int) -> IntermediateResult | None:
        result = self._graph.results[dataset]
        return result if result is not None and result.is_available and result.info.is_settled else None

    def _waits_for(self, vertex: int, found: RuntimeFilter) -> bool:
        """Puts the vertex off, if that may pay, and the side does not wait for the vertex itself."""
        if self._deferrals.is_circular(vertex, found.dataset):
            return False
        join, side = worker_of(self._graph.job_graph, found.join), SIDES[found.build]
        deferral = self._deferrals.of(vertex)
        if deferral is not None:
            deferral.join, deferral.side, deferral.dataset = join, side, found.dataset
        elif self._deferrals.slots_of(vertex) is not None:
            job = self._graph.vertices[vertex].job
            probe, built = _bytes_read(job), self._estimates.of(found.dataset)
            deferral = Deferral(join, side, found.dataset, budget_for(probe))
            self._deferrals.begin(vertex, deferral)
            self._recorder.decision(
                "join order",
                vertex=vertex,
                name=job.name,
                inputs=DeferredFor(
                    join=join,
                    build=side,
                    build_bytes=built.bytes,
                    probe_bytes=probe,
                    build_read=built.read,
                    build_runs=built.runs,
                    budget=deferral.budget,
                ),
                rule="runtime filter",
                result="put off",
            )
        return deferral is not None and not deferral.is_over


def _bytes_read(job: JobVertex) -> int:
    return 0 if job.source is None else int(job.source.split_bytes.sum())
