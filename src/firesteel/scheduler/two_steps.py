"""Steps that may be one or two (``JobVertex.first_step``), decided when all that the first one reads is there.

They are two only where the first then divides what one subtask would have to read: a subpartition of too many values (``skew``), or, where
all is for one subtask anyway, all of it. Else the second absorbs the first, and the exchange between them is never made.
"""

from __future__ import annotations

from collections.abc import Callable

from firesteel.humanize import plural
from firesteel.model.absorbing import Absorbing
from firesteel.model.job_graph import JobVertex
from firesteel.scheduler.kernel.commands import VertexAbsorbed
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import GraphChanged
from firesteel.scheduler.parallelism.model import Bounds, VertexPlan
from firesteel.scheduler.parallelism.planning import Planner
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.planned import planned_vertex


class TwoSteps:
    """The decisions that are left, in the order of their vertices."""

    def __init__(
        self, graph: DefaultExecutionGraph, planner: Planner, bounds: Callable[[JobVertex], Bounds], recorder: Recorder
    ) -> None:
        """``bounds``: of a vertex, as they are now."""
        self._graph = graph
        self._planner = planner
        self._bounds = bounds
        self._recorder = recorder
        self._open = [vertex.id for vertex in graph.vertices if vertex.job.first_step is not None]

    def consider(self) -> None:
        """Decides those that can be decided now, before vertices are initialised. Raises UndecidableVertex."""
        for second in list(self._open):
            number = self._graph.vertices[second].job.first_step
            assert number is not None
            first = self._graph.vertices[number]
            if self._graph.inputs_available(first) and self._planner.knows_sizes(first.job, self._bounds(first.job)):
                self._open.remove(second)
                self._decide(first.job, self._graph.vertices[second].job)

    def _decide(self, first: JobVertex, second: JobVertex) -> None:
        plan = self._planner.preview(first, self._bounds(first))
        divided = plan.decision["result"].get("divided")
        if divided or (plan.parallelism > 1 and not first.inputs[0].by_value):
            self._graph.keep_two_steps(second.id)
            self._record(first, second, plan, "two steps", _why_two(plan))
            return
        why = (
            "no key has so many values that it would pay to divide them"
            if first.inputs[0].by_value
            else "one subtask is enough"
        )
        self._record(first, second, plan, "one step", f"one step: {why}")
        self._graph.absorb(Absorbing(second.id, None))
        self._recorder.emit(VertexAbsorbed(second.id, first.id, None))
        vertex = planned_vertex(self._graph.job_graph, self._graph.job_graph.vertices[second.id])
        self._recorder.record(
            GraphChanged(
                at=self._recorder.at, event=self._recorder.event, absorbed=first.id, into=second.id, vertex=vertex
            )
        )

    def _record(self, first: JobVertex, second: JobVertex, plan: VertexPlan, result: str, reason: str) -> None:
        self._recorder.decision(
            "two steps",
            vertex=second.id,
            name=second.name,
            inputs={"first": first.id, "bytes": plan.decision["inputs"]["bytes"], "parallelism": plan.parallelism},
            rule="divided" if result == "two steps" else "not divided",
            result=result,
            reason=reason,
        )


def _why_two(plan: VertexPlan) -> str:
    subtasks = plural(plan.parallelism, "subtask")
    if plan.decision["result"].get("divided"):
        return f"two steps: {subtasks} count the values, those of heavy keys by parts, and what they count is added up"
    return f"two steps: {subtasks} count parts of the values, and what they count is added up"
