"""Slots for executions. Deployment is of executions, so a mirror can ask for a slot of its own (FLIP-168)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firesteel.scheduler.events import Ints
from firesteel.scheduler.executions import Rows


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionDeploymentOption:
    """Executions of one vertex to deploy together; ``subtasks`` and ``executions`` (rows) run parallel."""

    vertex: int
    subtasks: Ints
    executions: Rows


@dataclass(frozen=True, slots=True, eq=False)
class RegionDeploymentOption:
    """Regions of several executions each, in which the same vertices take part, to deploy together.

    ``parts``: one per vertex, in topological order. ``regions``: parallel to the subtasks of each part, their region.
    """

    parts: tuple[ExecutionDeploymentOption, ...]
    regions: tuple[Ints, ...]

    def select(self, regions: Ints) -> RegionDeploymentOption:
        """What belongs to these regions."""
        chosen = [np.isin(own, regions) for own in self.regions]
        return RegionDeploymentOption(
            tuple(
                ExecutionDeploymentOption(part.vertex, part.subtasks[own], part.executions[own])
                for part, own in zip(self.parts, chosen, strict=True)
            ),
            tuple(own[mask] for own, mask in zip(self.regions, chosen, strict=True)),
        )


DeploymentOption = ExecutionDeploymentOption | RegionDeploymentOption


class ExecutionSlotAllocator(Protocol):
    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        """The part of the request that has slots now; the rest is asked for again with the next event."""
        ...

    def cancel(self, executions: Rows) -> None:
        """Take back the request, or free the slot, of executions that ended or will not run."""
        ...


class GrantAllSlotAllocator:
    """Spark queues what it cannot run at once, so every request is granted."""

    def allocate_slots_for(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        return option

    def cancel(self, executions: Rows) -> None:
        """Nothing is held."""


def allocate_slots_for_regions(
    allocator: ExecutionSlotAllocator, option: RegionDeploymentOption
) -> RegionDeploymentOption:
    """The regions that got slots for all their executions; one that gets fewer gives them back.

    All are asked for at once. If that gives too few, region by region, so that those left do not share out the slots
    in such a way that none can run.
    """
    if _all_granted(allocator, option):
        return option
    granted: list[int] = []
    for region in np.unique(option.regions[0]).tolist():
        if not _all_granted(allocator, option.select(np.array([region]))):
            break
        granted.append(region)
    return option.select(np.array(granted, np.int64))


def _all_granted(allocator: ExecutionSlotAllocator, option: RegionDeploymentOption) -> bool:
    """False: nothing was kept."""
    granted: list[ExecutionDeploymentOption] = []
    for part in option.parts:
        granted.append(allocator.allocate_slots_for(part))
        if len(granted[-1].executions) < len(part.executions):
            for given in granted:
                allocator.cancel(given.executions)
            return False
    return True
