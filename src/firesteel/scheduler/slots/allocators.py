"""Slots for executions. Deployment is of executions, so a mirror can ask for a slot of its own (FLIP-168)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.nodes import Blocklist, Nodes
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.topology.executions import ExecutionTable, Rows


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionDeploymentOption:
    """Executions of one vertex to deploy together; ``subtasks`` and ``executions`` (rows) run parallel."""

    vertex: int
    subtasks: Ints
    executions: Rows
    slots: SlotGrants | None = None
    """The grants, where a slot is more than one of Spark's own."""


@dataclass(frozen=True, slots=True, eq=False)
class RegionDeploymentOption:
    """Regions of several executions each, in which the same vertices take part, to deploy together.

    ``parts``: one per vertex, in topological order. ``regions``: parallel to the subtasks of each part, their region.
    """

    parts: tuple[ExecutionDeploymentOption, ...]
    regions: tuple[Ints, ...]

    def select(self, regions: Ints) -> RegionDeploymentOption:
        """Returns the part of this option that belongs to these regions."""
        chosen = [np.isin(own, regions) for own in self.regions]
        return RegionDeploymentOption(
            tuple(
                ExecutionDeploymentOption(part.vertex, part.subtasks[own], part.executions[own])
                for part, own in zip(self.parts, chosen, strict=True)
            ),
            tuple(own[mask] for own, mask in zip(self.regions, chosen, strict=True)),
        )


DeploymentOption = ExecutionDeploymentOption | RegionDeploymentOption


class Slots(Policy):
    """Spark's own: it queues what it cannot run at once, so every request is granted."""

    def begin_round(self) -> None:
        """All that waits for slots is going to be asked for."""

    def end_round(self) -> bool:
        """True: what was kept for somebody is free now, so ask once more."""
        return False

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        """The part of the request that has slots now; the rest is asked for again with the next event."""
        return option

    def allocate_slots_for_regions(self, option: RegionDeploymentOption) -> RegionDeploymentOption:
        """The regions that got slots for all their executions."""
        return option


class BoundedSlots(Slots):
    """No more at a time than there are slots: what is not handed to Spark does not queue there before a mirror.

    For a session that serves its jobs in the order they came (FIFO). The slots of a blocked node are none, and what runs
    there takes none. At least one is offered always: a job that finds no node is to wait in Spark, which may get some.
    """

    def __init__(self, slots: int, nodes: Nodes, table: ExecutionTable, blocklist: Blocklist) -> None:
        """``slots``: how many there are until nodes are known."""
        self._slots = slots
        self._held: set[int] = set()
        self._nodes = nodes
        self._table = table
        self._blocklist = blocklist

    @property
    def free(self) -> int:
        """Negative when nodes were lost or blocked."""
        avoided, slots = self._blocklist.avoided, self._slots
        if self._nodes.is_told:
            slots = sum(count for node, count in self._nodes.slots.items() if node not in avoided)
        return max(1, slots) - len(self._held) + (self._held_on(avoided) if avoided else 0)

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        free = max(0, self.free)
        if free < len(option.executions):
            option = ExecutionDeploymentOption(option.vertex, option.subtasks[:free], option.executions[:free])
        self._held.update(option.executions.tolist())
        return option

    def allocate_slots_for_regions(self, option: RegionDeploymentOption) -> RegionDeploymentOption:
        """One that gets fewer gives them back.

        All are asked for at once. If that gives too few, region by region, so that those left do not share out the slots
        in such a way that none can run.
        """
        if self._all_granted(option):
            return option
        granted: list[int] = []
        for region in np.unique(option.regions[0]).tolist():
            if not self._all_granted(option.select(np.array([region]))):
                break
            granted.append(region)
        return option.select(np.array(granted, np.int64))

    def _all_granted(self, option: RegionDeploymentOption) -> bool:
        """False: nothing was kept."""
        granted: list[ExecutionDeploymentOption] = []
        for part in option.parts:
            granted.append(self.allocate_slots_for(part))
            if len(granted[-1].executions) < len(part.executions):
                for given in granted:
                    self.ended(given.executions)
                return False
        return True

    def ended(self, rows: Rows) -> None:
        if self._held:
            self._held.difference_update(rows.tolist())

    def _held_on(self, nodes: Collection[str]) -> int:
        if not self._held:
            return 0
        rows = np.fromiter(self._held, np.int64, len(self._held))
        counts = np.bincount(self._table.node[rows])
        return sum(int(counts[n]) for n in np.flatnonzero(counts).tolist() if self._table.node_named(n) in nodes)
