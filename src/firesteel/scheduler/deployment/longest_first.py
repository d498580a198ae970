"""Order of deployment: of more executions than there are slots, those that will take longest begin first.

One that is long and begins last would run alone at the end. What is much alike keeps its order, which is that of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.costs import StepCosts
from firesteel.scheduler.slots.allocators import DeploymentOption, ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph

ALIKE = 0.125
"""Executions are alike whose bytes, as multiples of the mean, round to the same number of such steps."""


class LongestFirst:
    """By bytes within a vertex; between vertices by seconds, where the cost of all of them is known."""

    def __init__(self, graph: DefaultExecutionGraph, costs: StepCosts, slots: Callable[[int], int]) -> None:
        """``slots``: tasks of a vertex that can run at once."""
        self._graph = graph
        self._costs = costs
        self._slots = slots
        self._alike: dict[int, tuple[Ints, bool]] = {}
        """By vertex, with the bytes that were looked at."""

    def order(self, options: list[DeploymentOption]) -> list[DeploymentOption]:
        """The same options, their executions in the order to ask for slots. Regions keep their order."""
        found = [o if not isinstance(o, ExecutionDeploymentOption) else self._within(o) for o in options]
        if len(found) < 2:
            return found
        seconds = [self._seconds(option) for option in found]
        known = [each for each in seconds if each is not None]
        if len(known) < len(found):
            return found
        places = sorted(range(len(found)), key=lambda place: -known[place])
        return [found[place] for place in places]

    def _within(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        sizes = self._graph.vertices[option.vertex].input_bytes
        few = len(option.subtasks) <= self._slots(option.vertex)
        if sizes is None or few or self._are_alike(option.vertex, sizes):
            return option
        own = sizes[option.subtasks]
        order = np.argsort(-np.rint(own / max(1.0, ALIKE * own.mean())), kind="stable")
        return replace(option, subtasks=option.subtasks[order], executions=option.executions[order])

    def _are_alike(self, vertex: int, sizes: Ints) -> bool:
        """All of the vertex, and so any of them; looked at once, for those without a slot are asked about with every event."""
        known = self._alike.get(vertex)
        if known is None or known[0] is not sizes:
            alike = int(sizes.max()) < (1 + ALIKE / 2) * int(sizes.min())
            known = self._alike[vertex] = sizes, alike
        return known[1]

    def _seconds(self, option: DeploymentOption) -> float | None:
        """Of its longest execution; None: not known."""
        if not isinstance(option, ExecutionDeploymentOption):
            return None
        vertex = self._graph.vertices[option.vertex]
        cost = self._costs.of(vertex.job.step)
        if cost is None or vertex.input_bytes is None:
            return None
        return cost.seconds_per_byte * int(vertex.input_bytes[option.subtasks].max())
