"""Slots that a vertex can get, as far as anybody knows: what its parallelism may be bounded by."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.parallelism.model import SlotBound
from firesteel.scheduler.slots.fine_grained import FineGrainedResources
from firesteel.scheduler.topology.nodes import Nodes


class UsableSlots:
    def __init__(
        self,
        job_graph: JobGraph,
        slots: int,
        nodes: Nodes,
        resources: FineGrainedResources,
        avoided: Callable[[], tuple[str, ...]],
    ) -> None:
        """``slots``: of the cluster when the job began, 0: not known. ``avoided``: gives the nodes that nothing new goes to."""
        self._job_graph = job_graph
        self._slots = slots
        self._nodes = nodes
        self._resources = resources
        self._avoided = avoided

    def at_start(self, vertex: int) -> int:
        """Of the cluster when the job began; where the vertex' group has resources, those that it can get now."""
        return self._resources.slots_of(vertex) or self._slots

    def bound(self, vertex: int) -> SlotBound | None:
        """All that the vertex' group can get now; None: nobody knows, or there are none."""
        count = self._resources.slots_of(vertex)
        if count is None and self._nodes.is_told:
            avoided = self._avoided()
            count = sum(n for node, n in self._nodes.slots.items() if node not in avoided)
        count = self._slots if count is None else count
        return SlotBound(count, self._job_graph.vertices[vertex].slot_sharing_group) if count else None
