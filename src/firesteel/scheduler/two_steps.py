"""Steps that may be one or two (``JobVertex.first_step``), decided when all that the first one reads is there.

They are two only where the first then divides what one subtask would have to read: a subpartition of too many values or rows (``skew``), or,
where all is for one subtask anyway, all of it. Else the second absorbs the first, and the exchange between them is never made. A first step
that is a join may have a side broadcast before (``scheduler.joins``), or be put off for that: then it is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from firesteel.model.absorbing import Absorbing
from firesteel.model.job_graph import JobVertex
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import StepsBecause, TwoOrOne
from firesteel.scheduler.parallelism.model import Bounds, VertexPlan
from firesteel.scheduler.parallelism.planning import Planner
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex


class TwoSteps:
    """The decisions that are left, in the order of their vertices."""

    def __init__(
        self, job: Job, planner: Planner, bounds: Callable[[JobVertex], Bounds], puts_off: Callable[[int], bool]
    ) -> None:
        """``bounds``: of a vertex, as they are now; ``puts_off``: whether a vertex waits for a side of a join behind it."""
        self._job = job
        self._graph = job.graph
        self._planner = planner
        self._bounds = bounds
        self._puts_off = puts_off
        self._open = [vertex.id for vertex in job.graph.vertices if vertex.job.first_step is not None]

    def consider(self) -> None:
        """Decides those that can be decided now, before vertices are initialised. Raises UndecidableVertex."""
        for second in list(self._open):
            number = self._graph.vertices[second].job.first_step
            if number is None:  # its first step has had a side broadcast
                self._open.remove(second)
            elif self._can_be_decided(self._graph.vertices[number]):
                self._open.remove(second)
                self._decide(self._graph.vertices[number].job, self._graph.vertices[second].job)

    def settles(self, vertex: int) -> bool:
        """Returns True if a vertex is a first step of which it is decided now, or not yet known, what it is: it is not to be initialised."""
        second = next((one for one in self._open if self._graph.vertices[one].job.first_step == vertex), None)
        if second is None:
            return False
        first = self._graph.vertices[vertex]
        if self._can_be_decided(first):
            self._open.remove(second)
            self._decide(first.job, self._graph.vertices[second].job)
        return first.is_absorbed or second in self._open

    def _can_be_decided(self, first: ExecutionJobVertex) -> bool:
        if not self._graph.inputs_available(first) or not self._planner.knows_sizes(first.job, self._bounds(first.job)):
            return False
        return not self._puts_off(first.id)

    def _decide(self, first: JobVertex, second: JobVertex) -> None:
        bounds = self._bounds(first)
        plan = self._planner.preview(first, bounds)
        facts = _facts(first, second, plan, bounds.slots or 1)
        is_one = facts.why in _ONE
        self._job.recorder.decision(
            "two steps",
            vertex=second.id,
            name=second.name,
            inputs=facts,
            rule="not divided" if is_one else "divided",
            result="one step" if is_one else "two steps",
        )
        if is_one:
            self._job.absorb(Absorbing(second.id, None))
        else:
            self._graph.keep_two_steps(second.id)


_ONE = (StepsBecause.FEW_ROWS, StepsBecause.FEW_VALUES, StepsBecause.SMALL, StepsBecause.EXCHANGE)


def _facts(first: JobVertex, second: JobVertex, plan: VertexPlan, slots: int) -> TwoOrOne:
    """A join that could be divided is not where the exchange of what comes out costs more.

    What combines rows before its exchange has few of them. Of a join all are exchanged, about as many bytes as were read; that has to be
    less, for a slot, than the bytes by which the largest subtask has fewer.
    """
    divided = plan.result.get("divided")
    facts = TwoOrOne(first=first.id, bytes=plan.facts.bytes, parallelism=plan.parallelism, why=StepsBecause.JOINED)
    if second.is_whole:
        why = StepsBecause.COUNTED_HEAVY if divided else StepsBecause.COUNTED
        if not divided and (first.inputs[0].by_value or plan.parallelism == 1):
            why = StepsBecause.FEW_VALUES if first.inputs[0].by_value else StepsBecause.SMALL
        return replace(facts, why=why)
    if not divided:
        return replace(facts, why=StepsBecause.FEW_ROWS)
    saved, exchanged = sum(divided[0]["bytes"]) - divided[0]["each"], sum(facts.bytes) // slots
    if second.join is None or saved > exchanged:
        return facts
    return replace(facts, why=StepsBecause.EXCHANGE, saved=saved, exchanged=exchanged)
