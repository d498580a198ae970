"""Estimates of what a data set will have before its producer is done: what is read for it, and the part of such bytes that came out of
the same steps in earlier runs; no less than what its first subtasks have written."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.model.costs import StepCosts
from firesteel.model.job_graph import JobEdge, JobVertex, ShipStrategy
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph

MOST_BYTES = 1 << 60
"""More are not estimated: a data set may be read in many ways, and what nobody knows doubles with each."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Plain ``bytes`` of a data set, made of ``read`` bytes of sources and of results that are there.

    ``runs``: earlier runs that tell what comes out of a step on the way, of the step with the fewest; 0: nobody knows of any.
    ``is_known``: they tell it of every step; else one that they do not know counts as if all that it reads came out.
    """

    bytes: int
    read: int
    runs: int = 0
    is_known: bool = True


class Estimates:
    """Of the data sets of a running job. ``costs``: of its steps, from earlier runs."""

    def __init__(self, graph: DefaultExecutionGraph, costs: StepCosts) -> None:
        self._graph = graph
        self._costs = costs

    def of(self, dataset: int) -> Estimate:
        """The bytes that it has, or that will come out of its producer."""
        found: dict[int, Estimate] = {}
        for each in self._upstream(dataset):
            found[each] = self._there(each) or self._made(each, found)
        return found[dataset]

    def read_by(self, vertex: int) -> Estimate:
        """The bytes that a vertex reads, but for what each of its subtasks reads whole."""
        inputs = [edge.dataset for edge in self._shared_out(self._graph.job_graph.vertices[vertex])]
        return self._input(vertex, {dataset: self.of(dataset) for dataset in inputs})

    def written(self, dataset: int) -> int:
        """The bytes that a data set has so far."""
        result = self._graph.results[dataset]
        return 0 if result is None else result.info.num_bytes_produced

    def _upstream(self, dataset: int) -> list[int]:
        """The data set and all that it is made of, up to what is there. Each behind those that it is made of."""
        graph = self._graph.job_graph
        found, ask = set[int](), [dataset]
        while ask:
            current = ask.pop()
            if current not in found:
                found.add(current)
                if self._there(current) is None:
                    producer = graph.vertices[graph.datasets[current].producer]
                    ask += [edge.dataset for edge in self._shared_out(producer)]
        return sorted(found, key=lambda each: graph.datasets[each].producer)

    def _there(self, dataset: int) -> Estimate | None:
        """The bytes of a data set that is complete; None: it is not."""
        result = self._graph.results[dataset]
        if result is None or not result.is_available:
            return None
        there = self.written(dataset)
        return Estimate(there, there)

    def _made(self, dataset: int, found: dict[int, Estimate]) -> Estimate:
        """``found``: the estimates of all that its producer reads."""
        producer = self._graph.job_graph.vertices[self._graph.job_graph.datasets[dataset].producer]
        read, written = self._input(producer.id, found), self.written(dataset)
        part = self._costs.came_out(producer.step)
        if part is None or producer.filters:  # what comes out of a narrowed source says nothing of the whole one
            return Estimate(max(read.bytes, written), read.read, read.runs, is_known=False)
        # Data sets of one step are taken to be alike: the journal has their sum.
        size = min(read.bytes * part.bytes_out_per_byte / len(producer.outputs), MOST_BYTES)
        return Estimate(max(round(size), written), read.read, min(part.runs, read.runs or part.runs), read.is_known)

    def _input(self, vertex: int, found: dict[int, Estimate]) -> Estimate:
        job = self._graph.job_graph.vertices[vertex]
        inputs = [found[edge.dataset] for edge in self._shared_out(job)]
        source = 0 if job.source is None else int(job.source.split_bytes.sum())
        return Estimate(
            bytes=min(source + sum(one.bytes for one in inputs), MOST_BYTES),
            read=min(source + sum(one.read for one in inputs), MOST_BYTES),
            runs=min((one.runs for one in inputs if one.runs), default=0),
            is_known=all(one.is_known for one in inputs),
        )

    def _shared_out(self, job: JobVertex) -> list[JobEdge]:
        """Its inputs, but for those that each subtask reads whole."""
        datasets = self._graph.job_graph.datasets
        return [e for e in job.inputs if not e.whole and datasets[e.dataset].ship is not ShipStrategy.BROADCAST]
