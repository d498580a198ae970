"""Steps that may be one or two (``JobVertex.first_step``), decided when all that the first one reads is there.

They are two only where the first then divides what one subtask would have to read: a subpartition of too many values or rows (``skew``), or,
where all is for one subtask anyway, all of it. Else the second absorbs the first, and the exchange between them is never made. A first step
that is a join may have a side broadcast before (``scheduler.joins``), or be put off for that: then it is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from firesteel.humanize import format_bytes, plural
from firesteel.model.absorbing import Absorbing
from firesteel.model.job_graph import JobVertex
from firesteel.scheduler.job import Job
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
        why = _why_one(first, second, plan, bounds.slots or 1)
        if not why:
            self._graph.keep_two_steps(second.id)
            self._record(first, second, plan, "two steps", _why_two(second, plan))
            return
        self._record(first, second, plan, "one step", f"one step: {why}")
        self._job.absorb(Absorbing(second.id, None))

    def _record(self, first: JobVertex, second: JobVertex, plan: VertexPlan, result: str, reason: str) -> None:
        self._job.recorder.decision(
            "two steps",
            vertex=second.id,
            name=second.name,
            inputs={"first": first.id, "bytes": plan.decision["inputs"]["bytes"], "parallelism": plan.parallelism},
            rule="divided" if result == "two steps" else "not divided",
            result=result,
            reason=reason,
        )


def _why_one(first: JobVertex, second: JobVertex, plan: VertexPlan, slots: int) -> str:
    """Why the two are one; empty: they are not."""
    divided = plan.decision["result"].get("divided")
    if not second.is_whole:
        return (
            _why_no_exchange(second, plan, slots)
            if divided
            else "no key has so many rows that it would pay to divide them"
        )
    if first.inputs[0].by_value:
        return "" if divided else "no key has so many values that it would pay to divide them"
    return "" if divided or plan.parallelism > 1 else "one subtask is enough"


def _why_no_exchange(second: JobVertex, plan: VertexPlan, slots: int) -> str:
    """Why a join that could be divided is not, for what comes out is exchanged then; empty: it is.

    What combines rows before its exchange has few of them. Of a join all are exchanged, about as many bytes as were read; that has to be
    less, for a slot, than the bytes by which the largest subtask has fewer.
    """
    heaviest = plan.decision["result"]["divided"][0]
    saved, exchanged = sum(heaviest["bytes"]) - heaviest["each"], sum(plan.decision["inputs"]["bytes"]) // slots
    if second.join is None or saved > exchanged:
        return ""
    return (
        f"dividing what it reads would save the largest subtask {format_bytes(saved)}, less than the {format_bytes(exchanged)} of each slot "
        "in the exchange that would follow"
    )


def _why_two(second: JobVertex, plan: VertexPlan) -> str:
    subtasks = plural(plan.parallelism, "subtask")
    if not second.is_whole:
        return f"two steps: {subtasks} join, which share out the rows of heavy keys, so that what comes out is exchanged for the next step"
    if plan.decision["result"].get("divided"):
        return f"two steps: {subtasks} count the values, those of heavy keys by parts, and what they count is added up"
    return f"two steps: {subtasks} count parts of the values, and what they count is added up"
