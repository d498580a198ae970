"""Asks for slots, and deploys what got one (Flink: DefaultExecutionDeployer): one command per vertex, or per set of
vertices that run together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firesteel.model.arrays import Ints, is_ascending, without
from firesteel.scheduler.deployment.descriptors import DeploymentDescriptorFactory
from firesteel.scheduler.kernel.commands import Deploy, DeployRegions, Placement
from firesteel.scheduler.kernel.profiler import InPhase, Profiler, SchedulingPhase
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.slots.allocators import (
    DeploymentOption,
    ExecutionDeploymentOption,
    ExecutionSlotAllocator,
    RegionDeploymentOption,
)
from firesteel.scheduler.topology.operations import ExecutionOperations


class ExecutionDeployer:
    def __init__(
        self,
        operations: ExecutionOperations,
        descriptors: DeploymentDescriptorFactory,
        allocator: ExecutionSlotAllocator,
        recorder: Recorder,
        *,
        placement: Callable[[ExecutionDeploymentOption], Placement | None],
        order: Callable[[list[DeploymentOption]], list[DeploymentOption]],
        profiler: Profiler,
    ) -> None:
        self._operations = operations
        self._descriptors = descriptors
        self._allocator = allocator
        self._recorder = recorder
        self._placement = placement
        self._order = order
        self._profiler = profiler

    def allocate_slots_and_deploy(self, options: list[DeploymentOption]) -> list[tuple[int, Ints]]:
        """Returns what got no slot, vertex and subtasks: it stays as it is, for the caller to ask again."""
        refused: list[tuple[int, Ints]] = []
        for option in self._order(options):
            if isinstance(option, RegionDeploymentOption):
                asked, granted = option.parts[0], self._deploy_regions(option)
            else:
                asked, granted = option, self._deploy_executions(option)
            if len(granted.subtasks) < len(asked.subtasks):
                left = without(_ascending(asked.subtasks), _ascending(granted.subtasks))
                refused.append((asked.vertex, left))
        return refused

    def allocate_slots_and_place(self, option: ExecutionDeploymentOption, placement: Placement) -> None:
        """Deploy those that get a slot now; the others stay in CREATED, for the caller to ask again."""
        granted = self._allocator.allocate_slots_for(option)
        if len(granted.executions):
            self._recorder.emit(self._deploy(granted, placement))

    def _deploy_executions(self, option: ExecutionDeploymentOption) -> ExecutionDeploymentOption:
        """Returns the part that got slots."""
        granted = self._allocator.allocate_slots_for(option)
        if len(granted.executions):
            self._recorder.emit(self._deploy(granted, self._placement(granted)))
        return granted

    def _deploy_regions(self, option: RegionDeploymentOption) -> ExecutionDeploymentOption:
        """Returns the first part of the regions that got slots."""
        granted = self._allocator.allocate_slots_for_regions(option)
        if len(granted.parts[0].executions):
            parts = tuple(self._deploy(part, self._placement(part)) for part in granted.parts)
            self._recorder.emit(DeployRegions(parts))
        return granted.parts[0]

    def _deploy(self, granted: ExecutionDeploymentOption, placement: Placement | None) -> Deploy:
        self._operations.move(granted.vertex, granted.executions, ExecutionState.SCHEDULED)
        with InPhase(self._profiler, SchedulingPhase.DEPLOY):
            return self._descriptors.deploy(granted, placement)


def _ascending(subtasks: Ints) -> Ints:
    """The same, sorted: most are already."""
    return subtasks if is_ascending(subtasks) else np.sort(subtasks)
